"""Runs steps whose first attempts wait for a gate and do not listen to their cancellation: the daemon's
address, a directory."""

import logging
import os
import sys
import time

from tasker import StepContext, Worker

directory = sys.argv[2]
logging.basicConfig(filename=os.path.join(directory, f"log-{os.getpid()}"))
worker = Worker(sys.argv[1], permits=1, name="late-python")


@worker.handler("late")
def late(ctx: StepContext) -> object:
    with open(os.path.join(directory, f"began-{ctx.attempt}"), "a") as log:
        log.write(f"{os.getpid()}\n")
    while ctx.attempt == 1 and not os.path.exists(os.path.join(directory, "open")):
        time.sleep(0.02)
    return {"attempt": ctx.attempt}


worker.run()
