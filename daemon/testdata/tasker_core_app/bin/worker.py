"""The application in one process: its worker with all parts, and a client that creates tasks."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tasker_core import TaskerClient, Worker, get_metrics, is_worker_running  # noqa: E402

assert not is_worker_running()
with Worker.start(handler_packages=["shop.handlers", "shop.no_such_package"]) as worker:
    assert Worker.instance() is worker and Worker.start() is worker and worker.bootstrap_result.success
    client = TaskerClient(initiator="worker.py", source_system="shop")
    created = client.create_task("returns", namespace="shop", context={"parcel": 9}, reason="a test")
    until = time.monotonic() + 60
    while (task := client.get_task(created.task_uuid)).status != "complete" and time.monotonic() < until:
        time.sleep(0.1)
    steps = {s.name: s for s in client.list_task_steps(task.task_uuid)}
    step = client.get_step(task.task_uuid, steps["refund"].step_uuid)
    audit = client.get_step_audit_history(task.task_uuid, step.step_uuid)
    listed = client.list_tasks(limit=5, namespace="shop")
    print(task.status, task.initiator, len(steps), (step.results or {}).get("result"), audit[-1].success, flush=True)
    print(task.task_uuid in [t.task_uuid for t in listed.tasks], client.health_check().healthy, flush=True)
    print(get_metrics().steps_processed, worker.is_running, flush=True)
print(Worker.instance(), is_worker_running(), flush=True)
