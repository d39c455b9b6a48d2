"""Tests without a daemon: what handlers' ends and outcomes are on the wire."""

import http.server
import json
import socket
import threading
import unittest
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from tasker import ApiError, ApiResponse, BatchConfig, Client, Decision, Handlers, Permanent, Retryable, StepContext, Worker
from tasker._errors import fault
from tasker._session import JSON, Refused, Session, Transport, Unavailable
from tasker._worker import _Life


class Silence(unittest.TestCase):
    def test_a_daemon_that_says_nothing_is_gone(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:  # takes the connection, and never answers
            transport = Transport(f"http://127.0.0.1:{server.getsockname()[1]}", timeout=600)
            with self.assertRaises(Unavailable):
                list(transport.follow("/v1/sessions/s/stream", 0.2))


class Moving(unittest.TestCase):
    def test_a_report_rejected_while_the_session_changes_is_sent_again(self) -> None:
        """Another daemon has the step by then, and waits for its report."""
        session, moved = Session([]), False

        class Step:
            fence, task_uuid = "1.1", "t"

        held = Step()

        class Rejecting(Transport):
            def call(self, method: str, path: str, body: JSON = None) -> Mapping[str, JSON]:
                if moved:
                    session._path = "/v1/sessions/other"
                return {"rejected": [{"fence": "1.1", "status": 409}]}

        session._transports = [Rejecting("http://127.0.0.1:1")]
        rejected = {"rejected": [{"fence": "1.1", "status": 409}]}
        again = {"rejected": [], "unrecorded": ["1.1"]}
        self.assertEqual(session.report([(held, {"outcome": "success"})]), rejected)
        session.moving = True
        self.assertEqual(session.report([(held, {"outcome": "success"})]), again)
        session.moving, moved = False, True
        self.assertEqual(session.report([(held, {"outcome": "success"})]), again)


class Credentials(unittest.TestCase):
    def test_a_report_is_not_at_fault_for_rejected_credentials(self) -> None:
        """Its step has ended: that is reported once they are accepted, as where a proxy answers."""
        class Answering(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Step:
            fence, task_uuid = "1.1", "t"

        with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            session = Session([Transport(f"http://127.0.0.1:{server.server_port}")])
            for status, raised in ((200, Unavailable), (401, Unavailable), (403, Unavailable), (413, Refused)):
                with self.assertRaises(raised):
                    session.report([(Step(), {"outcome": "success"})])
            server.shutdown()


class Conflicts(unittest.TestCase):
    def test_a_conflict_is_the_own_task_only_if_an_attempt_may_have_arrived(self) -> None:
        task = {"task_uuid": "t", "name": "n", "namespace": "x", "version": "1", "status": "pending"}

        class Answering(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(*answers.pop(0))

            def do_GET(self) -> None:
                self.answer(200, task)

            def answer(self, status: int, body: JSON) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        conflict = (409, {"error": {"code": "CONFLICT", "message": "m", "task_uuid": "t"}})
        with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            client = Client(f"http://127.0.0.1:{server.server_port}")
            for code, own in (("BACKPRESSURE", False), ("SERVICE_UNAVAILABLE", True)):
                answers = [(503, {"error": {"code": code, "message": "m"}}), conflict]
                if own:
                    self.assertEqual(client.create_task("x", "n", {}, idempotency_key="k").uuid, "t")
                    continue
                with self.assertRaises(ApiError):
                    client.create_task("x", "n", {}, idempotency_key="k")
            server.shutdown()


class Refusals(unittest.TestCase):
    def test_an_end_that_is_refused_becomes_a_failure(self) -> None:
        """Without a report its step would run until its time limit, and keep its permit for ever."""
        refused = "the daemon refused the end of the step: "
        message = {**dict.fromkeys(("task_uuid", "step_uuid", "correlation_id", "namespace", "task_name", "task_version", "step_name", "callable"), "x"),
                   "fence": "1.1", "attempt": 1, "max_attempts": 3, "priority": 0, "context": {}}

        class Answering(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                (report,) = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["reports"]
                sent.append(report)
                large = "x" in (report.get("error") or {}).get("context", {})
                wrong = {"rejected": [{"fence": "1.1", "status": 400, "error": "wrong"}] if "next" in report else []}
                answer = json.dumps({"detail": "large"} if large else wrong).encode()
                self.send_response(413 if large else 200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            worker = Worker(f"http://127.0.0.1:{server.server_port}")
            for report, why, retryable in (
                ({"outcome": "success", "next": {"delay_seconds": -1}}, "wrong", False),
                ({"outcome": "yield", "checkpoint": {"cursor": object(), "items_processed": 1}}, "the request has no JSON form", False),
                ({"outcome": "failure", "error": fault(Retryable("r", details={"at": object()}))}, "the request has no JSON form", True),
                ({"outcome": "failure", "error": fault(Retryable("r", details={"x": "large"}))}, "413: large", True),
                ({"outcome": "failure", "error": fault(Permanent("p", details={"x": "large"}))}, "413: large", False),
            ):
                sent: list[Mapping[str, JSON]] = []
                life = _Life(worker, worker._session, ThreadPoolExecutor(1))
                life._held["1.1"] = ctx = StepContext(worker._session, message)
                life._send([(ctx, report)])
                self.assertEqual(life._holds(), [])
                error = sent[-1]["error"]
                self.assertTrue(error["message"].startswith(refused + why), error)
                self.assertEqual((error["error_type"], error["retryable"]), ("ReportRefused", retryable))
            server.shutdown()


class Outcomes(unittest.TestCase):
    def test_batches_tile_the_items(self) -> None:
        for total, size, most, count in ((1500, 1000, 0, 2), (5000, 1000, 10, 5), (20500, 1000, 10, 10), (1, 1000, 10, 1), (10, 3, 3, 3), (7, 1, 5, 4)):
            outcome = BatchConfig(total, size, most).outcome("process")
            cursors = outcome["cursor_configs"]
            self.assertEqual(outcome["worker_count"], count)
            self.assertEqual(len(cursors), count)
            self.assertEqual(cursors[0]["start_cursor"], 0)
            self.assertEqual(cursors[-1]["end_cursor"], total)
            for before, after in zip(cursors, cursors[1:]):
                self.assertEqual(before["end_cursor"], after["start_cursor"])
        self.assertEqual(BatchConfig(0, 10).outcome("process"), {"type": "no_batches"})
        with self.assertRaises(Permanent):
            BatchConfig(10, 0).outcome("process")

    def test_decisions(self) -> None:
        self.assertEqual(Decision.route("a", "b").outcome(), {"type": "create_steps", "step_names": ["a", "b"]})
        self.assertEqual(Decision.skip().outcome(), {"type": "no_branches"})
        with self.assertRaises(ValueError):
            Decision.route()

    def test_failures(self) -> None:
        self.assertEqual(fault(ValueError("x")), {"message": "x", "error_type": "ValueError"})
        self.assertEqual(fault(Permanent("no", code="C", details={"n": 1})),
                         {"message": "no", "error_type": "Permanent", "retryable": False, "error_code": "C", "context": {"n": 1}})
        self.assertEqual(fault(Retryable("later", after=2.5))["retry_after_ms"], 2500)

    def test_statuses(self) -> None:
        for status in (400, 401, 403, 404, 409, 422):
            with self.assertRaises(Permanent):
                ApiResponse(status, {}, None).check()
        for status in (408, 425, 429, 500, 503, 599):
            with self.assertRaises(Retryable) as raised:
                ApiResponse(status, {"Retry-After": "7"}, None).check()
            self.assertEqual(raised.exception.after, 7)
        self.assertTrue(ApiResponse(204, {}, None).check().ok)
        self.assertEqual(ApiResponse(503, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None).retry_after, 0)

    def test_a_name_is_registered_once(self) -> None:
        handlers = Handlers()

        @handlers.step("a")
        def a(ctx: StepContext) -> object:
            return None

        with self.assertRaises(ValueError):
            handlers.register("a", a)


if __name__ == "__main__":
    unittest.main()
