"""What handlers print."""

from __future__ import annotations

import sys
import threading
from typing import Any, Iterable, Iterator

from ._context import _current
from ._lines import is_quiet


class _Stream:
    """Writes to the stream of before, and gives what handlers print to their steps."""

    def __init__(self, stream: Any, level: str) -> None:
        self.stream, self._level = stream, level
        self.captures = True

    def write(self, text: str) -> int:
        written: int = self.stream.write(text)
        ctx = _current.get(None)
        if ctx is not None and self.captures and not is_quiet():
            ctx._printed(self._level, text)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.stream)


class Output:
    """sys.stdout and sys.stderr, while workers capture what is printed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers = 0
        self._streams: dict[str, _Stream] = {}

    def capture(self) -> None:
        with self._lock:
            self._workers += 1
            if self._workers > 1:
                return
            for name, level in (("stdout", "info"), ("stderr", "warn")):
                if getattr(sys, name) is not None:  # as it is in programs without a console
                    self._streams[name] = _Stream(getattr(sys, name), level)
                    setattr(sys, name, self._streams[name])

    def restore(self) -> None:
        """Ends what capture has begun. What the program has put there meanwhile stays."""
        with self._lock:
            self._workers -= 1
            if self._workers > 0:
                return
            for name, stream in self._streams.items():
                stream.captures = False
                if getattr(sys, name) is stream:
                    setattr(sys, name, stream.stream)
            self._streams = {}


output = Output()
