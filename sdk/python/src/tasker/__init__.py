"""Handlers for Tasker in Python.

A Worker opens a session with a worker daemon, runs the steps that it is handed, and
reports how they ended. The protocol is docs/reference/protocol.md of the project.
"""

from ._api import ApiResponse, api_call
from ._bytes import Bytes
from ._client import ApiError, AsyncClient, Client, NotReached, Task
from ._context import Batch, BatchValue, Checkpoint, StepContext, current_step
from ._errors import Absent, Cancelled, Continue, Permanent, Retryable, Returned, TaskerError, UnknownStep, Yield
from ._events import Event, Publisher, StepEvent, Subscriber
from ._handlers import BatchConfig, Cursor, Decision, Handlers, Resolver
from ._hooks import Hooks
from ._session import SessionLost, Transport, Unavailable
from ._worker import Worker

__all__ = [
    "Absent",
    "ApiError",
    "ApiResponse",
    "AsyncClient",
    "Batch",
    "BatchConfig",
    "BatchValue",
    "Bytes",
    "Cancelled",
    "Checkpoint",
    "Client",
    "Continue",
    "Cursor",
    "Decision",
    "Event",
    "Handlers",
    "Hooks",
    "NotReached",
    "Permanent",
    "Publisher",
    "Resolver",
    "Retryable",
    "Returned",
    "SessionLost",
    "StepContext",
    "StepEvent",
    "Subscriber",
    "Task",
    "TaskerError",
    "Transport",
    "Unavailable",
    "UnknownStep",
    "Worker",
    "Yield",
    "api_call",
    "current_step",
]
