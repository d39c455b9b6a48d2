// What handlers log and print, on its way to a daemon that the test plays. The package is in TASKER_DIST.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import process from "node:process";
import test from "node:test";
import { pathToFileURL } from "node:url";

const load = (file) => import(pathToFileURL(`${process.env.TASKER_DIST}/${file}.js`).href);
const { Worker } = await load("index");
const { Lines } = await load("lines");
const { runStep } = await load("testing");
const { logTrace, logWarn } = await load("compat/log");

const step = (fence, callable) => ({
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
});

/** A daemon that hands out steps of the handler "logs", and answers requests with lines by logs. */
async function daemon(t, logs = (_, end) => end({})) {
  const told = { requests: [], lines: [], reports: [], asked: [] },
    waiting = new Set();
  let stops = false,
    answers = 0,
    steps = [];
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (part) => (text += part));
    request.on("end", () => {
      const path = request.url.replace(/^\/v1\/sessions(\/s)?/, "").replace(/\?.*/, ""),
        body = text === "" ? undefined : JSON.parse(text);
      const end = (answer, status = 200) => response.writeHead(status).end(JSON.stringify(answer));
      told.asked.push(`${request.method} ${path}`);
      if (path === "/logs") {
        told.requests.push(body.lines);
        return logs(told.requests.length, (answer, status = 200) => {
          if (status === 200) told.lines.push(...body.lines);
          end(answer, status);
        });
      }
      if (request.method === "POST" && path === "") return end({ session_id: "s", reclaim_grace_ms: 3000, max_wait_ms: 10_000 });
      if (path === "/reports") return (told.reports.push(...body.reports), end({ rejected: [] }));
      if (path === "/stream") {
        const send = () => {
          waiting.delete(send);
          response.end(`data: ${JSON.stringify({ answer: ++answers, steps: steps.splice(0), cancelled: [], draining: false })}\n\n`);
        };
        return steps.length > 0 || stops ? send() : void waiting.add(send);
      }
      if (path === "/poll") stops = true;
      if (path === "/poll") for (const send of waiting) send();
      end({});
    });
  });
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const start = (fence, callable = "logs") => {
    steps.push(step(fence, callable));
    for (const send of waiting) send();
  };
  return { ...told, start, url: `http://127.0.0.1:${server.address().port}` };
}

/** Waits until something is so. */
async function until(what, seconds = 20) {
  for (const deadline = Date.now() + seconds * 1000; !what(); ) {
    assert.ok(Date.now() < deadline, `not within ${seconds} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Runs a worker of one handler meanwhile. Resolves to what it has logged itself. */
async function working(d, handler, options, meanwhile) {
  const shown = [],
    worker = new Worker({ url: d.url, permits: 4, announce: false, log: (line) => shown.push(line), stepLog: () => {}, ...options });
  worker.handler("logs", handler);
  const running = worker.run({ signals: false });
  try {
    await Promise.race([meanwhile(), running]);
  } finally {
    await worker.stop();
    await running;
  }
  return shown;
}

test("lines come in order, with their fields", async (t) => {
  const d = await daemon(t),
    loop = {};
  loop.self = loop;
  let go;
  const goes = new Promise((resolve) => (go = resolve));
  const handler = async (ctx) => {
    ctx.logger.debug("first", { n: 1, deep: { password: "p" }, none: undefined });
    ctx.logger.warn("second", { loop, nan: Number.NaN, big: 12345678901234567890n });
    await goes;
    ctx.logger.error("third", { error: new RangeError("no card") });
    ctx.logger.info("fourth");
  };
  await working(d, handler, {}, async () => {
    d.start("1.1");
    await until(() => d.lines.length === 2);
    assert.equal(d.reports.length, 0, "while the handler runs");
    go();
    await until(() => d.lines.length === 4 && d.reports.length === 1);
  });
  assert.deepEqual(
    d.lines.map(({ fence, level, text }) => [fence, level, text]),
    [["1.1", "debug", "first"], ["1.1", "warn", "second"], ["1.1", "error", "third"], ["1.1", "info", "fourth"]],
  );
  const [first, second, third, fourth] = d.lines;
  assert.deepEqual(first.fields, { n: 1, deep: { password: "p" } });
  assert.equal(second.fields.nan, "NaN");
  assert.match(third.fields.error, /^RangeError: no card\n {4}at /);
  assert.equal(fourth.fields, undefined);
  assert.ok(d.lines.every(({ at }, n) => !Number.isNaN(Date.parse(at)) && (n === 0 || at >= d.lines[n - 1].at)));
});

test("nothing is sent when nothing is logged", async (t) => {
  for (const [handler, options] of [[() => 1, {}], [(ctx) => ctx.logger.error("kept by nobody"), { maxLogBytes: 0 }]]) {
    const d = await daemon(t);
    await working(d, handler, options, async () => {
      d.start("1.1");
      await until(() => d.reports.length === 1);
    });
    assert.ok(!d.asked.includes("POST /logs"));
  }
  assert.throws(() => new Worker({ maxLogBytes: -1 }), /invalid maxLogBytes -1: want at least 0/);
});

test("a report goes when lines do not", async (t) => {
  let go;
  const goes = new Promise((resolve) => (go = resolve));
  const d = await daemon(t, (n, end) => goes.then(() => (n === 1 ? end({}, 503) : end({}))));
  await working(d, (ctx) => ctx.logger.info("a line"), {}, async () => {
    for (const fence of ["1.1", "2.1"]) {
      d.start(fence); // the request of the first one is under way when the second is reported
      await until(() => d.reports.some((r) => r.fence === fence && r.outcome === "success"));
    }
    go();
    await until(() => d.lines.length === 2);
  });
  assert.deepEqual(d.requests.map((lines) => lines.map(({ fence }) => fence)), [["1.1"], ["1.1"], ["2.1"]]);
});

test("a daemon without the route is asked once a session", async (t) => {
  for (const status of [404, 405]) {
    const d = await daemon(t, (_, end) => end({ detail: "no such page" }, status));
    const shown = await working(d, (ctx) => ctx.logger.info("a line"), {}, async () => {
      for (const fence of ["1.1", "2.1", "3.1"]) {
        d.start(fence);
        await until(() => d.reports.some((r) => r.fence === fence));
      }
    });
    assert.equal(d.requests.length, 1);
    assert.deepEqual(shown, []);
  }
});

test("a lost session keeps its lines", async (t) => {
  const d = await daemon(t, (n, end) => (n === 1 ? end({ detail: "the session does not exist or is lost" }, 404) : end({})));
  await working(d, (ctx) => ctx.logger.info("a line"), {}, async () => {
    d.start("1.1");
    await until(() => d.lines.length === 1);
  });
  assert.equal(d.requests.length, 2);
});

/** Takes lines once it is let. */
function session() {
  const s = { sent: [], asked: 0, keepsNoLines: false };
  const let_ = new Promise((resolve) => (s.let = resolve));
  s.keep = async (lines) => {
    s.asked++;
    await let_;
    for (const [{ fence }, rest] of lines) s.sent.push(JSON.parse(`{"fence":"${fence}",${rest}`));
  };
  return s;
}

test("the middle is dropped, and counted", async () => {
  const s = session(),
    lines = new Lines(s, 50_000),
    [one, two] = [{ fence: "1.1" }, { fence: "2.1" }];
  lines.write(one, "info", "of the request that does not end");
  lines.flush([one]);
  for (let n = 0; n < 2000; n++) lines.write(one, "info", `one ${n}`);
  for (let n = 0; n < 2000; n++) {
    lines.write(two, "info", `two ${n}`);
    assert.ok(lines.size <= 50_000, lines.size);
  }
  for (const { size } of lines.waiting.values()) assert.ok(size > 20_000 && size <= 25_000, size);
  s.let();
  await lines.settle(20_000);
  lines.close();
  for (const [{ fence }, name] of [[one, "one"], [two, "two"]]) {
    const got = s.sent.filter((line) => line.fence === fence).slice(name === "one" ? 1 : 0),
      texts = got.map(({ text }) => text),
      gap = got.findIndex(({ level }) => level === "warn"),
      kept = got.length - 1;
    assert.deepEqual(texts.slice(0, gap), texts.slice(0, gap).map((_, n) => `${name} ${n}`));
    assert.equal(texts[gap], `${2000 - kept} lines were dropped`);
    assert.deepEqual(texts.slice(gap + 1), texts.slice(gap + 1).map((_, n) => `${name} ${2000 - kept + gap + n}`));
    assert.equal(texts.at(-1), `${name} 1999`);
  }
});

test("one line and one request are bounded", async () => {
  const s = session(),
    lines = new Lines(s),
    held = { fence: "1.1" };
  s.let();
  lines.write(held, "info", "é".repeat(20_000));
  for (let n = 0; n < 2500; n++) lines.write(held, "info", "x");
  await lines.settle(20_000);
  lines.close();
  assert.equal(s.sent.length, 2501);
  assert.equal(s.asked, 3);
  assert.equal(s.sent[0].text, `${"é".repeat((16 * 1024 - 3) >> 1)}…`);
  const { logs } = await runStep((ctx) => ctx.logger.info("long", { a: "x".repeat(20_000) }));
  assert.deepEqual(logs, [{ level: "info", text: "long", fields: { fields_left_out_bytes: 20_008 } }]);
});

test("what handlers print is captured", async (t) => {
  const d = await daemon(t),
    shown = [],
    { stdout, stderr } = process,
    before = [stdout.write, stderr.write, console.log, console.error];
  const real = { stdout: stdout.write, stderr: stderr.write };
  // What is no text is of the runner of tests.
  const noted = (stream, name) => (text, ...more) =>
    typeof text === "string" ? (shown.push(`${name} ${text}`), true) : real[stream].call(process[stream], text, ...more);
  stdout.write = noted("stdout", "out");
  stderr.write = noted("stderr", "err");
  t.after(() => Object.assign(stdout, { write: real.stdout }) && Object.assign(stderr, { write: real.stderr }));
  const mine = [stdout.write, stderr.write, console.log, console.error];
  const handler = async (ctx) => {
    console.log("one %d", 1);
    await new Promise((resolve) => setTimeout(resolve, 1));
    console.debug("two");
    console.error("three");
    stdout.write("four\nfi");
    stdout.write(new TextEncoder().encode("ve\n"));
    stderr.write("the end");
    ctx.logger.info("logged once");
  };
  await working(d, handler, { captureOutput: true, stepLog: undefined }, async () => {
    console.log("not of a handler");
    d.start("1.1");
    await until(() => d.lines.length === 7);
  });
  assert.deepEqual([stdout.write, stderr.write, console.log, console.error], mine, "restored");
  console.log("after");
  Object.assign(stdout, { write: real.stdout });
  Object.assign(stderr, { write: real.stderr });
  assert.deepEqual(before, [stdout.write, stderr.write, console.log, console.error]);
  assert.deepEqual(
    d.lines.map(({ level, text }) => [level, text]),
    [["info", "one 1"], ["debug", "two"], ["error", "three"], ["info", "four"], ["info", "five"], ["info", "logged once"], ["warn", "the end"]],
  );
  assert.equal(shown[0], "out not of a handler\n");
  assert.equal(shown[1], "out one 1\n");
  assert.equal(shown.at(-1), "out after\n");
});

test("lines of the functions of compat are kept with their attempt", async () => {
  const { logs } = await runStep(() => {
    logWarn("slow", { order: 1 });
    logTrace("detail");
  });
  assert.deepEqual(logs, [
    { level: "warn", text: "slow", fields: { order: 1 } },
    { level: "debug", text: "detail", fields: {} },
  ]);
});
