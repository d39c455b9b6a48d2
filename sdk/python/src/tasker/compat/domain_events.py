"""Publishers and subscribers of domain events of tasker_core."""

from __future__ import annotations

import inspect
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence, TypeVar

from .. import _events as native
from .types import Model

JSON = Any
T = TypeVar("T")


@dataclass
class StepEventContext(Model):
    """The end of a step, for publishers."""

    task_uuid: str
    step_uuid: str
    step_name: str
    namespace: str
    correlation_id: str
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
    """A fast event, for subscribers."""

    event_id: str
    event_name: str
    payload: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    event_version: str = "1.0.0"

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


class BasePublisher:
    """Makes domain events of the ends of steps. Its methods may be coroutines."""

    publisher_name: Any = ""

    def publishes_for(self) -> list[str]:
        """The steps that it makes events for; none: all whose template names it."""
        return []

    def should_publish(self, ctx: StepEventContext) -> Any:
        return True

    def transform_payload(self, ctx: StepEventContext) -> Any:
        return ctx.payload

    def additional_metadata(self, ctx: StepEventContext) -> Any:
        return {}

    def before_publish(self, ctx: StepEventContext) -> Any:
        """Is called before publishing."""

    def after_publish(self, ctx: StepEventContext, event: DomainEvent) -> Any:
        """Is called after publishing."""

    def on_publish_error(self, ctx: StepEventContext, error: Exception) -> Any:
        """Is called when publishing has failed."""

    async def publish(self, ctx: StepEventContext) -> Any:
        """Makes the event of a step; the engine publishes it."""
        await _value(self.before_publish(ctx))
        payload, metadata = await _value(self.transform_payload(ctx)), await _value(self.additional_metadata(ctx))
        return DomainEvent(
            ctx.event_name, payload, {**ctx.metadata, **(metadata or {})}, publisher=named(self, "publisher_name")
        )


class BaseSubscriber:
    """Handles fast domain events. Its methods may be coroutines."""

    subscriber_name: Any = ""

    def subscribes_to(self) -> list[str]:
        """Names, in which * stands for any characters."""
        return ["*"]

    def handle(self, event: InProcessDomainEvent) -> Any:
        raise NotImplementedError

    def before_handle(self, event: InProcessDomainEvent) -> Any:
        """Is called before handle; False skips it."""

    def after_handle(self, event: InProcessDomainEvent, result: Any) -> Any:
        """Is called after a handle that succeeded."""

    def on_handle_error(self, event: InProcessDomainEvent, error: Exception) -> Any:
        """Is called after a handle that failed."""

    def matches(self, event_name: str) -> bool:
        return any(native.fits(p, event_name) for p in self.subscribes_to())


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

    def _for(self, event: native.StepEvent) -> bool:
        """Whether it makes the events of a step; a batch has the name of its worker step and a number."""
        steps, name = self._publisher.publishes_for(), event.step.step_name
        return not steps or name in steps or name.rpartition("_")[0] in steps

    def before(self, event: native.StepEvent) -> Any:
        return (
            self._publisher.before_publish(StepEventContext.of(event)) if self._for(event) and not self._own else None
        )

    def should_publish(self, event: native.StepEvent) -> Any:
        return self._publisher.should_publish(StepEventContext.of(event)) if self._for(event) else True

    async def payload(self, event: native.StepEvent) -> Any:
        if not self._for(event):
            return event.payload
        ctx = StepEventContext.of(event)
        if not self._own:
            return await _value(self._publisher.transform_payload(ctx))
        made = await _value(self._publisher.publish(ctx))
        return made.payload if isinstance(made, DomainEvent) else made if isinstance(made, dict) else event.payload

    def metadata(self, event: native.StepEvent) -> Any:
        return self._publisher.additional_metadata(StepEventContext.of(event)) if self._for(event) else None

    def after(self, event: native.StepEvent) -> Any:
        if self._for(event):
            made = DomainEvent(event.name, event.payload, delivery_mode=event.delivery_mode, publisher=self.name)
            return self._publisher.after_publish(StepEventContext.of(event), made)
        return None

    def failed(self, event: native.StepEvent, error: Exception) -> Any:
        return self._publisher.on_publish_error(StepEventContext.of(event), error)


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
        await _value(self._subscriber.after_handle(there, result))

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
        self._publishers[name or named(one, "publisher_name")] = one
        self._tell(one)
        return one

    def get(self, name: str) -> BasePublisher | None:
        return self._publishers.get(name)

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

    def clear(self) -> None:
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
        self._natives: dict[str, SubscriberOf] = {}
        self._started = False

    def register(self, subscriber: Any) -> BaseSubscriber:
        """Registers a class or an object."""
        one: BaseSubscriber = subscriber() if isinstance(subscriber, type) else subscriber
        name = named(one, "subscriber_name")
        self._subscribers[name], self._natives[name] = one, SubscriberOf(one)
        if self._started:
            self._tell(self)
        return one

    def start_all(self) -> None:
        self._started = True
        self._tell(self)

    def stop_all(self) -> None:
        self._started = False
        self._tell(self)

    @property
    def is_started(self) -> bool:
        return self._started

    def get(self, name: str) -> BaseSubscriber | None:
        return self._subscribers.get(name)

    def get_matching_subscribers(self, event_name: str) -> list[BaseSubscriber]:
        return [s for s in self._subscribers.values() if s.matches(event_name)]

    def list_subscribers(self) -> list[str]:
        return list(self._subscribers)

    @property
    def subscriber_count(self) -> int:
        return len(self._subscribers)

    def clear(self) -> None:
        self._subscribers.clear()
        self._natives.clear()
        self._tell(self)

    def natives(self) -> Sequence[SubscriberOf]:
        """Those that have started."""
        return list(self._natives.values()) if self._started else []
