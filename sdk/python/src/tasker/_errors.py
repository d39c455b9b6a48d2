"""Exceptions of handlers, and their wire form."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Mapping, Sequence

JSON = Any


class TaskerError(Exception):
    """A failure with the marks that the engine stores.

    error_type is the name of the class unless it is given; code is of the handler's own
    vocabulary, and details are facts with a JSON form.
    """

    retryable = True

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        details: Mapping[str, JSON] | None = None,
        error_type: str = "",
        after: float = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.details = details
        self.error_type = error_type or type(self).__name__
        self.after = after


class Absent(LookupError):
    """The field of the task's context, or the result of the step, does not exist."""


class UnknownStep(LookupError):
    """This step does not depend on a step of that name, directly or not."""


class Retryable(TaskerError):
    """The step may run again; after is the least delay in seconds, 0 for the backoff."""


class Permanent(TaskerError):
    """Another attempt would fail in the same way."""

    retryable = False


class Yield(Exception):
    """Ends this execution and continues later from cursor, in the same attempt."""

    def __init__(self, cursor: JSON, items_processed: int, accumulated: JSON = None) -> None:
        super().__init__("the handler yields")
        self.point = point(cursor, items_processed, accumulated)


class Continue:
    """What a handler returns to end its step with a result and to create the next task, both or neither.

    Empty arguments are those of the step's task; a template of another name without a version gets the
    highest that is not deprecated. Without an idempotency key the next task is always a new one. delay is in
    seconds, start_at takes its place; depends_on are UUIDs of tasks; retry_delays are texts such as 10s.
    """

    def __init__(
        self,
        result: JSON = None,
        *,
        name: str = "",
        version: str = "",
        namespace: str = "",
        context: Mapping[str, JSON] | None = None,
        idempotency_key: str = "",
        priority: int | None = None,
        tags: Sequence[str] = (),
        initiator: str = "",
        source_system: str = "",
        reason: str = "",
        correlation_id: str = "",
        parent_correlation_id: str = "",
        delay: float = 0,
        start_at: datetime | None = None,
        deadline: datetime | None = None,
        depends_on: Sequence[str] = (),
        on_dependency_failure: str = "",
        max_attempts: int | None = None,
        retry_delays: Sequence[str] = (),
    ) -> None:
        self.result = result
        wire = {
            "name": name,
            "version": version,
            "namespace": namespace,
            "context": context,
            "idempotency_key": idempotency_key,
            "priority": priority,
            "tags": list(tags),
            "initiator": initiator,
            "source_system": source_system,
            "reason": reason,
            "correlation_id": str(correlation_id),
            "parent_correlation_id": str(parent_correlation_id),
            "delay_seconds": delay,
            "start_at": _time("start_at", start_at),
            "deadline": _time("deadline", deadline),
            "depends_on": [str(task) for task in depends_on],
            "on_dependency_failure": on_dependency_failure,
            "max_attempts": max_attempts,
            "retry_delays": list(retry_delays),
        }
        given = ("priority", "max_attempts")
        self.next: dict[str, JSON] = {
            k: v for k, v in wire.items() if v is not None and v not in ("", [], 0) or k in given and v == 0
        }


def _time(name: str, at: datetime | None) -> str | None:
    if at is not None and at.utcoffset() is None:
        raise ValueError(f"invalid {name} {at.isoformat()!r}: want a time with its zone")
    return None if at is None else at.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


class Cancelled(Exception):
    """The result of the step is not accepted any more; reason is lease_lost, timeout or shutdown."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the step was cancelled: {reason}")
        self.reason = reason


class Returned(Exception):
    """The handler did nothing: the step is handed back, and no attempt is used."""


def point(cursor: JSON, items_processed: int, accumulated: JSON) -> dict[str, JSON]:
    """The wire form of a checkpoint."""
    p: dict[str, JSON] = {"cursor": cursor, "items_processed": items_processed}
    if accumulated is not None:
        p["accumulated_results"] = accumulated
    return p


def fault(error: BaseException) -> dict[str, JSON]:
    """The wire form of an exception of a handler. After an unmarked one the step may run again."""
    message = str(error) or type(error).__name__
    if not isinstance(error, TaskerError):
        return {"message": message, "error_type": type(error).__name__}
    f: dict[str, JSON] = {"message": message, "error_type": error.error_type, "retryable": error.retryable}
    if error.code:
        f["error_code"] = error.code
    if error.details:
        f["context"] = dict(error.details)
    if error.after > 0:
        f["retry_after_ms"] = max(int(error.after * 1000), 1)
    return f
