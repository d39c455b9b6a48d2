"""Handlers that are functions: the decorators of tasker_core.step_handler.functional.

A decorated function stays callable as it is; its class of handler is _handler_class, which registries discover and
register. What a function returns becomes the result of its step, and what it raises the failure.
"""

from __future__ import annotations

import dataclasses
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from .. import _errors
from .errors import PermanentError, RetryableError, TaskerError
from .step_handler import APIMixin, BatchableMixin, DecisionMixin, StepHandler
from .types import DecisionPointOutcome, ErrorType, StepContext, StepHandlerResult, plain

F = TypeVar("F", bound=Callable[..., Any])


@runtime_checkable
class FunctionalHandler(Protocol):
    """A function with its class of handler."""

    _handler_class: type[StepHandler]

    def __call__(self, *positional: Any, **named: Any) -> Any: ...


HandlerDecorator = Callable[[Callable[..., Any]], FunctionalHandler]


@dataclass(frozen=True)
class Decision:
    """What a decision function returns."""

    outcome: DecisionPointOutcome

    @staticmethod
    def route(steps: Sequence[str], **routing_context: Any) -> Decision:
        return Decision(DecisionPointOutcome.create_steps(steps, routing_context))

    @staticmethod
    def skip(reason: str, **routing_context: Any) -> Decision:
        return Decision(DecisionPointOutcome.no_branches(reason, routing_context))


@dataclass
class BatchConfig:
    """What an analyzer function returns."""

    total_items: int
    batch_size: int
    metadata: dict[str, Any] = field(default_factory=dict)


def depends_on(**deps: str | tuple[str, type]) -> Callable[[F], F]:
    """Parameters that get the results of steps: of the step with the name, or of (name, model) converted."""

    def declare(fn: F) -> F:
        steps, models = dict(getattr(fn, "_depends_on", {})), dict(getattr(fn, "_dep_models", {}))
        for parameter, step in deps.items():
            if isinstance(step, tuple):
                steps[parameter], models[parameter] = step
            else:
                steps[parameter] = step
        vars(fn).update(_depends_on=steps, _dep_models=models)
        return fn

    return declare


def inputs(*keys_or_model: str | type) -> Callable[[F], F]:
    """Parameters that get fields of the task's context; or the parameter inputs, a model of them."""

    def declare(fn: F) -> F:
        if len(keys_or_model) == 1 and isinstance(keys_or_model[0], type):
            vars(fn)["_input_model"] = keys_or_model[0]
        else:
            vars(fn)["_inputs"] = [*getattr(fn, "_inputs", []), *keys_or_model]
        return fn

    return declare


def step_handler(name: str, version: str = "1.0.0") -> HandlerDecorator:
    return _handler(name, version)


def decision_handler(name: str, version: str = "1.0.0") -> HandlerDecorator:
    def decided(handler: Any, result: Any) -> StepHandlerResult:
        if not isinstance(result, Decision):
            return _success(result)
        outcome = result.outcome
        if outcome.requires_step_creation:
            return cast(StepHandlerResult, handler.decision_success(outcome.step_names, outcome.routing_context))
        return cast(StepHandlerResult, handler.skip_branches(outcome.reason, outcome.routing_context))

    return _handler(name, version, DecisionMixin, finish=decided)


def batch_analyzer(name: str, worker_template: str, version: str = "1.0.0") -> HandlerDecorator:
    def analyzed(handler: Any, result: Any) -> StepHandlerResult:
        if not isinstance(result, BatchConfig):
            return _success(result)
        cursors = handler.create_cursor_ranges(result.total_items, result.batch_size)
        found = handler.batch_analyzer_success(cursors, result.total_items, worker_template, result.metadata)
        return cast(StepHandlerResult, found)

    return _handler(name, version, BatchableMixin, finish=analyzed)


def batch_worker(name: str, version: str = "1.0.0") -> HandlerDecorator:
    """The function gets its batch as batch_context."""

    def batch(handler: Any, context: StepContext) -> dict[str, Any]:
        return {"batch_context": handler.get_batch_context(context)}

    return _handler(name, version, BatchableMixin, more=batch)


def api_handler(
    name: str,
    base_url: str,
    version: str = "1.0.0",
    timeout: float = 30.0,
    default_headers: Mapping[str, str] | None = None,
) -> HandlerDecorator:
    """The function gets the client as api; timeout is in seconds."""
    settings = {"base_url": base_url, "default_timeout": timeout, "default_headers": dict(default_headers or {})}
    return _handler(name, version, APIMixin, more=lambda handler, context: {"api": handler}, settings=settings)


def _handler(
    name: str,
    version: str,
    *mixins: type,
    more: Callable[[Any, StepContext], dict[str, Any]] = lambda handler, context: {},
    finish: Callable[[Any, Any], StepHandlerResult] = lambda handler, result: _success(result),
    settings: Mapping[str, Any] | None = None,
) -> HandlerDecorator:
    """Makes the class of a function: more are arguments of its kind, and finish makes the result."""

    def ended(handler: Any, result: Any) -> StepHandlerResult:
        return result if isinstance(result, StepHandlerResult) else finish(handler, result)

    def decorate(fn: Callable[..., Any]) -> FunctionalHandler:
        async def call_later(self: Any, context: StepContext) -> StepHandlerResult:
            try:
                return ended(self, await fn(**_arguments(fn, context), **more(self, context)))
            except Exception as e:
                return _failure(e)

        def call(self: Any, context: StepContext) -> StepHandlerResult:
            try:
                return ended(self, fn(**_arguments(fn, context), **more(self, context)))
            except Exception as e:
                return _failure(e)

        members = {
            **(settings or {}),
            "handler_name": name,
            "handler_version": version,
            "call": call_later if inspect.iscoroutinefunction(fn) else call,
            "__module__": fn.__module__,
            "__qualname__": fn.__qualname__,
            "__doc__": fn.__doc__,
        }
        vars(fn)["_handler_class"] = type(fn.__name__, (*mixins, StepHandler), members)
        return cast(FunctionalHandler, fn)

    return decorate


def _arguments(fn: Callable[..., Any], context: StepContext) -> dict[str, Any]:
    models: Mapping[str, type] = getattr(fn, "_dep_models", {})
    found: dict[str, Any] = {}
    for parameter, step in getattr(fn, "_depends_on", {}).items():
        result = context.get_dependency_result(step)
        model = models.get(parameter)
        found[parameter] = result if model is None or not isinstance(result, Mapping) else _made(model, result)
    model = getattr(fn, "_input_model", None)
    if model is not None:
        found["inputs"] = model(**_fields(model, context))
    for key in getattr(fn, "_inputs", []):
        found[key] = context.get_input(key)
    parameters = inspect.signature(fn).parameters
    for name in ("context", "_context"):
        if name in parameters:
            found[name] = context
            break
    # A parameter that the function does not use may have an underscore before its name.
    return {f"_{k}" if k not in parameters and f"_{k}" in parameters else k: v for k, v in found.items()}


def _made(model: Any, result: Mapping[str, Any]) -> Any:
    """A model of a step's result."""
    if hasattr(model, "model_validate"):
        return model.model_validate(result)
    known = _names(model)
    return model(**{name: value for name, value in result.items() if known is None or name in known})


def _names(model: Any) -> set[str] | None:
    """The fields of a dataclass; None of another class."""
    return {f.name for f in dataclasses.fields(model)} if dataclasses.is_dataclass(model) else None


def _fields(model: Any, context: StepContext) -> dict[str, Any]:
    """The fields of a model in the task's context. One that is absent is None, unless the model has a default."""
    names: dict[str, bool] = {}  # whether it is required
    if hasattr(model, "model_fields"):
        names = {name: info.is_required() for name, info in model.model_fields.items()}
    elif dataclasses.is_dataclass(model):
        absent = dataclasses.MISSING
        names = {f.name: f.default is absent and f.default_factory is absent for f in dataclasses.fields(model)}
    else:
        names = {name: not hasattr(model, name) for name in getattr(model, "__annotations__", {})}
    values = {name: context.get_input(name) for name in names}
    return {name: value for name, value in values.items() if value is not None or names[name]}


def _success(result: Any) -> StepHandlerResult:
    if hasattr(result, "model_dump") or dataclasses.is_dataclass(result):
        result = plain(result)
    if result is None:
        result = {}
    elif not isinstance(result, dict):
        result = {"result": result}
    return StepHandlerResult.success_handler_result(result)


def _failure(error: Exception) -> StepHandlerResult:
    if isinstance(error, (_errors.TaskerError, _errors.Yield, _errors.Cancelled, _errors.Returned)):
        raise error  # the worker's own: a yield, an end of the session
    metadata = dict(getattr(error, "metadata", None) or {})
    again = bool(getattr(error, "retryable", True))
    if isinstance(error, PermanentError):
        kind, again = ErrorType.PERMANENT_ERROR, False
    elif isinstance(error, RetryableError):
        kind, again = ErrorType.RETRYABLE_ERROR, True
    else:
        kind = ErrorType.HANDLER_ERROR
        if not isinstance(error, TaskerError):
            again = True
            metadata = {"exception_type": type(error).__name__, "traceback": traceback.format_exc()}
    if getattr(error, "retry_after", None) is not None:
        metadata.setdefault("retry_after", error.retry_after)  # type: ignore[attr-defined]
    code = getattr(error, "error_code", None)
    failed = StepHandlerResult.failure_handler_result(
        str(error), kind, retryable=again, metadata=metadata, error_code=code
    )
    vars(failed)["_reported"] = _REPORTED[kind]
    return failed


# The error types in reports of steps, which are those of raised exceptions.
_REPORTED = {
    ErrorType.PERMANENT_ERROR: "PermanentError",
    ErrorType.RETRYABLE_ERROR: "RetryableError",
    ErrorType.HANDLER_ERROR: "handler_error",
}


__all__ = [
    "BatchConfig",
    "Decision",
    "FunctionalHandler",
    "HandlerDecorator",
    "api_handler",
    "batch_analyzer",
    "batch_worker",
    "decision_handler",
    "depends_on",
    "inputs",
    "step_handler",
]
