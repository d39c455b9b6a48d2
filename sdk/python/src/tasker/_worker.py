"""The worker: opens sessions, runs handlers and reports how they ended."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import queue
import random
import signal
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Coroutine, Mapping, Sequence

from ._context import Cancelled, StepContext
from ._errors import Permanent, Returned, fault
from ._handlers import Handlers
from ._hooks import Hooks, tell
from ._report import report_of
from ._session import NotHeld, Refused, Session, SessionLost, Transport, Unavailable

JSON = Any

VERSION = "0.1.0"
_log = logging.getLogger("tasker")


class Worker(Handlers):
    """Runs the steps of its handlers until it is stopped.

    url is the address of a worker daemon, or of several with commas between them: when one does not
    answer, the worker goes on with its steps at the next. permits is how many steps run at once.
    Handlers must be registered before run or start. hooks are told what happens.
    """

    def __init__(self, url: str = "", *, permits: int = 1, name: str = "", token: str = "", api_key: str = "",
                 hooks: Hooks | None = None) -> None:
        super().__init__()
        self._hooks = hooks or Hooks()
        addresses = url or os.environ.get("TASKER_WORKER_URL", "http://localhost:8081")
        token = token or os.environ.get("TASKER_AUTH_TOKEN", "")
        self._session = Session([Transport(address.strip(), token, api_key) for address in addresses.split(",")])
        self._permits = permits
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Runs until SIGTERM, SIGINT or stop; the steps that run then end first."""
        if threading.current_thread() is threading.main_thread():
            for s in (signal.SIGTERM, signal.SIGINT):
                signal.signal(s, lambda *_: self._stopping.set())
        self._run()

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
        if not self._handlers:
            raise ValueError("run the worker: want at least one handler")
        loop = asyncio.new_event_loop()
        turning = threading.Thread(target=loop.run_forever, name="tasker-loop", daemon=True)
        turning.start()
        self._loop = loop
        threading.Thread(target=self._interrupt, name="tasker-stop", daemon=True).start()
        try:
            with ThreadPoolExecutor(self._permits, "tasker-handler") as pool:
                while not self._stopping.is_set():
                    _Life(self, self._session, pool).live()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            turning.join()
            loop.close()
            tell(self._hooks.stopped)

    def _interrupt(self) -> None:
        """Ends the wait for steps when the worker is stopped."""
        self._stopping.wait()
        try:
            self._session.interrupt()
        except (Unavailable, SessionLost, Refused, NotHeld) as e:
            _log.debug("the wait for steps was not interrupted: %s", e)

    def _request(self) -> dict[str, JSON]:
        methods: dict[str, list[str]] = {}
        for callable, method in self._handlers:
            methods.setdefault(callable, []).append(method)
        return {"protocol": 1, "name": self._name, "client": "tasker-python/" + VERSION, "permits": self._permits,
                "callables": [{"callable": c, "methods": [m for m in ms if m != "call"]} for c, ms in methods.items()]}

    def _call(self, ctx: StepContext) -> JSON:
        function = self._handlers.get((ctx.callable, ctx.method))
        if function is None:
            raise Returned()
        if inspect.iscoroutinefunction(function):
            assert self._loop is not None
            coroutine: Coroutine[Any, Any, JSON] = function(ctx)
            return _await(ctx, asyncio.run_coroutine_threadsafe(coroutine, self._loop))
        return function(ctx)


def _await(ctx: StepContext, future: Future[JSON]) -> JSON:
    """Waits for an async handler, and cancels it with its step."""
    while True:
        try:
            return future.result(timeout=0.5)
        except FutureTimeout:
            if future.done():
                raise
            if ctx.cancelled:
                future.cancel()
                raise Cancelled("lease_lost") from None


class _Life:
    """Works until the worker or the daemon stops; sessions may come and go meanwhile."""

    def __init__(self, worker: Worker, session: Session, pool: ThreadPoolExecutor) -> None:
        self._worker = worker
        self._session = session
        self._pool = pool
        self._lock = threading.Lock()
        self._held: dict[str, StepContext] = {}  # by execution; their ends are not confirmed
        self._reports: queue.SimpleQueue[tuple[StepContext, dict[str, JSON]] | None] = queue.SimpleQueue()

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

    def _holds(self) -> list[StepContext]:
        with self._lock:
            return list(self._held.values())

    def _drop(self, lost: Sequence[StepContext]) -> None:
        """Cancels steps that another worker has; what becomes of them here changes nothing."""
        self._forget(lost)
        for ctx in lost:
            ctx._cancel("lease_lost")

    def _open(self) -> bool:
        """Opens a session with what is held. Reports whether there is one: not if the worker stops first."""
        self._session.moving = True
        try:
            return self._open_another()
        finally:
            self._session.moving = False

    def _open_another(self) -> bool:
        begun, failures = time.monotonic(), 0
        while True:
            if self._worker._stopping.is_set() and (not self._holds() or time.monotonic() - begun > self._session.grace):
                return False
            held = self._holds()
            try:
                lost = self._session.open(self._worker._request(), held)
            except (Unavailable, SessionLost) as e:
                failures += 1
                _log.log(logging.WARNING if failures == 1 else logging.INFO, "no session: %s", e)
                self._session.next()
                longest = min(2, self._session.grace / 4) if held else 2  # what is held has the grace of a daemon started again
                pause = min(0.05 * 2**failures, longest) * random.uniform(0.5, 1)
                time.sleep(pause) if held else self._worker._stopping.wait(pause)
                continue
            tell(self._worker._hooks.opened)
            if lost:
                _log.warning("%d of %d steps were not kept", len(lost), len(held))
                self._drop(lost)
            return True

    def _follow(self) -> None:
        """Returns when the session holds nothing and the worker or the daemon stops."""
        silent, draining, told = time.monotonic(), False, False
        while True:
            stops = draining or self._worker._stopping.is_set()
            if stops and not told:
                told = True
                tell(self._worker._hooks.draining)
            if stops and not self._holds():
                return
            try:
                for answer in self._session.follow(0.2 if stops else self._session.max_wait, stops):
                    silent, draining = time.monotonic(), bool(answer["draining"])
                    self._obey(answer)
            except SessionLost:
                if not self._open():
                    return
                silent = time.monotonic()
                continue
            except Unavailable:
                away = time.monotonic() - silent
                if away > self._session.grace or self._session.alternatives and away > self._session.grace / 10:
                    self._session.next()
                    if not self._open():
                        return
                    silent = time.monotonic()
                time.sleep(min(0.05, self._session.grace / 20))
                continue
            if draining:
                time.sleep(0.05)  # a draining daemon answers at once

    def _obey(self, answer: Mapping[str, JSON]) -> None:
        for message in answer["steps"]:
            self._take(message)
        for notice in answer["cancelled"]:
            for ctx in self._holds():
                if ctx.fence == notice["fence"]:
                    ctx._cancel(str(notice["reason"]))

    def _leave(self) -> None:
        try:
            self._session.close()
        except (Unavailable, SessionLost, NotHeld) as e:
            _log.info("the session was not closed: %s", e)
        if self._session.alternatives and not self._worker._stopping.is_set():
            self._session.next()  # this daemon stops

    def _take(self, message: Mapping[str, JSON]) -> None:
        ctx = StepContext(self._session, message)
        with self._lock:
            if ctx.fence in self._held:
                return  # told again
            self._held[ctx.fence] = ctx
        self._pool.submit(self._execute, ctx)

    def _execute(self, ctx: StepContext) -> None:
        self._reports.put((ctx, self._outcome(ctx)))

    def _outcome(self, ctx: StepContext) -> dict[str, JSON]:
        hooks, begun = self._worker._hooks, time.monotonic()

        def call() -> JSON:
            tell(hooks.before, ctx)
            return self._worker._call(ctx)

        report = report_of(ctx, call, lambda e: tell(hooks.failed, ctx, e))
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
        while batch := [(ctx, report) for ctx, report in batch if self._has(ctx)]:
            try:
                answer = self._session.report(batch)
            except (Unavailable, SessionLost):
                time.sleep(0.05)  # follow opens another session if that is what it takes
                continue
            except Refused as e:
                self._send_refused(batch, e)
                return
            for rejection in answer["rejected"]:
                _log.warning("the end of a step was rejected: %s", rejection)
            unrecorded = set(answer.get("unrecorded") or [])
            wrong = {r["fence"]: r["error"] for r in answer["rejected"] if r["status"] == 400}  # the daemon waits for another
            self._forget([ctx for ctx, report in batch if report["fence"] not in unrecorded and report["fence"] not in wrong])
            for one in [one for one in batch if one[1]["fence"] in wrong]:
                self._send_refused([one], Refused(wrong[one[1]["fence"]]))
            if unrecorded:
                time.sleep(0.05)

    def _has(self, ctx: StepContext) -> bool:
        with self._lock:
            return ctx in self._held.values()

    def _forget(self, ended: Sequence[StepContext]) -> None:
        with self._lock:
            for key in [k for k, ctx in self._held.items() if ctx in ended]:
                del self._held[key]

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
