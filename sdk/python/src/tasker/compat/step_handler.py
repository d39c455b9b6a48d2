"""The base classes and mixins of handlers of tasker_core."""

from __future__ import annotations

import abc
import urllib.parse
from typing import Any, Callable, Mapping, NoReturn, Sequence

from .. import _api
from .._bytes import dumps
from .._context import StepContext as Step
from .._context import current_step
from .._errors import Retryable, Yield
from .errors import RetryableError, StepExecutionError
from .types import (
    BatchAggregationResult,
    BatchAggregationScenario,
    BatchAnalyzerOutcome,
    BatchWorkerContext,
    BatchWorkerOutcome,
    CursorConfig,
    DecisionPointOutcome,
    StepContext,
    StepHandlerResult,
    aggregate_batch_results,
    wire_cursor,
)

JSON = Any


class StepHandler(abc.ABC):
    """The base of handlers: override call, and add further methods for templates that name them."""

    handler_name: str = ""
    handler_version: str = "1.0.0"

    @abc.abstractmethod
    def call(self, context: StepContext) -> Any:
        """Runs the step."""

    @property
    def name(self) -> str:
        return self.handler_name or type(self).__name__

    @property
    def version(self) -> str:
        return self.handler_version

    @property
    def capabilities(self) -> list[str]:
        return ["process"]

    def config_schema(self) -> dict[str, Any] | None:
        return None

    def success(self, result: Any = None, metadata: Mapping[str, Any] | None = None) -> StepHandlerResult:
        return StepHandlerResult.success_handler_result(result, metadata)

    def failure(
        self,
        message: str,
        error_type: str = "handler_error",
        *positional: Any,
        retryable: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        error_code: str | None = None,
    ) -> StepHandlerResult:
        return StepHandlerResult.failure_handler_result(
            message, error_type, *positional, retryable=retryable, metadata=metadata, error_code=error_code
        )

    def success_result(
        self, results: Any = None, metadata: Mapping[str, Any] | None = None, *, result: Any = None
    ) -> StepHandlerResult:
        return self.success(results if result is None else result, metadata)

    def failure_result(self, message: str, *positional: Any, **options: Any) -> StepHandlerResult:
        return self.failure(message, *positional, **options)


BaseStepHandler = StepHandler


class ApiResponse:
    """An answer of a service. Its content is read like a mapping, which raises what the status of a failure means."""

    def __init__(self, status_code: int, headers: Mapping[str, str], body: Any) -> None:
        self.status_code, self.headers, self.body = status_code, headers, body
        self._answer = _api.ApiResponse(status_code, headers, body)

    @property
    def status(self) -> int:
        return self.status_code

    @property
    def ok(self) -> bool:
        return self._answer.ok

    is_success = ok

    @property
    def is_client_error(self) -> bool:
        return 400 <= self.status_code < 500

    @property
    def is_server_error(self) -> bool:
        return self.status_code >= 500

    @property
    def is_retryable(self) -> bool:
        return self.status_code in (408, 429) or 500 <= self.status_code <= 504

    @property
    def retry_after(self) -> float | None:
        return self._answer.retry_after or None

    @property
    def text(self) -> str:
        return self.body if isinstance(self.body, str) else dumps(self.body)

    def json(self) -> Any:
        self.raise_for_status()
        return self.body

    def raise_for_status(self) -> None:
        if not self.ok:
            raise self.error()

    def error(self, message: str | None = None) -> StepExecutionError:
        """The failure of a step because of this answer."""
        return StepExecutionError(
            message or f"the service answered {self.status_code}",
            error_type=f"http_{self.status_code}",
            error_code=f"HTTP_{self.status_code}",
            retryable=self.is_retryable,
            retry_after=self.retry_after,
            metadata={"status_code": self.status_code},
        )

    def to_dict(self) -> dict[str, Any]:
        return {"status_code": self.status_code, "headers": dict(self.headers), "body": self.body}

    def __getitem__(self, key: Any) -> Any:
        return self.json()[key]

    def get(self, key: Any, default: Any = None) -> Any:
        body = self.json()
        return body.get(key, default) if isinstance(body, Mapping) else default

    def __contains__(self, key: object) -> bool:
        return key in self.json()


class HttpClient:
    """Sends requests below an address; headers and timeout are those of each of them."""

    def __init__(self, base_url: str = "", headers: Mapping[str, str] | None = None, timeout: float = 30.0) -> None:
        self.base_url, self.headers, self.timeout = base_url, dict(headers or {}), timeout

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        data: Any = None,
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> ApiResponse:
        url = path if path.startswith(("http://", "https://")) else self.base_url.rstrip("/") + "/" + path.lstrip("/")
        if params:
            url += ("&" if "?" in url else "?") + urllib.parse.urlencode(params, doseq=True)
        try:
            answer = _api.api_call(
                method,
                url,
                json if data is None else data,
                {**self.headers, **(headers or {})},
                timeout or self.timeout,
            )
        except Retryable as e:
            raise RetryableError(str(e), error_type="NetworkError", error_code=e.code) from e
        return ApiResponse(answer.status, answer.headers, answer.body)

    def get(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> ApiResponse:
        return self.request("GET", path, params=params, headers=headers, **options)

    def post(
        self, path: str, data: Any = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> ApiResponse:
        return self.request("POST", path, data=data, headers=headers, **options)

    def put(self, path: str, data: Any = None, headers: Mapping[str, str] | None = None, **options: Any) -> ApiResponse:
        return self.request("PUT", path, data=data, headers=headers, **options)

    def patch(
        self, path: str, data: Any = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> ApiResponse:
        return self.request("PATCH", path, data=data, headers=headers, **options)

    def delete(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> ApiResponse:
        return self.request("DELETE", path, params=params, headers=headers, **options)


class APIMixin:
    """Calls of a service, with failures by the status of its answers."""

    base_url: Any = ""
    default_headers: Any = None
    default_timeout: float = 30.0

    @property
    def http_client(self) -> HttpClient:
        base = self.base_url() if callable(self.base_url) else self.base_url
        client = HttpClient(str(base or ""), self.default_headers, self.default_timeout)
        self.configure_session(client)
        return client

    def configure_session(self, session: Any) -> None:
        """Override it to set headers and timeout."""

    @property
    def connection(self) -> HttpClient:
        return self.http_client

    def get(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> ApiResponse:
        return self.http_client.get(path, params, headers, **options)

    def post(
        self, path: str, data: Any = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> ApiResponse:
        return self.http_client.post(path, data, headers, **options)

    def put(self, path: str, data: Any = None, headers: Mapping[str, str] | None = None, **options: Any) -> ApiResponse:
        return self.http_client.put(path, data, headers, **options)

    def patch(
        self, path: str, data: Any = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> ApiResponse:
        return self.http_client.patch(path, data, headers, **options)

    def delete(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> ApiResponse:
        return self.http_client.delete(path, params, headers, **options)

    def classify_status_code(self, status: int) -> str:
        if status < 400:
            return "success"
        return "retryable" if ApiResponse(status, {}, None).is_retryable else "permanent"

    def process_response(self, response: ApiResponse) -> ApiResponse:
        response.raise_for_status()
        return response

    def api_success(
        self, response: Any, status: int | None = None, metadata: Mapping[str, Any] | None = None, **_: Any
    ) -> StepHandlerResult:
        """A success with the content of an answer; the failure that its status means if it is none."""
        if not isinstance(response, ApiResponse):
            return StepHandlerResult.success_handler_result(
                response, {**({"status_code": status} if status else {}), **(metadata or {})}
            )
        if not response.ok:
            return self.api_failure(response, metadata=metadata)
        result = response.body if isinstance(response.body, dict) else {"data": response.body}
        return StepHandlerResult.success_handler_result(
            result, {"status_code": response.status_code, **(metadata or {})}
        )

    def api_failure(
        self,
        response: Any,
        status: int | None = None,
        message: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> StepHandlerResult:
        """The failure that the status of an answer means; of a message, with a status."""
        if not isinstance(response, ApiResponse):
            message, response = str(response), ApiResponse(status or 500, {}, None)
        e = response.error(message)
        details = {**e.metadata, **({"retry_after": e.retry_after} if e.retry_after else {}), **(metadata or {})}
        return StepHandlerResult.failure_handler_result(
            str(e), e.error_type, retryable=e.retryable, metadata=details, error_code=e.error_code
        )


class DecisionMixin:
    """The results of decisions."""

    def decision_success(
        self,
        steps: Any,
        routing_context: Any = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        result_data: Mapping[str, Any] | None = None,
    ) -> StepHandlerResult:
        """Creates the steps of a list, or those of an outcome."""
        outcome = (
            steps
            if isinstance(steps, DecisionPointOutcome)
            else DecisionPointOutcome.create_steps([steps] if isinstance(steps, str) else steps)
        )
        context = outcome.routing_context if routing_context is None else routing_context
        return self._decided(outcome, context, metadata, result_data)

    def route_to_steps(
        self, steps: Sequence[str], routing_context: Any = None, metadata: Mapping[str, Any] | None = None
    ) -> StepHandlerResult:
        return self.decision_success(steps, routing_context, metadata)

    def skip_branches(
        self, reason: str | None = None, routing_context: Any = None, metadata: Mapping[str, Any] | None = None
    ) -> StepHandlerResult:
        """Creates no step."""
        return self._decided(DecisionPointOutcome.no_branches(reason), routing_context, metadata, None)

    def decision_no_branches(
        self, outcome: Any = None, metadata: Mapping[str, Any] | None = None, **_: Any
    ) -> StepHandlerResult:
        """Creates no step; given an outcome, a reason, or what the result has besides."""
        if isinstance(outcome, DecisionPointOutcome):
            return self._decided(outcome, outcome.routing_context, metadata, None)
        if isinstance(outcome, Mapping):
            return self._decided(DecisionPointOutcome.no_branches(), None, metadata, outcome)
        return self.skip_branches(outcome, None, metadata)

    def decision_failure(
        self,
        message: str,
        error_type: str = "decision_error",
        retryable: bool = False,
        metadata: Mapping[str, Any] | None = None,
        error_code: str | None = None,
    ) -> StepHandlerResult:
        return StepHandlerResult.failure_handler_result(
            message, error_type, retryable=retryable, metadata=metadata, error_code=error_code
        )

    def _decided(
        self,
        outcome: DecisionPointOutcome,
        context: Any,
        metadata: Mapping[str, Any] | None,
        more: Mapping[str, Any] | None,
    ) -> StepHandlerResult:
        result: dict[str, Any] = {**(more or {}), "decision_point_outcome": outcome.to_dict()}
        if isinstance(context, ApiResponse):
            context = context.json()
        if context:
            result["routing_context"] = context
        if outcome.reason:
            result["reason"] = outcome.reason
        return StepHandlerResult.success_handler_result(result, metadata)


def _step() -> Step | None:
    try:
        return current_step()
    except LookupError:
        return None


class BatchableMixin:
    """The results of analyzers, batches and the steps that add them up."""

    def create_cursor_ranges(
        self, total_items: int, batch_size: int, max_batches: int | None = None
    ) -> list[CursorConfig]:
        """Batches of batch_size, or larger ones if there would be more than max_batches."""
        if total_items <= 0:
            return []
        if batch_size < 1:
            raise ValueError(f"invalid batch_size {batch_size}: want at least 1")
        if max_batches:
            batch_size = max(batch_size, -(-total_items // max_batches))
        bounds = [(start, min(start + batch_size, total_items)) for start in range(0, total_items, batch_size)]
        return [CursorConfig(end - start, start, end, f"{n:03d}") for n, (start, end) in enumerate(bounds, 1)]

    def create_cursor_configs(self, total_items: int, worker_count: int) -> list[CursorConfig]:
        """As many batches, of sizes that differ by the last one."""
        if total_items <= 0 or worker_count < 1:
            return []
        return self.create_cursor_ranges(total_items, -(-total_items // worker_count))

    generate_cursor_configs = create_cursor_configs

    def create_batch_outcome(
        self,
        total_items: int,
        batch_size: int,
        max_batches: int | None = None,
        batch_metadata: Mapping[str, Any] | None = None,
    ) -> BatchAnalyzerOutcome:
        """The outcome for batch_analyzer_success."""
        cursors = self.create_cursor_ranges(total_items, batch_size, max_batches)
        return BatchAnalyzerOutcome.from_ranges(cursors, total_items, batch_metadata)

    def batch_analyzer_success(
        self,
        cursor_configs: Any = None,
        total_items: int | None = None,
        worker_template_name: str | None = None,
        batch_metadata: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> StepHandlerResult:
        """The batches of a list of cursors, or of a BatchAnalyzerOutcome. Without cursors there is nothing to do."""
        if isinstance(cursor_configs, BatchAnalyzerOutcome):
            total_items = cursor_configs.total_items if total_items is None else total_items
            batch_metadata = batch_metadata or cursor_configs.batch_metadata
            cursor_configs = cursor_configs.cursor_configs
        cursors = [wire_cursor(c, n) for n, c in enumerate(cursor_configs or [], 1)]
        total = sum(c["batch_size"] for c in cursors) if total_items is None else total_items
        outcome: dict[str, Any] = {"type": "no_batches"}
        if cursors:
            outcome = {
                "type": "create_batches",
                "worker_template_name": self._worker_template(worker_template_name),
                "worker_count": len(cursors),
                "cursor_configs": cursors,
                "total_items": total,
            }
        result = {
            **more,
            "total_items": total,
            "worker_count": len(cursors),
            "batch_metadata": dict(batch_metadata or {}),
            "batch_processing_outcome": outcome,
        }
        return StepHandlerResult.success_handler_result(result, metadata)

    def create_batches_outcome(
        self,
        worker_template_name: str,
        cursor_configs: Any,
        total_items: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> StepHandlerResult:
        return self.batch_analyzer_success(cursor_configs, total_items, worker_template_name, metadata, **more)

    def batch_success(
        self, worker_template_name: str, cursor_configs: Any, metadata: Mapping[str, Any] | None = None
    ) -> StepHandlerResult:
        return self.batch_analyzer_success(cursor_configs, None, worker_template_name, metadata)

    def no_batches_outcome(
        self, reason: str | None = None, metadata: Mapping[str, Any] | None = None, **more: Any
    ) -> StepHandlerResult:
        if reason:
            more["reason"] = reason
        return self.batch_analyzer_success([], more.pop("total_items", 0), None, metadata, None, **more)

    no_batches_result = no_batches_outcome

    @staticmethod
    def _worker_template(name: str | None) -> str:
        step = _step()
        name = name or (str(step.config.get("worker_template_name") or "") if step is not None else "")
        if not name:
            raise StepExecutionError(
                "the analyzer names no worker template: want worker_template_name, or that of the initialization",
                error_type="InvalidBatches",
                retryable=False,
            )
        return name

    def get_batch_context(self, context: StepContext) -> BatchWorkerContext | None:
        return BatchWorkerContext.from_step_context(context)

    def handle_no_op_worker(self, batch_context: Any) -> StepHandlerResult | None:
        """The result of a placeholder without work; None for a batch to process. It takes the context of either."""
        if isinstance(batch_context, StepContext):
            batch_context = self.get_batch_context(batch_context)
        if batch_context is None or not batch_context.is_no_op:
            return None
        return self.batch_worker_success(0, 0, 0, metadata={"no_op": True}, no_op=True)

    def batch_worker_success(
        self,
        items_processed: Any = None,
        items_succeeded: int | None = None,
        items_failed: int = 0,
        results: Any = None,
        last_cursor: Any = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        items_skipped: int = 0,
        errors: Any = None,
        processed_count: int | None = None,
        result_data: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> StepHandlerResult:
        """The result of a batch, by its counts or a BatchWorkerOutcome."""
        if isinstance(items_processed, BatchWorkerOutcome):
            o = items_processed
            more = {**more, **({"batch_metadata": o.batch_metadata} if o.batch_metadata else {})}
            return self.batch_worker_success(
                o.items_processed,
                o.items_succeeded,
                o.items_failed,
                o.results,
                o.last_cursor,
                metadata,
                items_skipped=o.items_skipped,
                errors=o.errors,
                **more,
            )
        processed = int((processed_count if items_processed is None else items_processed) or 0)
        succeeded = max(processed - items_failed - items_skipped, 0) if items_succeeded is None else items_succeeded
        result: dict[str, Any] = {
            "batch_worker": True,
            "items_processed": processed,
            "processed_count": processed,
            "items_succeeded": succeeded,
            "items_failed": items_failed,
            "items_skipped": items_skipped,
        }
        for name, value in (("results", results), ("errors", errors), ("last_cursor", last_cursor)):
            if value is not None:
                result[name] = value
        return StepHandlerResult.success_handler_result({**result, **more, **(result_data or {})}, metadata)

    def batch_worker_complete(
        self, processed_count: int = 0, result_data: Mapping[str, Any] | None = None, **more: Any
    ) -> StepHandlerResult:
        return self.batch_worker_success(processed_count, result_data=result_data, **more)

    def batch_failure(
        self,
        message: str,
        error_type: str = "batch_error",
        retryable: bool = True,
        metadata: Mapping[str, Any] | None = None,
        error_code: str | None = None,
    ) -> StepHandlerResult:
        return StepHandlerResult.failure_handler_result(
            message, error_type, retryable=retryable, metadata=metadata, error_code=error_code
        )

    batch_worker_failure = batch_failure

    def checkpoint_yield(self, cursor: Any, items_processed: int, accumulated_results: Any = None) -> NoReturn:
        """Saves the progress, and ends this execution: the handler is called again with it."""
        raise Yield(cursor, items_processed, accumulated_results)

    def aggregate_worker_results(self, worker_results: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
        """The sums of the results of batches."""
        sums: BatchAggregationResult = aggregate_batch_results(worker_results)
        total = sums.model_dump()
        return {
            **total,
            "items_processed": sums.total_processed,
            "items_succeeded": sums.total_succeeded,
            "items_failed": sums.total_failed,
            "worker_count": sums.batch_count,
        }

    aggregate_results = aggregate_worker_results

    def detect_aggregation_scenario(
        self, dependency_results: Any, batchable_step: str, worker_prefix: str
    ) -> BatchAggregationScenario:
        """Whether there were batches, with their results by name."""
        return BatchAggregationScenario.detect(dependency_results, batchable_step, worker_prefix)

    def aggregate_batch_worker_results(
        self,
        scenario: Any,
        aggregate: Callable[[Mapping[str, Any]], Any] | None = None,
        zero_metrics: Mapping[str, Any] | None = None,
    ) -> StepHandlerResult:
        """The result of a step behind batches: what aggregate makes of their results by name, or zero_metrics."""
        if scenario.no_batches:
            result: Any = {**(zero_metrics or {}), "worker_count": 0}
        else:
            result = (
                self.aggregate_worker_results(list(scenario.batch_results.values()))
                if aggregate is None
                else aggregate(scenario.batch_results)
            )
        return StepHandlerResult.success_handler_result(
            {"worker_count": scenario.worker_count, **result} if isinstance(result, dict) else result
        )


Batchable = BatchableMixin


class ApiHandler(APIMixin, StepHandler):
    """A handler that calls a service."""

    @property
    def capabilities(self) -> list[str]:
        return ["process", "http", "api"]


class DecisionHandler(DecisionMixin, StepHandler):
    """A handler that chooses the steps that follow."""

    @property
    def capabilities(self) -> list[str]:
        return ["process", "decision", "routing"]


class BatchableHandler(BatchableMixin, StepHandler):
    """A handler of batches."""

    @property
    def capabilities(self) -> list[str]:
        return ["process", "batch"]


ApiStepHandler = APIHandler = ApiHandler
DecisionStepHandler = DecisionHandler
BatchableStepHandler = BatchableHandler
