#!/usr/bin/env python3
"""A process that holds a session with one of the worker daemons, with the work handler of the chaos
suite. Its ledger is as those of the worker programs, and says which claims have become others."""

import json
import os
import random
import signal
import time
from typing import Any, Callable, Mapping

from tasker import Permanent, StepContext, Transport, Worker
from tasker._session import Session  # to hear of new fences before anything is sent with them

PERMITS = 30  # as in rig.go


class Ledger:
    """One write to an append-only file for each line."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)

    def write(self, **line: Any) -> None:
        line["at"] = time.time_ns() // 1000
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # before it is seen to have started; it has no steps yet
ledger = Ledger(os.path.join(os.environ["CHAOS_LEDGER"], os.environ["CHAOS_INSTANCE"] + ".ledger"))


def token(fence: str) -> int:
    """The token of a claim, which a fence begins with."""
    return int(fence.partition(".")[0])


class Noting(Transport):
    """Notes claims that have new tokens, before the session knows them."""

    def call(self, method: str, path: str, body: Any = None) -> Mapping[str, Any]:
        answer = super().call(method, path, body)
        if path == "/v1/sessions":
            for kept in answer.get("kept") or []:
                former, now = token(kept["fence"]), token(kept["new_fence"])
                if former != now:
                    ledger.write(k=former, n=now)
        return answer


def noted(ctx: StepContext, work: Callable[[], None]) -> Any:
    """Calls work between two lines of the ledger. The execution keeps the name of its first token."""
    name = token(ctx.fence)
    result = {"token": name, "attempt": ctx.attempt, "parents": {step: r["token"] for step, r in ctx.results.items()}}
    ledger.write(k=name, t=ctx.task_uuid, s=ctx.step_name, a=ctx.attempt, p=result["parents"], r=True)
    outcome = "success"
    try:
        work()
    except Exception:
        outcome = "told" if ctx.cancelled else "failure"
        raise
    finally:
        ledger.write(k=name, o=outcome)
    return result


worker = Worker(permits=PERMITS, name=os.environ["CHAOS_INSTANCE"])
worker._session = Session([Noting(address) for address in os.environ["CHAOS_DAEMONS"].split(",")])


@worker.handler("chaos.work")
def work(ctx: StepContext) -> Any:
    todo = ctx.config

    def do() -> None:
        end = time.monotonic() + (todo["ms"] + random.uniform(0, todo["spread_ms"])) / 1000
        while (left := end - time.monotonic()) > 0:
            if not todo["deaf"]:
                ctx.check()
            time.sleep(min(left, 0.05))
        if todo["hopeless"]:
            raise Permanent("no attempt succeeds")
        if ctx.attempt <= todo["failures"]:
            raise RuntimeError("this attempt fails, a later one does not")

    return noted(ctx, do)


worker.run()
