"""A worker of one handler that fails once and creates a task: the address of the daemon, and of the orchestrator."""

import sys

from tasker import Client, Retryable, StepContext, Worker

worker = Worker(sys.argv[1].split(",")[0], permits=4, name="python-traced")


@worker.handler("py_frail")
def frail(ctx: StepContext) -> object:
    if ctx.attempt == 1:
        raise Retryable("not yet")
    client = Client(sys.argv[1].split(",")[1], initiator="test", source_system="test")
    child = client.create_task("none", "traced_child", {"n": 1}, reason="test", idempotency_key=ctx.idempotency_key)
    return {"traceparent": ctx.traceparent, "tracestate": ctx.tracestate, "child": child.uuid}


worker.run()
