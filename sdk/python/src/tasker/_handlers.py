"""Handlers: functions with injected arguments, decisions and batches."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any, Awaitable, Callable, Mapping, Sequence, TypeVar, Union

from ._context import Batch, StepContext
from ._errors import Permanent

JSON = Any
HandlerFunction = Callable[[StepContext], Union[JSON, Awaitable[JSON]]]
F = TypeVar("F", bound=HandlerFunction)
A = TypeVar("A", bound=Callable[..., Any])


@dataclass(frozen=True)
class Decision:
    """What a decision creates: the named steps, or none."""

    steps: tuple[str, ...]

    @classmethod
    def route(cls, *steps: str) -> Decision:
        if not steps:
            raise ValueError("route a decision: want at least one step; skip is for none")
        return cls(steps)

    @classmethod
    def skip(cls) -> Decision:
        return cls(())

    def outcome(self) -> dict[str, JSON]:
        if not self.steps:
            return {"type": "no_branches"}
        return {"type": "create_steps", "step_names": list(self.steps)}


@dataclass(frozen=True)
class BatchConfig:
    """How a batchable step divides total_items: in batches of batch_size, or larger ones if
    there would be more than max_batches. result is merged into the step's result."""

    total_items: int
    batch_size: int
    max_batches: int = 0
    result: Mapping[str, JSON] = dataclasses.field(default_factory=dict)

    def outcome(self, worker_template: str) -> dict[str, JSON]:
        if self.total_items < 0 or self.batch_size < 1:
            raise Permanent(f"invalid batches of {self.batch_size} of {self.total_items} items", error_type="InvalidBatches")
        if self.total_items == 0:
            return {"type": "no_batches"}
        count = -(-self.total_items // self.batch_size)
        if 0 < self.max_batches < count:
            count = self.max_batches
            size = -(-self.total_items // count)
            count = -(-self.total_items // size)
        else:
            size = self.batch_size
        cursors = []
        for i in range(count):
            start, end = i * size, min((i + 1) * size, self.total_items)
            cursors.append({"batch_id": f"{i + 1:03d}", "start_cursor": start, "end_cursor": end, "batch_size": end - start})
        return {"type": "create_batches", "worker_template_name": worker_template, "worker_count": count,
                "cursor_configs": cursors, "total_items": self.total_items}


class Handlers:
    """A collection of handlers, which Worker.include takes over. A Worker is one itself."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[str, str], HandlerFunction] = {}

    def handler(self, callable: str, method: str = "call") -> Callable[[F], F]:
        """Registers a function of the context as the handler of a callable, or of one of its methods."""

        def register(function: F) -> F:
            self._add(callable, method, function)
            return function

        return register

    def register(self, callable: str, handler: object) -> None:
        """Registers an object: its method call, and further public methods by their names."""
        methods: dict[str, HandlerFunction] = {}
        if inspect.isfunction(handler):
            methods["call"] = handler
        else:
            methods.update((n, m) for n, m in inspect.getmembers(handler, inspect.ismethod) if not n.startswith("_"))
        if not methods:
            raise ValueError(f"register handler {callable!r}: want a function or an object with methods")
        for method, function in methods.items():
            self._add(callable, method, function)

    def include(self, others: Handlers) -> None:
        """Registers the handlers of another collection."""
        for (callable, method), function in others._handlers.items():
            self._add(callable, method, function)

    def step(self, callable: str, *, depends_on: Mapping[str, str] | None = None,
             inputs: Sequence[str] | type[Any] | None = None) -> Callable[[A], A]:
        """Registers a function that gets the context and, as keyword arguments, the results of steps
        (depends_on: argument to step) and fields of the task's context. inputs are names of
        fields, which must exist, or a dataclass or pydantic model, whose object is the argument inputs."""

        def register(function: A) -> A:
            self._add(callable, "call", _injected(function, depends_on or {}, inputs, lambda result: result))
            return function

        return register

    def decision(self, callable: str, *, depends_on: Mapping[str, str] | None = None,
                 inputs: Sequence[str] | type[Any] | None = None) -> Callable[[A], A]:
        """Like step, for a function that returns a Decision."""

        def wire(result: JSON) -> JSON:
            if not isinstance(result, Decision):
                raise Permanent(f"a decision must return Decision.route or Decision.skip, not {type(result).__name__}", error_type="InvalidOutcome")
            return {"route": list(result.steps), "decision_point_outcome": result.outcome()}

        def register(function: A) -> A:
            self._add(callable, "call", _injected(function, depends_on or {}, inputs, wire))
            return function

        return register

    def batch_analyzer(self, callable: str, worker_template: str, *, depends_on: Mapping[str, str] | None = None,
                       inputs: Sequence[str] | type[Any] | None = None) -> Callable[[A], A]:
        """Like step, for a function that returns a BatchConfig."""

        def wire(result: JSON) -> JSON:
            if not isinstance(result, BatchConfig):
                raise Permanent(f"an analyzer must return BatchConfig, not {type(result).__name__}", error_type="InvalidOutcome")
            return {**result.result, "batch_processing_outcome": result.outcome(worker_template)}

        def register(function: A) -> A:
            self._add(callable, "call", _injected(function, depends_on or {}, inputs, wire))
            return function

        return register

    def batch_worker(self, callable: str) -> Callable[[Callable[[StepContext, Batch], JSON]], Callable[[StepContext, Batch], JSON]]:
        """Registers a function of the context and the batch. It is not called for a batch without work."""

        def register(function: Callable[[StepContext, Batch], JSON]) -> Callable[[StepContext, Batch], JSON]:
            def call(ctx: StepContext) -> JSON:
                batch = ctx.batch
                if batch is None:
                    raise Permanent(f"step {ctx.step_name} is not a batch", error_type="NotABatch")
                return {"no_op": True} if batch.no_op else function(ctx, batch)

            self._add(callable, "call", call)
            return function

        return register

    def _add(self, callable: str, method: str, function: HandlerFunction) -> None:
        if (callable, method) in self._handlers:
            raise ValueError(f"register handler {callable!r}: the method {method!r} is already registered")
        self._handlers[callable, method] = function


def _injected(function: Callable[..., Any], depends_on: Mapping[str, str], inputs: Sequence[str] | type[Any] | None,
              wire: Callable[[JSON], JSON]) -> HandlerFunction:
    def arguments(ctx: StepContext) -> dict[str, JSON]:
        return {**{name: ctx.result(step) for name, step in depends_on.items()}, **_inputs(ctx, inputs)}

    if inspect.iscoroutinefunction(function):

        async def later(ctx: StepContext) -> JSON:
            return wire(await function(ctx, **arguments(ctx)))

        return later

    def call(ctx: StepContext) -> JSON:
        return wire(function(ctx, **arguments(ctx)))

    return call


def _inputs(ctx: StepContext, inputs: Sequence[str] | type[Any] | None) -> dict[str, JSON]:
    if inputs is None:
        return {}
    context = ctx.context if isinstance(ctx.context, dict) else {}
    if not isinstance(inputs, type):
        missing = [name for name in inputs if name not in context]
        if missing:
            raise Permanent(f"the task's context lacks {', '.join(missing)}", code="MISSING_CONTEXT_FIELD", error_type="InvalidInput")
        return {name: context[name] for name in inputs}
    try:
        if hasattr(inputs, "model_validate"):
            return {"inputs": inputs.model_validate(context)}
        names = {f.name for f in dataclasses.fields(inputs) if f.init}
        return {"inputs": inputs(**{name: value for name, value in context.items() if name in names})}
    except (TypeError, ValueError) as e:
        raise Permanent(f"the task's context does not fit {inputs.__name__}: {e}", error_type="InvalidInput") from e
