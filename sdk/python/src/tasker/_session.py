"""The protocol: one session with a worker daemon over HTTP."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import urllib.parse
from typing import Any, Callable, Iterator, Mapping, Protocol, Sequence, TypeVar

from ._bytes import Bytes, dumps, loads
from ._errors import Absent, UnknownStep
from ._threads import Threads

JSON = Any


class SessionLost(Exception):
    """The daemon does not know the session (any more)."""


class NotHeld(Exception):
    """The session does not hold the step (any more): its report is not accepted."""


class Refused(Exception):
    """The daemon rejects a request permanently."""


class NoRoute(Refused):
    """The daemon is of a version that has no such request."""


class Unauthorized(Refused):
    """The daemon rejects the credentials of a request, not what it says."""


class Unavailable(Exception):
    """The daemon cannot be reached or has no room; the same request may work later."""


class Transport:
    """Sends requests to one daemon, over one connection per thread."""

    def __init__(self, url: str, token: str = "", api_key: str = "", timeout: float = 30) -> None:
        self._url = urllib.parse.urlsplit(url)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ValueError(f"invalid url {url!r}: want http://host:port or https://host:port")
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token:
            self._headers["Authorization"] = "Bearer " + token
        elif api_key:
            self._headers["X-API-Key"] = api_key
        self._local = threading.local()
        self._open: set[http.client.HTTPConnection] = set()  # of all threads

    @property
    def url(self) -> str:
        """The address without credentials."""
        host = self._url.hostname or ""
        host = f"[{host}]" if ":" in host else host
        return f"{self._url.scheme}://{host}{f':{self._url.port}' if self._url.port else ''}{self._url.path}"

    def line(self, path: str, wait: float) -> dict[str, JSON]:
        """What a child process needs to know for requests of its own."""
        return {"url": self.url.rstrip("/") + path, "headers": self._headers, "wait": wait}

    def call(self, method: str, path: str, body: JSON = None) -> Mapping[str, JSON]:
        """Sends one request and returns the answer's object."""
        try:
            text = None if body is None else dumps(body).encode()
        except (TypeError, ValueError, RecursionError) as e:
            raise Refused(f"the request has no JSON form: {e}") from e
        content = self._content(self._begin(method, path, text))
        try:
            value = loads(content)
        except ValueError as e:
            raise Unavailable(f"the answer is not from a daemon: {e}") from e
        return value if isinstance(value, dict) else {}

    def send(self, path: str, text: bytes, written: Callable[[], None]) -> None:
        """Sends JSON, and calls written before the answer comes, which says nothing."""
        self._content(self._begin("POST", path, text, written=written))

    def follow(self, path: str, timeout: float) -> Iterator[Mapping[str, JSON]]:
        """Sends one request that is answered with events, and yields their data until they end.

        A silence longer than timeout seconds means that the daemon cannot be reached."""
        answer, complete = self._begin("GET", path, None, timeout), False
        try:
            for line in answer:
                if line.startswith(b"data: "):
                    yield loads(line[6:])
            answer.read()  # frees the connection also where a proxy has given the answer a length
            complete = True
        except (OSError, http.client.HTTPException) as e:
            raise Unavailable(str(e)) from e
        finally:
            if not complete:
                self.close()

    def _begin(
        self,
        method: str,
        path: str,
        text: bytes | None,
        timeout: float | None = None,
        written: Callable[[], None] | None = None,
    ) -> http.client.HTTPResponse:
        """Sends a request; it is repeated when a kept connection turns out to be closed."""
        while True:
            kept = getattr(self._local, "connection", None) is not None
            try:
                connection = self._connection()
                connection.timeout = timeout or self._timeout
                if connection.sock is not None:
                    connection.sock.settimeout(connection.timeout)
                connection.request(method, self._url.path.rstrip("/") + path, text, self._headers)
                if written is not None:
                    written()
                answer = connection.getresponse()
            except (OSError, http.client.HTTPException) as e:
                self.close()
                if kept and isinstance(e, (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)):
                    continue
                raise Unavailable(str(e)) from e
            if answer.status >= 300:
                raise _failure(answer.status, self._content(answer))
            return answer

    def _content(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            content = answer.read()
        except (OSError, http.client.HTTPException) as e:
            self.close()
            raise Unavailable(str(e)) from e
        if answer.getheader("Connection", "").lower() == "close":
            self.close()
        return content

    def _connection(self) -> http.client.HTTPConnection:
        c: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if c is None:
            host, port = self._url.hostname or "", self._url.port
            if self._url.scheme == "https":
                c = http.client.HTTPSConnection(host, port, timeout=self._timeout, context=ssl.create_default_context())
            else:
                c = http.client.HTTPConnection(host, port, timeout=self._timeout)
            self._local.connection = c
            self._open.add(c)
        return c

    def close(self) -> None:
        """Closes the connection of this thread."""
        c = getattr(self._local, "connection", None)
        self._local.connection = None
        if c is not None:
            self._open.discard(c)
            c.close()

    def disconnect(self) -> None:
        """Closes the connections of all threads."""
        while self._open:
            self._open.pop().close()


def _failure(status: int, content: bytes) -> Exception:
    try:
        problem = json.loads(content)
        detail = str(problem.get("detail") or problem.get("message") or problem)
    except (ValueError, AttributeError):
        detail = content[:200].decode(errors="replace")
    message = f"{status}: {detail}"
    if status == 404:
        return SessionLost(message)
    if status == 409:
        return NotHeld(message)
    if status == 405:
        return NoRoute(message)
    if status in (408, 429) or status >= 500:
        return Unavailable(message)
    return Unauthorized(message) if status in (401, 403) else Refused(message)


def _wire(report: dict[str, JSON]) -> dict[str, JSON]:
    """A report as it is sent: a result of bytes has fields of its own."""
    result = report.get("result")
    if not isinstance(result, Bytes):
        return report
    sent = {**report, "result_bytes": result.base64, "content_type": result.content_type}
    del sent["result"]
    return sent


class Held(Protocol):
    """A step whose handler runs; the session renames its fence."""

    fence: str
    task_uuid: str


H = TypeVar("H", bound=Held)


class Session:
    """A session with one of several daemons, one after another. Its methods may be called from several
    threads; open and follow from one."""

    def __init__(self, transports: Sequence[Transport]) -> None:
        self._transports = list(transports)
        self._lock = threading.Lock()  # of the address, the path and the fences, which change together
        self._path = ""
        self._after = 0  # set by follow alone
        self.moving = False  # another session is being opened, which what is held is presented to
        self.grace = 3.0
        self.max_wait = 10.0
        self.unnamed: list[str] = []
        """Callables that no registered template names."""
        self.keeps_no_lines = False
        """The daemon has no route for lines of handlers."""
        self.beside = Threads(64, "tasker-request")
        """For requests of coroutines, which must not wait themselves."""

    @property
    def url(self) -> str:
        """The address of the daemon."""
        return self._transports[0].url

    def presence(self) -> dict[str, JSON]:
        """What shows the daemon that the process lives."""
        with self._lock:
            return {**self._transports[0].line(self._path + "/presence", self.max_wait), "grace": self.grace}

    @property
    def alternatives(self) -> bool:
        """There is more than one daemon."""
        return len(self._transports) > 1

    def next(self) -> None:
        """Turns to the next daemon, which open asks first."""
        with self._lock:
            self._transports.append(self._transports.pop(0))

    def open(self, request: Mapping[str, JSON], held: Sequence[H]) -> list[H]:
        """Opens a session and presents what is held. Returns what was not kept: another worker has it."""
        presented = [{"fence": h.fence, "task_uuid": h.task_uuid} for h in held]
        opened = self._transports[0].call("POST", "/v1/sessions", {**request, "held": presented})
        kept = {str(k["fence"]): str(k["new_fence"]) for k in opened.get("kept") or []}
        with self._lock:
            self._path, self._after = "/v1/sessions/" + str(opened["session_id"]), 0
            self.keeps_no_lines = False
            lost = [h for h in held if h.fence not in kept]
            for h in held:
                h.fence = kept.get(h.fence, h.fence)
        self.grace = float(opened["reclaim_grace_ms"]) / 1000
        self.max_wait = float(opened["max_wait_ms"]) / 1000
        self.unnamed = [str(c) for c in opened.get("unnamed") or []]
        return lost

    def follow(self, wait: float, stops: bool) -> Iterator[Mapping[str, JSON]]:
        """Yields what the daemon tells, for the time of wait."""
        query = f"?after={self._after}&wait={int(wait * 1000)}ms" + ("&stops=true" if stops else "")
        for answer in self._transports[0].follow(self._path + "/stream" + query, wait + self.grace):
            self._after = int(answer["answer"])
            yield answer

    def interrupt(self, stops: bool = True) -> None:
        """Ends follow. What this request is answered is told again."""
        self._call("POST", f"/poll?after={self._after}&wait=1ms" + ("&stops=true" if stops else ""))

    def leave(self) -> Callable[[], None]:
        """What closes the session of now, once another one has what it holds."""
        with self._lock:
            transport, path = self._transports[0], self._path

        def close() -> None:
            transport.call("DELETE", path)

        return close

    def report(self, reports: Sequence[tuple[Held, dict[str, JSON]]]) -> Mapping[str, JSON]:
        """Sends reports and sets their fences; they are recorded unless the answer says otherwise. What is
        rejected while the session changes counts as not recorded: the next one may hold those steps."""
        with self._lock:
            transport, path = self._transports[0], self._path
            for held, report in reports:
                report["fence"] = held.fence
        try:
            answer = transport.call("POST", path + "/reports", {"reports": [_wire(r) for _, r in reports]})
        except Unauthorized as e:  # the steps have ended all the same; follow ends the work if this lasts
            raise Unavailable(str(e)) from e
        if "rejected" not in answer:
            raise Unavailable("the answer is not from a daemon")
        if answer["rejected"] and (self.moving or self._path != path):
            again = [r["fence"] for r in answer["rejected"]]
            return {**answer, "rejected": [], "unrecorded": [*(answer.get("unrecorded") or []), *again]}
        return answer

    def checkpoint(self, held: Held, point: Mapping[str, JSON]) -> str:
        with self._lock:
            transport, path, fence = self._transports[0], self._path, held.fence
        try:
            return str(transport.call("POST", path + "/checkpoint", {"fence": fence, **point})["saved_at"])
        except NotHeld as e:
            if held.fence != fence:
                raise Unavailable("the session has changed") from e
            raise

    def progress(self, held: Held, fraction: float, message: str) -> None:
        with self._lock:
            transport, path, fence = self._transports[0], self._path, held.fence
        transport.call("POST", path + "/progress", {"fence": fence, "fraction": fraction, "message": message})

    def keep(self, lines: Sequence[tuple[Held, str]], written: Callable[[], None]) -> None:
        """Sends lines of handlers: each as its step, and its JSON behind the fence. Raises NoRoute where the daemon
        keeps none, which this session remembers."""
        with self._lock:
            transport, path = self._transports[0], self._path
            text = ",".join(f'{{"fence":{dumps(held.fence)},{rest}' for held, rest in lines)
        try:
            transport.send(path + "/logs", f'{{"lines":[{text}]}}'.encode(), written)
        except (SessionLost, NoRoute) as e:
            if self._path != path or _LOST in str(e):
                raise SessionLost(str(e)) from e
            self.keeps_no_lines = True
            raise NoRoute(str(e)) from e

    def result(self, held: Held, step: str) -> JSON:
        return self._get("/results", held, step)["result"]

    def batch_results(self, held: Held, step: str) -> list[Mapping[str, JSON]]:
        return list(self._get("/batch-results", held, step)["batches"])

    def _get(self, what: str, held: Held, step: str) -> Mapping[str, JSON]:
        with self._lock:
            transport, path, fence = self._transports[0], self._path, held.fence
        try:
            return transport.call("GET", path + what + "?" + urllib.parse.urlencode({"fence": fence, "step": step}))
        except SessionLost as e:
            if self._path != path or _LOST in str(e):
                raise
            raise (UnknownStep if _UNKNOWN in str(e) else Absent)(str(e)) from e
        except NotHeld as e:
            if held.fence != fence:
                raise Unavailable("the session has changed") from e
            raise

    def close(self) -> None:
        self._call("DELETE", "")

    def disconnect(self) -> None:
        """Closes all connections, which a later request opens again."""
        for transport in self._transports:
            transport.disconnect()

    def _call(self, method: str, what: str) -> Mapping[str, JSON]:
        with self._lock:
            transport, path = self._transports[0], self._path
        return transport.call(method, path + what)


_LOST = "session does not exist"  # in the answer to any request of a lost session
_UNKNOWN = "not a step this one depends on"
