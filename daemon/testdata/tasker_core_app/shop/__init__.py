"""An application that was written for tasker_core."""
