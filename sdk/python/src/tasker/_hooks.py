"""Callbacks of a worker."""

from __future__ import annotations

import logging
from typing import Any, Callable

from ._context import StepContext

_log = logging.getLogger("tasker")


class Hooks:
    """Override the methods that you need. Hooks of steps are called in the threads of the handlers, so they
    should be short; an exception is logged and changes nothing."""

    def opened(self) -> None:
        """The worker has a session, at first or again: it is ready for steps."""

    def before(self, ctx: StepContext) -> None:
        """A handler is about to be called."""

    def failed(self, ctx: StepContext, error: BaseException) -> None:
        """A handler has failed; after is called too."""

    def after(self, ctx: StepContext, outcome: str, seconds: float) -> None:
        """A handler has ended with success, failure, yield or returned; its end is not reported yet."""

    def draining(self) -> None:
        """The worker, or its daemon, takes no more steps and waits for those that run."""

    def stopped(self) -> None:
        """The worker has ended."""


def tell(hook: Callable[..., object], *args: Any) -> None:
    """Calls a hook."""
    try:
        hook(*args)
    except Exception as e:
        _log.warning("a hook failed", exc_info=e)
