"""Handlers for Tasker in Python.

A Worker opens a session with a worker daemon, runs the steps that it is handed, and
reports how they ended. The protocol is docs/protocol.md of the project.
"""

from ._context import Batch, Cancelled, Checkpoint, StepContext
from ._errors import Permanent, Retryable, Returned, TaskerError, Yield
from ._session import SessionLost, Transport
from ._worker import Worker

__all__ = [
    "Batch",
    "Cancelled",
    "Checkpoint",
    "Permanent",
    "Retryable",
    "Returned",
    "SessionLost",
    "StepContext",
    "TaskerError",
    "Transport",
    "Worker",
    "Yield",
]
