"""A worker of the REST queue with Python's standard library alone; README.md explains it."""

import json
import os
import signal
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

URL = os.environ.get("TASKER_ORCHESTRATION_URL", "http://localhost:8080")
WORKER = f"python-{os.getpid()}"
HEARTBEAT = 10.0  # seconds; after 30 without one a worker is STALE, after 120 it is DEAD

stopping = threading.Event()
claims: dict[str, Any] = {}  # id to token, of the tasks that this worker has


def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return dict(json.loads(text)) if text else {}


def heartbeat() -> None:
    """Says that the worker lives, and forgets the tasks that it has lost meanwhile."""
    while not stopping.wait(HEARTBEAT):
        held = [{"id": task, "token": token} for task, token in list(claims.items())]
        try:
            for lost in post(f"/workers/v1/{WORKER}/heartbeat", {"claims": held}).get("lost", []):
                claims.pop(lost["id"], None)
        except OSError as e:
            print("no heartbeat:", e, file=sys.stderr)


def work(payload: Any) -> object:
    """What the worker is for."""
    if not isinstance(payload.get("n"), int):
        raise ValueError("n is not a number")
    return {"square": payload["n"] ** 2}


def run(task: dict[str, Any]) -> None:
    """Runs a task and reports its end, unless the task was given to another worker meanwhile."""
    end: dict[str, Any] = {"workerId": WORKER, "token": task["token"]}
    try:
        how, end["result"] = "complete", work(task["payload"])
    except ValueError as e:  # no attempt would help
        how, end["error"], end["retryable"] = "fail", str(e), False
    except Exception as e:  # goes back to PENDING while attempts are left
        how, end["error"] = "fail", str(e)
    if claims.pop(task["id"], None) is None:
        return
    try:
        post(f"/tasks/v1/{task['id']}/{how}", end)
    except urllib.error.HTTPError as e:
        if e.code != 409:  # the claim is not held any more
            raise
    print(how, task["payload"], flush=True)


def register() -> None:
    post("/workers/v1/register", {"workerId": WORKER, "queue": "squares", "tags": ["python"]})


def claim() -> list[dict[str, Any]]:
    """Waits for tasks. A worker that counts as DEAD, after a long silence, registers again."""
    try:
        return list(post("/tasks/v1/claim?wait=20s", {"workerId": WORKER, "limit": 10})["tasks"])
    except urllib.error.HTTPError as e:
        if e.code != 409:
            raise
    claims.clear()
    register()
    return []


def main() -> None:
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda *_: sys.exit(0))  # what it holds goes to another worker once it is DEAD
    register()
    threading.Thread(target=heartbeat, daemon=True).start()
    print("ready for tasks", flush=True)
    while True:
        tasks = claim()
        claims.update((task["id"], task["token"]) for task in tasks)
        for task in tasks:
            run(task)


main()
