"""The exceptions of tasker_core."""

from __future__ import annotations

from typing import Any, Mapping

from .. import _errors as native
from .types import StepHandlerResult


class TaskerError(Exception):
    """The base of all of them."""


class WorkerNotInitializedError(TaskerError):
    """bootstrap_worker was not called."""


class WorkerBootstrapError(TaskerError):
    """The worker did not start."""


class WorkerAlreadyRunningError(TaskerError):
    """bootstrap_worker was called twice."""


class FFIError(TaskerError):
    """A call of the engine has failed."""


class ConversionError(TaskerError):
    """A value cannot be sent."""


class ConfigurationError(TaskerError):
    """A setting is not valid."""


class ResolutionError(TaskerError):
    """No resolver finds a handler."""


class StepExecutionError(TaskerError):
    """The failure of a step."""

    error_type = "StepExecutionError"
    retryable = True

    def __init__(
        self,
        message: str,
        error_type: str | None = None,
        retryable: bool | None = None,
        *,
        error_code: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.error_type = error_type or type(self).error_type
        self.retryable = type(self).retryable if retryable is None else retryable
        self.error_code = error_code
        self.metadata = {**(context or {}), **(metadata or {})}
        self.retry_after = retry_after


class RetryableError(StepExecutionError):
    """Another attempt may help; retry_after is in seconds."""

    error_type = "RetryableError"


class TimeoutError(RetryableError):  # noqa: A001 (its name there)
    """It took too long."""

    error_type = "TimeoutError"


class NetworkError(RetryableError):
    """A service was not reached."""

    error_type = "NetworkError"


class PermanentError(StepExecutionError):
    """Another attempt would fail in the same way."""

    error_type = "PermanentError"
    retryable = False


class ValidationError(PermanentError):
    """The input is not valid; field names what."""

    error_type = "ValidationError"

    def __init__(self, message: str, *positional: Any, field: str | None = None, **options: Any) -> None:
        super().__init__(message, *positional, **options)
        self.field = field
        if field is not None:
            self.metadata = {"field": field, **self.metadata}


class NotFoundError(PermanentError):
    """What is asked for does not exist."""

    error_type = "NotFoundError"


class HandlerNotFoundError(ResolutionError):
    """The registry has no such handler."""


class MethodNotFoundError(ResolutionError):
    """The handler has no such method."""


def failure_of(error: StepExecutionError) -> native.TaskerError:
    """The failure that the package reports."""
    kind = native.Retryable if error.retryable else native.Permanent
    return kind(
        str(error),
        code=error.error_code or "",
        details=error.metadata or None,
        error_type=error.error_type,
        after=error.retry_after or 0,
    )


def failed(result: StepHandlerResult) -> native.TaskerError:
    """The failure that a result says."""
    kind = native.Retryable if result.retryable else native.Permanent
    after = result.metadata.get("retry_after")
    return kind(
        result.error_message or "the handler failed",
        code=result.error_code or "",
        details=result.metadata or None,
        error_type=result.error_type or "handler_error",
        after=float(after) if isinstance(after, (int, float)) else 0,
    )
