"""The worker of tasker_core: how an application starts it, and the events by which it runs steps."""

from __future__ import annotations

import collections
import inspect
import logging
import os
import queue
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence, Union

from .. import _errors
from .. import _events as native_events
from .._client import ApiError, Client, NotReached
from .._context import StepContext as Step
from .._context import _current
from .._lines import fields_of, level_of, quietly
from .._threads import Loop
from .._worker import Worker as Session
from . import registry as handlers_
from .domain_events import InProcessDomainEvent, PublisherRegistry, SubscriberRegistry
from .errors import FFIError, WorkerAlreadyRunningError, WorkerBootstrapError, WorkerNotInitializedError
from .registry import HandlerRegistry, called, find_handler, native_error, taken
from .types import (
    BootstrapConfig,
    BootstrapResult,
    ComponentHealth,
    FfiDispatchMetrics,
    FfiStepEvent,
    HealthCheck,
    LogContext,
    StepError,
    StepExecutionResult,
    StepHandlerResult,
    WorkerConfig,
    WorkerMetrics,
    WorkerStatus,
)

JSON = Any
_log = logging.getLogger("tasker_core")

_STARVING = 10.0  # seconds after which an event that no subscriber takes is starving
_TEMPLATES = (".yaml", ".yml", ".json")


class EventNames:
    """The names of the events of an EventBridge. There, an underscore is the same as a point."""

    STEP_EXECUTION_RECEIVED = "step.execution.received"
    STEP_EXECUTION_STARTED = "step.execution.started"
    STEP_EXECUTION_COMPLETED = "step.execution.completed"
    STEP_EXECUTION_FAILED = "step.execution.failed"
    STEP_COMPLETION_SENT = "step.completion.sent"
    STEP_CHECKPOINT_YIELD = "step.checkpoint_yield.sent"
    HANDLER_REGISTERED = "handler.registered"
    HANDLER_ERROR = "handler.error"
    POLLER_METRICS = "poller.metrics"
    POLLER_ERROR = "poller.error"
    WORKER_STARTED = "worker.started"
    WORKER_STOPPED = "worker.stopped"


class EventBridge:
    """Calls functions with events of the process, in the thread that publishes them."""

    _instance: EventBridge | None = None
    _guard = threading.Lock()

    def __init__(self) -> None:
        self._subscribers: dict[str, list[Callable[..., Any]]] = {}
        self._lock = threading.Lock()
        self._active = False

    @classmethod
    def instance(cls) -> EventBridge:
        with cls._guard:
            if cls._instance is None:
                cls._instance = cls()
            return cls._instance

    @classmethod
    def reset_instance(cls) -> None:
        with cls._guard:
            cls._instance = None

    def start(self) -> None:
        self._active = True

    def stop(self) -> None:
        """Ends publishing; what subscribes stays, for the steps that still run."""
        self._active = False

    @property
    def is_active(self) -> bool:
        return self._active

    is_running = is_active

    def subscribe(self, event: str, handler: Callable[..., Any]) -> None:
        with self._lock:
            self._subscribers.setdefault(_point(event), []).append(handler)

    def subscribe_once(self, event: str, handler: Callable[..., Any]) -> None:
        """Has a function called with the next event, and not again."""

        def once(*args: Any, **options: Any) -> Any:
            self.unsubscribe(event, once)
            return handler(*args, **options)

        self.subscribe(event, once)

    def unsubscribe(self, event: str, handler: Callable[..., Any]) -> None:
        with self._lock:
            if handler in self._subscribers.get(_point(event), []):
                self._subscribers[_point(event)].remove(handler)

    def listeners(self, event: str) -> list[Callable[..., Any]]:
        with self._lock:
            return list(self._subscribers.get(_point(event), []))

    def listener_count(self, event: str) -> int:
        return len(self.listeners(event))

    @property
    def event_schema(self) -> dict[str, str]:
        """The types of what functions are called with, by event."""
        return dict(_SCHEMA)

    def publish(self, event: str, *args: Any, **options: Any) -> bool:
        """Calls the subscribers. Reports whether the bridge runs."""
        if not self._active and _point(event) != EventNames.STEP_EXECUTION_RECEIVED:
            return False
        with self._lock:
            calls = list(self._subscribers.get(_point(event), []))
        for call in calls:
            try:
                value = call(*args, **options)
                if inspect.isawaitable(value):
                    _runtime.loop.value(value)
            except Exception as e:
                _log.warning("a subscriber of the event %s failed", event, exc_info=e)
        return True

    subscriber_count = listener_count


def _point(event: str) -> str:
    return event.replace("_", ".")


_SCHEMA = {
    EventNames.STEP_EXECUTION_RECEIVED: "FfiStepEvent",
    EventNames.STEP_COMPLETION_SENT: "StepExecutionResult",
    EventNames.STEP_CHECKPOINT_YIELD: "dict[str, Any]",
    EventNames.HANDLER_REGISTERED: "tuple[str, type]",
    EventNames.HANDLER_ERROR: "tuple[FfiStepEvent, Exception]",
    EventNames.POLLER_METRICS: "FfiDispatchMetrics",
    EventNames.POLLER_ERROR: "Exception",
    EventNames.WORKER_STARTED: "str",
    EventNames.WORKER_STOPPED: "str",
}


@dataclass
class _Dispatch:
    """A step that waits for its end."""

    step: Step
    event: FfiStepEvent
    done: threading.Event = field(default_factory=threading.Event)
    end: Any = None  # a result, or an exception
    taken: bool = False
    begun: float = field(default_factory=time.monotonic)


class _Runtime:
    """The worker of the process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.loop = Loop()
        self.reset()

    def reset(self) -> None:
        self.config: BootstrapConfig | None = None
        self.worker: Session | None = None
        self.dispatches: dict[str, _Dispatch] = {}
        self.waiting: queue.SimpleQueue[FfiStepEvent] = queue.SimpleQueue()
        self.poller: EventPoller | None = None
        self.completed = 0
        self.failed = 0
        self.wanted = False  # the session is to be opened once there is a handler
        self.publishers: set[int] = set()
        self.subscribers: dict[int, Any] = {}

    def bootstrap(self, config: BootstrapConfig) -> BootstrapResult:
        with self.lock:
            if self.config is not None:
                raise WorkerAlreadyRunningError(
                    f"the worker {self.config.worker_id} was started already: want stop_worker first"
                )
            config.worker_id = config.worker_id or f"python-worker-{os.getpid()}"
            self.config = config
            paths = handlers_.environment_paths()
            try:
                for path in paths["PYTHON_HANDLER_PATH"]:
                    HandlerRegistry.instance().discover_path(path)
            except Exception as e:
                self.config = None
                raise WorkerBootstrapError(f"import the handlers of PYTHON_HANDLER_PATH: {e}") from e
            HandlerRegistry.instance().bootstrap_handlers()
            self.register_templates(
                [*([config.template_path] if config.template_path else []), *paths["TASKER_TEMPLATE_PATH"]]
            )
            HandlerRegistry.instance().on_register(self.handler_registered)
        EventBridge.instance().publish(EventNames.WORKER_STARTED, config.worker_id)
        return BootstrapResult(
            True, "started", config.worker_id, config.worker_id, "the session is opened when polling begins"
        )

    def register_templates(self, paths: list[str]) -> None:
        """Registers templates as a worker there does. One that cannot be registered is logged."""
        files = [
            f
            for p in paths
            for f in ([Path(p)] if Path(p).is_file() else sorted(Path(p).rglob("*")))
            if f.suffix in _TEMPLATES
        ]
        client = Client(source_system="tasker_core", initiator=self.config.worker_id or "" if self.config else "")
        for file in files:
            try:
                client.register_template(
                    file.read_text(encoding="utf-8"), reason="TASKER_TEMPLATE_PATH of a worker", actor="tasker_core"
                )
            except (ApiError, NotReached, OSError) as e:
                _log.warning("register the template %s: %s", file, e)

    def start(self) -> None:
        """Opens the session, once there is a handler."""
        with self.lock:
            if self.config is None:
                raise WorkerNotInitializedError("the worker was not started: want bootstrap_worker first")
            if self.worker is not None:
                return
            found = HandlerRegistry.instance().natives(self.execute)
            if not found._handlers and not found._resolvers:
                self.wanted = True
                return
            worker = Session(
                self.config.worker_url or "", permits=self.config.max_concurrent_steps, name=self.config.worker_id or ""
            )
            worker.include(found)
            self.worker = worker
            self.extend_events(None)
            PublisherRegistry.instance().on_change(self.extend_events)
            SubscriberRegistry.instance().on_change(self.extend_events)
            HandlerRegistry.instance().resolver_chain._listeners.append(self.resolver_registered)
            worker.start()

    def handler_registered(self, name: str, handler: Any) -> None:
        EventBridge.instance().publish(EventNames.HANDLER_REGISTERED, name, handler)
        with self.lock:
            if self.worker is not None:
                self.worker._aliases.update(HandlerRegistry.instance().aliases())
                for known, one in HandlerRegistry.instance().names().items():
                    handlers_.add(self.worker, known, one, self.execute)
            elif self.wanted:
                self.start()

    def resolver_registered(self) -> None:
        with self.lock:
            if self.worker is not None:
                known = {r.name for r in self.worker._resolvers}
                for r in HandlerRegistry.instance().natives(self.execute)._resolvers:
                    if r.name not in known:
                        self.worker.resolver(r)

    def extend_events(self, _: Any) -> None:
        """Offers the publishers and subscribers that are new, and drops subscribers that were stopped."""
        with self.lock:
            if self.worker is None:
                return
            for p in PublisherRegistry.instance().natives():
                if p.name not in self.worker._publishers:
                    self.worker.publisher(p)
            wanted = {id(s): s for s in SubscriberRegistry.instance().natives()}
            for key in set(self.subscribers) - set(wanted):
                self.worker._subscribers.remove(self.subscribers.pop(key))
                self.worker._extended()
            for key, s in wanted.items():
                if key not in self.subscribers:
                    self.subscribers[key] = s
                    self.worker.subscriber(s)

    def execute(self, step: Step, name: str) -> JSON:
        """Hands the event of a step to the subscribers, and returns its result."""
        event = FfiStepEvent.of(step)
        one = _Dispatch(step, event)
        self.dispatches[event.event_id] = one
        try:
            if self.poller is not None:
                one.taken = True
                self.poller._deliver(event)
                if not one.done.is_set():
                    _log.warning(
                        "the event of step %s is not completed yet: want a StepExecutionSubscriber that is started",
                        step.step_name,
                    )
            else:
                self.waiting.put(event)
            while not one.done.wait(0.5):
                step.check()
        finally:
            self.dispatches.pop(event.event_id, None)
        if isinstance(one.end, BaseException):
            self.failed += 1
            raise one.end
        try:
            value = taken(step, one.end)
        except _errors.TaskerError:
            self.failed += 1
            raise
        self.completed += 1
        return value

    def complete(self, event_id: str, end: Any) -> bool:
        one = self.dispatches.get(event_id)
        if one is None or one.done.is_set():
            return False
        one.end = end
        one.done.set()
        return True

    def metrics(self) -> FfiDispatchMetrics:
        now, open_ = time.monotonic(), list(self.dispatches.values())
        pending = [d for d in open_ if not d.taken]
        starving = [d for d in pending if now - d.begun > _STARVING]
        oldest = max((now - d.begun for d in pending), default=None)
        newest = min((now - d.begun for d in pending), default=None)
        first = min(pending, key=lambda d: d.begun, default=None)
        return FfiDispatchMetrics(
            len(pending),
            len(open_) - len(pending),
            self.completed,
            self.failed,
            bool(starving),
            len(starving),
            None if oldest is None else int(oldest * 1000),
            None if newest is None else int(newest * 1000),
            None if first is None else first.event.event_id,
        )

    def status(self) -> WorkerStatus:
        metrics, config = self.metrics(), self.config
        running = config is not None
        return WorkerStatus(
            running,
            config.worker_id if config else None,
            config.environment or os.environ.get("TASKER_ENV", "development") if config else None,
            "running" if running else "stopped",
            HandlerRegistry.instance().handler_count(),
            metrics.pending_count,
            metrics.in_flight_count,
            metrics.completed_count,
            metrics.failed_count,
        )

    def stop(self, timeout: float | None = None) -> None:
        worker = self.worker
        if worker is not None:
            worker.stop(timeout)

    def end(self) -> bool:
        """Ends the worker. Reports whether there was one."""
        with self.lock:
            running, self.wanted = self.config is not None, False
        self.stop()
        with self.lock:
            registry = HandlerRegistry.instance()
            for listeners, one in (
                (registry._listeners, self.handler_registered),
                (registry.resolver_chain._listeners, self.resolver_registered),
                (PublisherRegistry.instance()._listeners, self.extend_events),
                (SubscriberRegistry.instance()._listeners, self.extend_events),
            ):
                if one in listeners:
                    listeners.remove(one)  # type: ignore[arg-type]
            self.reset()
        return running


_runtime = _Runtime()


class EventPoller:
    """Calls functions with the steps of the session. The intervals are those of a poller there; here a step comes when
    it is there, and metrics and errors are told as they occur."""

    DEFAULT_POLL_INTERVAL_MS = 10
    DEFAULT_STARVATION_CHECK_INTERVAL = 100
    DEFAULT_CLEANUP_INTERVAL = 1000

    def __init__(
        self,
        polling_interval_ms: int = DEFAULT_POLL_INTERVAL_MS,
        starvation_check_interval: int = DEFAULT_STARVATION_CHECK_INTERVAL,
        cleanup_interval: int = DEFAULT_CLEANUP_INTERVAL,
    ) -> None:
        self.polling_interval_ms = polling_interval_ms
        self.starvation_check_interval = starvation_check_interval
        self.cleanup_interval = cleanup_interval
        self._steps: list[Callable[[FfiStepEvent], Any]] = []
        self._metrics: list[Callable[[FfiDispatchMetrics], Any]] = []
        self._errors: list[Callable[[Exception], Any]] = []
        self._running = False

    def on_step_event(self, callback: Callable[[FfiStepEvent], Any]) -> None:
        self._steps.append(callback)

    def on_metrics(self, callback: Callable[[FfiDispatchMetrics], Any]) -> None:
        self._metrics.append(callback)

    def on_error(self, callback: Callable[[Exception], Any]) -> None:
        self._errors.append(callback)

    def start(self) -> None:
        if self._running:
            raise RuntimeError("start the poller: it runs already")
        self._running = True
        _runtime.poller = self
        _runtime.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Takes no more steps, and waits for those that run, not longer than so many seconds."""
        if self._running:
            self._running = False
            _runtime.stop(timeout)

    @property
    def is_running(self) -> bool:
        return self._running

    def get_metrics(self) -> FfiDispatchMetrics:
        return _runtime.metrics()

    def _deliver(self, event: FfiStepEvent) -> None:
        for call in self._steps:
            try:
                value = call(event)
                if inspect.isawaitable(value):
                    _runtime.loop.value(value)
            except Exception as e:
                _log.warning("a function for steps failed", exc_info=e)
                self._tell(self._errors, e)
                EventBridge.instance().publish(EventNames.POLLER_ERROR, e)
        metrics = _runtime.metrics()
        self._tell(self._metrics, metrics)
        EventBridge.instance().publish(EventNames.POLLER_METRICS, metrics)

    @staticmethod
    def _tell(calls: list[Callable[[Any], Any]], value: Any) -> None:
        for call in list(calls):
            try:
                call(value)
            except Exception as e:
                _log.warning("a function of the poller failed", exc_info=e)


class StepExecutionSubscriber:
    """Runs the handlers of the steps that a bridge tells of."""

    def __init__(
        self,
        event_bridge: EventBridge | None = None,
        handler_registry: HandlerRegistry | None = None,
        worker_id: str = "python-worker",
    ) -> None:
        self._bridge = event_bridge or EventBridge.instance()
        self._registry = handler_registry or HandlerRegistry.instance()
        self.worker_id = worker_id
        self._running = False

    def start(self) -> None:
        if not self._running:
            self._running = True
            self._bridge.subscribe(EventNames.STEP_EXECUTION_RECEIVED, self.handle)

    def stop(self) -> None:
        """Takes no more steps."""
        if self._running:
            self._running = False
            self._bridge.unsubscribe(EventNames.STEP_EXECUTION_RECEIVED, self.handle)

    @property
    def is_running(self) -> bool:
        return self._running

    is_active = is_running

    def handle(self, event: FfiStepEvent) -> None:
        """Runs a step, and completes its event."""
        step = event._step
        if step is None:
            raise FFIError("run a step: its event is not from this worker")
        begun = time.monotonic()
        self._bridge.publish(EventNames.STEP_EXECUTION_STARTED, event)
        try:
            handler = _runtime.loop.value(find_handler(self._registry, step, _name(step)), step.check)
            end: Any = _runtime.loop.value(called(handler, step, _name(step), event), step.check)
        except BaseException as e:
            end = native_error(e)
        failed = isinstance(end, BaseException) and not isinstance(
            end, (_errors.Yield, _errors.Cancelled, _errors.Returned)
        )
        if failed:
            self._bridge.publish(EventNames.HANDLER_ERROR, event, end)
        if _runtime.complete(event.event_id, end):
            point = _yielded(end)
            if point is not None:
                self._bridge.publish(EventNames.STEP_CHECKPOINT_YIELD, {"step_uuid": event.step_uuid, **point})
                return
            failed = failed or isinstance(end, StepHandlerResult) and not end.success
            took = int((time.monotonic() - begun) * 1000)
            told = _told(event, end, took, self.worker_id)
            self._bridge.publish(
                EventNames.STEP_EXECUTION_FAILED if failed else EventNames.STEP_EXECUTION_COMPLETED, told
            )
            self._bridge.publish(EventNames.STEP_COMPLETION_SENT, told)


def _name(step: Step) -> str:
    return str(step._message.get("offered") or step.callable)


def _yielded(end: Any) -> dict[str, Any] | None:
    """The point at which a step saves its progress; None of another end."""
    if isinstance(end, _errors.Yield):
        return dict(end.point)
    if isinstance(end, StepHandlerResult) and end.metadata.get("checkpoint_yield") is True:
        return dict(end.result or {})
    return None


def _told(event: FfiStepEvent, end: Any, took: int, worker_id: str) -> StepExecutionResult:
    """The end of a step, for those who are told of it."""
    of = (event.step_uuid, event.task_uuid)
    more: dict[str, Any] = {"execution_time_ms": took, "worker_id": worker_id, "correlation_id": event.correlation_id}
    if isinstance(end, BaseException):
        kind = getattr(end, "error_type", type(end).__name__)
        error = StepError(kind, str(end), retryable=getattr(end, "retryable", True))
        return StepExecutionResult.failure_result(*of, error, metadata={"retryable": error.retryable}, **more)
    if not isinstance(end, StepHandlerResult):
        return StepExecutionResult.success_result(*of, end, **more)
    if end.success:
        return StepExecutionResult.success_result(*of, end.result, metadata=end.metadata, **more)
    error = StepError(
        end.error_type or "unknown", end.error_message or "Unknown error", None, end.retryable, end.metadata
    )
    return StepExecutionResult.failure_result(*of, error, metadata={**end.metadata, "retryable": end.retryable}, **more)


Config = Union[BootstrapConfig, Mapping[str, Any], None]


def bootstrap_worker(config: Config = None, **options: Any) -> BootstrapResult:
    """Prepares the worker of the process: imports the handlers of PYTHON_HANDLER_PATH and registers the templates of
    TASKER_TEMPLATE_PATH. Its session with the daemon (TASKER_WORKER_URL) is opened when an EventPoller starts."""
    return _runtime.bootstrap(BootstrapConfig.model_validate({**options} if config is None else config))


def stop_worker() -> WorkerStatus:
    """Takes no more steps, waits for those that run, and ends the worker."""
    worker_id = _runtime.config.worker_id if _runtime.config else None
    if _runtime.end():
        EventBridge.instance().publish(EventNames.WORKER_STOPPED, worker_id)
    return _runtime.status()


def transition_to_graceful_shutdown() -> WorkerStatus:
    """Takes no more steps; those that run continue."""
    _runtime.stop(0)
    return _runtime.status()


def get_worker_status() -> WorkerStatus:
    return _runtime.status()


def is_worker_running() -> bool:
    return _runtime.config is not None


def get_health_check() -> HealthCheck:
    status = _runtime.status()
    metrics = _runtime.metrics()
    healthy = status.running and not metrics.starvation_detected
    told = "healthy" if healthy else "unhealthy"
    dispatch = "unhealthy" if metrics.starvation_detected else "healthy"
    components = {
        "worker": ComponentHealth("worker", status.status, details={"handlers": status.handler_count}),
        "dispatch": ComponentHealth("dispatch", dispatch, details=metrics.model_dump()),
    }
    versions = {"version": get_version(), "runtime": sys.version.split()[0]}
    return HealthCheck(told, healthy, status.worker_id, components, status.running, {}, versions)


def get_metrics() -> WorkerMetrics:
    metrics, config = _runtime.metrics(), _runtime.config
    if config is None:
        raise WorkerNotInitializedError("read the metrics: the worker was not started")
    return WorkerMetrics(
        metrics.pending_count,
        metrics.oldest_pending_age_ms,
        metrics.newest_pending_age_ms,
        metrics.starvation_detected,
        metrics.starving_event_count,
        environment=config.environment or os.environ.get("TASKER_ENV", "development"),
        steps_processed=metrics.completed_count + metrics.failed_count,
        steps_succeeded=metrics.completed_count,
        steps_failed=metrics.failed_count,
        steps_in_progress=metrics.in_flight_count,
    )


def get_worker_config() -> WorkerConfig:
    config = _runtime.config
    if config is None:
        raise WorkerNotInitializedError("read the configuration: the worker was not started")
    namespaces = [config.namespace] if config.namespace else []
    return WorkerConfig(
        config.environment or os.environ.get("TASKER_ENV", "development"),
        namespaces,
        max_concurrent_handlers=config.max_concurrent_steps,
        starvation_threshold_ms=int(_STARVING * 1000),
    )


def get_version() -> str:
    """The version of this package."""
    from . import __version__

    return __version__


def get_rust_version() -> str:
    """That of the engine's side there; here this package has the only one."""
    return f"tasker-go {get_version()}"


version = get_version


def health_check() -> bool:
    return get_health_check().is_healthy


class Worker:
    """The worker of the process with all of its parts: start opens it, and stop ends it."""

    _instance: Worker | None = None

    def __init__(self) -> None:
        self._bootstrap_result: BootstrapResult | None = None
        self._poller: EventPoller | None = None
        self._subscriber: StepExecutionSubscriber | None = None
        self._bridge: EventBridge | None = None
        self._running = False

    @classmethod
    def start(cls, handler_packages: Sequence[str] | None = None, config: Config = None) -> Worker:
        """Starts the worker with the handlers of packages. One that runs already is returned."""
        if cls._instance is not None and cls._instance._running:
            _log.warning("start the worker: it runs already")
            return cls._instance
        worker = cls()
        worker._bootstrap_result = bootstrap_worker(config)
        registry, bridge = HandlerRegistry.instance(), EventBridge.instance()
        for package in handler_packages or ():
            registry.discover_handlers(package)
        bridge.start()
        subscriber = StepExecutionSubscriber(bridge, registry, worker.worker_id)
        subscriber.start()
        poller = EventPoller()
        poller.on_step_event(lambda event: bridge.publish(EventNames.STEP_EXECUTION_RECEIVED, event))
        poller.start()
        worker._poller, worker._subscriber, worker._bridge, worker._running = poller, subscriber, bridge, True
        cls._instance = worker
        return worker

    def stop(self) -> None:
        """Takes no more steps, waits for those that run, and ends the worker."""
        if not self._running:
            return
        self._running = False
        for part in (self._poller, self._subscriber, self._bridge):
            if part is not None:
                part.stop()
        stop_worker()
        if Worker._instance is self:
            Worker._instance = None

    @classmethod
    def instance(cls) -> Worker | None:
        """The worker that runs; None without one."""
        return cls._instance if cls._instance is not None and cls._instance._running else None

    @classmethod
    def reset_instance(cls) -> None:
        if cls._instance is not None:
            cls._instance.stop()
        cls._instance = None

    @property
    def worker_id(self) -> str:
        return self._bootstrap_result.worker_id if self._bootstrap_result is not None else ""

    @property
    def is_running(self) -> bool:
        return self._running

    @property
    def bootstrap_result(self) -> BootstrapResult:
        if self._bootstrap_result is None:
            raise RuntimeError("read the result of the bootstrap: the worker was not started")
        return self._bootstrap_result

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def poll_step_events() -> FfiStepEvent | None:
    """The next step, None without one: for an application without an EventPoller. complete_step_event ends it."""
    _runtime.start()
    try:
        event = _runtime.waiting.get_nowait()
    except queue.Empty:
        return None
    if (one := _runtime.dispatches.get(event.event_id)) is not None:
        one.taken = True
    return event


def complete_step_event(event_id: str, result: Any) -> bool:
    """Ends a step with a result, or with a mapping of its fields. Reports whether it was waited for."""
    if isinstance(result, StepExecutionResult):
        result = result.model_dump()
    if isinstance(result, Mapping) and "success" in result:
        error = result.get("error") if isinstance(result.get("error"), Mapping) else {}
        fields = {
            "error_message": (error or {}).get("message"),
            "error_type": (error or {}).get("error_type"),
            "retryable": (error or {}).get("retryable"),
            **result,
        }
        result = StepHandlerResult.model_validate({k: v for k, v in fields.items() if v is not None})
    return _runtime.complete(event_id, result)


class _Kept(native_events.Subscriber):
    """Keeps the fast events for poll_in_process_events, the newest of them if there are many."""

    name, patterns = "tasker_core", ("*",)

    def __init__(self) -> None:
        self.events: collections.deque[InProcessDomainEvent] = collections.deque(maxlen=1000)

    def handle(self, event: native_events.Event) -> None:
        self.events.append(InProcessDomainEvent.of(event))


def poll_in_process_events() -> InProcessDomainEvent | None:
    """The next fast event, None without one: for an application without subscribers and poller. Events are kept from
    the first call on."""
    registry = SubscriberRegistry.instance()
    kept = registry._kept
    if kept is None:
        kept = registry._kept = _Kept()
        registry._tell(registry)
    return kept.events.popleft() if kept.events else None


def checkpoint_yield_step_event(event_id: str, data: Mapping[str, Any]) -> bool:
    """Saves the progress of a step, and has it called again."""
    return _runtime.complete(
        event_id,
        _errors.Yield(data.get("cursor"), int(data.get("items_processed") or 0), data.get("accumulated_results")),
    )


def get_ffi_dispatch_metrics() -> FfiDispatchMetrics:
    return _runtime.metrics()


def check_starvation_warnings() -> None:
    metrics = _runtime.metrics()
    if metrics.starvation_detected:
        _log.warning("%d steps wait for poll_step_events", metrics.starving_event_count)


def cleanup_timeouts() -> int:
    """Nothing is left behind here: a step whose time is over is cancelled."""
    return 0


def _logged(level: int) -> Callable[..., None]:
    def log(message: str, fields: Any = None, context: Any = None, **more: Any) -> None:
        context, fields = fields if context is None else context, more
        if isinstance(context, LogContext):
            known = context.model_dump(exclude_none=True)
            fields = {**known.pop("extra", {}), **known, **fields}
        elif isinstance(context, Mapping):
            fields = {**context, **fields}
        text = " ".join(f"{k}={v}" for k, v in fields.items())
        step = _current.get(None)
        if step is not None:  # a handler's line is kept with its attempt
            step._keep(level_of(level), str(message), fields_of(fields))
        with quietly():
            _log.log(level, "%s%s", message, f" {text}" if text else "", extra={"fields": fields})

    return log


log_trace = _logged(5)
log_debug = _logged(logging.DEBUG)
log_info = _logged(logging.INFO)
log_warn = _logged(logging.WARNING)
log_warning = log_warn
log_error = _logged(logging.ERROR)
