// Workers of the package in TASKER_DIST, with a daemon that the test plays.
import assert from "node:assert/strict";
import { mkdtemp, mkdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import test from "node:test";
import { pathToFileURL } from "node:url";
import { Worker as Thread } from "node:worker_threads";

const load = (file) => import(pathToFileURL(`${process.env.TASKER_DIST}/${file}.js`).href);
const {
  Absent,
  BatchConfig,
  Cancelled,
  CheckpointError,
  Client,
  Decision,
  Handlers,
  Permanent,
  Retryable,
  UnknownStep,
  Worker,
  discover,
} = await load("index");
const { fits } = await load("events");
const { runStep } = await load("testing");
const { Session, Transport } = await load("session");

const opened = { session_id: "s", reclaim_grace_ms: 3000, max_wait_ms: 10_000 };
const step = (fence, callable, more = {}) => ({
  fence,
  callable,
  task_uuid: "t",
  step_uuid: "u",
  correlation_id: "c",
  namespace: "shop",
  task_name: "order",
  task_version: "1.0.0",
  step_name: "charge",
  attempt: 1,
  max_attempts: 3,
  priority: 0,
  context: {},
  dependency_results: {},
  ...more,
});

/** A daemon that hands out messages once, and keeps what it is told. Other answers by what follows the session. */
async function daemon(t, { messages = [], events = [], answers = {}, open = opened, waits = true } = {}) {
  const told = { opens: [], reports: [], asked: [] },
    waiting = new Set();
  let stops = false;
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (part) => (text += part));
    request.on("end", () => {
      const path = request.url.replace(/^\/v1\/sessions(\/s)?/, "").replace(/\?.*/, ""),
        body = text === "" ? undefined : JSON.parse(text);
      const end = (answer, status = 200) => response.writeHead(status).end(JSON.stringify(answer));
      told.asked.push(`${request.method} ${path}`);
      if (answers[path]) return answers[path](end, body, response);
      if (request.method === "POST" && path === "") return (told.opens.push(body), end(open));
      if (path === "/reports") return (told.reports.push(...body.reports), end({ rejected: [] }));
      if (path === "/stream") {
        const send = (answer) =>
          response.end(
            `data: ${JSON.stringify({ answer: 1, steps: [], cancelled: [], draining: false, ...answer })}\n\n`,
          );
        const next = messages.splice(0),
          heard = events.splice(0);
        if (next.length > 0 || heard.length > 0 || !waits || stops) return send({ steps: next, events: heard });
        const wake = () => (waiting.delete(wake), send({}));
        return void waiting.add(wake);
      }
      if (path === "/poll") {
        stops = true;
        for (const wake of waiting) wake();
      }
      end({});
    });
  });
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  return {
    ...told,
    url: `http://127.0.0.1:${server.address().port}`,
    messages,
    wake: () => waiting.forEach((wake) => wake()),
  };
}

/** Waits until something is so. */
async function until(what, seconds = 20) {
  for (const deadline = Date.now() + seconds * 1000; !what(); ) {
    assert.ok(Date.now() < deadline, `not within ${seconds} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Runs a worker until something is so. Resolves to what it has logged. */
async function working(worker, lines, what) {
  const running = worker.run({ signals: false });
  try {
    await Promise.race([until(what), running]);
  } finally {
    await worker.stop();
    await running;
  }
  return lines;
}

test("a worker says what it offers, and what it is connected to", async (t) => {
  const d = await daemon(t, { open: { ...opened, unnamed: ["shop.chrge"] } }),
    lines = [];
  const worker = new Worker({ url: d.url, namespaces: ["shop"], log: (line) => lines.push(line) });
  worker.handler("shop.chrge", () => 1);
  worker.register("shop.pay", { call: () => 1, refund: () => 2 });
  worker.resolver({ name: "services", callables: ["service://*"], resolve: () => undefined });
  worker.resolver({ name: "plain", callables: ["a", "b*"], methods: ["x"], resolve: () => undefined });
  worker.publisher({ name: "payments" });
  worker.subscribe({ name: "audit", patterns: ["payment.*", "*"], handle: () => {} });
  await working(worker, lines, () => d.opens.length > 0 && lines.length > 1);
  const [{ callables, namespaces, publishers, subscribes }] = d.opens;
  assert.deepEqual(callables, [
    { callable: "shop.chrge", methods: [] },
    { callable: "shop.pay", methods: ["refund"] },
    { callable: "service://*", methods: ["*"], resolver: "services" },
    { callable: "a", methods: ["x"], resolver: "plain" },
    { callable: "b*", methods: ["x"], resolver: "plain" },
  ]);
  assert.deepEqual([namespaces, publishers, subscribes], [["shop"], ["payments"], ["payment.*", "*"]]);
  assert.deepEqual(lines, [
    `connected to ${d.url}, serving 4 handlers`,
    "no template in the namespaces of this session names the callable shop.chrge",
  ]);
});

test("handlers are found by name, by another spelling, and by resolvers", async (t) => {
  const messages = [
    step("1.1", "shop.pay"),
    step("2.1", "shop.pay", { resolver: "explicit_mapping", method: "refund" }),
    step("3.1", "Shop::PayHandler", { offered: "shop.pay" }),
    step("4.1", "service://b", { resolver: "services" }),
    step("5.1", "service://a", { method: "undo" }),
    step("6.1", "service://none"),
    step("7.1", "service://a", { method: "none" }),
    step("8.1", "other"),
    step("9.1", "service://fails"),
    step("10.1", "service://never"),
    step("11.1", "constructor"),
    step("12.1", "service://a", { method: "toString" }),
    step("13.1", "both", {}),
    step("14.1", "both", { resolver: "first" }),
    step("15.1", "Both", { offered: "both" }),
  ];
  const count = messages.length,
    d = await daemon(t, { messages }),
    lines = [];
  const worker = new Worker({ url: d.url, permits: 16, log: () => {} });
  worker.register("shop.pay", { call: (ctx) => ctx.callable, refund: (ctx) => `${ctx.method} ${ctx.resolver}` });
  worker.handler("both", () => "registered");
  worker.resolver({
    name: "services",
    callables: ["service://*"],
    canResolve: ({ callable }) => callable !== "service://none",
    resolve({ callable, namespace }) {
      if (callable === "service://fails") throw new Error("no registry");
      if (callable === "service://never") throw new Permanent("gone", { errorType: "Gone" });
      return callable.endsWith("b") ? (ctx) => ["b", namespace === ctx.namespace] : { call: () => "a", undo: (ctx) => `undone ${ctx.callable}` };
    },
  });
  worker.resolver({ name: "first", priority: 1, callables: ["both", "Both"], resolve: () => () => "resolved" });
  await working(worker, lines, () => d.reports.length === count);
  const ends = Object.fromEntries(
    d.reports.map((r) => [
      r.fence,
      r.result ?? (r.error ? [r.error.error_type, r.error.retryable, r.error.message] : r.outcome),
    ]),
  );
  assert.deepEqual(ends, {
    1.1: "shop.pay",
    2.1: "refund explicit_mapping",
    3.1: "Shop::PayHandler",
    4.1: ["b", true],
    5.1: "undone service://a",
    6.1: ["ResolutionError", true, "ResolutionError: No resolver could resolve callable 'service://none'"],
    7.1: ["MethodNotFound", false, "MethodNotFound: Handler 'service://a' does not respond to 'none'"],
    8.1: "returned",
    9.1: ["ResolutionError", true, 'resolve callable "service://fails" with services: no registry'],
    10.1: ["Gone", false, "gone"],
    11.1: "returned",
    12.1: ["MethodNotFound", false, "MethodNotFound: Handler 'service://a' does not respond to 'toString'"],
    13.1: "registered",
    14.1: "resolved",
    15.1: "resolved",
  });
});

test("publishers make the events that follow", async (t) => {
  const declared = (name, condition, publisher = "p") => ({ name, condition, delivery_mode: "durable", publisher });
  const all = ["success", "failure", "retryable_failure", "permanent_failure", "always"].map((condition) =>
    declared(condition, condition),
  );
  const messages = [
    step("1.1", "works", { publishes: all }),
    step("2.1", "fails", { publishes: all }),
    step("3.1", "fails", { publishes: all, attempt: 3 }),
    step("4.1", "never", { publishes: all }),
    step("5.1", "works", {
      publishes: ["vetoed", "before", "payload", "loop", "slow", "plain", "other"].map((name) =>
        declared(name, "success", name),
      ),
    }),
  ];
  const count = messages.length,
    d = await daemon(t, { messages }),
    calls = [],
    lines = [];
  const worker = new Worker({ url: d.url, permits: 8, publisherTimeout: 0.05, log: (line) => lines.push(line) });
  worker.handler("works", () => ({ id: 1 }));
  worker.handler("fails", () => {
    throw new Retryable("busy", { code: "B" });
  });
  worker.handler("never", () => {
    throw new Permanent("no");
  });
  worker.publisher({
    name: "p",
    before: (e) => void calls.push(`before ${e.name} ${e.success}`),
    payload: (e) => ({ of: e.success ? e.result.id : e.payload.error_code }),
    metadata: (e) => ({ step: e.stepName }),
    after: (e) => void calls.push(`after ${e.name}`),
  });
  worker.publisher({ name: "vetoed", shouldPublish: () => false, after: () => void calls.push("never") });
  worker.publisher({
    name: "before",
    before: () => {
      throw Object.create(null);
    },
    failed: (e, error) => void calls.push(`failed ${e.name} ${typeof error}`),
  });
  const loop = {};
  loop.self = loop;
  worker.publisher({ name: "payload", payload: () => 2n ** 64n });
  worker.publisher({
    name: "loop",
    payload: () => loop,
    failed: () => {
      throw new Error("as well");
    },
  });
  worker.publisher({ name: "slow", payload: () => new Promise(() => {}) });
  worker.publisher({ name: "plain" });
  await working(
    worker,
    lines,
    () => d.reports.length === count && calls.filter((c) => c.startsWith("after")).length === 11,
  );
  const made = Object.fromEntries(
    d.reports.map((r) => [
      r.fence,
      r.made.map((m) => [m.name, m.payload?.of ?? m.skip ?? m.payload, m.metadata?.step]),
    ]),
  );
  assert.deepEqual(made["1.1"], [
    ["success", 1, "charge"],
    ["always", 1, "charge"],
  ]);
  assert.deepEqual(made["2.1"], [
    ["failure", "B", "charge"],
    ["retryable_failure", "B", "charge"],
    ["always", "B", "charge"],
  ]);
  assert.deepEqual(
    made["3.1"].map(([name]) => name),
    ["failure", "permanent_failure", "always"],
  );
  assert.deepEqual(
    made["4.1"].map(([name, of]) => [name, of]),
    [
      ["failure", "Permanent"],
      ["permanent_failure", "Permanent"],
      ["always", "Permanent"],
    ],
  );
  assert.deepEqual(
    made["5.1"].map(([name, what]) => [name, what]),
    [
      ["vetoed", "vetoed"],
      ["before", "publisher_error"],
      ["payload", Number(2n ** 64n)],
      ["loop", "publisher_error"],
      ["slow", "publisher_error"],
      ["plain", undefined],
    ],
  );
  assert.ok(calls.includes("failed before object") && !calls.includes("never"));
  assert.ok(
    lines.some((l) =>
      l.includes("the event slow of step charge is not published: the publisher did not end within 50 ms"),
    ),
    lines.join("\n"),
  );
  assert.ok(lines.some((l) => l.includes("the publisher loop failed: as well")));
});

test("subscribers get the events that fit, in order", async (t) => {
  const event = (n, name) => ({
    event_id: String(n),
    event_name: name,
    event_version: "1.0",
    payload: n,
    metadata: {},
  });
  const d = await daemon(t, {
      events: [
        event(1, "payment.charged"),
        event(2, "order.created"),
        event(3, "payment.refunded"),
        event(4, "payment.lost"),
      ],
    }),
    heard = [],
    lines = [];
  const worker = new Worker({ url: d.url, log: (line) => lines.push(line) });
  worker.handler("any", () => 1);
  worker.subscribe({
    name: "audit",
    patterns: ["payment.*"],
    async handle({ payload }) {
      await new Promise((resolve) => setTimeout(resolve, 5 - payload));
      if (payload === 3) throw undefined;
      heard.push(payload);
    },
    before: ({ payload }) => {
      if (payload === 4) throw new Error("not this one");
    },
    after: ({ payload }) => void heard.push(`after ${payload}`),
    failed: ({ payload }, error) => {
      heard.push(`failed ${payload} ${error?.message}`);
      throw new Error("hook");
    },
  });
  worker.subscribe({ name: "all", patterns: ["*"], handle: ({ event_name: name }) => void heard.push(name) });
  await working(worker, lines, () => heard.includes("failed 4 not this one") && heard.includes("payment.lost"));
  assert.deepEqual(
    heard.filter((h) => typeof h === "number" || !h.includes(".")),
    [1, "after 1", "failed 3 undefined", "failed 4 not this one"],
  );
  assert.deepEqual(
    heard.filter((h) => String(h).includes(".")),
    ["payment.charged", "order.created", "payment.refunded", "payment.lost"],
  );
  assert.ok(
    lines.some((l) => l === "the subscriber audit failed over payment.refunded: undefined"),
    lines.join("\n"),
  );
  for (const [pattern, name, fit] of [
    ["a", "a", true],
    ["a", "ab", false],
    ["a*", "ab", true],
    ["*b", "ab", true],
    ["a*a", "a", false],
    ["a*b*c", "a1b2c", true],
    ["a*b*c", "a1c2b", false],
    ["**", "", true],
    ["*.*", "a.b", true],
  ]) {
    assert.equal(fits(pattern, name), fit, `${pattern} ${name}`);
  }
});

test("a worker that computes shows that it lives", async (t) => {
  // The daemon is in a thread, beside the event loop that stands still.
  const shown = new Int32Array(new SharedArrayBuffer(4)),
    least = 20;
  const thread = new Thread(
    `
    const { createServer } = require("node:http"), { parentPort, workerData: shown } = require("node:worker_threads"), grace = 3000, wait = 200;
    let opens = 0, handed = 0, reports = [];
    const server = createServer((request, response) => {
      let text = "";
      request.on("data", (part) => (text += part));
      request.on("end", () => {
        const end = (answer) => response.end(JSON.stringify(answer));
        if (request.url.includes("/presence")) return Atomics.add(shown, 0, 1), setTimeout(end, wait, {});
        if (request.url === "/v1/sessions") return opens++, end({ session_id: "s", reclaim_grace_ms: grace, max_wait_ms: wait, kept: JSON.parse(text).held.map(({ fence }) => ({ fence, new_fence: fence })) });
        if (request.url.includes("/reports")) return reports.push(...JSON.parse(text).reports), end({ rejected: [] }), parentPort.postMessage({ opens, reports });
        if (request.url.includes("/stream")) {
          const steps = handed++ === 0 ? [${JSON.stringify(step("1.1", "computes"))}] : [];
          return setTimeout(() => response.end("data: " + JSON.stringify({ answer: 1, steps, cancelled: [], draining: false }) + "\\n\\n"), steps.length ? 0 : wait);
        }
        end({});
      });
    });
    server.listen(0, "127.0.0.1", () => parentPort.postMessage({ port: server.address().port }));
  `,
    { eval: true, workerData: shown },
  );
  t.after(() => thread.terminate());
  const next = () => new Promise((resolve) => thread.once("message", resolve));
  const { port } = await next();
  const worker = new Worker({ url: `http://127.0.0.1:${port}`, log: () => {} });
  let runs = 0;
  worker.handler("computes", () => {
    runs++;
    while (Atomics.load(shown, 0) < least); // 4 s: longer than the grace and the wait of the stream
    return "computed";
  });
  const running = worker.run({ signals: false }),
    ended = await next();
  await worker.stop();
  await running;
  assert.equal(runs, 1);
  assert.deepEqual(
    ended.reports.map((r) => [r.fence, r.result]),
    [["1.1", "computed"]],
  );
  assert.equal(ended.opens, 1, "the session goes on");
});

test("a daemon without presence is not asked again", async (t) => {
  const d = await daemon(t, {
    messages: [step("1.1", "a")],
    answers: { "/presence": (end) => end({ detail: "not found" }, 404) },
  });
  const worker = new Worker({ url: d.url, log: () => {} });
  worker.handler("a", () => 1);
  await working(worker, [], () => d.asked.includes("POST /presence"));
  assert.equal(d.asked.filter((a) => a.endsWith("/presence")).length, 1);
});

test("a daemon that answers at once is asked once a second", async (t) => {
  const d = await daemon(t, { waits: false }),
    worker = new Worker({ url: d.url, log: () => {} });
  worker.handler("a", () => 1);
  const begun = Date.now();
  await working(worker, [], () => d.asked.filter((a) => a === "GET /stream").length === 3);
  assert.ok(Date.now() - begun >= 1900, `three requests within ${Date.now() - begun} ms`);
});

test("sessions that are lost at once are opened once a second", async (t) => {
  const d = await daemon(t, { answers: { "/stream": (end) => end({ detail: "the session does not exist" }, 404) } }),
    worker = new Worker({ url: d.url, log: () => {} });
  worker.handler("a", () => 1);
  const begun = Date.now();
  await working(worker, [], () => d.opens.length === 3);
  assert.ok(Date.now() - begun >= 1900, `three sessions within ${Date.now() - begun} ms`);
});

test("a client that waits asks once a second", async (t) => {
  let asked = 0;
  const server = createServer((_, answer) =>
    answer.end(JSON.stringify({ task_uuid: "t", status: ++asked < 4 ? "pending" : "complete" })),
  );
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const client = new Client({ url: `http://127.0.0.1:${server.address().port}` }),
    begun = Date.now();
  assert.equal((await client.run({ namespace: "x", name: "n", context: {} })).status, "complete");
  assert.ok(Date.now() - begun >= 2900, `four requests within ${Date.now() - begun} ms`);
  asked = -100;
  await assert.rejects(client.wait("t", 0.01), /has not ended/); // the deadline is kept
});

test("handlers learn what became of their ends", async (t) => {
  const d = await daemon(t, {
      messages: [step("1.1", "a"), step("2.1", "a"), step("3.1", "throws")],
      answers: {
        "/reports": (end, { reports }) =>
          end({
            rejected: reports
              .filter((r) => r.fence === "2.1")
              .map(({ fence }) => ({ fence, status: 409, error: "not held" })),
          }),
      },
    }),
    told = [];
  const worker = new Worker({ url: d.url, permits: 3, log: (line) => told.push(line) });
  worker.handler("a", (ctx) => ctx.onRecorded((accepted) => told.push(`${ctx.fence} ${accepted}`)));
  worker.handler("throws", (ctx) =>
    ctx.onRecorded(() => {
      throw undefined;
    }),
  );
  await working(
    worker,
    [],
    () => told.filter((l) => / (true|false)$/.test(l)).length === 2 && told.some((l) => l.includes("callback")),
  );
  assert.ok(
    told.includes("1.1 true") &&
      told.includes("2.1 false") &&
      told.includes("a callback of step charge failed: undefined"),
    told.join("\n"),
  );
});

test("what a handler is given", async () => {
  const entries = [],
    message = {
      parent_correlation_id: "parent",
      requested_at: "2026-01-02T03:04:05Z",
      time_left_ms: 5000,
      fence: "4711.12",
      attempt: 3,
      max_attempts: 3,
      method: "refund",
    };
  const end = await runStep(
    async (ctx) => {
      assert.deepEqual(
        [ctx.parentCorrelationId, ctx.requestedAt.toISOString(), ctx.token, ctx.isRetry, ctx.isLastAttempt],
        ["parent", "2026-01-02T03:04:05.000Z", 4711n, true, true],
      );
      assert.ok(ctx.deadline - Date.now() > 1000 && ctx.deadline - Date.now() <= 5000);
      assert.deepEqual(
        [
          ctx.field("n", Number),
          ctx.field("own"),
          ctx.fieldOr("none", 7),
          ctx.fieldOr("nil", 8),
          ctx.fieldOr("n", 0, { parse: (v) => v * 2 }),
        ],
        [1, undefined, 7, 8, 2].map((v, i) => (i === 1 ? null : v)),
      );
      for (const inherited of ["toString", "constructor", "__proto__", "hasOwnProperty"])
        assert.throws(() => ctx.field(inherited), Absent);
      assert.equal(
        ctx.contextAs(({ n }) => n),
        1,
      );
      assert.throws(
        () =>
          ctx.configAs(() => {
            throw Object.create(null);
          }),
        (e) => e instanceof Permanent && e.marks.errorType === "InvalidInput",
      );
      assert.throws(
        () =>
          ctx.field("n", () => {
            throw new Retryable("later");
          }),
        Retryable,
      );
      assert.equal(await ctx.result("a", (r) => r.x), 2);
      for (const inherited of ["toString", "constructor", "__proto__"])
        await assert.rejects(ctx.result(inherited), Absent);
      assert.deepEqual(
        [ctx.saved.time.toISOString(), ctx.cursorOr(0), ctx.accumulatedOr([])],
        ["2026-01-02T03:04:06.000Z", 3, []],
      );
      assert.deepEqual(await ctx.batchValues("rows", Number), {
        values: [{ stepName: "rows_001", batchId: "001", value: 4, isolated: 0 }],
        missing: 1,
      });
      assert.deepEqual(ctx.range(), [5, 9]);
      ctx.metadata({ ms: 3 });
      ctx.metadata({ by: "me" });
      assert.throws(() => ctx.metadata({ large: "x".repeat(17_000) }), /want at most 16384 bytes/);
      assert.throws(
        () => ctx.isolate(1, "bad"),
        (e) => e.marks.errorType === "ItemNotIsolated",
      );
      await assert.rejects(ctx.checkpoint(Symbol("s"), 1), CheckpointError);
      await assert.rejects(ctx.checkpoint(1, -1), CheckpointError);
    },
    {
      context: { n: 1, own: null, nil: null },
      results: { a: { x: 2 } },
      checkpoint: { cursor: 3, items_processed: 3, timestamp: "2026-01-02T03:04:06Z" },
      batchResults: { rows: [4, null] },
      message: {
        ...message,
        batch: {
          batch_id: "b",
          batch_size: 4,
          is_no_op: false,
          start_cursor: 5,
          end_cursor: 9,
          failure_strategy: "fail_fast",
        },
      },
    },
  );
  assert.deepEqual([end.outcome, end.metadata], ["success", { ms: 3, by: "me" }], JSON.stringify(end.error));
  const { error } = await runStep((ctx) => ctx.range(), { items: [1] });
  assert.equal(error.error_type, "ItemsNotRead");
  assert.deepEqual((await runStep((ctx) => ctx.itemsAs(String), { items: [1, 2] })).result, ["1", "2"]);
  assert.equal(entries.length, 0);
});

test("checkpoints are saved in order, and refusals are said", async (t) => {
  const saved = [],
    d = await daemon(t, {
      messages: [step("1.1", "saves"), step("2.1", "large"), step("3.1", "lost"), step("4.1", "unknown")],
      answers: {
        "/checkpoint": (end, body) => {
          if (body.cursor === "large") return end({ detail: "it has 5 bytes, more than 4" }, 422);
          if (body.cursor === "lost") return end({ detail: "not held" }, 409);
          setTimeout(() => (saved.push(body.cursor), end({ saved_at: "2026-01-02T03:04:07Z" })), 10 - body.cursor);
        },
        "/results": (end) => end({ detail: 'step "x" of order: not a step this one depends on' }, 404),
      },
    });
  const worker = new Worker({ url: d.url, permits: 4, log: () => {} }),
    seen = [];
  worker.handler("saves", async (ctx) => {
    await Promise.all([1, 5, 9].map((n) => ctx.checkpoint(n, n)));
    return [ctx.saved.cursor, ctx.saved.time.toISOString()];
  });
  worker.handler("large", (ctx) => ctx.checkpoint("large", 1));
  worker.handler("lost", (ctx) =>
    ctx
      .checkpoint("lost", 1)
      .catch((e) => (seen.push(e instanceof Cancelled && ctx.signal.aborted), Promise.reject(e))),
  );
  worker.handler("unknown", (ctx) =>
    ctx.result("x").catch((e) => (seen.push(e instanceof UnknownStep), Promise.reject(e))),
  );
  await working(worker, [], () => d.reports.length === 4);
  assert.deepEqual(saved, [1, 5, 9]);
  const ends = Object.fromEntries(d.reports.map((r) => [r.fence, r]));
  assert.deepEqual(ends["1.1"].result, [9, "2026-01-02T03:04:07.000Z"]);
  assert.deepEqual([ends["2.1"].error.error_type, ends["2.1"].error.retryable], ["CheckpointNotStorable", false]);
  assert.equal(ends["3.1"].outcome, "returned");
  assert.equal(ends["4.1"].error.error_type, "UnknownStep");
  assert.deepEqual(seen, [true, true]);
});

test("arguments are converted, and may be absent", async () => {
  const handlers = new Handlers(),
    call = (name, options) => runStep(handlers.find(name), options);
  assert.throws(() => handlers.find("a"), /no handler of a with the method call/);
  const order = { parse: (v) => ({ ...v, parsed: true }) };
  handlers.step(
    "a",
    {
      dependsOn: { plain: "p", typed: { step: "t", as: order }, none: { step: "n", absent: 0 } },
      inputs: { amount: { as: Number }, note: { optional: true }, limit: { field: "max", absent: 9 } },
    },
    (_ctx, values) => values,
  );
  assert.deepEqual((await call("a", { context: { amount: "7" }, results: { p: 1, t: { id: 1 } } })).result, {
    plain: 1,
    typed: { id: 1, parsed: true },
    none: 0,
    amount: 7,
    limit: 9,
  });
  assert.match((await call("a", { context: {}, results: { p: 1, t: {} } })).error.message, /lacks amount$/);
  assert.equal((await call("a", { context: { amount: 1 }, results: { p: 1, t: {} }, message: {} })).outcome, "success");
  handlers.step("odd", { inputs: ["toString", "__proto__"] }, (_ctx, values) => Object.keys(values));
  assert.match((await call("odd", { context: {} })).error.message, /lacks toString, __proto__$/);
  assert.deepEqual((await call("odd", { context: JSON.parse('{"toString":1,"__proto__":2}') })).result, [
    "toString",
    "__proto__",
  ]);
  handlers.step(
    "wrong",
    {
      inputs: {
        amount: {
          as: () => {
            throw new Error("no number");
          },
        },
      },
    },
    () => 1,
  );
  const { error } = await call("wrong", { context: { amount: "x" } });
  assert.deepEqual(
    [error.error_type, error.retryable, error.message],
    ["InvalidInput", false, "the field amount of the task's context does not fit the handler: no number"],
  );
  handlers.decision("d", {}, () => Decision.route("a").with("why", "both"));
  assert.deepEqual((await call("d", {})).result, {
    why: "both",
    route: ["a"],
    decision_point_outcome: { type: "create_steps", step_names: ["a"] },
  });
  handlers.batchAnalyzer("b", "rows", {}, () =>
    BatchConfig.of([
      { start: "a", end: "m", size: 3 },
      { start: "m", end: "z", size: 4, id: "last" },
    ]).with("file", "f"),
  );
  assert.deepEqual((await call("b", {})).result, {
    file: "f",
    batch_processing_outcome: {
      type: "create_batches",
      worker_template_name: "rows",
      worker_count: 2,
      total_items: 7,
      cursor_configs: [
        { batch_id: "001", start_cursor: "a", end_cursor: "m", batch_size: 3 },
        { batch_id: "last", start_cursor: "m", end_cursor: "z", batch_size: 4 },
      ],
    },
  });
  assert.throws(() => new BatchConfig(NaN, 1).outcome("rows"), Permanent);
  handlers.batchAnalyzer("listed", "rows", {}, () => BatchConfig.of([{ items: ["a", "b"] }, { items: [], size: 0 }]));
  const { total_items: total, cursor_configs: parts } = (await call("listed", {})).result.batch_processing_outcome;
  assert.equal(total, 2);
  assert.deepEqual(parts, [
    { batch_id: "001", start_cursor: null, end_cursor: null, batch_size: 2, items: ["a", "b"] },
    { batch_id: "002", start_cursor: null, end_cursor: null, batch_size: 0, items: [] },
  ]);
  handlers.batchWorker("w", { dependsOn: { split: "b" }, inputs: ["by"] }, (_ctx, batch, { split, by }) => [
    batch.items,
    split,
    by,
  ]);
  const given = { items: [1], results: { b: "f" }, context: { by: "hand" } };
  assert.deepEqual((await call("w", given)).result, [[1], "f", "hand"]);
  assert.match((await call("w", { ...given, context: {} })).error.message, /lacks by$/);
  assert.equal((await call("w", { context: {} })).error.error_type, "NotABatch");
  assert.throws(() => handlers.batchWorker("none"), /want a function/);
});

test("objects are registered by their methods, and nothing of them is called", () => {
  const handlers = new Handlers();
  class Base {
    call() {}
  }
  class Charge extends Base {
    get broken() {
      throw new Error("called");
    }
    refund() {}
    _own() {}
  }
  handlers.register("charge", new Charge());
  assert.deepEqual([...handlers.known.get("charge").keys()].sort(), ["call", "refund"]);
  assert.throws(() => handlers.register("none", {}), /want an object with methods/);
  assert.throws(() => handlers.handler("none", undefined), /want a function/);
  assert.throws(() => handlers.publisher({ name: "" }), /want a name/);
  handlers.publisher({ name: "p" });
  assert.throws(() => handlers.publisher({ name: "p" }), /already registered/);
  assert.throws(() => handlers.subscribe({ name: "s", patterns: [], handle() {} }), /at least one pattern/);
  assert.throws(() => handlers.resolver({ name: "r", callables: [], resolve() {} }), /want callables/);
});

test("the modules of a folder are discovered", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "discover"));
  t.after(() => rm(folder, { recursive: true }));
  await mkdir(join(folder, "more", "node_modules"), { recursive: true });
  const index = JSON.stringify(pathToFileURL(`${process.env.TASKER_DIST}/index.js`).href);
  await writeFile(
    join(folder, "a.mjs"),
    `import { Handlers } from ${index}; export const one = new Handlers(); one.handler("a", () => 1); export default one; export const other = 1;`,
  );
  await writeFile(join(folder, "a.ts"), "export const broken: number = ;");
  await writeFile(
    join(folder, "more", "b.mjs"),
    `import { Handlers } from ${index}; export { one } from "../a.mjs"; export const two = new Handlers(); two.register("b", { call() {}, refund() {} });`,
  );
  for (const left of ["a.test.mjs", "a.d.ts", ".hidden.mjs", join("more", "node_modules", "c.mjs"), "notes.txt"])
    await writeFile(join(folder, left), "throw new Error('imported')");
  await assert.rejects(discover(folder), /import .*a\.ts: this Node does not run TypeScript|import .*a\.ts: /);
  await rm(join(folder, "a.ts"));
  await writeFile(join(folder, "a.mts"), "export const broken: number = ;"); // its compiled form is there
  const found = await discover(folder);
  assert.deepEqual(
    [...found.known].map(([name, methods]) => [name, [...methods.keys()]]),
    [
      ["a", ["call"]],
      ["b", ["call", "refund"]],
    ],
  );
  const worker = new Worker();
  assert.equal(await worker.discover(pathToFileURL(folder)), 2);
  await assert.rejects(discover(join(folder, "none")), /discover handlers: ENOENT/);
});

test("a worker says which daemon does not answer", async () => {
  const given = process.env.TASKER_WORKER_URL;
  delete process.env.TASKER_WORKER_URL;
  for (const [options, hint] of [
    [{}, true],
    [{ url: "http://127.0.0.1:9" }, false],
  ]) {
    const lines = [],
      worker = new Worker({ ...options, log: (line) => lines.push(line) });
    worker.session.transports = [new Transport("http://127.0.0.1:9", {})];
    worker.handler("a", () => 1);
    await working(worker, lines, () => lines.length > 0);
    assert.ok(lines[0].startsWith("no session with http://127.0.0.1:9: "), lines[0]);
    assert.equal(lines[0].endsWith("make dev serves http://localhost:8082"), hint);
  }
  if (given !== undefined) process.env.TASKER_WORKER_URL = given;
});

test("a log that throws ends nothing", async (t) => {
  const d = await daemon(t, { messages: [step("1.1", "a")] });
  const worker = new Worker({
    url: d.url,
    log: () => {
      throw new Error("full");
    },
    hooks: {
      after: () => {
        throw Object.create(null);
      },
    },
  });
  worker.handler("a", () => {
    throw Object.create(null);
  });
  await working(worker, [], () => d.reports.length === 1);
  assert.equal(d.reports[0].error.message, "{}");
});

test("garbage is no answer of a daemon", async (t) => {
  const d = await daemon(t, { answers: { "/stream": (_end, _body, response) => response.end("data: <html>\n\n") } });
  const session = new Session([new Transport(d.url, {})]);
  await session.open({}, []);
  await assert.rejects(async () => {
    for await (const _ of session.follow(100, false));
  }, /not from a daemon/);
});
