"""A worker of handlers in Python: the address of the daemon, then whether to die."""

import asyncio
import os
import signal
import sys

from dataclasses import dataclass

from tasker import Bytes, Continue, Batch, BatchConfig, Decision, Handlers, Permanent, StepContext, Worker, Yield, current_step

worker = Worker(sys.argv[1], permits=4, name="python-test")


@worker.handler("py_square")
def square(ctx: StepContext) -> object:
    assert current_step() is ctx
    return {"value": ctx.context["n"] + 6}


@worker.handler("py_async")
async def later(ctx: StepContext) -> object:
    await asyncio.sleep(0.01)
    assert current_step() is ctx
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


handlers = Handlers()


@dataclass
class Amount:
    amount: float
    requester: str = "unknown"


@handlers.step("py_validate", inputs=["amount"])
def validate(ctx: StepContext, amount: float) -> object:
    if amount <= 0:
        raise Permanent("the amount must be positive", code="VALIDATION_ERROR")
    return {"amount": amount}


@handlers.decision("py_route", depends_on={"valid": "validate_request"}, inputs=Amount)
async def route(ctx: StepContext, valid: object, inputs: Amount) -> Decision:
    assert isinstance(valid, dict) and valid["amount"] == inputs.amount
    if inputs.amount < 1000:
        return Decision.route("auto_approve")
    if inputs.amount < 5000:
        return Decision.route("manager_approval")
    return Decision.route("manager_approval", "finance_review")


@handlers.step("py_approve")
def approve(ctx: StepContext) -> object:
    return {"approved_by": ctx.step_name}


@handlers.step("py_finalize")
def finalize(ctx: StepContext) -> object:
    return {"approvals": sorted(result["approved_by"] for step, result in ctx.results.items() if "approved_by" in result)}


@handlers.batch_analyzer("py_analyze", worker_template="process_batch", inputs=["dataset_size"])
def analyze(ctx: StepContext, dataset_size: int) -> BatchConfig:
    return BatchConfig(dataset_size, 1000, max_batches=10, result={"size": dataset_size})


@handlers.batch_worker("py_process", depends_on={"split": "analyze_dataset"})
async def process(ctx: StepContext, batch: Batch, split: dict[str, int]) -> object:
    assert "analyze_dataset" not in ctx.results and batch.range()[1] <= split["size"]
    return {"processed": batch.end - batch.start}


@handlers.step("py_aggregate")
def aggregate(ctx: StepContext) -> object:
    try:
        ctx.results.get("process_batch")
        raise AssertionError("it is there")
    except KeyError as e:
        assert "ctx.batch_results('process_batch')" in str(e), e
    results = [b["result"] for b in ctx.batch_results("process_batch")]
    return {"total": sum(r.get("processed", 0) for r in results), "batches": len(results)}


@handlers.step("py_bytes", inputs=["picture"])
def with_header(ctx: StepContext, picture: Bytes) -> object:
    return Bytes(b"\x89PY" + picture.data, picture.content_type)


@worker.handler("py_continues")
def continues(ctx: StepContext) -> object:
    hop = ctx.context.get("hop", 0)
    return hop if hop == 2 else Continue({"hop": hop}, context={"hop": hop + 1}, tags=["hop"], delay=0.01)


worker.include(handlers)
print("ready", flush=True)
worker.run()
print("stopped", flush=True)
