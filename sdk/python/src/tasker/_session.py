"""The protocol: one session with a worker daemon over HTTP."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import urllib.parse
from typing import Any, Mapping

JSON = Any


class SessionLost(Exception):
    """The daemon does not know the session (any more)."""


class NotHeld(Exception):
    """The session does not hold the step (any more): its end changes nothing."""


class Refused(Exception):
    """The daemon refuses a request for good."""


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

    def call(self, method: str, path: str, body: JSON = None) -> Mapping[str, JSON]:
        """Sends one request; a request on a connection that was kept and is closed is sent again."""
        text = None if body is None else json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
        kept = getattr(self._local, "connection", None) is not None
        try:
            return self._send(method, path, text)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as e:
            self.close()
            if not kept:
                raise Unavailable(str(e)) from e
        except (OSError, http.client.HTTPException) as e:
            self.close()
            raise Unavailable(str(e)) from e
        try:
            return self._send(method, path, text)
        except (OSError, http.client.HTTPException) as e:
            self.close()
            raise Unavailable(str(e)) from e

    def _send(self, method: str, path: str, text: bytes | None) -> Mapping[str, JSON]:
        connection = self._connection()
        connection.request(method, self._url.path.rstrip("/") + path, text, self._headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.getheader("Connection", "").lower() == "close":
            self.close()
        if answer.status < 300:
            value = json.loads(content)
            return value if isinstance(value, dict) else {}
        raise _failure(answer.status, content)

    def _connection(self) -> http.client.HTTPConnection:
        c: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if c is None:
            host, port = self._url.hostname or "", self._url.port
            if self._url.scheme == "https":
                c = http.client.HTTPSConnection(host, port, timeout=self._timeout, context=ssl.create_default_context())
            else:
                c = http.client.HTTPConnection(host, port, timeout=self._timeout)
            self._local.connection = c
        return c

    def close(self) -> None:
        """Closes the connection of this thread."""
        c = getattr(self._local, "connection", None)
        self._local.connection = None
        if c is not None:
            c.close()


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
    if status in (408, 429) or status >= 500:
        return Unavailable(message)
    return Refused(message)


class Session:
    """An open session. Its methods may be called from several threads."""

    def __init__(self, transport: Transport, opened: Mapping[str, JSON]) -> None:
        self.transport = transport
        self.id = str(opened["session_id"])
        self.grace = float(opened["reclaim_grace_ms"]) / 1000
        self.max_wait = float(opened["max_wait_ms"]) / 1000
        self._path = "/v1/sessions/" + self.id
        self._after = 0  # used by poll alone

    @classmethod
    def open(cls, transport: Transport, request: Mapping[str, JSON]) -> Session:
        return cls(transport, transport.call("POST", "/v1/sessions", request))

    def poll(self, wait: float, stops: bool) -> Mapping[str, JSON]:
        query = f"?after={self._after}&wait={int(wait * 1000)}ms" + ("&stops=true" if stops else "")
        answer = self.transport.call("POST", self._path + "/poll" + query)
        self._after = int(answer["answer"])
        return answer

    def interrupt(self) -> None:
        """Ends the poll that waits. What this one is answered is told the next poll again."""
        self.transport.call("POST", self._path + f"/poll?after={self._after}&stops=true")

    def report(self, reports: list[dict[str, JSON]]) -> list[Mapping[str, JSON]]:
        return list(self.transport.call("POST", self._path + "/reports", {"reports": reports})["rejected"])

    def checkpoint(self, fence: str, point: Mapping[str, JSON]) -> str:
        return str(self.transport.call("POST", self._path + "/checkpoint", {"fence": fence, **point})["saved_at"])

    def result(self, fence: str, step: str) -> JSON:
        return self._get("/results", fence, step)["result"]

    def batch_results(self, fence: str, step: str) -> list[Mapping[str, JSON]]:
        return list(self._get("/batch-results", fence, step)["batches"])

    def _get(self, path: str, fence: str, step: str) -> Mapping[str, JSON]:
        query = urllib.parse.urlencode({"fence": fence, "step": step})
        try:
            return self.transport.call("GET", self._path + path + "?" + query)
        except SessionLost as e:
            raise LookupError(str(e)) from e

    def close(self) -> None:
        self.transport.call("DELETE", self._path)
