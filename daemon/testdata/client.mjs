// Walks the client: the package, and the addresses of the orchestrator and of the worker daemon.
import assert from "node:assert/strict";
import process from "node:process";
import { pathToFileURL } from "node:url";

const { ApiError, Client, NotReached, Worker, hasEnded } = await import(pathToFileURL(process.argv[2]).href);
const worker = new Worker({ url: process.argv[4], permits: 2 });
worker.handler("ts_client", (ctx) => ({ doubled: ctx.context.n * 2 }));
const running = worker.run();

const client = new Client({ url: process.argv[3], initiator: "test", sourceSystem: "test" });
const of = (n, more = {}) => ({ namespace: "none", name: "ts_client", context: { n }, reason: "test", ...more });
const task = await client.run(of(21));
assert.equal(task.status, "complete");
assert.ok(hasEnded(task));
assert.deepEqual((await client.steps(task.task_uuid)).map((s) => s.results.result), [{ doubled: 42 }]);

const keyed = await client.createTask(of(1, { idempotency_key: "once", tags: ["a"] }), 30);
assert.equal(keyed.status, "complete");
await assert.rejects(client.createTask(of(1, { idempotency_key: "once" })), (e) => e instanceof ApiError && e.status === 409 && e.taskUuid === keyed.task_uuid);
const listed = new Set();
for await (const t of client.tasks({ namespace: "none", name: "ts_client" })) listed.add(t.task_uuid);
assert.ok(listed.has(task.task_uuid) && listed.has(keyed.task_uuid));

const later = await client.createTask(of(2, { delay_seconds: 3600 }));
await assert.rejects(client.wait(later.task_uuid, 0.3), /has not ended/);
assert.equal((await client.cancel(later.task_uuid, "test")).status, "cancelled");

const event = { name: "arrived", namespace: "none", key: "k", id: "event-2", payload: { a: 1 } };
const first = await client.sendEvent(event);
assert.equal((await client.sendEvent(event)).event_uuid, first.event_uuid);
await assert.rejects(client.createTask({ ...of(1), name: "missing" }), (e) => e.status === 404 && e.requestId !== "");
await assert.rejects(client.createTask(of(1, { priority: 1000 })), (e) => e.status === 400);
await assert.rejects(new Client({ url: "http://127.0.0.1:9" }).createTask(of(1)), NotReached);
await worker.stop();
await running;
console.log("all as it should be");
