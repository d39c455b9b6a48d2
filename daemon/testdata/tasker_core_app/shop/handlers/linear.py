"""Four steps in a line; the third fails twice before it succeeds."""

from tasker_core import StepContext, StepExecutionError, StepHandler, StepHandlerResult, log_info


class DoubleHandler(StepHandler):
    handler_name = "linear_double"
    handler_version = "2.1.0"

    def call(self, context: StepContext) -> StepHandlerResult:
        number = context.input_data.get("number")
        if not isinstance(number, int):
            return self.failure(
                message="number must be an integer",
                error_type="validation_error",
                error_code="NOT_AN_INTEGER",
                retryable=False,
                metadata={"number": str(number)},
            )
        return self.success(result={"value": number * 2}, metadata={"version": self.version})


class AddHandler(StepHandler):
    handler_name = "linear_add"

    def call(self, context: StepContext) -> StepHandlerResult:
        before = context.get_dependency_result("double")
        return StepHandlerResult.success_handler_result(
            {"value": before["value"] + context.get_config("summand")}, {"summand": 10}
        )


class FlakyHandler(StepHandler):
    handler_name = "linear_flaky"

    def call(self, context):
        if context.retry_count < 1:
            raise StepExecutionError("connection reset", error_type="network_error", retryable=True)
        if not context.is_last_retry():
            return self.failure("still busy", retryable=True)
        log_info("at last", {"retry": context.retry_count, "is_retry": context.is_retry()})
        return self.success(
            {
                "value": context.get_dependency_field("add", "value"),
                "retries": context.retry_count,
                "of": context.max_retries,
            }
        )


class ReportHandler(StepHandler):
    handler_name = "linear_report"

    def call(self, context):
        return self.failure("report does not know how to do that", retryable=False)

    def summarize(self, context):
        """Another entry point, which the template names."""
        value = context.dependency_results.get("flaky", {}).get("value")
        first = context.get_dependency_result("double")  # not a direct parent
        return self.success(
            {
                "value": value,
                "first": first["value"],
                "unit": context.get_input_or("unit", "pieces"),
                "missing": context.get_dependency_result("no_such_step"),
            }
        )
