"""Domain events: publishers make those that a template declares, subscribers get the fast ones."""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from ._bytes import dumps
from ._context import StepContext
from ._threads import Loop

JSON = Any
_log = logging.getLogger("tasker")

_MAX_WAITING = 1000  # events of one subscriber
_PUBLISHER_TIMEOUT = 5.0  # seconds for the coroutines that make one event


@dataclass(frozen=True)
class StepEvent:
    """What a publisher makes an event of: a declared event, and the end of the step that it follows."""

    name: str
    condition: str
    delivery_mode: str
    publisher: str
    success: bool
    result: JSON  # of a success
    error: Mapping[str, JSON] | None  # of a failure: message, error_type, error_code, retryable, context
    payload: JSON  # the default
    step: StepContext

    @property
    def attempt(self) -> int:
        return self.step.attempt

    @property
    def context(self) -> JSON:
        """The task's."""
        return self.step.context


class Publisher:
    """Makes the declared events of steps whose template names it (publishes_events[].publisher). Override the methods
    that you need, as functions or coroutines. They are called after the handler has ended and before its end is
    reported, in its thread. They never change how the step ends: what raises is logged, and its event is not published.
    """

    name: str = ""
    """The name that templates use; the name of the class unless it is given."""

    def before(self, event: StepEvent) -> Any:
        """Is called first; after an exception the event is not published."""

    def should_publish(self, event: StepEvent) -> Any:
        """Whether to publish the event; False is no failure."""
        return True

    def payload(self, event: StepEvent) -> Any:
        """Makes the payload; by default that of events without a publisher."""
        return event.payload

    def metadata(self, event: StepEvent) -> Any:
        """An object that is added to the metadata of the event, or None."""
        return None

    def after(self, event: StepEvent) -> Any:
        """Is called after the report of the step was accepted."""

    def failed(self, event: StepEvent, error: Exception) -> Any:
        """Is called when the event is not published because of an exception."""


def name_of(publisher: Publisher) -> str:
    return publisher.name or type(publisher).__name__


def make_events(ctx: StepContext, report: dict[str, JSON], publishers: Mapping[str, Publisher], loop: Loop) -> None:
    """Adds to a report what publishers make of the end of a step."""
    made: list[dict[str, JSON]] = []
    for declared in ctx._message.get("publishes") or []:
        publisher = publishers.get(declared.get("publisher", ""))
        if publisher is None or not _follows(str(declared.get("condition") or "success"), report, ctx):
            continue
        event, wanted = _step_event(ctx, declared, report), _within(_PUBLISHER_TIMEOUT)
        one: dict[str, JSON] = {"name": event.name}
        try:
            loop.value(publisher.before(event), wanted)
            if loop.value(publisher.should_publish(event), wanted):
                one["payload"] = loop.value(publisher.payload(event), wanted)
                if added := loop.value(publisher.metadata(event), wanted):
                    one["metadata"] = dict(added)
                dumps(one)
                ctx._made.append((publisher, event))
            else:
                one["skip"] = "vetoed"
        except Exception as e:
            _log.warning(
                "publisher %s: the event %s of step %s is not published",
                name_of(publisher),
                event.name,
                ctx.step_name,
                exc_info=e,
            )
            one = {"name": event.name, "skip": "publisher_error"}
            _tell(loop, publisher.failed, event, e)
        made.append(one)
    if made:
        report["made"] = made


def tell_published(ctx: StepContext, loop: Loop) -> None:
    """Calls after of the publishers of a step whose report was accepted."""
    for publisher, event in ctx._made:
        _tell(loop, publisher.after, event)


def _tell(loop: Loop, call: Callable[..., Any], *args: Any) -> None:
    try:
        loop.value(call(*args))
    except Exception as e:
        _log.warning("a publisher failed after its event was made", exc_info=e)


def _within(seconds: float) -> Callable[[], None]:
    """What raises once the time is over."""
    deadline = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the publisher took more than {seconds:g} s")

    return check


def _follows(condition: str, report: Mapping[str, JSON], ctx: StepContext) -> bool:
    """Whether an event follows the end of a step."""
    if report["outcome"] == "success":
        return condition in ("success", "always")
    if report["outcome"] != "failure":
        return False
    final = not report["error"].get("retryable", True) or ctx.is_last_attempt
    return condition in ("failure", "always", "permanent_failure" if final else "retryable_failure")


def _step_event(ctx: StepContext, declared: Mapping[str, JSON], report: Mapping[str, JSON]) -> StepEvent:
    success = report["outcome"] == "success"
    payload, error = report.get("result"), None
    if not success:
        error = {k: v for k, v in report["error"].items() if k != "retry_after_ms"}
        error.setdefault("retryable", True)
        payload = {
            "error": error,
            "error_code": error.get("error_code") or error["error_type"],
            "error_message": error["message"],
        }
    return StepEvent(
        str(declared["name"]),
        str(declared.get("condition") or "success"),
        str(declared.get("delivery_mode") or "durable"),
        str(declared["publisher"]),
        success,
        report.get("result") if success else None,
        error,
        payload,
        ctx,
    )


@dataclass(frozen=True)
class Event:
    """A domain event as subscribers get it. metadata has task_uuid, step_uuid, step_name, namespace, correlation_id,
    fired_at, fired_by, success and attempt, and what a publisher has added as added."""

    id: str
    name: str
    version: str
    payload: JSON
    metadata: Mapping[str, JSON]


class Subscriber:
    """Gets the fast domain events of the daemon's namespaces whose names fit the patterns, one after the other. They
    arrive at most once: a process that does not listen misses them, and an exception is logged and changes nothing.
    Override the methods that you need, as functions or coroutines."""

    name: str = ""
    patterns: Sequence[str] = ()
    """Names in which * stands for any characters: payment.*, *, or the name itself."""

    def before(self, event: Event) -> Any:
        """Is called before handle; its exception skips handle."""

    def handle(self, event: Event) -> Any:
        """Handles an event."""
        raise NotImplementedError

    def after(self, event: Event) -> Any:
        """Is called after a handle that succeeded."""

    def failed(self, event: Event, error: Exception) -> Any:
        """Is called after a handle that failed."""


class FunctionSubscriber(Subscriber):
    """A subscriber that is one function."""

    def __init__(self, patterns: Sequence[str], function: Callable[[Event], Any]) -> None:
        self.name, self.patterns = getattr(function, "__name__", "subscriber"), patterns
        self._function = function

    def handle(self, event: Event) -> Any:
        return self._function(event)


class Deliveries:
    """Hands events to subscribers, each in a thread of its own."""

    def __init__(self, subscribers: Sequence[Subscriber], loop: Loop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._queues: dict[int, tuple[Subscriber, queue.Queue[Event | None]]] = {}
        self._threads: list[threading.Thread] = []
        self._full: set[int] = set()
        self.add(subscribers)

    def add(self, subscribers: Sequence[Subscriber]) -> None:
        """Adds the subscribers that are new, and removes those that are not there any more."""
        with self._lock:
            for key in set(self._queues) - {id(s) for s in subscribers}:
                self._end(self._queues.pop(key)[1])
            for s in subscribers:
                if id(s) not in self._queues:
                    waiting: queue.Queue[Event | None] = queue.Queue(_MAX_WAITING)
                    self._queues[id(s)] = s, waiting
                    thread = threading.Thread(
                        target=self._work, args=(s, waiting), name="tasker-subscriber", daemon=True
                    )
                    self._threads.append(thread)
                    thread.start()

    def deliver(self, message: Mapping[str, JSON]) -> None:
        """Hands one event to those that want it; a subscriber that does not keep up misses it."""
        event = Event(
            str(message.get("event_id", "")),
            str(message["event_name"]),
            str(message.get("event_version", "")),
            message.get("payload"),
            message.get("metadata") or {},
        )
        with self._lock:
            wanted = [
                (key, s, waiting)
                for key, (s, waiting) in self._queues.items()
                if any(fits(p, event.name) for p in s.patterns)
            ]
        for key, s, waiting in wanted:
            try:
                waiting.put_nowait(event)
                self._full.discard(key)
            except queue.Full:
                if key not in self._full:
                    self._full.add(key)
                    _log.warning(
                        "subscriber %s misses events: %d wait for it", s.name or type(s).__name__, _MAX_WAITING
                    )

    def close(self, timeout: float = 5) -> None:
        """Ends the threads after the events that wait."""
        with self._lock:
            queues, self._queues = self._queues, {}
            threads, self._threads = self._threads, []
        for _, waiting in queues.values():
            self._end(waiting)
        for thread in threads:
            thread.join(timeout)

    def _end(self, waiting: queue.Queue[Event | None]) -> None:
        try:
            waiting.put_nowait(None)
        except queue.Full:
            pass  # its thread is a daemon thread

    def _work(self, s: Subscriber, waiting: queue.Queue[Event | None]) -> None:
        while (event := waiting.get()) is not None:
            self._handle(s, event)

    def _handle(self, s: Subscriber, event: Event) -> None:
        try:
            self._loop.value(s.before(event))
            try:
                self._loop.value(s.handle(event))
            except Exception as e:
                _log.warning(
                    "subscriber %s failed with the event %s", s.name or type(s).__name__, event.name, exc_info=e
                )
                self._loop.value(s.failed(event, e))
                return
            self._loop.value(s.after(event))
        except Exception as e:
            _log.warning(
                "subscriber %s: a method around the event %s failed", s.name or type(s).__name__, event.name, exc_info=e
            )


def fits(pattern: str, name: str) -> bool:
    """Whether a name fits a pattern, in which * stands for any characters."""
    return _pattern(pattern).fullmatch(name) is not None


def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)
