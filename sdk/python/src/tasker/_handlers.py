"""Handlers: functions with injected arguments, decisions, batches, and what else a process offers."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Awaitable, Callable, Mapping, Sequence, TypeVar, Union

from ._context import Batch, StepContext
from ._errors import Absent, Permanent, Retryable
from ._events import Event, FunctionSubscriber, Publisher, Subscriber, name_of
from ._models import converted

JSON = Any
HandlerFunction = Callable[[StepContext], Union[JSON, Awaitable[JSON]]]
F = TypeVar("F", bound=HandlerFunction)
A = TypeVar("A", bound=Callable[..., Any])
Dependencies = Mapping[str, Union[str, "tuple[str, type[Any]]"]]
Inputs = Union[Sequence[str], "type[Any]", None]

_STEP = "__tasker_handlers__"  # attribute of a decorated function: what a worker calls for it


@dataclass(frozen=True)
class Decision:
    """What a decision creates: the named steps, or none. result is merged into the step's result."""

    steps: tuple[str, ...]
    result: Mapping[str, JSON] = dataclasses.field(default_factory=dict)

    @classmethod
    def route(cls, *steps: str, result: Mapping[str, JSON] | None = None) -> Decision:
        if not steps:
            raise ValueError("route a decision: want at least one step; skip is for none")
        return cls(steps, result or {})

    @classmethod
    def skip(cls, result: Mapping[str, JSON] | None = None) -> Decision:
        return cls((), result or {})

    def outcome(self) -> dict[str, JSON]:
        if not self.steps:
            return {"type": "no_branches"}
        return {"type": "create_steps", "step_names": list(self.steps)}


@dataclass(frozen=True)
class Cursor:
    """The part of one batch: start and end are any JSON, end is exclusive. items are the items of the batch, instead
    of those between cursors."""

    id: str
    start: JSON = None
    end: JSON = None
    size: int = 0
    items: Sequence[JSON] | None = None

    def wire(self) -> dict[str, JSON]:
        size = self.size or len(self.items or ())
        cursor = {"batch_id": self.id, "start_cursor": self.start, "end_cursor": self.end, "batch_size": size}
        return cursor if self.items is None else {**cursor, "items": list(self.items)}


@dataclass(frozen=True)
class BatchConfig:
    """How a batchable step divides total_items: in batches of batch_size, or larger ones if there would be more than
    max_batches; or by cursors. result is merged into the step's result."""

    total_items: int
    batch_size: int = 0
    max_batches: int = 0
    result: Mapping[str, JSON] = dataclasses.field(default_factory=dict)
    cursors: Sequence[Cursor] | None = None

    def outcome(self, worker_template: str) -> dict[str, JSON]:
        cursors = self._split() if self.cursors is None else [c.wire() for c in self.cursors]
        if not cursors:
            return {"type": "no_batches"}
        return {
            "type": "create_batches",
            "worker_template_name": worker_template,
            "worker_count": len(cursors),
            "cursor_configs": cursors,
            "total_items": self.total_items,
        }

    def _split(self) -> list[dict[str, JSON]]:
        if self.total_items < 0 or self.batch_size < 1:
            raise Permanent(
                f"invalid batches of {self.batch_size} of {self.total_items} items", error_type="InvalidBatches"
            )
        if self.total_items == 0:
            return []
        count = -(-self.total_items // self.batch_size)
        if 0 < self.max_batches < count:
            count = self.max_batches
            size = -(-self.total_items // count)
            count = -(-self.total_items // size)
        else:
            size = self.batch_size
        return [
            Cursor(f"{i + 1:03d}", start := i * size, end := min((i + 1) * size, self.total_items), end - start).wire()
            for i in range(count)
        ]


class Resolver:
    """Finds the handlers of callables that are not registered by their names. A template names it with
    handler.resolver; of those that name none, it gets the steps whose callable no handler has.

    callables are those that it is offered for: names, or prefixes such as service://*. The worker takes their steps, so
    they should be no others than resolve finds.
    """

    name: str = ""
    priority: int = 50
    callables: Sequence[str] = ()
    methods: Sequence[str] = ("*",)

    def can_resolve(self, ctx: StepContext) -> bool:
        """Whether resolve should be asked for the step (ctx.callable, ctx.method, ctx.config)."""
        return True

    def resolve(self, ctx: StepContext) -> object:
        """The handler of the step: a function of the context, or an object with methods. It may be a coroutine."""
        raise NotImplementedError

    def fits(self, callable: str) -> bool:
        """Whether it is offered for a callable."""
        return any(callable.startswith(c[:-1]) if c.endswith("*") else callable == c for c in self.callables)


class Handlers:
    """A collection of handlers, publishers, subscribers and resolvers, which Worker.include takes over. A Worker is
    one itself."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[str, str], HandlerFunction] = {}
        self._publishers: dict[str, Publisher] = {}
        self._subscribers: list[Subscriber] = []
        self._resolvers: list[Resolver] = []
        self._included: list[Handlers] = []
        self._aliases: dict[str, str] = {}  # other names of a callable

    def handler(self, callable: str, method: str = "call") -> Callable[[F], F]:
        """Registers a function of the context as the handler of a callable, or of one of its methods."""

        def register(function: F) -> F:
            self._add(callable, method, function)
            return function

        return register

    def register(self, callable: str, handler: object) -> None:
        """Registers an object: its method call, and further public methods by their names. Or a function, or what can
        be called like one."""
        for method, function in methods_of(callable, handler).items():
            self._add(callable, method, function)

    def publisher(self, publisher: Publisher) -> Publisher:
        """Registers a publisher of domain events by its name."""
        if name_of(publisher) in self._publishers:
            raise ValueError(f"register publisher {name_of(publisher)!r}: the name is already registered")
        self._publishers[name_of(publisher)] = publisher
        return publisher

    def subscriber(self, subscriber: Subscriber) -> Subscriber:
        """Registers a subscriber of fast domain events."""
        if not subscriber.patterns:
            raise ValueError(
                f"register subscriber {subscriber.name or type(subscriber).__name__!r}: want at least one pattern"
            )
        self._subscribers.append(subscriber)
        return subscriber

    def subscribe(self, *patterns: str) -> Callable[[Callable[[Event], Any]], Callable[[Event], Any]]:
        """Registers a function of an event as a subscriber."""

        def register(function: Callable[[Event], Any]) -> Callable[[Event], Any]:
            self.subscriber(FunctionSubscriber(patterns, function))
            return function

        return register

    def resolver(self, resolver: Resolver) -> Resolver:
        """Registers a resolver by its name."""
        if not resolver.name or not resolver.callables:
            raise ValueError(
                f"register resolver {resolver.name!r}: want a name and the callables that it is offered for"
            )
        if any(r.name == resolver.name for r in self._resolvers):
            raise ValueError(f"register resolver {resolver.name!r}: the name is already registered")
        self._resolvers.append(resolver)
        self._resolvers.sort(key=lambda r: r.priority)
        return resolver

    def include(self, others: Handlers) -> None:
        """Registers what another collection has, once."""
        if any(others is one for one in self._included):
            return
        self._included.append(others)
        self._aliases.update(others._aliases)
        for (callable, method), function in others._handlers.items():
            self._add(callable, method, function)
        for publisher in others._publishers.values():
            self.publisher(publisher)
        for subscriber in others._subscribers:
            self.subscriber(subscriber)
        for resolver in others._resolvers:
            self.resolver(resolver)

    def discover(self, package: str | ModuleType) -> int:
        """Imports a package with all of its modules, or a module, and includes the collections in them. Returns
        how many handlers were added."""
        before = len(self._handlers)
        for module in modules_of(package):
            for value in list(vars(module).values()):
                if isinstance(value, Handlers) and value is not self and type(value) is Handlers:
                    self.include(value)
        return len(self._handlers) - before

    def find(self, callable: str, method: str = "call") -> HandlerFunction:
        """The handler that is registered, as a worker calls it: for tests, with run_step. Raises LookupError."""
        if (callable, method) not in self._handlers:
            raise LookupError(f"no handler of {callable!r} with the method {method!r}")
        return self._handlers[callable, method]

    def step(self, callable: str, *, depends_on: Dependencies | None = None, inputs: Inputs = None) -> Callable[[A], A]:
        """Registers a function that gets the context and, as keyword arguments, the results of steps
        (depends_on: argument to step, or to step and model) and fields of the task's context. inputs are names of
        fields, or a dataclass or pydantic model, whose object is the argument inputs. An argument with a default may
        be absent. The function itself stays as it is."""
        return self._injecting(callable, depends_on, inputs, lambda result: result)

    def decision(
        self, callable: str, *, depends_on: Dependencies | None = None, inputs: Inputs = None
    ) -> Callable[[A], A]:
        """Like step, for a function that returns a Decision."""

        def wire(result: JSON) -> JSON:
            if not isinstance(result, Decision):
                raise Permanent(
                    f"a decision must return Decision.route or Decision.skip, not {type(result).__name__}",
                    error_type="InvalidOutcome",
                )
            return {"route": list(result.steps), **result.result, "decision_point_outcome": result.outcome()}

        return self._injecting(callable, depends_on, inputs, wire)

    def batch_analyzer(
        self, callable: str, worker_template: str, *, depends_on: Dependencies | None = None, inputs: Inputs = None
    ) -> Callable[[A], A]:
        """Like step, for a function that returns a BatchConfig."""

        def wire(result: JSON) -> JSON:
            if not isinstance(result, BatchConfig):
                raise Permanent(
                    f"an analyzer must return BatchConfig, not {type(result).__name__}", error_type="InvalidOutcome"
                )
            return {**result.result, "batch_processing_outcome": result.outcome(worker_template)}

        return self._injecting(callable, depends_on, inputs, wire)

    def batch_worker(
        self, callable: str, *, depends_on: Dependencies | None = None, inputs: Inputs = None
    ) -> Callable[[A], A]:
        """Like step, for a function of the context and the batch. It is not called for a batch without work."""

        def register(function: A) -> A:
            arguments = _arguments(function, depends_on, inputs)

            def call(ctx: StepContext) -> JSON:
                batch: Batch | None = ctx.batch
                if batch is None:
                    raise Permanent(f"step {ctx.step_name} is not a batch", error_type="NotABatch")
                return {"no_op": True} if batch.no_op else function(ctx, batch, **arguments(ctx))

            self._add(callable, "call", _remembered(function, call))
            return function

        return register

    def _injecting(
        self, callable: str, depends_on: Dependencies | None, inputs: Inputs, wire: Callable[[JSON], JSON]
    ) -> Callable[[A], A]:
        def register(function: A) -> A:
            arguments = _arguments(function, depends_on, inputs)

            def call(ctx: StepContext) -> JSON:
                # The arguments are read in the thread of the handler, where they may wait, also for a coroutine.
                return _then(function(ctx, **arguments(ctx)), wire)

            self._add(callable, "call", _remembered(function, call))
            return function

        return register

    def _add(self, callable: str, method: str, function: HandlerFunction) -> None:
        if (callable, method) in self._handlers:
            raise ValueError(f"register handler {callable!r}: the method {method!r} is already registered")
        self._handlers[callable, method] = function


def methods_of(name: str, handler: object) -> dict[str, HandlerFunction]:
    """The entry points of a handler: those of an object, or call of a function."""
    if inspect.isroutine(handler) or isinstance(handler, functools.partial):
        return {"call": handler}
    if isinstance(handler, type):
        raise ValueError(f"register handler {name!r}: want an object of the class {handler.__name__}, not the class")
    found: dict[str, HandlerFunction] = {n: m for n, m in inspect.getmembers(handler, _entry) if not n.startswith("_")}
    if not found and callable(handler):
        return {"call": handler}
    if not found:
        raise ValueError(f"register handler {name!r}: want a function or an object with methods")
    return found


def _entry(member: object) -> bool:
    return inspect.isroutine(member) or isinstance(member, functools.partial)


def registered(handler: Any) -> HandlerFunction:
    """What a worker calls for a decorated function; another one is called as it is."""
    steps: list[HandlerFunction] = getattr(handler, _STEP, [])
    if len(steps) > 1:
        raise ValueError(
            f"{getattr(handler, '__name__', handler)} is registered {len(steps)} times: want what handlers.find returns"
        )
    return steps[0] if steps else handler


def modules_of(package: str | ModuleType) -> list[ModuleType]:
    """A module and, of a package, all of its modules."""
    module = importlib.import_module(package) if isinstance(package, str) else package
    found = [module]
    for info in pkgutil.walk_packages(getattr(module, "__path__", ()), module.__name__ + ".", onerror=_raised):
        if not info.name.endswith("__main__"):
            found.append(importlib.import_module(info.name))
    return found


def _raised(name: str) -> None:
    raise ImportError(f"import the package {name}: it failed")


def _remembered(function: Any, call: HandlerFunction) -> HandlerFunction:
    try:
        setattr(function, _STEP, [*getattr(function, _STEP, []), call])
    except AttributeError:
        pass  # a method; find returns it
    return call


def _then(result: JSON, wire: Callable[[JSON], JSON]) -> JSON:
    """The wire form of a result, or of what it will be when it is awaited."""
    if not inspect.isawaitable(result):
        return wire(result)

    async def later() -> JSON:
        value = result
        while inspect.isawaitable(value):
            value = await value
        return wire(value)

    return later()


def _arguments(
    function: Callable[..., Any], depends_on: Dependencies | None, inputs: Inputs
) -> Callable[[StepContext], dict[str, JSON]]:
    """What reads the injected arguments of a function."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        parameters = {}  # type: ignore[assignment]
    optional = {name for name, p in parameters.items() if p.default is not inspect.Parameter.empty}

    def arguments(ctx: StepContext) -> dict[str, JSON]:
        found: dict[str, JSON] = {}
        for name, dependency in (depends_on or {}).items():
            try:
                found[name] = ctx.result(dependency) if isinstance(dependency, str) else ctx.result_as(*dependency)
            except Absent as e:
                if name not in optional:
                    raise Permanent(str(e), code="MISSING_DEPENDENCY", error_type="InvalidInput") from e
        return {**found, **_inputs(ctx, inputs, optional)}

    return arguments


def _inputs(ctx: StepContext, inputs: Inputs, optional: set[str]) -> dict[str, JSON]:
    if inputs is None:
        return {}
    context = ctx.context if isinstance(ctx.context, dict) else {}
    if isinstance(inputs, type):
        return {"inputs": converted(context, inputs, "the task's context", "InvalidInput")}
    missing = [name for name in inputs if name not in context and name not in optional]
    if missing:
        raise Permanent(
            f"the task's context lacks {', '.join(missing)}", code="MISSING_CONTEXT_FIELD", error_type="InvalidInput"
        )
    return {name: context[name] for name in inputs if name in context}


def resolved(found: object, ctx: StepContext, resolver: Resolver) -> HandlerFunction:
    """The entry point of what a resolver has found."""
    if found is None:
        raise Retryable(
            f"resolver {resolver.name} returned no handler for callable {ctx.callable!r}", error_type="ResolutionError"
        )
    methods = methods_of(ctx.callable, found)
    if ctx.method not in methods:
        raise Permanent(
            f"MethodNotFound: Handler '{ctx.callable}' does not respond to '{ctx.method}'; "
            f"it has {', '.join(sorted(methods))}",
            error_type="MethodNotFound",
        )
    return methods[ctx.method]
