"""Returns of goods: errors of all kinds, the wrappers of a step, and values that JSON does not have."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

from tasker_core import (
    BusinessLogicError,
    ErrorType,
    HandlerWrapper,
    RateLimitError,
    StepContext,
    StepHandler,
    StepHandlerResult,
    is_retryable,
)
from tasker_core.errors import AuthorizationError, TaskerError
from tasker_core.step_handler import depends_on, inputs, step_handler


class LostParcel(BusinessLogicError):
    """An error of the application."""


class ReceiveHandler(StepHandler):
    handler_name = "returns_receive"

    def call(self, context: StepContext) -> StepHandlerResult:
        step = context.task_sequence_step
        kind = step.get_task_field("kind")
        if kind == "lost":
            raise LostParcel("nobody has seen it", metadata={"parcel": context.get_input("parcel")})
        if kind == "foreign":
            return StepHandlerResult(
                is_success=False, error_message="not ours", error_type=ErrorType.VALIDATION_ERROR.value, retryable=False
            )
        handler: HandlerWrapper = step.step_definition.handler
        assert handler.initialization == context.step_config, handler
        assert uuid.UUID(str(context.task_uuid)).hex == context.task_uuid.hex
        return self.success(
            {
                "parcel": uuid.UUID(int=context.get_input("parcel")),
                "at": datetime.datetime(2030, 1, 2, 3, 4, tzinfo=datetime.timezone.utc),
                "price": decimal.Decimal("7.50"),
                "shelves": {"a"},
                "desk": handler.initialization["desk"],
                "task": step.task.task_name,
                "attempts": step.workflow_step.attempts,
            }
        )


class InspectHandler(StepHandler):
    handler_name = "returns_inspect"

    def call(self, context: StepContext) -> StepHandlerResult:
        received = context.task_sequence_step.get_results("receive")
        assert context.get_dependency_result_keys() == ["receive"]
        if context.retry_count == 0:
            error = RateLimitError("the scales are in use", retry_after=0.01)
            assert is_retryable(error) and not is_retryable(AuthorizationError("no")), error.to_dict()
            raise error
        return self.success({"weight": 3, "price": received["price"]}, {"scale": datetime.date(2030, 1, 2)})


@step_handler("shop.handlers.returns.refund")
@depends_on(seen="inspect")
@inputs("parcel")
def refund(seen: dict[str, Any], _parcel: int, context: StepContext) -> dict[str, Any]:
    if context.get_config("closed"):
        raise TaskerError("the till is closed", retryable=False, error_code="CLOSED")
    return {"refunded": decimal.Decimal(seen["price"]) * 2, "on": datetime.date(2030, 1, 3)}
