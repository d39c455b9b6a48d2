"""Reports of handlers that have ended."""

from __future__ import annotations

import logging
from typing import Any, Callable

from ._bytes import dumps
from ._context import Cancelled, StepContext, _current
from ._errors import Continue, Permanent, Returned, Yield, fault

JSON = Any
_log = logging.getLogger("tasker")


def report_of(ctx: StepContext, call: Callable[[], JSON], failed: Callable[[BaseException], None]) -> dict[str, JSON]:
    """Calls a handler and returns its report, without a fence; failed is called with a failure."""
    report: dict[str, JSON] = {}
    token = _current.set(ctx)
    try:
        ctx.check()
        result = call()
        if isinstance(result, Continue):
            report["next"] = _encodable(result.next)
            result = result.result
        report.update(outcome="success", result=_encodable(result))
        if ctx._events:
            report["events"] = ctx._events
    except Yield as y:
        report.update(outcome="yield", checkpoint=y.point)
        if ctx._events:  # they would be lost, or published again by the next execution
            e = Permanent("a step that has published events cannot yield", error_type="EventNotPublished")
            report = {"outcome": "failure", "error": fault(e)}
            failed(e)
    except (Returned, Cancelled):
        report.update(outcome="returned")
    except BaseException as e:  # a handler that exits its thread has failed
        _log.warning("step %s failed", ctx.step_name, exc_info=e)
        report = {"outcome": "failure", "error": fault(e)}
        failed(e)
    finally:
        _current.reset(token)
    if ctx._isolated and report["outcome"] in ("success", "yield"):
        report["isolated"] = ctx._isolated
    return report


def _encodable(result: JSON) -> JSON:
    try:
        dumps(result)
    except (TypeError, ValueError) as e:
        raise Permanent(f"the handler's result has no JSON form: {e}", error_type="ResultNotEncodable") from e
    return result
