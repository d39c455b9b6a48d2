// The test kit of the package in TASKER_DIST: a handler's outcome is that of its report.
import assert from "node:assert/strict";
import process from "node:process";
import test from "node:test";
import { pathToFileURL } from "node:url";

const load = (file) => import(pathToFileURL(`${process.env.TASKER_DIST}/${file}.js`).href);
const { Bytes, Cancelled, Continue, Permanent, Yield, currentStep } = await load("index");
const { runStep } = await load("testing");

test("outcomes are those of reports", async () => {
  assert.deepEqual(await runStep(async () => currentStep().context.n + 1, { context: { n: 6 } }), { outcome: "success", result: 7, saved: [], logs: [] });
  assert.deepEqual(await runStep(() => {
    throw new Permanent("no stock", { code: "S1" });
  }), { outcome: "failure", error: { message: "no stock", error_type: "Permanent", retryable: false, error_code: "S1" }, saved: [], logs: [] });
  const pages = ({ saved }) => {
    if (saved) return saved.cursor;
    throw new Yield(2, 10);
  };
  const { checkpoint } = await runStep(pages);
  assert.deepEqual(checkpoint, { cursor: 2, items_processed: 10 });
  assert.equal((await runStep(pages, { checkpoint })).result, 2);
  assert.deepEqual((await runStep(() => new Continue(1, { name: "next", delay: 5 }))).next, { name: "next", delay_seconds: 5 });
  assert.deepEqual((await runStep((ctx) => ctx.publish("stock.low", { left: 1 }))).events, [{ name: "stock.low", payload: { left: 1 } }]);
  assert.equal((await runStep((ctx) => ctx.publish("stock.low", undefined))).error.error_type, "EventNotPublished");
  assert.equal((await runStep((ctx) => {
    ctx.publish("stock.low", 1);
    throw new Yield(1, 1);
  })).error.error_type, "EventNotPublished");
  const loop = {};
  loop.self = loop;
  for (const odd of [loop, Number.NaN, [1, { at: Infinity }], () => 1, Symbol("s")]) assert.equal((await runStep(() => odd)).error.error_type, "ResultNotEncodable");
});

test("bytes arrive as such", async () => {
  const picture = new Bytes(new Uint8Array([0, 255]), "image/png");
  for (const given of [picture, { $bytes: "AP8=", content_type: "image/png" }]) {
    const end = await runStep(async (ctx) => [ctx.context.of, ctx.results.a, await ctx.result("b"), (await ctx.batchResults("rows"))[0].result],
      { context: { of: given }, results: { a: given }, ancestors: { b: given }, batchResults: { rows: [given] } });
    assert.deepEqual(end.result, [picture, picture, picture, picture]);
  }
  assert.deepEqual((await runStep(() => picture)).result, picture);
});

test("what a handler asks of its session", async () => {
  const end = await runStep(async (ctx) => {
    await ctx.checkpoint(1, 1, { sum: 3 });
    ctx.isolate(ctx.batch.items[0], "bad row");
    await ctx.checkpoint(2, 2); // the next execution begins behind the row
    return [ctx.results.before, await ctx.result("root"), (await ctx.batchResults("rows")).map((b) => b.result)];
  }, { results: { before: 1 }, ancestors: { root: 2 }, batchResults: { rows: [3, 4] }, items: ["a"] });
  assert.deepEqual(end.result, [1, 2, [3, 4]]);
  assert.deepEqual(end.saved, [{ cursor: 1, items_processed: 1, accumulated_results: { sum: 3 } }, { cursor: 2, items_processed: 2, isolated: end.isolated }]);
  assert.equal(end.isolated[0].item, "a");
  assert.equal((await runStep((ctx) => ctx.result("none"))).outcome, "failure");
  assert.equal((await runStep(async (ctx) => {
    await assert.rejects(ctx.checkpoint(1, 1), Cancelled);
    ctx.signal.throwIfAborted();
  }, { leaseLost: true })).outcome, "returned");
});

test("a context says where the results of batches are", async () => {
  const end = await runStep(async (ctx) => {
    const words = /^UnknownStep: rows has many results: ctx\.batchResults\("rows"\) reads those of its batches$/;
    assert.throws(() => ctx.results.rows, words);
    await assert.rejects(ctx.result("rows"), words);
    assert.deepEqual(ctx.batchSteps, ["rows"]);
    return [Object.keys(ctx.results), "rows" in ctx.results, { ...ctx.results }, (await ctx.batchResults("rows")).length];
  }, { results: { before: 1 }, batchResults: { rows: [3, 4] }, message: { batch_steps: ["rows"] } });
  assert.deepEqual(end.result, [["before"], true, { before: 1 }, 2]);
});
