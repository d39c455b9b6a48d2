"""The worker: opens sessions, runs handlers and reports how they ended."""

from __future__ import annotations

import asyncio
import inspect
import json
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
from typing import Any, Coroutine, Mapping

from ._context import Cancelled, StepContext, _current
from ._errors import Permanent, Returned, Yield, fault
from ._handlers import Handlers
from ._session import NotHeld, Refused, Session, SessionLost, Transport, Unavailable

JSON = Any

VERSION = "0.1.0"
_log = logging.getLogger("tasker")


class Worker(Handlers):
    """Runs the steps of its handlers until it is stopped.

    permits is how many steps run at once. Handlers must be registered before run or start.
    """

    def __init__(self, url: str = "", *, permits: int = 1, name: str = "", token: str = "", api_key: str = "") -> None:
        super().__init__()
        self._transport = Transport(url or os.environ.get("TASKER_WORKER_URL", "http://localhost:8081"),
                                    token or os.environ.get("TASKER_AUTH_TOKEN", ""), api_key)
        self._permits = permits
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._session: Session | None = None

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

    def stop(self) -> None:
        """Takes no more steps, and waits for those that run."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

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
                failures = 0
                while not self._stopping.is_set():
                    try:
                        self._session = Session.open(self._transport, self._request())
                        _Life(self, self._session, pool).live()
                        failures = 0
                    except (Unavailable, SessionLost) as e:
                        failures += 1
                        _log.warning("no session: %s", e)
                        self._stopping.wait(min(0.1 * 2**failures, 5) * random.uniform(0.5, 1))
        finally:
            loop.call_soon_threadsafe(loop.stop)
            turning.join()
            loop.close()

    def _interrupt(self) -> None:
        """Ends the poll that waits when the worker is stopped."""
        self._stopping.wait()
        if self._session is not None:
            try:
                self._session.interrupt()
            except (Unavailable, SessionLost, Refused) as e:
                _log.debug("the poll was not interrupted: %s", e)

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


def _encodable(result: JSON) -> JSON:
    try:
        json.dumps(result, allow_nan=False)
    except (TypeError, ValueError) as e:
        raise Permanent(f"the handler's result has no JSON form: {e}", error_type="ResultNotEncodable") from e
    return result


class _Life:
    """The life of one session."""

    def __init__(self, worker: Worker, session: Session, pool: ThreadPoolExecutor) -> None:
        self._worker = worker
        self._session = session
        self._pool = pool
        self._lock = threading.Lock()
        self._held: dict[str, StepContext] = {}
        self._reports: queue.SimpleQueue[dict[str, JSON] | None] = queue.SimpleQueue()

    def live(self) -> None:
        """Polls until the worker or the daemon stops, or the session is lost."""
        reporter = threading.Thread(target=self._report, name="tasker-report")
        reporter.start()
        try:
            self._poll()
            self._leave()
        finally:
            with self._lock:
                for ctx in self._held.values():
                    ctx._cancel("lease_lost")
            self._reports.put(None)
            reporter.join()

    def _poll(self) -> None:
        """Returns when the session holds nothing and the worker or the daemon stops."""
        silent, draining = time.monotonic(), False
        while True:
            stops = draining or self._worker._stopping.is_set()
            with self._lock:
                if stops and not self._held:
                    return
            try:
                answer = self._session.poll(0.2 if stops else self._session.max_wait, stops)
            except Unavailable as e:
                if time.monotonic() - silent > self._session.grace:
                    raise SessionLost(f"no answer within the grace: {e}") from e
                time.sleep(min(0.05, self._session.grace / 10))
                continue
            silent, draining = time.monotonic(), bool(answer["draining"])
            for message in answer["steps"]:
                self._take(message)
            for notice in answer["cancelled"]:
                with self._lock:
                    ctx = self._held.get(str(notice["fence"]))
                if ctx is not None:
                    ctx._cancel(str(notice["reason"]))
            if draining:
                time.sleep(0.05)  # a draining daemon answers at once

    def _leave(self) -> None:
        try:
            self._session.close()
        except (Unavailable, SessionLost) as e:
            _log.info("the session was not closed: %s", e)

    def _take(self, message: Mapping[str, JSON]) -> None:
        ctx = StepContext(self._session, message)
        with self._lock:
            if ctx.fence in self._held:
                return  # told again
            self._held[ctx.fence] = ctx
        self._pool.submit(self._execute, ctx)

    def _execute(self, ctx: StepContext) -> None:
        self._reports.put(self._outcome(ctx))

    def _outcome(self, ctx: StepContext) -> dict[str, JSON]:
        report: dict[str, JSON] = {"fence": ctx.fence}
        token = _current.set(ctx)
        try:
            ctx.check()
            report.update(outcome="success", result=_encodable(self._worker._call(ctx)))
        except Yield as y:
            report.update(outcome="yield", checkpoint=y.point)
        except (Returned, Cancelled):
            report.update(outcome="returned")
        except BaseException as e:  # a handler that exits its thread has failed
            _log.warning("step %s failed", ctx.step_name, exc_info=e)
            report.update(outcome="failure", error=fault(e))
        finally:
            _current.reset(token)
        if ctx._isolated and report["outcome"] in ("success", "yield"):
            report["isolated"] = ctx._isolated
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

    def _send(self, batch: list[dict[str, JSON]]) -> None:
        deadline = time.monotonic() + self._session.grace
        while True:
            try:
                for rejection in self._session.report(batch):
                    _log.warning("the end of a step was rejected: %s", rejection)
                break
            except Unavailable as e:
                if time.monotonic() > deadline:
                    _log.warning("%d steps were not reported: %s", len(batch), e)
                    break
                time.sleep(0.05)
            except Refused as e:
                self._send_refused(batch, e)
                break
            except (SessionLost, NotHeld) as e:
                _log.warning("%d steps were not reported: %s", len(batch), e)
                break
        with self._lock:
            for report in batch:
                self._held.pop(report["fence"], None)

    def _send_refused(self, batch: list[dict[str, JSON]], why: Refused) -> None:
        """Finds the report that the daemon refuses (too large), and reports that instead."""
        if len(batch) > 1:
            for report in batch:
                self._send([report])
        elif batch[0]["outcome"] != "failure":
            error = fault(Permanent(f"the daemon refused the end of the step: {why}", error_type="ReportRefused"))
            self._send([{"fence": batch[0]["fence"], "outcome": "failure", "error": error}])
        else:
            _log.error("the failure of a step was not reported: %s", why)
