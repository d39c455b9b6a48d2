"""The worker: opens sessions, runs handlers and reports how they ended."""

from __future__ import annotations

import logging
import os
import queue
import random
import signal
import socket
import sys
import threading
import time
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType
from typing import Any, Callable, Mapping, Sequence

from ._context import StepContext
from ._errors import Permanent, Retryable, Returned, fault
from ._events import Deliveries, Publisher, Subscriber, tell_published
from ._handlers import HandlerFunction, Handlers, Resolver, resolved
from ._hooks import Hooks, tell
from ._lines import MAX_BYTES, Lines
from ._output import output
from ._presence import Presence
from ._report import report_of
from ._session import NotHeld, Refused, Session, SessionLost, Transport, Unavailable
from ._threads import Loop, Threads

JSON = Any

VERSION = "0.1.0"
_log = logging.getLogger("tasker")

_PACE = 1.0  # the least time between two requests that are answered at once and bring nothing, in seconds
_AFTER = 10.0  # how long the worker's end waits for what follows accepted reports, in seconds
_LINES = 1.0  # how long a session's end waits for the lines of its handlers, in seconds


class Worker(Handlers):
    """Runs the steps of its handlers until it is stopped.

    url is the address of a worker daemon, or of several with commas between them: when one does not
    answer, the worker goes on with its steps at the next. permits is how many steps run at once. namespaces
    are those whose steps it gets, all that its credentials allow unless they are given. hooks are told what happens.
    What is registered later is offered with another session.

    max_log_bytes bounds the lines of handlers that wait to be sent, of all together; 0 sends none. With
    capture_output, what handlers print is kept like what they log.
    """

    def __init__(
        self,
        url: str = "",
        *,
        permits: int = 1,
        name: str = "",
        token: str = "",
        api_key: str = "",
        namespaces: Sequence[str] = (),
        hooks: Hooks | None = None,
        max_log_bytes: int = MAX_BYTES,
        capture_output: bool = False,
    ) -> None:
        super().__init__()
        if permits < 1:
            raise ValueError(f"invalid permits {permits}: want at least 1")
        if max_log_bytes < 0:
            raise ValueError(f"invalid max_log_bytes {max_log_bytes}: want at least 0")
        if isinstance(namespaces, str):
            raise ValueError(f"invalid namespaces {namespaces!r}: want a list of names")
        self._hooks = hooks or Hooks()
        addresses = url or os.environ.get("TASKER_WORKER_URL", "http://localhost:8081")
        token = token or os.environ.get("TASKER_AUTH_TOKEN", "")
        self._session = Session([Transport(address.strip(), token, api_key) for address in addresses.split(",")])
        self._lines = Lines(self._session, max_log_bytes, capture_output)
        self._permits = permits
        self._namespaces = list(namespaces)
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._stopping = threading.Event()
        self._changed = threading.Event()  # more is offered than the session knows
        self._nudge = threading.Event()  # ends a pause of the loop that follows the session
        self._thread: threading.Thread | None = None
        self._running = False
        self._opened = 0.0  # when the last session was opened
        self._told = ""  # the address that the worker has said it is connected to
        self._loop = Loop()
        self._presence = Presence()
        self._deliveries = Deliveries([], self._loop)
        self._after = Threads(4, "tasker-recorded")

    def run(self) -> None:
        """Runs until SIGTERM, SIGINT or stop; the steps that run then end first. The handlers of these signals
        are those of before when it returns."""
        before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():

            def end(number: int, frame: FrameType | None) -> None:
                self._stopping.set()

            before = {s: signal.signal(s, end) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            self._run()
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def start(self) -> None:
        """Runs in the background; stop ends it."""
        self._thread = threading.Thread(target=self._run, name="tasker-worker")
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """Takes no more steps, and waits for those that run, with a timeout not longer than so many seconds."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        if not self._handlers and not self._resolvers:
            raise ValueError("run the worker: want at least one handler")
        self._running = True
        self._deliveries.add(self._subscribers)
        threading.Thread(target=self._interrupt, name="tasker-stop", daemon=True).start()
        if self._lines.captures:
            output.capture()
        try:
            with ThreadPoolExecutor(self._permits, "tasker-handler") as pool:
                while not self._stopping.is_set():
                    _Life(self, self._session, pool).live()
        finally:
            self._running = False
            if self._lines.captures:
                output.restore()
            self._lines.close()
            self._presence.close()
            self._deliveries.close()
            self._loop.close()
            self._session.disconnect()
            tell(self._hooks.stopped)

    def _interrupt(self) -> None:
        """Ends the wait for steps when the worker is stopped."""
        self._stopping.wait()
        self._nudge.set()
        self._end_wait(stops=True)

    def _end_wait(self, stops: bool) -> None:
        try:
            self._session.interrupt(stops)
        except (Unavailable, SessionLost, Refused, NotHeld) as e:
            _log.debug("the wait for steps was not interrupted: %s", e)

    def _add(self, callable: str, method: str, function: HandlerFunction) -> None:
        super()._add(callable, method, function)
        self._extended()

    def publisher(self, publisher: Publisher) -> Publisher:
        super().publisher(publisher)
        self._extended()
        return publisher

    def subscriber(self, subscriber: Subscriber) -> Subscriber:
        super().subscriber(subscriber)
        self._extended()
        return subscriber

    def resolver(self, resolver: Resolver) -> Resolver:
        super().resolver(resolver)
        self._extended()
        return resolver

    def _extended(self) -> None:
        """Has another session opened, which offers what was added."""
        if self._running and not self._changed.is_set():
            self._changed.set()
            self._deliveries.add(self._subscribers)
            self._after.submit(lambda: self._end_wait(stops=False))

    def _request(self) -> dict[str, JSON]:
        methods: dict[str, list[str]] = {}
        for callable, method in list(self._handlers):
            methods.setdefault(callable, []).append(method)
        callables: list[dict[str, JSON]] = [
            {"callable": c, "methods": [m for m in ms if m != "call"]} for c, ms in methods.items()
        ]
        callables += [
            {"callable": c, "methods": list(r.methods), "resolver": r.name}
            for r in self._resolvers
            for c in r.callables
        ]
        request: dict[str, JSON] = {
            "protocol": 1,
            "name": self._name,
            "client": "tasker-python/" + VERSION,
            "permits": self._permits,
            "callables": callables,
        }
        patterns = dict.fromkeys(p for s in self._subscribers for p in s.patterns)
        for key, names in (
            ("namespaces", self._namespaces),
            ("publishers", list(self._publishers)),
            ("subscribes", list(patterns)),
        ):
            if names:
                request[key] = names
        return request

    def _connected(self) -> None:
        """Says that the worker is ready, also without a configured logger."""
        names: dict[str, set[str]] = {}
        for callable in dict.fromkeys(c for c, _ in self._handlers):
            names.setdefault(self._aliases.get(callable, callable), set()).add(callable)
        handlers = len(names)
        text = f"connected to {self._session.url}, serving {handlers} handler{'' if handlers == 1 else 's'}"
        if self._told == self._session.url or _log.hasHandlers():
            _log.info("%s", text)
        else:
            print(text, file=sys.stderr, flush=True)
        if self._told:
            return
        self._told = self._session.url
        unnamed = set(self._session.unnamed)
        for callable in [c for c, known in names.items() if known <= unnamed]:
            _log.warning(
                "no step is for the handler %s yet: no registered template in the namespaces of this session names it",
                callable,
            )

    def _call(self, ctx: StepContext) -> JSON:
        """Calls the handler of a step."""
        named = [r for r in self._resolvers if r.name == ctx.resolver]
        if not named:
            name = str(ctx._message.get("offered") or ctx.callable)
            function = self._handlers.get((name, ctx.method))
            if function is not None:
                return function(ctx)
            if any(callable == name for callable, _ in self._handlers):
                known = ", ".join(sorted(m for c, m in self._handlers if c == name))
                raise Permanent(
                    f"MethodNotFound: Handler '{ctx.callable}' does not respond to '{ctx.method}'; it has {known}",
                    error_type="MethodNotFound",
                )
            named = [] if ctx.resolver else [r for r in self._resolvers if r.fits(ctx.callable)]
            if not named:
                raise Returned()
        for r in named:
            if r.can_resolve(ctx):
                return resolved(self._loop.value(r.resolve(ctx), ctx.check), ctx, r)(ctx)
        asked = ", ".join(r.name for r in named)
        raise Retryable(
            f"ResolutionError: No resolver could resolve callable '{ctx.callable}' (asked: {asked})",
            error_type="HandlerNotFound",
        )


class _Life:
    """Works until the worker or the daemon stops; sessions may come and go meanwhile."""

    def __init__(self, worker: Worker, session: Session, pool: ThreadPoolExecutor) -> None:
        self._worker = worker
        self._session = session
        self._pool = pool
        self._lock = threading.Lock()
        self._held: dict[str, StepContext] = {}  # by execution; their ends are not confirmed
        self._reports: queue.SimpleQueue[tuple[StepContext, dict[str, JSON]] | None] = queue.SimpleQueue()
        self._told: set[Future[None]] = set()  # what follows accepted reports
        self._draining = False

    def live(self) -> None:
        reporter = threading.Thread(target=self._report, name="tasker-report")
        reporter.start()
        try:
            if self._open():
                self._follow()
                self._leave()
        finally:
            self._drop(self._holds())
            self._reports.put(None)
            reporter.join()
            futures.wait(list(self._told), _AFTER)

    def _holds(self) -> list[StepContext]:
        with self._lock:
            return list(self._held.values())

    def _drop(self, lost: Sequence[StepContext]) -> None:
        """Cancels steps that another worker has; their results are ignored."""
        self._forget(lost)
        for ctx in lost:
            ctx._cancel("lease_lost")

    @property
    def _pace(self) -> float:
        """The least time between two requests that bring nothing; within the grace, so that the session stays."""
        return min(_PACE, self._session.grace / 3)

    def _open(self) -> bool:
        """Opens a session with what is held. Reports whether there is one: not if the worker stops first."""
        self._pause(self._worker._opened + self._pace - time.monotonic())  # a daemon may forget each session at once
        self._session.moving = True
        try:
            return self._open_another()
        finally:
            self._session.moving = False

    def _open_another(self) -> bool:
        begun, failures = time.monotonic(), 0
        while True:
            if self._worker._stopping.is_set() and (
                not self._holds() or time.monotonic() - begun > self._session.grace
            ):
                return False
            held = self._holds()
            self._worker._changed.clear()
            try:
                lost = self._session.open(self._worker._request(), held)
            except (Unavailable, SessionLost) as e:
                failures += 1
                _log.log(
                    logging.WARNING if failures == 1 else logging.INFO, "no session with %s: %s", self._session.url, e
                )
                self._session.next()
                longest = (
                    min(2, self._session.grace / 4) if held else 2
                )  # what is held has the grace of a daemon started again
                pause = min(0.05 * 2**failures, longest) * random.uniform(0.5, 1)
                time.sleep(pause) if held else self._worker._stopping.wait(pause)
                continue
            self._worker._opened = time.monotonic()
            self._worker._presence.session(self._session.presence())
            self._worker._connected()
            tell(self._worker._hooks.opened)
            if lost:
                _log.warning("%d of %d steps were not kept", len(lost), len(held))
                self._drop(lost)
            return True

    def _follow(self) -> None:
        """Returns when the session holds nothing and the worker or the daemon stops."""
        silent, told, failures = time.monotonic(), False, 0
        while True:
            stops = self._draining or self._worker._stopping.is_set()
            if stops and not told:
                told = True
                tell(self._worker._hooks.draining)
            if stops and not self._holds():
                return
            if self._worker._changed.is_set() and not stops:
                if not self._open_again():
                    return
                silent = time.monotonic()
            begun, news = time.monotonic(), False
            try:
                for answer in self._session.follow(0.001 if stops else self._session.max_wait, stops):
                    silent, self._draining = time.monotonic(), bool(answer["draining"])
                    news = self._obey(answer) or news
                failures = 0
            except SessionLost:
                if not self._open():
                    return
                silent = time.monotonic()
                continue
            except Unavailable:
                failures += 1
                away = time.monotonic() - silent
                if away > self._session.grace or self._session.alternatives and away > self._session.grace / 10:
                    self._session.next()
                    if not self._open():
                        return
                    silent = time.monotonic()
                self._pause(min(0.025 * 2**failures, self._session.grace / 20 * failures, self._pace))
                continue
            early = stops or time.monotonic() - begun < min(self._pace, self._session.max_wait / 2)
            if early and not news:
                self._pause(begun + self._pace - time.monotonic())  # a draining daemon, or a proxy, answers at once

    def _pause(self, seconds: float) -> None:
        """Waits, not longer than until the worker stops or a stopping worker has nothing more to do."""
        if seconds > 0 and not (self._worker._stopping.is_set() and not self._holds()):
            self._worker._nudge.wait(seconds)
            self._worker._nudge.clear()

    def _open_again(self) -> bool:
        """Opens a session that offers what was added, and closes the one before."""
        close = self._session.leave()
        if not self._open_another():
            return False
        try:
            close()
        except (Unavailable, SessionLost, NotHeld, Refused) as e:
            _log.debug("the session before was not closed: %s", e)
        return True

    def _obey(self, answer: Mapping[str, JSON]) -> bool:
        """Does what the daemon tells. Reports whether anything is new."""
        news = False
        for message in answer["steps"]:
            news = self._take(message) or news
        for notice in answer["cancelled"]:
            for ctx in self._holds():
                if ctx.fence == notice["fence"]:
                    news = news or not ctx.cancelled
                    ctx._cancel(str(notice["reason"]))
        for event in answer.get("events") or []:
            news = True
            self._worker._deliveries.deliver(event)
        return news

    def _leave(self) -> None:
        self._worker._lines.settle(_LINES)
        try:
            self._session.close()
        except (Unavailable, SessionLost, NotHeld) as e:
            _log.info("the session was not closed: %s", e)
        if self._session.alternatives and not self._worker._stopping.is_set():
            self._session.next()  # this daemon stops

    def _take(self, message: Mapping[str, JSON]) -> bool:
        lines = self._worker._lines
        ctx = StepContext(self._session, message, lines if lines.keeps else None)
        with self._lock:
            if ctx.fence in self._held:
                return False  # told again
            self._held[ctx.fence] = ctx
        self._worker._presence.begin()
        self._pool.submit(self._execute, ctx)
        return True

    def _execute(self, ctx: StepContext) -> None:
        self._reports.put((ctx, self._outcome(ctx)))

    def _outcome(self, ctx: StepContext) -> dict[str, JSON]:
        hooks, begun = self._worker._hooks, time.monotonic()

        def call(ctx: StepContext) -> JSON:
            tell(hooks.before, ctx)
            return self._worker._call(ctx)

        report = report_of(
            ctx, call, self._worker._loop, self._worker._publishers, lambda e: tell(hooks.failed, ctx, e)
        )
        tell(hooks.after, ctx, report["outcome"], time.monotonic() - begun)
        return report

    def _report(self) -> None:
        """Sends reports; those that end while one request is under way share the next."""
        while True:
            first = self._reports.get()
            if first is None:
                return
            batch = [first]
            while not self._reports.empty():
                more = self._reports.get()
                if more is None:
                    self._send(batch)
                    return
                batch.append(more)
            self._send(batch)

    def _send(self, batch: list[tuple[StepContext, dict[str, JSON]]]) -> None:
        """Sends reports until they are recorded, or rejected, or another worker has their steps."""
        pause = 0.05
        while batch := [(ctx, report) for ctx, report in batch if self._has(ctx)]:
            self._worker._lines.flush([ctx for ctx, _ in batch])
            try:
                answer = self._session.report(batch)
            except (Unavailable, SessionLost):  # follow opens another session if that is what it takes
                time.sleep(pause)
                pause = min(2 * pause, self._pace)
                continue
            except Refused as e:
                self._send_refused(batch, e)
                return
            for rejection in answer["rejected"]:
                _log.warning("the end of a step was rejected: %s", rejection)
            unrecorded = set(answer.get("unrecorded") or [])
            rejected = {r["fence"] for r in answer["rejected"]}
            wrong = {
                r["fence"]: r["error"] for r in answer["rejected"] if r["status"] == 400
            }  # the daemon waits for another
            ended = [
                (ctx, report)
                for ctx, report in batch
                if report["fence"] not in unrecorded and report["fence"] not in wrong
            ]
            for ctx, report in ended:
                self._tell(ctx, report, report["fence"] not in rejected)
            self._forget([ctx for ctx, _ in ended])
            for one in [one for one in batch if one[1]["fence"] in wrong]:
                self._send_refused([one], Refused(wrong[one[1]["fence"]]))
            if unrecorded:
                time.sleep(pause)
                pause = min(2 * pause, self._pace)

    def _tell(self, ctx: StepContext, report: Mapping[str, JSON], accepted: bool) -> None:
        """Tells handler and publishers of a step that its end was answered."""
        if report["outcome"] not in ("success", "failure") or not (ctx._recorded or ctx._made):
            return

        def call() -> None:
            for recorded in ctx._recorded:
                tell(recorded, accepted)
            if accepted:
                tell_published(ctx, self._worker._loop)

        told = self._worker._after.submit(call)
        self._told.add(told)
        told.add_done_callback(self._told.discard)

    def _has(self, ctx: StepContext) -> bool:
        with self._lock:
            return ctx in self._held.values()

    def _forget(self, ended: Sequence[StepContext]) -> None:
        with self._lock:
            for key in [k for k, ctx in self._held.items() if ctx in ended]:
                del self._held[key]
            idle = not self._held
        if idle and (self._draining or self._worker._stopping.is_set()):
            self._worker._nudge.set()

    def _send_refused(self, batch: list[tuple[StepContext, dict[str, JSON]]], why: Refused) -> None:
        """Finds the report that the daemon refuses (too large), and reports that instead."""
        ctx, report = batch[0]
        failed = report.get("error") or {}
        if len(batch) > 1:
            for one in batch:
                self._send([one])
        elif failed.get("error_type") != "ReportRefused":
            error = fault(Permanent(f"the daemon refused the end of the step: {why}", error_type="ReportRefused"))
            error["retryable"] = failed.get("retryable", report["outcome"] == "failure")
            self._send([(ctx, {"outcome": "failure", "error": error})])
        else:
            _log.error("the failure of a step was not reported: %s", why)
            self._forget([ctx])
