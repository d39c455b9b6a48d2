// A worker of handlers in TypeScript's package: where that is, and the address of the daemon.
import assert from "node:assert/strict";
import process from "node:process";
import { pathToFileURL } from "node:url";

const { BatchConfig, Bytes, Continue, Decision, Handlers, Permanent, Worker, Yield, currentStep } = await import(pathToFileURL(process.argv[2]).href);
const worker = new Worker({ url: process.argv[3], permits: 4, name: "typescript-test" });

worker.handler("ts_square", (ctx) => ({ value: ctx.context.n + 6 }));
worker.handler("ts_async", async (ctx) => {
  assert.equal(currentStep(), ctx);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(currentStep(), ctx);
  return { value: ctx.results["ts_square_step"].value ** 2, of: ctx.config.of };
});
class Sum {
  async call(ctx) {
    return { value: (await ctx.result("ts_square_step")).value + (await ctx.result("ts_async_step")).value, attempt: ctx.attempt };
  }
}
worker.register("ts_object", new Sum());
worker.handler("ts_dies", async (ctx) => {
  if (!ctx.saved) {
    await ctx.checkpoint(50, 50, { sum: 7 });
    process.kill(process.pid, "SIGKILL");
    await new Promise(() => {});
  }
  return { resumed_from: ctx.saved.cursor, sum: ctx.saved.accumulated.sum, attempt: ctx.attempt };
});
worker.handler("ts_yields", (ctx) => {
  const at = ctx.saved?.cursor ?? 0;
  if (at < 3) throw new Yield(at + 1, at + 1);
  return { cursor: at, attempt: ctx.attempt };
});
worker.handler("ts_fails", (ctx) => {
  if (ctx.attempt === 1) throw new Error("once more");
  throw new Permanent("no more stock", { code: "S1", details: { left: 0 } });
});
worker.handler("ts_unencodable", () => Number.NaN);

const handlers = new Handlers();
handlers.step("ts_validate", { inputs: ["amount"] }, (_ctx, { amount }) => {
  if (amount <= 0) throw new Permanent("the amount must be positive", { code: "VALIDATION_ERROR" });
  return { amount };
});
handlers.decision("ts_route", { dependsOn: { valid: "validate_request" } }, (_ctx, { valid }) => {
  if (valid.amount < 1000) return Decision.route("auto_approve");
  return valid.amount < 5000 ? Decision.route("manager_approval") : Decision.route("manager_approval", "finance_review");
});
handlers.step("ts_approve", {}, (ctx) => ({ approved_by: ctx.stepName }));
handlers.step("ts_finalize", {}, (ctx) => ({
  approvals: Object.values(ctx.results).flatMap((r) => (r.approved_by ? [r.approved_by] : [])).sort(),
}));
handlers.batchAnalyzer("ts_analyze", "process_batch", { inputs: ["dataset_size"] },
  (_ctx, { dataset_size: size }) => new BatchConfig(size, 1000, 10, { size }));
handlers.batchWorker("ts_process", (_ctx, batch) => ({ processed: batch.end - batch.start }));
handlers.step("ts_aggregate", {}, async (ctx) => {
  const results = (await ctx.batchResults("process_batch")).map((b) => b.result);
  return { total: results.reduce((sum, r) => sum + (r.processed ?? 0), 0), batches: results.length };
});
worker.handler("ts_continues", (ctx) => {
  const hop = ctx.context.hop ?? 0;
  return hop === 2 ? hop : new Continue({ hop }, { context: { hop: hop + 1 }, tags: ["hop"], delay: 0.01 });
});
handlers.step("ts_bytes", { dependsOn: { turned: "go_bytes_step" } }, async (ctx, { turned }) => {
  const first = await ctx.result("py_bytes_step");
  return { size: turned.data.length, of: first.contentType, inverted: new Bytes(turned.data.map((b) => b ^ 0xff), `${turned.contentType}; inverted=yes`) };
});
worker.include(handlers);

console.log("ready");
await worker.run();
console.log("stopped");
