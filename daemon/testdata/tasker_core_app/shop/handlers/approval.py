"""A decision and the steps that it creates."""

from tasker_core import DecisionPointOutcome, StepContext, StepHandlerResult
from tasker_core.step_handler import DecisionHandler, StepHandler
from tasker_core.step_handler.mixins import DecisionMixin


class RouteHandler(DecisionHandler):
    handler_name = "approval_route"
    LIMITS = {"automatic": 1000, "manager": 5000}

    def call(self, context: StepContext) -> StepHandlerResult:
        amount = float(context.get_task_field("amount") or 0)
        if amount < 0:
            return self.decision_failure("a negative amount", error_type="validation_error")
        if amount == 0:
            return self.skip_branches(reason="nothing to approve", routing_context={"amount": amount})
        if amount < self.LIMITS["automatic"]:
            return self.decision_success(
                DecisionPointOutcome.create_steps(["auto_approve"], routing_context={"route_type": "auto"})
            )
        if amount < self.LIMITS["manager"]:
            return self.decision_success(["manager_approval"], {"route_type": "manager"})
        return self.decision_success(
            steps=["manager_approval", "finance_review"], routing_context={"route_type": "dual"}
        )


class SubmitHandler(StepHandler):
    handler_name = "approval_submit"

    def call(self, context: StepContext) -> StepHandlerResult:
        return self.success({"requester": context.get_input_or("requester", "unknown")})


class ApproveHandler(StepHandler):
    handler_name = "approval_approve"

    def call(self, context: StepContext) -> StepHandlerResult:
        decided = context.get_dependency_result("route")
        return self.success({"by": context.step_name, "route": decided["routing_context"]["route_type"]})


class FinishHandler(StepHandler, DecisionMixin):
    handler_name = "approval_finish"

    def call(self, context: StepContext) -> StepHandlerResult:
        return self.success({"approvals": sorted(r["by"] for r in context.dependency_results.values() if "by" in r)})
