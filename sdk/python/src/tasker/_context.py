"""The context of a step for its handler."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Callable, Mapping, TypeVar

from ._bytes import dumps
from ._errors import Permanent, fault, point
from ._session import NotHeld, Session, SessionLost, Unavailable

JSON = Any
T = TypeVar("T")

# How long a request of a handler is repeated while no daemon answers it, in seconds.
PATIENCE = 60.0


class Cancelled(Exception):
    """The result of the step is not accepted any more; reason is lease_lost, timeout or shutdown."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the step was cancelled: {reason}")
        self.reason = reason


@dataclass(frozen=True)
class Checkpoint:
    """Saved progress."""

    cursor: JSON
    items_processed: int
    accumulated: JSON


@dataclass(frozen=True)
class Batch:
    """The part of the work that a step does; end is exclusive."""

    id: str
    start: JSON
    end: JSON
    size: int
    no_op: bool
    cursor_field: str
    failure_strategy: str
    items: list[JSON] | None


class StepContext:
    """One execution of a step. It may be used from several threads."""

    def __init__(self, session: Session, message: Mapping[str, JSON]) -> None:
        self._session = session
        self._message = message
        self._cancelled = threading.Event()
        self._reason = ""
        self._isolated: list[dict[str, JSON]] = []
        self._events: list[dict[str, JSON]] = []
        self.fence = str(message["fence"])
        self.task_uuid = str(message["task_uuid"])
        self.step_uuid = str(message["step_uuid"])
        self.correlation_id = str(message["correlation_id"])
        self.namespace = str(message["namespace"])
        self.task_name = str(message["task_name"])
        self.task_version = str(message["task_version"])
        self.step_name = str(message["step_name"])
        self.callable = str(message["callable"])
        self.method = str(message.get("method") or "call")
        self.attempt = int(message["attempt"])
        self.max_attempts = int(message["max_attempts"])
        self.priority = int(message["priority"])
        self.context: Any = message["context"]
        self.traceparent = str(message.get("traceparent") or "")
        """The span of this attempt as W3C trace context, for a tracing library; empty without a trace."""
        self.tracestate = str(message.get("tracestate") or "")
        """What the sender of the trace added to it."""
        self.config: Mapping[str, JSON] = message.get("initialization") or {}
        self.results: Mapping[str, JSON] = message.get("dependency_results") or {}

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this step."""
        return self.step_uuid

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= self.max_attempts

    @property
    def time_left(self) -> float | None:
        """Seconds of the step's time limit when it was handed out; None without one."""
        ms = self._message.get("time_left_ms")
        return None if ms is None else float(ms) / 1000

    @property
    def batch(self) -> Batch | None:
        """The part of the work that the step does; None for a step that is not a batch."""
        b = self._message.get("batch")
        if b is None:
            return None
        return Batch(b["batch_id"], b.get("start_cursor"), b.get("end_cursor"), b["batch_size"], b["is_no_op"],
                     b.get("cursor_field", ""), b.get("failure_strategy", ""), self._message.get("items"))

    @property
    def saved(self) -> Checkpoint | None:
        """The latest checkpoint; None without one."""
        c = self._message.get("checkpoint")
        return None if c is None else Checkpoint(c["cursor"], c["items_processed"], c.get("accumulated_results"))

    @property
    def cancelled(self) -> bool:
        """The result of the step is not accepted any more: stop."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raises Cancelled once the step is cancelled."""
        if self._cancelled.is_set():
            raise Cancelled(self._reason)

    def checkpoint(self, cursor: JSON, items_processed: int, accumulated: JSON = None) -> None:
        """Saves progress; raises Cancelled if the step is not held any more."""
        p = point(cursor, items_processed, accumulated)
        try:
            # With the items isolated so far: the next execution begins behind them.
            sent = {**p, "isolated": list(self._isolated)} if self._isolated else p
            self._ask(lambda: self._session.checkpoint(self, sent))
        except NotHeld as e:
            self._cancel("lease_lost")
            raise Cancelled("lease_lost") from e
        self._message = {**self._message, "checkpoint": p}

    def progress(self, fraction: float, message: str = "") -> None:
        """Shows operators how far the step is, from 0 to 1. Nothing is recorded, and a
        daemon that cannot be reached does not get it."""
        try:
            self._session.progress(self, fraction, message)
        except (NotHeld, SessionLost, Unavailable):
            pass  # the next checkpoint or notice reports it

    def result(self, step: str) -> JSON:
        """The result of a step that this one depends on, directly or not."""
        return self.results[step] if step in self.results else self._ask(lambda: self._session.result(self, step))

    def batch_results(self, step: str) -> list[Mapping[str, JSON]]:
        """The results of the batches of a worker step: step_name and result of each."""
        return self._ask(lambda: self._session.batch_results(self, step))

    def isolate(self, item: JSON, why: Exception | str) -> None:
        """Records an item of a batch that could not be processed (failure_strategy: isolate)."""
        error = why if isinstance(why, Exception) else Permanent(why)
        self._isolated.append({"item": item, "error": fault(error)})

    def publish(self, name: str, payload: JSON) -> None:
        """Publishes a durable domain event, which the template does not declare, with the success of the step.
        An attempt that fails publishes none, and a step that has published cannot yield."""
        try:
            dumps(payload)
        except (TypeError, ValueError) as e:
            raise Permanent(f"the payload of the event {name} has no JSON form: {e}", error_type="EventNotPublished") from e
        self._events.append({"name": name, "payload": payload})

    def _ask(self, request: Callable[[], T]) -> T:
        """Repeats a request while the worker looks for a daemon that answers."""
        deadline = time.monotonic() + PATIENCE
        while True:
            self.check()
            try:
                return request()
            except (Unavailable, SessionLost):
                if time.monotonic() > deadline:
                    raise
                self._cancelled.wait(0.1)

    def _cancel(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._cancelled.set()


_current: ContextVar[StepContext] = ContextVar("tasker_step")


def current_step() -> StepContext:
    """The step whose handler calls this, in its thread or coroutine, for the correlation of logs and
    requests. Raises LookupError elsewhere, such as in threads that the handler has started."""
    return _current.get()
