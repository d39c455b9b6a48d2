"""The context of a step for its handler."""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import threading
import time
from concurrent import futures
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Callable, Generator, Generic, Mapping, MutableMapping, NoReturn, TypeVar

from ._bytes import dumps
from ._errors import Absent, Cancelled, Permanent, fault, point
from ._lines import Sink, fields_of, level_of, quietly, text_of
from ._models import converted, has_field
from ._session import NotHeld, Refused, Session, SessionLost, Unavailable
from ._threads import in_coroutine

JSON = Any
T = TypeVar("T")

# How long a request of a handler is repeated while no daemon answers it, in seconds.
PATIENCE = 60.0

MAX_METADATA = 16 * 1024  # bytes of JSON

_MAX_BEGUN = 16 * 1024  # characters of a printed line that has not ended

_REQUIRED: Any = object()


@dataclass(frozen=True)
class Checkpoint:
    """Saved progress; saved_at is None where the time is not known."""

    cursor: JSON
    items_processed: int
    accumulated: JSON
    saved_at: datetime | None = None


@dataclass(frozen=True)
class Batch:
    """The part of the work that a step does; end is exclusive. items are those of a batch without cursors."""

    id: str
    start: JSON
    end: JSON
    size: int
    no_op: bool
    cursor_field: str
    failure_strategy: str
    items: list[JSON] | None

    def range(self) -> tuple[int, int]:
        """The cursors as whole numbers: from, included, and to, not included."""
        if self.items is not None:
            raise Permanent(
                f"batch {self.id!r} has {len(self.items)} items and no range; read its items", error_type="ItemsNotRead"
            )
        for name, cursor in (("start", self.start), ("end", self.end)):
            if not isinstance(cursor, int) or isinstance(cursor, bool):
                raise Permanent(
                    f"invalid {name} {cursor!r} of batch {self.id!r}: want a whole number", error_type="InvalidBatches"
                )
        return self.start, self.end


@dataclass(frozen=True)
class BatchValue(Generic[T]):
    """The result of one batch; isolated counts the items that it could not process."""

    step_name: str
    batch_id: str
    value: T
    isolated: int


class Results(dict[str, JSON]):
    """The results of direct parents. It says in words what it does not have."""

    def __init__(self, results: Mapping[str, JSON], batch_steps: frozenset[str]) -> None:
        super().__init__(results)
        self._batch_steps = batch_steps

    def __missing__(self, step: str) -> NoReturn:
        if step in self._batch_steps:
            raise KeyError(f"{step} has many results: ctx.batch_results({step!r}) reads those of its batches")
        raise KeyError(
            f"no result of {step} came with this step: ctx.result({step!r}) reads that of any step that it depends on, "
            f"ctx.batch_results({step!r}) those of batches"
        )

    def get(self, step: str, default: JSON = None) -> JSON:
        if step in self._batch_steps:
            self.__missing__(step)
        return super().get(step, default)


class Pending(Generic[T]):
    """What a method of a context returns in a coroutine, where it must not wait itself: await it for the result.
    It is under way already, and the step does not end before it."""

    def __init__(self, call: str, future: futures.Future[T]) -> None:
        self._call, self._future = call, future
        self._awaited = False

    def __await__(self) -> Generator[Any, None, T]:
        self._awaited = True
        return asyncio.wrap_future(self._future).__await__()

    def _unawaited(self, *_: object) -> NoReturn:
        raise TypeError(f"the result of {self._call} is not there yet: want await {self._call}")

    __getitem__ = __iter__ = __len__ = __contains__ = __bool__ = _unawaited

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: the result of {self._call} is not there yet: want await {self._call}")


if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:  # Python 3.10 has no parameter for it
    _Adapter = logging.LoggerAdapter

# Frames between the caller of a logger and package logging, as it counts them.
_DEPTH = 1 if sys.version_info >= (3, 11) else 2
_ATTRIBUTES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class _Logger(_Adapter):
    """Writes to a logger of package logging, and gives each line to the daemon, whatever the logger shows."""

    def __init__(self, ctx: StepContext, names: tuple[str, ...]) -> None:
        super().__init__(logging.getLogger("tasker.step"), {name: getattr(ctx, name) for name in names})
        self._ctx = ctx

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, {**kwargs, "extra": {**self._own(kwargs), **(self.extra or {})}}

    def _own(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a line beside the identifiers, without those that package logging would refuse."""
        extra = kwargs.get("extra") or {}
        return {k: v for k, v in extra.items() if k not in _ATTRIBUTES and k not in (self.extra or {})}

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self._ctx._lines is not None:
            fields = fields_of(self._own(kwargs), kwargs.get("exc_info"))
            self._ctx._keep(level_of(level), text_of(msg, args), fields)
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + _DEPTH
        with quietly():
            super().log(level, msg, *args, **kwargs)


class StepContext:
    """One execution of a step. It may be used from several threads.

    checkpoint, progress, result, result_as, batch_results and batch_values ask the daemon. In a thread they return the
    answer; in a coroutine they return at once what can be awaited, so that no other handler has to wait. What is not
    awaited is done all the same, in its order, before the step ends: if it fails, the step does.
    """

    def __init__(self, session: Session, message: Mapping[str, JSON], lines: Sink | None = None) -> None:
        self._session = session
        self._message = message
        self._lines = lines
        self._begun: dict[str, str] = {}  # lines that the handler prints and has not ended, by their level
        self._cancelled = threading.Event()
        self._reason = ""
        self._isolated: list[dict[str, JSON]] = []
        self._events: list[dict[str, JSON]] = []
        self._made: list[Any] = []  # of publishers
        self._recorded: list[Callable[[bool], object]] = []
        self._known: dict[tuple[str, str], JSON] = {}
        self._lock = threading.Lock()
        self._pending: list[Pending[Any]] = []
        self._last: futures.Future[Any] | None = None  # of the requests whose order counts
        self.fence = str(message["fence"])
        self.task_uuid = str(message["task_uuid"])
        self.step_uuid = str(message["step_uuid"])
        self.correlation_id = str(message["correlation_id"])
        self.parent_correlation_id = str(message.get("parent_correlation_id") or "")
        """That of the task which caused this one; empty without one."""
        self.namespace = str(message["namespace"])
        self.task_name = str(message["task_name"])
        self.task_version = str(message["task_version"])
        self.step_name = str(message["step_name"])
        self.callable = str(message["callable"])
        self.method = str(message.get("method") or "call")
        self.resolver = str(message.get("resolver") or "")
        """The resolver that the template names; empty without one."""
        self.attempt = int(message["attempt"])
        self.max_attempts = int(message["max_attempts"])
        self.priority = int(message["priority"])
        self.context: Any = message["context"]
        left = self.time_left
        self.deadline = None if left is None else datetime.now(timezone.utc) + timedelta(seconds=left)
        """When the time limit of the step passes, by the clock of this machine; None without one."""
        self.traceparent = str(message.get("traceparent") or "")
        """The span of this attempt as W3C trace context, for a tracing library; empty without a trace."""
        self.tracestate = str(message.get("tracestate") or "")
        """What the sender of the trace added to it."""
        self.config: Mapping[str, JSON] = message.get("initialization") or {}
        self.batch_steps: tuple[str, ...] = tuple(message.get("batch_steps") or ())
        """The worker steps that this one depends on: those of batch_results."""
        self.results: Mapping[str, JSON] = Results(
            message.get("dependency_results") or {}, frozenset(self.batch_steps)
        )
        """The results of direct parents by name. Those of batches are in batch_results, and a batch reads that of the
        step which created it with result."""
        self.metadata: MutableMapping[str, JSON] = {}
        """What a handler puts here is stored beside its result, with a success: at most 16 KiB of JSON."""

    @property
    def requested_at(self) -> datetime | None:
        """When the task was created, by the clock of the database."""
        return _time(self._message.get("requested_at"))

    @property
    def token(self) -> int:
        """The fence of the claim: greater than the tokens of all earlier claims of the step. It changes when the step
        continues under another daemon."""
        return int(self.fence.split(".")[0])

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this step."""
        return self.step_uuid

    @property
    def is_retry(self) -> bool:
        """An earlier attempt has failed or was lost."""
        return self.attempt > 1

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= self.max_attempts

    @property
    def time_left(self) -> float | None:
        """Seconds of the step's time limit when it was handed out; None without one."""
        ms = self._message.get("time_left_ms")
        return None if ms is None else float(ms) / 1000

    @functools.cached_property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records have the identifiers of the execution as attributes. Its lines are kept with the
        attempt, with extra as their fields, also those that package logging does not show."""
        return _Logger(
            self, ("correlation_id", "task_uuid", "step_uuid", "namespace", "task_name", "step_name", "attempt")
        )

    def field(self, name: str, default: JSON = _REQUIRED) -> JSON:
        """A field of the task's context, or the default if it does not exist or is null. Without a default it raises
        Absent."""
        fields = self.context if isinstance(self.context, dict) else {}
        if default is not _REQUIRED:
            return default if fields.get(name) is None else fields[name]
        if name not in fields:
            raise Absent(f"the field {name!r} of the task's context is absent")
        return fields[name]

    def field_as(self, name: str, model: type[T], default: Any = _REQUIRED) -> Any:
        """A field of the task's context as a model, or the default where field would return it."""
        if default is not _REQUIRED and self.field(name, None) is None:
            return default
        return converted(self.field(name), model, f"the field {name!r} of the task's context", "InvalidInput")

    def context_as(self, model: type[T]) -> T:
        """The task's context as a dataclass or a model of pydantic."""
        return converted(self.context, model, "the task's context", "InvalidInput")

    def config_as(self, model: type[T]) -> T:
        """The handler's configuration (handler.initialization) as a dataclass or a model of pydantic."""
        return converted(dict(self.config), model, f"the initialization of step {self.step_name!r}", "InvalidConfig")

    @property
    def batch(self) -> Batch | None:
        """The part of the work that the step does; None for a step that is not a batch."""
        b = self._message.get("batch")
        if b is None:
            return None
        return Batch(
            b["batch_id"],
            b.get("start_cursor"),
            b.get("end_cursor"),
            b["batch_size"],
            b["is_no_op"],
            b.get("cursor_field", ""),
            b.get("failure_strategy", ""),
            self._message.get("items"),
        )

    def items_as(self, model: type[T]) -> list[T] | None:
        """The items of a batch without cursors; None where it has cursors, or is none."""
        batch = self.batch
        if batch is None or batch.items is None:
            return None
        return [
            converted(item, model, f"item {n} of batch {batch.id!r}", "InvalidInput")
            for n, item in enumerate(batch.items, 1)
        ]

    @property
    def saved(self) -> Checkpoint | None:
        """The latest checkpoint; None without one."""
        c = self._message.get("checkpoint")
        return (
            None
            if c is None
            else Checkpoint(c["cursor"], c["items_processed"], c.get("accumulated_results"), _time(c.get("timestamp")))
        )

    def cursor_as(self, model: type[T]) -> T | None:
        """The cursor of the latest checkpoint; None without one."""
        return (
            None
            if self.saved is None
            else converted(self.saved.cursor, model, "the cursor of the checkpoint", "InvalidCheckpoint")
        )

    def accumulated_as(self, model: type[T]) -> T | None:
        """What the latest checkpoint has accumulated; None without it."""
        saved = self.saved
        if saved is None or saved.accumulated is None:
            return None
        return converted(saved.accumulated, model, "the accumulated results of the checkpoint", "InvalidCheckpoint")

    @property
    def cancelled(self) -> bool:
        """The result of the step is not accepted any more: stop."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raises Cancelled once the step is cancelled."""
        if self._cancelled.is_set():
            raise Cancelled(self._reason)

    def on_recorded(self, call: Callable[[bool], object]) -> None:
        """Has a function called when the daemon has answered the end of this execution: with True if it was recorded,
        with False if the step was not held any more. It is not called after a yield or a hand-back, and must not block.
        """
        self._recorded.append(call)

    def checkpoint(self, cursor: JSON, items_processed: int, accumulated: JSON = None) -> Any:
        """Saves progress; raises Cancelled if the step is not held any more, and Permanent if it cannot be stored."""
        p = point(cursor, items_processed, accumulated)
        # With the items isolated so far: the next execution begins behind them.
        sent = {**p, "isolated": list(self._isolated)} if self._isolated else p

        def save() -> None:
            try:
                at = self._session.checkpoint(self, sent)
            except NotHeld as e:
                self._cancel("lease_lost")
                raise Cancelled("lease_lost") from e
            except Refused as e:
                raise Permanent(f"store the checkpoint: {e}", error_type="CheckpointNotStorable") from e
            self._message = {**self._message, "checkpoint": {**p, "timestamp": at}}

        return self._ask("ctx.checkpoint(…)", save, ordered=True)

    def progress(self, fraction: float, message: str = "") -> Any:
        """Shows operators how far the step is, from 0 to 1: the latest is shown by the step. A daemon that cannot be
        reached does not get it."""

        def show() -> None:
            try:
                self._session.progress(self, fraction, message)
            except (NotHeld, SessionLost, Unavailable):
                pass  # the next checkpoint or notice reports it

        return self._later("ctx.progress(…)", show, ordered=True) if in_coroutine() else show()

    def result(self, step: str) -> Any:
        """The result of a step that this one depends on, directly or not, or of a batch by its name. Raises Absent
        if it has none, and UnknownStep if there is no such step."""
        if step in self.results:
            return self._ask(f"ctx.result({step!r})", lambda: self.results[step])
        return self._ask(
            f"ctx.result({step!r})", lambda: self._read("result", step, lambda: self._session.result(self, step))
        )

    def result_as(self, step: str, model: type[T]) -> Any:
        """The result of a step as a dataclass or a model of pydantic. An object with the single key "result" is an
        envelope and unwrapped, unless the model has such a field."""

        def read() -> T:
            value = (
                self.results[step]
                if step in self.results
                else self._read("result", step, lambda: self._session.result(self, step))
            )
            if isinstance(value, dict) and list(value) == ["result"] and not has_field(model, "result"):
                value = value["result"]
            return converted(value, model, f"the result of step {step!r}", "InvalidInput")

        return self._ask(f"ctx.result_as({step!r}, …)", read)

    def batch_results(self, step: str) -> Any:
        """The results of the batches of a worker step, in the order of their creation: step_name and result of each."""
        return self._ask(
            f"ctx.batch_results({step!r})",
            lambda: self._read("batches", step, lambda: self._session.batch_results(self, step)),
        )

    def batch_values(self, step: str, model: type[Any] = object) -> Any:
        """The results of the batches of a worker step that did something, as BatchValue, and how many are missing:
        those of batches that failed and were tolerated, or were resolved by hand."""

        def read() -> tuple[list[BatchValue[Any]], int]:
            ends = self._read("batches", step, lambda: self._session.batch_results(self, step))
            found = [b for b in ends if not b.get("is_no_op")]
            values = [
                BatchValue(
                    str(b["step_name"]),
                    str(b.get("batch_id") or b["step_name"][len(step) + 1 :]),
                    converted(b["result"], model, f"the result of the batch {b['step_name']}", "InvalidInput"),
                    int(b.get("isolated") or 0),
                )
                for b in found
                if b.get("result") is not None
            ]
            return values, len(found) - len(values)

        return self._ask(f"ctx.batch_values({step!r})", read)

    def isolate(self, item: JSON, why: Exception | str) -> None:
        """Records an item of a batch that could not be processed (failure_strategy: isolate). The batch continues; the
        items are stored with its success, or with its next checkpoint or yield. A replay hands them out as batch.items.
        """
        batch = self.batch
        if batch is None or batch.failure_strategy not in ("", "isolate", "isolate_failed"):
            reason = (
                "is not a batch"
                if batch is None
                else f"has the failure_strategy {batch.failure_strategy}, which isolates nothing"
            )
            raise Permanent(f"isolate an item: step {self.step_name!r} {reason}", error_type="ItemNotIsolated")
        try:
            dumps(item)
        except (TypeError, ValueError) as e:
            raise Permanent(f"isolate an item: it has no JSON form: {e}", error_type="ItemNotIsolated") from e
        error = why if isinstance(why, Exception) else Permanent(why)
        self._isolated.append({"item": item, "error": fault(error)})

    def publish(self, name: str, payload: JSON) -> None:
        """Publishes a durable domain event, which the template does not declare, with the success of the step.
        An attempt that fails publishes none, and a step that has published cannot yield."""
        try:
            dumps(payload)
        except (TypeError, ValueError) as e:
            raise Permanent(
                f"the payload of the event {name} has no JSON form: {e}", error_type="EventNotPublished"
            ) from e
        self._events.append({"name": name, "payload": payload})

    def _keep(self, level: str, text: str, fields: str = "") -> None:
        """Keeps a line with the attempt."""
        if self._lines is not None:
            self._lines.write(self, level, text, fields)

    def _printed(self, level: str, text: str) -> None:
        """Keeps the lines of what the handler prints, once they have ended."""
        if self._lines is None or not self._lines.captures:
            return
        with self._lock:
            *lines, rest = (self._begun.get(level, "") + text).split("\n")
            self._begun[level] = rest[-_MAX_BEGUN:]
        for line in lines:
            self._keep(level, line.rstrip("\r"))

    def _end_printed(self) -> None:
        """Keeps what the handler has printed without ending the line."""
        with self._lock:
            begun, self._begun = self._begun, {}
        for level, line in begun.items():
            if line:
                self._keep(level, line)

    def _read(self, kind: str, step: str, read: Callable[[], T]) -> T:
        """Reads a result once."""
        with self._lock:
            if (kind, step) in self._known:
                return self._known[kind, step]  # type: ignore[no-any-return]
        value = read()
        with self._lock:
            self._known[kind, step] = value
        return value

    def _ask(self, what: str, request: Callable[[], T], ordered: bool = False) -> Any:
        """Makes a request of the handler: at once, or in a coroutine beside it."""
        if in_coroutine():
            return self._later(what, lambda: self._answer(request), ordered)
        if ordered and self._last is not None:
            futures.wait([self._last])
        return self._answer(request)

    def _later(self, what: str, call: Callable[[], T], ordered: bool) -> Pending[T]:
        previous = self._last if ordered else None

        def run() -> T:
            if previous is not None:
                futures.wait([previous])
            return call()

        future = self._session.beside.submit(run)
        if ordered:
            self._last = future
        pending = Pending(what, future)
        self._pending.append(pending)
        return pending

    def _settle(self) -> None:
        """Waits for what is still under way. Raises the failure of what was not awaited."""
        futures.wait([p._future for p in self._pending])
        for p in self._pending:
            if not p._awaited and not p._future.cancelled():
                p._future.result()

    def _answer(self, request: Callable[[], T]) -> T:
        """Repeats a request while the worker looks for a daemon that answers."""
        deadline, pause = time.monotonic() + PATIENCE, 0.1
        while True:
            self.check()
            try:
                return request()
            except (Unavailable, SessionLost):
                if time.monotonic() > deadline:
                    raise
                self._cancelled.wait(pause)
                pause = min(2 * pause, 1)

    def _cancel(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._cancelled.set()


def _time(text: JSON) -> datetime | None:
    """A time of the protocol: in RFC 3339, with up to nine digits of a second."""
    if not text:
        return None
    begin, point_, fraction = str(text).rstrip("Z").partition(".")
    digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
    zone = fraction[len(digits) :] or ("+00:00" if str(text).endswith("Z") else "")
    return datetime.fromisoformat(begin + (f".{digits[:6]:0<6}" if point_ else "") + zone)


_current: ContextVar[StepContext] = ContextVar("tasker_step")


def current_step() -> StepContext:
    """The step whose handler calls this, in its thread or coroutine, for the correlation of logs and
    requests. Raises LookupError elsewhere, such as in threads that the handler has started."""
    return _current.get()
