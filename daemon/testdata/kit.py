"""Walks the kit for tests of workflows, without a program but tasker-ctl: where that is comes in TASKER_CTL."""

import os
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

from tasker import ApiError, Batch, BatchConfig, Bytes, Decision, Handlers, Permanent, StepContext, Yield
from tasker.testing import Engine, EngineError, TaskEnd

handlers = Handlers()


@handlers.step("orders.validate", inputs=["amount"])  # an example of the engine has the same name
def validate(ctx: StepContext, amount: int) -> object:
    if amount < 0:
        raise Permanent("a negative amount", code="NEGATIVE", details={"amount": amount})
    return {"amount": amount}


@handlers.decision("orders.route", depends_on={"valid": "validate"})
def route(ctx: StepContext, valid: dict[str, int]) -> Decision:
    return Decision.route("approve") if valid["amount"] > 100 else Decision.skip()


@handlers.step("orders.approve")
async def approve(ctx: StepContext) -> object:
    return {"approved": True, "limit": ctx.config["limit"]}


@handlers.batch_analyzer("files.analyze", worker_template="process", inputs=["file"])
def analyze(ctx: StepContext, file: Bytes) -> BatchConfig:
    return BatchConfig(len(file.data), 100)


@handlers.batch_worker("files.process")
def process(ctx: StepContext, batch: Batch) -> object:
    return Bytes(ctx.context["file"].data[batch.start:batch.end], "application/x-part")


@handlers.step("files.total")
def total(ctx: StepContext) -> object:
    return Bytes(b"".join(b["result"].data for b in ctx.batch_results("process")))


@handlers.step("numbers.pass", inputs=["numbers"])
def numbers(ctx: StepContext, numbers: list[object]) -> object:
    if ctx.saved is None:
        raise Yield(numbers, 1, {"numbers": numbers})
    ctx.publish("numbers.passed", numbers)
    return {"numbers": numbers, "saved": [ctx.saved.cursor, ctx.saved.accumulated["numbers"]]}


NUMBERS = """
name: numbers
namespace_name: shop
version: 1.0.0
steps:
  - {name: first, handler: {callable: numbers.pass}}
  - {name: second, dependencies: [first], handler: {callable: numbers.read}}
"""


@handlers.step("numbers.read", depends_on={"before": "first"})
async def read(ctx: StepContext, before: dict[str, object]) -> object:
    return [before["numbers"], (await ctx.result("first"))["saved"]]


ORDER = """
name: order
namespace_name: shop
version: 1.2.0
steps:
  - {name: validate, handler: {callable: orders.validate}}
  - {name: route, type: decision, dependencies: [validate], handler: {callable: orders.route}}
  - {name: approve, dependencies: [route], handler: {callable: orders.approve, initialization: {limit: 1000}}}
environments:
  test: {steps: [{name: approve, initialization: {limit: 10}}]}
"""
FILES = """
name: files
namespace_name: imports
version: 1.0.0
steps:
  - {name: analyze, type: batchable, handler: {callable: files.analyze, initialization: {worker_template_name: process}},
     batch_config: {batch_size: 100, parallelism: 4, cursor_field: id, worker_template: process, failure_strategy: fail_fast}}
  - {name: process, type: batch_worker, dependencies: [analyze], handler: {callable: files.process}}
  - {name: total, type: deferred_convergence, dependencies: [process], handler: {callable: files.total}}
"""
WAITS = """
name: waits
namespace_name: shop
version: 1.0.0
on_failure: block
steps:
  - {name: payment, type: wait_for_event, wait: {event: paid, key: order}}
  - {name: none, dependencies: [payment], handler: {callable: has.no_handler}}
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def workflows() -> None:
    (path := Path(sys.argv[1]) / "files.yaml").write_text(FILES)
    with Engine(ORDER, path, WAITS, NUMBERS, handlers=handlers, environment="test") as engine:
        pid = engine._process.pid
        small = engine.run("order", {"amount": 7})
        assert (small.status, small.results) == ("complete", {"validate": {"amount": 7}, "route": small.results["route"]}), small
        again = engine.run("order", {"amount": 7})
        assert again.task.uuid != small.task.uuid and again.status == "complete", again
        large: TaskEnd = engine.run("order", {"amount": 700})
        assert large.results["approve"] == {"approved": True, "limit": 10}, large
        assert large.task.version == "1.2.0" and large.steps["approve"].attempts == 1, large
        wrong = engine.run("order", {"amount": -1})
        failed = wrong.steps["validate"]
        assert (wrong.status, failed.state, failed.result) == ("error", "error", None), wrong
        assert failed.error is not None and failed.error["error_code"] == "NEGATIVE", failed
        assert "validate" not in wrong.results
        file = Bytes(bytes(range(250)))
        batches = engine.run("files", {"file": file})
        assert batches.results["total"] == file and batches.results["process_003"] == Bytes(file.data[200:], "application/x-part"), batches

        exact = [2**53 + 1, int("7" * 30), Decimal("1.000000000000000001"), Decimal("-0." + "123456789" * 6), 0.1, 10**100]
        passed = engine.run("numbers", {"numbers": exact})
        assert passed.results == {"first": {"numbers": exact, "saved": [exact, exact]}, "second": [exact, [exact, exact]]}, passed
        assert engine.client.task(passed.task.uuid).data["context"]["numbers"] == exact
        (event,) = engine.client._call("GET", "/v1/events", query={"name": "numbers.passed"})["events"]
        assert event["payload"] == exact, event

        engine.client.send_event("paid", namespace="shop", key="o-1")
        try:
            engine.run("waits", {"order": "o-1"}, timeout=1)
            raise AssertionError("it has no handler")
        except TimeoutError as e:
            assert "payment is" in str(e) and "none is" in str(e), e
        try:
            engine.run("unknown")
            raise AssertionError("it is not registered")
        except ValueError as e:
            assert "0 templates" in str(e), e
        pids.append(pid)
        raise KeyError("the test fails")


def no_engine() -> None:
    for broken, kind, why in ((lambda: Engine("steps: []"), ApiError, "template"), (lambda: Engine(binary="/nowhere/tasker-ctl"), EngineError, "invalid binary"),
                              (lambda: Engine(binary=sys.executable), EngineError, "ended with")):
        try:
            with broken():
                raise AssertionError("started")
        except kind as e:
            assert why in str(e).lower(), e


def no_program() -> None:
    saved = os.environ.pop("TASKER_CTL"), os.environ["PATH"]
    os.environ["PATH"] = "/nowhere"
    try:
        Engine(ORDER)
        raise AssertionError("found")
    except EngineError as e:
        assert "TASKER_CTL" in str(e) and "PATH" in str(e), e
    os.environ["TASKER_CTL"], os.environ["PATH"] = saved


def killed_test() -> None:
    """The engine of a test that is killed ends too."""
    program = "import sys, time\nfrom tasker.testing import Engine\nwith Engine() as e:\n  print(e._process.pid, flush=True)\n  time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    deadline = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < deadline, "the engine still runs"
        time.sleep(0.05)


pids: list[int] = []
try:
    workflows()
except KeyError:
    assert not alive(pids[0]), "the engine still runs"
no_engine()
no_program()
killed_test()
print("all as it should be")
