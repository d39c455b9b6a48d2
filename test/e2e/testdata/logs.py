"""Runs steps that log, and wait for a gate: the daemon's address, a directory."""

import os
import sys
import time

from tasker import Retryable, StepContext, Worker

address, directory = sys.argv[1:]
worker = Worker(address, permits=2, name="logs-python")


@worker.handler("logs_python")
def logs(ctx: StepContext) -> object:
    ctx.logger.debug("begins", extra={"try": ctx.attempt})
    ctx.logger.info("charged", extra={"cents": 5, "password": "p"})
    ctx.logger.error("no answer", extra={"of": {"service": "bank", "token": "t"}})
    ctx.progress(0.5, "half")
    while not os.path.exists(os.path.join(directory, f"open-{ctx.attempt}")):
        ctx.check()
        time.sleep(0.02)
    ctx.logger.warning("the last words")
    if ctx.attempt == 1:
        raise Retryable("busy", after=0.001)
    return True


@worker.handler("many_python")
def many(ctx: StepContext) -> object:
    for n in range(1000):
        ctx.logger.info(f"line {n}")
    with open(os.path.join(directory, f"began-{os.getpid()}"), "w"):
        pass
    while True:
        time.sleep(0.02)


worker.run()
