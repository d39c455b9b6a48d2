"""Threads and the event loop of a worker."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
from collections import deque
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Awaitable, Callable, TypeVar

T = TypeVar("T")

_IDLE = 10.0  # seconds after which a thread without work ends
_LOOK = 0.5  # seconds between two looks whether an awaited handler is still wanted


class Threads:
    """Runs calls in daemon threads, at most so many at once. The process does not wait for them at its end, as it
    does for those of an executor."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit, self._name = limit, name
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = 0  # threads
        self._idle = 0

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Runs a call in the context variables of the caller."""
        future: Future[T] = Future()
        context = contextvars.copy_context()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(context.run(call))
            except BaseException as e:
                future.set_exception(e)

        with self._changed:
            self._waiting.append(run)
            if len(self._waiting) <= self._idle or self._running >= self._limit:
                self._changed.notify()
                return future
            self._running += 1
        threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._idle += 1
                    woken = self._changed.wait(_IDLE)
                    self._idle -= 1
                    if not woken and not self._waiting:
                        self._running -= 1
                        return
                run = self._waiting.popleft()
            run()


async def beside(threads: Threads, call: Callable[[], T]) -> T:
    """Runs a call in a thread while the event loop continues."""
    return await asyncio.wrap_future(threads.submit(call))


def in_coroutine() -> bool:
    """Whether an event loop runs in this thread, which must not be blocked."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Loop:
    """An event loop in a thread of its own, which starts with the first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="tasker-loop", daemon=True)
                self._thread.start()
            return self._loop

    def value(self, result: Any, wanted: Callable[[], None] = lambda: None) -> Any:
        """The result of a call: what can be awaited is awaited, as often as another awaitable comes of it. wanted
        raises once the step is cancelled, which cancels the awaitable."""
        while inspect.isawaitable(result):
            if threading.current_thread() is self._thread:  # a coroutine there waits for another: not on the same loop
                result = Threads(1, "tasker-apart").submit(functools.partial(asyncio.run, _awaited(result))).result()
                continue
            result = self._wait(asyncio.run_coroutine_threadsafe(_awaited(result), self._started()), wanted)
        return result

    def _wait(self, future: Future[Any], wanted: Callable[[], None]) -> Any:
        while True:
            try:
                return future.result(timeout=_LOOK)
            except FutureTimeout:
                if future.done():
                    raise
                try:
                    wanted()
                except BaseException:
                    future.cancel()
                    raise
            except CancelledError as e:
                raise RuntimeError("the coroutine was cancelled") from e

    def close(self) -> None:
        """Stops the loop; what is still awaited there is not awaited any more."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value
