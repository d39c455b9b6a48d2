// Numbers with all of their digits, and values as they were, of the package in TASKER_DIST.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import process from "node:process";
import test from "node:test";
import { pathToFileURL } from "node:url";

const load = (file) => import(pathToFileURL(`${process.env.TASKER_DIST}/${file}.js`).href);
const { Bytes, Client, Decimal, Permanent, Retryable, Yield, apiCall } = await load("index");
const { encoded, parsed } = await load("json");
const { fault } = await load("errors");
const { runStep } = await load("testing");

const big = "123456789012345678901234567890",
  fine = "1.000000000000000001";

test("numbers keep their digits", () => {
  for (const text of [
    "9007199254740993",
    "-9007199254740993",
    big,
    fine,
    "-0.1000000000000000055",
    "1e400",
    "1.5e-400",
    `{"a":[${big},"${big}",{"b":${fine}}]}`,
    `{"__proto__":${big},"constructor":${fine}}`,
    `["\\"${big}\\\\",${big}]`,
  ]) {
    assert.equal(encoded(parsed(text)), text);
  }
  assert.equal(parsed("9007199254740993"), 9007199254740993n);
  assert.deepEqual(parsed(`{"a":${fine}}`), { a: new Decimal(fine) });
  assert.equal(parsed(`{"__proto__":${big}}`).a, undefined);
  // What a number holds stays a number, also one that a program has made of other digits.
  for (const [text, n] of [
    ["0.1", 0.1],
    ["1.10", 1.1],
    ["1e3", 1000],
    ["10000000000000000", 1e16],
    ["1.0000000000000000", 1],
    ["0.14285714285714285", 1 / 7],
    [String(2 ** 60), 2 ** 60],
    ["1E+022", 1e22],
  ]) {
    assert.equal(parsed(text), n);
    assert.equal(parsed(encoded(n)), n);
  }
  for (const wrong of [
    "01234567890123456789",
    "-",
    `[${big},]`,
    "12345678901234567890.",
    `{"a":-0${big}}`,
    `${big}e`,
    `"${big}`,
  ])
    assert.throws(() => parsed(wrong), SyntaxError, wrong);
  assert.equal(
    encoded({ n: null, b: 1n, d: new Decimal("0.5"), bytes: new Bytes(new Uint8Array([1])) }),
    '{"n":null,"b":1,"d":0.5,"bytes":{"$bytes":"AQ==","content_type":"application/octet-stream"}}',
  );
  for (const wrong of [{ at: NaN }, [-Infinity], undefined, () => 1]) assert.throws(() => encoded(wrong), TypeError);
});

test("a decimal has no arithmetic", () => {
  const d = new Decimal(fine);
  assert.equal(`${d}`, fine);
  assert.equal(d.toNumber(), 1);
  assert.throws(() => d + 1, /want toNumber\(\) or text/);
  assert.throws(() => d > 1, /want toNumber\(\) or text/);
  for (const wrong of ["", "1.", "0x1", "1 ", "NaN", "+1"])
    assert.throws(() => new Decimal(wrong), /want a JSON number/);
  assert.equal(JSON.stringify({ d }), `{"d":"${fine}"}`); // of other code than the package
});

test("exact numbers go through handlers", async () => {
  const given = {
    context: parsed(`{"id":${big},"price":${fine}}`),
    results: { before: 2n ** 63n },
    ancestors: { root: new Decimal(fine) },
    batchResults: { rows: [2n ** 64n] },
    config: { limit: 9007199254740993n },
    items: [2n ** 53n + 1n],
    checkpoint: { cursor: 2n ** 70n, items_processed: 1, accumulated_results: new Decimal(fine) },
  };
  const end = await runStep(async (ctx) => {
    ctx.isolate(ctx.batch.items[0], new Retryable("later", { details: { at: 7n } }));
    ctx.publish("priced", { price: ctx.context.price });
    ctx.metadata({ spent: 2n ** 60n + 1n });
    await ctx.checkpoint(ctx.saved.cursor + 1n, 2, ctx.saved.accumulated);
    return [
      ctx.context,
      ctx.results.before,
      await ctx.result("root"),
      (await ctx.batchResults("rows"))[0].result,
      ctx.config.limit,
    ];
  }, given);
  assert.deepEqual(end.result, [given.context, 2n ** 63n, new Decimal(fine), 2n ** 64n, 9007199254740993n]);
  assert.deepEqual(end.isolated[0].item, 2n ** 53n + 1n);
  assert.deepEqual(end.isolated[0].error.context, { at: 7 });
  assert.deepEqual(end.events, [{ name: "priced", payload: { price: new Decimal(fine) } }]);
  assert.deepEqual(end.metadata, { spent: 2n ** 60n + 1n });
  assert.deepEqual(end.saved[0], {
    cursor: 2n ** 70n + 1n,
    items_processed: 2,
    accumulated_results: new Decimal(fine),
    isolated: [{ item: 2n ** 53n + 1n, error: end.isolated[0].error }],
  });
  assert.deepEqual(
    (
      await runStep(() => {
        throw new Yield(2n ** 65n, 1);
      })
    ).checkpoint,
    { cursor: 2n ** 65n, items_processed: 1 },
  );
});

test("exact numbers go through clients", async (t) => {
  let sent = "";
  const server = createServer((request, answer) => {
    sent = "";
    request.on("data", (part) => (sent += part));
    request.on("end", () =>
      answer.end(`{"task_uuid":"t","status":"complete","context":{"id":${big},"price":${fine}}}`),
    );
  });
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const url = `http://127.0.0.1:${server.address().port}`,
    context = { id: BigInt(big), price: new Decimal(fine) };
  const task = await new Client({ url }).createTask({ namespace: "x", name: "n", context });
  assert.deepEqual(task.context, context);
  assert.ok(sent.includes(`"context":{"id":${big},"price":${fine}}`), sent);
  await assert.rejects(
    new Client({ url }).createTask({ namespace: "x", name: "n", context: { at: NaN } }),
    /"at" is NaN/,
  );
  assert.deepEqual((await apiCall("POST", url, { body: context })).body.context, context);
  assert.equal(sent, `{"id":${big},"price":${fine}}`);
});

test("whatever is thrown is a failure", async () => {
  const bare = Object.create(null),
    getter = {
      get message() {
        throw bare;
      },
      get name() {
        throw bare;
      },
    };
  class Odd extends Error {
    get message() {
      throw bare;
    }
  }
  const proxy = new Proxy(
    {},
    {
      get() {
        throw bare;
      },
      getPrototypeOf() {
        throw bare;
      },
      ownKeys() {
        throw bare;
      },
    },
  );
  const { proxy: revoked, revoke } = Proxy.revocable({}, {});
  revoke();
  for (const [thrown, message, type] of [
    [undefined, "undefined", "undefined"],
    [null, "null", "object"],
    ["text", "text", "string"],
    ["", "an empty value was thrown", "string"],
    [7n, "7", "bigint"],
    [Symbol("s"), "Symbol(s)", "symbol"],
    [bare, "{}", "object"],
    [{ code: 3 }, '{"code":3}', "object"],
    [{ message: "m" }, "m", "object"],
    [getter, "[object Object]", "object"],
    [new Odd(), "Error", "Error"],
    [proxy, "a value that cannot be read was thrown", "object"],
    [revoked, "a value that cannot be read was thrown", "object"],
    [Object.assign(new Error("x"), { name: 5 }), "x", "Error"],
    [Object.assign(new Error(""), { name: "" }), "an empty value was thrown", "Error"],
  ]) {
    for (const handler of [
      () => {
        throw thrown;
      },
      () => Promise.reject(thrown),
    ]) {
      const { outcome, error } = await runStep(handler);
      assert.deepEqual([outcome, error.message, error.error_type], ["failure", message, type]);
    }
  }
  assert.equal((await runStep(() => proxy)).outcome, "failure");
  assert.equal((await runStep(() => revoked)).outcome, "failure");
  const loop = {};
  loop.self = loop;
  assert.match(fault(new Permanent("p", { details: loop })).context.details_error, /no JSON form/);
  assert.deepEqual(fault(new Permanent("p", { details: [1] })).context, { details: [1] });
  assert.deepEqual(fault(new Permanent("p", { details: { big: 2n ** 64n } })).context, { big: 2n ** 64n });
  assert.equal(fault(new Retryable("p", { after: Infinity })).retry_after_ms, undefined);
});

test("what was said counts, not what becomes of it", async () => {
  const shared = { n: 1, list: [1] },
    details = { n: 1 };
  const end = await runStep(
    async (ctx) => {
      ctx.publish("counted", shared);
      ctx.isolate(shared, new Permanent("bad", { details }));
      ctx.metadata({ shared });
      const saving = ctx.checkpoint(shared, 1, shared);
      shared.n = 2;
      shared.list.push(2);
      details.n = 2;
      await saving;
      assert.deepEqual(ctx.saved.cursor, { n: 1, list: [1] });
      setTimeout(() => (shared.n = 3));
      return shared;
    },
    { items: [1] },
  );
  await new Promise((resolve) => setTimeout(resolve, 2));
  const first = { n: 1, list: [1] };
  assert.deepEqual(end.events[0].payload, first);
  assert.deepEqual(end.isolated[0], {
    item: first,
    error: { message: "bad", error_type: "Permanent", retryable: false, context: { n: 1 } },
  });
  assert.deepEqual(end.metadata, { shared: first });
  assert.deepEqual(end.saved[0].cursor, first);
  assert.deepEqual(end.saved[0].accumulated_results, first);
  assert.deepEqual(end.result, { n: 2, list: [1, 2] });
});

test("any document keeps the digits of its numbers", () => {
  let seed = 7;
  const below = (n) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % n;
  const digits = (n) => Array.from({ length: n }, () => below(10)).join("");
  const number = () =>
    (below(2) ? "-" : "") +
    (below(3) ? `${1 + below(9)}${digits(below(25))}` : "0") +
    (below(2) ? `.${digits(1 + below(25))}` : "") +
    (below(3) ? "" : `e${["", "+", "-"][below(3)]}${digits(1 + below(3))}`);
  const texts = ['a"b\\', "12345678901234567890", 'x,"y":-1e999', "[1234567890123456789]", ""].map((t) =>
    JSON.stringify(t),
  );
  const document = (depth, numbers) => {
    const kind = below(depth > 3 ? 3 : 5);
    if (kind === 0) return (numbers.push(number()), numbers.at(-1));
    if (kind === 1) return texts[below(texts.length)];
    if (kind === 2) return ["true", "null", "false"][below(3)];
    const parts = Array.from({ length: below(4) }, () => document(depth + 1, numbers));
    return kind === 3 ? `[ ${parts.join(" ,\n")}]` : `{${parts.map((part, i) => `"k${i}" :\t${part}`).join(",")}}`;
  };
  // The same for equal numbers: the digits without zeros around them, and the exponent.
  const value = (text) => {
    const [mantissa, exponent = "0"] = text.toLowerCase().split("e"),
      [whole, fraction = ""] = mantissa.replace("-", "").split(".");
    const significant = (whole + fraction).replace(/^0+/, ""),
      short = significant.replace(/0+$/, "");
    return short === ""
      ? "0"
      : `${mantissa.startsWith("-")} ${short} ${Number(exponent) - fraction.length + significant.length - short.length}`;
  };
  const found = (v) => {
    if (typeof v === "number" || typeof v === "bigint") return [value(String(v))];
    if (v instanceof Decimal) return [value(v.text)];
    return v && typeof v === "object" ? Object.values(v).flatMap(found) : [];
  };
  for (let i = 0; i < 3000; i++) {
    const numbers = [],
      text = document(0, numbers),
      read = parsed(text);
    assert.deepEqual(found(read), numbers.map(value), text);
    assert.deepEqual(found(parsed(encoded(read))), found(read), text);
  }
});
