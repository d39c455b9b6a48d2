"""A worker of handlers in Python: the address of the daemon, then whether to die."""

import asyncio
import os
import signal
import sys

from tasker import Permanent, StepContext, Worker, Yield

worker = Worker(sys.argv[1], permits=4, name="python-test")


@worker.handler("py_square")
def square(ctx: StepContext) -> object:
    return {"value": ctx.context["n"] + 6}


@worker.handler("py_async")
async def later(ctx: StepContext) -> object:
    await asyncio.sleep(0.01)
    return {"value": ctx.results["py_square_step"]["value"] ** 2, "of": ctx.config["of"]}


class Refunds:
    def call(self, ctx: StepContext) -> object:
        return {"value": ctx.result("py_square_step")["value"] + ctx.result("py_async_step")["value"], "attempt": ctx.attempt}


worker.register("py_object", Refunds())


@worker.handler("py_dies")
def dies(ctx: StepContext) -> object:
    if ctx.saved is None:
        ctx.checkpoint(50, 50, {"sum": 7})
        os.kill(os.getpid(), signal.SIGKILL)
    assert ctx.saved is not None
    return {"resumed_from": ctx.saved.cursor, "sum": ctx.saved.accumulated["sum"], "attempt": ctx.attempt}


@worker.handler("py_yields")
def yields(ctx: StepContext) -> object:
    at = ctx.saved.cursor if ctx.saved else 0
    if at < 3:
        raise Yield(at + 1, at + 1)
    return {"cursor": at, "attempt": ctx.attempt}


@worker.handler("py_fails")
def fails(ctx: StepContext) -> object:
    if ctx.attempt == 1:
        raise ValueError("once more")
    raise Permanent("no more stock", code="S1", details={"left": 0})


@worker.handler("py_unencodable")
def unencodable(ctx: StepContext) -> object:
    return {"a", "set"}


print("ready", flush=True)
worker.run()
print("stopped", flush=True)
