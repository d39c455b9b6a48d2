"""The types of tasker_core, with the names and fields of its documentation."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
import os
import uuid
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Iterator, Mapping, Sequence, TypeVar, Union

from .. import _bytes
from .. import _context as native
from .._errors import Yield

JSON = Any
M = TypeVar("M", bound="Model")

MAX_ERRORS = 100  # of an aggregation; error_count counts all


class Model:
    """What applications use of the models there: fields, model_dump and model_validate."""

    def model_dump(self, *, exclude_none: bool = False, by_alias: bool = False, **_: object) -> dict[str, JSON]:
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


def plain(value: JSON) -> JSON:
    """What a handler has returned, with the forms in JSON that values get there: a time, a UUID, a Decimal, a set."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Model):
        return plain(value.model_dump())
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {_key(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    if isinstance(value, datetime.datetime):
        text = value.isoformat()
        return text[:-6] + "Z" if text.endswith("+00:00") else text
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, (uuid.UUID, decimal.Decimal, os.PathLike)):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, _bytes.Bytes)):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value


def _key(key: Any) -> Any:
    key = key.value if isinstance(key, Enum) else key
    return str(key) if isinstance(key, (uuid.UUID, decimal.Decimal)) else plain(key)


class Identifier(str):
    """A UUID as text, that has the attributes of uuid.UUID too, and equals it."""

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, str(other) if isinstance(other, uuid.UUID) else other)

    __hash__ = str.__hash__

    def __getattr__(self, name: str) -> Any:
        if name in ("hex", "int", "bytes", "urn", "version", "variant", "fields"):
            return getattr(uuid.UUID(self), name)
        raise AttributeError(name)


class WorkerState(str, Enum):
    """What a worker is doing."""

    STARTING = "starting"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting_down"
    STOPPED = "stopped"
    ERROR = "error"


class ResultStatus(str, Enum):
    """The values of StepExecutionResult.status."""

    SUCCESS = "completed"
    FAILURE = "error"
    RETRYABLE_ERROR = "retryable_error"
    PERMANENT_ERROR = "permanent_error"


class ErrorType(str, Enum):
    """The usual values of error_type; any other text is one too."""

    PERMANENT_ERROR = "permanent_error"
    RETRYABLE_ERROR = "retryable_error"
    VALIDATION_ERROR = "validation_error"
    TIMEOUT = "timeout"
    TIMEOUT_ERROR = "TimeoutError"
    UNEXPECTED_ERROR = "UnexpectedError"
    HANDLER_ERROR = "handler_error"

    @classmethod
    def is_standard(cls, error_type: str) -> bool:
        return error_type in _STANDARD

    @classmethod
    def is_typically_retryable(cls, error_type: str) -> bool:
        return error_type in (cls.RETRYABLE_ERROR, cls.TIMEOUT, "RetryableError", "TimeoutError")


_STANDARD = ("permanent_error", "retryable_error", "validation_error", "timeout", "handler_error")
_NEVER_AGAIN = ("PermanentError", "ValidationError")


@dataclass(init=False)
class StepHandlerResult(Model):
    """What a handler returns: a success, or a failure. is_success is another name of success."""

    success: bool
    result: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    error_message: str | None = None
    error_type: str | None = None
    error_code: str | None = None
    retryable: bool = True

    def __init__(
        self,
        success: bool | None = None,
        result: Any = None,
        metadata: Mapping[str, Any] | None = None,
        error_message: str | None = None,
        error_type: str | None = None,
        error_code: str | None = None,
        retryable: bool = True,
        *,
        is_success: bool | None = None,
    ) -> None:
        ended = is_success if success is None else success
        if ended is None:
            raise TypeError("make a StepHandlerResult: want is_success")
        self.success, self.result, self.metadata = bool(ended), result, dict(metadata or {})
        self.error_message, self.error_type, self.error_code = error_message, error_type, error_code
        self.retryable = retryable

    @property
    def is_success(self) -> bool:
        return self.success

    @property
    def is_failure(self) -> bool:
        return not self.success

    def is_success_result(self) -> bool:
        return self.success

    def is_failure_result(self) -> bool:
        return not self.success

    def model_dump(self, *, exclude_none: bool = False, by_alias: bool = False, **options: Any) -> dict[str, JSON]:
        fields = super().model_dump(exclude_none=exclude_none, **options)
        return fields if by_alias else {"is_success": fields.pop("success"), **fields}

    @classmethod
    def model_validate(cls, value: Any) -> StepHandlerResult:
        if isinstance(value, Mapping) and "is_success" in value:
            value = {**value, "success": value["is_success"]}
        return super().model_validate(value)

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
            elif isinstance(value, str) and value:
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


@dataclass
class StepHandlerCallResult(Model):
    """The end of a call of a handler."""

    success: bool
    result: dict[str, Any] = field(default_factory=dict)
    error_message: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class StepError(Model):
    """Why a step has failed."""

    error_type: str
    message: str
    stack_trace: str | None = None
    retryable: bool = True
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class StepExecutionResult(Model):
    """The end of a step, for complete_step_event and for those who are told of it."""

    step_uuid: Any
    task_uuid: Any
    success: bool
    status: str
    execution_time_ms: int = 0
    result: Any = None
    error: StepError | None = None
    worker_id: str | None = None
    correlation_id: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.error = None if self.error is None else StepError.model_validate(self.error)

    @classmethod
    def success_result(
        cls,
        step_uuid: Any,
        task_uuid: Any,
        result: Any,
        execution_time_ms: int = 0,
        worker_id: str | None = None,
        correlation_id: Any = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> StepExecutionResult:
        status = ResultStatus.SUCCESS.value
        more = dict(metadata or {})
        return cls(step_uuid, task_uuid, True, status, execution_time_ms, result, None, worker_id, correlation_id, more)

    @classmethod
    def failure_result(
        cls,
        step_uuid: Any,
        task_uuid: Any,
        error: StepError,
        execution_time_ms: int = 0,
        worker_id: str | None = None,
        correlation_id: Any = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> StepExecutionResult:
        status = (ResultStatus.RETRYABLE_ERROR if error.retryable else ResultStatus.PERMANENT_ERROR).value
        more = dict(metadata or {})
        return cls(step_uuid, task_uuid, False, status, execution_time_ms, None, error, worker_id, correlation_id, more)


class DecisionType(str, Enum):
    """The kinds of outcomes of decisions."""

    CREATE_STEPS = "create_steps"
    NO_BRANCHES = "no_branches"


@dataclass(init=False)
class DecisionPointOutcome(Model):
    """What a decision creates: steps, or none."""

    decision_type: DecisionType
    next_step_names: list[str] = field(default_factory=list)
    dynamic_steps: list[dict[str, Any]] | None = None
    reason: str | None = None
    routing_context: dict[str, Any] = field(default_factory=dict)

    def __init__(
        self,
        decision_type: str | DecisionType | None = None,
        next_step_names: Sequence[str] = (),
        routing_context: Mapping[str, Any] | None = None,
        reason: str | None = None,
        dynamic_steps: Sequence[Mapping[str, Any]] | None = None,
        *,
        type: str | None = None,
        step_names: Sequence[str] = (),
    ) -> None:
        self.decision_type = DecisionType(decision_type or type)
        self.next_step_names = list(next_step_names or step_names)
        self.dynamic_steps = None if dynamic_steps is None else [dict(s) for s in dynamic_steps]
        self.reason, self.routing_context = reason, dict(routing_context or {})

    @classmethod
    def create_steps(
        cls, step_names: Sequence[str], dynamic_steps: Any = None, routing_context: Mapping[str, Any] | None = None
    ) -> DecisionPointOutcome:
        """The outcome of steps. A mapping at the second place is the routing context."""
        if isinstance(step_names, str) or not step_names and not dynamic_steps:
            raise ValueError("create_steps: want a list of at least one step; no_branches is for none")
        if isinstance(dynamic_steps, Mapping):
            dynamic_steps, routing_context = None, dynamic_steps
        return cls(DecisionType.CREATE_STEPS, step_names, routing_context, None, dynamic_steps)

    @classmethod
    def no_branches(
        cls, reason: str | None = None, routing_context: Mapping[str, Any] | None = None
    ) -> DecisionPointOutcome:
        return cls(DecisionType.NO_BRANCHES, (), routing_context, reason)

    @property
    def requires_step_creation(self) -> bool:
        return bool(self.next_step_names)

    @property
    def type(self) -> str:
        return self.decision_type.value

    @property
    def step_names(self) -> list[str]:
        return self.next_step_names

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
    step_size: int = 1
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class BatchWorkerConfig(Model):
    """The part of one of a number of workers."""

    batch_id: str
    cursor_start: int
    cursor_end: int
    row_count: int
    worker_index: int
    total_workers: int

    @property
    def start_cursor(self) -> int:
        return self.cursor_start

    @property
    def end_cursor(self) -> int:
        return self.cursor_end

    @property
    def batch_size(self) -> int:
        return self.row_count

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump()


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
    failure_strategy: FailureStrategy = FailureStrategy.FAIL_FAST

    def __post_init__(self) -> None:
        self.failure_strategy = FailureStrategy(self.failure_strategy)


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
    if isinstance(cursor, (list, tuple)):
        cursor = {"start_cursor": cursor[0], "end_cursor": cursor[1]}
    given = dict(cursor) if isinstance(cursor, Mapping) else cursor.model_dump()
    start = given.get("start_cursor", given.get("cursor_start"))
    end = given.get("end_cursor", given.get("cursor_end"))
    size = given.get("batch_size", given.get("row_count"))
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

    cursor_configs: list[Any] = field(default_factory=list)
    total_items: int | None = None
    batch_metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_ranges(
        cls,
        ranges: Sequence[Any],
        step_size: int = 1,
        total_items: int | None = None,
        batch_metadata: Mapping[str, Any] | None = None,
    ) -> BatchAnalyzerOutcome:
        """The outcome of ranges that are pairs of a start and an end, or cursors."""
        cursors = [
            CursorConfig(r[1] - r[0], r[0], r[1], step_size=step_size) if isinstance(r, (list, tuple)) else r
            for r in ranges
        ]
        return cls(cursors, total_items, dict(batch_metadata or {}))


@dataclass
class BatchWorkerOutcome(Model):
    """What a batch has done."""

    items_processed: int = 0
    items_succeeded: int = 0
    items_failed: int = 0
    items_skipped: int = 0
    results: Any = field(default_factory=list)
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


class _Answer(int):
    """Whether something is so: as an attribute, and called."""

    def __call__(self) -> bool:
        return bool(self)


@dataclass(init=False)
class BatchAggregationScenario(Model):
    """What a step behind batches finds: results of batches by their names, or none."""

    is_no_batches: bool
    batchable_result: Any = None
    batch_results: dict[str, Any] = field(default_factory=dict)
    worker_count: int = 0

    def __init__(
        self,
        is_no_batches: bool | None = None,
        batchable_result: Any = None,
        batch_results: Mapping[str, Any] | None = None,
        worker_count: int | None = None,
    ) -> None:
        self.batchable_result, self.batch_results = batchable_result, dict(batch_results or {})
        self.is_no_batches = not self.batch_results if is_no_batches is None else is_no_batches
        self.worker_count = len(self.batch_results) if worker_count is None else worker_count

    @property
    def no_batches(self) -> _Answer:
        return _Answer(self.is_no_batches)

    @classmethod
    def detect(
        cls, dependency_results: Any, batchable_step_name: str, batch_worker_prefix: str
    ) -> BatchAggregationScenario:
        """Finds them among the results of a step, or of its context; a placeholder without work is no batch. Raises
        ValueError if the analyzer has no result, or has made batches and none of them has one."""
        results = getattr(dependency_results, "dependency_results", dependency_results)
        made = unwrapped(results.get(batchable_step_name))
        if made is None:
            raise ValueError(f"find the batches: the step {batchable_step_name!r} has no result")
        made = made if isinstance(made, Mapping) else {}
        outcome = made.get("batch_processing_outcome")
        if isinstance(outcome, Mapping) and outcome.get("type") == "no_batches":
            return cls(True, made)
        names = [n for n in results if n.startswith(batch_worker_prefix) and n != batchable_step_name]
        found = {n: unwrapped(results[n]) for n in names}
        if not found:
            raise ValueError(
                f"find the batches: no step begins with {batch_worker_prefix!r}, "
                f"and {batchable_step_name!r} has not said that there are none"
            )
        found = {n: r if isinstance(r, Mapping) else {} for n, r in found.items()}
        return cls(None, made, {n: r for n, r in found.items() if not r.get("no_op")})


def aggregate_batch_results(
    worker_results: Sequence[Mapping[str, Any] | None], max_errors: int = MAX_ERRORS
) -> BatchAggregationResult:
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
        sums.errors.extend(errors[: max(max_errors - len(sums.errors), 0)])
    if sums.total_processed:
        sums.success_rate = sums.total_succeeded / sums.total_processed
    return sums


def _count(result: Mapping[str, Any], *names: str) -> int:
    return int(next((result[n] for n in names if result.get(n) is not None), 0))


@dataclass(init=False)
class BootstrapConfig(Model):
    """How the worker starts. The address of the worker daemon is worker_url, else TASKER_WORKER_URL; namespace,
    log_level and what else an application gives are kept, and change nothing: a session gets the steps of its handlers
    in every namespace of the daemon."""

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
    """What the worker does. The fields of a database are empty: the daemon has it."""

    running: bool = False
    worker_id: str | None = None
    environment: str | None = None
    status: str = "stopped"
    handler_count: int = 0
    pending_count: int = 0
    in_flight_count: int = 0
    completed_count: int = 0
    failed_count: int = 0
    worker_core_status: str | None = None
    web_api_enabled: bool | None = None
    supported_namespaces: list[str] | None = None
    database_pool_size: int | None = None
    database_pool_idle: int | None = None
    error: str | None = None


@dataclass
class ComponentHealth(Model):
    """The health of a part of the worker; details are further facts."""

    name: str
    status: str
    pool_size: int | None = None
    pool_idle: int | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.details[name] if name in self.details else self.model_dump()[name]


@dataclass
class HealthCheck(Model):
    """The health of the worker. It is true when the worker is healthy."""

    status: str
    is_healthy: bool = False
    worker_id: str | None = None
    components: dict[str, Any] = field(default_factory=dict)
    is_running: bool = False
    rust: dict[str, Any] = field(default_factory=dict)
    python: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.status == "healthy"


@dataclass
class WorkerMetrics(Model):
    """The counts of the worker."""

    dispatch_channel_pending: int = 0
    oldest_pending_age_ms: int | None = None
    newest_pending_age_ms: int | None = None
    starvation_detected: bool = False
    starving_event_count: int = 0
    database_pool_size: int = 0
    database_pool_idle: int = 0
    environment: str | None = None
    steps_processed: int = 0
    steps_succeeded: int = 0
    steps_failed: int = 0
    steps_in_progress: int = 0


@dataclass
class WorkerConfig(Model):
    """The settings of the worker."""

    environment: str | None = None
    supported_namespaces: list[str] = field(default_factory=list)
    web_api_enabled: bool = False
    database_pool_size: int = 0
    polling_interval_ms: int = 10
    starvation_threshold_ms: int = 1000
    max_concurrent_handlers: int = 10
    handler_timeout_ms: int = 30000


@dataclass
class StarvationWarning(Model):
    """An event that no poller has taken for long."""

    event_id: Any
    step_uuid: Any
    pending_duration_ms: int
    threshold_ms: int


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
    newest_pending_age_ms: int | None = None
    oldest_event_id: str | None = None


@dataclass
class DomainEventMetadata(Model):
    """Where an event is from."""

    task_uuid: Any
    correlation_id: Any
    fired_at: str = ""
    fired_by: str = ""
    step_uuid: Any = None
    step_name: str | None = None
    namespace: str | None = None


@dataclass
class ExecutionResult(Model):
    """The end of the step that an event is of."""

    success: bool
    result: dict[str, Any] | None = None
    error_message: str | None = None
    error_type: str | None = None
    execution_time_ms: int | None = None


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
    task_correlation_id: str | None = None
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
            task_correlation_id=step.correlation_id,
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
        "dependency_results": {name: {"result": result, "success": True} for name, result in step.results.items()},
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

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> DependencyResultsWrapper:
        return cls(data)

    def get_result(self, step_name: str) -> Any:
        """The result as it is kept; None without one."""
        return self.get(step_name)

    def get_results(self, step_name: str) -> Any:
        """The value of a result, out of the envelope that results of other engines have."""
        found = self.get(step_name)
        return found if self._step is not None else unwrapped(found)

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
        self.task_uuid, self.step_uuid, self.correlation_id = (
            Identifier(u) for u in (self.task_uuid, self.step_uuid, self.correlation_id)
        )
        if not isinstance(self.dependency_results, DependencyResultsWrapper):
            self.dependency_results = DependencyResultsWrapper(self.dependency_results)
        if self.checkpoint is None and self.event is not None:
            saved = (self.event.task_sequence_step.get("workflow_step") or {}).get("checkpoint")
            self.checkpoint = saved if isinstance(saved, dict) else None

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
        return cls(
            event.task_uuid,
            event.step_uuid,
            inner.get("context") or {},
            parts.get("dependency_results") or {},
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
    def task_sequence_step(self) -> Any:
        """The step with its task and definition, by attributes."""
        from .models import TaskSequenceStepWrapper

        if self.event is not None:
            found = TaskSequenceStepWrapper.from_dict(self.event.task_sequence_step)
        else:
            found = TaskSequenceStepWrapper.from_dict(
                {
                    "task": {
                        "task_uuid": self.task_uuid,
                        "context": self.input_data,
                        "correlation_id": self.correlation_id,
                        "task_name": self.task_name,
                        "namespace_name": self.namespace,
                    },
                    "workflow_step": {
                        "workflow_step_uuid": self.step_uuid,
                        "task_uuid": self.task_uuid,
                        "name": self.step_name,
                        "attempts": self.retry_count,
                        "max_attempts": self.max_retries,
                        "inputs": self.step_inputs,
                        "checkpoint": self.checkpoint,
                    },
                    "step_definition": {
                        "name": self.step_name,
                        "handler": {"callable": self.handler_name, "initialization": self.step_config},
                    },
                }
            )
        found.dependency_results = self.dependency_results
        return found

    @property
    def task(self) -> Any:
        """The task, with its context."""
        return self.task_sequence_step.task

    @property
    def workflow_step(self) -> Any:
        return self.task_sequence_step.workflow_step

    @property
    def step_definition(self) -> Any:
        return self.task_sequence_step.step_definition

    def get_task_field(self, field_name: str, default: Any = None) -> Any:
        return self.input_data.get(field_name, default) if isinstance(self.input_data, Mapping) else default

    def get_input(self, key: str) -> Any:
        return self.get_task_field(key)

    def get_input_or(self, key: str, default: Any = None) -> Any:
        value = self.get_task_field(key)
        return default if value is None else value

    def get_config(self, key: str, default: Any = None) -> Any:
        return self.step_config.get(key, default)

    def get_dependency_result(self, step_name: str) -> Any:
        """The result of a step before, None without one."""
        return self.dependency_results.get_results(step_name)

    def get_dependency_result_keys(self) -> list[str]:
        return list(self.dependency_results)

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
        names = [name for name in self.dependency_results if name.startswith(prefix)]
        return [result for result in map(self.get_dependency_result, names) if result is not None]

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


def unwrapped(stored: Any) -> Any:
    """The result in the envelope of another engine."""
    return stored["result"] if isinstance(stored, Mapping) and "result" in stored else stored


@dataclass(init=False)
class BatchWorkerContext(Model):
    """The part of the work of a batch, and its checkpoint. The cursors may be given by a cursor_config."""

    batch_id: str
    cursor_config: Any
    batch_index: int = 0
    total_batches: int = 1
    batch_metadata: dict[str, Any] = field(default_factory=dict)
    checkpoint: dict[str, Any] = field(default_factory=dict)
    is_no_op: bool = False
    cursor_field: str = ""
    failure_strategy: str = FailureStrategy.FAIL_FAST.value
    items: list[Any] | None = None

    def __init__(
        self,
        batch_id: str = "",
        start_cursor: Any = None,
        end_cursor: Any = None,
        batch_size: int | None = None,
        is_no_op: bool = False,
        *,
        cursor_config: Any = None,
        batch_index: int = 0,
        total_batches: int = 1,
        batch_metadata: Mapping[str, Any] | None = None,
        checkpoint: Mapping[str, Any] | None = None,
        cursor_field: str = "",
        failure_strategy: str = FailureStrategy.FAIL_FAST.value,
        items: list[Any] | None = None,
    ) -> None:
        if cursor_config is None:
            cursor_config = CursorConfig(batch_size or 0, start_cursor, end_cursor, batch_id, batch_size or 1)
        self.cursor_config = CursorConfig.model_validate(cursor_config)
        given = self.cursor_config
        if not given.batch_size and isinstance(given.start_cursor, int) and isinstance(given.end_cursor, int):
            given.batch_size = given.end_cursor - given.start_cursor
        given.batch_id = given.batch_id or batch_id
        self.batch_id, self.batch_index, self.total_batches = batch_id, batch_index, total_batches
        self.batch_metadata, self.checkpoint = dict(batch_metadata or {}), dict(checkpoint or {})
        self.is_no_op, self.cursor_field, self.failure_strategy = is_no_op, cursor_field, failure_strategy
        self.items = items

    @property
    def start_cursor(self) -> Any:
        return self.cursor_config.start_cursor

    @property
    def end_cursor(self) -> Any:
        return self.cursor_config.end_cursor

    @property
    def batch_size(self) -> int:
        return int(self.cursor_config.batch_size)

    @property
    def step_size(self) -> int:
        return int(self.cursor_config.step_size)

    def has_checkpoint(self) -> bool:
        return self.checkpoint_cursor is not None

    @property
    def checkpoint_cursor(self) -> Any:
        return self.checkpoint.get("cursor")

    @property
    def checkpoint_items_processed(self) -> int:
        return int(self.checkpoint.get("items_processed") or 0)

    @property
    def accumulated_results(self) -> Any:
        return self.checkpoint.get("accumulated_results")

    @classmethod
    def from_step_context(cls, step_context: StepContext) -> BatchWorkerContext | None:
        """The batch of a step; None of a step that is none. Its configuration or input may have a batch_context."""
        inputs = step_context.step_inputs or {}
        cursor = inputs.get("cursor")
        if cursor is None and not inputs.get("is_no_op"):
            given = step_context.step_config.get("batch_context")
            given = step_context.get_task_field("batch_context") if given is None else given
            if not isinstance(given, Mapping):
                return None
            return cls(
                str(given.get("batch_id", "")),
                cursor_config=_cursor(given.get("cursor_config") or {}),
                batch_index=int(given.get("batch_index", 0)),
                total_batches=int(given.get("total_batches", 1)),
                batch_metadata=given.get("batch_metadata"),
                checkpoint=step_context.checkpoint,
            )
        metadata = inputs.get("batch_metadata") or {}
        cursor = cursor or {}
        return cls(
            str(cursor.get("batch_id", "")),
            cursor_config=_cursor(cursor),
            is_no_op=bool(inputs.get("is_no_op")),
            cursor_field=str(metadata.get("cursor_field", "")),
            failure_strategy=str(metadata.get("failure_strategy") or FailureStrategy.FAIL_FAST.value),
            batch_metadata=metadata,
            items=cursor.get("items"),
            checkpoint=step_context.checkpoint,
        )

    from_step_data = from_step_context


def _cursor(given: Mapping[str, Any]) -> CursorConfig:
    """The cursor of a batch; its steps are as large as itself unless it says otherwise."""
    start, end = given.get("start_cursor", 0), given.get("end_cursor", 0)
    size, step = given.get("batch_size"), given.get("step_size")
    more = dict(given.get("metadata") or {})
    return CursorConfig(size or 0, start, end, str(given.get("batch_id", "")), step or size or 1, more)


TaskSequenceStep = StepContext
CheckpointYield = Yield
