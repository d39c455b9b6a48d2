"""Shows the daemon that this process lives, from where the code of handlers cannot stop it."""

from __future__ import annotations

import json
import logging
import os
import pkgutil
import subprocess
import sys
import threading
from typing import Any, Mapping

_log = logging.getLogger("tasker")

_PATIENCE = 5.0  # seconds for the child to end


class Presence:
    """A child process (_present.py) that keeps a request for the session under way. A handler that computes, or a
    library that holds the lock of the interpreter, stops all threads of this process, and not the child. It starts with
    the first step, pauses while this process is stopped, and ends with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._line = b""
        self._tried = False

    def session(self, line: Mapping[str, Any]) -> None:
        """Sets the session to show."""
        with self._lock:
            self._line = json.dumps(line).encode() + b"\n"
            self._write()

    def begin(self) -> None:
        """Starts the child, once."""
        if self._tried:
            return
        with self._lock:
            if not self._tried:
                self._tried = True
                self._start()
                self._write()

    def _start(self) -> None:
        program = os.path.basename(sys.executable or "").lower()
        source = pkgutil.get_data(__package__ or "tasker", "_present.py")
        if getattr(sys, "frozen", False) or not program.startswith(("python", "pypy")) or source is None:
            _log.debug("no child process shows that this one lives: %r does not run Python programs", sys.executable)
            return
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", source.decode(), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError as e:
            _log.info("no child process shows that this one lives: %s", e)

    def _write(self) -> None:
        if self._process is None or self._process.stdin is None or not self._line:
            return
        try:
            self._process.stdin.write(self._line)
            self._process.stdin.flush()
        except OSError as e:
            _log.info("the child process that shows that this one lives has ended: %s", e)
            self._process.wait()
            self._process, self._tried = None, False  # the next step starts another

    def close(self) -> None:
        """Ends the child."""
        with self._lock:
            process, self._process, self._tried = self._process, None, False
        if process is None or process.stdin is None:
            return
        try:
            process.stdin.close()
            process.wait(_PATIENCE)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
