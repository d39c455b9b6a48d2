"""Runs whole workflows on a private engine of the test."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Mapping

from ._client import PACE, Client, Task
from ._handlers import Handlers
from ._worker import Worker

JSON = Any

_SETTLED = ("complete", "error", "cancelled", "resolved_manually", "blocked_by_failures")
_FILES = (".yaml", ".yml", ".json")
_PATIENCE = 30.0  # for the engine and the handlers to end, in seconds


class EngineError(Exception):
    """The engine cannot be started, or has ended by itself. The message has the end of its log."""


@dataclass(frozen=True)
class StepEnd:
    """How a step ended: with a result, or an error, whose message, error_type and error_code are as they are stored.
    data is the step as the API shows it."""

    name: str
    state: str
    attempts: int
    result: JSON
    error: Mapping[str, JSON] | None
    data: Mapping[str, JSON]


@dataclass(frozen=True)
class TaskEnd:
    """How a task ended, with its steps by their names."""

    status: str
    task: Task
    steps: Mapping[str, StepEnd]

    @property
    def results(self) -> dict[str, JSON]:
        """The results of the completed steps, by their names."""
        return {name: step.result for name, step in self.steps.items() if step.state == "complete"}


class Engine:
    """An engine with a temporary database, for the tests in a with block: `tasker-ctl dev` on free ports. It
    ends with the block, and with the process of the test.

    templates are registered: files (.yaml, .yml, .json), or texts of such. The handlers run in this process. The
    program is binary, else TASKER_CTL, else tasker-ctl on the PATH; it needs a PostgreSQL installed, or the
    database_url of an empty database. Variables of the test's environment do not configure the engine; those of env
    do, and environment chooses the overrides of templates.
    """

    client: Client
    """The client of its API: events, cancellations and more."""

    def __init__(
        self,
        *templates: str | Path,
        handlers: Handlers | None = None,
        binary: str = "",
        environment: str = "",
        env: Mapping[str, str] | None = None,
        database_url: str = "",
        permits: int = 8,
        timeout: float = 120,
    ) -> None:
        self._templates, self._handlers, self._permits, self._timeout = templates, handlers, permits, timeout
        self._binary = _program(binary)
        self._env = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith("TASKER_") and k not in ("DATABASE_URL", "WORKER_NAMESPACES")
        }
        self._env.update(
            {k: v for k, v in (("DATABASE_URL", database_url), ("TASKER_ENV", environment)) if v}, **(env or {})
        )
        self._registered: list[tuple[str, str, str]] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._worker: Worker | None = None

    def __enter__(self) -> Engine:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()
        command = [
            self._binary,
            "dev",
            "--attached",
            "--ephemeral",
            "--log-level",
            "warn",
            "--orchestrator-address",
            "127.0.0.1:0",
            "--worker-address",
            "127.0.0.1:0",
        ]
        try:
            # In a session of its own: Ctrl-C ends the test, which then ends the engine in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=self._env,
                start_new_session=True,
            )
        except OSError as e:
            raise EngineError(f"start {self._binary}: {e}") from e
        addresses = self._addresses(self._process)
        self.url, self.worker_url, self.database_url = (
            str(addresses[name]) for name in ("orchestrator", "worker", "database_url")
        )
        self.client = Client(self.url, initiator="test", source_system="tasker.testing")
        for template in self._templates:
            known = self.client.register_template(_source(template), reason="test")
            self._registered.append((str(known["namespace"]), str(known["name"]), str(known["version"])))
        if self._handlers is not None:
            self._worker = Worker(self.worker_url, permits=self._permits, name="tasker.testing")
            self._worker.include(self._handlers)
            self._worker.start()

    def _addresses(self, process: subprocess.Popen[bytes]) -> Mapping[str, JSON]:
        """Waits for the line with the addresses of the engine."""
        lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        output = process.stdout
        assert output is not None
        threading.Thread(target=lambda: lines.put(output.readline()), name="tasker-engine", daemon=True).start()
        try:
            line = lines.get(timeout=self._timeout)
        except queue.Empty:
            raise EngineError(f"{self._binary} was not ready within {self._timeout} s:\n{self.log}") from None
        if not line:
            raise EngineError(f"{self._binary} ended with {process.wait(_PATIENCE)}:\n{self.log}")
        answer: Mapping[str, JSON] = json.loads(line)
        return answer

    @property
    def log(self) -> str:
        """The end of the engine's log."""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(self._errors.tell() - 16_384, 0))
        return self._errors.read().decode(errors="replace")

    def run(
        self,
        name: str,
        context: Mapping[str, JSON] | None = None,
        *,
        namespace: str = "",
        timeout: float = 60,
        **fields: JSON,
    ) -> TaskEnd:
        """Creates a task of a template and waits until it has ended, or is blocked until an operator acts. Each call
        creates another task, unless fields, which are those of Client.create_task, have an idempotency_key.
        Raises TimeoutError with the state of its steps."""
        found = [t for t in self._registered if t[1] == name and namespace in ("", t[0])]
        if len(found) > 1 or not (found or namespace):
            raise ValueError(
                f"run {name!r}: {len(found)} templates of the engine have that name: want one, or namespace and version"
            )
        if found:
            namespace, _, version = found[0]
            fields.setdefault("version", version)
        fields = {"reason": "test", "idempotency_key": str(uuid.uuid4()), **fields}
        deadline = time.monotonic() + timeout
        task, asked = self.client.create_task(namespace, name, context or {}, **fields), 0.0
        while task.status not in _SETTLED:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(self._unfinished(task, timeout))
            time.sleep(min(max(asked + PACE - time.monotonic(), 0), left))
            asked = time.monotonic()
            task = self.client.task(task.uuid, wait=min(left, PACE))
        return TaskEnd(task.status, task, self._steps(task))

    def _steps(self, task: Task) -> dict[str, StepEnd]:
        return {step["name"]: _ended(step) for step in self.client.steps(task.uuid)}

    def _unfinished(self, task: Task, timeout: float) -> str:
        states = ", ".join(f"{step.name} is {step.state}" for step in self._steps(task).values())
        return f"task {task.uuid} has not ended after {timeout} s, it is {task.status}: {states}"

    def stop(self) -> None:
        """Stops the worker and the engine; the with block calls it. A handler that does not return keeps running."""
        worker, process = self._worker, self._process
        self._worker = self._process = None
        if worker is not None:
            worker.stop(_PATIENCE / 3)
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.close()  # it ends with its input
            process.wait(_PATIENCE)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
        process.stdout.close()


def _ended(step: Mapping[str, JSON]) -> StepEnd:
    stored = step.get("results") or {}
    error = stored.get("error")
    if error is not None and (code := stored["metadata"].get("error_code")):
        error = {**error, "error_code": code}
    result = stored.get("result") if stored.get("success") else None
    return StepEnd(step["name"], step["current_state"], step["attempts"], result, error, step)


def _program(binary: str) -> str:
    """The path of tasker-ctl."""
    for given, origin in ((binary, "binary"), (os.environ.get("TASKER_CTL", ""), "TASKER_CTL")):
        if given:
            found = shutil.which(given)
            if found is None:
                raise EngineError(f"invalid {origin} {given!r}: want the program tasker-ctl")
            return found
    found = shutil.which("tasker-ctl")
    if found is None:
        raise EngineError(
            "find tasker-ctl: it is not on the PATH, TASKER_CTL is not set, and Engine was given no binary"
        )
    return found


def _source(template: str | Path) -> str:
    """The text of a template."""
    if isinstance(template, Path) or template.endswith(_FILES):
        return Path(template).read_text(encoding="utf-8")
    return template
