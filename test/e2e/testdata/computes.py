"""Runs a step that holds the lock of the interpreter until a pipe is opened: the daemon's address, the pipe, a directory."""

import ctypes
import os
import sys

from tasker import StepContext, Worker

address, pipe, directory = sys.argv[1:]
worker = Worker(address, permits=2, name="computes-python")


@worker.handler("computes_python")
def computes(ctx: StepContext) -> object:
    with open(os.path.join(directory, f"began-{os.getpid()}-{ctx.task_uuid}"), "a") as log:
        log.write(f"{ctx.attempt}\n")
    ctypes.PyDLL(None).open(pipe.encode(), os.O_RDONLY)
    return {"attempt": ctx.attempt}


worker.run()
