"""The types of tasker_core, with the names and fields of its documentation."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any, Iterator, Mapping, Sequence, TypeVar, Union

from .. import _bytes
from .. import _context as native
from .._errors import Yield

JSON = Any
M = TypeVar("M", bound="Model")

MAX_ERRORS = 100  # of an aggregation; error_count counts all


class Model:
    """What applications use of the models there: fields, model_dump and model_validate."""

    def model_dump(self, *, exclude_none: bool = False, **_: object) -> dict[str, JSON]:
        names = [f.name for f in dataclasses.fields(self) if not f.name.startswith("_")]  # type: ignore[arg-type]
        fields = {name: _dumped(getattr(self, name)) for name in names}
        return {k: v for k, v in fields.items() if v is not None} if exclude_none else fields

    def model_dump_json(self, **options: Any) -> str:
        return _bytes.dumps(self.model_dump(**options))

    @classmethod
    def model_validate(cls: type[M], value: Any) -> M:
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise ValueError(f"invalid {cls.__name__}: want an object, not {type(value).__name__}")
        known = {f.name for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
        try:
            return cls(**{k: v for k, v in value.items() if k in known})
        except TypeError as e:
            raise ValueError(f"invalid {cls.__name__}: {e}") from e

    @classmethod
    def model_validate_json(cls: type[M], text: str | bytes) -> M:
        return cls.model_validate(json.loads(text))

    def model_copy(self: M, *, update: Mapping[str, Any] | None = None, **_: object) -> M:
        return dataclasses.replace(self, **(update or {}))  # type: ignore[type-var]


def _dumped(value: JSON) -> JSON:
    if isinstance(value, Model):
        return value.model_dump()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {k: _dumped(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_dumped(v) for v in value]
    return value


class ErrorType(str, Enum):
    """The usual values of error_type; any other text is one too."""

    PERMANENT_ERROR = "PermanentError"
    RETRYABLE_ERROR = "RetryableError"
    VALIDATION_ERROR = "ValidationError"
    TIMEOUT_ERROR = "TimeoutError"
    UNEXPECTED_ERROR = "UnexpectedError"
    HANDLER_ERROR = "handler_error"


_NEVER_AGAIN = ("PermanentError", "ValidationError")


@dataclass
class StepHandlerResult(Model):
    """What a handler returns: a success, or a failure."""

    success: bool
    result: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    error_message: str | None = None
    error_type: str | None = None
    error_code: str | None = None
    retryable: bool = True

    @property
    def is_success(self) -> bool:
        return self.success

    @property
    def is_failure(self) -> bool:
        return not self.success

    @classmethod
    def success_handler_result(cls, result: Any = None, metadata: Mapping[str, Any] | None = None) -> StepHandlerResult:
        return cls(True, {} if result is None else result, dict(metadata or {}))

    @classmethod
    def failure_handler_result(
        cls,
        message: str,
        error_type: str = "handler_error",
        *positional: Any,
        retryable: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        error_code: str | None = None,
    ) -> StepHandlerResult:
        """A failure. What follows error_type may be given by its place too: a bool is retryable, a text the error_code,
        and a mapping the metadata. Without retryable, PermanentError and ValidationError are final."""
        for value in positional:
            if isinstance(value, bool):
                retryable = value
            elif isinstance(value, str):
                error_code = value
            elif isinstance(value, Mapping):
                metadata = value
        kind = error_type.value if isinstance(error_type, Enum) else str(error_type)
        again = kind not in _NEVER_AGAIN if retryable is None else bool(retryable)
        return cls(False, None, dict(metadata or {}), str(message), kind, error_code, again)


class _Success:
    """Of an object whether it is a success; of the class what makes one, as failure does."""

    def __get__(self, result: StepHandlerResult | None, owner: type[StepHandlerResult]) -> Any:
        return owner.success_handler_result if result is None else result.__dict__["success"]

    def __set__(self, result: StepHandlerResult, success: bool) -> None:
        result.__dict__["success"] = success


setattr(StepHandlerResult, "success", _Success())
setattr(StepHandlerResult, "failure", StepHandlerResult.failure_handler_result)
StepExecutionResult = StepHandlerResult


class DecisionType(str, Enum):
    """The kinds of outcomes of decisions."""

    CREATE_STEPS = "create_steps"
    NO_BRANCHES = "no_branches"


@dataclass
class DecisionPointOutcome(Model):
    """What a decision creates: steps, or none."""

    type: str
    step_names: list[str] = field(default_factory=list)
    routing_context: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None

    @classmethod
    def create_steps(
        cls, step_names: Sequence[str], routing_context: Mapping[str, Any] | None = None
    ) -> DecisionPointOutcome:
        if isinstance(step_names, str) or not step_names:
            raise ValueError("create_steps: want a list of at least one step; no_branches is for none")
        return cls("create_steps", list(step_names), dict(routing_context or {}))

    @classmethod
    def no_branches(
        cls, reason: str | None = None, routing_context: Mapping[str, Any] | None = None
    ) -> DecisionPointOutcome:
        return cls("no_branches", [], dict(routing_context or {}), reason)

    @property
    def requires_step_creation(self) -> bool:
        return bool(self.step_names)

    @property
    def decision_type(self) -> DecisionType:
        return DecisionType(self.type)

    @property
    def next_step_names(self) -> list[str]:
        return self.step_names

    def to_dict(self) -> dict[str, JSON]:
        """The outcome in the result of its step."""
        return {"type": "create_steps", "step_names": self.step_names} if self.step_names else {"type": "no_branches"}


class FailureStrategy(str, Enum):
    """What becomes of items of a batch that fail."""

    CONTINUE_ON_FAILURE = "continue_on_failure"
    FAIL_FAST = "fail_fast"
    ISOLATE = "isolate"


@dataclass
class CursorConfig(Model):
    """The part of one batch, between cursors that are numbers; end_cursor is exclusive."""

    batch_size: int = 0
    start_cursor: Any = 0
    end_cursor: Any = 0
    batch_id: str = ""
    step_size: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class RustCursorConfig(Model):
    """The part of one batch; cursors are any JSON, end_cursor is exclusive."""

    batch_id: str
    start_cursor: Any
    end_cursor: Any
    batch_size: int


@dataclass
class BatchMetadata(Model):
    """How a batch was made."""

    cursor_field: str = ""
    failure_strategy: str = FailureStrategy.FAIL_FAST


@dataclass
class RustBatchWorkerInputs(Model):
    """The inputs of a batch."""

    cursor: RustCursorConfig
    batch_metadata: BatchMetadata = field(default_factory=BatchMetadata)
    is_no_op: bool = False

    def __post_init__(self) -> None:
        self.cursor = RustCursorConfig.model_validate(self.cursor)
        self.batch_metadata = BatchMetadata.model_validate(self.batch_metadata)


BatchWorkerInputs = RustBatchWorkerInputs


@dataclass
class NoBatchesOutcome(Model):
    """There is nothing to do."""

    type: str = "no_batches"


@dataclass
class CreateBatchesOutcome(Model):
    """The batches of a batchable step."""

    worker_template_name: str
    worker_count: int
    cursor_configs: list[RustCursorConfig]
    total_items: int
    type: str = "create_batches"


BatchProcessingOutcome = Union[NoBatchesOutcome, CreateBatchesOutcome]


def no_batches() -> NoBatchesOutcome:
    return NoBatchesOutcome()


def create_batches(
    worker_template_name: str, worker_count: int, cursor_configs: Sequence[RustCursorConfig], total_items: int
) -> CreateBatchesOutcome:
    if worker_count != len(cursor_configs):
        raise ValueError(f"invalid worker_count {worker_count}: want {len(cursor_configs)}, one for each cursor")
    return CreateBatchesOutcome(worker_template_name, worker_count, list(cursor_configs), total_items)


def wire_cursor(cursor: Any, number: int) -> dict[str, JSON]:
    """A cursor in any of its forms, as the engine reads it."""
    given = dict(cursor) if isinstance(cursor, Mapping) else cursor.model_dump()
    start, end = given.get("start_cursor"), given.get("end_cursor")
    size = given.get("batch_size")
    if not size and isinstance(start, int) and isinstance(end, int):
        size = end - start
    sent = {
        "batch_id": str(given.get("batch_id") or f"{number:03d}"),
        "start_cursor": start,
        "end_cursor": end,
        "batch_size": int(size or 0),
    }
    return {**sent, "items": given["items"]} if given.get("items") else sent


@dataclass
class BatchAnalyzerOutcome(Model):
    """What an analyzer has found."""

    cursor_configs: list[Any]
    total_items: int
    batch_metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_ranges(
        cls, ranges: Sequence[Any], total_items: int, batch_metadata: Mapping[str, Any] | None = None
    ) -> BatchAnalyzerOutcome:
        return cls(list(ranges), total_items, dict(batch_metadata or {}))


@dataclass
class BatchWorkerOutcome(Model):
    """What a batch has done."""

    items_processed: int = 0
    items_succeeded: int | None = None
    items_failed: int = 0
    items_skipped: int = 0
    results: Any = None
    errors: list[Any] = field(default_factory=list)
    last_cursor: Any = None
    batch_metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class BatchAggregationResult(Model):
    """The sums of the results of batches."""

    total_processed: int = 0
    total_succeeded: int = 0
    total_failed: int = 0
    total_skipped: int = 0
    batch_count: int = 0
    success_rate: float = 0.0
    errors: list[Any] = field(default_factory=list)
    error_count: int = 0


@dataclass
class BatchAggregationScenario(Model):
    """What a step behind batches finds: results of batches by their names, or none."""

    batchable_result: Any = None
    batch_results: dict[str, Any] = field(default_factory=dict)

    @property
    def no_batches(self) -> bool:
        return not self.batch_results

    @property
    def worker_count(self) -> int:
        return len(self.batch_results)

    @classmethod
    def detect(cls, dependency_results: Any, batchable_step: str, worker_prefix: str) -> BatchAggregationScenario:
        """Finds them among the results of a step, or of its context; a placeholder without work is no batch."""
        results = getattr(dependency_results, "dependency_results", dependency_results)
        found = {n: r for n, r in results.items() if n.startswith(worker_prefix) and n != batchable_step}
        return cls(
            results.get(batchable_step),
            {n: r for n, r in found.items() if not (isinstance(r, Mapping) and r.get("no_op"))},
        )


def aggregate_batch_results(worker_results: Sequence[Mapping[str, Any] | None]) -> BatchAggregationResult:
    """Adds up the results of batches; None, which a batch without a result has, is left out."""
    sums = BatchAggregationResult()
    for result in worker_results:
        if not isinstance(result, Mapping) or result.get("no_op"):
            continue
        processed = _count(result, "items_processed", "processed_count")
        failed = _count(result, "items_failed", "failed_count")
        sums.total_processed += processed
        sums.total_failed += failed
        sums.total_skipped += _count(result, "items_skipped", "skipped_count")
        given = next((k for k in ("items_succeeded", "succeeded_count") if result.get(k) is not None), None)
        sums.total_succeeded += _count(result, given) if given else processed - failed
        sums.batch_count += 1
        errors = result.get("errors") or []
        sums.error_count += len(errors)
        sums.errors.extend(errors[: MAX_ERRORS - len(sums.errors)])
    if sums.total_processed:
        sums.success_rate = sums.total_succeeded / sums.total_processed
    return sums


def _count(result: Mapping[str, Any], *names: str) -> int:
    return int(next((result[n] for n in names if result.get(n) is not None), 0))


@dataclass(init=False)
class BootstrapConfig(Model):
    """How the worker starts. The address of the worker daemon is worker_url, else TASKER_WORKER_URL; namespace,
    log_level and what else an application gives are kept, and change nothing: a session gets the steps of its handlers in every
    namespace of the daemon."""

    namespace: str | None = None
    log_level: str = "info"
    worker_id: str | None = None
    environment: str | None = None
    config_path: str | None = None
    template_path: str | None = None
    worker_url: str | None = None
    max_concurrent_steps: int = 10
    more: dict[str, Any] = field(default_factory=dict)

    def __init__(self, namespace: str | None = None, log_level: str = "info", **options: Any) -> None:
        self.namespace, self.log_level, self.more = namespace, log_level, {}
        for f in dataclasses.fields(self):
            if f.name not in ("namespace", "log_level", "more"):
                setattr(self, f.name, options.pop(f.name, f.default))
        self.more.update(options)


@dataclass
class BootstrapResult(Model):
    """How the worker has started."""

    success: bool
    status: str
    worker_id: str
    handle_id: str = ""
    message: str = ""
    error_message: str | None = None


@dataclass
class WorkerStatus(Model):
    """What the worker does."""

    running: bool
    worker_id: str | None = None
    environment: str | None = None
    status: str = "stopped"
    handler_count: int = 0
    pending_count: int = 0
    in_flight_count: int = 0
    completed_count: int = 0
    failed_count: int = 0


@dataclass
class HealthCheck(Model):
    """The health of the worker."""

    status: str
    is_healthy: bool
    worker_id: str | None = None
    components: dict[str, Any] = field(default_factory=dict)


@dataclass
class FfiDispatchMetrics(Model):
    """What the poller has seen."""

    pending_count: int = 0
    in_flight_count: int = 0
    completed_count: int = 0
    failed_count: int = 0
    starvation_detected: bool = False
    starving_event_count: int = 0
    oldest_pending_age_ms: int | None = None


@dataclass(init=False)
class LogContext(Model):
    """What identifies a record of the log; extra has all other fields."""

    correlation_id: str | None = None
    task_uuid: str | None = None
    step_uuid: str | None = None
    namespace: str | None = None
    operation: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def __init__(self, **fields: Any) -> None:
        self.extra = {}
        for name in ("correlation_id", "task_uuid", "step_uuid", "namespace", "operation"):
            setattr(self, name, fields.pop(name, None))
        self.extra.update(fields.pop("extra", None) or {}, **fields)


@dataclass
class FfiStepEvent(Model):
    """A step to run."""

    event_id: str
    task_uuid: str
    step_uuid: str
    correlation_id: str
    task_sequence_step: dict[str, Any] = field(default_factory=dict)
    parent_correlation_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    _step: native.StepContext | None = field(default=None, repr=False, compare=False)

    @property
    def step_name(self) -> str:
        return str(self.task_sequence_step.get("workflow_step", {}).get("name", ""))

    @classmethod
    def of(cls, step: native.StepContext) -> FfiStepEvent:
        """The event of a step that a session was handed."""
        trace = (step.traceparent or "--").split("-")
        return cls(
            event_id=f"{step.step_uuid}:{step.fence}",
            task_uuid=step.task_uuid,
            step_uuid=step.step_uuid,
            correlation_id=step.correlation_id,
            task_sequence_step=_sequence_step(step),
            parent_correlation_id=step.parent_correlation_id or None,
            trace_id=trace[1] or None,
            span_id=trace[2] or None,
            _step=step,
        )


def _sequence_step(step: native.StepContext) -> dict[str, Any]:
    """A step with its task and definition, as handlers there get them."""
    saved = step._message.get("checkpoint")
    return {
        "task": {
            "task": {
                "task_uuid": step.task_uuid,
                "context": step.context,
                "correlation_id": step.correlation_id,
                "priority": step.priority,
                "named_task": step.task_name,
            },
            "task_name": step.task_name,
            "task_version": step.task_version,
            "namespace_name": step.namespace,
        },
        "workflow_step": {
            "workflow_step_uuid": step.step_uuid,
            "task_uuid": step.task_uuid,
            "name": step.step_name,
            "attempts": step.attempt - 1,
            "max_attempts": step.max_attempts,
            "inputs": batch_inputs(step),
            "checkpoint": saved,
        },
        "step_definition": {
            "name": step.step_name,
            "handler": {
                "callable": step.callable,
                "method": step.method,
                "resolver": step.resolver or None,
                "initialization": dict(step.config),
            },
        },
        "dependency_results": dict(step.results),
    }


def batch_inputs(step: native.StepContext) -> dict[str, Any]:
    """The inputs of a batch; none of another step."""
    batch = step.batch
    if batch is None:
        return {}
    cursor: dict[str, Any] = {
        "batch_id": batch.id,
        "start_cursor": batch.start,
        "end_cursor": batch.end,
        "batch_size": batch.size,
    }
    if batch.items is not None:
        cursor["items"] = batch.items
    return {
        "cursor": cursor,
        "is_no_op": batch.no_op,
        "batch_metadata": {
            "cursor_field": batch.cursor_field,
            "failure_strategy": batch.failure_strategy or FailureStrategy.FAIL_FAST.value,
        },
    }


class DependencyResultsWrapper(Mapping[str, Any]):
    """The results of the steps before, by name: those of direct parents and of their batches, and, when asked for, of
    every step that this one depends on."""

    def __init__(self, results: Mapping[str, Any] | None = None, step: native.StepContext | None = None) -> None:
        self._results, self._step = dict(results or {}), step
        self._listed: dict[str, Any] | None = None if step is not None else {}

    def __getitem__(self, name: str) -> Any:
        if name in self._results:
            return self._results[name]
        if self._listed and name in self._listed:
            return self._listed[name]
        if self._step is None:
            raise KeyError(name)
        step = self._step
        try:
            return step._answer(lambda: step._read("result", name, lambda: step._session.result(step, name)))
        except LookupError:
            raise KeyError(name) from None

    def get_results(self, name: str) -> Any:
        return self.get(name)

    get_result = get_results

    def _batches(self) -> dict[str, Any]:
        if self._listed is None and self._step is not None:
            step, self._listed = self._step, {}
            for worker in sorted(step._message.get("batch_steps") or ()):
                listed = step._answer(
                    lambda: step._read("batches", worker, lambda: step._session.batch_results(step, worker))
                )
                self._listed.update((str(b["step_name"]), b.get("result")) for b in listed)
        return self._listed or {}

    def __iter__(self) -> Iterator[str]:
        return iter({**self._results, **self._batches()})

    def __len__(self) -> int:
        return len({**self._results, **self._batches()})


@dataclass
class StepContext(Model):
    """What a handler is called with. input_data is the context of the task, and step_inputs are those of a batch."""

    task_uuid: Any = ""
    step_uuid: Any = ""
    input_data: dict[str, Any] = field(default_factory=dict)
    dependency_results: Any = field(default_factory=dict)
    step_config: dict[str, Any] = field(default_factory=dict)
    step_inputs: dict[str, Any] = field(default_factory=dict)
    retry_count: int = 0
    max_retries: int = 3
    correlation_id: Any = ""
    handler_name: str = ""
    event: Any = None
    checkpoint: dict[str, Any] | None = None
    step_name: str = ""
    task_name: str = ""
    namespace: str = ""
    _step: native.StepContext | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.dependency_results, DependencyResultsWrapper):
            self.dependency_results = DependencyResultsWrapper(self.dependency_results)

    @classmethod
    def of(cls, step: native.StepContext, handler_name: str = "", event: FfiStepEvent | None = None) -> StepContext:
        """The context of a step that a session was handed."""
        return cls(
            step.task_uuid,
            step.step_uuid,
            step.context,
            DependencyResultsWrapper(dict(step.results), step),
            dict(step.config),
            batch_inputs(step),
            step.attempt - 1,
            step.max_attempts,
            step.correlation_id,
            handler_name or step.callable,
            event or FfiStepEvent.of(step),
            step._message.get("checkpoint"),
            step.step_name,
            step.task_name,
            step.namespace,
            step,
        )

    @classmethod
    def from_ffi_event(cls, event: FfiStepEvent, handler_name: str = "") -> StepContext:
        if event._step is not None:
            return cls.of(event._step, handler_name, event)
        parts = event.task_sequence_step
        task, step = parts.get("task", {}), parts.get("workflow_step", {})
        inner = task.get("task", task)
        results = {name: _unwrapped(r) for name, r in (parts.get("dependency_results") or {}).items()}
        return cls(
            event.task_uuid,
            event.step_uuid,
            inner.get("context") or {},
            results,
            parts.get("step_definition", {}).get("handler", {}).get("initialization") or {},
            step.get("inputs") or {},
            step.get("attempts") or 0,
            step.get("max_attempts") or 3,
            event.correlation_id,
            handler_name,
            event,
            step.get("checkpoint"),
            step.get("name", ""),
            task.get("task_name", ""),
            task.get("namespace_name", ""),
        )

    @property
    def task(self) -> Any:
        """The task, with its context."""
        inner = {"context": self.input_data, "task_uuid": self.task_uuid, "correlation_id": self.correlation_id}
        return SimpleNamespace(
            **inner, task=SimpleNamespace(**inner), task_name=self.task_name, namespace_name=self.namespace
        )

    @property
    def workflow_step(self) -> Any:
        return SimpleNamespace(
            workflow_step_uuid=self.step_uuid,
            name=self.step_name,
            attempts=self.retry_count,
            max_attempts=self.max_retries,
            inputs=self.step_inputs,
            checkpoint=self.checkpoint,
        )

    @property
    def step_definition(self) -> Any:
        handler = SimpleNamespace(callable=self.handler_name, initialization=self.step_config)
        return SimpleNamespace(name=self.step_name, handler=handler)

    def get_task_field(self, name: str, default: Any = None) -> Any:
        return self.input_data.get(name, default) if isinstance(self.input_data, Mapping) else default

    def get_input(self, name: str) -> Any:
        return self.get_task_field(name)

    def get_input_or(self, name: str, default: Any = None) -> Any:
        value = self.get_task_field(name)
        return default if value is None else value

    def get_config(self, name: str, default: Any = None) -> Any:
        return self.step_config.get(name, default)

    def get_dependency_result(self, step_name: str) -> Any:
        """The result of a step before, None without one."""
        return self.dependency_results.get(step_name)

    def get_dependency_field(self, step_name: str, *path: str) -> Any:
        """A value inside of a result, None without it."""
        value = self.get_dependency_result(step_name)
        for key in path:
            if isinstance(value, Mapping):
                value = value.get(key)
            elif (
                isinstance(value, Sequence)
                and not isinstance(value, str)
                and str(key).isdigit()
                and int(key) < len(value)
            ):
                value = value[int(key)]
            else:
                return None
        return value

    def get_all_dependency_results(self, prefix: str) -> list[Any]:
        """The results of all batches of a worker step."""
        return [result for name, result in self.dependency_results.items() if name.startswith(prefix)]

    def is_retry(self) -> bool:
        return self.retry_count > 0

    def is_last_retry(self) -> bool:
        return self.retry_count >= self.max_retries - 1

    def has_checkpoint(self) -> bool:
        return bool(self.checkpoint) and self.checkpoint is not None and self.checkpoint.get("cursor") is not None

    @property
    def checkpoint_cursor(self) -> Any:
        return (self.checkpoint or {}).get("cursor")

    @property
    def checkpoint_items_processed(self) -> int:
        return int((self.checkpoint or {}).get("items_processed") or 0)

    @property
    def accumulated_results(self) -> Any:
        return (self.checkpoint or {}).get("accumulated_results")


def _unwrapped(stored: Any) -> Any:
    """The result in an envelope of another engine."""
    if (
        isinstance(stored, Mapping)
        and "result" in stored
        and set(stored) <= {"result", "success", "metadata", "step_uuid", "error"}
    ):
        return stored["result"]
    return stored


@dataclass
class BatchWorkerContext(Model):
    """The part of the work of a batch, and its checkpoint."""

    batch_id: str
    start_cursor: Any
    end_cursor: Any
    batch_size: int
    is_no_op: bool = False
    cursor_field: str = ""
    failure_strategy: str = FailureStrategy.FAIL_FAST.value
    batch_metadata: dict[str, Any] = field(default_factory=dict)
    items: list[Any] | None = None
    checkpoint: dict[str, Any] | None = None

    @property
    def cursor_config(self) -> RustCursorConfig:
        return RustCursorConfig(self.batch_id, self.start_cursor, self.end_cursor, self.batch_size)

    def has_checkpoint(self) -> bool:
        return self.checkpoint_cursor is not None

    @property
    def checkpoint_cursor(self) -> Any:
        return (self.checkpoint or {}).get("cursor")

    @property
    def checkpoint_items_processed(self) -> int:
        return int((self.checkpoint or {}).get("items_processed") or 0)

    @property
    def accumulated_results(self) -> Any:
        return (self.checkpoint or {}).get("accumulated_results")

    @classmethod
    def from_step_context(cls, context: StepContext) -> BatchWorkerContext | None:
        """The batch of a step; None of a step that is none."""
        inputs = context.step_inputs or {}
        cursor = inputs.get("cursor")
        if cursor is None and not inputs.get("is_no_op"):
            return None
        cursor, metadata = cursor or {}, inputs.get("batch_metadata") or {}
        start, end = cursor.get("start_cursor"), cursor.get("end_cursor")
        size = cursor.get("batch_size")
        if size is None:
            size = end - start if isinstance(start, int) and isinstance(end, int) else 0
        return cls(
            str(cursor.get("batch_id", "")),
            start,
            end,
            int(size),
            bool(inputs.get("is_no_op")),
            str(metadata.get("cursor_field", "")),
            str(metadata.get("failure_strategy") or FailureStrategy.FAIL_FAST.value),
            dict(metadata),
            cursor.get("items"),
            context.checkpoint,
        )

    from_step_data = from_step_context


TaskSequenceStep = StepContext
CheckpointYield = Yield
