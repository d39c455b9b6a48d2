"""Runs steps that wait for a gate: the daemons' addresses, a directory, the kind of the handlers."""

import os
import sys
import time

from tasker import StepContext, Worker

addresses, directory = sys.argv[1:]
worker = Worker(addresses, permits=2, name="gate-python")


@worker.handler("wait_python")
def wait(ctx: StepContext) -> object:
    with open(os.path.join(directory, f"began-{os.getpid()}-{ctx.task_uuid}"), "a") as log:
        log.write(f"{ctx.attempt}\n")
    while not os.path.exists(os.path.join(directory, "open")):
        ctx.check()
        time.sleep(0.02)
    ctx.checkpoint(1, 1)
    return {"by": os.getpid()}


worker.run()
