// The handlers of Tasker's package with the one in TASKER_DIST: what its documentation names, name by name.
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import test from "node:test";
import { pathToFileURL } from "node:url";

const load = (file) => import(pathToFileURL(`${process.env.TASKER_DIST}/${file}.js`).href);
const compat = await load("compat/index");
const {
  ApiHandler,
  ApiResponse,
  BasePublisher,
  BaseResolver,
  BaseSubscriber,
  BatchWorkerContext,
  BatchableHandler,
  BatchableStepHandler,
  ClassLookupResolver,
  DecisionHandler,
  DecisionPointOutcome,
  ErrorType,
  EventEmitter,
  EventPoller,
  ExplicitMappingResolver,
  HandlerRegistry,
  InProcessDomainEventPoller,
  MethodDispatchWrapper,
  PermanentError,
  PublisherRegistry,
  ResolutionError,
  ResolverChain,
  RetryableError,
  ShutdownController,
  StepContext,
  StepEventContext,
  StepEventNames,
  StepExecutionError,
  StepExecutionSubscriber,
  StepHandler,
  StepHandlerResult,
  SubscriberRegistry,
  ValidationError,
  aggregateBatchResults,
  applyAPI,
  applyBatchable,
  applyDecision,
  createBatches,
  createFfiPollAdapter,
  createLogger,
  createRuntime,
  isCreateBatches,
  isNoBatches,
  logDebug,
  logInfo,
  noBatches,
} = compat;
const { Handlers } = await load("index");
const { runStep } = await load("testing");

/** Runs a handler as a step of the engine. */
function stepOf(Type, options = {}, method = "call") {
  const registry = new HandlerRegistry(),
    all = new Handlers();
  registry.register("h", Type);
  all.include(registry);
  return runStep(all.known.get("h").get(method), options);
}

const handlerOf = (call, Base = StepHandler) =>
  class extends Base {
    call(context) {
      return call.call(this, context);
    }
  };

test("names that are types are values too", () => {
  for (const name of [
    "APICapable",
    "APIMixin",
    "DecisionCapable",
    "DecisionMixin",
    "BatchableCapable",
    "BatchableResult",
    "BatchProcessingOutcome",
    "BatchMetadata",
    "BatchWorkerInputs",
    "BaseStepHandler",
    "APIHandler",
    "CursorConfig",
    "RustCursorConfig",
    "RustBatchWorkerInputs",
    "FailureStrategy",
    "BootstrapConfig",
    "BootstrapResult",
    "DomainEvent",
    "FfiStepEvent",
    "FfiDispatchMetrics",
    "HandlerDefinition",
    "InProcessDomainEvent",
    "ResolutionContext",
    "ResolvedHandler",
    "StepEventContext",
    "StepExecutionResult",
    "StepHandlerResolver",
    "SubscriberResult",
    "TaskSequenceStep",
    "WorkerStatus",
    "WorkerServer",
    "EventSystem",
    "StopResult",
  ]) {
    assert.ok(compat[name], name);
  }
});

test("the context of a step", async () => {
  let seen;
  const end = await stepOf(
    handlerOf(function (c) {
      seen = c;
      return this.success(
        {
          inputs: [
            c.getInput("a"),
            c.getInput("none"),
            c.getInput("toString"),
            c.getInputOr("none", 7),
            c.getTaskField("a"),
            c.inputData.a,
            c.stepInputs.a,
            c.taskContext.a,
          ],
          config: [c.getConfig("k"), c.getConfig("none") ?? null, c.stepConfig.k],
          results: [
            c.getDependencyResult("p"),
            c.getDependencyResult("root"),
            c.getDependencyResult("none"),
            c.getDependencyField("p", "x", "y"),
            c.getDependencyField("p", "toString"),
            c.dependencyResults.p,
            c.previousResults.p.x,
          ],
          all: [c.getAllDependencyResults("rows"), c.getAllDependencyResults("p"), c.getAllDependencyResults("none")],
          retries: [c.retryCount, c.maxRetries, c.isRetry(), c.isLastRetry()],
          checkpoint: [
            c.hasCheckpoint(),
            c.checkpointCursor,
            c.checkpointItemsProcessed,
            c.accumulatedResults,
            c.checkpoint.cursor,
          ],
        },
        { took: 1 },
      );
    }),
    {
      context: { a: 1 },
      config: { k: "v" },
      results: { p: { x: { y: 2 } } },
      ancestors: { root: { deep: 1 } },
      batchResults: { rows: [{ n: 1 }, null] },
      checkpoint: { cursor: 5, items_processed: 6, accumulated_results: { s: 7 } },
      message: { attempt: 3, max_attempts: 3 },
    },
  );
  assert.deepEqual(
    end.result,
    {
      inputs: [1, null, null, 7, 1, 1, 1, 1],
      config: ["v", null, "v"],
      results: [
        { x: { y: 2 } },
        { deep: 1 },
        null,
        2,
        null,
        { success: true, result: { x: { y: 2 } }, status: "completed" },
        { y: 2 },
      ],
      all: [[{ n: 1 }, null], [{ x: { y: 2 } }], []],
      retries: [2, 3, true, true],
      checkpoint: [true, 5, 6, { s: 7 }, 5],
    },
    JSON.stringify(end.error),
  );
  assert.deepEqual(end.metadata, { took: 1 });
  assert.deepEqual(
    [seen.namespace, seen.taskName, seen.stepName, seen.handlerName, seen.event.task.task.context],
    ["test", "test", "test", "h", { a: 1 }],
  );
  const own = StepContext.fromFfiEvent(
    {
      task_uuid: "t",
      step_uuid: "s",
      task: { context: { a: 1 } },
      workflow_step: { attempts: 1, max_attempts: 3 },
      dependency_results: { a: { success: true, result: 2 }, b_001: { result: 3 }, b_002: 4 },
    },
    "name",
  );
  assert.deepEqual(
    [
      own.taskUuid,
      own.stepUuid,
      own.getInput("a"),
      own.retryCount,
      own.getDependencyResult("a"),
      own.getAllDependencyResults("b"),
      own.hasCheckpoint(),
      own.isRetry(),
    ],
    ["t", "s", 1, 1, 2, [3, 4], false, true],
  );
});

test("results and failures", async () => {
  assert.deepEqual(
    (
      await stepOf(
        handlerOf(function () {
          return this.success();
        }),
      )
    ).result,
    {},
  );
  assert.deepEqual(
    (
      await stepOf(
        handlerOf(function () {
          return this.successResult({ results: { all: 1 } });
        }),
      )
    ).result,
    { all: 1 },
  );
  assert.deepEqual((await stepOf(handlerOf(() => StepHandlerResult.success({ a: 1 })))).result, { a: 1 });
  const wide = await stepOf(
    handlerOf(function () {
      return this.success({ a: 1 }, { large: "x".repeat(20_000) });
    }),
  );
  assert.deepEqual([wide.result, wide.metadata], [{ a: 1 }, undefined]);
  const failure = async (call) => {
    const { outcome, error } = await stepOf(handlerOf(call));
    assert.equal(outcome, "failure");
    return [error.message, error.error_type, error.retryable, error.error_code, error.context];
  };
  assert.deepEqual(
    await failure(function () {
      return this.failure("no");
    }),
    ["no", "handler_error", true, undefined, undefined],
  );
  assert.deepEqual(
    await failure(function () {
      return this.failure("no", ErrorType.PERMANENT_ERROR, false, { a: 1 });
    }),
    ["no", "permanent_error", false, undefined, { a: 1 }],
  );
  assert.deepEqual(
    await failure(function () {
      return this.failure("no", "payment_error", true, {}, "C1");
    }),
    ["no", "payment_error", true, "C1", undefined],
  );
  assert.deepEqual(
    await failure(function () {
      return this.failure("no", "payment_error", "C1", false, { a: 1 });
    }),
    ["no", "payment_error", false, "C1", { a: 1 }],
  );
  assert.deepEqual(
    await failure(function () {
      return this.failure("no", "payment_error", undefined, false);
    }),
    ["no", "payment_error", false, undefined, undefined],
  );
  assert.deepEqual(await failure(() => ({ success: false, errorMessage: "plain", retryable: false })), [
    "plain",
    "handler_error",
    false,
    undefined,
    undefined,
  ]);
  assert.deepEqual(
    await failure(() => {
      throw new PermanentError("p", { errorCode: "C", context: { a: 1 } });
    }),
    ["p", "PermanentError", false, "C", { a: 1 }],
  );
  assert.deepEqual(
    await failure(() => {
      throw new RetryableError("r", { retryAfter: 2 });
    }),
    ["r", "RetryableError", true, undefined, undefined],
  );
  assert.deepEqual(
    await failure(() => {
      throw new ValidationError("v", { field: "f" });
    }),
    ["v", "ValidationError", false, undefined, { field: "f" }],
  );
  assert.deepEqual(
    await failure(() => {
      throw new StepExecutionError("s", "database_error", false);
    }),
    ["s", "database_error", false, undefined, undefined],
  );
  assert.deepEqual(
    await failure(() => {
      throw new TypeError("t");
    }),
    ["t", "TypeError", undefined, undefined, undefined],
  );
  const result = StepHandlerResult.failure("m", "t", false, { a: 1 }, "c");
  assert.deepEqual(
    [
      result.success,
      result.errorMessage,
      result.errorType,
      result.retryable,
      result.errorCode,
      result.isFailure(),
      result.toJSON().error_message,
    ],
    [false, "m", "t", false, "c", true, "m"],
  );
  assert.deepEqual(
    [ErrorType.PERMANENT_ERROR, ErrorType.RETRYABLE_ERROR, ErrorType.VALIDATION_ERROR, ErrorType.HANDLER_ERROR],
    ["permanent_error", "retryable_error", "validation_error", "handler_error"],
  );
});

test("methods of handlers", async () => {
  class Payment extends StepHandler {
    static handlerName = "payment";
    static handlerVersion = "2.0.0";
    call() {
      return this.success({ by: "call" });
    }
    async refund(context) {
      return this.success({ by: context.event.step_definition.handler.method });
    }
  }
  assert.deepEqual((await stepOf(Payment, { message: { method: "refund" } }, "refund")).result, { by: "refund" });
  const registry = new HandlerRegistry();
  registry.register("payment", Payment);
  registry.register(Payment); // by its handlerName
  registry.register("plain", () => StepHandlerResult.success({ by: "function" }));
  registry.register("object", { call: () => ({ success: true, result: { by: "object" } }) });
  assert.deepEqual(
    [
      registry.isRegistered("payment"),
      registry.isRegistered("none"),
      registry.listHandlers(),
      registry.handlerCount(),
      registry.resolve("none"),
    ],
    [true, false, ["payment", "plain", "object"], 3, null],
  );
  const handler = registry.resolve("payment");
  assert.ok(handler instanceof Payment && handler !== registry.resolve("payment"));
  assert.deepEqual([handler.name, handler.version], ["payment", "2.0.0"]);
  assert.deepEqual((await registry.resolve("plain").call(StepContext.fromFfiEvent({}))).result, { by: "function" });
  assert.throws(() => registry.register("none", {}), /want a class with call/);
  const all = new Handlers();
  all.include(registry);
  assert.deepEqual([...all.known.get("payment").keys()].sort(), ["call", "refund"]);
  assert.deepEqual((await runStep(all.known.get("object").get("call"))).result, { by: "object" });
});

test("resolvers", async () => {
  const resolvedBy = (resolver, reference) => {
    const registry = new HandlerRegistry(),
      all = new Handlers();
    registry.registerResolver(resolver);
    all.include(registry);
    return [...all.resolvers.values()][0].resolve({ resolver: "", initialization: {}, ...reference });
  };
  class Found extends StepHandler {
    call(context) {
      return this.success({ found: context.handlerName });
    }
    other() {
      return this.success({ other: true });
    }
  }
  class Services extends BaseResolver {
    resolverName() {
      return "services";
    }
    priority() {
      return 50;
    }
    canResolve(definition) {
      return definition.callable.startsWith("service://");
    }
    async resolve(definition, _context) {
      return definition.callable.endsWith("none") ? null : new Found();
    }
  }
  const chain = new ResolverChain();
  chain
    .register(new ClassLookupResolver())
    .register(new Services())
    .register(new ExplicitMappingResolver().register("known", Found));
  assert.deepEqual(chain.listResolvers(), [
    ["explicit_mapping", 10],
    ["services", 50],
    ["class_lookup", 100],
  ]);
  assert.ok(chain.canResolve({ callable: "known" }) && !chain.canResolve({ callable: "unknown" }));
  assert.ok((await chain.resolve({ callable: "service://a" }, {})) instanceof Found);
  assert.deepEqual(
    (await (await chain.resolve({ callable: "known", method: "other" })).call(StepContext.fromFfiEvent({}))).result,
    { other: true },
  );
  assert.equal(await chain.resolve({ callable: "unknown" }), null);
  await assert.rejects(chain.resolve({ callable: "known", resolver: "none" }), ResolutionError);
  for (const method of ["toString", "constructor", "none"]) {
    assert.ok((await chain.resolve({ callable: "known", method })) instanceof Found, "call is used");
    assert.throws(() => new MethodDispatchWrapper(new Found(), method), /does not respond to/);
    assert.deepEqual(await resolvedBy(new Services(), { callable: "service://a", method }), {});
  }
  const registry = new HandlerRegistry(),
    all = new Handlers();
  registry.registerResolver(new Services());
  all.include(registry);
  const [resolver] = all.resolvers.values(),
    reference = { callable: "service://a", method: "other", resolver: "", initialization: {} };
  assert.deepEqual(
    [
      resolver.name,
      resolver.priority,
      resolver.callables,
      resolver.canResolve(reference),
      resolver.canResolve({ ...reference, callable: "x" }),
    ],
    ["services", 50, ["*"], true, false],
  );
  assert.deepEqual((await runStep((await resolver.resolve(reference)).other)).result, { other: true });
  assert.equal(await resolver.resolve({ ...reference, callable: "service://none" }), undefined);
});

test("handlers of a folder", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "handlers")),
    index = JSON.stringify(pathToFileURL(`${process.env.TASKER_DIST}/compat/index.js`).href);
  t.after(() => rm(folder, { recursive: true }));
  await writeFile(
    join(folder, "a.mjs"),
    `import { StepHandler } from ${index}; class Base extends StepHandler {} export { Base }; export class Pay extends Base { static handlerName = "pay"; call() { return this.success({ paid: 1 }); } } export const n = 1;`,
  );
  const registry = new HandlerRegistry();
  assert.equal(await registry.discoverHandlers(folder), 1);
  assert.deepEqual(registry.listHandlers(), ["pay"]);
  assert.equal((await new ClassLookupResolver(folder).resolve({ callable: "Handlers.Pay" })).name, "pay");
  assert.equal(await new ClassLookupResolver(folder).resolve({ callable: "Handlers.None" }), null);
});

test("calls of services", async (t) => {
  const requests = [],
    server = createServer((request, response) => {
      let text = "";
      request.on("data", (part) => (text += part));
      request.on("end", () => {
        requests.push([request.method, request.url, request.headers["x-key"] ?? "", text]);
        const status = Number(new URL(request.url, "http://s").searchParams.get("status") ?? 200);
        response
          .writeHead(status, { "retry-after": "7", "x-answer": "yes" })
          .end(request.url.startsWith("/text") ? "text" : '{"ok":true,"message":"said"}');
      });
    });
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const baseUrl = `http://127.0.0.1:${server.address().port}`;
  class Api extends ApiHandler {
    baseUrl = `${baseUrl}/`;
    async call() {
      return this.success();
    }
  }
  class Mixed extends StepHandler {
    baseUrl = baseUrl;
    constructor() {
      super();
      applyAPI(this);
    }
    async call() {
      return this.apiSuccess(await this.get("/a"));
    }
  }
  const api = new Api();
  await api.get("/a", { params: { k: "v", none: undefined }, headers: { "x-key": "1" } });
  await api.get("a", { k: "v" }, { "x-key": "2" });
  await api.post("/a", { body: { n: 1 }, headers: { "x-key": "3" } });
  await api.post("/a", { n: 1 }, { "x-key": "4" });
  await api.put("/a", { body: [1] });
  await api.patch("/a", "text");
  await api.delete("/a", { params: { k: 1 } });
  await api.delete("/a");
  assert.deepEqual(requests, [
    ["GET", "/a?k=v", "1", ""],
    ["GET", "/a?k=v", "2", ""],
    ["POST", "/a", "3", '{"n":1}'],
    ["POST", "/a", "4", '{"n":1}'],
    ["PUT", "/a", "", "[1]"],
    ["PATCH", "/a", "", '"text"'],
    ["DELETE", "/a?k=1", "", ""],
    ["DELETE", "/a", "", ""],
  ]);
  const ok = await api.get("/a"),
    busy = await api.get("/a", { params: { status: 429 } }),
    gone = await api.get(`${baseUrl}/text`, { params: { status: 404 } });
  assert.deepEqual(
    [ok.statusCode, ok.ok, ok.body, ok.headers["x-answer"], ok.isRetryable],
    [200, true, { ok: true, message: "said" }, "yes", false],
  );
  assert.deepEqual(
    [busy.ok, busy.isClientError, busy.isServerError, busy.isRetryable, busy.retryAfter],
    [false, true, false, true, 7],
  );
  for (const [status, again] of [
    [400, false],
    [401, false],
    [403, false],
    [404, false],
    [408, true],
    [422, false],
    [429, true],
    [500, true],
    [504, true],
    [505, false],
  ])
    assert.equal(new ApiResponse(status, {}, null).isRetryable, again);
  const failed = api.apiFailure(busy),
    lost = api.apiFailure(gone);
  assert.deepEqual(
    [failed.errorMessage, failed.errorType, failed.retryable, failed.errorCode, failed.retryAfter],
    ["HTTP 429: said", "rate_limited", true, "HTTP_429", 7],
  );
  assert.deepEqual([lost.errorMessage, lost.errorType, lost.retryable], ["HTTP 404: text", "not_found", false]);
  assert.deepEqual(api.apiSuccess(ok).result, { ok: true, message: "said" });
  assert.deepEqual(api.apiSuccess(await api.get("/text")).result, { data: "text" });
  assert.deepEqual((await stepOf(Mixed)).result, { ok: true, message: "said" });
});

test("decisions", async () => {
  const end = (call) => stepOf(handlerOf(call, DecisionHandler)).then((e) => e.result ?? e.error);
  assert.deepEqual(
    await end(function () {
      return this.decisionSuccess(["a", "b"], { why: "both" });
    }),
    {
      why: "both",
      routing_context: { why: "both" },
      decision_point_outcome: { type: "create_steps", step_names: ["a", "b"] },
    },
  );
  assert.deepEqual(
    (
      await end(function () {
        return this.decisionSuccess("a");
      })
    ).decision_point_outcome,
    { type: "create_steps", step_names: ["a"] },
  );
  assert.deepEqual(
    (
      await end(function () {
        return this.decisionSuccess(DecisionPointOutcome.createSteps(["a"], { r: 1 }));
      })
    ).routing_context,
    { r: 1 },
  );
  assert.deepEqual(
    await end(function () {
      return this.decisionNoBranches("not met");
    }),
    { reason: "not met", decision_point_outcome: { type: "no_branches" } },
  );
  assert.equal(
    (
      await end(function () {
        return this.decisionNoBranches({ reason: "object", n: 1 });
      })
    ).n,
    1,
  );
  assert.deepEqual(
    await end(function () {
      return this.skipBranches("skipped", { n: 1 });
    }),
    { n: 1, reason: "skipped", routing_context: { n: 1 }, decision_point_outcome: { type: "no_branches" } },
  );
  assert.deepEqual(
    (
      await end(function () {
        return this.decisionNoBranches(DecisionPointOutcome.noBranches("o"));
      })
    ).reason,
    "o",
  );
  assert.deepEqual(
    (
      await end(function () {
        return this.decisionFailure("cannot", "route_error");
      })
    ).error_type,
    "route_error",
  );
  assert.equal(
    (
      await end(function () {
        return this.decisionSuccess([]);
      })
    ).error_type,
    "InvalidOutcome",
  );
  class Both extends StepHandler {
    constructor() {
      super();
      applyDecision(applyAPI(this));
    }
    call() {
      return this.decisionSuccess(["a"]);
    }
  }
  assert.equal((await stepOf(Both)).result.decision_point_outcome.step_names[0], "a");
});

test("batches", async () => {
  class Analyzer extends BatchableStepHandler {
    call(context) {
      const total = context.getInput("total");
      return total === 0
        ? this.noBatchesResult("empty", { at: 1 })
        : this.batchSuccess("rows", this.createCursorConfigs(total, 5), { path: "p" });
    }
  }
  const made = (await stepOf(Analyzer, { context: { total: 1000 } })).result;
  assert.deepEqual(
    made.batch_processing_outcome.cursor_configs.map((c) => [c.batch_id, c.start_cursor, c.end_cursor, c.batch_size]),
    [0, 200, 400, 600, 800].map((n, i) => [`00${i + 1}`, n, n + 200, 200]),
  );
  assert.deepEqual(
    [
      made.path,
      made.batch_metadata,
      made.worker_count,
      made.batch_processing_outcome.worker_template_name,
      made.batch_processing_outcome.total_items,
    ],
    ["p", { path: "p" }, 5, "rows", 1000],
  );
  assert.deepEqual((await stepOf(Analyzer, { context: { total: 0 } })).result, {
    at: 1,
    batch_metadata: { at: 1 },
    reason: "empty",
    worker_count: 0,
    total_items: 0,
    batch_processing_outcome: { type: "no_batches" },
  });
  const b = applyBatchable({});
  assert.deepEqual(
    b.createCursorConfigs(3, 5).map((c) => [c.start_cursor, c.end_cursor]),
    [
      [0, 1],
      [1, 2],
      [2, 3],
    ],
  );
  assert.deepEqual(
    b.createCursorRanges(1000, 100, 1, 5).map((c) => c.batch_size),
    [200, 200, 200, 200, 200],
  );
  assert.deepEqual(
    b.batchSuccess("w", [{ startCursor: "a", endCursor: "b", batchSize: 3 }]).result.batch_processing_outcome
      .cursor_configs,
    [{ batch_id: "001", start_cursor: "a", end_cursor: "b", batch_size: 3 }],
  );
  assert.deepEqual(b.batchAnalyzerSuccess([], 0, "w").result.batch_processing_outcome.type, "no_batches");
  class Batch extends BatchableHandler {
    async call(context) {
      const none = this.handleNoOpWorker(context);
      if (none) return none;
      const batch = this.getBatchContext(context),
        { cursor, batch_metadata: meta, is_no_op: noOp } = this.getBatchWorkerInputs(context);
      if (!batch.hasCheckpoint())
        await this.checkpointYield({ cursor: 3, itemsProcessed: 2, accumulatedResults: { sum: 1 } });
      return this.batchWorkerSuccess({
        processedCount: 5,
        itemsFailed: 1,
        resultData: {
          cursor,
          meta,
          noOp,
          of: [
            batch.batchId,
            batch.startCursor,
            batch.endCursor,
            batch.batchSize,
            batch.cursorField,
            batch.checkpointCursor,
            batch.checkpointItemsProcessed,
            batch.accumulatedResults.sum,
          ],
        },
      });
    }
  }
  const batch = {
    batch_id: "b",
    batch_size: 5,
    is_no_op: false,
    start_cursor: 1,
    end_cursor: 6,
    cursor_field: "id",
    failure_strategy: "fail_fast",
  };
  const first = await stepOf(Batch, { message: { batch } });
  assert.deepEqual(
    [first.outcome, first.checkpoint],
    ["yield", { cursor: 3, items_processed: 2, accumulated_results: { sum: 1 } }],
  );
  assert.deepEqual((await stepOf(Batch, { message: { batch }, checkpoint: first.checkpoint })).result, {
    batch_worker: true,
    processed_count: 5,
    items_processed: 5,
    items_succeeded: 4,
    items_failed: 1,
    items_skipped: 0,
    cursor: { batch_id: "b", start_cursor: 1, end_cursor: 6, batch_size: 5 },
    meta: { cursor_field: "id", failure_strategy: "fail_fast" },
    noOp: false,
    of: ["b", 1, 6, 5, "id", 3, 2, 1],
  });
  assert.equal((await stepOf(Batch, { message: { batch: { ...batch, is_no_op: true } } })).result.no_op, true);
  const plain = StepContext.fromFfiEvent({});
  assert.deepEqual(
    [
      b.getBatchContext(plain),
      b.getBatchWorkerInputs(plain),
      b.handleNoOpWorker(plain),
      BatchWorkerContext.fromStepData(plain).hasCheckpoint(),
    ],
    [null, null, null, false],
  );
  assert.deepEqual(
    [
      b.batchWorkerComplete(3, { n: 1 }).result.processed_count,
      b.batchWorkerComplete(3, { n: 1 }).result.n,
      b.batchFailure("f", "t", false).retryable,
    ],
    [3, 1, false],
  );
  await assert.rejects(b.checkpointYield(7, 2, { s: 1 }), (e) => e.point.cursor === 7 && e.point.items_processed === 2);
  const results = [
    { items_processed: 4, items_failed: 1, errors: ["e"] },
    null,
    { processed_count: 6, items_succeeded: 5, items_skipped: 1 },
    { no_op: true },
  ];
  const sum = {
    total_processed: 10,
    total_succeeded: 8,
    total_failed: 1,
    total_skipped: 1,
    batch_count: 2,
    success_rate: 0.8,
    errors: ["e"],
    error_count: 1,
  };
  for (const got of [
    aggregateBatchResults(results),
    b.aggregateWorkerResults(results),
    BatchableStepHandler.aggregateWorkerResults(results),
  ])
    assert.deepEqual({ ...got }, sum);
  assert.ok(
    isNoBatches(noBatches()) &&
      isCreateBatches(createBatches("w", 1, [{ batch_id: "1", start_cursor: 0, end_cursor: 1, batch_size: 1 }], 1)),
  );
});

test("publishers and subscribers", async (t) => {
  const publishers = PublisherRegistry.getInstance(),
    subscribers = SubscriberRegistry.getInstance(),
    calls = [];
  t.after(() => [publishers, subscribers].forEach((r) => r.reset()));
  class Payments extends BasePublisher {
    static publisherName = "payment_events";
    publishesFor() {
      return ["charge"];
    }
    transformPayload(ctx) {
      return { id: ctx.result?.id, failed: ctx.errorMessage };
    }
    beforePublish(ctx) {
      calls.push(`before ${ctx.stepName} ${ctx.stepSucceeded()}`);
    }
    afterPublish(ctx, event) {
      calls.push(`after ${event.eventName} ${event.payload.id} ${event.metadata.by}`);
    }
    onPublishError(_ctx, error) {
      calls.push(`error ${error.message}`);
    }
    additionalMetadata() {
      return { by: "me" };
    }
  }
  class Broken extends BasePublisher {
    transformPayload() {
      throw new Error("broken");
    }
    onPublishError(_ctx, error) {
      calls.push(`error ${error.message}`);
    }
  }
  publishers.register(Payments);
  publishers.register(new Broken());
  publishers.freeze();
  assert.throws(() => publishers.register(class extends BasePublisher {}), /frozen/);
  assert.deepEqual(
    [
      publishers.getForStep("charge").publisherName,
      publishers.getForStep("none"),
      publishers.count,
      publishers.isFrozen,
      publishers.get("Broken").publisherName,
    ],
    ["payment_events", undefined, 2, true, "Broken"],
  );
  class Audit extends BaseSubscriber {
    static subscriberName = "audit";
    subscribesTo() {
      return ["payment.*", "order.completed"];
    }
    async handle(event) {
      if (event.payload === "bad") throw new Error("bad");
      calls.push(`handle ${event.eventName} ${event.metadata.taskUuid} ${event.metadata.task_uuid}`);
      return { success: true };
    }
    beforeHandle(event) {
      return event.payload !== "skip";
    }
    afterHandle(_event, result) {
      calls.push(`handled ${result.success}`);
    }
    onHandleError(_event, error) {
      calls.push(`failed ${error.message}`);
    }
  }
  subscribers.register(Audit);
  assert.deepEqual(
    [
      subscribers.getMatchingSubscribers("payment.charged").length,
      subscribers.getMatchingSubscribers("order.created").length,
      subscribers.count,
    ],
    [1, 0, 1],
  );
  const registry = new HandlerRegistry(),
    all = new Handlers();
  registry.register(
    "h",
    handlerOf(function () {
      return this.success({ id: 1 });
    }),
  );
  all.include(registry);
  assert.deepEqual([...all.publishers.keys()], ["payment_events", "Payments", "Broken"]);
  const declared = (name, publisher) => ({ name, condition: "success", delivery_mode: "durable", publisher });
  const end = await runStep(all.known.get("h").get("call"), {
    publishers: [...all.publishers.values()],
    message: { publishes: [declared("payment.charged", "payment_events"), declared("x", "Broken")] },
  });
  assert.deepEqual(end.made, [
    { name: "payment.charged", payload: { id: 1 }, metadata: { by: "me" } },
    { name: "x", skip: "publisher_error" },
  ]);
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(calls.splice(0), ["before test true", "error broken", "after payment.charged 1 me"]);
  const [{ handle, patterns }] = all.subscribers,
    event = (name, payload) => ({
      event_id: "1",
      event_name: name,
      event_version: "1.0",
      payload,
      metadata: { task_uuid: "t" },
    });
  assert.deepEqual(patterns, ["payment.*", "order.completed"]);
  for (const payload of ["good", "skip", "bad"]) await handle(event("payment.charged", payload));
  await handle(event("order.created", "good"));
  subscribers.stopAll();
  await handle(event("payment.charged", "good"));
  assert.deepEqual(calls.splice(0), ["handle payment.charged t t", "handled true", "failed bad"]);
  const alone = await new Payments().publish(
    new StepEventContext({ stepName: "s", eventName: "e", result: { id: 3 } }),
  );
  assert.deepEqual([alone.eventName, alone.payload, alone.metadata], ["e", { id: 3, failed: undefined }, { by: "me" }]);
});

test("a process that is set up piece by piece", async () => {
  const emitter = new EventEmitter(),
    seen = [],
    pending = [
      { event_id: "e1", step_uuid: "s1", step_definition: { handler: { callable: "good" } } },
      { event_id: "e2", step_uuid: "s2", step_definition: { handler: { callable: "yields" } } },
      { event_id: "e3", step_uuid: "s3", step_definition: { handler: { callable: "bad", method: "worse" } } },
      { event_id: "e4", step_uuid: "s4", step_definition: { handler: { callable: "none" } } },
    ],
    done = [];
  const runtime = {
    pollStepEvents: () => pending.shift() ?? null,
    completeStepEvent: (id, result) => (done.push([id, result.success, result.errorType]), true),
    checkpointYieldStepEvent: (id, data) => (done.push([id, data.cursor]), true),
    getFfiDispatchMetrics: () => null,
  };
  const registry = new HandlerRegistry();
  registry.register(
    "good",
    handlerOf(function () {
      return this.success({ a: 1 });
    }),
  );
  registry.register(
    "yields",
    handlerOf(function () {
      return this.checkpointYield({ cursor: 4, itemsProcessed: 1 });
    }, BatchableHandler),
  );
  registry.register(
    "bad",
    class extends StepHandler {
      call() {}
      worse() {
        return this.failure("worse", "odd", false);
      }
    },
  );
  for (const name of Object.values(StepEventNames))
    emitter.on(name, (p) => seen.push(`${name} ${p.stepUuid ?? p.event.step_uuid}`));
  emitter.once(StepEventNames.STEP_EXECUTION_RECEIVED, () => {
    throw new Error("of a listener, which changes nothing");
  });
  const subscriber = new StepExecutionSubscriber(emitter, registry, runtime, { workerId: "w" }),
    poller = new EventPoller(runtime, emitter, { pollingIntervalMs: 1 });
  subscriber.start();
  poller.start();
  assert.ok(subscriber.isRunning() && poller.isRunning());
  while (done.length < 4) await new Promise((resolve) => setTimeout(resolve, 1));
  poller.stop();
  assert.equal(await subscriber.waitForCompletion(), true);
  subscriber.stop();
  assert.deepEqual(done.sort(), [
    ["e1", true, null],
    ["e2", 4],
    ["e3", false, "odd"],
    ["e4", false, "ResolutionError"],
  ]);
  for (const line of [
    "step.execution.received s1",
    "step.execution.started s1",
    "step.execution.completed s1",
    "step.completion.sent s1",
    "step.checkpoint_yield.sent s2",
    "step.execution.failed s3",
    "step.execution.failed s4",
  ])
    assert.ok(seen.includes(line), line);
  assert.deepEqual(
    [
      poller.getMetrics().pendingCount,
      poller.getMetrics().eventCount,
      subscriber.getActiveHandlers(),
      subscriber.getProcessedCount(),
      subscriber.getErrorCount(),
    ],
    [0, 4, 0, 4, 2],
  );
  assert.deepEqual([emitter.listenerCount(StepEventNames.STEP_EXECUTION_RECEIVED), emitter.emit("none")], [1, false]);
});

test("a runtime", async () => {
  const runtime = createRuntime();
  await runtime.load("/path/to/libtasker_ts.so");
  assert.throws(() => runtime.offer(new HandlerRegistry()), /call bootstrapWorker first/);
  assert.deepEqual(
    [
      runtime.bootstrapWorker({ namespace: "n", workerId: "w" }).success,
      runtime.bootstrapWorker({}).status,
      runtime.getWorkerStatus().running,
      runtime.getWorkerStatus().workerId,
    ],
    [true, "already_running", true, "w"],
  );
  assert.deepEqual(
    [
      runtime.pollStepEvents(),
      runtime.pollInProcessEvents(),
      runtime.completeStepEvent("none", {}),
      runtime.getFfiDispatchMetrics().pending_count,
      runtime.isLoaded,
    ],
    [null, null, false, 0, true],
  );
  assert.deepEqual(
    [runtime.stopWorker().status, runtime.stopWorker().status, runtime.getWorkerStatus().running],
    ["stopped", "not_running", false],
  );
  const events = [{ eventName: "a" }, { eventName: "b" }],
    heard = [],
    poller = new InProcessDomainEventPoller({ pollIntervalMs: 1 });
  poller.setPollFunction(createFfiPollAdapter({ pollInProcessEvents: () => events.shift() ?? null }));
  poller
    .onError((e) => heard.push(e.message))
    .start((event) => {
      heard.push(event.eventName);
      if (event.eventName === "b") throw new Error("of a listener");
    });
  while (heard.length < 3) await new Promise((resolve) => setTimeout(resolve, 1));
  poller.stop();
  assert.deepEqual([heard, poller.isRunning], [["a", "b", "of a listener"], false]);

  const order = [];
  let left = 3,
    asked = 0;
  const one = new InProcessDomainEventPoller({ pollIntervalMs: 1 });
  one.setPollFunction(() => (asked++, left > 0 ? { eventName: `e${left--}` } : null));
  one.start(async ({ eventName }) => {
    const before = asked;
    order.push(`${eventName} begins`);
    await new Promise((resolve) => setTimeout(resolve, 20));
    order.push(`${eventName} ends after ${asked - before} polls`);
  });
  while (order.length < 6) await new Promise((resolve) => setTimeout(resolve, 1));
  one.stop();
  const expected = ["e3", "e2", "e1"].flatMap((e) => [`${e} begins`, `${e} ends after 0 polls`]);
  assert.deepEqual(order, expected, "a slow listener is not called twice at once");
});

test("a signal ends a process", async () => {
  const before = process.listenerCount("SIGTERM"),
    shutdown = new ShutdownController(),
    waiting = shutdown.waitForShutdown();
  shutdown.registerSignalHandlers();
  assert.equal(process.listenerCount("SIGTERM"), before + 1);
  let asked = 0;
  shutdown.onShutdown(() => void asked++);
  assert.equal(shutdown.isShutdownRequested(), false);
  process.emit("SIGTERM");
  await waiting;
  await shutdown.waitForShutdown();
  assert.deepEqual([shutdown.isShutdownRequested(), asked, process.listenerCount("SIGTERM")], [true, 1, before]);
});

test("lines of the log", (t) => {
  const lines = [],
    error = console.error;
  console.error = (line) => lines.push(JSON.parse(line));
  t.after(() => (console.error = error));
  const loop = {};
  loop.self = loop;
  logInfo("said", { component: "c" });
  logDebug("not said");
  createLogger({ component: "d" }).warn("bound", { n: 1 });
  logInfo("odd", loop);
  assert.deepEqual(
    lines.map(({ time, ...line }) => (assert.ok(Date.parse(time)), line)),
    [
      { level: "info", message: "said", component: "c" },
      { level: "warn", message: "bound", component: "d", n: 1 },
      { level: "info", message: "odd" },
    ],
  );
});

test("handlers that are functions", async (t) => {
  const { Decision, defineApiHandler, defineBatchAnalyzer, defineBatchWorker, defineDecisionHandler, defineHandler } =
    compat;
  const of = async (fn, given = {}, options = {}) => stepOf(defineHandler("f", options, fn), given);
  const made = defineHandler("shop.pay", { version: "2.0.0" }, async () => ({}));
  assert.deepEqual([made.handlerName, made.handlerVersion, made.name], ["shop.pay", "2.0.0", "shop.pay"]);
  assert.ok(new made() instanceof StepHandler);
  const registry = new HandlerRegistry();
  registry.register(made);
  assert.deepEqual(registry.listHandlers(), ["shop.pay"]);

  const { result } = await of(
    async ({ load, amount, none, context }) => ({ load, amount, none: none ?? null, step: context.stepName }),
    { context: { sum: 7 }, results: { loading: { kg: 2 } } },
    { depends: { load: "loading" }, inputs: { amount: "sum", none: "absent" } },
  );
  assert.deepEqual(result, { load: { kg: 2 }, amount: 7, none: null, step: "test" });
  for (const [returned, want] of [
    [undefined, {}],
    [null, {}],
    [7, { result: 7 }],
    [[1], { result: [1] }],
    [StepHandlerResult.success({ own: 1 }), { own: 1 }],
  ])
    assert.deepEqual((await of(async () => returned)).result, want);
  const failure = async (fn) => {
    const { error } = await of(fn);
    return [error.message, error.error_type, error.retryable, error.context, error.error_code];
  };
  const throws = (thrown) => () => {
    throw thrown;
  };
  for (const [thrown, want] of [
    [new PermanentError("p", { a: 1 }), ["p", "permanent_error", false, { a: 1 }, undefined]],
    [new PermanentError("p", "CODE"), ["p", "permanent_error", false, undefined, "CODE"]],
    [new RetryableError("r", { a: 1 }), ["r", "retryable_error", true, { a: 1 }, undefined]],
    [new TypeError("t"), ["t", "handler_error", true, { errorType: "TypeError" }, undefined]],
    ["text", ["text", "handler_error", true, { errorType: "string" }, undefined]],
  ])
    assert.deepEqual(await failure(throws(thrown)), want);
  const yields = await of(async () => applyBatchable({}).checkpointYield(4, 2));
  assert.deepEqual([yields.outcome, yields.point?.cursor ?? yields.checkpoint?.cursor], ["yield", 4]);

  const decide = defineDecisionHandler("d", { inputs: { n: "n" } }, async ({ n }) =>
    n > 1 ? Decision.route(["a"], { n }) : Decision.skip("few"),
  );
  const decided = (n) => stepOf(decide, { context: { n } }).then((end) => end.result);
  assert.deepEqual(
    [(await decided(2)).decision_point_outcome, (await decided(2)).routing_context, (await decided(1)).reason],
    [{ type: "create_steps", step_names: ["a"] }, { n: 2 }, "few"],
  );
  assert.deepEqual(new decide().capabilities, ["process", "decision", "routing"]);

  const analyze = defineBatchAnalyzer("a", { workerTemplate: "w" }, async ({ context }) => ({
    totalItems: context.getInput("n"),
    batchSize: 2,
  }));
  const outcome = async (n) => (await stepOf(analyze, { context: { n } })).result.batch_processing_outcome;
  const { cursor_configs: cursors, worker_template_name: worker } = await outcome(3);
  assert.deepEqual([worker, (await outcome(0)).type], ["w", "no_batches"]);
  assert.deepEqual(
    cursors.map((c) => [c.batch_id, c.start_cursor, c.end_cursor]),
    [
      ["batch_000", 0, 2],
      ["batch_001", 2, 3],
    ],
  );
  const seen = [],
    work = defineBatchWorker("w", {}, async ({ batchContext }) => void seen.push(batchContext?.batchId ?? null));
  await stepOf(work);
  await new work().call(
    StepContext.fromFfiEvent({ workflow_step: { inputs: { cursor: { batch_id: "b1", start_cursor: 0 } } } }),
  );
  assert.deepEqual(seen, [null, "b1"]);

  const service = createServer((request, response) => response.end(JSON.stringify({ key: request.headers["x-key"] })));
  t.after(() => {
    service.closeAllConnections();
    service.close();
  });
  await new Promise((listening) => service.listen(0, "127.0.0.1", listening));
  const call = defineApiHandler(
    "c",
    { baseUrl: `http://127.0.0.1:${service.address().port}`, defaultHeaders: { "x-key": "k" } },
    async ({ api }) => api.apiSuccess(await api.get("/users")),
  );
  assert.deepEqual((await stepOf(call)).result, { key: "k" });
});

test("a server of handlers", async () => {
  const { WorkerServer } = compat,
    server = new WorkerServer(),
    system = server.getHandlerSystem(),
    made = compat.defineHandler("h", {}, async () => ({}));
  system.register(made.handlerName, made);
  assert.deepEqual([system.handlerCount(), system.listHandlers(), server.getState()], [1, ["h"], "initialized"]);
  assert.equal(server.healthCheck().healthy, false);
  assert.ok((await system.resolve("h")) instanceof made);
  assert.equal(await system.resolve({ callable: "none" }), null);
});

test("a client that returns when the API has answered", async (t) => {
  const { TaskerClient, TaskerClientError, getTaskerClient } = compat;
  const asked = [],
    client = new TaskerClient({
      getModule: () => ({
        clientCreateTask: (request) => (asked.push(request), { success: true, data: { task_uuid: "t" } }),
        clientGetTask: () => ({ success: false, error: "gone", recoverable: true }),
      }),
    });
  assert.equal(client.createTask({ name: "n", idempotencyKey: "k" }).task_uuid, "t");
  assert.deepEqual(
    [asked[0].namespace, asked[0].version, asked[0].context, asked[0].idempotencyKey],
    ["default", "1.0.0", {}, "k"],
  );
  assert.throws(() => client.getTask("t"), (e) => e instanceof TaskerClientError && e.recoverable);
  const { TASKER_ORCHESTRATION_URL: before } = process.env;
  t.after(() => (before === undefined ? delete process.env.TASKER_ORCHESTRATION_URL : undefined));
  process.env.TASKER_ORCHESTRATION_URL = "http://127.0.0.1:1";
  const unreached = await getTaskerClient();
  assert.throws(() => unreached.getTask("t"), (e) => e instanceof TaskerClientError && e.recoverable);
});
