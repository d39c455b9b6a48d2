"""The worker of order.yaml in Python; README.md explains it."""

from typing import Any

from tasker import Hooks, Permanent, Retryable, StepContext, Worker


class Ready(Hooks):
    def opened(self) -> None:
        print("ready for steps", flush=True)


worker = Worker(permits=4, hooks=Ready())  # at TASKER_WORKER_URL


@worker.step("fulfillment.validate_order", inputs=["order_id", "items"])
def validate(ctx: StepContext, order_id: str, items: list[dict[str, Any]]) -> object:
    if not items:
        raise Permanent("an order needs at least one item", code="EMPTY_ORDER")
    return {"order_id": order_id, "total_cents": sum(i["quantity"] * i["price_cents"] for i in items), "item_count": len(items)}


@worker.step("fulfillment.check_inventory", inputs=["items"])
def check_inventory(ctx: StepContext, items: list[dict[str, Any]]) -> object:
    quantities: dict[str, int] = {}
    for item in items:
        quantities[item["sku"]] = quantities.get(item["sku"], 0) + item["quantity"]
        if quantities[item["sku"]] > ctx.config["stock_per_sku"]:
            raise Permanent(f"not enough of {item['sku']} in stock", code="OUT_OF_STOCK")
    return {"quantities": quantities}


@worker.step("fulfillment.reserve_inventory", depends_on={"inventory": "check_inventory"}, inputs=["order_id"])
def reserve_inventory(ctx: StepContext, inventory: dict[str, Any], order_id: str) -> object:
    return {**inventory, "reservation": f"reservation-{order_id}"}


@worker.step("fulfillment.process_payment", depends_on={"order": "validate_order"}, inputs=["payment_token"])
def process_payment(ctx: StepContext, order: dict[str, Any], payment_token: str) -> object:
    """Calls a provider that answers tok_flaky at the third attempt."""
    if payment_token.startswith("tok_declined"):
        raise Permanent("the card was declined", code="CARD_DECLINED")
    if payment_token.startswith("tok_flaky") and ctx.attempt < 3:
        raise Retryable("the payment provider does not answer")
    return {"payment": f"payment-{order['order_id']}", "charged_cents": order["total_cents"]}


@worker.step("fulfillment.ship_order", depends_on={"payment": "process_payment", "inventory": "reserve_inventory"}, inputs=["order_id"])
def ship(ctx: StepContext, payment: dict[str, Any], inventory: dict[str, Any], order_id: str) -> object:
    return {"shipment": f"shipment-{order_id}", "carrier": ctx.config["carrier"],
            "payment": payment["payment"], "reservation": inventory["reservation"]}


@worker.step("fulfillment.send_confirmation", depends_on={"shipment": "ship_order", "payment": "process_payment"}, inputs=["order_id", "email"])
def confirm(ctx: StepContext, shipment: dict[str, Any], payment: dict[str, Any], order_id: str, email: str) -> object:
    """Reads the result of the step before and that of an earlier one."""
    return {"to": email, "text": f"{order_id}: {payment['charged_cents']} cents were charged, {shipment['carrier']} brings it"}


worker.run()  # until SIGTERM or SIGINT
