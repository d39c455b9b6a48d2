"""The exceptions of tasker_core."""

from __future__ import annotations

import builtins
from typing import Any, Mapping

from .. import _errors as native
from .types import StepHandlerResult


class TaskerError(Exception):
    """The base of all of them. metadata has the code, the delay and the context too."""

    retryable: bool = True

    def __init__(
        self,
        message: str = "",
        *,
        retryable: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        error_code: str | None = None,
        retry_after: float | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if retryable is not None:
            self.retryable = retryable
        self.error_code, self.retry_after = error_code, retry_after
        self.metadata: dict[str, Any] = dict(metadata or {})
        for name, value in (("error_code", error_code), ("retry_after", retry_after)):
            if value is not None:
                self.metadata[name] = value
        self.metadata.update(context or {})

    def to_dict(self) -> dict[str, Any]:
        return {
            "error_type": type(self).__name__,
            "message": self.message,
            "retryable": self.retryable,
            "metadata": self.metadata,
        }


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


class ResolutionError(TaskerError):
    """No resolver finds a handler."""


class ResolverNotFoundError(ResolutionError):
    """A handler names a resolver that the chain does not have."""


class StepExecutionError(TaskerError):
    """The failure of a step. error_type is the name of the class unless it is given."""

    error_type: str = ""

    def __init__(
        self, message: str = "", error_type: str | None = None, retryable: bool | None = None, **options: Any
    ) -> None:
        super().__init__(message, retryable=retryable, **options)
        name = type(self).__name__ if type(self) is not StepExecutionError else "step_execution_error"
        self.error_type = error_type or type(self).error_type or name


class RetryableError(StepExecutionError):
    """Another attempt may help; retry_after is in seconds."""


class TimeoutError(RetryableError):  # noqa: A001 (its name there)
    """It took too long."""


class NetworkError(RetryableError):
    """A service was not reached."""


class RateLimitError(RetryableError):
    """A service takes no more requests for now."""


class ServiceUnavailableError(RetryableError):
    """A service is down or busy."""


class ResourceContentionError(RetryableError):
    """Another process holds what the step needs."""


class PermanentError(StepExecutionError):
    """Another attempt would fail in the same way."""

    retryable = False


class ValidationError(PermanentError):
    """The input is not valid; field names what."""

    def __init__(self, message: str = "", *positional: Any, field: str | None = None, **options: Any) -> None:
        super().__init__(message, *positional, **options)
        self.field = field
        if field is not None:
            self.metadata = {"field": field, **self.metadata}


class NotFoundError(PermanentError):
    """What is asked for does not exist."""


class AuthenticationError(PermanentError):
    """A service does not know who asks."""


class AuthorizationError(PermanentError):
    """Who asks may not do that."""


class ConfigurationError(PermanentError):
    """A setting is not valid."""


class BusinessLogicError(PermanentError):
    """A rule of the application forbids it."""


_NONE = object()


class ErrorClassifier:
    """Says whether another attempt may help, by the exception's own mark or else its class."""

    PERMANENT_ERROR_CLASSES: tuple[type[BaseException], ...] = (
        PermanentError,
        ValidationError,
        NotFoundError,
        AuthenticationError,
        AuthorizationError,
        ConfigurationError,
        BusinessLogicError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        IndexError,
        AssertionError,
        SyntaxError,
        NameError,
        ImportError,
        NotImplementedError,
    )
    RETRYABLE_ERROR_CLASSES: tuple[type[BaseException], ...] = (
        RetryableError,
        TimeoutError,
        NetworkError,
        RateLimitError,
        ServiceUnavailableError,
        ResourceContentionError,
        builtins.TimeoutError,
        ConnectionError,
        BrokenPipeError,
        BlockingIOError,
        InterruptedError,
        OSError,
    )

    def __init__(self, *, default_retryable: bool = True) -> None:
        self._default_retryable = default_retryable

    def retryable(self, exception: BaseException) -> bool:
        return bool(self.classify(exception)["retryable"])

    def permanent(self, exception: BaseException) -> bool:
        return not self.retryable(exception)

    def classify(self, exception: BaseException) -> dict[str, bool | str]:
        """The name of the class, whether to try again, and what has said so."""
        own = getattr(exception, "retryable", _NONE)
        if own is not _NONE:
            again, why = bool(own), "explicit_attribute"
        elif isinstance(exception, self.PERMANENT_ERROR_CLASSES):
            again, why = False, "permanent_class"
        elif isinstance(exception, self.RETRYABLE_ERROR_CLASSES):
            again, why = True, "retryable_class"
        else:
            again, why = self._default_retryable, "default"
        return {"error_type": type(exception).__name__, "retryable": again, "classification": why}


_classifier = ErrorClassifier()


def get_classifier() -> ErrorClassifier:
    return _classifier


def is_retryable(exception: BaseException) -> bool:
    return _classifier.retryable(exception)


def is_permanent(exception: BaseException) -> bool:
    return _classifier.permanent(exception)


class HandlerNotFoundError(ResolutionError):
    """The registry has no such handler."""


class MethodNotFoundError(ResolutionError):
    """The handler has no such method."""


_SENT = ("error_code", "retry_after")  # of the metadata: the report has them in fields of their own


def failure_of(error: TaskerError) -> native.TaskerError:
    """The failure that the package reports."""
    kind = native.Retryable if error.retryable else native.Permanent
    return kind(
        str(error),
        code=getattr(error, "error_code", None) or "",
        details={k: v for k, v in getattr(error, "metadata", {}).items() if k not in _SENT} or None,
        error_type=getattr(error, "error_type", "") or type(error).__name__,
        after=getattr(error, "retry_after", None) or 0,
    )


def failed(result: StepHandlerResult) -> native.TaskerError:
    """The failure that a result says."""
    kind = native.Retryable if result.retryable else native.Permanent
    after = result.metadata.get("retry_after")
    return kind(
        result.error_message or "the handler failed",
        code=result.error_code or "",
        details=result.metadata or None,
        error_type=vars(result).get("_reported") or result.error_type or "handler_error",
        after=float(after) if isinstance(after, (int, float)) else 0,
    )
