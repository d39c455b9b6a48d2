"""Walks the client: the addresses of the orchestrator and of the worker daemon."""

import asyncio
import sys
import time

from tasker import ApiError, AsyncClient, Client, NotReached, StepContext, Worker

worker = Worker(sys.argv[2], permits=2)


@worker.handler("py_client")
def double(ctx: StepContext) -> object:
    return {"doubled": ctx.context["n"] * 2}


worker.start()
client = Client(sys.argv[1], initiator="test", source_system="test")
task = client.run("none", "py_client", {"n": 21}, reason="test")
assert task.status == "complete" and task.ended and task.name == "py_client", task
assert [s["results"]["result"] for s in client.steps(task.uuid)] == [{"doubled": 42}]

keyed = client.create_task("none", "py_client", {"n": 1}, idempotency_key="once", reason="test", tags=["a"], wait=30)
assert keyed.status == "complete", keyed
try:
    client.create_task("none", "py_client", {"n": 1}, idempotency_key="once", reason="test")
    raise AssertionError("created twice")
except ApiError as e:
    assert e.status == 409 and e.task_uuid == keyed.uuid, e
assert {task.uuid, keyed.uuid} <= {t.uuid for t in client.tasks(namespace="none", name="py_client")}

later = client.create_task("none", "py_client", {"n": 2}, delay_seconds=3600, reason="test")
begun = time.monotonic()
try:
    client.wait(later.uuid, timeout=0.3)
    raise AssertionError("it has not ended")
except TimeoutError:
    assert time.monotonic() - begun >= 0.3
assert client.cancel(later.uuid, "test").status == "cancelled"

event = {"namespace": "none", "key": "k", "id": "event-1", "payload": {"a": 1}}
first = client.send_event("arrived", **event)
assert client.send_event("arrived", **event)["event_uuid"] == first["event_uuid"]
for wrong, status in ((("none", "missing"), 404), (("none", "py_client"), 400)):
    try:
        client.create_task(*wrong, {"n": 1}, reason="test", priority=0 if status == 404 else 1000)
        raise AssertionError("created")
    except ApiError as e:
        assert e.status == status and e.request_id, e
try:
    Client("http://127.0.0.1:9", initiator="test").create_task("none", "x", {})
    raise AssertionError("answered")
except NotReached:
    pass


async def both() -> None:
    a = AsyncClient(client)
    ends = await asyncio.gather(*(a.run("none", "py_client", {"n": n}, reason="test") for n in (5, 6)))
    assert [t.status for t in ends] == ["complete", "complete"]


asyncio.run(both())
worker.stop()
print("all as it should be")
