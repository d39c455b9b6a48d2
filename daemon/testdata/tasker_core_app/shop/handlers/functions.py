"""Handlers that are functions, in the style of the current documentation."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from tasker_core.errors import PermanentError, RetryableError
from tasker_core.step_handler.functional import (
    BatchConfig,
    Decision,
    api_handler,
    batch_analyzer,
    batch_worker,
    decision_handler,
    depends_on,
    inputs,
    step_handler,
)
from tasker_core.types import BatchWorkerContext, StepContext, StepHandlerResult


@dataclass
class OrderInput:
    item: int
    customer: str | None = None
    tier: str = "standard"


@dataclass
class Price:
    item: int
    cents: int


@step_handler("functions_validate")
@inputs(OrderInput)
def validate(inputs: OrderInput, context: StepContext) -> dict[str, Any]:
    if inputs.item < 1:
        raise PermanentError("no such item", error_code="NO_ITEM", metadata={"item": inputs.item})
    return {"item": inputs.item, "tier": inputs.tier, "customer": inputs.customer, "step": context.step_name}


@step_handler("functions_price")
@depends_on(order="validate")
@inputs("discount")
async def price(order: dict[str, Any], discount: int | None, context: StepContext) -> Price:
    if context.retry_count == 0:
        raise RetryableError("busy", retry_after=0)
    return Price(order["item"], order["item"] * 100 - (discount or 0))


@api_handler("functions_fetch", base_url=os.environ.get("SERVICE_URL", ""), default_headers={"X-Trace": "fn"})
@depends_on(order="validate")
def fetch(order: dict[str, Any], api: Any) -> StepHandlerResult:
    response = api.get(f"/items/{order['item']}")
    return api.api_success(response) if response.ok else api.api_failure(response)


@decision_handler("functions_route")
@depends_on(order="validate", price=("price", Price))
def route(order: dict[str, Any], price: Price, _context: StepContext) -> Decision:
    if price.cents == 0:
        return Decision.skip("nothing to pay", cents=0)
    return Decision.route(["premium" if order["tier"] == "premium" else "standard"], tier=order["tier"])


@step_handler("functions_pay", version="2.0.0")
def pay(context: StepContext) -> StepHandlerResult:
    return StepHandlerResult.success({"by": context.step_name})


@step_handler("functions_finish")
@depends_on(premium="premium", standard="standard")
def finish(premium: dict[str, Any] | None, standard: dict[str, Any] | None) -> list[str]:
    return [paid["by"] for paid in (premium, standard) if paid]


@batch_analyzer("functions_analyze", worker_template="process")
@inputs("rows")
def analyze(rows: int, context: StepContext) -> BatchConfig:
    return BatchConfig(total_items=rows, batch_size=4, metadata={"rows": rows})


@batch_worker("functions_process")
def process(batch_context: BatchWorkerContext, context: StepContext) -> dict[str, Any]:
    return {"sum": sum(range(batch_context.start_cursor, batch_context.end_cursor))}


@step_handler("functions_sum")
def add_up(context: StepContext) -> None:
    if sum(part["sum"] for part in context.get_all_dependency_results("process")) != 45:
        raise ValueError("the sum is wrong")
