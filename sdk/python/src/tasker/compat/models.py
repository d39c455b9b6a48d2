"""The wrappers of tasker_core.models: a step with its task and definition, by attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Mapping

from . import types
from .types import Model


@dataclass
class HandlerWrapper(Model):
    """The handler of a step in its template."""

    callable: str = ""
    initialization: dict[str, Any] = field(default_factory=dict)
    handler_method: str | None = None
    resolver: str | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> HandlerWrapper:
        given = data or {}
        return cls(
            str(given.get("callable") or ""),
            dict(given.get("initialization") or {}),
            given.get("method"),
            given.get("resolver"),
        )


@dataclass
class StepDefinitionWrapper(Model):
    """A step of a template."""

    name: str = ""
    description: str = ""
    handler: HandlerWrapper = field(default_factory=HandlerWrapper)
    dependencies: list[str] = field(default_factory=list)
    retry: dict[str, Any] = field(default_factory=dict)
    timeout_seconds: int = 30
    publishes_events: list[Any] = field(default_factory=list)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> StepDefinitionWrapper:
        given = data or {}
        return cls(
            given.get("name", ""),
            given.get("description", ""),
            HandlerWrapper.from_dict(given.get("handler")),
            list(given.get("dependencies") or []),
            dict(given.get("retry") or {}),
            given.get("timeout_seconds", 30),
            list(given.get("publishes_events") or []),
        )


class DependencyResultsWrapper(types.DependencyResultsWrapper):
    """The results of the steps before. One that does not exist is None."""

    def __getitem__(self, name: str) -> Any:
        try:
            return super().__getitem__(name)
        except KeyError:
            return None

    def __contains__(self, name: object) -> bool:
        return name in set(self)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default

    def keys(self) -> Any:
        return list(self)


@dataclass
class WorkflowStepWrapper(Model):
    """A step of a task."""

    workflow_step_uuid: str = ""
    task_uuid: str = ""
    name: str = ""
    named_step_uuid: str | None = None
    retryable: bool = True
    max_attempts: int = 3
    in_process: bool = False
    processed: bool = False
    processed_at: datetime | None = None
    attempts: int = 0
    last_attempted_at: datetime | None = None
    backoff_request_seconds: int = 0
    inputs: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    updated_at: datetime | None = None
    checkpoint: dict[str, Any] | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> WorkflowStepWrapper:
        given = data or {}
        found = cls(
            given.get("workflow_step_uuid", ""),
            given.get("task_uuid", ""),
            given.get("name", ""),
            given.get("named_step_uuid"),
        )
        for name in ("retryable", "in_process", "processed", "processed_at", "last_attempted_at", "created_at"):
            setattr(found, name, given.get(name, getattr(found, name)))
        for name in ("max_attempts", "attempts", "backoff_request_seconds", "inputs", "results", "updated_at"):
            setattr(found, name, given.get(name) or getattr(found, name))
        found.checkpoint = given.get("checkpoint")
        return found


@dataclass
class TaskWrapper(Model):
    """A task, with its context. task is the same, as the layers of the wire have it."""

    task_uuid: str = ""
    context: dict[str, Any] = field(default_factory=dict)
    namespace_name: str = ""
    task_name: str = ""
    task_version: str = ""
    correlation_id: str | None = None
    parent_correlation_id: str | None = None

    @property
    def task(self) -> TaskWrapper:
        return self

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> TaskWrapper:
        given = data or {}
        inner = given.get("task") or given

        def named(name: str) -> Any:
            return given.get(name) or inner.get(name, "")

        return cls(
            inner.get("task_uuid", ""),
            inner.get("context") or {},
            named("namespace_name"),
            named("task_name"),
            named("task_version"),
            inner.get("correlation_id"),
            inner.get("parent_correlation_id"),
        )


@dataclass
class TaskSequenceStepWrapper(Model):
    """A step with its task, its definition and the results before it."""

    task: TaskWrapper
    workflow_step: WorkflowStepWrapper
    dependency_results: types.DependencyResultsWrapper
    step_definition: StepDefinitionWrapper

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> TaskSequenceStepWrapper:
        given = data or {}
        return cls(
            TaskWrapper.from_dict(given.get("task")),
            WorkflowStepWrapper.from_dict(given.get("workflow_step")),
            DependencyResultsWrapper.from_dict(given.get("dependency_results")),
            StepDefinitionWrapper.from_dict(given.get("step_definition")),
        )

    def get_task_field(self, field_name: str) -> Any:
        return self.task.context.get(field_name)

    def get_dependency_result(self, step_name: str) -> Any:
        return self.dependency_results.get_results(step_name)

    get_results = get_dependency_result
