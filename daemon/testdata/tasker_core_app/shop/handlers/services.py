"""Handlers that are found by the name of a service."""

from tasker_core import StepContext, StepHandler, StepHandlerResult
from tasker_core.registry import BaseResolver, HandlerDefinition, ResolutionContext


class ServiceHandler(StepHandler):
    def __init__(self, service: str = "none") -> None:
        self.service = service

    def call(self, context: StepContext) -> StepHandlerResult:
        return self.success({"service": self.service})

    def stop(self, context: StepContext) -> StepHandlerResult:
        return self.success({"stopped": self.service})


class ServiceResolver(BaseResolver):
    def resolver_name(self) -> str:
        return "service_discovery"

    def priority(self) -> int:
        return 50

    def can_resolve(self, definition: HandlerDefinition) -> bool:
        return definition.callable.startswith("service://")

    async def resolve(self, definition: HandlerDefinition, context: ResolutionContext) -> ServiceHandler:
        return ServiceHandler(definition.callable.removeprefix("service://"))
