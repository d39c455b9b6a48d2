// Runs workflows of handlers in Tasker's style on an engine of its own, and then as the program of server.ts.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { HandlerRegistry, PublisherRegistry, SubscriberRegistry } from "@tasker-go/tasker/compat";
import { startEngine } from "@tasker-go/tasker/testing";

let asked = 0;
let service: any;

/** A service that calls of handlers reach. */
async function serve(): Promise<string> {
  service = createServer((request: any, response: any) => {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://service");
    const answer = (status: number, body: unknown) =>
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    if (pathname === "/notes") return answer(201, { note: "sent" });
    if (pathname === "/users/7" && request.headers["x-key"] === "k")
      return ++asked === 1
        ? answer(503, { message: "busy" })
        : answer(200, { name: "Ada", attempt: Number(searchParams.get("attempt")) });
    answer(404, { message: "no such user" });
  });
  await new Promise<void>((listening) => service.listen(0, "127.0.0.1", listening));
  return `http://127.0.0.1:${(service.address() as { port: number }).port}`;
}

const fast = "retry: {max_attempts: 3, backoff: fixed, backoff_base_ms: 1}";
const templates = [
  `
name: linear
namespace_name: compat
version: 1.0.0
steps:
  - {name: double_value, handler: {callable: double_value}}
  - {name: add_constant, dependencies: [double_value], handler: {callable: add_constant}}
  - {name: subtract, dependencies: [add_constant], handler: {callable: add_constant, method: subtract, initialization: {by: subtract}}}
`,
  `
name: diamond
namespace_name: compat
version: 1.0.0
steps:
  - {name: diamond_start, handler: {callable: diamond_start}}
  - {name: branch_b, dependencies: [diamond_start], handler: {callable: branch_b}}
  - {name: branch_c, dependencies: [diamond_start], handler: {callable: branch_c}}
  - {name: diamond_end, dependencies: [branch_b, branch_c], handler: {callable: diamond_end}}
`,
  `
name: approval
namespace_name: compat
version: 1.0.0
steps:
  - {name: validate, handler: {callable: done}}
  - {name: routing_decision, type: decision, dependencies: [validate], handler: {callable: routing_decision}}
  - {name: auto_approve, dependencies: [routing_decision], handler: {callable: approve}}
  - {name: manager_approval, dependencies: [routing_decision], handler: {callable: approve}}
  - {name: finance_review, dependencies: [routing_decision], handler: {callable: approve}}
  - {name: finalize, type: deferred_convergence, dependencies: [auto_approve, manager_approval, finance_review], handler: {callable: finalize}}
`,
  `
name: csv
namespace_name: compat
version: 1.0.0
steps:
  - {name: analyze_csv, type: batchable, handler: {callable: csv_analyzer, initialization: {worker_template_name: process_csv_batch}},
     batch_config: {batch_size: 10, parallelism: 3, cursor_field: row, worker_template: process_csv_batch, failure_strategy: fail_fast}}
  - {name: process_csv_batch, type: batch_worker, dependencies: [analyze_csv], handler: {callable: csv_batch_processor}}
  - {name: aggregate_csv_results, type: deferred_convergence, dependencies: [process_csv_batch], handler: {callable: csv_aggregator}}
`,
  `
name: users
namespace_name: compat
version: 1.0.0
steps:
  - {name: fetch_user, handler: {callable: fetch_user}, ${fast}}
  - {name: notify, type: decision, dependencies: [fetch_user], handler: {callable: notify_and_route}}
  - {name: done, dependencies: [notify], handler: {callable: done}}
`,
  `
name: failures
namespace_name: compat
version: 1.0.0
steps:
  - {name: again, handler: {callable: retryable_error}, ${fast}}
  - {name: never, dependencies: [again], handler: {callable: permanent_error}, ${fast}}
`,
  `
name: parcels
namespace_name: compat
version: 1.0.0
steps:
  - {name: look_up, handler: {callable: look_up}, ${fast}}
  - {name: weigh, dependencies: [look_up], handler: {callable: weigh, method: measure}, ${fast}}
  - {name: route, type: decision, dependencies: [weigh], handler: {callable: route}}
  - {name: drive, dependencies: [route], handler: {callable: drive}}
  - {name: fly, dependencies: [route], handler: {callable: fly}}
`,
  `
name: loads
namespace_name: compat
version: 1.0.0
steps:
  - {name: pack, type: batchable, handler: {callable: pack, initialization: {worker_template_name: load}},
     batch_config: {batch_size: 2, parallelism: 3, cursor_field: parcel, worker_template: load, failure_strategy: fail_fast}}
  - {name: load, type: batch_worker, dependencies: [pack], handler: {callable: load}}
  - {name: count, type: deferred_convergence, dependencies: [load], handler: {callable: count}}
`,
  `
name: payment
namespace_name: compat
version: 1.0.0
steps:
  - name: process_payment
    handler: {callable: process_payment}
    publishes_events:
      - {name: payment.processed, condition: success, delivery_mode: broadcast, publisher: payment_events}
`,
];

// What makes the handlers of the functions needs the address of the service.
process.env.SERVICE_URL = await serve();
const { AuditLoggingSubscriber, PaymentEventPublisher, heard, published, registerHandlers } =
  await import("./handlers.js");

const registry = new HandlerRegistry();
registerHandlers(registry);
PublisherRegistry.getInstance().register(PaymentEventPublisher);
SubscriberRegistry.getInstance().register(AuditLoggingSubscriber);

type Engine = Awaited<ReturnType<typeof startEngine>>;

async function workflows(engine: Engine): Promise<void> {
  const results = async (name: string, context: Record<string, unknown>): Promise<Record<string, any>> => {
    const end = await engine.run(name, context, { namespace: "compat" });
    assert.equal(end.status, "complete", JSON.stringify(end.steps));
    return end.results as Record<string, any>;
  };
  const linear = await results("linear", { value: 6 });
  assert.deepEqual(linear.add_constant, { result: 22, operation: "add" });
  assert.deepEqual(linear.subtract, { result: 10, retries: 0, by: "subtract" });
  assert.deepEqual((await results("diamond", { value: 6 })).diamond_end, { final: 66.5 });
  for (const [amount, approvals, route] of [
    [500, ["auto_approve"], "auto"],
    [1500, ["manager_approval"], "manager"],
    [7000, ["finance_review", "manager_approval"], "dual"],
  ] as const) {
    const approval = await results("approval", { amount });
    assert.deepEqual(approval.finalize, { approvals });
    assert.equal(approval[approvals[0]].route, route);
  }
  assert.equal((await results("approval", { amount: 0 })).routing_decision.reason, "condition not met");
  assert.deepEqual((await results("csv", { rows: 20 })).aggregate_csv_results, {
    sum: 380,
    resumed: 3,
    total: 20,
    batches: 3,
    workers: 3,
  });
  assert.deepEqual((await results("csv", { rows: 0 })).aggregate_csv_results, {
    sum: 0,
    resumed: 0,
    total: 0,
    batches: 0,
    workers: 1,
  });
  asked = 0;
  const users = await results("users", { user_id: "7" });
  assert.deepEqual(users.fetch_user, { name: "Ada", attempt: 1 });
  assert.equal(users.notify.note, "sent");
  const missing = await engine.run("users", { user_id: "8" }, { namespace: "compat" });
  const { message, error_type: type, error_code: code, retryable } = missing.steps.fetch_user!.error!;
  assert.deepEqual(
    [missing.status, message, type, code, retryable],
    ["error", "HTTP 404: no such user", "not_found", "HTTP_404", false],
  );
  const failures = await engine.run("failures", {}, { namespace: "compat" });
  assert.deepEqual(
    [failures.results.again, failures.steps.never!.error!.error_code, failures.steps.never!.attempts],
    [{ attempt: 1 }, "INVALID_INPUT", 1],
  );
  asked = 0;
  const driven = await results("parcels", { user_id: "7", parcels: 2 });
  assert.deepEqual(
    [driven.look_up, driven.weigh, driven.route.routing_context, driven.drive, driven.fly],
    [{ customer: "Ada" }, { customer: "Ada", parcels: 2 }, { parcels: 2 }, { driven: 2 }, undefined],
  );
  assert.deepEqual((await results("parcels", { user_id: "7", parcels: -5 })).fly, {}, "after another attempt");
  assert.equal((await results("parcels", { user_id: "7", parcels: 0 })).route.reason, "nothing to send");
  for (const [context, step, type, retryable] of [
    [{ user_id: "9", parcels: 1 }, "look_up", "not_found", false],
    [{ user_id: "7" }, "weigh", "permanent_error", false],
    [{ user_id: "7", parcels: 100 }, "weigh", "handler_error", true],
  ] as const) {
    const end = await engine.run("parcels", context, { namespace: "compat" }),
      error = end.steps[step]!.error!;
    assert.deepEqual([error.error_type, error.retryable], [type, retryable], JSON.stringify(end.steps));
  }
  for (const parcels of [5, 0]) assert.deepEqual((await results("loads", { parcels })).count, { result: parcels });
  assert.equal((await results("payment", { amount: 12 })).process_payment.payment_id, "p-1");
}

const own = await startEngine({ templates, handlers: registry });
try {
  await workflows(own);
  for (const deadline = Date.now() + 30_000; heard.length === 0 || published.length === 0; ) {
    assert.ok(Date.now() < deadline, "the event has not arrived");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.deepEqual(heard[0]!.payload, { payment_id: "p-1", amount: 12, status: "paid" });
  assert.equal(heard[0]!.metadata.payment_processor, "stripe");
  assert.equal(published[0]!.eventName, "payment.processed");
} finally {
  await own.stop();
}

// The same handlers in a process that is set up piece by piece.
const engine = await startEngine({ templates });
const server = spawn(process.execPath, [new URL("server.js", import.meta.url).pathname], {
  env: { ...process.env, TASKER_WORKER_URL: engine.workerUrl },
  stdio: ["ignore", "pipe", "pipe"],
});
let said = "";
for (const stream of [server.stdout, server.stderr])
  stream.setEncoding("utf8").on("data", (text: string) => (said += text));
const ended = new Promise<number | null>((resolve) => server.once("close", resolve));
try {
  await workflows(engine);
  for (const deadline = Date.now() + 30_000; !said.includes("Event received"); ) {
    assert.ok(Date.now() < deadline, said);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  server.kill("SIGTERM");
  assert.equal(await ended, 0, said);
  assert.match(said, /Step completed/);
  assert.match(said, /Event received: payment.processed/);
  assert.match(said, /all handlers have ended: true/);
} finally {
  server.kill("SIGKILL");
  await engine.stop();
  service.closeAllConnections();
  service.close();
}
console.log("all as it should be");
