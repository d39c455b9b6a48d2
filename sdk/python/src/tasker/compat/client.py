"""The client of tasker_core: tasks of the orchestrator at TASKER_ORCHESTRATION_URL."""

from __future__ import annotations

import dataclasses
import os
import urllib.parse
from dataclasses import dataclass, field
from typing import Any, Mapping, TypeVar

from .._client import Client
from .types import Model

A = TypeVar("A", bound="_Answer")


class _Answer(Model):
    """An answer of the API. What the answer does not have has the default of its field."""

    @classmethod
    def from_dict(cls: type[A], data: Mapping[str, Any]) -> A:
        known = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        return cls(**{k: v for k, v in data.items() if k in known})


@dataclass(frozen=True)
class PaginationInfo(_Answer):
    """The place of a list in the whole."""

    page: int = 0
    per_page: int = 50
    total_count: int = 0
    total_pages: int = 0
    has_next: bool = False
    has_previous: bool = False


@dataclass(frozen=True)
class StepReadiness(_Answer):
    """Whether a step of a task may run."""

    workflow_step_uuid: str = ""
    task_uuid: str = ""
    named_step_uuid: str = ""
    name: str = ""
    current_state: str = ""
    dependencies_satisfied: bool = False
    retry_eligible: bool = False
    ready_for_execution: bool = False
    last_failure_at: str | None = None
    next_retry_at: str | None = None
    total_parents: int = 0
    completed_parents: int = 0
    attempts: int = 0
    max_attempts: int = 0
    backoff_request_seconds: int | None = None
    last_attempted_at: str | None = None


@dataclass(frozen=True)
class TaskResponse(_Answer):
    """A task."""

    task_uuid: str = ""
    name: str = ""
    namespace: str = ""
    version: str = ""
    status: str = ""
    created_at: str = ""
    updated_at: str = ""
    completed_at: str | None = None
    context: dict[str, Any] = field(default_factory=dict)
    initiator: str = ""
    source_system: str = ""
    reason: str = ""
    priority: int | None = None
    tags: list[str] | None = None
    correlation_id: str = ""
    parent_correlation_id: str | None = None
    total_steps: int = 0
    pending_steps: int = 0
    in_progress_steps: int = 0
    completed_steps: int = 0
    failed_steps: int = 0
    ready_steps: int = 0
    execution_status: str = ""
    recommended_action: str = ""
    completion_percentage: float = 0.0
    health_status: str = ""
    steps: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class TaskListResponse(_Answer):
    """Some of the tasks."""

    tasks: list[TaskResponse] = field(default_factory=list)
    pagination: PaginationInfo = field(default_factory=PaginationInfo)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TaskListResponse:
        tasks = [TaskResponse.from_dict(t) if isinstance(t, Mapping) else t for t in data.get("tasks") or ()]
        place = data.get("pagination")
        return cls(tasks, PaginationInfo.from_dict(place if isinstance(place, Mapping) else {}))


@dataclass(frozen=True)
class StepResponse(_Answer):
    """A step of a task."""

    step_uuid: str = ""
    task_uuid: str = ""
    name: str = ""
    created_at: str = ""
    updated_at: str = ""
    completed_at: str | None = None
    results: dict[str, Any] | None = None
    current_state: str = ""
    dependencies_satisfied: bool = False
    retry_eligible: bool = False
    ready_for_execution: bool = False
    total_parents: int = 0
    completed_parents: int = 0
    attempts: int = 0
    max_attempts: int = 0
    last_failure_at: str | None = None
    next_retry_at: str | None = None
    last_attempted_at: str | None = None


@dataclass(frozen=True)
class StepAuditResponse(_Answer):
    """An execution of a step that has ended."""

    audit_uuid: str = ""
    workflow_step_uuid: str = ""
    transition_uuid: str = ""
    task_uuid: str = ""
    recorded_at: str = ""
    worker_uuid: str | None = None
    correlation_id: str | None = None
    success: bool = False
    execution_time_ms: int | None = None
    result: dict[str, Any] | None = None
    step_name: str = ""
    from_state: str | None = None
    to_state: str = ""


@dataclass(frozen=True)
class HealthResponse(_Answer):
    """Whether the orchestrator is well."""

    healthy: bool = False
    status: str = ""
    timestamp: str = ""


def _call(method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None) -> Any:
    client = Client(api_key=os.environ.get("TASKER_API_KEY", ""))
    return client._call(method, path, body, query=query)


def _path(*parts: str) -> str:
    return "/v1/tasks/" + "/".join(urllib.parse.quote(str(p), safe="") for p in parts)


def client_create_task(request: Mapping[str, Any]) -> Any:
    """Creates a task of a request with the fields of POST /v1/tasks. Returns the answer, as the others here do."""
    return _call("POST", "/v1/tasks", dict(request))


def client_get_task(task_uuid: str) -> Any:
    return _call("GET", _path(task_uuid))


def client_list_tasks(limit: int = 50, offset: int = 0, namespace: str | None = None, status: str | None = None) -> Any:
    """Lists tasks. The list begins with a page of limit tasks: offset is rounded down to one."""
    query = {"per_page": str(limit), "page": str(offset // max(limit, 1) + 1)}
    query.update({k: v for k, v in (("namespace", namespace), ("status", status)) if v})
    return _call("GET", "/v1/tasks", query=query)


def client_cancel_task(task_uuid: str) -> Any:
    return _call("DELETE", _path(task_uuid))


def client_list_task_steps(task_uuid: str) -> Any:
    return _call("GET", _path(task_uuid, "workflow_steps"))


def client_get_step(task_uuid: str, step_uuid: str) -> Any:
    return _call("GET", _path(task_uuid, "workflow_steps", step_uuid))


def client_get_step_audit_history(task_uuid: str, step_uuid: str) -> Any:
    return _call("GET", _path(task_uuid, "workflow_steps", step_uuid, "audit"))


def client_health_check() -> Any:
    answer = _call("GET", "/health")
    return {"healthy": answer.get("status") == "healthy", **answer}


class TaskerClient:
    """Creates and reads tasks."""

    def __init__(self, initiator: str = "tasker-core-python", source_system: str = "tasker-core") -> None:
        self.initiator, self.source_system = initiator, source_system

    def create_task(
        self,
        name: str,
        *,
        namespace: str = "default",
        context: Mapping[str, Any] | None = None,
        version: str = "1.0.0",
        reason: str = "Task requested",
        **fields: Any,
    ) -> TaskResponse:
        """Creates a task; fields are further ones of the request."""
        request = {
            "name": name,
            "namespace": namespace,
            "version": version,
            "context": dict(context or {}),
            "initiator": self.initiator,
            "source_system": self.source_system,
            "reason": reason,
            **fields,
        }
        return TaskResponse.from_dict(client_create_task(request))

    def get_task(self, task_uuid: str) -> TaskResponse:
        return TaskResponse.from_dict(client_get_task(task_uuid))

    def list_tasks(
        self, *, limit: int = 50, offset: int = 0, namespace: str | None = None, status: str | None = None
    ) -> TaskListResponse:
        return TaskListResponse.from_dict(client_list_tasks(limit, offset, namespace, status))

    def cancel_task(self, task_uuid: str) -> dict[str, Any]:
        return dict(client_cancel_task(task_uuid))

    def list_task_steps(self, task_uuid: str) -> list[StepResponse]:
        return [StepResponse.from_dict(s) for s in client_list_task_steps(task_uuid)]

    def get_step(self, task_uuid: str, step_uuid: str) -> StepResponse:
        return StepResponse.from_dict(client_get_step(task_uuid, step_uuid))

    def get_step_audit_history(self, task_uuid: str, step_uuid: str) -> list[StepAuditResponse]:
        return [StepAuditResponse.from_dict(a) for a in client_get_step_audit_history(task_uuid, step_uuid)]

    def health_check(self) -> HealthResponse:
        return HealthResponse.from_dict(client_health_check())
