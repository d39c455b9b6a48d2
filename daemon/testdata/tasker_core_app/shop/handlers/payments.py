"""Steps that publish domain events, and what makes and hears them."""

import threading

from tasker_core import StepHandler
from tasker_core.domain_events import (
    BasePublisher,
    BaseSubscriber,
    DomainEvent,
    InProcessDomainEvent,
    StepEventContext,
    SubscriberResult,
)

heard: list[tuple[str, object]] = []
told: list[str] = []
arrived = threading.Event()


class ChargeHandler(StepHandler):
    handler_name = "payments_charge"

    def call(self, context):
        if context.get_input("amount") > 100:
            return self.failure(
                message="declined", error_type="payment_error", retryable=False, metadata={"card_last_four": "1234"}
            )
        return self.success(
            result={"payment_id": "p-1", "amount": context.get_input("amount")}, metadata={"duration_ms": 5}
        )


class PaymentEventPublisher(BasePublisher):
    publisher_name = "payment_events"

    def publishes_for(self) -> list[str]:
        return ["charge"]

    async def transform_payload(self, ctx: StepEventContext) -> dict:
        if not ctx.step_succeeded():
            return {"declined": True}
        return {"payment": ctx.result.get("payment_id"), "cents": ctx.result.get("amount") * 100}

    async def before_publish(self, ctx: StepEventContext) -> None:
        told.append(f"before {ctx.step_name}")

    async def after_publish(self, ctx: StepEventContext, event: DomainEvent) -> None:
        told.append(f"after {event.event_name}")

    async def additional_metadata(self, ctx: StepEventContext) -> dict:
        return {"processor": "test"}


class AuditSubscriber(BaseSubscriber):
    subscriber_name = "audit"

    def subscribes_to(self) -> list[str]:
        return ["payment.*"]

    async def handle(self, event: InProcessDomainEvent) -> SubscriberResult:
        heard.append((event.event_name, event.payload))
        arrived.set()
        return SubscriberResult(success=True)
