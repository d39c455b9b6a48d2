// Walks what handlers of a session have beside their result: the package, and where tasker-ctl is (TASKER_CTL).
import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";

const { Handlers, Worker } = await import(pathToFileURL(process.argv[2]).href);
const { startEngine } = await import(pathToFileURL(join(dirname(process.argv[2]), "testing.js")).href);

const template = (name, steps) => `{name: ${name}, namespace_name: sessions, version: 1.0.0, steps: [${steps}]}`;
const templates = [
  template("computes", "{name: long, handler: {callable: long}, retry: {max_attempts: 3, backoff: fixed, backoff_base_ms: 1}}"),
  template("publishes", `{name: pay, handler: {callable: pay}, retry: {max_attempts: 1}, publishes_events: [
    {name: payment.made, condition: success, delivery_mode: broadcast, publisher: payments},
    {name: payment.plain, condition: success, delivery_mode: fast},
    {name: payment.vetoed, condition: success, delivery_mode: fast, publisher: vetoes},
    {name: payment.failed, condition: permanent_failure, delivery_mode: fast, publisher: payments}]}`),
  template("resolves", `{name: exact, handler: {callable: shop.named, resolver: explicit_mapping}},
    {name: spelled, handler: {callable: "Shop::NamedHandler", resolver: ClassLookupResolver}},
    {name: service, handler: {callable: "service://a", method: undo, resolver: services}},
    {name: plain, handler: {callable: "service://b"}}`),
];

const handlers = new Handlers(), heard = [], after = [];
let runs = 0;
handlers.handler("long", () => {
  runs++;
  for (const end = Date.now() + 16_000; Date.now() < end; ); // longer than a poll waits, and the grace
  return "computed";
});
handlers.handler("pay", (ctx) => {
  if (ctx.context.fails) throw new Error("declined");
  ctx.metadata({ took: 3, id: 2n ** 60n + 1n });
  return { id: "p-1", secret: "s" };
});
handlers.publisher({ name: "payments", payload: (e) => ({ id: e.result?.id ?? null, why: e.failure?.message ?? null }), metadata: () => ({ by: "bank" }), after: (e) => void after.push(e.name) });
handlers.publisher({ name: "vetoes", shouldPublish: () => false });
handlers.subscribe({ name: "audit", patterns: ["payment.*"], handle: (e) => void heard.push(e) });
handlers.handler("shop.named", (ctx) => `${ctx.callable} ${ctx.resolver}`);
handlers.resolver({ name: "services", callables: ["service://*"], resolve: ({ callable }) => ({ call: () => `called ${callable}`, undo: () => `undone ${callable}` }) });

const engine = await startEngine({ templates, handlers });
try {
  const computed = await engine.run("computes", {}, { timeout: 120 });
  assert.deepEqual([computed.results.long, computed.steps.long.attempts, runs], ["computed", 1, 1]);

  const paid = await engine.run("publishes", { fails: false });
  assert.equal(paid.status, "complete");
  assert.deepEqual(paid.steps.pay.data.results.metadata.custom, { took: 3, id: 2n ** 60n + 1n });
  await engine.run("publishes", { fails: true });
  for (const deadline = Date.now() + 30_000; heard.length < 3; ) {
    assert.ok(Date.now() < deadline, JSON.stringify(heard));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const of = Object.fromEntries(heard.map((e) => [e.event_name, e]));
  assert.deepEqual(Object.keys(of).sort(), ["payment.failed", "payment.made", "payment.plain"]);
  assert.deepEqual([of["payment.made"].payload, of["payment.made"].metadata.added, of["payment.made"].metadata.step_name], [{ id: "p-1", why: null }, { by: "bank" }, "pay"]);
  assert.deepEqual(of["payment.plain"].payload, { id: "p-1", secret: "s" });
  assert.deepEqual([of["payment.failed"].payload, of["payment.failed"].metadata.success], [{ id: null, why: "declined" }, false]);
  assert.deepEqual(after.sort(), ["payment.failed", "payment.made"]);

  const found = await engine.run("resolves");
  assert.deepEqual(found.results, { exact: "shop.named explicit_mapping", spelled: "Shop::NamedHandler ClassLookupResolver", service: "undone service://a", plain: "called service://b" });

  const lines = [], worker = new Worker({ url: engine.workerUrl, namespaces: ["sessions"], log: (line) => lines.push(line), hooks: { opened: () => void worker.stop() } });
  worker.handler("shop.nmaed", () => 1);
  worker.handler("pay", () => 1);
  await worker.run({ signals: false });
  assert.deepEqual(lines, [`connected to ${engine.workerUrl}, serving 2 handlers`, "no template in the namespaces of this session names the callable shop.nmaed"]);
} finally {
  await engine.stop();
}
console.log("all as it should be");
