"""The program of the child process that shows a daemon that its parent lives: see _presence.py.

It has nothing but the standard library. The parent writes a line of JSON for each session; the end of its input, or
of the parent, is its own end.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from typing import Any, Optional

LOOK = 0.5  # seconds between two looks at the parent
PAUSE = 1.0  # the least time between two requests that are answered at once


def stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal or a debugger: then it does not live for the daemon."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        pass
    if os.path.exists("/proc/self/stat"):
        return False
    try:  # other systems than Linux
        return (
            subprocess.run(
                ["ps", "-o", "state=", "-p", str(pid)], capture_output=True, check=False, timeout=5
            ).stdout.strip()[:1]
            == b"T"
        )
    except (OSError, subprocess.SubprocessError):
        return False


class Presence:
    """Keeps one request under way while the parent is not stopped."""

    def __init__(self, parent: int) -> None:
        self.parent = parent
        self.changed = threading.Condition()
        self.line: Optional[dict[str, Any]] = None
        self.frozen = False
        self.connection: Optional[http.client.HTTPConnection] = None

    def show(self, line: dict[str, Any]) -> None:
        with self.changed:
            self.line = line
            self.interrupt()
            self.changed.notify_all()

    def watch(self) -> None:
        """Ends with the parent, and interrupts the request while the parent is stopped."""
        while os.getppid() == self.parent:
            frozen = stopped(self.parent)
            if frozen != self.frozen:
                with self.changed:
                    self.frozen = frozen
                    if frozen:
                        self.interrupt()
                    self.changed.notify_all()
            time.sleep(LOOK)
        os._exit(0)

    def interrupt(self) -> None:
        if self.connection is not None and self.connection.sock is not None:
            try:
                self.connection.sock.shutdown(2)
            except OSError:
                pass

    def repeat(self) -> None:
        while True:
            with self.changed:
                while self.line is None or self.frozen:
                    self.changed.wait()
                line = self.line
            if stopped(self.parent):
                time.sleep(LOOK)
                continue
            begun = time.monotonic()
            status = self.request(line)
            with self.changed:
                if status in (404, 405, 501) and self.line is line:
                    self.line = None  # the session is lost, or the daemon does not know such requests
                pause = min(PAUSE, line["grace"] / 3) - (time.monotonic() - begun)
                if pause > 0 and self.line is line:
                    self.changed.wait(pause)

    def request(self, line: dict[str, Any]) -> int:
        """Sends a request. Returns the status of its answer, 0 without one."""
        url = urllib.parse.urlsplit(line["url"])
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.hostname or "", url.port, timeout=line["wait"] + line["grace"])
        try:
            connection.connect()
            with self.changed:
                if self.frozen or self.line is not line:
                    return 0
                self.connection = connection
            connection.request("POST", f"{url.path}?wait={int(line['wait'] * 1000)}ms", b"", line["headers"])
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            with self.changed:
                self.connection = None
            connection.close()


def main() -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # those of a terminal are for the parent, which may have steps to end
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    presence = Presence(int(sys.argv[1]))
    for work in (presence.watch, presence.repeat):
        threading.Thread(target=work, daemon=True).start()
    for text in sys.stdin:
        presence.show(json.loads(text))
    os._exit(0)


if __name__ == "__main__":
    main()
