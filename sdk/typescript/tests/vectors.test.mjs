// Plays the daemon of sdk/vectors: what the package in TASKER_DIST sends must be what the vectors say.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import process from "node:process";
import test from "node:test";
import { pathToFileURL } from "node:url";

const { Bytes, Continue, Permanent, Retryable, Returned, Worker, Yield } = await import(pathToFileURL(`${process.env.TASKER_DIST}/index.js`).href);
const { parsed } = await import(pathToFileURL(`${process.env.TASKER_DIST}/json.js`).href);
const vectors = JSON.parse(readFileSync(process.env.TASKER_VECTORS ?? new URL("../../vectors/protocol.json", import.meta.url), "utf8"));

function register(worker) {
  worker.handler("vector.adds", (ctx) => ({ n: ctx.context.n + 1 }));
  worker.handler("vector.nothing", () => undefined);
  worker.handler("vector.parents", (ctx) => ({ sum: ctx.results.before + ctx.config.add }));
  worker.register("vector.methods", { call: () => "called", refund: () => "refunded" });
  worker.handler("vector.permanent", () => {
    throw new Permanent("no stock", { code: "S1", details: { left: 0 } });
  });
  worker.handler("vector.retryable", () => {
    throw new Retryable("busy", { after: 5 });
  });
  worker.handler("vector.yields", ({ saved }) => {
    if (!saved) throw new Yield({ page: 2 }, 10, { sum: 3 });
    return [saved.cursor, saved.itemsProcessed, saved.accumulated];
  });
  worker.handler("vector.returned", () => {
    throw new Returned();
  });
  worker.handler("vector.isolates", (ctx) => {
    ctx.isolate(ctx.batch.items[1], new Permanent("bad row", { code: "R1" }));
    return ctx.batch.items.length - 1;
  });
  worker.handler("vector.continues", () => new Continue({ hop: 1 },
    { name: "collect", version: "2.0.0", context: { hop: 2 }, idempotencyKey: "hop-2", priority: 0, tags: ["hop"], delay: 60 }));
  worker.handler("vector.continues.whole", () => {
    const one = "0d4b5f5e-0000-4000-8000-00000000000";
    return new Continue(1, { name: "collect", namespace: "bank", initiator: "ana", sourceSystem: "shop", reason: "it is time", correlationId: `${one}1`, parentCorrelationId: `${one}2`,
      startAt: new Date("2099-01-02T03:04:05Z"), deadline: new Date("2099-01-03T03:04:05Z"), dependsOn: [`${one}3`], onDependencyFailure: "continue", maxAttempts: 3, retryDelays: ["1s", "2m"] });
  });
  worker.handler("vector.saves", async (ctx) => {
    await ctx.checkpoint(5, 5);
    return true;
  });
  worker.handler("vector.progress", async (ctx) => {
    await ctx.progress(0.5, "half");
    return true;
  });
  worker.handler("vector.logs", (ctx) => {
    ctx.logger.warn("the card is slow", { cents: 5 });
    return true;
  });
  worker.handler("vector.publishes", (ctx) => {
    ctx.publish("stock.low", { left: 1 });
    ctx.publish("stock.counted", null);
    return true;
  });
  worker.handler("vector.notes", (ctx) => {
    ctx.metadata({ rows: 2 });
    return true;
  });
  worker.handler("vector.charges", () => ({ n: 1 }));
  worker.publisher({
    name: "receipts",
    shouldPublish: ({ name }) => name !== "quiet",
    payload: ({ result }) => ({ receipt: result.n }),
    metadata: () => ({ by: "vector" }),
  });
  worker.handler("vector.draws", () => new Bytes(Buffer.from("89504e470d0a1a0a00ff22c3", "hex"), "image/png"));
  worker.handler("vector.collects", async (ctx) => {
    const pictures = [ctx.context.picture, await ctx.result("before"), await ctx.result("root"), ...(await ctx.batchResults("rows")).map((b) => b.result)];
    return { sizes: pictures.map((p) => p.data.length), pictures };
  });
  worker.handler("vector.reads", async (ctx) => [await ctx.result("root"), await ctx.batchResults("rows")]);
}

test("the form of bytes", () => {
  for (const v of vectors.bytes) {
    const bytes = new Bytes(new Uint8Array(Buffer.from(v.hex, "hex")), v.content_type);
    assert.deepEqual(JSON.parse(JSON.stringify({ in: [bytes] })), { in: [v.json] }, v.meaning);
    assert.deepEqual(parsed(JSON.stringify({ in: [v.json] })), { in: [bytes] }, v.meaning);
    assert.deepEqual(parsed(JSON.stringify([v.json]).replace("$", "\\u0024")), [bytes], v.meaning);
  }
  for (const v of vectors.no_bytes) assert.deepEqual(parsed(JSON.stringify([v.json])), [v.json], v.meaning);
  for (const contentType of ["", "png", "image/png\n", `a/${"b".repeat(254)}`]) assert.throws(() => new Bytes(new Uint8Array(), contentType), /want a media type/);
  assert.throws(() => new Bytes("text"), /invalid data of type string: want a Uint8Array/);
});

test("the package speaks the protocol", { timeout: 60_000 }, async () => {
  const todo = [...vectors.steps], got = [], requests = new Map();
  for (const v of vectors.steps) for (const r of v.requests ?? []) requests.set(`${r.method} ${r.path}`, r);
  let end;
  const ended = new Promise((resolve) => (end = resolve));

  const answerTo = (method, path, body) => {
    if (method === "POST" && path === "") {
      got.push(Object.fromEntries(Object.keys(vectors.open).map((k) => [k, body[k]])));
      return vectors.opened;
    }
    if (path === "/reports") {
      got.push(...body.reports);
      if (got.length > vectors.steps.length) end();
      return { rejected: [] };
    }
    const expected = requests.get(`${method} ${path}`);
    if (!expected) return { closed: true };
    requests.delete(`${method} ${path}`);
    if (path === "/logs") expected.body.lines.forEach((line, n) => (line.at = new Date(body.lines[n].at).toISOString()));
    if (expected.body) assert.deepEqual(body, expected.body);
    return expected.answer;
  };
  // Tells of two steps, which may come in the middle of one another's lines.
  const stream = (response) => {
    let text = "retry: 2000\n\n";
    for (const next of todo.length > 0 ? todo.splice(0, 2) : [undefined]) {
      const answer = { answer: vectors.steps.length - todo.length, steps: next ? [{ ...vectors.base, ...next.step }] : [], cancelled: [], draining: false, of_a_later_version: 1 };
      text += `id: ${answer.answer}\nevent: told\ndata: ${JSON.stringify(answer)}\n\n`;
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(text.slice(0, 700), () => setTimeout(() => response.end(text.slice(700)), 2));
  };
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (part) => (text += part));
    request.on("end", () => {
      const path = request.url.replace("/v1/sessions", "").replace(`/${vectors.opened.session_id}`, "");
      const send = () => response.end(JSON.stringify(answerTo(request.method, path, text === "" ? undefined : JSON.parse(text))));
      if (!path.startsWith("/stream?after=")) send();
      else setTimeout(() => stream(response), todo.length === 0 ? 50 : 0);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const calls = [];
  const note = (call) => {
    calls.push(call);
    throw new Error("of a hook, which changes nothing");
  };
  const hooks = {
    opened: () => note("opened"),
    before: (ctx) => note(`before ${ctx.fence}`),
    failed: (ctx, error) => note(`failed ${ctx.fence} ${error.message}`),
    after: (ctx, outcome, seconds) => note(`after ${ctx.fence} ${outcome}${seconds >= 0 && seconds < 60 ? "" : " when?"}`),
    draining: () => note("draining"),
    stopped: () => note("stopped"),
  };
  const worker = new Worker({ url: `http://127.0.0.1:${server.address().port}`, permits: 1, log: () => {}, hooks });
  register(worker);
  const running = worker.run();
  await ended;
  await worker.stop();
  await running;
  server.closeAllConnections();
  server.close();
  assert.deepEqual(got[0], vectors.open);
  for (const v of vectors.steps) assert.deepEqual(got.find((r) => r.fence === v.report.fence), v.report, v.meaning);
  assert.equal(requests.size, 0, "not sent");
  const told = ["opened"];
  for (const { report: r } of vectors.steps) {
    told.push(`before ${r.fence}`);
    if (r.outcome === "failure") told.push(`failed ${r.fence} ${r.error.message}`);
    told.push(`after ${r.fence} ${r.outcome}`);
  }
  assert.equal(calls[0], "opened");
  assert.deepEqual(calls.slice(-2), ["draining", "stopped"]);
  assert.deepEqual(calls.slice(0, -2).sort(), told.sort()); // steps may run at the same time
});
