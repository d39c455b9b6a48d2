"""What the documentation of tasker_core names, key by key; an application runs in daemon/testdata/compat.py."""

import asyncio
import datetime
import decimal
import http.server
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fake_daemon import PATIENCE, Daemon, plain

from tasker import compat
from tasker.testing import run_step

compat.install()

import tasker_core  # type: ignore[import-not-found]  # noqa: E402
from tasker_core import (  # noqa: E402
    ApiHandler,
    BaseStepHandler,
    DecisionPointOutcome,
    EventBridge,
    EventNames,
    EventPoller,
    FfiStepEvent,
    HandlerRegistry,
    LogContext,
    PermanentError,
    RetryableError,
    StepContext,
    StepExecutionError,
    StepExecutionSubscriber,
    StepHandler,
    StepHandlerResult,
    TaskerError,
    WorkerAlreadyRunningError,
    WorkerNotInitializedError,
    bootstrap_worker,
    errors,
    get_health_check,
    get_worker_status,
    is_worker_running,
    log_debug,
    log_error,
    log_info,
    log_warn,
    stop_worker,
)
from tasker_core.batch_processing import Batchable, BatchWorkerContext  # type: ignore[import-not-found]  # noqa: E402
from tasker_core.domain_events import (  # type: ignore[import-not-found]  # noqa: E402
    BasePublisher,
    BaseSubscriber,
    InProcessDomainEvent,
    PublisherRegistry,
    StepEventContext,
    SubscriberRegistry,
    SubscriberResult,
)
from tasker_core.registry import (  # type: ignore[import-not-found]  # noqa: E402
    BaseResolver,
    HandlerDefinition,
    ResolutionContext,
    ResolutionError,
    ResolverChain,
)
from tasker_core.step_handler import ApiStepHandler, BatchableHandler, DecisionHandler  # type: ignore[import-not-found]  # noqa: E402
from tasker_core.step_handler.mixins import APIMixin, BatchableMixin, DecisionMixin  # type: ignore[import-not-found]  # noqa: E402
from tasker_core.types import (  # type: ignore[import-not-found]  # noqa: E402
    BootstrapConfig,
    CursorConfig,
    RustBatchWorkerInputs,
    RustCursorConfig,
    aggregate_batch_results,
    create_batches,
    no_batches,
)

JSON = Any


class Fresh(unittest.TestCase):
    def setUp(self) -> None:
        for one in (HandlerRegistry, EventBridge, PublisherRegistry, SubscriberRegistry):
            one.reset_instance()

    def run_as(self, name: str, context: JSON = None, **options: Any) -> Any:
        """Runs a registered handler as a worker does."""
        return run_step(compat.handlers().find(name, options.pop("method", "call")), context, **options)


class Results(Fresh):
    def test_successes_and_failures(self) -> None:
        class All(StepHandler):  # type: ignore[misc]
            def call(self, context: Any) -> Any:
                return ends[context.get_input("end")](self)

        ends: dict[str, Any] = {
            "plain": lambda h: {"a": 1},
            "success": lambda h: h.success({"a": 1}, {"ms": 5}),
            "named": lambda h: h.success(result={"a": 1}, metadata={"ms": 5}),
            "factory": lambda h: StepHandlerResult.success_handler_result({"a": 1}, {"ms": 5}),
            "failure": lambda h: h.failure("no", "payment_error", "P1", False, {"left": 0}),
            "failure_named": lambda h: h.failure(
                message="no", error_type="payment_error", error_code="P1", retryable=False, metadata={"left": 0}
            ),
            "failure_factory": lambda h: StepHandlerResult.failure_handler_result(
                message="no", error_type="payment_error", error_code="P1", retryable=False, metadata={"left": 0}
            ),
            "again": lambda h: h.failure("busy", retryable=True),
            "kind": lambda h: h.failure("not valid", error_type="ValidationError"),
        }
        HandlerRegistry.instance().register("all", All)
        for name in ("success", "named", "factory"):
            end = self.run_as("all", {"end": name})
            self.assertEqual((end.result, end.metadata), ({"a": 1}, {"ms": 5}), name)
        self.assertEqual(self.run_as("all", {"end": "plain"}).result, {"a": 1})
        for name in ("failure", "failure_named", "failure_factory"):
            self.assertEqual(
                self.run_as("all", {"end": name}).error,
                {
                    "message": "no",
                    "error_type": "payment_error",
                    "retryable": False,
                    "error_code": "P1",
                    "context": {"left": 0},
                },
                name,
            )
        self.assertEqual(
            self.run_as("all", {"end": "again"}).error,
            {"message": "busy", "error_type": "handler_error", "retryable": True},
        )
        self.assertFalse(self.run_as("all", {"end": "kind"}).error["retryable"])

    def test_raised_errors(self) -> None:
        raised: list[BaseException] = []

        class Raises(BaseStepHandler):  # type: ignore[misc]
            async def call(self, context: Any) -> Any:
                raise raised[0]

        HandlerRegistry.instance().register("raises", Raises)
        for error, want in (
            (
                StepExecutionError("timeout", error_type="database_error", retryable=True),
                {"error_type": "database_error", "retryable": True},
            ),
            (
                StepExecutionError("wrong", error_type="validation_error", retryable=False),
                {"error_type": "validation_error", "retryable": False},
            ),
            (
                PermanentError("no", error_code="E1", context={"a": 1}),
                {"error_type": "PermanentError", "retryable": False, "error_code": "E1", "context": {"a": 1}},
            ),
            (
                RetryableError("later", retry_after=30),
                {"error_type": "RetryableError", "retryable": True, "retry_after_ms": 30000},
            ),
            (KeyError("x"), {"error_type": "KeyError"}),
        ):
            raised[:] = [error]
            self.assertEqual(self.run_as("raises").error, {"message": str(error), **want})
        self.assertTrue(
            issubclass(StepExecutionError, TaskerError) and issubclass(WorkerNotInitializedError, TaskerError)
        )

    def test_what_a_context_has(self) -> None:
        seen: list[Any] = []

        class Reads(StepHandler):  # type: ignore[misc]
            handler_name = "reads"

            def call(self, context: StepContext) -> Any:
                c = context
                seen[:] = [
                    c.input_data,
                    c.task.context,
                    c.get_task_field("n"),
                    c.get_input("n"),
                    c.get_input_or("m", 5),
                    c.step_config["u"],
                    c.get_config("u"),
                    c.dependency_results.get("a", {}),
                    c.dependency_results["a"],
                    c.get_dependency_result("a"),
                    c.get_dependency_result("far"),
                    c.get_dependency_result("none"),
                    c.get_dependency_field("a", "deep", "x"),
                    c.get_dependency_field("a", "no", "x"),
                    c.retry_count,
                    c.max_retries,
                    c.is_retry(),
                    c.is_last_retry(),
                    c.has_checkpoint(),
                    c.checkpoint_cursor or 0,
                    c.checkpoint_items_processed,
                    c.accumulated_results,
                    c.step_inputs,
                    c.handler_name,
                    c.step_name,
                    c.workflow_step.attempts,
                ]
                return self.success({"uuids": [str(c.task_uuid), str(c.step_uuid), str(c.correlation_id)]})

        HandlerRegistry.instance().register("reads", Reads)
        end = self.run_as(
            "reads",
            {"n": 4},
            results={"a": {"deep": {"x": 1}}},
            ancestors={"far": 7},
            config={"u": "url"},
            attempt=3,
            max_attempts=3,
        )
        a = {"deep": {"x": 1}}
        self.assertEqual(end.outcome, "success", end.error)
        self.assertEqual(
            seen,
            [
                {"n": 4},
                {"n": 4},
                4,
                4,
                5,
                "url",
                "url",
                a,
                a,
                a,
                7,
                None,
                1,
                None,
                2,
                3,
                True,
                True,
                False,
                0,
                0,
                None,
                {},
                "reads",
                "test",
                2,
            ],
        )
        by_hand = StepContext(
            task_uuid="t", step_uuid="s", input_data={"n": 1}, dependency_results={"a": {"b": 2}}, retry_count=0
        )
        self.assertEqual((by_hand.get_dependency_field("a", "b"), by_hand.get_dependency_result("x")), (2, None))
        event = FfiStepEvent(
            "e",
            "t",
            "s",
            "c",
            {
                "task": {"task": {"context": {"n": 2}}},
                "workflow_step": {"name": "x", "attempts": 1, "inputs": {"i": 1}},
                "step_definition": {"handler": {"initialization": {"u": 1}}},
                "dependency_results": {"a": {"result": 3}},
            },
        )
        context = StepContext.from_ffi_event(event, "x")
        self.assertEqual(
            (
                context.input_data,
                context.step_inputs,
                context.step_config,
                context.get_dependency_result("a"),
                context.retry_count,
            ),
            ({"n": 2}, {"i": 1}, {"u": 1}, 3, 1),
        )

    def test_methods_and_instances(self) -> None:
        class Payment(StepHandler):  # type: ignore[misc]
            def __init__(self) -> None:
                self.calls = 0

            def call(self, context: Any) -> Any:
                self.calls += 1
                return self.success({"calls": self.calls})

            def refund(self, context: Any) -> Any:
                return self.success({"refunded": True})

            def total(self, first: int, second: int) -> int:
                return first + second

            def _private(self, context: Any) -> Any:
                raise AssertionError("it is not offered")

        HandlerRegistry.instance().register("payment", Payment)
        offered = {method for name, method in compat.handlers()._handlers if name == "payment"}
        self.assertEqual(offered, {"call", "refund"})
        self.assertEqual(
            [self.run_as("payment").result for _ in range(2)], [{"calls": 1}] * 2, "an instance for each step"
        )
        self.assertEqual(self.run_method("payment", "refund"), {"refunded": True})

    def run_method(self, name: str, method: str) -> Any:
        return run_step(compat.handlers().find(name, method), method=method).result


class Decisions(Fresh):
    def test_their_outcomes(self) -> None:
        class Mixed(StepHandler, APIMixin, DecisionMixin):  # type: ignore[misc]
            def call(self, context: Any) -> Any:
                raise NotImplementedError

        for handler in (Mixed(), type("Plain", (DecisionHandler,), {"call": lambda self, context: None})()):
            create = DecisionPointOutcome.create_steps(step_names=["a", "b"], routing_context={"k": 1})
            for result, outcome, context in (
                (handler.decision_success(create), {"type": "create_steps", "step_names": ["a", "b"]}, {"k": 1}),
                (handler.decision_success(["a"], {"k": 2}), {"type": "create_steps", "step_names": ["a"]}, {"k": 2}),
                (
                    handler.decision_success(steps=["a"], routing_context={"k": 2}),
                    {"type": "create_steps", "step_names": ["a"]},
                    {"k": 2},
                ),
                (handler.route_to_steps(["a"]), {"type": "create_steps", "step_names": ["a"]}, None),
                (
                    handler.decision_no_branches(DecisionPointOutcome.no_branches(reason="none")),
                    {"type": "no_branches"},
                    None,
                ),
                (handler.skip_branches("none", {"k": 3}), {"type": "no_branches"}, {"k": 3}),
                (handler.decision_no_branches({"reason": "none"}), {"type": "no_branches"}, None),
            ):
                self.assertTrue(result.success)
                self.assertEqual(
                    (result.result["decision_point_outcome"], result.result.get("routing_context")), (outcome, context)
                )
            failed = handler.decision_failure("cannot decide", error_type="x")
            self.assertEqual((failed.success, failed.error_type, failed.retryable), (False, "x", False))


class Batches(Fresh):
    class Rows(StepHandler, Batchable):  # type: ignore[misc]
        handler_name = "rows"

        def call(self, context: Any) -> Any:
            batch = self.get_batch_context(context)
            if batch is None:
                return self.failure(message="no batch", error_type="missing_context")
            if no_op := self.handle_no_op_worker(batch):
                return no_op
            at = batch.checkpoint_cursor if batch.has_checkpoint() else batch.start_cursor
            if at < batch.end_cursor - 5:
                self.checkpoint_yield(
                    cursor=at + 5, items_processed=at + 5 - batch.start_cursor, accumulated_results={"at": at}
                )
            return self.batch_worker_success(
                processed_count=batch.batch_size, metadata={"saved": batch.checkpoint_items_processed}
            )

    def test_analyzers(self) -> None:
        h = self.Rows()
        ranges = h.create_cursor_ranges(250, 100, 5)
        self.assertEqual(
            [(c.batch_id, c.start_cursor, c.end_cursor, c.batch_size) for c in ranges],
            [("001", 0, 100, 100), ("002", 100, 200, 100), ("003", 200, 250, 50)],
        )
        self.assertEqual([c.end_cursor for c in h.create_cursor_configs(1000, 5)], [200, 400, 600, 800, 1000])
        self.assertEqual(len(h.create_cursor_ranges(total_items=20500, batch_size=1000, max_batches=10)), 10)
        made = h.batch_analyzer_success(ranges, 250, "process", {"path": "p"})
        outcome = made.result["batch_processing_outcome"]
        self.assertEqual(
            (outcome["type"], outcome["worker_template_name"], outcome["worker_count"], outcome["total_items"]),
            ("create_batches", "process", 3, 250),
        )
        self.assertEqual(
            outcome["cursor_configs"][2], {"batch_id": "003", "start_cursor": 200, "end_cursor": 250, "batch_size": 50}
        )
        self.assertEqual(made.result["batch_metadata"], {"path": "p"})
        for cursor in (
            CursorConfig(batch_size=10, start_cursor=0, end_cursor=10),
            RustCursorConfig("001", 0, 10, 10),
            {"start_cursor": 0, "end_cursor": 10},
        ):
            (sent,) = h.batch_analyzer_success([cursor], 10, "process").result["batch_processing_outcome"][
                "cursor_configs"
            ]
            self.assertEqual(sent, {"batch_id": "001", "start_cursor": 0, "end_cursor": 10, "batch_size": 10})
        for none in (
            h.batch_analyzer_success(cursor_configs=[], total_items=0, batch_metadata={}),
            h.no_batches_outcome("empty"),
        ):
            self.assertEqual(none.result["batch_processing_outcome"], {"type": "no_batches"})
        with self.assertRaisesRegex(StepExecutionError, "names no worker template"):
            h.batch_analyzer_success(ranges, 250)

        class Analyzes(StepHandler, BatchableMixin):  # type: ignore[misc]
            def call(self, context: Any) -> Any:
                return self.batch_analyzer_success(self.create_cursor_ranges(2, 1), 2)

        HandlerRegistry.instance().register("analyzes", Analyzes)
        end = self.run_as("analyzes", config={"worker_template_name": "from_the_template"})
        self.assertEqual(end.result["batch_processing_outcome"]["worker_template_name"], "from_the_template")

    def test_workers_save_and_go_on(self) -> None:
        HandlerRegistry.instance().register("rows", self.Rows)
        part = {
            "batch_id": "002",
            "start_cursor": 10,
            "end_cursor": 18,
            "batch_size": 8,
            "cursor_field": "id",
            "failure_strategy": "isolate",
        }
        end = self.run_as("rows", batch=part)
        self.assertEqual(
            (end.outcome, end.checkpoint),
            ("yield", {"cursor": 15, "items_processed": 5, "accumulated_results": {"at": 10}}),
        )
        end = self.run_as("rows", batch=part, checkpoint=end.checkpoint)
        self.assertEqual(
            (end.result["items_processed"], end.result["items_succeeded"], end.metadata), (8, 8, {"saved": 5})
        )
        self.assertTrue(self.run_as("rows", batch={**part, "is_no_op": True}).result["no_op"])
        self.assertEqual(self.run_as("rows").error["error_type"], "missing_context")
        context = StepContext(
            step_inputs={"cursor": {"batch_id": "1", "start_cursor": 0, "end_cursor": 3}, "is_no_op": False},
            checkpoint={"cursor": 2, "items_processed": 2, "accumulated_results": {"a": 1}},
        )
        for batch in (
            BatchWorkerContext.from_step_data(context),
            type("H", (BatchableHandler,), {"call": None})().get_batch_context(context),
        ):
            self.assertEqual(
                (
                    batch.start_cursor,
                    batch.end_cursor,
                    batch.batch_size,
                    batch.cursor_config.batch_id,
                    batch.checkpoint_cursor,
                    batch.accumulated_results,
                    batch.has_checkpoint(),
                ),
                (0, 3, 3, "1", 2, {"a": 1}, True),
            )

    def test_sums(self) -> None:
        h = self.Rows()
        results = [
            h.batch_worker_success(
                items_processed=10,
                items_succeeded=8,
                items_failed=2,
                results={"x": 1},
                last_cursor=10,
                errors=["e"] * 60,
            ).result,
            h.batch_worker_complete(processed_count=5, result_data={"records": 5}).result,
            None,
            h.handle_no_op_worker(BatchWorkerContext("1", None, None, 0, is_no_op=True)).result,
            h.batch_worker_success(5, 5, 0, errors=["e"] * 60).result,
        ]
        sums = aggregate_batch_results(results).model_dump()
        self.assertEqual(
            sums,
            {
                "total_processed": 20,
                "total_succeeded": 18,
                "total_failed": 2,
                "total_skipped": 0,
                "batch_count": 3,
                "success_rate": 0.9,
                "errors": ["e"] * 100,
                "error_count": 120,
            },
        )
        self.assertEqual(h.aggregate_worker_results(results)["total_processed"], 20)
        self.assertEqual(results[1]["records"], 5)
        scenario = h.detect_aggregation_scenario({"analyze": {"a": 1}, "rows_001": results[0]}, "analyze", "rows_")
        self.assertEqual((scenario.no_batches, scenario.worker_count), (False, 1))
        self.assertTrue(
            h.detect_aggregation_scenario({"analyze": {}, "rows_001": results[3]}, "analyze", "rows_").no_batches
        )

    def test_results_of_batches_are_dependencies(self) -> None:
        class Sums(StepHandler):  # type: ignore[misc]
            def call(self, context: Any) -> Any:
                return self.success(
                    {
                        "names": sorted(context.dependency_results),
                        "all": context.get_all_dependency_results("rows_"),
                        "one": context.get_dependency_result("rows_002"),
                    }
                )

        HandlerRegistry.instance().register("sums", Sums)
        end = self.run_as(
            "sums",
            results={"other": 1},
            batch_results={"rows": [7, 8]},
            ancestors={"rows_002": 8},
            batch_steps=["rows"],
        )
        self.assertEqual(end.result, {"names": ["other", "rows_001", "rows_002"], "all": [7, 8], "one": 8}, end.error)

    def test_types_of_the_boundary(self) -> None:
        self.assertEqual(no_batches().model_dump(), {"type": "no_batches"})
        configs = [RustCursorConfig(batch_id="001", start_cursor="a", end_cursor={"k": 1}, batch_size=2)]
        self.assertEqual(
            create_batches("process", 1, configs, 2).model_dump(),
            {
                "type": "create_batches",
                "worker_template_name": "process",
                "worker_count": 1,
                "total_items": 2,
                "cursor_configs": [{"batch_id": "001", "start_cursor": "a", "end_cursor": {"k": 1}, "batch_size": 2}],
            },
        )
        wire = {
            "cursor": configs[0].model_dump(),
            "batch_metadata": {"cursor_field": "id", "failure_strategy": "continue_on_failure"},
            "is_no_op": False,
        }
        self.assertEqual(RustBatchWorkerInputs.model_validate(wire).model_dump(), wire)


class Services(Fresh):
    def test_answers_are_classified(self) -> None:
        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status = int(self.path.split("/")[1].split("?")[0])
                content = b'{"email": "a@b"}' if status == 200 else b"text"
                self.send_response(status)
                self.send_header("Retry-After", "7")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Fetches(ApiHandler):  # type: ignore[misc]
            style = ""

            def call(self, context: Any) -> Any:
                response = self.get(f"/{context.get_input('status')}", params={"a": 1})
                if context.get_input("style") == "result":
                    return self.api_success(response)
                return self.success(
                    {"email": response["email"], "again": response.json()["email"], "body": response.body}
                )

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            Fetches.base_url = f"http://127.0.0.1:{server.server_port}"
            HandlerRegistry.instance().register("fetches", Fetches)
            self.assertEqual(self.run_as("fetches", {"status": 200, "style": "result"}).result, {"email": "a@b"})
            self.assertEqual(
                self.run_as("fetches", {"status": 200}).result,
                {"email": "a@b", "again": "a@b", "body": {"email": "a@b"}},
            )
            for status, retryable in (
                (400, False),
                (401, False),
                (403, False),
                (404, False),
                (422, False),
                (408, True),
                (429, True),
                (500, True),
                (503, True),
            ):
                for style in ("result", "content"):
                    error = self.run_as("fetches", {"status": status, "style": style}).error
                    self.assertEqual(
                        (error["retryable"], error["error_code"]), (retryable, f"HTTP_{status}"), (status, style)
                    )
                    if retryable:
                        self.assertEqual(error["retry_after_ms"], 7000)
            handler = Fetches()
            for response in (
                handler.post("/200", data={"a": 1}, headers={}),
                handler.put("/200", data={}),
                handler.delete("/200", params={}),
            ):
                self.assertEqual(
                    (
                        response.status_code,
                        response.ok,
                        response.is_client_error,
                        response.is_server_error,
                        response.is_retryable,
                        response.retry_after,
                    ),
                    (200, True, False, False, False, 7),
                )
            server.shutdown()
        Fetches.base_url = "http://127.0.0.1:9"
        self.assertTrue(self.run_as("fetches", {"status": 200}).error["retryable"], "a service that is not there")

        class Session(ApiStepHandler):  # type: ignore[misc]
            def call(self, context: Any) -> Any:
                return None

            @property
            def base_url(self) -> str:
                return "https://api.example.com"

            def configure_session(self, session: Any) -> None:
                session.headers["Authorization"] = "Bearer t"
                session.timeout = 3

        client = Session().http_client
        self.assertEqual(
            (client.base_url, client.headers, client.timeout),
            ("https://api.example.com", {"Authorization": "Bearer t"}, 3),
        )


class Registries(Fresh):
    def test_handlers(self) -> None:
        class One(StepHandler):  # type: ignore[misc]
            def call(self, context: Any) -> Any:
                return None

        registry = HandlerRegistry.instance()
        self.assertIs(registry, HandlerRegistry.instance())
        registry.register("one", One)
        self.assertEqual(
            (registry.is_registered("one"), registry.list_handlers(), registry.handler_count()), (True, ["one"], 1)
        )
        self.assertIsInstance(registry.resolve("one"), One)
        self.assertIsNone(registry.resolve("none"))
        HandlerRegistry.reset_instance()
        self.assertFalse(HandlerRegistry.instance().is_registered("one"))

    def test_classes_are_found_by_their_paths(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder, "found_core", "handlers")
            package.mkdir(parents=True)
            (package.parent / "__init__.py").touch()
            (package / "__init__.py").touch()
            (package / "pay.py").write_text(
                "from tasker_core import StepHandler\nclass Base(StepHandler):\n    pass\n"
                "class PayHandler(StepHandler):\n    handler_name = 'pay'\n    def call(self, context):\n        return self.success({'paid': True})\n"
                "class VoidHandler(StepHandler):\n    def call(self, context):\n        return self.success({'void': True})\n"
            )
            sys.path.insert(0, folder)
            try:
                registry = HandlerRegistry.instance()
                self.assertEqual(type(registry.resolve("found_core.handlers.pay.PayHandler")).__name__, "PayHandler")
                self.assertEqual(registry.discover_handlers("found_core.handlers"), 2)
                self.assertEqual(registry.discover_path(str(package)), 0, "known already")
                self.assertEqual(registry.list_handlers(), ["pay", "found_core.handlers.pay.VoidHandler"])
                for name in ("pay", "found_core.handlers.pay.PayHandler", "PayHandler"):
                    self.assertEqual(self.run_as(name).result, {"paid": True})
            finally:
                sys.path.remove(folder)

    def test_resolvers(self) -> None:
        class Found(StepHandler):  # type: ignore[misc]
            def call(self, context: Any) -> Any:
                return self.success({"found": context.handler_name})

        class Services(BaseResolver):  # type: ignore[misc]
            callables = ("service://*",)

            def resolver_name(self) -> str:
                return "service_discovery"

            def priority(self) -> int:
                return 50

            def can_resolve(self, definition: HandlerDefinition) -> bool:
                return bool(definition.callable.startswith("service://"))

            async def resolve(self, definition: HandlerDefinition, context: ResolutionContext) -> Any:
                return Found()

        chain = ResolverChain()
        chain.register(Services())
        self.assertTrue(chain.can_resolve(HandlerDefinition(callable="service://a")))
        self.assertIsInstance(chain.resolve(HandlerDefinition("service://a"), ResolutionContext()), Found)
        with self.assertRaisesRegex(ResolutionError, "No resolver could resolve callable 'b'"):
            chain.resolve(HandlerDefinition("b"))
        registry = HandlerRegistry.instance()
        registry.add_resolver(Services())
        self.assertEqual(
            [n for n, _ in registry.resolver_chain.list_resolvers()],
            ["explicit_mapping", "service_discovery", "class_lookup"],
        )
        (resolver,) = compat.handlers()._resolvers
        self.assertEqual(
            (resolver.name, resolver.callables, resolver.priority), ("service_discovery", ("service://*",), 50)
        )

    def test_publishers_and_subscribers(self) -> None:
        class Payments(BasePublisher):  # type: ignore[misc]
            publisher_name = "payment_events"

            def publishes_for(self) -> list[str]:
                return ["charge"]

            async def transform_payload(self, ctx: StepEventContext) -> dict[str, Any]:
                return {"id": ctx.result.get("id"), "step": ctx.step_name, "ok": ctx.step_succeeded()}

            async def additional_metadata(self, ctx: StepEventContext) -> dict[str, Any]:
                return {"processor": "p"}

        class Audit(BaseSubscriber):  # type: ignore[misc]
            subscriber_name = "audit"

            def subscribes_to(self) -> list[str]:
                return ["payment.*"]

            async def handle(self, event: InProcessDomainEvent) -> SubscriberResult:
                return SubscriberResult(success=event.payload["ok"])

            async def after_handle(self, event: InProcessDomainEvent, result: SubscriberResult) -> None:
                told.append(("after", event.event_name, result.success, event.step_name, event.metadata.step_name))

            async def on_handle_error(self, event: InProcessDomainEvent, error: Exception) -> None:
                told.append(("error", event.event_name, str(error)))

        told: list[Any] = []
        publishers, subscribers = PublisherRegistry.instance(), SubscriberRegistry.instance()
        publishers.register(Payments)
        self.assertIsInstance(publishers.get_for_step("charge"), Payments)
        self.assertIsNone(publishers.get_for_step("other"))
        declared = {"name": "payment.charged", "condition": "success", "publisher": "payment_events"}
        for name in ("payment_events", "Payments"):
            end = run_step(
                lambda ctx: {"id": 7},
                step_name="charge",
                publishers=publishers.natives(),
                publishes=[{**declared, "publisher": name}],
            )
            self.assertEqual(
                end.made,
                [
                    {
                        "name": "payment.charged",
                        "payload": {"id": 7, "step": "charge", "ok": True},
                        "metadata": {"processor": "p"},
                    }
                ],
            )
        end = run_step(lambda ctx: {"id": 7}, step_name="other", publishers=publishers.natives(), publishes=[declared])
        self.assertEqual(end.made, [{"name": "payment.charged", "payload": {"id": 7}}], "it is for another step")
        subscribers.register(Audit)
        self.assertEqual(
            (
                len(subscribers.get_matching_subscribers("payment.x")),
                subscribers.get_matching_subscribers("order.x"),
                list(subscribers.natives()),
            ),
            (1, [], []),
        )
        subscribers.start_all()
        from tasker._events import Deliveries
        from tasker._threads import Loop

        loop = Loop()
        deliveries = Deliveries(subscribers.natives(), loop)
        for ok in (True, False):
            deliveries.deliver({"event_name": "payment.x", "payload": {"ok": ok}, "metadata": {"step_name": "charge"}})
        deliveries.close(PATIENCE)
        loop.close()
        self.assertEqual(
            told,
            [
                ("after", "payment.x", True, "charge", "charge"),
                ("error", "payment.x", "the subscriber says that it failed"),
            ],
        )


class Workers(Fresh):
    def test_an_embedded_worker(self) -> None:
        """The order of the documentation: bootstrap, register, bridge, subscriber, poller."""

        class Process(StepHandler):  # type: ignore[misc]
            def call(self, context: Any) -> Any:
                if context.get_input("fails"):
                    raise StepExecutionError("no", error_type="x", retryable=False)
                return self.success({"n": context.input_data["n"] + 1})

        with self.assertRaises(WorkerNotInitializedError):
            EventPoller().start()
        with Daemon() as daemon:
            started = bootstrap_worker(BootstrapConfig(namespace="my-app", worker_url=daemon.url))
            self.assertTrue(started.success and is_worker_running())
            with self.assertRaises(WorkerAlreadyRunningError):
                bootstrap_worker()
            bridge, told, registered = EventBridge.instance(), [], []
            bridge.subscribe(EventNames.HANDLER_REGISTERED, lambda name, handler: registered.append(name))
            bridge.subscribe(EventNames.STEP_COMPLETION_SENT, lambda result: told.append(result.success))
            bridge.start()
            HandlerRegistry.instance().register("process_data", Process)
            subscriber = StepExecutionSubscriber(bridge, HandlerRegistry.instance(), "embedded-worker")
            subscriber.start()
            poller = EventPoller()
            poller.on_step_event(lambda e: bridge.publish("step_execution_received", e))
            seen: list[Any] = []
            poller.on_metrics(seen.append)
            poller.start()
            self.assertEqual(daemon.report(daemon.step("process_data", context={"n": 1}))["result"], {"n": 2})
            failed = daemon.report(daemon.step("process_data", context={"fails": True}))["error"]
            self.assertEqual((failed["message"], failed["error_type"], failed["retryable"]), ("no", "x", False))
            HandlerRegistry.instance().register("later", Process)
            daemon.wait(lambda: len(daemon.opens) == 2)
            self.assertEqual(daemon.report(daemon.step("later", context={"n": 5}))["result"], {"n": 6})
            self.assertEqual(
                (get_health_check().status, get_worker_status().running, get_worker_status().completed_count),
                ("healthy", True, 2),
            )
            self.assertEqual((poller.get_metrics().pending_count, poller.get_metrics().failed_count), (0, 1))
            poller.stop(timeout=PATIENCE)
            subscriber.stop()
            bridge.stop()
            self.assertFalse(stop_worker().running or is_worker_running())
        self.assertEqual((registered, told), (["process_data", "later"], [True, False, True]))

    def test_an_application_that_polls_itself(self) -> None:
        class Never(StepHandler):  # type: ignore[misc]
            def call(self, context: Any) -> Any:
                raise AssertionError("the application runs it")

        from tasker_core import complete_step_event, poll_step_events

        with Daemon() as daemon:
            bootstrap_worker({"worker_url": daemon.url})
            HandlerRegistry.instance().register("own", Never)
            self.assertIsNone(poll_step_events())
            fence = daemon.step("own", context={"n": 3})
            daemon.wait(lambda: len(daemon.opens) == 1)
            event = None
            while event is None:
                event = poll_step_events()
            context = StepContext.from_ffi_event(event, "own")
            self.assertTrue(
                complete_step_event(
                    event.event_id, StepHandlerResult.success_handler_result({"n": context.input_data["n"]}, {"ms": 1})
                )
            )
            report = daemon.report(fence)
            self.assertEqual((report["result"], report["metadata"]), ({"n": 3}, {"ms": 1}))
            self.assertFalse(complete_step_event(event.event_id, {"success": True, "result": {}}))
            stop_worker()

    def test_a_program_runs_as_it_is(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "beside.py").write_text("WORD = 'beside'\n")
            program = Path(folder) / "server.py"
            program.write_text(
                "import sys\nfrom tasker_core import StepHandler\nfrom tasker_core.types import BootstrapConfig\nimport beside\n"
                "print(__name__, beside.WORD, sys.argv[1:], StepHandler.__module__)\n"
            )
            out = subprocess.run(
                [sys.executable, "-m", "tasker.compat", str(program), "a"], capture_output=True, text=True, check=True
            )
            module = subprocess.run(
                [sys.executable, "-m", "tasker.compat", "-m", "server", "a"],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(Path(compat.__file__).parents[2])},
                capture_output=True,
                text=True,
                check=True,
            )
        self.assertEqual(out.stdout, "__main__ beside ['a'] tasker.compat.step_handler\n")
        self.assertEqual(module.stdout, out.stdout)

    def test_what_an_application_gives_besides_is_kept(self) -> None:
        config = BootstrapConfig(namespace="a", worker_id="w", enable_web_api=False)
        self.assertEqual((config.namespace, config.worker_id, config.more), ("a", "w", {"enable_web_api": False}))
        self.assertEqual(BootstrapConfig.model_validate({"namespace": "a", "unknown": 1}).namespace, "a")
        self.assertEqual(LogContext(operation="o", order_id=1).extra, {"order_id": 1})

    def test_logs(self) -> None:
        with self.assertLogs("tasker_core", "DEBUG") as logs:
            log_info("Order processed", {"order_id": "1"})
            log_warn("slow", LogContext(correlation_id="c", operation="pay"))
            log_error("failed")
            log_debug("detail", order=2)
        self.assertEqual(
            [r.getMessage() for r in logs.records],
            ["Order processed order_id=1", "slow correlation_id=c operation=pay", "failed", "detail order=2"],
        )
        end = run_step(lambda ctx: log_warn("slow", {"order_id": "1"}))  # of a handler, with its attempt
        self.assertEqual(end.logs, [{"level": "warn", "text": "slow", "fields": {"order_id": "1"}}])


class Interface(Fresh):
    """What applications import and call besides what the documentation shows."""

    NAMES = {
        "": "StepTimeoutError StepValidationError RateLimitError ServiceUnavailableError ResourceContentionError "
        "AuthenticationError AuthorizationError BusinessLogicError ErrorClassifier is_permanent Worker TaskerClient "
        "TaskSequenceStepWrapper TaskWrapper WorkflowStepWrapper StepDefinitionWrapper HandlerWrapper version "
        "get_version get_rust_version get_metrics get_worker_config poll_in_process_events ResultStatus StepError "
        "WorkerState StarvationWarning DomainEventMetadata ExecutionResult ClientTaskResponse BatchWorkerConfig "
        "MethodDispatchWrapper RegistryResolver ResolverNotFoundError TemplatePath TemplateParser HandlerDiscovery "
        "EventDeclaration PublishContext StepResult ComponentHealth WorkerMetrics WorkerConfig",
        "types": "InProcessDomainEvent ClientStepReadiness ClientPaginationInfo StepHandlerCallResult",
        "errors.error_classifier": "ErrorClassifier get_classifier is_retryable is_permanent",
        "exceptions": "TaskerError FFIError ConversionError WorkerBootstrapError",
        "step_handler": "step_handler api_handler decision_handler batch_analyzer batch_worker depends_on inputs "
        "Decision BatchConfig FunctionalHandler HandlerDecorator ApiResponse mixins functional",
        "step_handler.base": "StepHandler StepHandlerCallResult",
        "step_handler.mixins.api": "APIMixin ApiResponse",
        "step_handler.mixins.decision": "DecisionMixin",
        "batch_processing.batchable": "Batchable BatchAggregationScenario BatchWorkerConfig",
        "domain_events": "DefaultPublisher InProcessDomainEventPoller EventDeclaration PublishContext StepResult",
        "registry.base_resolver": "BaseResolver",
        "registry.handler_definition": "HandlerDefinition",
        "registry.registry_resolver": "RegistryResolver",
        "registry.resolver_chain": "ResolverChain ResolutionError ResolverNotFoundError",
        "registry.method_dispatch_wrapper": "MethodDispatchWrapper",
        "registry.resolvers.class_lookup": "ClassLookupResolver",
        "registry.resolvers.explicit_mapping": "ExplicitMappingResolver",
        "handler": "HandlerRegistry StepHandler",
        "models": "DependencyResultsWrapper TaskSequenceStepWrapper",
        "client": "TaskerClient TaskResponse TaskListResponse StepResponse StepAuditResponse PaginationInfo",
        "observability": "get_health_check get_metrics get_worker_config",
        "template_discovery": "TemplatePath TemplateParser HandlerDiscovery",
        "step_execution_subscriber": "StepExecutionSubscriber StepExecutionError",
        "_tasker_core": "client_create_task client_get_task poll_step_events complete_step_event",
    }

    def test_names_are_where_they_are_there(self) -> None:
        for path, names in self.NAMES.items():
            module = importlib.import_module("tasker_core" + ("." + path if path else ""))
            missing = [name for name in names.split() if not hasattr(module, name)]
            self.assertEqual(missing, [], path)
        self.assertTrue(callable(tasker_core.step_handler.step_handler))
        self.assertFalse(tasker_core.health_check(), "the worker does not run")

    def test_errors(self) -> None:
        error = errors.RateLimitError("busy", retry_after=60, context={"limit": 5})
        self.assertEqual((error.message, error.retryable, error.retry_after), ("busy", True, 60))
        self.assertEqual(
            error.to_dict(),
            {
                "error_type": "RateLimitError",
                "message": "busy",
                "retryable": True,
                "metadata": {"retry_after": 60, "limit": 5},
            },
        )
        for kind in ("ConfigurationError", "NotFoundError", "AuthenticationError", "BusinessLogicError"):
            self.assertTrue(issubclass(getattr(errors, kind), PermanentError), kind)
            self.assertFalse(errors.is_retryable(getattr(errors, kind)("no")), kind)
        for found, again, why in (
            (TaskerError("x"), True, "explicit_attribute"),
            (ValueError("x"), False, "permanent_class"),
            (ConnectionError("x"), True, "retryable_class"),
            (TimeoutError("x"), True, "retryable_class"),
            (Exception("x"), True, "default"),
        ):
            want = {"error_type": type(found).__name__, "retryable": again, "classification": why}
            self.assertEqual(errors.get_classifier().classify(found), want)
        self.assertTrue(errors.ErrorClassifier(default_retryable=False).permanent(Exception("x")))

        class Declined(PermanentError):  # type: ignore[misc]
            pass

        class Raises(StepHandler):  # type: ignore[misc]
            def call(self, context: Any) -> Any:
                raise Declined("no", error_code="D1", metadata={"a": 1})

        HandlerRegistry.instance().register("raises", Raises)
        self.assertEqual(
            self.run_as("raises").error,
            {"message": "no", "error_type": "Declined", "retryable": False, "error_code": "D1", "context": {"a": 1}},
        )

    def test_types_of_results(self) -> None:
        kinds = tasker_core.ErrorType
        self.assertTrue(kinds.is_standard("timeout") and kinds.is_typically_retryable(kinds.TIMEOUT))
        self.assertFalse(kinds.is_standard("mine") or kinds.is_typically_retryable("permanent_error"))
        made = StepHandlerResult(is_success=True, result={"a": 1})
        self.assertTrue(made.success and made.is_success and made.is_success_result() and not made.is_failure_result())
        self.assertTrue(made.model_dump()["is_success"] and made.model_dump(by_alias=True)["success"])
        for wire in ({"success": False}, {"is_success": False}):
            self.assertFalse(StepHandlerResult.model_validate(wire).success)
        error = tasker_core.StepError(error_type="x", message="no", retryable=False)
        end = tasker_core.StepExecutionResult.failure_result("s", "t", error, execution_time_ms=4, worker_id="w")
        self.assertEqual((end.status, end.success, end.error.message), ("permanent_error", False, "no"))
        self.assertEqual(tasker_core.StepExecutionResult.success_result("s", "t", {}).status, "completed")

    def test_values_without_a_form_in_json(self) -> None:
        class Returns(StepHandler):  # type: ignore[misc]
            def call(self, context: Any) -> Any:
                at = datetime.datetime(2030, 1, 2, tzinfo=datetime.timezone.utc)
                id = uuid.UUID(int=7)
                values = {"at": at, "id": id, "set": {1}, "path": Path("a"), "price": decimal.Decimal("1.50"), id: 1}
                return self.success({**values, "kind": tasker_core.ErrorType.TIMEOUT, "pair": (at.date(),)}, {"at": at})

        HandlerRegistry.instance().register("returns", Returns)
        end = self.run_as("returns")
        id = "00000000-0000-0000-0000-000000000007"
        self.assertEqual(
            end.result,
            {
                "at": "2030-01-02T00:00:00Z",
                "id": id,
                "set": [1],
                "path": "a",
                "price": "1.50",
                id: 1,
                "kind": "timeout",
                "pair": ["2030-01-02"],
            },
        )
        self.assertEqual(end.metadata, {"at": "2030-01-02T00:00:00Z"})

    def test_a_context_made_by_a_test_of_handlers(self) -> None:
        id = uuid.UUID(int=5)
        event = FfiStepEvent(
            event_id="e",
            task_uuid=str(id),
            step_uuid=str(id),
            correlation_id=str(id),
            task_sequence_step={
                "task": {"task": {"task_uuid": str(id), "context": {"n": 2}}, "namespace_name": "shop"},
                "workflow_step": {"name": "pay", "attempts": None, "checkpoint": {"cursor": 4}},
                "step_definition": {"name": "pay", "handler": {"callable": "p", "method": "m"}},
                "dependency_results": {"a": {"result": {"x": 1}}, "b": 3},
            },
        )
        context = StepContext.from_ffi_event(event, handler_name="pay")
        step = context.task_sequence_step
        self.assertEqual((context.task_uuid, context.task_uuid.hex, context.retry_count), (id, id.hex, 0))
        self.assertEqual((context.get_dependency_result("a"), context.get_dependency_field("a", "x")), ({"x": 1}, 1))
        self.assertEqual((context.get_dependency_result_keys(), context.checkpoint_cursor), (["a", "b"], 4))
        self.assertEqual(context.get_all_dependency_results("a"), [{"x": 1}])
        self.assertEqual((step.get_task_field("n"), step.task.namespace_name, step.get_results("b")), (2, "shop", 3))
        self.assertEqual((step.step_definition.handler.handler_method, step.workflow_step.name), ("m", "pay"))
        kept = tasker_core.DependencyResultsWrapper.from_dict({"a": {"result": 1}})
        self.assertEqual((kept["a"], kept.get_results("a"), kept["none"], "a" in kept), ({"result": 1}, 1, None, True))
        self.assertTrue(tasker_core.TaskSequenceStepWrapper.from_dict({}).step_definition.timeout_seconds)

    def test_decisions_and_batches(self) -> None:
        class Both(StepHandler, DecisionMixin, Batchable):  # type: ignore[misc]
            handler_name = "both"

            def call(self, context: Any) -> Any:
                return None

        h = Both()
        outcome = DecisionPointOutcome.create_steps(["a"], dynamic_steps=[{"name": "d"}], routing_context={"k": 1})
        result = h.decision_success_with_outcome(outcome, metadata={"m": 1})
        self.assertEqual(result.result["dynamic_steps"], [{"name": "d"}])
        self.assertEqual(result.metadata, {"m": 1, "decision_handler": "both", "decision_version": "1.0.0"})
        self.assertEqual((outcome.decision_type.value, outcome.next_step_names), ("create_steps", ["a"]))
        found = h.create_batch_outcome_from_ranges([(0, 5), (5, 7)], total_items=7, batch_metadata={"s": 1})
        made = h.batch_analyzer_success(found, {"m": 1}, worker_template_name="w")
        self.assertEqual(made.result["batch_processing_outcome"]["cursor_configs"][1]["batch_size"], 2)
        self.assertEqual(made.metadata, {"m": 1, "batch_analyzer": True})
        found = h.create_batch_outcome(total_items=10, batch_size=5, step_size=2)
        self.assertEqual((found.cursor_configs[0].step_size, len(found.cursor_configs)), (2, 2))
        self.assertEqual(
            h.batch_analyzer_success(found).result["batch_processing_outcome"]["worker_template_name"], "batch_worker"
        )
        self.assertEqual([c.row_count for c in h.create_cursor_configs(1000, 3)], [334, 334, 332])
        one = h.create_cursor_config(0, 10, metadata={"p": "A"})
        batch = h.create_batch_context(one, batch_index=0, total_batches=2)
        self.assertEqual((batch.start_cursor, batch.end_cursor, batch.total_batches, batch.checkpoint), (0, 10, 2, {}))
        partial = h.batch_worker_partial_failure(h.create_worker_outcome(3, 2, 1, errors=[{"e": 1}]), "one is bad")
        self.assertEqual(
            (partial.success, partial.result["partial_failure_message"], partial.result["items_failed"]),
            (True, "one is bad", 1),
        )
        self.assertFalse(h.batch_worker_success().success)
        saved = h.checkpoint_yield(cursor=5, items_processed=5)
        self.assertEqual((saved.metadata["checkpoint_yield"], saved.result["cursor"]), (True, 5))
        with self.assertRaisesRegex(ValueError, "'analyze' has no result"):
            h.detect_aggregation_scenario({}, "analyze", "w_")
        with self.assertRaisesRegex(ValueError, "no step begins with"):
            h.detect_aggregation_scenario({"analyze": {"result": {}}}, "analyze", "w_")
        none = {"analyze": {"result": {"batch_processing_outcome": {"type": "no_batches"}}}}
        scenario = h.detect_aggregation_scenario(none, batchable_step_name="analyze", batch_worker_prefix="w_")
        self.assertTrue(scenario.is_no_batches and scenario.no_batches and scenario.no_batches())
        zero = h.aggregate_batch_worker_results(scenario, zero_metrics={"n": 0}, aggregation_fn=len)
        self.assertEqual(zero.result, {"worker_count": 0, "scenario": "no_batches", "n": 0})
        context = StepContext(step_inputs={"cursor": {"batch_id": "1", "start_cursor": 0, "end_cursor": 2}})
        self.assertIsNone(h.get_batch_worker_inputs(context), "it has no batch_size")
        context.step_inputs["cursor"]["batch_size"] = 2
        self.assertEqual(h.get_batch_worker_inputs(context).cursor.end_cursor, 2)

    def test_a_progress_that_a_function_returns(self) -> None:
        @tasker_core.step_handler.batch_worker("saves")  # type: ignore[untyped-decorator]
        def saves(batch_context: Any, context: Any) -> Any:
            point = {"cursor": 3, "items_processed": 3, "accumulated_results": {"a": 1}}
            return StepHandlerResult.success(point, metadata={"checkpoint_yield": True})

        HandlerRegistry.instance().register("saves", saves._handler_class)
        batch = {"batch_id": "1", "start_cursor": 0, "end_cursor": 9, "batch_size": 9}
        end = self.run_as("saves", batch=batch)
        self.assertEqual((end.outcome, end.checkpoint["cursor"]), ("yield", 3))

    def test_functions_and_their_unused_parameters(self) -> None:
        @tasker_core.step_handler.step_handler("adds")  # type: ignore[untyped-decorator]
        @tasker_core.step_handler.inputs("a", "b")  # type: ignore[untyped-decorator]
        def adds(a: int, _b: int, _context: Any) -> Any:
            if a < 0:
                raise errors.BusinessLogicError("negative")
            return {"a": a}

        HandlerRegistry.instance().register(adds)
        self.assertEqual(self.run_as("adds", {"a": 1, "b": 2}).result, {"a": 1})
        failed = adds._handler_class().call(StepContext(input_data={"a": -1}))
        self.assertEqual((failed.error_type, failed.retryable), ("permanent_error", False))

    def test_answers_of_a_service(self) -> None:
        class Calls(StepHandler, APIMixin):  # type: ignore[misc]
            base_url = "http://127.0.0.1:9"

            def call(self, context: Any) -> Any:
                try:
                    return self.api_success(self.request("GET", "/x"))
                except ConnectError as e:
                    return self.connection_error(e, "looking")

        class ConnectError(Exception):
            pass

        stand_in = types.ModuleType("httpx")
        vars(stand_in).update(ConnectError=ConnectError, TimeoutException=type("TimeoutException", (Exception,), {}))
        HandlerRegistry.instance().register("calls", Calls)
        with unittest.mock.patch.dict(sys.modules, httpx=stand_in):
            error = self.run_as("calls").error
        self.assertEqual((error["error_type"], error["retryable"]), ("connection_error", True))
        self.assertIn("Connection error while looking: ", error["message"])
        answered = tasker_core.ApiResponse(429, {"Retry-After": "soon"}, {"error": {"message": "slow down"}})
        failed = Calls().api_failure(answered)
        self.assertEqual(
            (failed.error_message, failed.error_type, failed.metadata["retry_after_seconds"]),
            ("HTTP 429: slow down", "rate_limited", 60),
        )
        mocked = unittest.mock.MagicMock(ok=False, status_code=404, body=None, retry_after=None, is_retryable=False)
        self.assertEqual(Calls().api_failure(mocked, "gone").error_message, "gone")
        mocked = unittest.mock.MagicMock(ok=True, status_code=200, body={"id": 1}, headers={})
        self.assertEqual(Calls().api_success(mocked).result, {"id": 1})
        with unittest.mock.patch.object(Calls, "_client", mocked):
            self.assertIs(Calls().client, mocked)
        timeout = Calls().timeout_error(TimeoutError("late"))
        self.assertEqual((timeout.error_type, timeout.error_message), ("timeout", "Request timeout: late"))

    def test_resolvers_by_name_and_prefix(self) -> None:
        class Found(StepHandler):  # type: ignore[misc]
            def call(self, context: Any) -> Any:
                return self.success({"by": "call"})

            def void(self, context: Any) -> Any:
                return self.success({"by": "void"})

        class Pays(tasker_core.RegistryResolver):  # type: ignore[misc]
            _name = "pays"
            _priority = 20
            prefix = "pay:"

            def resolve_handler(self, definition: HandlerDefinition, config: Any) -> Any:
                return Found() if config.get("missing", 1) == 1 else None

        class Plain(BaseResolver):  # type: ignore[misc]
            @property
            def name(self) -> str:
                return "plain"

            @property
            def priority(self) -> int:
                return 5

            def can_resolve(self, definition: HandlerDefinition, config: Any) -> bool:
                return bool(definition.callable == "plain")

            def resolve(self, definition: HandlerDefinition, config: Any) -> Any:
                return Found()

        registry = HandlerRegistry.instance(skip_bootstrap=True)
        chain = registry.resolver_chain
        chain.add_resolver(Pays()).add_resolver(Plain())
        self.assertEqual(chain.resolver_names, ["plain", "explicit_mapping", "pays", "class_lookup"])
        self.assertEqual(len(chain), 4)
        wrapped = registry.resolve(HandlerDefinition(callable="pay:x", handler_method="void"))
        self.assertIsInstance(wrapped, tasker_core.MethodDispatchWrapper)
        self.assertEqual((wrapped.call(None).result, wrapped.unwrap().name), ({"by": "void"}, "Found"))
        self.assertIsInstance(registry.resolve(tasker_core.HandlerWrapper("plain")), Found)
        self.assertIsNone(registry.resolve(HandlerDefinition("pay:x", "no_such_method")))
        with self.assertRaises(tasker_core.ResolverNotFoundError):
            registry.resolve(HandlerDefinition("pay:x", resolver="none"))
        chain.register("mapped", Found)
        self.assertTrue(chain.can_resolve(HandlerDefinition("mapped")))
        self.assertIn("mapped", chain.registered_callables())
        self.assertEqual(chain.remove_resolver("pays").name, "pays")
        given = HandlerDefinition.from_dict({"callable": "a", "method": "m"})
        self.assertTrue(given.uses_method_dispatch() and given.effective_method() == "m")
        names = {(r.name, r.callables) for r in compat.handlers()._resolvers}
        self.assertEqual(names, {("plain", ("*",))})

    def test_handlers_of_templates(self) -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            unittest.mock.patch.dict("os.environ", TASKER_TEMPLATE_PATH=folder),
        ):
            Path(folder, "shipping_core.py").write_text(
                "from tasker_core import StepHandler\nfrom tasker_core.step_handler import step_handler\n"
                "class Ship(StepHandler):\n    handler_name = 'ship'\n    def call(self, context):\n        return {}\n"
                "@step_handler('label')\ndef label(context):\n    return {}\n"
            )
            Path(folder, "broken_core.py").write_text("import no_such_module_at_all\n")
            Path(folder, "t.yaml").write_text(
                "name: shipping\nnamespace_name: shop\nversion: 1.0.0\nsteps:\n"
                "  - {name: ship, handler: {callable: shipping_core.Ship}}\n"
                "  - name: label\n    handler:\n      callable: 'shipping_core.label'\n"
            )
            sys.path.insert(0, folder)
            try:
                registry = HandlerRegistry.instance()
                self.assertEqual(registry.bootstrap_handlers(), 2)
                self.assertEqual(sorted(registry.list_handlers()), ["label", "ship"])
                self.assertEqual(
                    tasker_core.HandlerDiscovery.discover_handlers_by_namespace(Path(folder)),
                    {"shop": ["shipping_core.Ship", "shipping_core.label"]},
                )
                self.assertEqual(registry.template_discovery_info()["template_path"], folder)
                with self.assertLogs("tasker_core", "ERROR"):
                    self.assertEqual(registry.discover_handlers("broken_core"), 0)
            finally:
                sys.path.remove(folder)

    def test_hooks_of_publishers_and_subscribers(self) -> None:
        calls: list[Any] = []

        class Named(BasePublisher):  # type: ignore[misc]
            @property
            def publisher_name(self) -> str:
                return "named"

            def before_publish(self, event_name: str, payload: Any, metadata: Any) -> bool:
                calls.append((event_name, payload, metadata["publisher"]))
                return bool(payload["ok"])

            def after_publish(self, event_name: str, payload: Any, metadata: Any) -> None:
                calls.append(("after", event_name))

            def on_publish_error(self, event_name: str, error: Exception, payload: Any) -> None:
                calls.append(("error", str(error)))

        published = Named()
        for result, want in (({"ok": True}, True), ({"ok": False}, False), ({}, False)):
            context = StepEventContext(step_name="pay", result=result)
            self.assertIs(published.publish(context, "paid"), want)
        self.assertEqual(
            calls,
            [
                ("paid", {"ok": True}, "named"),
                ("after", "paid"),
                ("paid", {"ok": False}, "named"),
                ("paid", {}, "named"),
                ("error", "'ok'"),
            ],
        )
        publishers = PublisherRegistry.instance()
        publishers.register(published)
        self.assertEqual(publishers.validate_required(["named", "other"]), ["other"])
        self.assertEqual(publishers.get_or_default("other").publisher_name, "default")
        publishers.freeze()
        with self.assertRaises(RuntimeError):
            publishers.clear()

        class Hears(BaseSubscriber):  # type: ignore[misc]
            @classmethod
            def subscribes_to(cls) -> list[str]:
                return ["pay.*"]

            def handle(self, event: Any) -> None:
                calls.append((event["event_name"], event.get("payload")))

            def after_handle(self, event: Any) -> None:
                calls.append(event.event_name)

        calls.clear()
        subscribers, poller = SubscriberRegistry.instance(), tasker_core.InProcessDomainEventPoller()
        subscribers.register(Hears)
        subscribers.register_instance(Hears(), "second")
        self.assertEqual(subscribers.list_registered(), {"classes": ["Hears"], "instances": ["second"]})
        self.assertEqual((subscribers.start_all(poller), subscribers.active_count), (2, 2))
        self.assertEqual(list(subscribers.natives()), [], "the poller has not started")
        poller.start()
        (native,) = subscribers.natives()
        from tasker._events import Event

        event = Event("e", "pay.done", "1.0.0", {"a": 1}, {"step_name": "pay"})
        asyncio.run(native.handle(event))
        self.assertEqual(calls, [("pay.done", {"a": 1}), "pay.done"] * 2)
        poller.stop()
        self.assertEqual((subscribers.stop_all(), poller.stats["events_processed"]), (2, 1))

    def test_a_bridge(self) -> None:
        bridge, heard = EventBridge.instance(), list[int]()
        bridge.subscribe_once("step_execution_received", heard.append)
        self.assertEqual(bridge.listener_count(EventNames.STEP_EXECUTION_RECEIVED), 1)
        bridge.start()
        for n in (1, 2):
            bridge.publish("step.execution.received", n)
        self.assertEqual((heard, bridge.listeners("step_execution_received")), ([1], []))
        self.assertEqual(bridge.event_schema[EventNames.STEP_COMPLETION_SENT], "StepExecutionResult")

    def test_a_client(self) -> None:
        sent: list[Any] = []

        def call(method: str, path: str, body: Any = None, query: Any = None) -> Any:
            sent.append((method, path, body, query))
            task = {"task_uuid": "u", "name": "n", "status": "pending", "newer": True}
            return {"tasks": [task], "pagination": {"page": 3, "total_count": 9}} if query else task

        with unittest.mock.patch("tasker.compat.client._call", call):
            client = tasker_core.TaskerClient(initiator="me")
            self.assertEqual(client.create_task("n", context={"a": 1}, priority=5).status, "pending")
            listed = client.list_tasks(limit=2, offset=4, status="error")
            self.assertEqual((listed.tasks[0].name, listed.pagination.page), ("n", 3))
            client.get_step("u", "s")
        self.assertEqual(
            (sent[0][2]["initiator"], sent[0][2]["priority"], sent[0][2]["namespace"]), ("me", 5, "default")
        )
        self.assertEqual(sent[1], ("GET", "/v1/tasks", None, {"per_page": "2", "page": "3", "status": "error"}))
        self.assertEqual(sent[2][1], "/v1/tasks/u/workflow_steps/s")

    def test_a_worker_with_all_parts(self) -> None:
        class Doubles(StepHandler):  # type: ignore[misc]
            def call(self, context: Any) -> Any:
                return self.success({"n": context.input_data["n"] * 2})

        HandlerRegistry.instance().register("doubles", Doubles)
        ends: list[Any] = []
        EventBridge.instance().subscribe(EventNames.STEP_COMPLETION_SENT, ends.append)
        with Daemon() as daemon:
            with tasker_core.Worker.start(config=BootstrapConfig(worker_url=daemon.url)) as worker:
                self.assertIs(tasker_core.Worker.instance(), worker)
                self.assertEqual(daemon.report(daemon.step("doubles", context={"n": 4}))["result"], {"n": 8})
                daemon.wait(lambda: len(ends) == 1)
                self.assertEqual((ends[0].status, ends[0].worker_id), ("completed", worker.worker_id))
                self.assertEqual(tasker_core.get_metrics().steps_succeeded, 1)
                self.assertEqual(tasker_core.get_health_check().components["worker"].name, "worker")
        self.assertIsNone(tasker_core.Worker.instance())
        with self.assertRaises(WorkerNotInitializedError):
            tasker_core.get_metrics()


if __name__ == "__main__":
    unittest.main()
