"""The worker of tasker_core: how an application starts it, and the events by which it runs steps."""

from __future__ import annotations

import inspect
import logging
import os
import queue
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Union

from .. import _errors
from .._client import ApiError, Client, NotReached
from .._context import StepContext as Step
from .._threads import Loop
from .._worker import Worker
from . import registry as handlers_
from .domain_events import PublisherRegistry, SubscriberRegistry
from .errors import FFIError, WorkerAlreadyRunningError, WorkerBootstrapError, WorkerNotInitializedError
from .registry import HandlerRegistry, called, find_handler, native_error, taken
from .types import (
    BootstrapConfig,
    BootstrapResult,
    FfiDispatchMetrics,
    FfiStepEvent,
    HealthCheck,
    LogContext,
    StepHandlerResult,
    WorkerStatus,
)

JSON = Any
_log = logging.getLogger("tasker_core")

_STARVING = 10.0  # seconds after which an event that no subscriber takes is starving
_TEMPLATES = (".yaml", ".yml", ".json")


class EventNames:
    """The names of the events of an EventBridge."""

    STEP_EXECUTION_RECEIVED = "step_execution_received"
    STEP_EXECUTION_STARTED = "step_execution_started"
    STEP_EXECUTION_COMPLETED = "step_execution_completed"
    STEP_EXECUTION_FAILED = "step_execution_failed"
    STEP_COMPLETION_SENT = "step_completion_sent"
    HANDLER_REGISTERED = "handler_registered"
    HANDLER_ERROR = "handler_error"
    POLLER_METRICS = "poller_metrics"
    POLLER_ERROR = "poller_error"
    WORKER_STARTED = "worker_started"
    WORKER_STOPPED = "worker_stopped"


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

    def subscribe(self, event: str, call: Callable[..., Any]) -> None:
        with self._lock:
            self._subscribers.setdefault(event, []).append(call)

    def unsubscribe(self, event: str, call: Callable[..., Any]) -> None:
        with self._lock:
            if call in self._subscribers.get(event, []):
                self._subscribers[event].remove(call)

    def publish(self, event: str, *args: Any, **options: Any) -> bool:
        """Calls the subscribers. Reports whether the bridge runs."""
        if not self._active and event != EventNames.STEP_EXECUTION_RECEIVED:
            return False
        with self._lock:
            calls = list(self._subscribers.get(event, []))
        for call in calls:
            try:
                value = call(*args, **options)
                if inspect.isawaitable(value):
                    _runtime.loop.value(value)
            except Exception as e:
                _log.warning("a subscriber of the event %s failed", event, exc_info=e)
        return True

    def subscriber_count(self, event: str) -> int:
        with self._lock:
            return len(self._subscribers.get(event, []))


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
        self.worker: Worker | None = None
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
            worker = Worker(
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
        return FfiDispatchMetrics(
            len(pending),
            len(open_) - len(pending),
            self.completed,
            self.failed,
            bool(starving),
            len(starving),
            None if oldest is None else int(oldest * 1000),
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

    def __init__(
        self, polling_interval_ms: int = 10, starvation_check_interval: int = 100, cleanup_interval: int = 1000
    ) -> None:
        self.polling_interval_ms = polling_interval_ms
        self.starvation_check_interval = starvation_check_interval
        self.cleanup_interval = cleanup_interval
        self._steps: list[Callable[[FfiStepEvent], Any]] = []
        self._metrics: list[Callable[[FfiDispatchMetrics], Any]] = []
        self._errors: list[Callable[[Exception], Any]] = []
        self._running = False

    def on_step_event(self, call: Callable[[FfiStepEvent], Any]) -> None:
        self._steps.append(call)

    def on_metrics(self, call: Callable[[FfiDispatchMetrics], Any]) -> None:
        self._metrics.append(call)

    def on_error(self, call: Callable[[Exception], Any]) -> None:
        self._errors.append(call)

    def start(self) -> None:
        if self._running:
            raise FFIError("start the poller: it runs already")
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
            failed = failed or isinstance(end, StepHandlerResult) and not end.success
            self._bridge.publish(
                EventNames.STEP_EXECUTION_FAILED if failed else EventNames.STEP_EXECUTION_COMPLETED, _told(event, end)
            )
            self._bridge.publish(EventNames.STEP_COMPLETION_SENT, _told(event, end))


def _name(step: Step) -> str:
    return str(step._message.get("offered") or step.callable)


def _told(event: FfiStepEvent, end: Any) -> StepHandlerResult:
    """The end of a step, for those who are told of it."""
    if isinstance(end, StepHandlerResult):
        return end
    if isinstance(end, BaseException):
        kind = getattr(end, "error_type", type(end).__name__)
        return StepHandlerResult.failure_handler_result(
            str(end), kind, retryable=getattr(end, "retryable", True), metadata={"step_uuid": event.step_uuid}
        )
    return StepHandlerResult.success_handler_result(end)


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
    components = {
        "worker": {"status": status.status, "handlers": status.handler_count},
        "dispatch": metrics.model_dump(),
    }
    return HealthCheck("healthy" if healthy else "unhealthy", healthy, status.worker_id, components)


health_check = get_health_check


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
    if isinstance(result, Mapping) and "success" in result:
        fields = {
            "error_message": (
                (result.get("error") or {}).get("message") if isinstance(result.get("error"), Mapping) else None
            ),
            **result,
        }
        result = StepHandlerResult.model_validate({k: v for k, v in fields.items() if v is not None})
    return _runtime.complete(event_id, result)


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
    def log(message: str, context: Any = None, **fields: Any) -> None:
        if isinstance(context, LogContext):
            known = context.model_dump(exclude_none=True)
            fields = {**known.pop("extra", {}), **known, **fields}
        elif isinstance(context, Mapping):
            fields = {**context, **fields}
        text = " ".join(f"{k}={v}" for k, v in fields.items())
        _log.log(level, "%s%s", message, f" {text}" if text else "", extra={"fields": fields})

    return log


log_trace = _logged(5)
log_debug = _logged(logging.DEBUG)
log_info = _logged(logging.INFO)
log_warn = _logged(logging.WARNING)
log_warning = log_warn
log_error = _logged(logging.ERROR)
