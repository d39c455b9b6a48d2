"""What handlers log, on its way to the daemon."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections import deque
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any, Iterator, Mapping, NamedTuple, Protocol, Sequence

from ._bytes import dumps
from ._session import Held, NoRoute, NotHeld, Refused, Session, SessionLost, Unauthorized, Unavailable

JSON = Any
_log = logging.getLogger("tasker")

MAX_BYTES = 4 << 20  # of lines that wait, unless the worker says otherwise

_AFTER = 0.25  # how long a line waits for others, in seconds
_MAX_LINES, _MAX_REQUEST = 1000, 512 << 10  # of one request
_MAX_TEXT = _MAX_FIELDS = 16 << 10  # bytes of a line, and of its fields as JSON
_MAX_TRACEBACK = 8 << 10
_OLDEST = 20  # lines of an execution that are dropped last
_OVERHEAD = 64  # bytes of a line for its fence
_WRITTEN = 0.05  # how long a report waits until its lines are written to the connection, in seconds
_LONGEST = 1.0  # the longest pause between two attempts, in seconds


class Sink(Protocol):
    """Takes what handlers log. captures says that it takes what they print, too."""

    captures: bool

    def write(self, held: Any, level: str, text: str, fields: str) -> None: ...


class _Line(NamedTuple):
    rest: str  # of the JSON of a line, behind its fence
    at: str
    size: int


class _Waiting:
    """The lines of one execution that are not sent: the oldest, then a gap, then the newest."""

    def __init__(self) -> None:
        self.oldest: deque[_Line] = deque()
        self.newest: deque[_Line] = deque()
        self.dropped = 0
        self.size = 0

    def add(self, line: _Line) -> None:
        begins = not self.newest and not self.dropped and len(self.oldest) < _OLDEST
        (self.oldest if begins else self.newest).append(line)
        self.size += line.size

    def drop(self) -> int:
        """Drops the line that is missed least, and returns its size."""
        if len(self.newest) > 1 or not self.oldest:
            line = self.newest.popleft()
        else:
            line = self.oldest.pop()
        self.dropped += 1
        self.size -= line.size
        return line.size

    def take(self) -> _Line | None:
        """Removes the next line to be sent, which may be the one that says how many there are not."""
        if self.oldest:
            line = self.oldest.popleft()
        elif self.dropped:
            at = self.newest[0].at if self.newest else _now()
            n, self.dropped = self.dropped, 0
            return _line("warn", "1 line was dropped" if n == 1 else f"{n} lines were dropped", "", at)
        elif self.newest:
            line = self.newest.popleft()
        else:
            return None
        self.size -= line.size
        return line


class Lines:
    """Gathers the lines of all handlers of a process, and sends them: after a while, or with the report of their
    step. Who writes one never waits for the daemon. What has no room is dropped from the middle, and counted."""

    def __init__(self, session: Session, limit: int = MAX_BYTES, captures: bool = False) -> None:
        self.captures = captures
        self._session, self._limit = session, limit
        self._changed = threading.Condition()
        self._waiting: dict[Held, _Waiting] = {}
        self._size = 0  # of what waits, and of what is being sent
        self._sending = 0
        self._since = 0.0  # when the first line came
        self._now = False  # what waits is sent at once
        self._busy = False  # a request is under way
        self._written = 0  # requests
        self._closing = False
        self._thread: threading.Thread | None = None

    @property
    def keeps(self) -> bool:
        """Whether lines are sent at all."""
        return self._limit > 0 and not self._session.keeps_no_lines

    def write(self, held: Held, level: str, text: str, fields: str = "") -> None:
        """Keeps a line of an execution. fields is a JSON object, or empty."""
        if not self.keeps:
            return
        line = _line(level, text, fields, _now())
        with self._changed:
            if self._closing:
                return
            if not self._waiting:
                self._since = time.monotonic()
                self._changed.notify_all()
            waiting = self._waiting.setdefault(held, _Waiting())
            waiting.add(line)
            self._size += line.size
            share = self._limit // len(self._waiting)
            while waiting.size > share or self._size > self._limit:
                most = waiting
                if waiting.size <= share:  # another one has more than its part, which others' lines have made smaller
                    most = max(self._waiting.values(), key=lambda w: w.size)
                    if most.size == 0:
                        break
                self._size -= most.drop()
            if self._thread is None:
                self._thread = threading.Thread(target=self._send, name="tasker-lines", daemon=True)
                self._thread.start()

    def flush(self, executions: Sequence[Held]) -> None:
        """Has the lines of executions sent before their reports. It does not wait for an answer, and for what is
        written to the connection only a moment."""
        with self._changed:
            theirs = [held for held in executions if held in self._waiting]
            if not theirs:
                return
            for held in [h for h in self._waiting if h not in theirs]:  # the others come behind them
                self._waiting[held] = self._waiting.pop(held)
            self._now, busy, written = True, self._busy, self._written
            self._changed.notify_all()
            if not busy:
                self._changed.wait_for(lambda: self._written != written or self._closing, _WRITTEN)

    def settle(self, within: float) -> None:
        """Waits until the daemon has everything, at most so many seconds."""
        with self._changed:
            self._now = bool(self._waiting)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting and not self._busy, within)

    def close(self) -> None:
        """Ends. What is not sent is lost."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _send(self) -> None:
        while True:
            with self._changed:
                while not self._closing and not (self._waiting and (self._now or self._left() <= 0)):
                    self._changed.wait(self._left() if self._waiting else None)
                if self._closing:
                    return
                batch = self._take()
                self._busy = True
            self._deliver(batch)
            with self._changed:
                self._busy = False
                self._size -= self._sending
                self._sending = 0
                self._wrote()

    def _left(self) -> float:
        return self._since + _AFTER - time.monotonic()

    def _wrote(self) -> None:
        """Lets a report go on: the request is written, or has ended without that."""
        with self._changed:
            self._written += 1
            self._changed.notify_all()

    def _take(self) -> list[tuple[Held, str]]:
        batch: list[tuple[Held, str]] = []
        while self._waiting and len(batch) < _MAX_LINES and self._sending < _MAX_REQUEST:
            held, waiting = next(iter(self._waiting.items()))
            line = waiting.take()
            if line is None:
                del self._waiting[held]
                continue
            batch.append((held, line.rest))
            self._sending += line.size
        # A line that tells of others has no size while it waits.
        self._size = self._sending + sum(w.size for w in self._waiting.values())
        for held in [h for h, w in self._waiting.items() if not w.size and not w.dropped]:
            del self._waiting[held]
        self._now = self._now and bool(self._waiting)
        return batch

    def _deliver(self, batch: list[tuple[Held, str]]) -> None:
        """Sends lines until the daemon has them or does not want them."""
        pause = 0.05
        while not self._session.keeps_no_lines:
            try:
                self._session.keep(batch, self._wrote)
                return
            except NoRoute as e:
                _log.debug("the daemon keeps no lines of handlers: %s", e)
                with self._changed:
                    self._waiting.clear()
                    self._size = self._sending
                return
            except (Unavailable, SessionLost, Unauthorized) as e:  # another session may be opened meanwhile
                _log.debug("%d lines of handlers were not sent: %s", len(batch), e)
            except (Refused, NotHeld) as e:
                _log.debug("the daemon refuses %d lines of handlers: %s", len(batch), e)
                return
            with self._changed:
                self._wrote()
                if self._changed.wait_for(lambda: self._closing, pause):
                    return
            pause = min(2 * pause, _LONGEST)


_quiet: ContextVar[bool] = ContextVar("tasker_quiet", default=False)


@contextmanager
def quietly() -> Iterator[None]:
    """What is printed meanwhile is no output of a handler: a logger prints a line that is kept already."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def is_quiet() -> bool:
    return _quiet.get()


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _line(level: str, text: str, fields: str, at: str) -> _Line:
    text = clipped(text, _MAX_TEXT)
    fields = f',"fields":{fields}' if len(fields) > 2 else ""
    rest = f'"at":"{at}","level":"{level}","text":{dumps(text)}{fields}}}'
    return _Line(rest, at, len(rest) + _OVERHEAD)


def clipped(text: str, limit: int) -> str:
    """A text of at most so many bytes."""
    if 4 * len(text) <= limit or len(encoded := text.encode(errors="replace")) <= limit:
        return text
    return encoded[: limit - 3].decode(errors="ignore") + "…"


def level_of(number: int) -> str:
    """The level of a line, from one of package logging."""
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warn"
    return "info" if number >= logging.INFO else "debug"


def text_of(message: object, args: tuple[object, ...]) -> str:
    """The text of a line, as package logging makes it. It never fails."""
    try:
        return logging.LogRecord("", 0, "", 0, message, args, None).getMessage()
    except Exception:
        return f"{message!s} {args!r}" if args else f"{message!r}"


def fields_of(fields: Mapping[str, object], error: object = None) -> str:
    """The fields of a line as JSON: what has no form in it is a text."""
    found = {str(name): _plain(value) for name, value in fields.items()}
    trace = _traceback(error)
    if trace:
        found["traceback"] = trace
    text = dumps(found) if found else ""
    if len(text) <= _MAX_FIELDS:
        return text
    left = {"fields_left_out_bytes": len(text)}
    return dumps({**left, "traceback": trace} if trace else left)


def _plain(value: object) -> JSON:
    try:
        dumps(value)
        return value
    except Exception:
        try:
            return str(value)
        except Exception:
            return f"a {type(value).__name__}"


def _traceback(error: object) -> str:
    """The end of the traceback of what a logger gets as exc_info."""
    if not error:
        return ""
    if not isinstance(error, BaseException):
        error = error[1] if isinstance(error, tuple) else sys.exc_info()[1]
    if not isinstance(error, BaseException):
        return ""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
    if len(encoded := text.encode(errors="replace")) <= _MAX_TRACEBACK:
        return text
    return "…" + encoded[-_MAX_TRACEBACK:].decode(errors="ignore")
