"""Handlers of branches that a resolver finds by a prefix, and events of them by the hooks with a name."""

from __future__ import annotations

from typing import Any

from tasker_core import BasePublisher, BaseSubscriber, InProcessDomainEventPoller, StepEventContext
from tasker_core.registry import HandlerDefinition, RegistryResolver
from tasker_core.step_handler import StepHandler
from tasker_core.types import StepContext, StepHandlerResult

told: list[tuple[Any, ...]] = []
heard: list[dict[str, Any]] = []


class BranchHandler(StepHandler):
    def __init__(self, city: str) -> None:
        self.city = city

    def call(self, context: StepContext) -> StepHandlerResult:
        return self.success({"open": self.city})

    def close(self, context: StepContext) -> StepHandlerResult:
        return self.success({"closed": self.city})


class BranchResolver(RegistryResolver):
    _name = "branches"
    _priority = 20
    prefix = "branch:"

    def resolve_handler(self, definition: HandlerDefinition, config: dict[str, Any]) -> Any:
        return BranchHandler(definition.callable.removeprefix("branch:"))


class BranchPublisher(BasePublisher):
    @property
    def publisher_name(self) -> str:
        return "branch_events"

    def transform_payload(self, ctx: StepEventContext) -> dict[str, Any]:
        return {"city": ctx.get_result_field("open")}

    def before_publish(self, event_name: str, payload: dict[str, Any], metadata: dict[str, Any]) -> bool:
        told.append(("before", event_name, payload["city"], metadata["publisher"]))
        return bool(payload["city"] != "nowhere")

    def after_publish(self, event_name: str, payload: dict[str, Any], metadata: dict[str, Any]) -> None:
        told.append(("after", event_name, payload["city"]))


class BranchSubscriber(BaseSubscriber):
    @classmethod
    def subscribes_to(cls) -> list[str]:
        return ["branch.*"]

    def handle(self, event: dict[str, Any]) -> None:
        heard.append({"name": event["event_name"], "city": event.get("payload", {}).get("city")})


poller = InProcessDomainEventPoller(polling_interval_ms=5)
