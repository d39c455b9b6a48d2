// Walks the kit for tests of workflows: the package, and a folder for files. TASKER_CTL says where tasker-ctl is.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";

const testing = pathToFileURL(join(dirname(process.argv[2]), "testing.js")).href;
const { BatchConfig, Bytes, Decimal, Decision, Handlers, Permanent } = await import(pathToFileURL(process.argv[2]).href);
const { EngineError, startEngine } = await import(testing);

const handlers = new Handlers();
handlers.step("orders.validate", { inputs: ["amount"] }, (_ctx, { amount }) => { // an example of the engine has the same name
  if (amount < 0) throw new Permanent("a negative amount", { code: "NEGATIVE", details: { amount } });
  return { amount };
});
handlers.decision("orders.route", { dependsOn: { valid: "validate" } }, (_ctx, { valid }) => (valid.amount > 100 ? Decision.route("approve") : Decision.skip()));
handlers.step("orders.approve", {}, (ctx) => ({ approved: true, limit: ctx.config.limit }));
handlers.batchAnalyzer("files.analyze", "process", { inputs: ["file"] }, (_ctx, { file }) => new BatchConfig(file.data.length, 100));
handlers.batchWorker("files.process", (ctx, batch) => new Bytes(ctx.context.file.data.subarray(batch.start, batch.end), "application/x-part"));
handlers.step("files.total", {}, async (ctx) => new Bytes(Buffer.concat((await ctx.batchResults("process")).map((b) => b.result.data))));
handlers.step("numbers.same", { inputs: ["given"] }, (_ctx, { given }) => given);
handlers.step("numbers.last", { dependsOn: { given: "same" } }, async (ctx, { given }) => {
  if (ctx.saved) return { given, cursor: ctx.saved.cursor, accumulated: ctx.saved.accumulated, config: ctx.config.limit };
  await ctx.checkpoint(given.id, 1, given.price);
  if (ctx.attempt === 1) throw new Error("once more");
});

const order = `
name: order
namespace_name: shop
version: 1.2.0
steps:
  - {name: validate, handler: {callable: orders.validate}}
  - {name: route, type: decision, dependencies: [validate], handler: {callable: orders.route}}
  - {name: approve, dependencies: [route], handler: {callable: orders.approve, initialization: {limit: 1000}}}
environments:
  test: {steps: [{name: approve, initialization: {limit: 10}}]}
`;
const files = `
name: files
namespace_name: imports
version: 1.0.0
steps:
  - {name: analyze, type: batchable, handler: {callable: files.analyze, initialization: {worker_template_name: process}},
     batch_config: {batch_size: 100, parallelism: 4, cursor_field: id, worker_template: process, failure_strategy: fail_fast}}
  - {name: process, type: batch_worker, dependencies: [analyze], handler: {callable: files.process}}
  - {name: total, type: deferred_convergence, dependencies: [process], handler: {callable: files.total}}
`;
const numbers = `
name: numbers
namespace_name: shop
version: 1.0.0
steps:
  - {name: same, handler: {callable: numbers.same}}
  - {name: last, dependencies: [same], handler: {callable: numbers.last}, retry: {max_attempts: 2, backoff: fixed, backoff_base_ms: 1}}
`;
const waits = `
name: waits
namespace_name: shop
version: 1.0.0
steps:
  - {name: payment, type: wait_for_event, wait: {event: paid, key: order}}
  - {name: none, dependencies: [payment], handler: {callable: has.no_handler}}
`;

function alive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

const path = join(process.argv[3], "files.yaml");
await writeFile(path, files);
const engine = await startEngine({ templates: [order, pathToFileURL(path), waits, numbers], handlers, environment: "test" });
const pid = engine.program.child.pid;
try {
  const small = await engine.run("order", { amount: 7 });
  assert.equal(small.status, "complete");
  assert.deepEqual(small.results, { validate: { amount: 7 }, route: small.results.route });
  const again = await engine.run("order", { amount: 7 });
  assert.notEqual(again.task.task_uuid, small.task.task_uuid);
  assert.equal(again.status, "complete");
  const large = await engine.run("order", { amount: 700 });
  assert.deepEqual(large.results.approve, { approved: true, limit: 10 });
  assert.equal(large.task.version, "1.2.0");
  assert.equal(large.steps.approve.attempts, 1);
  const wrong = await engine.run("order", { amount: -1 });
  assert.equal(wrong.status, "error");
  assert.equal(wrong.steps.validate.state, "error");
  assert.equal(wrong.steps.validate.error.error_code, "NEGATIVE");
  assert.equal(wrong.steps.validate.result, undefined);
  assert.ok(!("validate" in wrong.results));
  const file = new Bytes(new Uint8Array(250).map((_, i) => i));
  const batches = await engine.run("files", { file });
  assert.deepEqual(batches.results.total, file);
  assert.deepEqual(batches.results.process_003, new Bytes(file.data.subarray(200), "application/x-part"));
  const given = { id: 2n ** 53n + 1n, digits: 123456789012345678901234567890n, price: new Decimal("1.000000000000000001"), plain: [0.1, 7] };
  const exact = await engine.run("numbers", { given });
  assert.deepEqual(exact.results.same, given);
  assert.deepEqual(exact.results.last, { given, cursor: given.id, accumulated: given.price });
  assert.deepEqual(exact.task.context, { given });

  await engine.client.sendEvent({ name: "paid", namespace: "shop", key: "o-1" });
  await assert.rejects(engine.run("waits", { order: "o-1" }, { timeout: 1 }), /payment is .*none is/);
  await assert.rejects(engine.run("unknown"), /0 templates/);
} finally {
  await engine.stop();
}
assert.ok(!alive(pid), "the engine still runs");
assert.equal(process.listenerCount("SIGTERM") + process.listenerCount("SIGINT"), 0, "the signals are the test's");

await assert.rejects(startEngine({ templates: ["steps: []"] }), /TEMPLATE/i);
await assert.rejects(startEngine({ binary: "/nowhere/tasker-ctl" }), /invalid binary/);
await assert.rejects(startEngine({ binary: "false" }), /ended with 1/);
const saved = { TASKER_CTL: process.env.TASKER_CTL, PATH: process.env.PATH };
delete process.env.TASKER_CTL;
process.env.PATH = "/nowhere";
await assert.rejects(startEngine(), (e) => e instanceof EngineError && e.message.includes("TASKER_CTL") && e.message.includes("PATH"));
Object.assign(process.env, saved);

// The engine of a test that is killed ends too.
const killed = spawn(process.execPath, ["--input-type=module", "-e",
  `const { startEngine } = await import(${JSON.stringify(testing)}); console.log((await startEngine()).program.child.pid); setInterval(() => {}, 1000)`]);
killed.stderr.pipe(process.stderr);
const orphan = Number(await new Promise((resolve) => killed.stdout.setEncoding("utf8").once("data", resolve)));
assert.ok(alive(orphan));
killed.kill("SIGKILL");
for (const deadline = Date.now() + 60_000; alive(orphan); ) {
  assert.ok(Date.now() < deadline, "the engine still runs");
  await new Promise((resolve) => setTimeout(resolve, 50));
}
console.log("all as it should be");
