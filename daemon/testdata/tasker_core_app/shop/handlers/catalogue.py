"""Calls of a service, in each of the styles."""

from tasker_core import ApiHandler, StepContext, StepHandler, StepHandlerResult
from tasker_core.step_handler import ApiStepHandler
from tasker_core.step_handler.mixins import APIMixin


class FetchItemHandler(ApiHandler):
    handler_name = "catalogue_fetch"

    def call(self, context: StepContext) -> StepHandlerResult:
        self.base_url = context.get_config("url")
        response = self.get(
            f"/items/{context.input_data['item']}", params={"fields": "price"}, headers={"X-Trace": "1"}
        )
        return self.api_success(response)


class OrderItemHandler(StepHandler, APIMixin):
    handler_name = "catalogue_order"

    def call(self, context: StepContext) -> StepHandlerResult:
        self.base_url = context.get_config("url")
        price = context.get_dependency_result("fetch")["price"]
        response = self.post("/orders", data={"price": price})
        if response.is_retryable:
            return self.failure(
                message=f"busy, {response.retry_after} s",
                error_type="service_busy",
                retryable=True,
                metadata={"status": response.status_code},
            )
        if response.is_client_error:
            return self.api_failure(response)
        return self.success(
            {"order": response.body["order"], "status": response.status_code, "attempt": context.retry_count}
        )


class ConfirmHandler(ApiStepHandler):
    """Reads what the service says of the order, with headers of its own."""

    handler_name = "catalogue_confirm"

    def call(self, context: StepContext) -> StepHandlerResult:
        self._url = context.get_config("url")
        answer = self.get(f"/orders/{context.get_dependency_result('order')['order']}")
        return self.success(result={"seen": answer["seen"], "key": answer["key"]})

    @property
    def base_url(self) -> str:
        return self._url

    def configure_session(self, session):
        session.headers["Authorization"] = "Bearer k-1"
        session.timeout = 10
