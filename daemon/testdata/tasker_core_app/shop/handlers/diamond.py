"""One step, two beside each other, and one behind both. Its handlers are found by the paths of their classes."""

from tasker_core import BaseStepHandler, StepContext, StepHandlerResult


class SquareHandler(BaseStepHandler):
    def call(self, context: StepContext) -> StepHandlerResult:
        n = context.get_task_field("n")
        return self.success({"square": n * n})


class LeftHandler(BaseStepHandler):
    def call(self, context: StepContext) -> StepHandlerResult:
        return self.success({"left": context.dependency_results["square"]["square"] + 25})


class RightHandler(BaseStepHandler):
    async def call(self, context: StepContext) -> StepHandlerResult:
        return self.success({"right": context.dependency_results["square"]["square"] * 2})


class AverageHandler(BaseStepHandler):
    def call(self, context: StepContext) -> StepHandlerResult:
        left, right = (context.get_dependency_field(step, step) for step in ("left", "right"))
        return self.success({"average": (left + right) / 2, "parents": sorted(context.dependency_results)})
