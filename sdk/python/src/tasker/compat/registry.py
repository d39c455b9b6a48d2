"""The registry of handlers and the chain of resolvers of tasker_core."""

from __future__ import annotations

import abc
import importlib
import importlib.util
import inspect
import logging
import os
import pkgutil
import re
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


@dataclass(init=False)
class HandlerDefinition(Model):
    """The address of a handler, as in a template. handler_method is another name of method."""

    callable: str
    method: str | None = None
    resolver: str | None = None
    initialization: dict[str, Any] = field(default_factory=dict)

    def __init__(
        self,
        callable: str = "",
        method: str | None = None,
        resolver: str | None = None,
        initialization: Mapping[str, Any] | None = None,
        *,
        handler_method: str | None = None,
    ) -> None:
        self.callable, self.method, self.resolver = callable, method or handler_method, resolver
        self.initialization = dict(initialization or {})

    @property
    def handler_method(self) -> str | None:
        return self.method

    def effective_method(self) -> str:
        return self.method or "call"

    def uses_method_dispatch(self) -> bool:
        return self.effective_method() != "call"

    def has_resolver_hint(self) -> bool:
        return bool(self.resolver)

    @classmethod
    def from_callable(cls, callable_str: str) -> HandlerDefinition:
        return cls(callable_str)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> HandlerDefinition:
        return cls.of(HandlerWrapper.from_dict(data))

    @classmethod
    def of(cls, given: Any) -> HandlerDefinition:
        """The definition of a name, of a wrapper, or of a definition."""
        if isinstance(given, (str, HandlerDefinition)):
            return given if isinstance(given, HandlerDefinition) else cls(given)
        if not isinstance(given, HandlerWrapper):
            raise TypeError(f"find a handler: want its name or definition, not {type(given).__name__}")
        return cls(given.callable, given.handler_method, given.resolver, given.initialization)


@dataclass
class ResolutionContext(Model):
    """The step that a handler is resolved for. get is for resolvers that take it for a mapping."""

    namespace: str = ""
    task_name: str = ""
    step_name: str = ""
    registry: Any = None

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


ResolvedHandler = Any


class MethodDispatchWrapper:
    """A handler whose call is another of its methods."""

    def __init__(self, handler: Any, target_method: str) -> None:
        if not hasattr(handler, target_method):
            raise AttributeError(f"wrap a handler: {type(handler).__name__} has no {target_method!r}")
        self._handler, self._target_method = handler, target_method

    @property
    def handler(self) -> Any:
        return self._handler

    @property
    def target_method(self) -> str:
        return self._target_method

    def call(self, context: Any) -> Any:
        return getattr(self._handler, self._target_method)(context)

    def unwrap(self) -> Any:
        return self._handler

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_handler"], name)

    def __repr__(self) -> str:
        return f"MethodDispatchWrapper({type(self._handler).__name__}, target_method={self._target_method!r})"


class BaseResolver(abc.ABC):
    """Finds handlers by their callables. callables names those that the process is offered for, such as
    ("service://*",): it takes their steps. Without it these are all callables that no handler of the process has.
    Its name is resolver_name() or name; methods may leave out the second argument."""

    callables: Any = ("*",)

    def resolver_name(self) -> str:
        """The value for handler.resolver."""
        return str(_named(self))

    @property
    def name(self) -> Any:
        return self.resolver_name()

    priority: Any = 50

    @abc.abstractmethod
    def can_resolve(self, definition: HandlerDefinition, config: Any = None) -> bool:
        """Whether resolve should be asked."""

    @abc.abstractmethod
    def resolve(self, definition: HandlerDefinition, context: Any = None) -> Any:
        """The handler, or None; it may be a coroutine."""

    def registered_callables(self) -> list[str]:
        return []


StepHandlerResolver = BaseResolver


def _named(resolver: Any) -> str:
    """The name of a resolver, by whichever of its members the application has written."""
    for member in ("resolver_name", "name"):
        own = getattr(type(resolver), member, None)
        if own is not None and own is not getattr(BaseResolver, member):
            return str(_attribute(resolver, member))
    given = getattr(resolver, "name", None) if not isinstance(resolver, BaseResolver) else None
    return str(given or type(resolver).__name__)


def _attribute(one: object, name: str) -> Any:
    value = getattr(one, name)
    return value() if callable(value) else value


def _ask(method: Any, definition: HandlerDefinition, context: Any) -> Any:
    """Calls a method of a resolver with as many arguments as it takes."""
    parameters = inspect.signature(method).parameters.values()
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    many = len(places) > 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return method(definition, context) if many else method(definition)


class RegistryResolver(BaseResolver):
    """Finds handlers whose callables have a prefix or match a pattern; resolve_handler makes them."""

    _name = "custom_resolver"
    _priority = 50
    pattern: str | None = None
    prefix: str | None = None

    def __init__(self) -> None:
        if self.prefix and not self.pattern:
            self.callables = (self.prefix + "*",)

    @property
    def name(self) -> Any:
        return type(self)._name

    @property
    def priority(self) -> Any:
        return type(self)._priority

    def can_resolve(self, definition: HandlerDefinition, config: Any = None) -> bool:
        if self.pattern:
            return self._match_pattern(definition.callable) is not None
        return bool(self.prefix) and definition.callable.startswith(str(self.prefix))

    def resolve(self, definition: HandlerDefinition, context: Any = None) -> Any:
        return self.resolve_handler(definition, {} if context is None else context)

    def resolve_handler(self, definition: HandlerDefinition, config: Any) -> Any:
        raise NotImplementedError(f"find a handler: {type(self).__name__} lacks resolve_handler")

    def _match_pattern(self, callable_str: str) -> re.Match[str] | None:
        return re.match(self.pattern, callable_str) if self.pattern else None


class ExplicitMappingResolver(BaseResolver):
    """Finds handlers by the names that they are registered under."""

    def __init__(self, registry: Any = None) -> None:
        self._own_name = registry if isinstance(registry, str) else "explicit_mapping"
        self._registry: HandlerRegistry | None = None if isinstance(registry, str) else registry
        self._handlers: dict[str, Any] = {}

    def resolver_name(self) -> str:
        return self._own_name

    @property
    def priority(self) -> Any:
        return 10

    def register(self, key: str, handler: Any) -> None:
        self._handlers[key] = handler

    def unregister(self, key: str) -> bool:
        return self._handlers.pop(key, None) is not None

    def registered_callables(self) -> list[str]:
        return [*self._handlers, *(self._registry.list_handlers() if self._registry is not None else ())]

    def can_resolve(self, definition: HandlerDefinition, config: Any = None) -> bool:
        return (
            definition.callable in self._handlers
            or self._registry is not None
            and self._registry.has(definition.callable)
        )

    def resolve(self, definition: HandlerDefinition, context: Any = None) -> Any:
        if definition.callable in self._handlers:
            entry = self._handlers[definition.callable]
        elif self._registry is not None and self._registry.has(definition.callable):
            entry = self._registry.get(definition.callable)
        else:
            return None
        if not isinstance(entry, type) and callable(entry) and not hasattr(entry, "call"):
            return entry({} if context is None else context)
        return _instance(entry, definition)


class ClassLookupResolver(BaseResolver):
    """Finds handlers by the paths of their classes, such as payment_handlers.ProcessPaymentHandler."""

    def resolver_name(self) -> str:
        return "class_lookup"

    @property
    def priority(self) -> Any:
        return 100

    def can_resolve(self, definition: HandlerDefinition, config: Any = None) -> bool:
        return self.lookup(definition.callable) is not None

    def resolve(self, definition: HandlerDefinition, context: Any = None) -> Any:
        found = self.lookup(definition.callable)
        return None if found is None else _instance(found, definition)

    @staticmethod
    def lookup(path: str) -> type[Any] | None:
        """The class of a path, whose module is imported; that of a decorated function too."""
        module, _, name = path.replace("::", ".").rpartition(".")
        if not module or not all(part.isidentifier() for part in (*module.split("."), name)):
            return None
        try:
            if module not in sys.modules and importlib.util.find_spec(module) is None:
                return None
            found = getattr(importlib.import_module(module), name, None)
        except (ImportError, ValueError):
            return None
        found = getattr(found, "_handler_class", found)
        return found if isinstance(found, type) and callable(getattr(found, "call", None)) else None


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

    def register(self, resolver: Any, handler: Any = None) -> ResolverChain:
        """Adds a resolver; given a name and a handler, registers that handler."""
        if handler is not None:
            if self.explicit_resolver is None:
                raise RuntimeError("register a handler: the chain has no explicit_mapping")
            self.explicit_resolver.register(resolver, handler)
            return self
        self._resolvers.append(resolver)
        self._resolvers.sort(key=lambda r: int(_attribute(r, "priority")))
        for listener in self._listeners:
            listener()
        return self

    def add(self, resolver: Any) -> ResolverChain:
        return self.register(resolver)

    add_resolver = add

    def remove_resolver(self, name: str) -> Any:
        """Takes a resolver out, and returns it; None without one."""
        found = self.get_resolver(name)
        if found is not None:
            self._resolvers.remove(found)
        return found

    def get_resolver(self, name: str) -> Any:
        return next((r for r in self._resolvers if _named(r) == name), None)

    @property
    def explicit_resolver(self) -> Any:
        return self.get_resolver("explicit_mapping")

    @property
    def resolvers(self) -> list[Any]:
        return list(self._resolvers)

    @property
    def resolver_names(self) -> list[str]:
        return [_named(r) for r in self._resolvers]

    def __len__(self) -> int:
        return len(self._resolvers)

    def list_resolvers(self) -> list[tuple[str, int]]:
        return [(_named(r), int(_attribute(r, "priority"))) for r in self._resolvers]

    def registered_callables(self) -> list[str]:
        return list(dict.fromkeys(name for r in self._resolvers for name in _known(r)))

    def chain_info(self) -> list[dict[str, Any]]:
        return [
            {"name": _named(r), "priority": int(_attribute(r, "priority")), "callables": len(_known(r))}
            for r in self._resolvers
        ]

    def _asked(self, definition: HandlerDefinition) -> Iterator[Any]:
        named = {
            "ExplicitMappingResolver": "explicit_mapping",
            "ClassLookupResolver": "class_lookup",
            "ClassConstantResolver": "class_lookup",
            "class_constant": "class_lookup",
        }.get(definition.resolver or "", definition.resolver)
        return (r for r in self._resolvers if not named or _named(r) == named)

    def can_resolve(self, definition: HandlerDefinition, config: Any = None) -> bool:
        return any(_ask(r.can_resolve, definition, config) for r in self._asked(definition))

    def find(self, definition: HandlerDefinition, context: Any = None) -> Any:
        """The handler, or what can be awaited for it. Raises ResolutionError."""
        asked = list(self._asked(definition))
        if definition.resolver and not asked:
            raise ResolverNotFoundError(f"find a handler: the chain has no resolver {definition.resolver!r}")
        given = ResolutionContext() if context is None else context
        for r in asked:
            if definition.resolver or _ask(r.can_resolve, definition, given):
                found = _ask(r.resolve, definition, given)
                if found is not None:
                    return found
        raise ResolutionError(f"No resolver could resolve callable '{definition.callable}'")

    def resolve(self, definition: HandlerDefinition, context: Any = None) -> Any:
        """The handler of a definition; where that names a method, with this as its call. Raises ResolutionError."""
        found = self.find(definition, context)
        if not inspect.isawaitable(found):
            return self.wrap_for_method_dispatch(found, definition)
        if in_coroutine():
            return found
        loop = Loop()
        try:
            return self.wrap_for_method_dispatch(loop.value(found), definition)
        finally:
            loop.close()

    def wrap_for_method_dispatch(self, handler: Any, definition: HandlerDefinition) -> Any:
        """The handler with the method of the definition as its call; None if it has no such method."""
        if not definition.uses_method_dispatch() or isinstance(handler, MethodDispatchWrapper):
            return handler
        method = definition.effective_method()
        return MethodDispatchWrapper(handler, method) if hasattr(handler, method) else None


def _known(resolver: Any) -> list[str]:
    return list(resolver.registered_callables()) if hasattr(resolver, "registered_callables") else []


def _instance(handler: Any, definition: HandlerDefinition | None = None) -> Any:
    """An object of a class. One whose class needs an argument gets the initialization of its definition as config."""
    if not isinstance(handler, type):
        return handler
    try:
        inspect.signature(handler).bind()
    except TypeError:
        return handler(config=dict(definition.initialization if definition is not None else {}))
    return handler()


class TemplatePath:
    """Where the templates of an application are."""

    @staticmethod
    def find_template_config_directory() -> Path | None:
        """The folder of TASKER_TEMPLATE_PATH, or config/tasks of the workspace or of the current folder."""
        places = [Path(p) for p in environment_paths()["TASKER_TEMPLATE_PATH"]]
        if os.environ.get("WORKSPACE_PATH"):
            places.append(Path(os.environ["WORKSPACE_PATH"], "config", "tasks"))
        marks = ("pyproject.toml", ".git", "Cargo.toml", "Gemfile", "package.json")
        here = Path.cwd()
        roots = [p for p in (here, *list(here.parents)[:9]) if any((p / mark).exists() for mark in marks)]
        places += [p / "config" / "tasks" for p in (*roots[:1], here)]
        return next((p for p in places if p.is_dir()), None)

    @staticmethod
    def discover_template_files(template_dir: Path) -> list[Path]:
        return sorted(p for p in Path(template_dir).rglob("*") if p.suffix in (".yaml", ".yml"))


class TemplateParser:
    """Reads the handlers in templates: with PyYAML where that is, else line by line."""

    @staticmethod
    def extract_handler_callables(template_file: Path) -> list[str]:
        return list(TemplateParser.extract_template_metadata(template_file).get("handlers", []))

    @staticmethod
    def extract_handlers_from_template(template_data: Mapping[str, Any]) -> list[str]:
        steps = template_data.get("steps")
        found = [s.get("handler") for s in (steps if isinstance(steps, list) else []) if isinstance(s, dict)]
        names = [h.get("callable") for h in found if isinstance(h, dict)]
        return [n for n in names if n and isinstance(n, str)]

    @staticmethod
    def extract_template_metadata(template_file: Path) -> dict[str, Any]:
        """The names of a template; an empty mapping if it cannot be read."""
        try:
            text = Path(template_file).read_text(encoding="utf-8")
            data = _read_template(text)
        except (OSError, ValueError) as e:
            _log.warning("read the template %s: %s", template_file, e)
            return {}
        if not isinstance(data, dict):
            return {}
        handlers = TemplateParser.extract_handlers_from_template(data)
        return {
            "name": data.get("name", ""),
            "namespace": data.get("namespace_name", ""),
            "version": data.get("version", ""),
            "description": data.get("description", ""),
            "file_path": str(template_file),
            "handlers": handlers,
        }


def _read_template(text: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        fields = {m[1]: m[2].strip("\"'") for m in re.finditer(r"(?m)^(\w+): *([^#\n]*[^#\s])", text)}
        found = re.findall(r"\bcallable: *[\"']?([^\"'\s,}]+)", text)
        return {**fields, "steps": [{"handler": {"callable": name}} for name in found]}
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise ValueError(str(e)) from e


class HandlerDiscovery:
    """The handlers that the templates below a folder name."""

    @staticmethod
    def discover_all_handlers(template_dir: Path) -> list[str]:
        return sorted({h for t in HandlerDiscovery.discover_template_metadata(template_dir) for h in t["handlers"]})

    @staticmethod
    def discover_template_metadata(template_dir: Path) -> list[dict[str, Any]]:
        found = map(TemplateParser.extract_template_metadata, TemplatePath.discover_template_files(template_dir))
        return [t for t in found if t]

    @staticmethod
    def discover_handlers_by_namespace(template_dir: Path) -> dict[str, list[str]]:
        found: dict[str, set[str]] = {}
        for t in HandlerDiscovery.discover_template_metadata(template_dir):
            found.setdefault(t["namespace"], set()).update(t["handlers"])
        return {namespace: sorted(names) for namespace, names in found.items()}


class HandlerRegistry:
    """The handlers of the process, by their names."""

    _instance: HandlerRegistry | None = None
    _guard = threading.Lock()

    def __init__(self) -> None:
        self._handlers: dict[str, Any] = {}
        self._listeners: list[Callable[[str, Any], None]] = []
        self.resolver_chain = ResolverChain.default(self)

    @classmethod
    def instance(cls, skip_bootstrap: bool = False) -> HandlerRegistry:
        """The registry of the process. bootstrap_worker looks for the handlers of templates, with either value."""
        with cls._guard:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    @classmethod
    def reset_instance(cls) -> None:
        with cls._guard:
            cls._instance = None

    def register(self, name: Any, handler: Any = None, *, handler_class: Any = None) -> None:
        """Registers a class, or an object, under a name; a class alone under its handler_name, and a function with
        its decorator as the class that it has."""
        handler = handler_class if handler is None else handler
        name, handler = getattr(name, "_handler_class", name), getattr(handler, "_handler_class", handler)
        if handler is None:
            name, handler = (getattr(name, "handler_name", "") or getattr(name, "__name__", type(name).__name__)), name
        if not isinstance(name, str) or not name:
            raise ValueError(f"register a handler: invalid name {name!r}: want a text")
        if not callable(getattr(handler, "call", None)) and (isinstance(handler, type) or not callable(handler)):
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

    def get(self, name: str) -> Any:
        return self._handlers.get(name)

    def instantiate(self, name: str) -> Any:
        return _instance(self._handlers[name])

    def resolve(self, handler_spec: Any) -> Any:
        """The handler of a name, of a class path or of a definition; None without one."""
        try:
            return self.resolver_chain.resolve(HandlerDefinition.of(handler_spec))
        except ResolverNotFoundError:
            raise
        except ResolutionError:
            return None
        except Exception as e:
            _log.error("make the handler of %s: %s", handler_spec, e, exc_info=e)
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

    def discover_handlers(self, package_name: str | ModuleType, base_class: type[Any] | None = None) -> int:
        """Imports a package with its modules, and registers the handlers in them. Returns how many. A module that
        cannot be imported is logged, and left out."""
        count = 0
        for module in _modules_of(package_name):
            count += self.discover_module(module, base_class)
        return count

    def discover_module(self, module: ModuleType, base_class: type[Any] | None = None) -> int:
        """Registers the handlers that a module has. One without handler_name is found by the path of its class, if the
        module defines it."""
        count = 0
        for kind in list(vars(module).values()):
            kind = getattr(kind, "_handler_class", kind)
            if isinstance(kind, type) and issubclass(kind, base_class or StepHandler) and not inspect.isabstract(kind):
                own = kind.__module__ == module.__name__
                name = getattr(kind, "handler_name", "") or (f"{kind.__module__}.{kind.__qualname__}" if own else "")
                if name and self._handlers.get(name) is not kind:
                    self.register(name, kind)
                    count += 1
        return count

    def bootstrap_handlers(self) -> int:
        """Registers the handlers whose classes the templates of TASKER_TEMPLATE_PATH name. Returns how many handlers
        there are."""
        folder = TemplatePath.find_template_config_directory()
        for path in HandlerDiscovery.discover_all_handlers(folder) if folder else ():
            kind = ClassLookupResolver.lookup(path) if not self.has(path) else None
            if kind is not None:
                self.register(getattr(kind, "handler_name", "") or path, kind)
        return self.handler_count()

    def template_discovery_info(self) -> dict[str, Any]:
        folder = TemplatePath.find_template_config_directory()
        found = HandlerDiscovery.discover_all_handlers(folder) if folder else []
        return {
            "template_path": str(folder) if folder else None,
            "template_files": [str(f) for f in TemplatePath.discover_template_files(folder)] if folder else [],
            "discovered_handlers": found,
            "handlers_by_namespace": HandlerDiscovery.discover_handlers_by_namespace(folder) if folder else {},
        }

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
            if _named(r) not in known:
                handlers.resolver(_ResolverOf(r, execute))
        return handlers


def _modules_of(package: str | ModuleType) -> Iterator[ModuleType]:
    """A module and, of a package, all of its modules that can be imported."""
    try:
        module = importlib.import_module(package) if isinstance(package, str) else package
    except ImportError as e:
        _log.error("discover handlers: import %s: %s", package, e)
        return
    yield module
    for info in pkgutil.walk_packages(getattr(module, "__path__", ()), module.__name__ + ".", onerror=lambda _: None):
        if info.name.endswith("__main__"):
            continue
        try:
            yield importlib.import_module(info.name)
        except Exception as e:
            _log.error("discover handlers: import %s: %s", info.name, e, exc_info=e)


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
        self.name, self.priority = _named(resolver), int(_attribute(resolver, "priority"))
        self.callables = getattr(resolver, "callables", None) or ("*",)
        self._resolver, self._execute = resolver, execute

    def can_resolve(self, ctx: Step) -> bool:
        return bool(_ask(self._resolver.can_resolve, definition_of(ctx), _context_of(ctx)))

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


def _context_of(step: Step, registry: Any = None) -> ResolutionContext:
    return ResolutionContext(step.namespace, step.task_name, step.step_name, registry)


def find_handler(registry: HandlerRegistry, step: Step, name: str) -> Any:
    """The handler of a step, or what can be awaited for it."""
    if name in registry.names():
        return _instance(registry.names()[name], definition_of(step))
    return registry.resolver_chain.find(definition_of(step), _context_of(step, registry))


def called(handler: Any, step: Step, name: str, event: FfiStepEvent | None = None) -> Any:
    """What the method of a handler returns for a step."""
    if handler is None:
        raise ResolutionError(f"No resolver could resolve callable '{step.callable}'")
    context = StepContext.of(step, name, event)
    if isinstance(handler, MethodDispatchWrapper):
        return handler.call(context)
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
