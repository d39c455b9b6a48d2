"""The base classes and mixins of handlers of tasker_core."""

from __future__ import annotations

import abc
import base64
import datetime
import http
import sys
import urllib.parse
import uuid
from typing import Any, Awaitable, Callable, Mapping, Sequence, Union

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
    BatchWorkerConfig,
    BatchWorkerContext,
    BatchWorkerOutcome,
    CursorConfig,
    DecisionPointOutcome,
    RustBatchWorkerInputs,
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, version={self.version!r})"


BaseStepHandler = StepHandler
StepHandlerCallResult = Union[StepHandlerResult, Awaitable[StepHandlerResult]]


class ApiResponse:
    """An answer of a service. Its content is read like a mapping, which raises what the status of a failure means.
    It is made of a status with headers and body, or of an answer of another client, such as httpx."""

    def __init__(self, response: Any, headers: Any = None, body: Any = None) -> None:
        if not isinstance(response, int):
            body = headers if body is None else body
            kind = str(response.headers.get("content-type", ""))
            headers = dict(response.headers)
            if body is None and "json" in kind:
                try:
                    body = response.json()
                except ValueError:
                    body = response.text
            elif body is None:
                body = response.text
        self.raw_response: Any = self if isinstance(response, int) else response
        self.status_code = int(response if isinstance(response, int) else response.status_code)
        self.headers: dict[str, str] = dict(headers or {})
        self.body = body
        self._answer = _api.ApiResponse(self.status_code, self.headers, body)

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
        return 500 <= self.status_code < 600

    @property
    def is_retryable(self) -> bool:
        return self.status_code in (408, 429, 500, 502, 503, 504)

    @property
    def retry_after(self) -> float | None:
        after = next((v for k, v in self.headers.items() if k.lower() == "retry-after"), None)
        if after is None:
            return None
        return self._answer.retry_after or (int(after) if str(after).isdigit() else 60)

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
            message or _said(self.status_code, self.body),
            error_type=_kind(self.status_code),
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


_KINDS = {  # the error types of statuses whose phrases say something else
    408: "request_timeout",
    422: "unprocessable_entity",
    429: "rate_limited",
}
_NAMED = (400, 401, 403, 404, 405, 408, 409, 410, 422, 429, 500, 502, 503, 504)


def _kind(status: int) -> str:
    """The error type of a status."""
    if status in _NAMED:
        return _KINDS.get(status) or http.HTTPStatus(status).phrase.lower().replace(" ", "_")
    return "client_error" if 400 <= status < 500 else "server_error" if 500 <= status < 600 else "http_error"


def _said(status: int, body: Any) -> str:
    """The message of a failure: what the service says, or the phrase of the status."""
    for key in ("error", "message", "detail", "error_message", "msg"):
        found = body.get(key) if isinstance(body, Mapping) else None
        if isinstance(found, Mapping):
            found = found.get("message")
        if isinstance(found, str):
            return f"HTTP {status}: {found}"
    if status == 422:
        return f"HTTP {status}: Unprocessable Entity"
    known = status in http.HTTPStatus.__members__.values()
    return f"HTTP {status}: {http.HTTPStatus(status).phrase if known else 'HTTP Error'}"


def _not_reached(error: Retryable) -> RetryableError:
    """The failure of a request without an answer. It is also httpx's exception where the application uses that."""
    late = isinstance(error.__cause__, TimeoutError)
    kind: type[RetryableError] = RetryableError
    httpx = sys.modules.get("httpx")
    base = getattr(httpx, "TimeoutException" if late else "ConnectError", None)
    if isinstance(base, type):
        kind = type(base.__name__, (RetryableError, base), {})
    return kind(str(error), error_type="NetworkError", error_code=error.code)


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
        content: Any = None,
        auth: tuple[str, str] | None = None,
        **_: Any,
    ) -> ApiResponse:
        url = path if path.startswith(("http://", "https://")) else self.base_url.rstrip("/") + "/" + path.lstrip("/")
        if params:
            url += ("&" if "?" in url else "?") + urllib.parse.urlencode(params, doseq=True)
        sent = {**self.headers, **(headers or {})}
        if auth is not None:
            sent["Authorization"] = "Basic " + base64.b64encode(":".join(auth).encode()).decode()
        body = next((b for b in (data, json, content) if b is not None), None)
        try:
            answer = _api.api_call(method, url, body, sent, timeout or self.timeout)
        except Retryable as e:
            raise _not_reached(e) from e
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
        self, path: str, json: Any = None, data: Any = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> ApiResponse:
        return self.request("POST", path, json=json, data=data, headers=headers, **options)

    def put(
        self, path: str, json: Any = None, data: Any = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> ApiResponse:
        return self.request("PUT", path, json=json, data=data, headers=headers, **options)

    def patch(
        self, path: str, json: Any = None, data: Any = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> ApiResponse:
        return self.request("PATCH", path, json=json, data=data, headers=headers, **options)

    def delete(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> ApiResponse:
        return self.request("DELETE", path, params=params, headers=headers, **options)

    def close(self) -> None:
        """Does nothing: each request has a connection of its own."""


class APIMixin:
    """Calls of a service, with failures by the status of its answers."""

    base_url: Any = ""
    default_headers: Any = None
    default_timeout: float = 30.0
    _client: Any = None

    @property
    def api_capabilities(self) -> list[str]:
        return ["http", "api"]

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

    @property
    def client(self) -> Any:
        """What sends the requests: one of the application's own, or one for each request."""
        return self.http_client if self._client is None else self._client

    def close(self) -> None:
        """Closes an own client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def get(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> ApiResponse:
        return _answered(self.client.get(path, params=params, headers=headers, **options))

    def post(
        self, path: str, json: Any = None, data: Any = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> ApiResponse:
        return _answered(self.client.post(path, json=json, data=data, headers=headers, **options))

    def put(
        self, path: str, json: Any = None, data: Any = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> ApiResponse:
        return _answered(self.client.put(path, json=json, data=data, headers=headers, **options))

    def patch(
        self, path: str, json: Any = None, data: Any = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> ApiResponse:
        return _answered(self.client.patch(path, json=json, data=data, headers=headers, **options))

    def delete(self, path: str, headers: Mapping[str, str] | None = None, **options: Any) -> ApiResponse:
        return _answered(self.client.delete(path, headers=headers, **options))

    def request(self, method: str, path: str, **options: Any) -> ApiResponse:
        return _answered(self.client.request(method, path, **options))

    def classify_status_code(self, status: int) -> str:
        if status < 400:
            return "success"
        return "retryable" if ApiResponse(status).is_retryable else "permanent"

    def process_response(self, response: ApiResponse) -> ApiResponse:
        response.raise_for_status()
        return response

    def api_success(
        self,
        response: Any,
        result: Any = None,
        include_response: bool = True,
        *,
        status: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> StepHandlerResult:
        """A success with the content of an answer, or with result; the failure that its status means if it is none."""
        if isinstance(result, int) and not isinstance(result, bool):
            status, result = result, None
        if not _is_answer(response):
            return StepHandlerResult.success_handler_result(
                response, {**({"status_code": status} if status else {}), **(metadata or {})}
            )
        if not response.ok and result is None:
            return self.api_failure(response, metadata=metadata)
        if result is None:
            result = response.body if isinstance(response.body, dict) else {"data": response.body}
        seen = {"status_code": response.status_code, "headers": response.headers} if include_response else {}
        return StepHandlerResult.success_handler_result(result, {**seen, **(metadata or {})})

    def api_failure(
        self,
        response: Any,
        message: Any = None,
        *,
        status: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> StepHandlerResult:
        """The failure that the status of an answer means; of a message, with a status."""
        if isinstance(message, int):
            status, message = message, None
        if not _is_answer(response):
            message, response = str(response), ApiResponse(status or 500)
        code, body, after = response.status_code, response.body, response.retry_after
        details = {"status_code": code, "headers": response.headers}
        if after is not None:
            details.update(retry_after=after, retry_after_seconds=after)
        if body:
            details["response_body"] = body
        return StepHandlerResult.failure_handler_result(
            message or self._format_error_message(response),
            self._classify_error(response),
            retryable=bool(response.is_retryable),
            metadata={**details, **(metadata or {})},
            error_code=f"HTTP_{code}",
        )

    def _classify_error(self, response: Any) -> str:
        return _kind(response.status_code)

    def _format_error_message(self, response: Any) -> str:
        return _said(response.status_code, response.body)

    def connection_error(self, error: Exception, context: str | None = None) -> StepHandlerResult:
        """The failure of a service that was not reached, while the context says what was done."""
        return _unanswered("Connection error", "connection_error", error, context)

    def timeout_error(self, error: Exception, context: str | None = None) -> StepHandlerResult:
        """The failure of a service that did not answer in time."""
        return _unanswered("Request timeout", "timeout", error, context)


def _is_answer(response: Any) -> bool:
    return not isinstance(response, (Mapping, str)) and hasattr(response, "status_code")


def _answered(response: Any) -> ApiResponse:
    return response if isinstance(response, ApiResponse) else ApiResponse(response)


def _unanswered(what: str, kind: str, error: Exception, context: str | None) -> StepHandlerResult:
    message = f"{what} while {context}: {error}" if context else f"{what}: {error}"
    return StepHandlerResult.failure_handler_result(
        message, kind, retryable=True, metadata={"exception_type": type(error).__name__}
    )


class DecisionMixin:
    """The results of decisions."""

    @property
    def decision_capabilities(self) -> list[str]:
        return ["decision", "routing"]

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
            else DecisionPointOutcome("create_steps", [steps] if isinstance(steps, str) else steps)
        )
        context = outcome.routing_context if routing_context is None else routing_context
        return self._decided(outcome, context, metadata, result_data)

    def decision_success_with_outcome(
        self, outcome: DecisionPointOutcome, metadata: Mapping[str, Any] | None = None
    ) -> StepHandlerResult:
        return self.decision_success(outcome, None, metadata)

    def route_to_steps(
        self, step_names: Sequence[str], routing_context: Any = None, metadata: Mapping[str, Any] | None = None
    ) -> StepHandlerResult:
        return self.decision_success(step_names, routing_context, metadata)

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
            message,
            error_type,
            retryable=retryable,
            metadata={**(metadata or {}), **self._decider()},
            error_code=error_code,
        )

    def _decider(self) -> dict[str, Any]:
        name = getattr(self, "name", type(self).__name__)
        return {"decision_handler": name, "decision_version": getattr(self, "version", "1.0.0")}

    def _decided(
        self,
        outcome: DecisionPointOutcome,
        context: Any,
        metadata: Mapping[str, Any] | None,
        more: Mapping[str, Any] | None,
    ) -> StepHandlerResult:
        result: dict[str, Any] = {**(more or {}), "decision_point_outcome": outcome.to_dict()}
        if outcome.type == "create_steps" and not outcome.step_names:
            result["decision_point_outcome"] = {"type": "create_steps", "step_names": []}
        if outcome.dynamic_steps:
            result["dynamic_steps"] = outcome.dynamic_steps
        if isinstance(context, ApiResponse):
            context = context.json()
        if context:
            result["routing_context"] = context
        if outcome.reason:
            result["reason"] = outcome.reason
        return StepHandlerResult.success_handler_result(result, {**(metadata or {}), **self._decider()})


def _step() -> Step | None:
    try:
        return current_step()
    except LookupError:
        return None


class BatchableMixin:
    """The results of analyzers, batches and the steps that add them up."""

    def create_cursor_config(
        self, start: int, end: int, step_size: int = 1, metadata: Mapping[str, Any] | None = None
    ) -> CursorConfig:
        return CursorConfig(end - start, start, end, "", step_size, dict(metadata or {}))

    def create_cursor_ranges(
        self, total_items: int, batch_size: int, step_size: int = 1, max_batches: int | None = None
    ) -> list[CursorConfig]:
        """Batches of batch_size, or larger ones if there would be more than max_batches."""
        if total_items <= 0:
            return []
        if batch_size < 1:
            raise ValueError(f"invalid batch_size {batch_size}: want at least 1")
        if max_batches:
            batch_size = max(batch_size, -(-total_items // max_batches))
        bounds = [(start, min(start + batch_size, total_items)) for start in range(0, total_items, batch_size)]
        return [
            CursorConfig(end - start, start, end, f"{n:03d}", step_size) for n, (start, end) in enumerate(bounds, 1)
        ]

    def create_cursor_configs(self, total_items: int, worker_count: int) -> list[BatchWorkerConfig]:
        """As many batches, of sizes that differ by the last one."""
        if worker_count < 1:
            raise ValueError(f"invalid worker_count {worker_count}: want at least 1")
        if total_items <= 0:
            return []
        ranges = self.create_cursor_ranges(total_items, -(-total_items // worker_count))
        return [
            BatchWorkerConfig(c.batch_id, c.start_cursor, c.end_cursor, c.batch_size, n, worker_count)
            for n, c in enumerate(ranges)
        ]

    generate_cursor_configs = create_cursor_configs

    def create_batch_outcome(
        self,
        total_items: int,
        batch_size: int,
        step_size: int = 1,
        batch_metadata: Mapping[str, Any] | None = None,
        *,
        max_batches: int | None = None,
    ) -> BatchAnalyzerOutcome:
        """The outcome for batch_analyzer_success."""
        cursors = self.create_cursor_ranges(total_items, batch_size, step_size, max_batches)
        return BatchAnalyzerOutcome(list(cursors), total_items, dict(batch_metadata or {}))

    def create_batch_outcome_from_ranges(
        self,
        ranges: Sequence[Any],
        step_size: int = 1,
        total_items: int | None = None,
        batch_metadata: Mapping[str, Any] | None = None,
    ) -> BatchAnalyzerOutcome:
        """The outcome of batches of which each is a pair of a start and an end."""
        return BatchAnalyzerOutcome.from_ranges(ranges, step_size, total_items, batch_metadata)

    def create_worker_outcome(
        self,
        items_processed: int,
        items_succeeded: int = 0,
        items_failed: int = 0,
        items_skipped: int = 0,
        results: Any = None,
        errors: Any = None,
        last_cursor: Any = None,
        batch_metadata: Mapping[str, Any] | None = None,
    ) -> BatchWorkerOutcome:
        """The outcome for batch_worker_success."""
        return BatchWorkerOutcome(
            items_processed,
            items_succeeded or items_processed,
            items_failed,
            items_skipped,
            results or [],
            errors or [],
            last_cursor,
            dict(batch_metadata or {}),
        )

    def create_batch_context(
        self, cursor_config: Any, batch_index: int, total_batches: int, batch_metadata: Mapping[str, Any] | None = None
    ) -> BatchWorkerContext:
        """A batch without a step, for tests of handlers."""
        return BatchWorkerContext(
            str(uuid.uuid4()),
            cursor_config=cursor_config,
            batch_index=batch_index,
            total_batches=total_batches,
            batch_metadata=batch_metadata,
        )

    def batch_analyzer_success(
        self,
        *positional: Any,
        outcome: BatchAnalyzerOutcome | None = None,
        cursor_configs: Any = None,
        total_items: int | None = None,
        worker_template_name: str | None = None,
        batch_metadata: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> StepHandlerResult:
        """The batches of a list of cursors, or of a BatchAnalyzerOutcome. Without cursors there is nothing to do. By
        their places: the cursors, total_items, worker_template_name, batch_metadata, metadata; or an outcome, metadata
        and worker_template_name."""
        usual = not positional or isinstance(positional[0], BatchAnalyzerOutcome)
        for n, value in enumerate(positional):
            if isinstance(value, BatchAnalyzerOutcome):
                outcome = value
            elif isinstance(value, str):
                worker_template_name = value
            elif isinstance(value, int):
                total_items = value
            elif isinstance(value, Mapping) and (n == 1 or n == 4):
                metadata = value
            elif isinstance(value, Mapping):
                batch_metadata = value
            elif value is not None:
                cursor_configs = value
        if isinstance(cursor_configs, BatchAnalyzerOutcome):
            outcome, cursor_configs = cursor_configs, None
        if cursor_configs is None and outcome is not None:
            total_items = outcome.total_items if total_items is None else total_items
            batch_metadata = batch_metadata or outcome.batch_metadata
            cursor_configs = outcome.cursor_configs
        cursors = [wire_cursor(c, n) for n, c in enumerate(cursor_configs or [], 1)]
        total = sum(c["batch_size"] for c in cursors) if total_items is None else total_items
        found: dict[str, Any] = {"type": "no_batches"}
        if cursors:
            found = {
                "type": "create_batches",
                "worker_template_name": self._worker_template(worker_template_name, "batch_worker" if usual else ""),
                "worker_count": len(cursors),
                "cursor_configs": cursors,
                "total_items": total,
            }
        else:
            none = "no_cursor_configs_provided" if cursor_configs is None else "empty_dataset"
            more = {"reason": none, **(batch_metadata or {}), **more}
        result = {
            **more,
            "total_items": total,
            "worker_count": len(cursors),
            "batch_metadata": dict(batch_metadata or {}),
            "batch_processing_outcome": found,
        }
        marks = {"batch_analyzer": True} if cursors else {"batch_analyzer": True, "no_batches": True}
        return StepHandlerResult.success_handler_result(result, {**(metadata or {}), **marks})

    def create_batches_outcome(
        self,
        worker_template_name: str,
        cursor_configs: Any,
        total_items: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> StepHandlerResult:
        return self.batch_analyzer_success(
            cursor_configs=cursor_configs,
            total_items=total_items,
            worker_template_name=worker_template_name,
            batch_metadata=metadata,
            **more,
        )

    def batch_success(
        self, worker_template_name: str, cursor_configs: Any, metadata: Mapping[str, Any] | None = None
    ) -> StepHandlerResult:
        return self.batch_analyzer_success(
            cursor_configs=cursor_configs, worker_template_name=worker_template_name, batch_metadata=metadata
        )

    def no_batches_outcome(
        self, reason: str | None = None, metadata: Mapping[str, Any] | None = None, **more: Any
    ) -> StepHandlerResult:
        if reason:
            more["reason"] = reason
        total = more.pop("total_items", 0)
        return self.batch_analyzer_success(cursor_configs=[], total_items=total, batch_metadata=metadata, **more)

    no_batches_result = no_batches_outcome

    @staticmethod
    def _worker_template(name: str | None, usual: str) -> str:
        step = _step()
        name = name or (str(step.config.get("worker_template_name") or "") if step is not None else "") or usual
        if not name:
            raise StepExecutionError(
                "the analyzer names no worker template: want worker_template_name, or that of the initialization",
                error_type="InvalidBatches",
                retryable=False,
            )
        return name

    def get_batch_context(self, context: StepContext) -> BatchWorkerContext | None:
        return BatchWorkerContext.from_step_context(context)

    def get_batch_worker_inputs(self, context: StepContext) -> RustBatchWorkerInputs | None:
        """The inputs of a batch; None of a step that is none."""
        inputs = getattr(context, "step_inputs", None)
        if not isinstance(inputs, Mapping) or not inputs:
            return None
        try:
            return RustBatchWorkerInputs.model_validate(inputs)
        except (ValueError, TypeError):
            return None

    def handle_no_op_worker(self, context: Any = None, batch_context: Any = None) -> StepHandlerResult | None:
        """The result of a placeholder without work; None for a batch to process. It takes the context of either."""
        batch = context if batch_context is None else batch_context
        if batch is not None and not isinstance(batch, BatchWorkerContext):
            batch = self.get_batch_context(batch)
        if batch is None or not batch.is_no_op:
            return None
        now = datetime.datetime.now(datetime.timezone.utc).isoformat()
        told: dict[str, Any] = {"batch_id": batch.batch_id, "message": "there is nothing to do", "processed_at": now}
        return self.batch_worker_success(0, 0, 0, metadata={"no_op": True}, no_op=True, **told)

    def batch_worker_success(
        self,
        *positional: Any,
        outcome: BatchWorkerOutcome | None = None,
        items_processed: int | None = None,
        items_succeeded: int | None = None,
        items_failed: int = 0,
        results: Any = None,
        last_cursor: Any = None,
        metadata: Mapping[str, Any] | None = None,
        items_skipped: int = 0,
        errors: Any = None,
        batch_metadata: Mapping[str, Any] | None = None,
        processed_count: int | None = None,
        result_data: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> StepHandlerResult:
        """The result of a batch, by its counts or a BatchWorkerOutcome. By their places: the counts in the order of the
        names, results, last_cursor, metadata; or an outcome and metadata."""
        if positional and isinstance(positional[0], BatchWorkerOutcome):
            outcome, metadata = positional[0], positional[1] if len(positional) > 1 else metadata
        elif positional:
            names = ("items_processed", "items_succeeded", "items_failed", "results", "last_cursor", "metadata")
            given: dict[str, Any] = dict(zip(names, positional))
            more.update(metadata=metadata, items_skipped=items_skipped, errors=errors, batch_metadata=batch_metadata)
            return self.batch_worker_success(**{**more, "result_data": result_data, **given})
        if isinstance(items_processed, BatchWorkerOutcome):
            outcome, items_processed = items_processed, None
        if outcome is not None and items_processed is None:
            o = outcome
            items_processed, items_succeeded, items_failed = o.items_processed, o.items_succeeded, o.items_failed
            items_skipped, results, errors, last_cursor = o.items_skipped, o.results, o.errors, o.last_cursor
            batch_metadata = o.batch_metadata
        processed = processed_count if items_processed is None else items_processed
        if processed is None and result_data is None and not more:
            return StepHandlerResult.failure_handler_result(
                "batch_worker_success: want an outcome or items_processed", "invalid_args", retryable=False
            )
        processed = int(processed or 0)
        succeeded = max(processed - items_failed - items_skipped, 0) if items_succeeded is None else items_succeeded
        result: dict[str, Any] = {
            "batch_worker": True,
            "items_processed": processed,
            "processed_count": processed,
            "items_succeeded": succeeded,
            "items_failed": items_failed,
            "items_skipped": items_skipped,
            "last_cursor": last_cursor,
            "batch_metadata": dict(batch_metadata or {}),
        }
        for name, value in (("results", results), ("errors", errors)):
            if value:
                result[name] = value
        return StepHandlerResult.success_handler_result({**result, **more, **(result_data or {})}, metadata)

    def batch_worker_partial_failure(
        self, outcome: BatchWorkerOutcome, message: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> StepHandlerResult:
        """The success of a batch of which some items have failed."""
        more: dict[str, Any] = {"partial_failure_message": message} if message else {}
        marks = {**(metadata or {}), "batch_worker": True, "had_failures": True}
        return self.batch_worker_success(outcome, marks, partial_failure=True, **more)

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

    def checkpoint_yield(self, cursor: Any, items_processed: int, accumulated_results: Any = None) -> Any:
        """Saves the progress, and ends this execution: the handler is called again with it. Outside of a step, which is
        in a test of the handler, it returns the result that says so."""
        if _step() is not None:
            raise Yield(cursor, items_processed, accumulated_results)
        result = {"type": "checkpoint_yield", "cursor": cursor, "items_processed": items_processed}
        if accumulated_results is not None:
            result["accumulated_results"] = accumulated_results
        return StepHandlerResult.success_handler_result(result, {"checkpoint_yield": True, "batch_worker": True})

    @staticmethod
    def aggregate_worker_results(worker_results: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
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
        self, dependency_results: Any, batchable_step_name: str, batch_worker_prefix: str
    ) -> BatchAggregationScenario:
        """Whether there were batches, with their results by name."""
        return BatchAggregationScenario.detect(dependency_results, batchable_step_name, batch_worker_prefix)

    def no_batches_aggregation_result(self, zero_metrics: Mapping[str, Any] | None = None) -> StepHandlerResult:
        """The result of a step behind no batches."""
        return StepHandlerResult.success_handler_result(
            {"worker_count": 0, "scenario": "no_batches", **(zero_metrics or {})}
        )

    def aggregate_batch_worker_results(
        self,
        scenario: Any,
        zero_metrics: Any = None,
        aggregation_fn: Any = None,
        *,
        aggregate: Callable[[Mapping[str, Any]], Any] | None = None,
    ) -> StepHandlerResult:
        """The result of a step behind batches: what aggregation_fn makes of their results by name, or zero_metrics."""
        if callable(zero_metrics):
            zero_metrics, aggregation_fn = aggregation_fn, zero_metrics
        made = aggregation_fn or aggregate
        if scenario.is_no_batches:
            return self.no_batches_aggregation_result(zero_metrics)
        if made is None:
            sums = self.aggregate_worker_results(list(scenario.batch_results.values()))
            result: Any = {**sums, "batch_results": scenario.batch_results}
        else:
            result = made(scenario.batch_results)
        more = {"worker_count": scenario.worker_count, "scenario": "with_batches"}
        return StepHandlerResult.success_handler_result({**result, **more} if isinstance(result, dict) else result)


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
