// Tests without a daemon, of the package in the directory TASKER_DIST.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import process from "node:process";
import test from "node:test";
import { pathToFileURL } from "node:url";

const { ApiResponse, BatchConfig, Client, Decision, Handlers, Permanent, Retryable, Continue, Worker, Yield, apiCall, currentStep } =
  await import(pathToFileURL(`${process.env.TASKER_DIST}/index.js`).href);
const { fault } = await import(pathToFileURL(`${process.env.TASKER_DIST}/errors.js`).href);
const { Refused, Session, Transport, Unavailable } = await import(pathToFileURL(`${process.env.TASKER_DIST}/session.js`).href);

test("a daemon that says nothing is gone", async () => {
  const server = createServer(() => undefined); // takes the request, and never answers
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const transport = new Transport(`http://127.0.0.1:${server.address().port}`, {}, 600_000);
  await assert.rejects(async () => {
    for await (const _ of transport.follow("/v1/sessions/s/stream", 200));
  }, Unavailable);
  server.closeAllConnections();
  server.close();
});

test("a report that is rejected while the session changes is sent again", async () => {
  let moved = false;
  const session = new Session([{
    call() {
      if (moved) session.path = "/v1/sessions/other";
      return Promise.resolve({ rejected: [{ fence: "1.1", status: 409 }] });
    },
  }]);
  const report = () => session.report([{ fence: "1.1", outcome: "success" }]);
  const again = { rejected: [], unrecorded: ["1.1"] };
  assert.deepEqual(await report(), { rejected: [{ fence: "1.1", status: 409 }] });
  session.moving = true;
  assert.deepEqual(await report(), again);
  [session.moving, moved] = [false, true];
  assert.deepEqual(await report(), again);
});

test("a report is not at fault for rejected credentials", async (t) => {
  let status = 0;
  const server = createServer((_, answer) => answer.writeHead(status).end());
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const session = new Session([new Transport(`http://127.0.0.1:${server.address().port}`, {})]);
  for (const [answered, raised] of [[200, Unavailable], [401, Unavailable], [403, Unavailable], [413, Refused]]) {
    status = answered;
    await assert.rejects(session.report([{ fence: "1.1", outcome: "success" }]), raised);
  }
});

test("an end that is refused becomes a failure", async (t) => {
  // Without a report its step would run until its time limit, and keep its permit for ever.
  const cases = [
    ["wrong", false, () => new Continue(1, { delay: -1 })],
    ["413: large", true, () => { throw new Retryable("r", { details: { x: "large" } }); }],
    ["413: large", false, () => { throw new Permanent("p", { details: { x: "large" } }); }],
  ];
  const steps = cases.map((_, i) => ({ fence: `${i}.1`, callable: `c${i}`, context: {} })), failures = new Map();
  const worker = new Worker({ url: "http://127.0.0.1:1", permits: cases.length, log: () => {} });
  cases.forEach(([, , handler], i) => worker.handler(`c${i}`, handler));
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (part) => (text += part));
    request.on("end", () => {
      const { reports = [] } = text === "" ? {} : JSON.parse(text), rejected = [];
      const end = (answer) => response.end(JSON.stringify(answer));
      if (request.url.includes("/stream")) {
        setTimeout(() => response.end(`data: ${JSON.stringify({ answer: 1, steps: steps.splice(0), cancelled: [], draining: false })}\n\n`), 20);
        return;
      }
      if (request.url === "/v1/sessions") return end({ session_id: "s", reclaim_grace_ms: 3000, max_wait_ms: 1000 });
      if (reports.some((r) => r.error?.context?.x)) return response.writeHead(413).end('{"detail":"large"}');
      for (const r of reports) {
        if (r.next) rejected.push({ fence: r.fence, status: 400, error: "wrong" });
        else failures.set(r.fence, r.error);
      }
      end({ rejected });
      if (failures.size === cases.length) void worker.stop();
    });
  });
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  worker.session.transports = [new Transport(`http://127.0.0.1:${server.address().port}`, {})];
  await worker.run({ signals: false });
  cases.forEach(([why, retryable], i) => {
    const { message, error_type: type, retryable: again } = failures.get(`${i}.1`);
    assert.ok(message.startsWith(`the daemon refused the end of the step: ${why}`), message);
    assert.deepEqual([type, again], ["ReportRefused", retryable]);
  });
});

test("a conflict is the own task only if an attempt may have arrived", async (t) => {
  let answers = [];
  const server = createServer((request, answer) => {
    const [status, body] = request.method === "GET" ? [200, { task_uuid: "t", status: "pending" }] : answers.shift();
    answer.writeHead(status).end(JSON.stringify(body));
  });
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const client = new Client({ url: `http://127.0.0.1:${server.address().port}` });
  const create = () => client.createTask({ namespace: "x", name: "n", context: {}, idempotency_key: "k" });
  const after = (code) => (answers = [[503, { error: { code, message: "m" } }], [409, { error: { code: "CONFLICT", message: "m", task_uuid: "t" } }]]);
  after("SERVICE_UNAVAILABLE");
  assert.equal((await create()).task_uuid, "t");
  after("BACKPRESSURE");
  await assert.rejects(create(), { status: 409 });
});

test("batches tile the items", () => {
  for (const [total, size, most, count] of [[1500, 1000, 0, 2], [5000, 1000, 10, 5], [20500, 1000, 10, 10], [1, 1000, 10, 1], [10, 3, 3, 3], [7, 1, 5, 4]]) {
    const { worker_count: batches, cursor_configs: cursors } = new BatchConfig(total, size, most).outcome("process");
    assert.equal(batches, count);
    assert.equal(cursors.length, count);
    assert.equal(cursors[0].start_cursor, 0);
    assert.equal(cursors.at(-1).end_cursor, total);
    for (let i = 1; i < count; i++) assert.equal(cursors[i - 1].end_cursor, cursors[i].start_cursor);
  }
  assert.deepEqual(new BatchConfig(0, 10).outcome("process"), { type: "no_batches" });
  assert.throws(() => new BatchConfig(10, 0).outcome("process"), Permanent);
});

test("decisions", () => {
  assert.deepEqual(Decision.route("a", "b").outcome(), { type: "create_steps", step_names: ["a", "b"] });
  assert.deepEqual(Decision.skip().outcome(), { type: "no_branches" });
  assert.throws(() => Decision.route());
});

test("failures", () => {
  assert.deepEqual(fault(new TypeError("x")), { message: "x", error_type: "TypeError" });
  assert.deepEqual(fault(new Permanent("no", { code: "C", details: { n: 1 } })),
    { message: "no", error_type: "Permanent", retryable: false, error_code: "C", context: { n: 1 } });
  assert.equal(fault(new Retryable("later", { after: 2.5 })).retry_after_ms, 2500);
});

test("a name is registered once", () => {
  const handlers = new Handlers();
  handlers.handler("a", () => null);
  assert.throws(() => handlers.handler("a", () => null));
});

test("statuses", () => {
  for (const status of [400, 401, 403, 404, 409, 422]) assert.throws(() => new ApiResponse(status, new Headers(), null).check(), Permanent);
  for (const status of [408, 425, 429, 500, 503, 599]) {
    assert.throws(() => new ApiResponse(status, new Headers({ "Retry-After": "7" }), null).check(),
      (e) => e instanceof Retryable && e.marks.after === 7 && e.marks.code === `HTTP_${status}`);
  }
  assert.ok(new ApiResponse(204, new Headers(), null).check().ok);
  assert.equal(new ApiResponse(503, new Headers({ "retry-after": "Wed, 21 Oct 2015 07:28:00 GMT" }), null).retryAfter, 0);
  assert.ok(new ApiResponse(503, new Headers({ "retry-after": new Date(Date.now() + 60_000).toUTCString() }), null).retryAfter > 50);
});

test("calls of a service", async () => {
  const server = createServer((request, answer) => {
    let body = "";
    request.on("data", (part) => { body += part; });
    request.on("end", () => {
      answer.writeHead(request.url === "/busy" ? 429 : 200, { "Retry-After": "3" });
      answer.end(request.url === "/text" ? "plain" : JSON.stringify({ method: request.method, key: request.headers["x-key"], body }));
    });
  });
  server.unref(); // a failure must not keep the process alive
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const url = `http://127.0.0.1:${server.address().port}`;
  assert.deepEqual((await apiCall("POST", url, { body: { n: 1 }, headers: { "X-Key": "k" } })).check().body, { method: "POST", key: "k", body: '{"n":1}' });
  assert.equal((await apiCall("GET", `${url}/text`)).body, "plain");
  const busy = await apiCall("GET", `${url}/busy`);
  assert.throws(() => busy.check(), (e) => e instanceof Retryable && e.marks.after === 3);
  server.closeAllConnections();
  await new Promise((closed) => server.close(closed));
  await assert.rejects(apiCall("GET", url), (e) => e instanceof Retryable && e.marks.code === "UNREACHABLE");
  await assert.rejects(apiCall("GET", "file:///etc/passwd"), Permanent);
});

test("no step runs here", () => assert.equal(currentStep(), undefined));
