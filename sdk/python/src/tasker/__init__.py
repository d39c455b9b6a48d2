"""Handlers for Tasker in Python.

A Worker opens a session with a worker daemon, runs the steps that it is handed, and
reports how they ended. The protocol is docs/protocol.md of the project.
"""

from ._api import ApiResponse, api_call
from ._bytes import Bytes
from ._client import ApiError, AsyncClient, Client, NotReached, Task
from ._context import Batch, Cancelled, Checkpoint, StepContext, current_step
from ._errors import Continue, Permanent, Retryable, Returned, TaskerError, Yield
from ._handlers import BatchConfig, Decision, Handlers
from ._hooks import Hooks
from ._session import SessionLost, Transport
from ._worker import Worker

__all__ = [
    "ApiError",
    "ApiResponse",
    "AsyncClient",
    "Batch",
    "BatchConfig",
    "Bytes",
    "Cancelled",
    "Checkpoint",
    "Client",
    "Continue",
    "Decision",
    "Handlers",
    "Hooks",
    "NotReached",
    "Permanent",
    "Retryable",
    "Returned",
    "SessionLost",
    "StepContext",
    "Task",
    "TaskerError",
    "Transport",
    "Worker",
    "Yield",
    "api_call",
    "current_step",
]
