"""Calls handlers, and makes the reports of their ends."""

from __future__ import annotations

import logging
from typing import Any, Callable, Mapping

from ._bytes import dumps
from ._context import MAX_METADATA, StepContext, _current
from ._errors import Cancelled, Continue, Permanent, Returned, TaskerError, Yield, fault
from ._events import Publisher, make_events
from ._threads import Loop

JSON = Any
_log = logging.getLogger("tasker")


def report_of(
    ctx: StepContext,
    handler: Callable[[StepContext], JSON],
    loop: Loop,
    publishers: Mapping[str, Publisher],
    failed: Callable[[BaseException], None],
) -> dict[str, JSON]:
    """Calls a handler in this thread, awaits on the loop what can be awaited, and returns the report, without a fence.
    failed is called with a failure."""
    report: dict[str, JSON] = {}
    token = _current.set(ctx)
    try:
        ctx.check()
        result = _value(ctx, handler, loop)
        if isinstance(result, Continue):
            report["next"] = _encodable(result.next)
            result = result.result
        report.update(outcome="success", result=_encodable(result))
        if ctx.metadata:
            report["metadata"] = _metadata(ctx)
        if ctx._events:
            report["events"] = ctx._events
    except Yield as y:
        report = {"outcome": "yield", "checkpoint": y.point}
        if ctx._events:  # they would be lost, or published again by the next execution
            e = Permanent("a step that has published events cannot yield", error_type="EventNotPublished")
            report = {"outcome": "failure", "error": fault(e)}
            failed(e)
    except (Returned, Cancelled):
        report = {"outcome": "returned"}
    except BaseException as e:  # a handler that exits its thread has failed
        _note(ctx, e)
        report = {"outcome": "failure", "error": fault(e)}
        failed(e)
    finally:
        _current.reset(token)
        ctx._end_printed()
    if ctx._isolated and report["outcome"] in ("success", "yield"):
        report["isolated"] = ctx._isolated
    make_events(ctx, report, publishers, loop)
    return report


def _value(ctx: StepContext, handler: Callable[[StepContext], JSON], loop: Loop) -> JSON:
    try:
        value = loop.value(handler(ctx), ctx.check)
    except BaseException:
        try:
            ctx._settle()
        except Exception as e:
            _log.info("step %s: a request that was not awaited failed: %s", ctx.step_name, e)
        raise
    ctx._settle()
    return value


def _note(ctx: StepContext, error: BaseException) -> None:
    """Logs a failure: one that the handler has chosen in a line, others with their traceback."""
    if isinstance(error, TaskerError):
        what = "failed" if error.retryable else "failed for good"
        cause = f" (after {error.__cause__!r})" if error.__cause__ is not None else ""
        _log.warning("step %s of task %s %s: %s%s", ctx.step_name, ctx.task_uuid, what, error, cause)
    else:
        _log.warning("step %s of task %s failed", ctx.step_name, ctx.task_uuid, exc_info=error)


def _encodable(result: JSON) -> JSON:
    try:
        dumps(result)
    except (TypeError, ValueError, RecursionError) as e:
        raise Permanent(f"the handler's result has no JSON form: {e}", error_type="ResultNotEncodable") from e
    return result


def _metadata(ctx: StepContext) -> JSON:
    """The metadata beside a success."""
    metadata = dict(ctx.metadata)
    try:
        size = len(dumps(metadata).encode())
    except (TypeError, ValueError, RecursionError) as e:
        raise Permanent(f"the metadata has no JSON form: {e}", error_type="ResultNotEncodable") from e
    if size > MAX_METADATA:
        raise Permanent(
            f"invalid metadata of {size} bytes: want at most {MAX_METADATA}", error_type="ResultNotStorable"
        )
    return metadata
