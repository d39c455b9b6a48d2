"""A daemon for tests: it hands out steps, and remembers what it is asked."""

import http.server
import json
import queue
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from tasker._bytes import dumps, loads

JSON = Any

STEP = {
    **dict.fromkeys(("task_uuid", "step_uuid", "correlation_id", "task_name", "step_name"), "x"),
    "namespace": "shop",
    "task_version": "1.0.0",
    "attempt": 1,
    "max_attempts": 3,
    "priority": 0,
    "context": {},
    "dependency_results": {},
}
PATIENCE = 60.0  # seconds that a test waits for a condition


class Daemon:
    """Listens on a free port in a with block. answers are functions of the query and the body, by the ends of paths."""

    def __init__(self, *, grace_ms: int = 3000, max_wait_ms: int = 500, **opened: JSON) -> None:
        self.opened = {
            "session_id": "s-1",
            "protocol": 1,
            "worker_id": "w",
            "reclaim_grace_ms": grace_ms,
            "max_wait_ms": max_wait_ms,
            **opened,
        }
        self.told: queue.SimpleQueue[dict[str, JSON]] = queue.SimpleQueue()
        self.answers: dict[str, Callable[[Mapping[str, str], JSON], JSON]] = {}
        self.changed = threading.Condition()
        self.opens: list[JSON] = []
        self.reports: list[JSON] = []
        self.requests: list[str] = []
        self.present = 0  # presence requests under way
        self._answer = 0
        self._fence = 0

    def __enter__(self) -> "Daemon":
        daemon = self

        class Handler(_Handler):
            of = daemon

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def step(self, callable: str, **fields: JSON) -> str:
        """Hands out a step, and returns its fence."""
        self._fence += 1
        fence = f"{self._fence}.1"
        self.tell(steps=[{**STEP, "fence": fence, "callable": callable, **fields}])
        return fence

    def tell(self, **answer: JSON) -> None:
        self.told.put({"steps": [], "cancelled": [], "draining": False, **answer})

    def wait(self, condition: Callable[[], bool], what: str = "it did not come") -> None:
        """Waits until a condition holds."""
        with self.changed:
            if not self.changed.wait_for(condition, PATIENCE):
                raise AssertionError(f"{what}: {self.requests} {self.reports}")

    def report(self, fence: str) -> Mapping[str, JSON]:
        """Waits for the report of a step."""
        self.wait(lambda: any(r["fence"] == fence for r in self.reports), f"no report of {fence}")
        found: Mapping[str, JSON] = next(r for r in self.reports if r["fence"] == fence)
        return found

    def asked(self, path: str) -> int:
        return sum(r == path for r in self.requests)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    of: Daemon

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def _handle(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body, split = loads(text) if text else None, urllib.parse.urlsplit(self.path)
        query, path = dict(urllib.parse.parse_qsl(split.query)), split.path.removeprefix("/v1/sessions").removeprefix(
            "/s-1"
        )
        d = self.of
        with d.changed:
            d.requests.append(f"{self.command} {path}")
            if path == "" and self.command == "POST":
                d.opens.append(body)
            if path == "/reports":
                d.reports.extend((body or {})["reports"])
            d.changed.notify_all()
        if path == "/poll":
            d.tell()  # ends the stream
        if path in d.answers:
            answer = d.answers[path](query, body)
            self._send(*answer) if isinstance(answer, tuple) else self._send(200, answer)
        elif path == "/stream":
            self._stream(query)
        elif path == "/presence":
            self._present(query)
        else:
            self._send(
                200,
                {
                    "": d.opened,
                    "/reports": {"rejected": []},
                    "/checkpoint": {"saved_at": "2026-01-02T03:04:05.123456789Z"},
                }.get(path, {}),
            )

    def _stream(self, query: Mapping[str, str]) -> None:
        d = self.of
        wait = float(query["wait"].removesuffix("ms")) / 1000
        try:
            answer = d.told.get(timeout=wait)
        except queue.Empty:
            answer = {"steps": [], "cancelled": [], "draining": False}
        d._answer += 1
        text = f"event: told\ndata: {dumps({'answer': d._answer, **answer})}\n\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _present(self, query: Mapping[str, str]) -> None:
        d = self.of
        with d.changed:
            d.present += 1
            d.changed.notify_all()
        self.connection.settimeout(float(query["wait"].removesuffix("ms")) / 1000)
        try:
            alive = self.connection.recv(1, 2) != b""  # MSG_PEEK: nothing comes, or the end of the connection
        except TimeoutError:
            alive = True
        finally:
            self.connection.settimeout(None)
            with d.changed:
                d.present -= 1
                d.changed.notify_all()
        if alive:
            self._send(200, {})
        else:
            self.close_connection = True

    def _send(self, status: int, body: JSON) -> None:
        content = dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _handle

    def log_message(self, format: str, *args: object) -> None:
        pass


def plain(value: JSON) -> JSON:
    """What other programs read of a value."""
    return json.loads(dumps(value))
