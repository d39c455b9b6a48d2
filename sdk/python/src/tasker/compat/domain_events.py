"""Publishers and subscribers of domain events of tasker_core."""

from __future__ import annotations

import abc
import datetime
import inspect
import logging
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence, TypeVar

from .. import _events as native
from .._threads import Loop
from .types import ExecutionResult, Model

JSON = Any
_log = logging.getLogger("tasker_core")
_MANY = 1000  # payloads that wait for a hook
T = TypeVar("T")


@dataclass
class StepEventContext(Model):
    """The end of a step, for publishers."""

    task_uuid: str = ""
    step_uuid: str = ""
    step_name: str = ""
    namespace: str = ""
    correlation_id: str = ""
    result: Any = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    task_name: str = ""
    event_name: str = ""
    success: bool = True
    error: Any = None
    payload: Any = None
    context: Any = None

    def step_succeeded(self) -> bool:
        return self.success

    def get_result_field(self, name: str, default: Any = None) -> Any:
        return self.result.get(name, default) if isinstance(self.result, Mapping) else default

    @classmethod
    def from_step_context(
        cls, step_context: Any, result: Any = None, metadata: Mapping[str, Any] | None = None
    ) -> StepEventContext:
        return cls(
            str(step_context.task_uuid),
            str(step_context.step_uuid),
            step_context.handler_name,
            step_context.task.namespace_name,
            str(step_context.correlation_id),
            result,
            dict(metadata or {}),
        )

    @classmethod
    def of(cls, event: native.StepEvent) -> StepEventContext:
        step = event.step
        return cls(
            step.task_uuid,
            step.step_uuid,
            step.step_name,
            step.namespace,
            step.correlation_id,
            event.result if event.success else {},
            dict(step.metadata),
            step.task_name,
            event.name,
            event.success,
            event.error,
            event.payload,
            event.context,
        )


@dataclass(init=False)
class EventDeclaration(Model):
    """An event in the template of a step."""

    name: str
    condition: str | None = None
    delivery_mode: str | None = None
    publisher: str | None = None
    schema: dict[str, Any] | None = None

    def __init__(
        self,
        name: str,
        condition: str | None = None,
        delivery_mode: str | None = None,
        publisher: str | None = None,
        schema: Mapping[str, Any] | None = None,
        *,
        schema_: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.condition, self.delivery_mode, self.publisher = name, condition, delivery_mode, publisher
        given = schema_ if schema is None else schema
        self.schema = None if given is None else dict(given)

    @property
    def schema_(self) -> dict[str, Any] | None:
        return self.schema


@dataclass
class StepResult(Model):
    """The end of a step."""

    success: bool
    result: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


@dataclass
class PublishContext(Model):
    """An event to publish, with the end of its step."""

    event_name: str
    step_result: StepResult
    event_declaration: EventDeclaration | None = None
    step_context: StepEventContext | None = None


@dataclass
class DomainEvent(Model):
    """An event that is published."""

    event_name: str
    payload: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    event_id: str = ""
    event_version: str = "1.0.0"
    delivery_mode: str = "durable"
    publisher: str = ""


class EventMetadata(dict[str, Any]):
    """The metadata of an event, as a mapping and by attributes."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)


@dataclass
class InProcessDomainEvent(Model):
    """A fast event, for subscribers. It is read by attributes, and like a mapping of its fields."""

    event_id: Any = ""
    event_name: str = ""
    payload: Any = field(default_factory=dict)
    metadata: Any = field(default_factory=dict)
    event_version: str = "1.0.0"
    execution_result: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.metadata, Mapping) and not isinstance(self.metadata, EventMetadata):
            self.metadata = EventMetadata(self.metadata)
        if isinstance(self.execution_result, Mapping):
            self.execution_result = ExecutionResult.model_validate(self.execution_result)

    def __getitem__(self, name: str) -> Any:
        return self.model_dump()[name]

    def __contains__(self, name: object) -> bool:
        return name in self.model_dump()

    def get(self, name: str, default: Any = None) -> Any:
        return self.model_dump().get(name, default)

    def keys(self) -> Any:
        return self.model_dump().keys()

    def __getattr__(self, name: str) -> Any:
        # What the metadata say of the origin: task_uuid, step_uuid, step_name, namespace, correlation_id, fired_at, …
        metadata = self.__dict__.get("metadata") or {}
        if name in metadata:
            return metadata[name]
        raise AttributeError(name)

    @classmethod
    def of(cls, event: native.Event) -> InProcessDomainEvent:
        return cls(event.id, event.name, event.payload, EventMetadata(event.metadata), event.version)


@dataclass
class SubscriberResult(Model):
    """What a subscriber did with an event."""

    success: bool = True
    message: str | None = None
    error: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


class BasePublisher(abc.ABC):
    """Makes domain events of the ends of steps. Its methods may be coroutines."""

    publisher_name: Any = ""

    def publishes_for(self) -> list[str]:
        """The steps that it makes events for; none: all whose template names it."""
        return []

    def should_publish(self, ctx: StepEventContext) -> Any:
        return True

    def transform_payload(self, ctx: StepEventContext) -> Any:
        return (ctx.result or {}) if ctx.payload is None else ctx.payload

    def additional_metadata(self, ctx: StepEventContext) -> Any:
        return {}

    def before_publish(self, *told: Any) -> Any:
        """Is called before publishing, with the context; with the name of the event, its payload and metadata if it
        takes these three, and then False drops the event."""

    def after_publish(self, *told: Any) -> Any:
        """Is called after publishing, with the context and the event, or with its name, payload and metadata."""

    def on_publish_error(self, *told: Any) -> Any:
        """Is called when publishing has failed, with the context and the error, or the name, the error and the
        payload."""

    def publish(self, ctx: StepEventContext, event_name: str | None = None) -> Any:
        """Makes the event of a step, and calls the hooks: whether there is one. The engine publishes it."""
        event_name = event_name or ctx.event_name or ctx.step_name
        if not _now(self.should_publish(ctx)):
            return False
        payload: Any = None
        try:
            payload = _now(self.transform_payload(ctx))
            metadata = {**_about(self, ctx), **(_now(self.additional_metadata(ctx)) or {})}
            if _now(_told(self.before_publish, ctx, (event_name, payload, metadata))) is False:
                return False
            event = DomainEvent(event_name, payload, metadata, publisher=named(self, "publisher_name"))
            _now(_told(self.after_publish, ctx, (event_name, payload, metadata), event))
        except Exception as e:
            _now(_told(self.on_publish_error, ctx, (event_name, e, payload), e))
            return False
        vars(ctx)["_made"] = event
        return True


class DefaultPublisher(BasePublisher):
    """Publishes the results of steps as they are."""

    publisher_name = "default"


class BaseSubscriber(abc.ABC):
    """Handles fast domain events. Its methods may be coroutines."""

    subscriber_name: Any = ""
    _active = False

    @property
    def active(self) -> bool:
        return self._active

    @property
    def subscriptions(self) -> list[str]:
        return list(self.subscribes_to()) if self._active else []

    def start(self, poller: Any = None) -> None:
        """Takes the events of a poller; without one those of the process, once the registry has it."""
        if not self._active and poller is not None:
            poller.on_event(self._take)
        self._active = True

    def stop(self) -> None:
        self._active = False

    def _take(self, event: Any) -> None:
        if self.matches(event.event_name):
            self.handle_event_safely(event)

    def handle_event_safely(self, event: Any) -> None:
        """Handles an event while the subscriber is active. An error is told to on_handle_error."""
        if not self._active:
            return
        try:
            if _now(self.before_handle(event)) is False:
                return
            result = _now(self.handle(event))
            _now(_told_of(self.after_handle, event, result))
        except Exception as e:
            _now(self.on_handle_error(event, e))

    def subscribes_to(self) -> list[str]:
        """Names, in which * stands for any characters."""
        return ["*"]

    def handle(self, event: Any) -> Any:
        raise NotImplementedError

    def before_handle(self, event: Any) -> Any:
        """Is called before handle; False skips it."""

    def after_handle(self, event: Any, result: Any = None) -> Any:
        """Is called after a handle that succeeded."""

    def on_handle_error(self, event: Any, error: Exception) -> Any:
        """Is called after a handle that failed."""
        _log.error(
            "the subscriber %s failed with the event %s: %s",
            type(self).__name__,
            event.get("event_name", "unknown"),
            error,
        )

    def matches(self, event_name: str) -> bool:
        return any(native.fits(p, event_name) for p in self.subscribes_to())


def _about(publisher: Any, ctx: StepEventContext) -> dict[str, Any]:
    """The metadata that each event has."""
    return {
        "publisher": named(publisher, "publisher_name"),
        "published_at": datetime.datetime.now(datetime.timezone.utc).isoformat(),
        "task_uuid": ctx.task_uuid,
        "step_uuid": ctx.step_uuid,
        "step_name": ctx.step_name,
        "namespace": ctx.namespace,
        "correlation_id": ctx.correlation_id,
        **ctx.metadata,
    }


def _places(method: Any) -> int:
    """How many arguments a method takes by their places; 0 if it takes any number."""
    parameters = list(inspect.signature(method).parameters.values())
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 0
    return len([p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])


def _told(method: Any, ctx: StepEventContext, three: tuple[Any, Any, Any], *second: Any) -> Any:
    """Calls a hook of a publisher: with three facts of the event if it takes these, else with the context."""
    return method(*three) if _places(method) == 3 else method(ctx, *second)


def _told_of(method: Any, event: Any, result: Any) -> Any:
    """Calls a hook of a subscriber, with the result if it takes one."""
    return method(event) if _places(method) == 1 else method(event, result)


def _now(value: Any) -> Any:
    """The value of what may be awaited, at once: for a call outside of the worker."""
    if not inspect.isawaitable(value):
        return value
    loop = Loop()
    try:
        return loop.value(value)
    finally:
        loop.close()


async def _value(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def named(one: object, attribute: str) -> str:
    """A name that is an attribute, a property or a method; the name of the class without it."""
    value = getattr(one, attribute, "")
    value = value() if callable(value) else value
    return str(value or type(one).__name__)


class PublisherOf(native.Publisher):
    """A publisher there as one here, under one of its names."""

    def __init__(self, publisher: BasePublisher, name: str) -> None:
        self.name, self._publisher = name, publisher
        self._own = type(publisher).publish is not BasePublisher.publish
        self._payloads: dict[tuple[str, int, str], Any] = {}  # those made, until their hooks are called

    def _for(self, event: native.StepEvent) -> bool:
        """Whether it makes the events of a step; a batch has the name of its worker step and a number."""
        steps, name = self._publisher.publishes_for(), event.step.step_name
        return not steps or name in steps or name.rpartition("_")[0] in steps

    def before(self, event: native.StepEvent) -> Any:
        if not self._for(event) or self._own or _places(self._publisher.before_publish) == 3:
            return None
        return self._publisher.before_publish(StepEventContext.of(event))

    async def should_publish(self, event: native.StepEvent) -> Any:
        if not self._for(event):
            return True
        ctx, publisher = StepEventContext.of(event), self._publisher
        if not await _value(publisher.should_publish(ctx)):
            return False
        if self._own or _places(publisher.before_publish) != 3:
            return True
        payload = await _value(publisher.transform_payload(ctx))
        metadata = {**_about(publisher, ctx), **(await _value(publisher.additional_metadata(ctx)) or {})}
        return await _value(publisher.before_publish(event.name, payload, metadata)) is not False

    async def payload(self, event: native.StepEvent) -> Any:
        if not self._for(event):
            return event.payload
        while len(self._payloads) >= _MANY:  # of steps whose reports were refused: no hook follows
            self._payloads.pop(next(iter(self._payloads)), None)
        made = self._payloads[_key(event)] = await self._payload(event)
        return made

    async def _payload(self, event: native.StepEvent) -> Any:
        ctx = StepEventContext.of(event)
        if not self._own:
            return await _value(self._publisher.transform_payload(ctx))
        made = await _value(self._made(ctx, event.name))
        made = vars(ctx).get("_made") if isinstance(made, bool) else made
        return made.payload if isinstance(made, DomainEvent) else made if isinstance(made, dict) else event.payload

    def _made(self, ctx: StepEventContext, name: str) -> Any:
        """What an own publish returns."""
        publish = self._publisher.publish
        return publish(ctx) if _places(publish) == 1 else publish(ctx, name)

    def metadata(self, event: native.StepEvent) -> Any:
        return self._publisher.additional_metadata(StepEventContext.of(event)) if self._for(event) else None

    def after(self, event: native.StepEvent) -> Any:
        payload = self._payloads.pop(_key(event), event.payload)
        if not self._for(event):
            return None
        ctx = StepEventContext.of(event)
        made = DomainEvent(event.name, payload, ctx.metadata, delivery_mode=event.delivery_mode, publisher=self.name)
        return _told(self._publisher.after_publish, ctx, (event.name, payload, _about(self._publisher, ctx)), made)

    def failed(self, event: native.StepEvent, error: Exception) -> Any:
        payload, ctx = self._payloads.pop(_key(event), event.payload), StepEventContext.of(event)
        return _told(self._publisher.on_publish_error, ctx, (event.name, error, payload), error)


def _key(event: native.StepEvent) -> tuple[str, int, str]:
    return event.step.step_uuid, event.attempt, event.name


class SubscriberOf(native.Subscriber):
    """A subscriber there as one here."""

    def __init__(self, subscriber: BaseSubscriber) -> None:
        self.name, self.patterns, self._subscriber = (
            named(subscriber, "subscriber_name"),
            list(subscriber.subscribes_to()),
            subscriber,
        )

    async def handle(self, event: native.Event) -> None:
        there = InProcessDomainEvent.of(event)
        if await _value(self._subscriber.before_handle(there)) is False:
            return
        result = await _value(self._subscriber.handle(there))
        if isinstance(result, SubscriberResult) and not result.success:
            raise RuntimeError(result.error or result.message or "the subscriber says that it failed")
        await _value(_told_of(self._subscriber.after_handle, there, result))

    def failed(self, event: native.Event, error: Exception) -> Any:
        return self._subscriber.on_handle_error(InProcessDomainEvent.of(event), error)


class _Registry:
    """What publishers and subscribers have in common: one registry of the process, which tells who listens."""

    _instance: Any = None
    _guard = threading.Lock()

    def __init__(self) -> None:
        self._listeners: list[Callable[[Any], None]] = []

    @classmethod
    def instance(cls: type[T]) -> T:
        with cls._guard:  # type: ignore[attr-defined]
            if cls._instance is None:  # type: ignore[attr-defined]
                cls._instance = cls()  # type: ignore[attr-defined]
            found: T = cls._instance  # type: ignore[attr-defined]
            return found

    @classmethod
    def reset_instance(cls) -> None:
        with cls._guard:
            cls._instance = None

    reset = reset_instance

    def on_change(self, listener: Callable[[Any], None]) -> None:
        self._listeners.append(listener)

    def _tell(self, one: Any) -> None:
        for listener in list(self._listeners):
            listener(one)


class PublisherRegistry(_Registry):
    """The publishers of the process."""

    def __init__(self) -> None:
        super().__init__()
        self._publishers: dict[str, BasePublisher] = {}
        self._frozen = False

    def register(self, publisher: Any, name: str | None = None) -> BasePublisher:
        """Registers a class or an object."""
        if self._frozen:
            raise RuntimeError("register a publisher: the registry is frozen")
        one: BasePublisher = publisher() if isinstance(publisher, type) else publisher
        if not isinstance(one, BasePublisher):
            raise ValueError(f"register a publisher: want a BasePublisher, not {type(one).__name__}")
        self._publishers[name or named(one, "publisher_name")] = one
        self._tell(one)
        return one

    def get(self, name: str) -> BasePublisher | None:
        return self._publishers.get(name)

    def get_or_default(self, name: str) -> BasePublisher:
        return self._publishers.get(name) or DefaultPublisher()

    def validate_required(self, names: Sequence[str]) -> list[str]:
        """Those of the names that the registry does not have."""
        return [name for name in names if name not in self._publishers]

    def get_for_step(self, step_name: str) -> BasePublisher | None:
        return next((p for p in self._publishers.values() if step_name in p.publishes_for()), None)

    def is_registered(self, name: str) -> bool:
        return name in self._publishers

    def list_publishers(self) -> list[str]:
        return list(self._publishers)

    @property
    def publisher_count(self) -> int:
        return len(self._publishers)

    def freeze(self) -> None:
        self._frozen = True

    def unfreeze(self) -> None:
        self._frozen = False

    @property
    def is_frozen(self) -> bool:
        return self._frozen

    def clear(self) -> None:
        if self._frozen:
            raise RuntimeError("clear the publishers: the registry is frozen")
        self._publishers.clear()

    def natives(self) -> list[PublisherOf]:
        """One for each name by which templates may know a publisher: its own, and those of its class."""
        found: dict[str, PublisherOf] = {}
        for name, p in self._publishers.items():
            found[name] = PublisherOf(p, name)
        for p in self._publishers.values():
            kind = type(p)
            for alias in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}"):
                found.setdefault(alias, PublisherOf(p, alias))
        return list(found.values())


class SubscriberRegistry(_Registry):
    """The subscribers of the process."""

    def __init__(self) -> None:
        super().__init__()
        self._subscribers: dict[str, BaseSubscriber] = {}
        self._classes: dict[str, str] = {}  # of those that were registered by their class: the names
        self._natives: dict[str, Any] = {}
        self._kept: Any = None  # what keeps events for poll_in_process_events
        self._started = False
        self._polled = False  # whether the events come by a poller of the application

    @classmethod
    def reset(cls) -> None:
        if cls._instance is not None:
            cls._instance.stop_all()
        cls.reset_instance()

    def register(self, subscriber_class: Any, name: str | None = None) -> BaseSubscriber:
        """Registers a class or an object."""
        kind = subscriber_class if isinstance(subscriber_class, type) else type(subscriber_class)
        if not issubclass(kind, BaseSubscriber):
            raise ValueError(f"register a subscriber: want a BaseSubscriber, not {kind.__name__}")
        one: BaseSubscriber = subscriber_class() if isinstance(subscriber_class, type) else subscriber_class
        name = name or named(one, "subscriber_name")
        self._subscribers[name], self._natives[name] = one, SubscriberOf(one)
        if isinstance(subscriber_class, type):
            self._classes[name] = kind.__name__
        if self._started:
            self._tell(self)
        return one

    def register_instance(self, subscriber: BaseSubscriber, name: str | None = None) -> BaseSubscriber:
        if not isinstance(subscriber, BaseSubscriber):
            raise ValueError(f"register a subscriber: want a BaseSubscriber, not {type(subscriber).__name__}")
        return self.register(subscriber, name)

    def start_all(self, poller: Any = None) -> int:
        """Has the subscribers take events, of a poller where the application has one. Returns how many do."""
        self._started, self._polled = True, poller is not None
        for one in self._subscribers.values():
            one.start(poller)
        self._tell(self)
        return len(self._subscribers)

    def stop_all(self) -> int:
        """Has them take no more events. Returns how many did."""
        count = self.active_count
        self._started = False
        for one in self._subscribers.values():
            one.stop()
        self._tell(self)
        return count

    @property
    def is_started(self) -> bool:
        return self._started

    def get(self, name: str) -> BaseSubscriber | None:
        return self._subscribers.get(name)

    def get_matching_subscribers(self, event_name: str) -> list[BaseSubscriber]:
        return [s for s in self._subscribers.values() if s.matches(event_name)]

    def list_subscribers(self) -> list[str]:
        return list(self._subscribers)

    def list_registered(self) -> dict[str, list[str]]:
        return {
            "classes": list(self._classes.values()),
            "instances": [name for name in self._subscribers if name not in self._classes],
        }

    @property
    def subscriber_count(self) -> int:
        return len(self._subscribers)

    @property
    def active_count(self) -> int:
        return sum(one.active for one in self._subscribers.values())

    def stats(self) -> dict[str, Any]:
        return {
            "registered_classes": len(self._classes),
            "registered_instances": len(self._subscribers) - len(self._classes),
            "active_subscribers": self.active_count,
            "subscriptions": [
                {"class": type(one).__name__, "patterns": one.subscriptions}
                for one in self._subscribers.values()
                if one.active
            ],
        }

    def clear(self) -> None:
        self.stop_all()
        self._subscribers.clear()
        self._classes.clear()
        self._natives.clear()
        self._tell(self)

    def _poll(self, poller: InProcessDomainEventPoller, begins: bool) -> None:
        """Has a poller get the events of the process, or no more."""
        key = f"\0poller {id(poller)}"
        self._natives.pop(key, None)
        if begins:
            self._natives[key] = _PollerOf(poller)
        self._tell(self)

    def natives(self) -> Sequence[Any]:
        """Those that have started; a poller of the application has their events where it has started them."""
        own = self._started and not self._polled
        kept = [] if self._kept is None else [self._kept]
        return [*kept, *(n for n in self._natives.values() if isinstance(n, _PollerOf) or own)]


class InProcessDomainEventPoller:
    """Calls functions with the fast events of the process. An event comes when it is there: the interval and the size
    are those of a poller there."""

    DEFAULT_POLL_INTERVAL_MS = 10
    DEFAULT_MAX_EVENTS_PER_POLL = 100

    def __init__(
        self,
        polling_interval_ms: int = DEFAULT_POLL_INTERVAL_MS,
        max_events_per_poll: int = DEFAULT_MAX_EVENTS_PER_POLL,
    ) -> None:
        self._polling_interval, self._max_events_per_poll = polling_interval_ms / 1000, max_events_per_poll
        self._event_callbacks: list[Callable[[InProcessDomainEvent], Any]] = []
        self._error_callbacks: list[Callable[[Exception], Any]] = []
        self._running = False
        self._events_processed = 0

    def on_event(self, callback: Callable[[InProcessDomainEvent], Any]) -> None:
        self._event_callbacks.append(callback)

    def on_error(self, callback: Callable[[Exception], Any]) -> None:
        self._error_callbacks.append(callback)

    def start(self) -> None:
        if self._running:
            raise RuntimeError("start the poller: it runs already")
        self._running = True
        SubscriberRegistry.instance()._poll(self, True)

    def stop(self, timeout: float = 5.0) -> None:
        if self._running:
            self._running = False
            SubscriberRegistry.instance()._poll(self, False)

    @property
    def is_running(self) -> bool:
        return self._running

    @property
    def stats(self) -> dict[str, int]:
        return {"poll_count": self._events_processed, "events_processed": self._events_processed, "events_lagged": 0}

    async def _deliver(self, event: InProcessDomainEvent) -> None:
        self._events_processed += 1
        for call in list(self._event_callbacks):
            try:
                await _value(call(event))
            except Exception as e:
                _log.warning("a function for events failed", exc_info=e)
                for told in list(self._error_callbacks):
                    told(e)


class _PollerOf(native.Subscriber):
    """A poller there as a subscriber of every event."""

    patterns = ("*",)

    def __init__(self, poller: InProcessDomainEventPoller) -> None:
        self.name, self._poller = f"poller-{id(poller)}", poller

    async def handle(self, event: native.Event) -> None:
        if self._poller.is_running:
            await self._poller._deliver(InProcessDomainEvent.of(event))
