"""For tests: runs handlers without a daemon (run_step), and workflows on an engine of the test's own (Engine)."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

from ._bytes import dumps, loads
from ._context import StepContext
from ._engine import Engine, EngineError, StepEnd, TaskEnd
from ._errors import Absent
from ._events import Publisher, name_of
from ._handlers import registered
from ._report import report_of
from ._session import NotHeld, Session
from ._threads import Loop, in_coroutine

__all__ = ["Engine", "EngineError", "Outcome", "StepEnd", "TaskEnd", "run_step"]

JSON = Any


@dataclass
class Outcome:
    """How a handler ended: as its report would say."""

    outcome: str
    result: JSON = None
    error: Mapping[str, JSON] | None = None
    checkpoint: Mapping[str, JSON] | None = None
    next: Mapping[str, JSON] | None = None
    isolated: Sequence[Mapping[str, JSON]] = ()
    events: Sequence[Mapping[str, JSON]] = ()
    metadata: Mapping[str, JSON] | None = None
    made: Sequence[Mapping[str, JSON]] = ()  # what publishers made of declared events
    saved: list[Mapping[str, JSON]] = field(default_factory=list)  # checkpoints of the handler, in order
    logs: list[Mapping[str, JSON]] = field(default_factory=list)  # level, text and fields of its lines, in order


class _Daemon(Session):
    """Answers what a handler asks of its session."""

    def __init__(self, results: Mapping[str, JSON], batches: Mapping[str, Sequence[JSON]], lost: bool) -> None:
        super().__init__([])
        self._results, self._batches, self._lose = _sent(dict(results)), _sent(dict(batches)), lost
        self.saved: list[Mapping[str, JSON]] = []

    def checkpoint(self, held: Any, point: Mapping[str, JSON]) -> str:
        if self._lose:
            raise NotHeld("the session does not hold this step")
        self.saved.append(point)
        return "2026-01-01T00:00:00Z"

    def progress(self, held: Any, fraction: float, message: str) -> None:
        pass

    def result(self, held: Any, step: str) -> JSON:
        if step not in self._results:
            raise Absent(f"no result of the step {step}")
        return self._results[step]

    def batch_results(self, held: Any, step: str) -> list[Mapping[str, JSON]]:
        return [{"step_name": f"{step}_{n:03}", "result": r} for n, r in enumerate(self._batches.get(step, ()), 1)]


class _Logs:
    """Gets what the handler logs."""

    captures = False

    def __init__(self) -> None:
        self.lines: list[Mapping[str, JSON]] = []

    def write(self, held: Any, level: str, text: str, fields: str) -> None:
        self.lines.append({"level": level, "text": text, "fields": loads(fields or "{}")})


def run_step(
    handler: Callable[..., JSON],
    context: Mapping[str, JSON] | None = None,
    *,
    results: Mapping[str, JSON] | None = None,
    ancestors: Mapping[str, JSON] | None = None,
    batch_results: Mapping[str, Sequence[JSON]] | None = None,
    config: Mapping[str, JSON] | None = None,
    checkpoint: Mapping[str, JSON] | None = None,
    batch: Mapping[str, JSON] | None = None,
    items: Sequence[JSON] | None = None,
    attempt: int = 1,
    max_attempts: int = 3,
    lease_lost: bool = False,
    publishers: Sequence[Publisher] = (),
    publishes: Sequence[Mapping[str, JSON]] = (),
    **fields: JSON,
) -> Outcome:
    """Calls a handler, a coroutine too, as a worker does: by the same code. A function that a decorator such as
    Handlers.step has registered gets its injected arguments; Handlers.find returns the handler of a callable.

    results are those of the direct parents, ancestors those of steps further back, batch_results those of
    the batches of a worker step. checkpoint and batch are messages as in docs/reference/protocol.md; fields are others
    of a step, such as step_name. All of them arrive as from a daemon: as JSON, with Bytes in it. With lease_lost the
    first checkpoint finds that the step is not held.
    """
    message: dict[str, JSON] = {
        "fence": "1.1",
        "task_uuid": str(uuid.uuid4()),
        "step_uuid": str(uuid.uuid4()),
        "correlation_id": str(uuid.uuid4()),
        "namespace": "test",
        "task_name": "test",
        "task_version": "1.0.0",
        "step_name": "test",
        "callable": "test",
        "priority": 0,
        "attempt": attempt,
        "max_attempts": max_attempts,
        "context": dict(context or {}),
        "initialization": dict(config or {}),
        "dependency_results": dict(results or {}),
        **fields,
    }
    for name, value in (("checkpoint", checkpoint), ("items", items)):
        if value is not None:
            message[name] = value
    if batch is not None or items is not None:
        message["batch"] = {"batch_id": "batch-1", "batch_size": len(items or ()), "is_no_op": False, **(batch or {})}
    if publishes:
        message["publishes"] = list(publishes)
    daemon, loop = _Daemon(ancestors or {}, batch_results or {}, lease_lost), Loop()
    logs = _Logs()
    ctx = StepContext(daemon, _sent(message), logs)
    ends: list[dict[str, JSON]] = []

    def run() -> None:
        ends.append(report_of(ctx, registered(handler), loop, {name_of(p): p for p in publishers}, lambda _: None))

    try:
        if in_coroutine():  # of a test: a worker calls handlers where no event loop runs
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        else:
            run()
    finally:
        loop.close()
    return Outcome(**ends[0], saved=daemon.saved, logs=logs.lines)


def _sent(value: JSON) -> JSON:
    """What arrives of a value that a daemon sends."""
    return loads(dumps(value))
