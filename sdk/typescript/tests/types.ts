// Compiled against the package, and not run: what the types promise to programs.
import {
  BatchConfig,
  Bytes,
  Client,
  Continue,
  Decimal,
  Decision,
  Handlers,
  Permanent,
  Retryable,
  Worker,
  Yield,
  apiCall,
  discover,
  type Batch,
  type Convert,
  type DomainEvent,
  type Handler,
  type Publisher,
  type Resolver,
  type StepContext,
  type Subscriber,
} from "@tasker-go/tasker";
import * as compat from "@tasker-go/tasker/compat";
import type {
  BatchWorkerContext,
  DomainEvent as CompatEvent,
  ExecutableHandler,
  HandlerDefinition,
  HandlerFn,
  StepContext as CompatContext,
  StepHandlerClass,
  StepHandlerResult,
  TaskResponse,
} from "@tasker-go/tasker/compat";
import type { StepExecutionReceivedPayload } from "@tasker-go/tasker/compat/events";
import { runStep, startEngine, type Outcome } from "@tasker-go/tasker/testing";

interface Order {
  id: string;
  amount: number;
}
const order: Convert<Order> = { parse: (value) => value as Order }; // a schema, such as one of zod
const handlers = new Handlers();

handlers.step(
  "typed",
  {
    dependsOn: {
      plain: "validate",
      typed: { step: "load", as: order },
      maybe: { step: "load", as: order, absent: null },
    },
    inputs: { amount: { as: Number }, note: { as: String, optional: true }, limit: { as: Number, absent: "none" } },
  },
  async (ctx, { plain, typed, maybe, amount, note, limit }) => {
    const unknown: unknown = plain,
      id: string = typed.id,
      sum: number = amount + typed.amount,
      text: string | undefined = note,
      most: number | "none" | string = limit;
    const none: Order | null = maybe;
    // @ts-expect-error -- the note may be absent
    note.length;
    // @ts-expect-error -- a result that is not converted is unknown
    plain.id;
    return { unknown, id, sum, text, most, none, step: ctx.stepName };
  },
);
handlers.step("listed", { inputs: ["a", "b"] }, (_ctx, { a, b }) => [a, b]);
// @ts-expect-error -- no such input
handlers.step("misspelled", { inputs: ["a"] }, (_ctx, { c }) => c);
handlers.step("none", {}, (ctx) => ctx.attempt);
handlers.step("record", { inputs: ["a"] }, (_ctx, values: Record<string, unknown>) => values["a"]);
handlers.decision("decides", { dependsOn: { order: { step: "load", as: order } } }, (_ctx, { order: { amount } }) =>
  amount > 1 ? Decision.route("a").with("why", "large") : Decision.skip(),
);
handlers.batchAnalyzer("divides", "rows", { inputs: { size: { as: Number } } }, (_ctx, { size }) =>
  size ? new BatchConfig(size, 10) : BatchConfig.of([{ start: "a", end: "b", size: 1 }]),
);
handlers.batchWorker("counts", (ctx, batch) => {
  const [from, to] = ctx.range(),
    sum: number = batch.end - batch.start + to - from;
  return sum;
});
handlers.batchWorker<string>("spells", (_ctx, batch: Batch<string>) => batch.start.localeCompare(batch.end));
handlers.batchWorker("needs", { inputs: { by: { as: String } } }, (_ctx, batch: Batch<string>, { by }) => by + batch.start);
// @ts-expect-error -- a function is missing
handlers.batchWorker("lacks", {});
BatchConfig.of([{ items: ["a"] }, { start: 1, end: 2, size: 1 }]);
const found: Handler = handlers.find("needs");
found satisfies Handler;

const plain: Handler = async (ctx: StepContext) => {
  const n: number = ctx.field("n", Number),
    or: string = ctx.fieldOr("s", ""),
    whole: Order = ctx.contextAs(order),
    loaded: Order = await ctx.result("load", order);
  const { values, missing } = await ctx.batchValues("rows", Number),
    total: number = values.reduce((sum, b) => sum + b.value, missing);
  await ctx.checkpoint({ page: n }, 1, [total]);
  ctx.metadata({ took: 1 });
  ctx.onRecorded((accepted) => ctx.logger.info("ended", { accepted }));
  ctx.publish("ordered", { whole, loaded });
  const parent: string | undefined = ctx.parentCorrelationId,
    left: Date | undefined = ctx.deadline,
    token: bigint = ctx.token;
  if (ctx.isLastAttempt) throw new Permanent("no", { code: "N", details: { parent, left, token } });
  if (ctx.isRetry) throw new Retryable("busy", { after: 5 });
  if (!ctx.saved) throw new Yield(1, 1);
  return new Continue(
    { or, bytes: new Bytes(new Uint8Array()), price: new Decimal("1.5") },
    { name: "next", delay: 1 },
  );
};
handlers.handler("plain", plain, "refund");

const publisher: Publisher = {
  name: "p",
  payload: ({ result }) => result,
  metadata: async () => ({ by: "me" }),
  failed(event, error) {
    console.log(event.name, error);
  },
};
const subscriber: Subscriber = {
  name: "s",
  patterns: ["payment.*"],
  handle: (event: DomainEvent) => console.log(event.metadata.fired_at),
};
const resolver: Resolver = {
  name: "r",
  callables: ["service://*"],
  canResolve: ({ callable }) => callable !== "",
  resolve: async () => ({ call: plain }),
};
handlers.publisher(publisher);
handlers.subscribe(subscriber);
handlers.resolver(resolver);

export async function main(): Promise<void> {
  const worker = new Worker({
    url: "http://localhost:8081",
    namespaces: ["shop"],
    hooks: { after: (ctx, outcome) => console.log(ctx.stepName, outcome) },
  });
  worker.include(await discover(new URL("handlers", import.meta.url)));
  const count: number = await worker.discover("handlers");
  const end: Outcome = await runStep(plain, { publishers: [publisher] }),
    engine = await startEngine({ handlers });
  const { results } = await engine.run("order", { count }),
    task = await new Client().run({ namespace: "shop", name: "order", context: { end, results } });
  const status: string = task.status;
  console.log(status, (await apiCall("GET", "http://localhost")).check().body);
  await worker.run();
}

// Handlers that were written for Tasker's package.
const made: StepHandlerClass = compat.defineHandler(
  "made",
  { depends: { order: "load" }, inputs: { amount: "amount" } },
  async ({ order, amount, context }) => {
    if (!amount) throw new compat.PermanentError("no amount", { order });
    const n: number = context.getInputOr("n", 1),
      text: string | undefined = context.getInput<string>("s"),
      loaded = context.getDependencyResult<Order>("load");
    return { id: loaded?.id, sum: n + Number(amount), text };
  },
);
const later: HandlerFn = async ({ context }) => ({ step: context.stepName });
compat.defineHandler("later", {}, later);
compat.defineDecisionHandler("decides", {}, async ({ order }) =>
  (order as Order).amount > 1 ? compat.Decision.route(["a"], { why: 1 }) : compat.Decision.skip("small"),
);
compat.defineBatchAnalyzer("divides", { workerTemplate: "w" }, async () => ({ totalItems: 7, batchSize: 2 }));
compat.defineBatchWorker("works", {}, async ({ batchContext }) => {
  const batch: BatchWorkerContext | null = batchContext;
  return { from: batch?.startCursor };
});
compat.defineApiHandler("calls", { baseUrl: "http://localhost" }, async ({ api }) => {
  const answer = await api.get("/users", { page: 1 });
  return answer.ok ? api.apiSuccess(answer) : api.apiFailure(answer);
});

class Calls extends compat.ApiHandler {
  static override handlerName = "calls";
  static override baseUrl = "http://localhost";

  async call(context: CompatContext): Promise<StepHandlerResult> {
    try {
      return this.apiSuccess(await this.post("/users", { body: { id: context.taskUuid } }));
    } catch (e) {
      return this.connectionError(e as Error, "posting");
    }
  }
}

class Publishes extends compat.BasePublisher {
  readonly publisherName = "publishes";

  override transformPayload(result: compat.StepResult): Record<string, unknown> {
    return { of: result.result, ok: result.success };
  }
}

class Hears extends compat.BaseSubscriber {
  static override subscribesTo(): string[] {
    return ["payment.*"];
  }

  async handle(event: CompatEvent): Promise<void> {
    this.logger.info({ name: event.eventName }, "heard");
  }
}

class Resolves implements compat.BaseResolver {
  readonly name = "resolves";
  readonly priority = 20;

  canResolve(definition: HandlerDefinition): boolean {
    return definition.callable === "calls";
  }

  async resolve(): Promise<ExecutableHandler> {
    return new Calls();
  }
}

export async function serve(): Promise<TaskResponse> {
  const server = new compat.WorkerServer(),
    system = (await server.start({ namespace: "shop" })).getHandlerSystem();
  system.register(made.handlerName, made);
  system.register(Calls.handlerName, Calls);
  await system.addResolver(new Resolves());
  compat.PublisherRegistry.instance.register(new Publishes());
  compat.SubscriberRegistry.instance.register(Hears);
  server.getEventSystem()?.getEmitter().on("step.execution.received", ({ event }: StepExecutionReceivedPayload) => {
    console.log(event.stepUuid);
  });
  const client = await compat.getTaskerClient();
  return client.createTask({ name: "order", namespace: "shop", context: { id: 7 } });
}
