"""Runs steps that do nothing: the daemon's address and the permits."""

import sys

from tasker import StepContext, Worker

worker = Worker(sys.argv[1], permits=int(sys.argv[2]), name="load-python")


@worker.handler("load")
def load(ctx: StepContext) -> object:
    return ctx.context


worker.run()
