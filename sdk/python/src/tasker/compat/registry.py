"""The registry of handlers and the chain of resolvers of tasker_core."""

from __future__ import annotations

import abc
import importlib
import importlib.util
import inspect
import logging
import os
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Iterator, Mapping

from .. import _errors
from .. import _handlers as native
from .._context import StepContext as Step
from .._threads import Loop, in_coroutine
from .domain_events import PublisherRegistry, SubscriberRegistry
from .errors import MethodNotFoundError, ResolutionError, ResolverNotFoundError, TaskerError, failed, failure_of
from .models import HandlerWrapper
from .step_handler import StepHandler
from .types import FfiStepEvent, Model, StepContext, StepHandlerResult, plain

JSON = Any
_log = logging.getLogger("tasker_core")

# What runs a step for a name: the handler at once, or a subscriber that is told of the step.
Execute = Callable[[Step, str], JSON]


@dataclass
class HandlerDefinition(Model):
    """The address of a handler, as in a template."""

    callable: str
    method: str | None = None
    resolver: str | None = None
    initialization: dict[str, Any] = field(default_factory=dict)

    @property
    def handler_method(self) -> str:
        return self.method or "call"


@dataclass
class ResolutionContext(Model):
    """The step that a handler is resolved for."""

    namespace: str = ""
    task_name: str = ""
    step_name: str = ""
    registry: Any = None


ResolvedHandler = Any


class BaseResolver(abc.ABC):
    """Finds handlers by their callables. callables names those that the process is offered for, such as
    ("service://*",): it takes their steps. Without it these are all callables that no handler of the process has."""

    callables: Any = ("*",)

    @abc.abstractmethod
    def resolver_name(self) -> str:
        """The value for handler.resolver."""

    def priority(self) -> int:
        return 50

    @abc.abstractmethod
    def can_resolve(self, definition: HandlerDefinition) -> bool:
        """Whether resolve should be asked."""

    @abc.abstractmethod
    def resolve(self, definition: HandlerDefinition, context: ResolutionContext) -> Any:
        """The handler, or None; it may be a coroutine."""


StepHandlerResolver = BaseResolver


def _attribute(one: object, name: str) -> Any:
    value = getattr(one, name)
    return value() if callable(value) else value


class ExplicitMappingResolver(BaseResolver):
    """Finds handlers by the names that they are registered under."""

    def __init__(self, registry: HandlerRegistry | None = None) -> None:
        self._registry = registry
        self._handlers: dict[str, Any] = {}

    def resolver_name(self) -> str:
        return "explicit_mapping"

    def priority(self) -> int:
        return 10

    def register(self, name: str, handler: Any) -> None:
        self._handlers[name] = handler

    def can_resolve(self, definition: HandlerDefinition) -> bool:
        return (
            definition.callable in self._handlers
            or self._registry is not None
            and self._registry.has(definition.callable)
        )

    def resolve(self, definition: HandlerDefinition, context: ResolutionContext) -> Any:
        if definition.callable in self._handlers:
            return _instance(self._handlers[definition.callable])
        return self._registry.instantiate(definition.callable) if self._registry is not None else None


class ClassLookupResolver(BaseResolver):
    """Finds handlers by the paths of their classes, such as payment_handlers.ProcessPaymentHandler."""

    def resolver_name(self) -> str:
        return "class_lookup"

    def priority(self) -> int:
        return 100

    def can_resolve(self, definition: HandlerDefinition) -> bool:
        return self.lookup(definition.callable) is not None

    def resolve(self, definition: HandlerDefinition, context: ResolutionContext) -> Any:
        found = self.lookup(definition.callable)
        return None if found is None else found()

    @staticmethod
    def lookup(path: str) -> type[Any] | None:
        """The class of a path, whose module is imported."""
        module, _, name = path.replace("::", ".").rpartition(".")
        if not module or not name[:1].isupper() or not all(part.isidentifier() for part in module.split(".")):
            return None
        try:
            if module not in sys.modules and importlib.util.find_spec(module) is None:
                return None
            found = getattr(importlib.import_module(module), name, None)
        except (ImportError, ValueError):
            return None
        return found if isinstance(found, type) and issubclass(found, StepHandler) else None


class ResolverChain:
    """Resolvers, asked in the order of their priority; a definition may name one."""

    def __init__(self) -> None:
        self._resolvers: list[Any] = []
        self._listeners: list[Callable[[], None]] = []

    @classmethod
    def default(cls, registry: HandlerRegistry | None = None) -> ResolverChain:
        chain = cls()
        chain.register(ExplicitMappingResolver(registry))
        chain.register(ClassLookupResolver())
        return chain

    def register(self, resolver: Any) -> ResolverChain:
        self._resolvers.append(resolver)
        self._resolvers.sort(key=lambda r: int(_attribute(r, "priority")))
        for listener in self._listeners:
            listener()
        return self

    add = register

    @property
    def resolvers(self) -> list[Any]:
        return list(self._resolvers)

    def list_resolvers(self) -> list[tuple[str, int]]:
        return [(str(_attribute(r, "resolver_name")), int(_attribute(r, "priority"))) for r in self._resolvers]

    def _asked(self, definition: HandlerDefinition) -> Iterator[Any]:
        named = {
            "ExplicitMappingResolver": "explicit_mapping",
            "ClassLookupResolver": "class_lookup",
            "ClassConstantResolver": "class_lookup",
            "class_constant": "class_lookup",
        }.get(definition.resolver or "", definition.resolver)
        return (r for r in self._resolvers if not named or _attribute(r, "resolver_name") == named)

    def can_resolve(self, definition: HandlerDefinition) -> bool:
        return any(r.can_resolve(definition) for r in self._asked(definition))

    def find(self, definition: HandlerDefinition, context: ResolutionContext | None = None) -> Any:
        """The handler, or what can be awaited for it. Raises ResolutionError."""
        for r in self._asked(definition):
            if r.can_resolve(definition):
                return r.resolve(definition, context or ResolutionContext())
        raise ResolutionError(f"No resolver could resolve callable '{definition.callable}'")

    def resolve(self, definition: HandlerDefinition, context: ResolutionContext | None = None) -> Any:
        found = self.find(definition, context)
        if not inspect.isawaitable(found) or in_coroutine():
            return found
        loop = Loop()
        try:
            return loop.value(found)
        finally:
            loop.close()


def _instance(handler: Any) -> Any:
    return handler() if isinstance(handler, type) else handler


class HandlerRegistry:
    """The handlers of the process, by their names."""

    _instance: HandlerRegistry | None = None
    _guard = threading.Lock()

    def __init__(self) -> None:
        self._handlers: dict[str, Any] = {}
        self._listeners: list[Callable[[str, Any], None]] = []
        self.resolver_chain = ResolverChain.default(self)

    @classmethod
    def instance(cls) -> HandlerRegistry:
        with cls._guard:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    @classmethod
    def reset_instance(cls) -> None:
        with cls._guard:
            cls._instance = None

    def register(self, name: Any, handler: Any = None) -> None:
        """Registers a class, or an object, under a name; a class alone under its handler_name, and a function with
        its decorator as the class that it has."""
        name, handler = getattr(name, "_handler_class", name), getattr(handler, "_handler_class", handler)
        if handler is None:
            name, handler = (getattr(name, "handler_name", "") or getattr(name, "__name__", type(name).__name__)), name
        if not isinstance(name, str) or not name:
            raise ValueError(f"register a handler: invalid name {name!r}: want a text")
        if not callable(getattr(handler, "call", None)) and not callable(handler):
            raise ValueError(f"register handler {name!r}: want a class with the method call")
        self._handlers[name] = handler
        for listener in list(self._listeners):
            listener(name, handler)

    register_handler = register

    def unregister(self, name: str) -> bool:
        return self._handlers.pop(name, None) is not None

    def clear(self) -> None:
        self._handlers.clear()

    def has(self, name: str) -> bool:
        return name in self._handlers

    def is_registered(self, name: str) -> bool:
        return self.has(name)

    handler_available = is_registered

    def instantiate(self, name: str) -> Any:
        return _instance(self._handlers[name])

    def resolve(self, name: str) -> Any:
        """A handler of the name or class path; None without one."""
        try:
            return self.resolver_chain.resolve(HandlerDefinition(name))
        except ResolutionError:
            return None

    resolve_handler = resolve

    def get_handler_class(self, name: str) -> Any:
        found = self._handlers.get(name)
        return found if found is None or isinstance(found, type) else type(found)

    def list_handlers(self) -> list[str]:
        return list(self._handlers)

    registered_handlers = list_handlers

    def handler_count(self) -> int:
        return len(self._handlers)

    def add_resolver(self, resolver: Any) -> None:
        self.resolver_chain.register(resolver)

    def on_register(self, listener: Callable[[str, Any], None]) -> None:
        self._listeners.append(listener)

    def discover_handlers(self, package: str | ModuleType) -> int:
        """Imports a package with its modules, and registers the handlers in them. Returns how many."""
        return sum(self.discover_module(module) for module in native.modules_of(package))

    def discover_module(self, module: ModuleType) -> int:
        """Registers the handlers that a module defines. One without handler_name is found by the path of its class."""
        count = 0
        for kind in list(vars(module).values()):
            kind = getattr(kind, "_handler_class", kind)
            if (
                isinstance(kind, type)
                and issubclass(kind, StepHandler)
                and kind.__module__ == module.__name__
                and not inspect.isabstract(kind)
            ):
                name = kind.handler_name or f"{kind.__module__}.{kind.__qualname__}"
                if self._handlers.get(name) is not kind:
                    self.register(name, kind)
                    count += 1
        return count

    def discover_path(self, path: str) -> int:
        """Imports the Python files below a folder, or a package, and registers their handlers."""
        folder = Path(path)
        if not folder.is_dir():
            return self.discover_handlers(path)
        top = folder
        while (top / "__init__.py").exists():
            top = top.parent
        for entry in dict.fromkeys((str(top.resolve()), str(folder.resolve()))):
            if entry not in sys.path:
                sys.path.append(entry)
        count = 0
        for file in sorted(folder.rglob("*.py")):
            parts = file.resolve().relative_to(top.resolve()).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            if (
                parts
                and parts[-1] != "__main__"
                and all(part.isidentifier() for part in parts)
                and not parts[-1].startswith("test_")
            ):
                count += self.discover_module(importlib.import_module(".".join(parts)))
        return count

    def names(self) -> dict[str, Any]:
        """The callables that the process is offered for: names, and the paths of classes."""
        return {**{alias: self._handlers[name] for alias, name in self.aliases().items()}, **self._handlers}

    def aliases(self) -> dict[str, str]:
        """The paths of the classes of handlers, with the names of these."""
        found: dict[str, str] = {}
        for name, handler in list(self._handlers.items()):
            kind = handler if isinstance(handler, type) else type(handler)
            if issubclass(kind, StepHandler):
                for path in (f"{kind.__module__}.{kind.__qualname__}", kind.__qualname__):
                    if path not in self._handlers:
                        found.setdefault(path, name)
        return found

    def natives(self, execute: Execute) -> native.Handlers:
        """The handlers for a worker of the package."""
        handlers = native.Handlers()
        handlers._aliases.update(self.aliases())
        for name, handler in self.names().items():
            add(handlers, name, handler, execute)
        known = {"explicit_mapping", "class_lookup"}
        for r in self.resolver_chain.resolvers:
            if _attribute(r, "resolver_name") not in known:
                handlers.resolver(_ResolverOf(r, execute))
        return handlers


def add(handlers: native.Handlers, name: str, handler: Any, execute: Execute) -> None:
    """Registers the entry points of a handler."""
    for method in entry_points(handler):
        if (name, method) not in handlers._handlers:
            handlers._add(name, method, lambda step, name=name: execute(step, name))  # type: ignore[misc]


def entry_points(handler: Any) -> list[str]:
    """call, and the public methods that an application has added: those of its classes, with one argument."""
    kind = handler if isinstance(handler, type) else type(handler)
    own = [k for k in kind.__mro__ if not k.__module__.startswith(__package__ or "tasker.compat") and k is not object]
    names = {
        n
        for k in own
        for n, m in vars(k).items()
        if inspect.isfunction(m) and not n.startswith("_") and _takes_context(m)
    }
    inherited = {n for k in kind.__mro__ if k not in own for n in vars(k)}
    return ["call", *sorted(names - inherited - {"call"})]


def _takes_context(method: Any) -> bool:
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return bool(parameters) and all(p.default is not p.empty for p in parameters[1:])


class _ResolverOf(native.Resolver):
    """A resolver there as one here."""

    def __init__(self, resolver: Any, execute: Execute) -> None:
        self.name, self.priority = str(_attribute(resolver, "resolver_name")), int(_attribute(resolver, "priority"))
        self.callables = getattr(resolver, "callables", None) or ("*",)
        self._resolver, self._execute = resolver, execute

    def can_resolve(self, ctx: Step) -> bool:
        return bool(self._resolver.can_resolve(definition_of(ctx)))

    def resolve(self, ctx: Step) -> object:
        return _Resolved(ctx.method, lambda step: self._execute(step, ctx.callable))


class _Resolved:
    """A handler whose methods the executing end finds."""

    def __init__(self, method: str, run: Callable[[Step], JSON]) -> None:
        setattr(self, method, run)


def definition_of(step: Step) -> HandlerDefinition:
    return HandlerDefinition(
        step.callable, None if step.method == "call" else step.method, step.resolver or None, dict(step.config)
    )


def find_handler(registry: HandlerRegistry, step: Step, name: str) -> Any:
    """The handler of a step, or what can be awaited for it."""
    if name in registry.names():
        return _instance(registry.names()[name])
    return registry.resolver_chain.find(
        definition_of(step), ResolutionContext(step.namespace, step.task_name, step.step_name, registry)
    )


def called(handler: Any, step: Step, name: str, event: FfiStepEvent | None = None) -> Any:
    """What the method of a handler returns for a step."""
    if handler is None:
        raise ResolutionError(f"No resolver could resolve callable '{step.callable}'")
    context = StepContext.of(step, name, event)
    method = getattr(handler, step.method, None) if not step.method.startswith("_") else None
    if method is None and step.method == "call" and callable(handler):
        method = handler
    if not callable(method):
        raise MethodNotFoundError(f"MethodNotFound: Handler '{step.callable}' does not respond to '{step.method}'")
    return method(context)


def taken(step: Step, result: Any) -> JSON:
    """The result of a step, from what a handler has returned. Raises what it says of a failure."""
    if not isinstance(result, StepHandlerResult):
        return result
    if not result.success:
        raise failed(result)
    if result.metadata.get("checkpoint_yield") is True:
        at = result.result if isinstance(result.result, Mapping) else {}
        count = int(at.get("items_processed") or 0)
        raise _errors.Yield(plain(at.get("cursor")), count, plain(at.get("accumulated_results")))
    step.metadata.update(plain(result.metadata))
    return plain(result.result)


def native_error(error: BaseException) -> BaseException:
    """What the package reports for an exception of a handler."""
    if isinstance(error, MethodNotFoundError):
        return _errors.Permanent(str(error), error_type="MethodNotFound")
    if isinstance(error, ResolutionError):
        return _errors.Retryable(str(error), error_type="HandlerNotFound")
    return failure_of(error) if isinstance(error, TaskerError) else error


def execute_at_once(registry: HandlerRegistry) -> Execute:
    """Runs handlers of a registry for their steps, without the events of a worker there."""

    async def later(step: Step, name: str, handler: Any) -> JSON:
        try:
            handler = await handler if inspect.isawaitable(handler) else handler
            result = called(handler, step, name)
            return taken(step, await result if inspect.isawaitable(result) else result)
        except Exception as e:
            raise _raised(e) from e.__cause__

    def execute(step: Step, name: str) -> JSON:
        try:
            handler = find_handler(registry, step, name)
            if inspect.isawaitable(handler):
                return later(step, name, handler)
            result = called(handler, step, name)
            return _awaited(step, result) if inspect.isawaitable(result) else taken(step, result)
        except Exception as e:
            raise _raised(e) from e.__cause__

    return execute


async def _awaited(step: Step, result: Any) -> JSON:
    try:
        return taken(step, await result)
    except Exception as e:
        raise _raised(e) from e.__cause__


def _raised(error: Exception) -> Exception:
    found = native_error(error)
    return found if isinstance(found, Exception) else error


def handlers(registry: HandlerRegistry | None = None) -> native.Handlers:
    """The handlers of a registry, that of the process by default, with the publishers and the started subscribers of
    the process, for Worker.include and tasker.testing.Engine."""
    registry = registry or HandlerRegistry.instance()
    found = registry.natives(execute_at_once(registry))
    for publisher in PublisherRegistry.instance().natives():
        found.publisher(publisher)
    for subscriber in SubscriberRegistry.instance().natives():
        found.subscriber(subscriber)
    return found


def environment_paths() -> Mapping[str, list[str]]:
    """PYTHON_HANDLER_PATH and TASKER_TEMPLATE_PATH, as lists."""
    return {
        name: [p for p in os.environ.get(name, "").split(os.pathsep) if p]
        for name in ("PYTHON_HANDLER_PATH", "TASKER_TEMPLATE_PATH")
    }
