"""The worker against a daemon of the test, and the kit beside it: both call handlers by the same code."""

import asyncio
import dataclasses
import functools
import io
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

from fake_daemon import PATIENCE, Daemon, plain

from tasker import (
    ApiError,
    AsyncClient,
    Batch,
    BatchConfig,
    Client,
    Cursor,
    Decision,
    Event,
    Handlers,
    Hooks,
    Permanent,
    Publisher,
    Resolver,
    Retryable,
    StepContext,
    StepEvent,
    Subscriber,
    UnknownStep,
    Worker,
)
from tasker._threads import Loop
from tasker._worker import _Life
from tasker.testing import Outcome, run_step

JSON = Any


class Running:
    """A worker of handlers with its daemon, in a with block."""

    def __init__(self, handlers: Handlers, permits: int = 4, daemon: "Daemon | None" = None, **options: Any) -> None:
        self.daemon = daemon or Daemon()
        self.handlers, self.permits, self.options = handlers, permits, options

    def __enter__(self) -> Daemon:
        self.daemon.__enter__()
        self.worker = Worker(self.daemon.url, permits=self.permits, **self.options)
        self.worker.include(self.handlers)
        self.worker.start()
        return self.daemon

    def __exit__(self, *_: object) -> None:
        self.worker.stop(PATIENCE)
        self.daemon.__exit__()


def both(handlers: Handlers, callable: str, **step: JSON) -> Sequence[Mapping[str, JSON]]:
    """How a handler ends in a worker, and with the kit: both must say the same."""
    with Running(handlers) as daemon:
        report = dict(daemon.report(daemon.step(callable, **step)))
    del report["fence"]
    fields = {
        k: v
        for k, v in step.items()
        if k not in ("context", "dependency_results", "batch", "items", "publishes", "max_attempts", "attempt")
    }
    end: Outcome = run_step(
        handlers.find(callable),
        step.get("context"),
        results=step.get("dependency_results"),
        batch=step.get("batch"),
        items=step.get("items"),
        publishes=step.get("publishes", ()),
        publishers=list(handlers._publishers.values()),
        max_attempts=step.get("max_attempts", 3),
        attempt=step.get("attempt", 1),
        **fields,
    )
    kit = {k: plain(v) for k, v in dataclasses.asdict(end).items() if v not in (None, (), []) and k != "saved"}
    if end.outcome == "success" and end.result is None:
        kit["result"] = None
    return [plain(report), kit]


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def hidden(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that does not say what it decorates."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


class Coroutines(unittest.TestCase):
    def test_whatever_is_awaitable_is_awaited(self) -> None:
        handlers = Handlers()

        async def doubled(ctx: StepContext) -> object:
            await asyncio.sleep(0)
            return ctx.context["n"] * 2

        class Object:
            async def call(self, ctx: StepContext) -> object:
                return await doubled(ctx)

        handlers.handler("plain")(doubled)
        handlers.handler("wrapped")(wrapped(doubled))
        handlers.handler("hidden")(hidden(doubled))
        handlers.handler("partial")(functools.partial(doubled))
        handlers.register("object", Object())
        handlers.handler("nested")(lambda ctx: doubled(ctx))

        async def pays(ctx: StepContext, before: int, n: int) -> object:
            return before + n

        for name, decorate in (("step", lambda f: f), ("wrapped_step", wrapped), ("hidden_step", hidden)):
            handlers.step(name, depends_on={"before": "a"}, inputs=["n"])(decorate(pays))
        for name in ("plain", "wrapped", "hidden", "partial", "object", "nested"):
            self.assertEqual(both(handlers, name, context={"n": 4}), [{"outcome": "success", "result": 8}] * 2, name)
        for name in ("step", "wrapped_step", "hidden_step"):
            self.assertEqual(
                both(handlers, name, context={"n": 4}, dependency_results={"a": 3}),
                [{"outcome": "success", "result": 7}] * 2,
                name,
            )

    def test_async_batch_workers_and_decisions(self) -> None:
        handlers = Handlers()

        @handlers.batch_worker("batch")
        async def batch(ctx: StepContext, batch: Batch) -> object:
            await asyncio.sleep(0)
            return {"rows": batch.end - batch.start}

        @handlers.decision("route")
        @hidden
        async def route(ctx: StepContext) -> Decision:
            return Decision.route("a", result={"because": 1})

        @handlers.batch_analyzer("split", worker_template="rows")
        @wrapped
        async def split(ctx: StepContext) -> BatchConfig:
            return BatchConfig(2, cursors=[Cursor("x", "a", "m", 1), Cursor("y", items=[7])])

        part = {"batch_id": "001", "start_cursor": 10, "end_cursor": 30, "batch_size": 20, "is_no_op": False}
        self.assertEqual(both(handlers, "batch", batch=part), [{"outcome": "success", "result": {"rows": 20}}] * 2)
        self.assertEqual(
            both(handlers, "batch", batch={**part, "is_no_op": True}),
            [{"outcome": "success", "result": {"no_op": True}}] * 2,
        )
        decided = {
            "route": ["a"],
            "because": 1,
            "decision_point_outcome": {"type": "create_steps", "step_names": ["a"]},
        }
        self.assertEqual(both(handlers, "route"), [{"outcome": "success", "result": decided}] * 2)
        cursors = [
            {"batch_id": "x", "start_cursor": "a", "end_cursor": "m", "batch_size": 1},
            {"batch_id": "y", "start_cursor": None, "end_cursor": None, "batch_size": 1, "items": [7]},
        ]
        made = {
            "type": "create_batches",
            "worker_template_name": "rows",
            "worker_count": 2,
            "cursor_configs": cursors,
            "total_items": 2,
        }
        self.assertEqual(
            both(handlers, "split"), [{"outcome": "success", "result": {"batch_processing_outcome": made}}] * 2
        )

    def test_what_a_coroutine_asks_delays_no_other(self) -> None:
        """Each request is answered once another handler on the same loop has ended."""
        handlers, release = Handlers(), threading.Event()

        @handlers.handler("saves")
        async def saves(ctx: StepContext) -> object:
            await ctx.checkpoint(1, 1)
            return ctx.saved.cursor if ctx.saved else None

        @handlers.handler("saves_without_await")
        async def saves_without_await(ctx: StepContext) -> object:
            ctx.checkpoint(1, 1)
            return "ended"

        @handlers.handler("reads")
        async def reads(ctx: StepContext) -> object:
            return [
                await ctx.result("far"),
                await ctx.result("near"),
                await ctx.result_as("far", Amount),
                await ctx.batch_results("rows"),
            ]

        @handlers.step("injected", depends_on={"far": "far"})
        async def injected(ctx: StepContext, far: object) -> object:
            return far

        @handlers.handler("other")
        async def other(ctx: StepContext) -> object:
            return "not delayed"

        def late(answer: JSON) -> Callable[[Mapping[str, str], JSON], JSON]:
            def give(query: Mapping[str, str], body: JSON) -> JSON:
                release.wait(PATIENCE)
                return answer

            return give

        ends = {
            "saves": 1,
            "saves_without_await": "ended",
            "injected": {"amount": 7},
            "reads": [{"amount": 7}, 5, {"amount": 7, "note": ""}, [{"step_name": "rows_001", "result": 2}]],
        }
        with Running(handlers) as daemon:
            daemon.answers["/checkpoint"] = late({"saved_at": "2026-01-02T03:04:05Z"})
            daemon.answers["/results"] = late({"result": {"amount": 7}})
            daemon.answers["/batch-results"] = late({"batches": [{"step_name": "rows_001", "result": 2}]})
            for name, result in ends.items():
                release.clear()
                before = len(daemon.requests)
                slow = daemon.step(name, dependency_results={"near": 5})
                daemon.wait(lambda before=before: any(r.endswith(("/checkpoint", "/results")) for r in daemon.requests[before:]))  # type: ignore[misc]
                self.assertEqual(daemon.report(daemon.step("other"))["result"], "not delayed")
                self.assertFalse(any(r["fence"] == slow for r in daemon.reports), name)
                release.set()
                self.assertEqual(daemon.report(slow)["result"], result, name)

    def test_what_is_not_awaited_is_done_in_order_before_the_end(self) -> None:
        handlers = Handlers()

        @handlers.handler("saves")
        async def saves(ctx: StepContext) -> object:
            for n in range(20):
                ctx.checkpoint(n, n)
            return True

        @handlers.handler("uses")
        async def uses(ctx: StepContext) -> object:
            return ctx.result("near")["a"]

        saved: list[int] = []

        def save(query: Mapping[str, str], body: JSON) -> JSON:
            saved.append(body["cursor"])
            return (422, {"detail": "too large"}) if body["cursor"] == refused else {"saved_at": ""}

        for refused, outcome in ((-1, "success"), (7, "failure")):
            saved.clear()
            with Running(handlers) as daemon:
                daemon.answers["/checkpoint"] = save
                report = daemon.report(daemon.step("saves"))
            self.assertEqual(report["outcome"], outcome)
            self.assertEqual(saved, list(range(20)))
        self.assertEqual(
            (report["error"]["error_type"], report["error"]["retryable"]), ("CheckpointNotStorable", False)
        )
        for end in both(handlers, "uses", dependency_results={"near": {"a": 1}}):
            self.assertIn("want await ctx.result('near')", end["error"]["message"])

    def test_a_coroutine_of_the_loop_may_wait_for_another(self) -> None:
        async def value() -> int:
            return 7

        async def outer() -> int:
            return int(loop.value(value()))

        loop = Loop()
        self.assertEqual(loop.value(outer()), 7)
        loop.close()

    def test_the_kit_is_called_in_a_coroutine_too(self) -> None:
        async def test() -> None:
            self.assertEqual(run_step(lambda ctx: ctx.result("far"), ancestors={"far": 7}).result, 7)

        asyncio.run(test())


@dataclasses.dataclass
class Amount:
    amount: float
    note: str = ""


@dataclasses.dataclass
class Order:
    first: Amount
    others: list[Amount] = dataclasses.field(default_factory=list)


class Arguments(unittest.TestCase):
    def test_models_and_what_may_be_absent(self) -> None:
        handlers = Handlers()

        @handlers.step("ship", depends_on={"payment": ("charge", Amount), "gift": "wrap"}, inputs=["address", "note"])
        def ship(ctx: StepContext, payment: Amount, address: str, gift: object = None, note: str = "none") -> object:
            return [payment.amount, gift, address, note]

        context, results = {"address": "here"}, {"charge": {"result": {"amount": 7, "unknown": 1}}}
        self.assertEqual(run_step(ship, context, results=results).result, [7, None, "here", "none"])
        self.assertEqual(
            run_step(ship, {**context, "note": None}, results={**results, "wrap": 1}).result, [7, 1, "here", None]
        )
        self.assertEqual(ship(None, Amount(1), "there"), [1, None, "there", "none"])  # type: ignore[arg-type]
        for given, missing in (
            (({}, results), "lacks address"),
            ((context, {}), "no result of the step charge"),
            (
                (context, {"charge": {"amount": "7"}}),
                "the result of step 'charge' does not fit Amount: str instead of float",
            ),
        ):
            error = run_step(ship, given[0], results=given[1]).error or {}
            self.assertIn(missing, error["message"])
            self.assertEqual((error["error_type"], error["retryable"]), ("InvalidInput", False))

        def twice(ctx: StepContext) -> object:
            return 1

        handlers.step("one")(twice)
        handlers.step("two")(twice)
        with self.assertRaisesRegex(ValueError, "registered 2 times"):
            run_step(twice)
        self.assertEqual(run_step(handlers.find("two")).result, 1)

    def test_documents_become_models(self) -> None:
        def reads(ctx: StepContext) -> object:
            order = ctx.context_as(Order)
            return [
                order.first.amount,
                [o.note for o in order.others],
                ctx.config_as(Amount),
                ctx.field("first")["amount"],
                ctx.field("none", 5),
                (ctx.items_as(Amount) or [])[0].amount,
                ctx.cursor_as(Amount),
                ctx.accumulated_as(Amount),
            ]

        end = run_step(
            reads,
            {"first": {"amount": 1}, "others": [{"amount": 2, "note": "b"}], "none": None},
            config={"amount": 3},
            items=[{"amount": 4}],
            checkpoint={
                "cursor": {"amount": 5},
                "items_processed": 1,
                "accumulated_results": {"amount": 6},
                "timestamp": "2026-01-02T03:04:05.5+01:00",
            },
        )
        amounts = [{"amount": n, "note": ""} for n in (3, 5, 6)]
        self.assertEqual(plain(end.result), [1, ["b"], amounts[0], 1, 5, 4, *amounts[1:]])

    def test_what_a_context_does_not_have(self) -> None:
        def reads(ctx: StepContext) -> object:
            assert "rows" not in ctx.results and ctx.results.get("other") is None
            with self.assertRaisesRegex(KeyError, r"rows has many results: ctx.batch_results\('rows'\)"):
                ctx.results.get("rows")
            with self.assertRaisesRegex(KeyError, r"ctx.result\('split'\) reads that of any step"):
                ctx.results["split"]
            with self.assertRaisesRegex(LookupError, "field 'x' of the task's context is absent"):
                ctx.field("x")
            return [ctx.is_retry, ctx.parent_correlation_id, str(ctx.requested_at), ctx.token]

        end = run_step(
            reads,
            batch_steps=["rows"],
            attempt=2,
            parent_correlation_id="p",
            requested_at="2026-01-02T03:04:05.123456789Z",
            fence="4711.12",
        )
        self.assertEqual(end.result, [True, "p", "2026-01-02 03:04:05.123456+00:00", 4711], end.error)
        with Daemon() as daemon:
            daemon.answers["/results"] = lambda query, body: (
                404,
                {"detail": 'step "no" of order: not a step this one depends on'},
            )
            worker = Worker(daemon.url)
            worker.handler("asks")(lambda ctx: ctx.result("no"))
            worker.start()
            self.assertEqual(daemon.report(daemon.step("asks"))["error"]["error_type"], UnknownStep.__name__)
            worker.stop(PATIENCE)

    def test_batches_and_isolated_items(self) -> None:
        handlers = Handlers()

        @handlers.batch_worker("rows")
        def rows(ctx: StepContext, batch: Batch) -> object:
            ctx.isolate({"row": batch.range()[0]}, "bad row")
            return batch.range()[1]

        part = {"batch_id": "001", "start_cursor": 10, "end_cursor": 30, "batch_size": 20, "is_no_op": False}
        self.assertEqual(run_step(rows, batch={**part, "failure_strategy": "isolate"}).isolated[0]["item"], {"row": 10})
        for step, why in (
            ({"batch": {**part, "failure_strategy": "fail_fast"}}, "has the failure_strategy fail_fast"),
            ({"items": [1]}, "has 1 items and no range"),
            ({"batch": {**part, "start_cursor": "a"}}, "invalid start 'a' of batch '001': want a whole number"),
        ):
            self.assertIn(why, (run_step(rows, **step).error or {})["message"])

    def test_fields_and_results_of_batches_become_models(self) -> None:
        def field(ctx: StepContext) -> object:
            return [ctx.field_as("at", Amount).amount, ctx.field_as("none", Amount, 0), ctx.field_as("null", Amount, 1)]

        context = {"at": {"amount": 7}, "null": None}
        self.assertEqual(run_step(field, context).result, [7, 0, 1])
        for wrong, why in (({"at": 7}, "InvalidInput"), ({}, "Absent")):
            self.assertEqual((run_step(field, wrong).error or {})["error_type"], why)

        self.assertEqual(run_step(lambda ctx: list(ctx.batch_steps), batch_steps=["rows"]).result, ["rows"])
        self.assertEqual(run_step(lambda ctx: list(ctx.batch_steps)).result, [])

        def total(ctx: StepContext) -> object:
            values, missing = ctx.batch_values("rows", Amount)
            return [[[v.step_name, v.batch_id, v.value.amount, v.isolated] for v in values], missing]

        async def later(ctx: StepContext) -> object:
            values, missing = await ctx.batch_values("rows")
            return [[v.value for v in values], missing]

        batches = {"rows": [{"amount": 1}, None, {"amount": 3}]}
        self.assertEqual(
            run_step(total, batch_results=batches).result, [[["rows_001", "001", 1, 0], ["rows_003", "003", 3, 0]], 1]
        )
        self.assertEqual(run_step(later, batch_results=batches).result, [[{"amount": 1}, {"amount": 3}], 1])
        with Daemon() as daemon:
            empty = {"step_name": "rows_000", "batch_id": "000", "is_no_op": True, "result": None}
            known = {"step_name": "rows_a", "batch_id": "b", "isolated": 2, "result": {"amount": 5}}
            daemon.answers["/batch-results"] = lambda query, body: (200, {"batches": [empty, known]})
            worker = Worker(daemon.url)
            worker.handler("asks")(total)
            worker.start()
            self.assertEqual(daemon.report(daemon.step("asks"))["result"], [[["rows_a", "b", 5, 2]], 0])
            worker.stop(PATIENCE)

    def test_the_deadline_is_that_of_the_time_limit(self) -> None:
        before = datetime.now(timezone.utc)
        ends: list[datetime | None] = []
        handler = lambda ctx: ends.append(ctx.deadline)  # noqa: E731
        self.assertEqual(run_step(handler, time_left_ms=60_000).outcome, "success")
        self.assertEqual(run_step(handler).outcome, "success")
        first, second = ends
        assert first is not None
        self.assertLessEqual(before + timedelta(seconds=60), first)
        self.assertLessEqual(first, datetime.now(timezone.utc) + timedelta(seconds=60))
        self.assertIsNone(second)


class Numbers(unittest.TestCase):
    EXACT = [
        "9007199254740993",
        "123456789012345678901234567890",
        "1.000000000000000001",
        "-0.1234567890123456789012345678901",
        "1e400",
        "0.1",
        "7" * 5000,
    ]

    def test_every_digit_passes_both_ways(self) -> None:
        handlers = Handlers()

        @handlers.handler("passes")
        def passes(ctx: StepContext) -> object:
            ctx.checkpoint(ctx.context["numbers"], 1, ctx.results["before"])
            ctx.publish("numbers", ctx.result("far"))
            ctx.metadata["numbers"] = ctx.config["numbers"]
            return [
                ctx.context["numbers"],
                ctx.results["before"],
                ctx.result("far"),
                ctx.saved.cursor if ctx.saved else None,
            ]

        sent: list[str] = []
        numbers = [Decimal(n) if "." in n or "e" in n else int(Decimal(n)) for n in self.EXACT]
        with Running(handlers) as daemon:
            daemon.answers["/results"] = lambda query, body: {"result": numbers}
            daemon.answers["/checkpoint"] = lambda query, body: sent.append(body["cursor"]) or {"saved_at": ""}  # type: ignore[func-returns-value]
            fence = daemon.step(
                "passes",
                context={"numbers": numbers},
                dependency_results={"before": numbers},
                initialization={"numbers": numbers[:6]},
            )
            report = daemon.report(fence)
        for got in (*report["result"], report["events"][0]["payload"], *sent):
            self.assertEqual(
                [Decimal(str(n)) if isinstance(n, float) else Decimal(n) for n in got], list(map(Decimal, numbers))
            )
            self.assertEqual([type(n) for n in got], [int, int, Decimal, Decimal, Decimal, float, int])
        self.assertEqual(report["metadata"]["numbers"][2], Decimal(self.EXACT[2]))

    def test_what_is_no_number_is_refused_in_words(self) -> None:
        for value in (float("nan"), Decimal("Infinity"), {"a": [float("-inf")]}):
            error = run_step(lambda ctx, value=value: value).error or {}
            self.assertEqual(
                (error["error_type"], error["message"]),
                (
                    "ResultNotEncodable",
                    "the handler's result has no JSON form: invalid number: JSON has no NaN and no Infinity",
                ),
            )


class Ends(unittest.TestCase):
    def test_a_chosen_failure_is_one_line(self) -> None:
        def chosen(ctx: StepContext) -> object:
            raise Permanent("no stock")

        def unforeseen(ctx: StepContext) -> object:
            raise ValueError("a fault")

        for handler, trace in ((chosen, False), (unforeseen, True)):
            with self.assertLogs("tasker") as logs:
                run_step(handler)
            (record,) = logs.records
            self.assertEqual(record.exc_info is not None, trace)
            self.assertNotIn("\n", record.getMessage())

    def test_metadata_beside_a_success(self) -> None:
        handlers = Handlers()

        @handlers.handler("notes")
        def notes(ctx: StepContext) -> object:
            ctx.metadata["text"] = "x" * ctx.context["size"]
            if ctx.context["fails"]:
                raise Retryable("later")
            return 1

        noted = {"outcome": "success", "result": 1, "metadata": {"text": "xx"}}
        self.assertEqual(both(handlers, "notes", context={"size": 2, "fails": False}), [noted] * 2)
        for end in both(handlers, "notes", context={"size": 20000, "fails": False}):
            self.assertEqual((end["error"]["error_type"], end["error"]["retryable"]), ("ResultNotStorable", False))
        self.assertNotIn("metadata", both(handlers, "notes", context={"size": 2, "fails": True})[0])

    def test_a_handler_learns_that_its_end_was_recorded(self) -> None:
        handlers, recorded = Handlers(), []
        known = threading.Semaphore(0)

        @handlers.handler("ends")
        def ends(ctx: StepContext) -> object:
            def note(accepted: bool) -> None:
                recorded.append((ctx.fence, accepted))
                known.release()

            ctx.on_recorded(note)
            return None

        with Running(handlers) as daemon:
            for status in (None, 409):
                daemon.answers["/reports"] = lambda query, body, status=status: {  # type: ignore[misc]
                    "rejected": [
                        {"fence": r["fence"], "status": status, "error": "late"} for r in body["reports"] if status
                    ]
                }
                daemon.step("ends")
                self.assertTrue(known.acquire(timeout=PATIENCE))
        self.assertEqual(recorded, [("1.1", True), ("2.1", False)])


class PaymentEvents(Publisher):
    """Publishes payments of other customers than those that are tests."""

    name = "payment_events"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.after_called = threading.Event()

    async def before(self, event: StepEvent) -> None:
        self.calls.append("before " + event.name)

    def should_publish(self, event: StepEvent) -> bool:
        return bool(event.context.get("customer") != "test")

    async def payload(self, event: StepEvent) -> object:
        if event.context.get("customer") == "odd":
            raise ValueError("an odd customer")
        return {"cents": event.result["amount"] * 100} if event.success else event.payload

    def metadata(self, event: StepEvent) -> object:
        return {"attempt": event.attempt}

    def after(self, event: StepEvent) -> None:
        self.calls.append("after " + event.name)
        self.after_called.set()

    def failed(self, event: StepEvent, error: Exception) -> None:
        self.calls.append(f"failed {event.name} {error}")


class DomainEvents(unittest.TestCase):
    DECLARED = [
        {"name": f"payment.{c}", "condition": c, "delivery_mode": "durable", "publisher": "payment_events"}
        for c in ("success", "failure", "retryable_failure", "permanent_failure", "always")
    ] + [{"name": "payment.other", "condition": "always", "publisher": "not_here"}]

    def handlers(self) -> tuple[Handlers, PaymentEvents]:
        handlers, publisher = Handlers(), PaymentEvents()
        handlers.publisher(publisher)

        @handlers.handler("charge")
        def charge(ctx: StepContext) -> object:
            if "error" in ctx.context:
                raise (Permanent if ctx.context["error"] == "final" else Retryable)("declined", code="D1")
            return {"amount": 7}

        return handlers, publisher

    def test_publishers_make_what_follows_the_end(self) -> None:
        handlers, publisher = self.handlers()
        for context, step, names in (
            ({}, {}, ["success", "always"]),
            ({"error": "later"}, {}, ["failure", "retryable_failure", "always"]),
            ({"error": "final"}, {}, ["failure", "permanent_failure", "always"]),
            ({"error": "later"}, {"attempt": 3}, ["failure", "permanent_failure", "always"]),
        ):
            for end in both(handlers, "charge", context=context, publishes=self.DECLARED, **step):
                self.assertEqual([m["name"] for m in end["made"]], ["payment." + n for n in names])
                made = end["made"][0]
                self.assertEqual(made["metadata"], {"attempt": step.get("attempt", 1)})
                error = {
                    "message": "declined",
                    "error_type": "Permanent" if context.get("error") == "final" else "Retryable",
                    "retryable": context.get("error") != "final",
                    "error_code": "D1",
                }
                self.assertEqual(
                    made["payload"],
                    {"error": error, "error_code": "D1", "error_message": "declined"} if context else {"cents": 700},
                )
        self.assertTrue(publisher.after_called.wait(PATIENCE))
        for customer, skip in (("test", "vetoed"), ("odd", "publisher_error")):
            for end in both(handlers, "charge", context={"customer": customer}, publishes=self.DECLARED[:1]):
                self.assertEqual(
                    (end["outcome"], end["made"]), ("success", [{"name": "payment.success", "skip": skip}])
                )
        self.assertEqual(publisher.calls[-2:], ["before payment.success", "failed payment.success an odd customer"])

    def test_a_publisher_that_does_not_end_keeps_no_step(self) -> None:
        class Hangs(Publisher):
            async def payload(self, event: StepEvent) -> object:
                return await asyncio.Event().wait()

        declared = [{"name": "a", "condition": "always", "publisher": "Hangs"}]
        with mock.patch("tasker._events._PUBLISHER_TIMEOUT", 0.0):
            end = run_step(lambda ctx: 1, publishers=[Hangs()], publishes=declared)
        self.assertEqual((end.outcome, end.made), ("success", [{"name": "a", "skip": "publisher_error"}]))

    def test_after_comes_with_the_accepted_report(self) -> None:
        handlers, publisher = self.handlers()
        with Running(handlers) as daemon:
            daemon.answers["/reports"] = lambda query, body: {
                "rejected": [{"fence": r["fence"], "status": 409, "error": "late"} for r in body["reports"]]
            }
            daemon.report(daemon.step("charge", publishes=self.DECLARED[:1]))
        self.assertNotIn("after payment.success", publisher.calls)
        self.assertEqual(daemon.opens[0]["publishers"], ["payment_events"])

    def test_subscribers_get_the_events_that_fit(self) -> None:
        handlers, got, all_there = Handlers(), [], threading.Event()

        @handlers.subscribe("payment.*", "order.placed")
        async def on_payment(event: Event) -> None:
            got.append(("function", event.name, event.payload, event.metadata["attempt"]))
            if event.name == "payment.failed":
                raise ValueError("of a subscriber")

        class All(Subscriber):
            patterns = ["*"]

            def handle(self, event: Event) -> None:
                got.append(("all", event.name, event.payload, event.metadata["attempt"]))

            def after(self, event: Event) -> None:
                if event.name == "last":
                    all_there.set()

        handlers.subscriber(All())
        handlers.handler("any")(lambda ctx: None)
        with Running(handlers) as daemon:
            events = [
                {"event_id": n, "event_name": n, "event_version": "1", "payload": {"n": n}, "metadata": {"attempt": 2}}
                for n in ("payment.failed", "order.placed", "order.cancelled", "last")
            ]
            daemon.tell(events=events)
            self.assertTrue(all_there.wait(PATIENCE))
        self.assertEqual(daemon.opens[0]["subscribes"], ["payment.*", "order.placed", "*"])
        self.assertEqual([g for g in got if g[0] == "all"], [("all", e["event_name"], e["payload"], 2) for e in events])
        self.assertEqual([g[1] for g in got if g[0] == "function"], ["payment.failed", "order.placed"])


class Offers(unittest.TestCase):
    def test_resolvers_find_what_no_handler_has(self) -> None:
        class Service(Resolver):
            name, callables = "services", ["service://*"]

            def can_resolve(self, ctx: StepContext) -> bool:
                return "unknown" not in ctx.callable

            async def resolve(self, ctx: StepContext) -> object:
                return Methods(ctx.callable.removeprefix("service://"))

        class Methods:
            def __init__(self, name: str) -> None:
                self.name = name

            def call(self, ctx: StepContext) -> object:
                return self.name

            async def refund(self, ctx: StepContext) -> object:
                return self.name + " refunded"

        handlers = Handlers()
        handlers.resolver(Service())
        handlers.handler("service://fixed")(lambda ctx: "by its name")
        handlers.handler("payments.charge")(lambda ctx: "by another spelling")
        with Running(handlers, namespaces=["shop", "bank"]) as daemon:
            for step, result in (
                ({"callable": "service://a"}, "a"),
                ({"callable": "service://b", "method": "refund", "resolver": "services"}, "b refunded"),
                ({"callable": "service://fixed"}, "by its name"),
                ({"callable": "service://fixed", "resolver": "services"}, "fixed"),
                ({"callable": "Payments::ChargeHandler", "offered": "payments.charge"}, "by another spelling"),
                ({"callable": "service://fixed", "resolver": "explicit_mapping"}, "by its name"),
            ):
                self.assertEqual(daemon.report(daemon.step(**step))["result"], result, step)
            for step, error in (
                ({"callable": "service://unknown"}, ("HandlerNotFound", True)),
                ({"callable": "service://a", "method": "void"}, ("MethodNotFound", False)),
                ({"callable": "payments.charge", "method": "void"}, ("MethodNotFound", False)),
            ):
                failed = daemon.report(daemon.step(**step))["error"]
                self.assertEqual((failed["error_type"], failed["retryable"]), error)
            self.assertEqual(daemon.report(daemon.step("of.another"))["outcome"], "returned")
        opened = daemon.opens[0]
        self.assertEqual(opened["namespaces"], ["shop", "bank"])
        self.assertIn({"callable": "service://*", "methods": ["*"], "resolver": "services"}, opened["callables"])
        with self.assertRaisesRegex(ValueError, "want a list of names"):
            Worker(namespaces="shop")

    def test_modules_are_discovered(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder, "found_handlers")
            (package / "deep").mkdir(parents=True)
            (package / "deep" / "__init__.py").touch()
            (package / "__init__.py").write_text("from .one import handlers\n")
            (package / "one.py").write_text(
                "from tasker import Handlers\nhandlers = Handlers()\nhandlers.handler('one')(lambda ctx: 1)\n"
            )
            (package / "deep" / "two.py").write_text(
                "from tasker import Handlers, Worker\nfrom ..one import handlers\nmore = Handlers()\nmore.handler('two')(lambda ctx: 2)\n"
                "mine = Worker()\nmine.handler('three')(lambda ctx: 3)\n"
            )
            sys.path.insert(0, folder)
            try:
                worker = Worker()
                self.assertEqual(worker.discover("found_handlers"), 2)
                self.assertEqual(sorted(c for c, _ in worker._handlers), ["one", "two"])
            finally:
                sys.path.remove(folder)

    def test_what_is_registered_later_is_offered(self) -> None:
        handlers = Handlers()
        handlers.handler("first")(lambda ctx: 1)
        running = Running(handlers)
        with running as daemon:
            daemon.wait(lambda: len(daemon.opens) == 1)
            running.worker.handler("second")(lambda ctx: 2)
            daemon.wait(lambda: len(daemon.opens) == 2)
            self.assertEqual(daemon.report(daemon.step("second"))["result"], 2)
        self.assertEqual([c["callable"] for c in daemon.opens[1]["callables"]], ["first", "second"])

    def test_a_connected_worker_says_so(self) -> None:
        handlers = Handlers()
        for name in ("a", "b"):
            handlers.handler(name)(lambda ctx: None)
        logger, text = logging.getLogger("tasker"), io.StringIO()
        self.assertFalse(logger.hasHandlers(), "the test wants a logger without handlers")
        with redirect_stderr(text):
            with (
                mock.patch.object(logging, "lastResort", logging.StreamHandler(text)),
                Running(handlers, daemon=Daemon(unnamed=["b"])) as daemon,
            ):
                daemon.report(daemon.step("a"))
        lines = text.getvalue().splitlines()
        self.assertEqual(lines[0], f"connected to {daemon.url}, serving 2 handlers")
        self.assertRegex(lines[1], "no step is for the handler b yet")
        self.assertEqual([line for line in lines[2:] if "ResourceWarning" not in line], [])

    def test_run_restores_signal_handlers(self) -> None:
        before = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
        with Daemon() as daemon:

            class Ends(Hooks):
                def opened(self) -> None:
                    during.extend(signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT))
                    os.kill(os.getpid(), signal.SIGTERM)

            during: list[object] = []
            worker = Worker(daemon.url, hooks=Ends())
            worker.handler("a")(lambda ctx: None)
            worker.run()
        self.assertTrue(all(d not in before for d in during))
        self.assertEqual([signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)], before)


class Pace(unittest.TestCase):
    """Clients and workers ask once a second at most where the answers come at once and bring nothing."""

    class Clock:
        """A clock that only waiting moves."""

        def __init__(self) -> None:
            self.now = 1000.0

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            self.now += seconds

        def wait(self, seconds: float) -> bool:
            self.now += seconds
            return False

        def clear(self) -> None:
            pass

        def set(self) -> None:
            pass

    def test_clients_that_wait(self) -> None:
        clock = self.Clock()
        asked: list[float] = []
        task = {"task_uuid": "t", "status": "pending"}

        def send(self: Client, method: str, target: str, *_: object) -> JSON:
            asked.append(clock.now)
            return task

        with mock.patch.object(Client, "_send", send), mock.patch("tasker._client.time", clock):
            client = Client("http://127.0.0.1:1")
            for waits in ("run", "wait"):
                asked.clear()
                with self.assertRaises(TimeoutError):
                    client.run("a", "b", {}, timeout=10) if waits == "run" else client.wait("t", timeout=10)
                self.assertGreaterEqual(min(b - a for a, b in zip(asked, asked[1:])), 1)
                self.assertLessEqual(len(asked), 11)

    def test_workers_that_follow(self) -> None:
        """A draining daemon with a step that runs on, a proxy that answers at once, a daemon that forgets each session."""
        from tasker._session import SessionLost, Unavailable

        message = {
            **dict.fromkeys(
                (
                    "task_uuid",
                    "step_uuid",
                    "correlation_id",
                    "namespace",
                    "task_name",
                    "task_version",
                    "step_name",
                    "callable",
                ),
                "x",
            ),
            "fence": "1.1",
            "attempt": 1,
            "max_attempts": 3,
            "priority": 0,
            "context": {},
        }
        quiet = {"answer": 1, "steps": [], "cancelled": [], "draining": False}
        for name, given in (
            ("draining", {**quiet, "draining": True}),
            ("quiet", quiet),
            ("empty", None),
            ("lost", SessionLost("404")),
            ("away", Unavailable("503")),
        ):
            clock = self.Clock()
            asked: list[float] = []
            worker = Worker("http://127.0.0.1:1")
            worker.handler("a")(lambda ctx: None)
            life = _Life(worker, worker._session, None)  # type: ignore[arg-type]
            life._held["1.1"] = StepContext(worker._session, message)

            class Enough(Exception):
                pass

            def ask(what: str, given: Any, asked: list[float] = asked, clock: Any = clock) -> None:
                asked.append(clock.now)
                if clock.now > 1030:
                    raise Enough()
                if isinstance(given, Exception):
                    raise given

            def follow(wait: float, stops: bool, given: Any = given, ask: Any = ask) -> Any:
                ask("follow", given)
                if given is not None:
                    yield given

            worker._nudge = clock  # type: ignore[assignment]
            with (
                mock.patch.object(worker._session, "follow", follow),
                mock.patch.object(worker._session, "open", lambda *_: []),
                mock.patch("tasker._worker.time", clock),
                redirect_stderr(io.StringIO()),
                self.assertRaises(Enough),
            ):
                life._follow()
            self.assertLessEqual(len(asked), 60 if name == "away" else 33, name)


class AsyncCalls(unittest.TestCase):
    def test_forty_waits_run_beside_each_other(self) -> None:
        """Each is answered once all of them have arrived: they would wait for ever in less than 40 threads."""
        arrived = threading.Barrier(40)

        def answer(self: Client, method: str, target: str, *_: object) -> JSON:
            arrived.wait(PATIENCE)
            return {"task_uuid": target, "status": "complete"}

        async def test() -> list[str]:
            client = AsyncClient(Client("http://127.0.0.1:1"))
            return [t.status for t in await asyncio.gather(*(client.wait(str(n), 1) for n in range(40)))]

        with mock.patch.object(Client, "_send", answer):
            self.assertEqual(asyncio.run(test()), ["complete"] * 40)

    def test_it_has_what_the_client_has(self) -> None:
        known = {n for n in dir(Client) if not n.startswith("_")}
        self.assertEqual({n for n in dir(AsyncClient) if not n.startswith("_")}, known)

        def answer(self: Client, method: str, target: str, *_: object) -> JSON:
            if target.endswith("workflow_steps"):
                return [{"step_uuid": "s"}]
            if "cursor=" in target:
                return {
                    "tasks": [{"task_uuid": target[-1], "status": "complete"}],
                    "next_cursor": "" if target.endswith("2") else "2",
                }
            return {"step_uuid": "s", "name": "a"}

        async def test() -> None:
            client = AsyncClient(Client("http://127.0.0.1:1"))
            self.assertEqual(await client.steps("t"), [{"step_uuid": "s", "name": "a"}])
            self.assertEqual([t.uuid async for t in client.tasks(namespace="a")], ["t", "2"])
            self.assertEqual((await client.register_template("x"))["name"], "a")

        with mock.patch.object(Client, "_send", answer):
            asyncio.run(test())


PROGRAM = """
import ctypes, sys
from tasker import Worker
worker = Worker(sys.argv[1])

@worker.handler("computes")
def computes(ctx):
    print("began", flush=True)
    ctypes.PyDLL(None).read(0, ctypes.create_string_buffer(1), 1)  # holds the lock of the interpreter until a byte comes
    return "computed"

worker.run()
"""


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@unittest.skipUnless(Path("/proc/self/stat").exists(), "processes are found in /proc")
class Presence(unittest.TestCase):
    def test_a_process_is_present_while_its_interpreter_is_locked(self) -> None:
        with Daemon(max_wait_ms=100, grace_ms=300) as daemon:
            source = str(Path(__file__).parent.parent / "src")
            run = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, daemon.url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])},
            )
            try:
                self._walk(daemon, run)
            finally:
                run.kill()
                run.wait()
                for pipe in (run.stdin, run.stdout):
                    if pipe is not None:
                        pipe.close()

    def _walk(self, daemon: Daemon, run: "subprocess.Popen[bytes]") -> None:
        assert run.stdin is not None and run.stdout is not None
        daemon.wait(lambda: len(daemon.opens) == 1)
        self.assertEqual(daemon.asked("POST /presence"), 0, "the child starts with the first step")
        fence = daemon.step("computes")
        self.assertEqual(run.stdout.readline(), b"began\n")
        streams = daemon.asked("GET /stream")
        daemon.wait(lambda: daemon.asked("POST /presence") >= 12, "it is not present while the interpreter is locked")
        self.assertLessEqual(daemon.asked("GET /stream") - streams, 1, "the process itself could not ask")

        os.kill(run.pid, signal.SIGSTOP)
        daemon.wait(
            lambda: daemon.present == 0 and Path(f"/proc/{run.pid}/stat").read_text().split(")")[1].split()[0] == "T"
        )
        (child,) = children(run.pid)
        stopped = daemon.asked("POST /presence")
        os.kill(run.pid, signal.SIGCONT)
        daemon.wait(lambda: daemon.asked("POST /presence") > stopped + 2, "it is not present again")

        run.stdin.write(b"x")
        run.stdin.flush()
        self.assertEqual(daemon.report(fence)["result"], "computed")
        self.assertEqual(len(daemon.opens), 1)
        self.assertEqual(children(run.pid), [child], "one child for all steps")
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        daemon.wait(lambda: daemon.present == 0)
        deadline = threading.Event()
        while Path(f"/proc/{child}").exists() and not deadline.wait(0.05):  # takes time: the child ends by itself
            pass

    def test_a_daemon_that_does_not_know_it_is_not_asked_again(self) -> None:
        handlers = Handlers()
        handlers.handler("a")(lambda ctx: None)
        with Running(handlers, daemon=Daemon(max_wait_ms=50)) as daemon:
            daemon.answers["/presence"] = lambda query, body: (404, {"detail": "no such route"})
            daemon.report(daemon.step("a"))
            daemon.wait(lambda: daemon.asked("POST /presence") == 1)
            daemon.wait(lambda: daemon.asked("GET /stream") > 5)
            self.assertEqual(daemon.asked("POST /presence"), 1)


if __name__ == "__main__":
    unittest.main()
