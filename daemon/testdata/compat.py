"""Runs an application that was written for tasker_core (tasker_core_app): its handlers on an engine of the test, and
its program as a process of its own."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tasker import compat
from tasker.testing import Engine, TaskEnd

compat.install()
APP = Path(__file__).parent / "tasker_core_app"
sys.path.insert(0, str(APP))

from tasker_core import HandlerRegistry  # noqa: E402
from tasker_core.domain_events import PublisherRegistry, SubscriberRegistry  # noqa: E402

requests: list[tuple[str, str, Any]] = []


class Service(http.server.BaseHTTPRequestHandler):
    """What the handlers of catalogue call: orders are refused once, and items from 100 on do not exist."""

    def do_GET(self) -> None:
        requests.append(("GET", self.path, self.headers.get("Authorization") or self.headers.get("X-Trace")))
        if self.path.startswith("/items/"):
            number = int(self.path.split("/")[2].split("?")[0])
            self.answer(*(200, {"price": number * 10}) if number < 100 else (404, {"error": "no such item"}))
        else:
            self.answer(200, {"seen": self.path.rsplit("/")[-1], "key": self.headers.get("Authorization")})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        requests.append(("POST", self.path, body))
        posts = [r for r in requests if r[0] == "POST"]
        self.answer(*(503, {"busy": True}) if len(posts) == 1 else (201, {"order": f"o-{body['price']}"}))

    def answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def check(engine: Engine) -> None:
    linear = engine.run("linear", {"number": 4})
    assert linear.status == "complete", linear
    assert linear.results["flaky"] == {"value": 18, "retries": 2, "of": 3}, linear.results
    assert linear.results["report"] == {"value": 18, "first": 8, "unit": "pieces", "missing": None}, linear.results
    wrong = engine.run("linear", {"number": "four"})
    error = wrong.steps["double"].error
    assert error is not None and (wrong.status, error["error_type"], error["error_code"]) == (
        "error",
        "validation_error",
        "NOT_AN_INTEGER",
    ), wrong
    assert wrong.steps["double"].attempts == 1 and error["context"] == {"number": "four"}, wrong

    diamond = engine.run("diamond", {"n": 6})
    assert diamond.results["average"] == {"average": 66.5, "parents": ["left", "right"]}, diamond

    for amount, created in (
        (500, ["auto_approve"]),
        (1000, ["manager_approval"]),
        (7500, ["finance_review", "manager_approval"]),
        (0, []),
    ):
        end = engine.run("approval", {"amount": amount})
        assert end.status == "complete" and end.results["finish"] == {"approvals": created}, (amount, end)
    refused = engine.run("approval", {"amount": -1})
    assert (
        refused.status == "error" and (refused.steps["route"].error or {})["error_type"] == "validation_error"
    ), refused

    rows = engine.run("rows", {"rows": 250, "source": "test"})
    total = rows.results["sum_rows"]
    assert rows.status == "complete", rows
    assert (total["total_processed"], total["total_failed"], total["batch_count"], total["sum"]) == (
        250,
        1,
        3,
        sum(range(250)),
    ), total
    assert total["parts"] == 3 + 3 + 2 and total["success_rate"] == 249 / 250 and total["same"] == 250, total
    assert rows.results["process_rows_001"]["results"] == {
        "sum": sum(range(100)),
        "parts": 3,
        "source": "test",
        "saved": 80,
    }, rows.results
    empty = engine.run("rows", {"rows": 0, "source": "test"})
    assert empty.status == "complete" and empty.results["sum_rows"]["batch_count"] == 0, empty

    requests.clear()
    bought = engine.run("catalogue", {"item": 7})
    assert bought.status == "complete", bought
    assert bought.results["order"] == {"order": "o-70", "status": 201, "attempt": 1}, bought.results
    assert bought.results["confirm"] == {"seen": "o-70", "key": "Bearer k-1"}, bought.results
    assert requests[0] == ("GET", "/items/7?fields=price", "1"), requests
    missing = engine.run("catalogue", {"item": 100})
    error = missing.steps["fetch"].error
    assert (
        missing.status == "error"
        and missing.steps["fetch"].attempts == 1
        and error is not None
        and error["error_code"] == "HTTP_404"
    ), missing

    charged: TaskEnd = engine.run("payments", {"amount": 7})
    assert charged.results["charge"] == {"payment_id": "p-1", "amount": 7}, charged
    declined = engine.run("payments", {"amount": 700})
    error = declined.steps["charge"].error
    assert (
        error is not None
        and (error["message"], error["retryable"]) == ("declined", False)
        and error["context"]["card_last_four"] == "1234"
    ), declined


def functions(engine: Engine) -> None:
    """The workflows whose handlers are functions."""
    for tier in ("premium", "standard"):
        end = engine.run("functions", {"item": 7, "tier": tier, "discount": 50})
        assert end.status == "complete", end
        order = {"item": 7, "tier": tier, "customer": None, "step": "validate"}
        assert end.results["validate"] == order, end.results
        assert end.results["price"] == {"item": 7, "cents": 650} and end.steps["price"].attempts == 2, end
        assert end.results["fetch"] == {"price": 70} and requests[-1][2] == "fn", (end.results, requests)
        assert end.results["route"]["routing_context"] == {"tier": tier}, end.results
        assert end.results["finish"] == {"result": [tier]}, end.results
    free = engine.run("functions", {"item": 7, "discount": 700})
    assert free.results["finish"] == {"result": []} and free.results["route"]["reason"] == "nothing to pay", free
    wrong = engine.run("functions", {"item": 0})
    error = wrong.steps["validate"].error
    assert wrong.status == "error" and error is not None, wrong
    assert [error[key] for key in ("message", "error_type", "error_code", "retryable")] == [
        "no such item",
        "PermanentError",
        "NO_ITEM",
        False,
    ], error
    absent = engine.run("functions", {"item": None})
    error = absent.steps["validate"].error
    assert error is not None and error["context"]["exception_type"] == "TypeError", absent
    rows = engine.run("functions_rows", {"rows": 10})
    assert rows.status == "complete" and rows.results["add_up"] == {}, rows
    assert rows.results["process_003"] == {"sum": 8 + 9}, rows.results


def returns(engine: Engine) -> None:
    """Errors of all kinds, wrappers, and values that JSON does not have."""
    end = engine.run("returns", {"parcel": 5})
    assert end.status == "complete" and end.steps["inspect"].attempts == 2, end
    assert end.results["receive"] == {
        "parcel": "00000000-0000-0000-0000-000000000005",
        "at": "2030-01-02T03:04:00Z",
        "price": "7.50",
        "shelves": ["a"],
        "desk": 3,
        "task": "returns",
        "attempts": 0,
    }, end.results
    assert end.results["refund"] == {"refunded": "15.00", "on": "2030-01-03"}, end.results
    for kind, message, error_type in (
        ("lost", "nobody has seen it", "LostParcel"),
        ("foreign", "not ours", "validation_error"),
    ):
        failed = engine.run("returns", {"parcel": 5, "kind": kind})
        error = failed.steps["receive"].error
        assert failed.status == "error" and failed.steps["receive"].attempts == 1 and error is not None, failed
        assert (error["message"], error["error_type"], error["retryable"]) == (message, error_type, False), error


def ledger(engine: Engine) -> None:
    """Batches by outcomes, with checkpoints that are returned, and without any batch."""
    booked = engine.run("ledger", {"lines": 25})
    assert booked.status == "complete", booked
    assert booked.results["close"] == {
        "booked": sum(range(25)),
        "failed": 3,
        "errors": 3,
        "worker_count": 3,
        "scenario": "with_batches",
    }, booked.results
    assert booked.results["book_lines_003"]["partial_failure"] is True, booked.results
    own = engine.run("ledger", {"lines": 9, "ranges": [[0, 2], [2, 9]]})
    assert own.results["close"]["booked"] == 36 and own.results["close"]["worker_count"] == 2, own
    none = engine.run("ledger", {"lines": 0})
    assert none.results["close"] == {"booked": 0, "worker_count": 0, "scenario": "no_batches"}, none


def branches(engine: Engine) -> None:
    """A resolver by its prefix, and a publisher with the hooks that get the name of the event."""
    end = engine.run("branches", {})
    assert end.results == {"open": {"open": "Oslo"}, "close": {"closed": "Oslo"}, "nowhere": {"open": "nowhere"}}, end


RESOLVED = """
name: resolved
namespace_name: shop
version: 1.0.0
steps:
  - {name: mapped, handler: {callable: linear_double, resolver: explicit_mapping}}
  - {name: square, handler: {callable: shop.handlers.diamond.SquareHandler, resolver: ClassLookupResolver}}
  - {name: found, handler: {callable: "service://mail"}}
  - {name: named, handler: {callable: "service://mail", method: stop, resolver: service_discovery}}
"""


def resolved(engine: Engine) -> None:
    engine.client.register_template(RESOLVED, reason="test")
    end = engine.run("resolved", {"number": 4, "n": 3}, namespace="shop", version="1.0.0")
    assert end.results == {
        "mapped": {"value": 8},
        "square": {"square": 9},
        "found": {"service": "mail"},
        "named": {"stopped": "mail"},
    }, end


def published(engine: Engine) -> None:
    """What the publisher of the application made of both ends of charge."""
    for name, payload, outcome in (
        ("payment.charged", {"payment": "p-1", "cents": 700}, "success"),
        ("payment.failed", {"declined": True}, "error"),
    ):
        (event,) = engine.client._call("GET", "/v1/events", query={"name": name})["events"]
        assert event["payload"] == payload and event["metadata"]["outcome"] == outcome, event
        assert event["metadata"]["added"] == {"processor": "test"}, event


def with_handlers(templates: list[str]) -> None:
    from shop.handlers import branches as branches_
    from shop.handlers.payments import AuditSubscriber, PaymentEventPublisher, arrived, heard, told
    from shop.handlers.services import ServiceResolver

    polled: list[str] = []
    opened = threading.Event()
    PublisherRegistry.instance().register(PaymentEventPublisher)
    SubscriberRegistry.instance().register(AuditSubscriber)
    SubscriberRegistry.instance().start_all()
    registry = HandlerRegistry.instance()
    registry.add_resolver(ServiceResolver())
    registry.resolver_chain.add_resolver(branches_.BranchResolver())
    PublisherRegistry.instance().register(branches_.BranchPublisher())
    branches_.poller.on_event(lambda event: polled.append(event.event_name))
    branches_.poller.on_event(lambda event: branches_.BranchSubscriber.subscribes_to() and opened.set())
    branches_.poller.start()
    subscriber = branches_.BranchSubscriber()
    subscriber.start(branches_.poller)
    assert registry.discover_handlers("shop.handlers") == 36, registry.list_handlers()
    assert registry.is_registered("rows_sum") and registry.handler_count() == 36
    with Engine(*templates, handlers=compat.handlers()) as engine:
        branches(engine)
        assert opened.wait(60), "no event has arrived"
        branches_.poller.stop()
        assert branches_.told == [
            ("before", "branch.opened", "Oslo", "branch_events"),
            ("after", "branch.opened", "Oslo"),
            ("before", "branch.opened", "nowhere", "branch_events"),
        ], branches_.told
        assert branches_.heard == [{"name": "branch.opened", "city": "Oslo"}] and polled == ["branch.opened"], polled
        check(engine)
        functions(engine)
        returns(engine)
        ledger(engine)
        resolved(engine)
        published(engine)
        assert arrived.wait(60) and heard == [("payment.charged", {"payment": "p-1", "cents": 700})], heard
        assert sorted(told) == [
            "after payment.charged",
            "after payment.failed",
            "before charge",
            "before charge",
        ], told


def with_server(templates: list[str]) -> None:
    with Engine(*templates) as engine:
        env = {
            **os.environ,
            "TASKER_WORKER_URL": engine.worker_url,
            "TASKER_ORCHESTRATION_URL": engine.url,
            "TASKER_TEMPLATE_PATH": str(APP / "templates" / "linear.yaml"),
        }
        server = subprocess.Popen(
            [sys.executable, "-m", "tasker.compat", str(APP / "bin" / "server.py")],
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            lines = [server.stdout.readline() for _ in range(2)]
            assert lines == ["found 36 more handlers\n", "ready healthy\n"], lines
            check(engine)
            functions(engine)
            returns(engine)
            ledger(engine)
            resolved(engine)
            published(engine)
            server.send_signal(signal.SIGTERM)
            rest = server.stdout.read()
            assert (
                server.wait(60) == 0
                and rest.startswith("stopped after ")
                and rest.endswith("heard 1 events\n")
            ), rest
        finally:
            server.kill()


def with_worker(templates: list[str]) -> None:
    """The program that starts everything by Worker, and creates its task by TaskerClient."""
    with Engine(*templates) as engine:
        env = {**os.environ, "TASKER_WORKER_URL": engine.worker_url, "TASKER_ORCHESTRATION_URL": engine.url}
        program = [sys.executable, "-m", "tasker.compat", str(APP / "bin" / "worker.py")]
        run = subprocess.run(program, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
        assert run.stdout.splitlines() == [
            "complete worker.py 3 {'on': '2030-01-03', 'refunded': '15.00'} True",
            "True True",
            "4 True",
            "None False",
        ], run.stdout


if __name__ == "__main__":
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        os.environ["SERVICE_URL"] = f"http://127.0.0.1:{service.server_port}"
        texts = [
            p.read_text(encoding="utf-8").replace("URL", f"http://127.0.0.1:{service.server_port}")
            for p in sorted((APP / "templates").glob("*.yaml"))
        ]
        with_handlers(texts)
        with_server(texts)
        with_worker(texts)
        service.shutdown()
    print("all as it should be")
