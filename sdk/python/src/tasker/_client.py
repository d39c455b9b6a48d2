"""The client of the orchestrator's API: creates tasks, waits for them and sends events."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import ssl
import time
import urllib.parse
from dataclasses import dataclass
from typing import Any, AsyncIterator, Callable, Iterator, Mapping, Sequence, TypeVar

from ._bytes import dumps, loads
from ._context import current_step
from ._threads import Threads, beside

JSON = Any
T = TypeVar("T")

_ENDED = ("complete", "error", "cancelled", "resolved_manually")
_ATTEMPTS = 4
_STREAM = 60.0  # the longest wait of one request, in seconds
PACE = 1.0  # the least time between two questions for the same task, in seconds


class ApiError(Exception):
    """A refusal by the API. task_uuid is that of the task that exists already, where it says so."""

    def __init__(
        self, status: int, code: str, message: str, request_id: str, task_uuid: str, retry_after: float
    ) -> None:
        super().__init__(f"{code} ({status}): {message}")
        self.status = status
        self.code = code
        self.request_id = request_id
        self.task_uuid = task_uuid
        self.retry_after = retry_after


class NotReached(Exception):
    """The API did not answer. Whether a request had an effect is not known."""


class NotSent(NotReached):
    """There was no connection: the request had no effect."""


@dataclass(frozen=True)
class Task:
    """A task as the API shows it; data has all of its fields."""

    uuid: str
    namespace: str
    name: str
    version: str
    status: str
    data: Mapping[str, JSON]

    @property
    def ended(self) -> bool:
        return self.status in _ENDED


def _task(data: Mapping[str, JSON]) -> Task:
    return Task(
        str(data["task_uuid"]),
        str(data.get("namespace", "")),
        str(data.get("name", "")),
        str(data.get("version", "")),
        str(data["status"]),
        data,
    )


class Client:
    """Calls the API of an orchestrator. It may be used from several threads; each call has a connection
    of its own. A call is repeated, up to three times, where that cannot have an effect twice: reads,
    cancellations, creations with an idempotency key and events with an id. Redirects are not followed."""

    def __init__(
        self,
        url: str = "",
        *,
        token: str = "",
        api_key: str = "",
        ca_file: str = "",
        timeout: float = 30,
        initiator: str = "",
        source_system: str = "",
    ) -> None:
        self._url = urllib.parse.urlsplit(url or os.environ.get("TASKER_ORCHESTRATION_URL", "http://localhost:8080"))
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ValueError(f"invalid url {url!r}: want http://host:port or https://host:port")
        self._timeout = timeout
        self._tls = ssl.create_default_context(cafile=ca_file or None) if self._url.scheme == "https" else None
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token or (token := os.environ.get("TASKER_AUTH_TOKEN", "")):
            self._headers["Authorization"] = "Bearer " + token
        elif api_key:
            self._headers["X-API-Key"] = api_key
        self._sender = {"initiator": initiator, "source_system": source_system}

    def create_task(
        self,
        namespace: str,
        name: str,
        context: Mapping[str, JSON],
        *,
        wait: float = 0,
        reason: str = "",
        idempotency_key: str = "",
        **fields: JSON,
    ) -> Task:
        """Creates a task. fields are those of POST /v1/tasks, such as version, priority, tags, delay_seconds,
        deadline and conflict_policy. With wait the answer comes when the task has ended, or after so many seconds."""
        body: dict[str, JSON] = {k: v for k, v in self._sender.items() if v}
        body.update(namespace=namespace, name=name, context=context, **fields)
        if reason:
            body["reason"] = reason
        if idempotency_key:
            body["idempotency_key"] = idempotency_key
        earlier: list[Exception] = []
        try:
            return _task(
                self._call("POST", "/v1/tasks", body, wait=wait, again=bool(idempotency_key), failed=earlier.append)
            )
        except ApiError as e:
            if e.status == 409 and e.task_uuid and any(map(_may_have_arrived, earlier)):
                return self.task(e.task_uuid, wait=wait)  # an earlier attempt created it
            raise

    def run(
        self, namespace: str, name: str, context: Mapping[str, JSON], *, timeout: float = 300, **fields: JSON
    ) -> Task:
        """Creates a task and waits for its end. Raises TimeoutError if it has not ended by then; the task continues."""
        begun = time.monotonic()
        task = self.create_task(namespace, name, context, wait=min(timeout, _STREAM), **fields)
        return task if task.ended else self._ended(task, begun, begun + timeout)

    def wait(self, uuid: str, timeout: float = 300) -> Task:
        """Waits for the end of a task. Raises TimeoutError. It asks once a second at most, also where the server
        answers at once."""
        begun = time.monotonic()
        task = self.task(uuid, wait=min(max(timeout, 0), _STREAM))
        return task if task.ended else self._ended(task, begun, begun + timeout)

    def _ended(self, task: Task, asked: float, deadline: float) -> Task:
        """Asks for a task until it has ended; asked is when the last question began."""
        while True:
            pause = asked + PACE - time.monotonic()
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"task {task.uuid} has not ended: it is {task.status}")
            if pause > 0:
                time.sleep(min(pause, left))
            asked = time.monotonic()
            task = self.task(task.uuid, wait=min(max(deadline - asked, 0), _STREAM))
            if task.ended:
                return task

    def task(self, uuid: str, *, wait: float = 0) -> Task:
        """Reads a task; with wait when it has ended, or after so many seconds."""
        return _task(self._call("GET", "/v1/tasks/" + urllib.parse.quote(uuid, safe=""), wait=wait))

    def steps(self, uuid: str) -> list[Mapping[str, JSON]]:
        """The steps of a task, with their results."""
        path = "/v1/tasks/" + urllib.parse.quote(uuid, safe="") + "/workflow_steps"
        steps: Sequence[Mapping[str, JSON]] = self._call("GET", path)
        return [self._call("GET", f"{path}/{s['step_uuid']}") for s in steps]

    def tasks(self, **filters: str) -> Iterator[Task]:
        """All tasks that match, the newest first, such as namespace="shop", status="error"."""
        cursor = "newest"
        while cursor:
            page = self._call("GET", "/v1/tasks", query={**filters, "cursor": cursor})
            yield from (_task(t) for t in page["tasks"])
            cursor = str(page.get("next_cursor") or "")

    def cancel(self, uuid: str, reason: str = "") -> Task:
        """Cancels a task."""
        return _task(
            self._call(
                "DELETE", "/v1/tasks/" + urllib.parse.quote(uuid, safe=""), query={"reason": reason} if reason else {}
            )
        )

    def send_event(
        self, name: str, *, namespace: str = "", key: str = "", task_uuid: str = "", payload: JSON = None, id: str = ""
    ) -> Mapping[str, JSON]:
        """Delivers an event to the steps that wait for it, or keeps it. With an id it is delivered once."""
        fields = {
            "name": name,
            "namespace": namespace,
            "key": key,
            "task_uuid": task_uuid,
            "payload": payload,
            "id": id,
        }
        answer: Mapping[str, JSON] = self._call(
            "POST", "/v1/external-events", {k: v for k, v in fields.items() if v not in ("", None)}, again=bool(id)
        )
        return answer

    def register_template(self, source: str, reason: str = "", actor: str = "") -> Mapping[str, JSON]:
        """Registers a template from the text of a file, YAML or JSON, and replaces the content of its version."""
        fields = {"source": source, "reason": reason, "actor": actor or self._sender["initiator"]}
        answer: Mapping[str, JSON] = self._call("POST", "/v1/templates", fields, again=True)
        return answer

    def _call(
        self,
        method: str,
        path: str,
        body: JSON = None,
        *,
        query: Mapping[str, str] | None = None,
        wait: float = 0,
        again: bool | None = None,
        failed: Callable[[Exception], None] = lambda e: None,
    ) -> JSON:
        if wait > 0:
            query = {**(query or {}), "wait": f"{max(int(wait * 1000), 1)}ms"}
        target = self._url.path.rstrip("/") + path + ("?" + urllib.parse.urlencode(query) if query else "")
        text = None if body is None else dumps(body).encode()
        repeat = method in ("GET", "DELETE") if again is None else again
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._send(method, target, text, self._timeout + wait)
            except ApiError as e:
                if not repeat or attempt == _ATTEMPTS or e.status not in (429, 502, 503, 504):
                    raise
                pause = e.retry_after
                failed(e)
            except NotReached as e:
                if not repeat or attempt == _ATTEMPTS:
                    raise
                pause = 0
                failed(e)
            time.sleep(min(max(pause, 0.1 * 2**attempt * random.uniform(0.5, 1)), 60))
        raise AssertionError("unreachable")

    def _send(self, method: str, target: str, text: bytes | None, timeout: float) -> JSON:
        host, port = self._url.hostname or "", self._url.port
        c = (
            http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
            if self._tls
            else http.client.HTTPConnection(host, port, timeout=timeout)
        )
        try:
            try:
                c.connect()
            except OSError as e:
                raise NotSent(f"{method} {target}: {e}") from e
            c.request(method, target, text, {**self._headers, **_trace()})
            answer = c.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as e:
            raise NotReached(f"{method} {target}: {e}") from e
        finally:
            c.close()
        if answer.status < 300:
            return loads(content)
        raise _refusal(answer, content)


def _may_have_arrived(e: Exception) -> bool:
    """Whether an attempt that failed may have had an effect."""
    turned_away = isinstance(e, ApiError) and (e.status == 429 or e.code in ("BACKPRESSURE", "CIRCUIT_BREAKER_OPEN"))
    return not (isinstance(e, NotSent) or turned_away)


def _trace() -> dict[str, str]:
    """The trace of the step whose handler calls this: tasks that it creates join that trace."""
    try:
        step = current_step()
    except LookupError:
        return {}
    headers = {"traceparent": step.traceparent, "tracestate": step.tracestate}
    return {name: value for name, value in headers.items() if value}


def _refusal(answer: http.client.HTTPResponse, content: bytes) -> ApiError:
    try:
        problem = json.loads(content)
        problem = problem.get("error", problem) if isinstance(problem.get("error", problem), dict) else problem
    except (ValueError, AttributeError):
        problem = {"message": content[:200].decode(errors="replace")}
    try:
        after = float(answer.getheader("Retry-After") or 0)
    except ValueError:
        after = 0
    return ApiError(
        answer.status,
        str(problem.get("code") or answer.status),
        str(problem.get("message") or problem.get("detail") or answer.reason),
        answer.getheader("X-Request-Id") or "",
        str(problem.get("task_uuid") or ""),
        after,
    )


class AsyncClient:
    """The same for asyncio: each call runs in a thread of its own, up to limit of them at once, so that calls that wait
    delay no others. The process does not wait for them at its end."""

    def __init__(self, client: Client, *, limit: int = 256) -> None:
        self._client = client
        self._threads = Threads(limit, "tasker-client")

    async def _beside(self, call: Callable[[], T]) -> T:
        return await beside(self._threads, call)

    async def create_task(self, namespace: str, name: str, context: Mapping[str, JSON], **fields: JSON) -> Task:
        return await self._beside(lambda: self._client.create_task(namespace, name, context, **fields))

    async def run(self, namespace: str, name: str, context: Mapping[str, JSON], **fields: JSON) -> Task:
        return await self._beside(lambda: self._client.run(namespace, name, context, **fields))

    async def wait(self, uuid: str, timeout: float = 300) -> Task:
        return await self._beside(lambda: self._client.wait(uuid, timeout))

    async def task(self, uuid: str, *, wait: float = 0) -> Task:
        return await self._beside(lambda: self._client.task(uuid, wait=wait))

    async def steps(self, uuid: str) -> list[Mapping[str, JSON]]:
        return await self._beside(lambda: self._client.steps(uuid))

    async def tasks(self, **filters: str) -> AsyncIterator[Task]:
        tasks = self._client.tasks(**filters)
        while (task := await self._beside(lambda: next(tasks, None))) is not None:
            yield task

    async def cancel(self, uuid: str, reason: str = "") -> Task:
        return await self._beside(lambda: self._client.cancel(uuid, reason))

    async def send_event(self, name: str, **fields: JSON) -> Mapping[str, JSON]:
        return await self._beside(lambda: self._client.send_event(name, **fields))

    async def register_template(self, source: str, reason: str = "", actor: str = "") -> Mapping[str, JSON]:
        return await self._beside(lambda: self._client.register_template(source, reason, actor))
