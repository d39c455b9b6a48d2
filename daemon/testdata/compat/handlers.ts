// Handlers as they are written for Tasker's TypeScript package, but for the name of the package.
import {
  APICapable,
  ApiHandler,
  BasePublisher,
  BaseSubscriber,
  BatchableStepHandler,
  Decision,
  DecisionHandler,
  DomainEvent,
  ErrorType,
  InProcessDomainEvent,
  PermanentError,
  RetryableError,
  StepEventContext,
  StepHandler,
  SubscriberResult,
  applyAPI,
  applyDecision,
  defineApiHandler,
  defineBatchAnalyzer,
  defineBatchWorker,
  defineDecisionHandler,
  defineHandler,
} from "@tasker-go/tasker/compat";
import type {
  BatchableResult,
  DecisionCapable,
  HandlerRegistry,
  StepContext,
  StepHandlerResult,
} from "@tasker-go/tasker/compat";

// Linear

export class DoubleHandler extends StepHandler {
  static handlerName = "double_value";
  static handlerVersion = "1.0.0";

  async call(context: StepContext): Promise<StepHandlerResult> {
    const value = context.getInput<number>("value") ?? 0;
    return this.success({ result: value * 2, operation: "double" }, { duration_ms: 3 });
  }
}

export class AddHandler extends StepHandler {
  static handlerName = "add_constant";

  async call(context: StepContext): Promise<StepHandlerResult> {
    const prev = context.getDependencyResult("double_value") as { result: number } | null;
    return this.success({ result: (prev?.result ?? 0) + context.getInputOr("constant", 10), operation: "add" });
  }

  async subtract(context: StepContext): Promise<StepHandlerResult> {
    const prev = context.getDependencyField<number>("add_constant", "result") ?? 0;
    const first = context.getDependencyResult("double_value") as { result: number }; // not a direct parent
    return this.success({
      result: prev - first.result,
      retries: context.retryCount,
      by: context.getConfig<string>("by"),
    });
  }
}

// Diamond

export class DiamondStartHandler extends StepHandler {
  static handlerName = "diamond_start";

  async call(context: StepContext): Promise<StepHandlerResult> {
    const input = context.getInput<number>("value") ?? 0;
    return this.success({ squared: input * input });
  }
}

export class BranchBHandler extends StepHandler {
  static handlerName = "branch_b";

  async call(context: StepContext): Promise<StepHandlerResult> {
    const start = context.getDependencyResult("diamond_start") as { squared: number };
    return this.success({ result: start.squared + 25 });
  }
}

export class BranchCHandler extends StepHandler {
  static handlerName = "branch_c";

  async call(context: StepContext): Promise<StepHandlerResult> {
    const start = context.getDependencyResult("diamond_start") as { squared: number };
    return this.success({ result: start.squared * 2 });
  }
}

export class DiamondEndHandler extends StepHandler {
  static handlerName = "diamond_end";

  async call(context: StepContext): Promise<StepHandlerResult> {
    const branchB = context.getDependencyResult("branch_b") as { result: number };
    const branchC = context.getDependencyResult("branch_c") as { result: number };
    return this.success({ final: (branchB.result + branchC.result) / 2 });
  }
}

// Decision

export class RoutingDecisionHandler extends DecisionHandler {
  static handlerName = "routing_decision";
  static handlerVersion = "1.0.0";

  async call(context: StepContext): Promise<StepHandlerResult> {
    const amount = context.getInput<number>("amount") ?? 0;
    if (amount === 0) {
      return this.decisionNoBranches("condition not met");
    }
    if (amount < 1000) {
      return this.decisionSuccess(["auto_approve"], { route_type: "auto", amount });
    } else if (amount < 5000) {
      return this.decisionSuccess(["manager_approval"], { route_type: "manager", amount });
    }
    return this.decisionSuccess(["manager_approval", "finance_review"], { route_type: "dual", amount });
  }
}

export class ApproveHandler extends StepHandler {
  static handlerName = "approve";

  async call(context: StepContext): Promise<StepHandlerResult> {
    const route = context.getDependencyResult("routing_decision");
    return this.success({
      approved_by: context.stepName,
      route: route?.route_type ?? route?.routing_context?.route_type,
    });
  }
}

export class FinalizeHandler extends StepHandler {
  static handlerName = "finalize";

  async call(context: StepContext): Promise<StepHandlerResult> {
    const approvals = Object.values(context.dependencyResults) as Array<{ approved_by?: string }>;
    return this.success({
      approvals: approvals
        .map((a) => a.approved_by)
        .filter(Boolean)
        .sort(),
    });
  }
}

// Batches

export class CsvAnalyzerHandler extends BatchableStepHandler {
  static handlerName = "csv_analyzer";
  static handlerVersion = "1.0.0";

  async call(context: StepContext): Promise<BatchableResult> {
    const rowCount = context.getInput<number>("rows") ?? 0;
    if (rowCount === 0) {
      return this.noBatchesResult("empty_dataset", { analyzed: true });
    }
    const batchConfigs = this.createCursorConfigs(rowCount, 3);
    return this.batchSuccess("process_csv_batch", batchConfigs, { factor: 2, total_rows: rowCount });
  }
}

export class CsvBatchProcessorHandler extends BatchableStepHandler {
  static handlerName = "csv_batch_processor";

  async call(context: StepContext): Promise<StepHandlerResult> {
    const noOpResult = this.handleNoOpWorker(context);
    if (noOpResult) {
      return noOpResult;
    }
    const batchInputs = this.getBatchWorkerInputs(context);
    const cursor = batchInputs?.cursor;
    if (!cursor) {
      return this.failure("Missing batch cursor", "batch_error", false);
    }
    const { factor } = context.getDependencyResult("analyze_csv") as { factor: number };
    const batchCtx = this.getBatchContext(context)!;
    const start: number = batchCtx.hasCheckpoint() ? batchCtx.checkpointCursor : cursor.start_cursor;
    let sum: number = batchCtx.accumulatedResults?.sum ?? 0;
    for (let row = start; row < cursor.end_cursor; row++) {
      sum += row * factor;
      const done = row + 1 - cursor.start_cursor;
      if (done % 4 === 0 && row + 1 < cursor.end_cursor) {
        await this.checkpointYield({ cursor: row + 1, itemsProcessed: done, accumulatedResults: { sum } });
      }
    }
    return this.batchWorkerSuccess({
      processedCount: cursor.end_cursor - cursor.start_cursor,
      results: { sum, resumed: start > cursor.start_cursor },
    });
  }
}

export class CsvAggregatorHandler extends StepHandler {
  static handlerName = "csv_aggregator";

  async call(context: StepContext): Promise<StepHandlerResult> {
    const workerResults = context.getAllDependencyResults("process_csv_batch") as Array<{
      items_processed: number;
      results?: { sum: number; resumed: boolean };
    } | null>;
    let sum = 0;
    let resumed = 0;
    for (const result of workerResults) {
      sum += result?.results?.sum ?? 0;
      resumed += result?.results?.resumed ? 1 : 0;
    }
    const totals = BatchableStepHandler.aggregateWorkerResults(workerResults);
    return this.success({
      sum,
      resumed,
      total: totals.total_processed,
      batches: totals.batch_count,
      workers: workerResults.length,
    });
  }
}

// Calls of a service

export class FetchUserHandler extends ApiHandler {
  static handlerName = "fetch_user";
  static handlerVersion = "1.0.0";

  protected baseUrl = process.env.SERVICE_URL ?? "https://api.example.com";

  async call(context: StepContext): Promise<StepHandlerResult> {
    const userId = context.getInput<string>("user_id");
    const response = await this.get(`/users/${userId}`, {
      params: { attempt: context.retryCount },
      headers: { "X-Key": "k" },
    });
    if (!response.ok) {
      return this.apiFailure(response);
    }
    return this.apiSuccess(response);
  }
}

export class NotifyAndRouteHandler extends StepHandler implements APICapable, DecisionCapable {
  static handlerName = "notify_and_route";

  constructor() {
    super();
    applyAPI(this);
    applyDecision(this);
  }

  async call(context: StepContext): Promise<StepHandlerResult> {
    const response = await this.post(`${process.env.SERVICE_URL}/notes`, {
      body: { user: context.getDependencyField("fetch_user", "name") },
    });
    return response.statusCode === 201 ? this.decisionSuccess(["done"], response.body) : this.apiFailure(response);
  }
}

export class DoneHandler extends StepHandler {
  static handlerName = "done";

  async call(): Promise<StepHandlerResult> {
    return this.success();
  }
}

// Failures

export class RetryableErrorHandler extends StepHandler {
  static handlerName = "retryable_error";

  async call(context: StepContext): Promise<StepHandlerResult> {
    if (context.isRetry()) return this.success({ attempt: context.retryCount });
    return this.failure("Connection timeout - will be retried", ErrorType.RETRYABLE_ERROR, true, {
      attempt: context.retryCount,
    });
  }
}

export class PermanentErrorHandler extends StepHandler {
  static handlerName = "permanent_error";

  async call(): Promise<StepHandlerResult> {
    return this.failure(
      "Invalid input - no retry allowed",
      ErrorType.PERMANENT_ERROR,
      false,
      { field: "a" },
      "INVALID_INPUT",
    );
  }
}

// Functions: parcels are weighed, and go by truck or by plane in batches

interface Order {
  customer: string;
  parcels: number;
}

export const LookUp = defineApiHandler(
  "look_up",
  { baseUrl: process.env.SERVICE_URL ?? "", inputs: { user: "user_id" }, defaultHeaders: { "X-Key": "k" } },
  async ({ user, api, context }) => {
    const answer = await api.get(`/users/${user}`, { attempt: context.retryCount });
    const { name } = answer.body as { name: string };
    return answer.ok ? api.apiSuccess(answer, { customer: name }) : api.apiFailure(answer);
  },
);

export const Weigh = defineHandler(
  "weigh",
  { depends: { who: "look_up" }, inputs: { parcels: "parcels" }, version: "2.0.0" },
  async ({ who, parcels, context }) => {
    if (typeof parcels !== "number") throw new PermanentError("no parcels", { field: "parcels" });
    if (parcels < 0 && !context.isRetry()) throw new RetryableError("the scale is off", { scale: 3 });
    if (parcels > 99) throw new TypeError("the scale breaks");
    const { customer } = who as { customer: string };
    return { customer, parcels: Math.abs(parcels) } satisfies Order;
  },
);

export const Route = defineDecisionHandler("route", { depends: { order: "weigh" } }, async ({ order }) => {
  const { parcels } = order as Order;
  if (parcels === 0) return Decision.skip("nothing to send", { parcels });
  return Decision.route([parcels > 3 ? "fly" : "drive"], { parcels });
});

export const Drive = defineHandler("drive", { depends: { route: "route" } }, async ({ route }) => ({
  driven: (route as { routing_context: { parcels: number } }).routing_context.parcels,
}));

export const Fly = defineHandler("fly", {}, async () => undefined);

export const Pack = defineBatchAnalyzer(
  "pack",
  { inputs: { parcels: "parcels" }, workerTemplate: "load" },
  async ({ parcels }) => ({ totalItems: parcels as number, batchSize: 2, metadata: { packed: true } }),
);

export const Load = defineBatchWorker("load", { depends: { plan: "pack" } }, async ({ batchContext, plan }) => {
  if (!batchContext || batchContext.isNoOp) return { items_processed: 0 };
  return {
    items_processed: batchContext.endCursor - batchContext.startCursor,
    of: (plan as { total_items: number }).total_items,
  };
});

export const Count = defineHandler("count", {}, async ({ context }) => {
  const loads = context.getAllDependencyResults<{ items_processed: number }>("load");
  return loads.reduce((sum, load) => sum + (load?.items_processed ?? 0), 0);
});

// Domain events

export class ProcessPaymentHandler extends StepHandler {
  static handlerName = "process_payment";

  async call(context: StepContext): Promise<StepHandlerResult> {
    return this.success({
      payment_id: "p-1",
      amount: context.getInput<number>("amount"),
      currency: "EUR",
      status: "paid",
      secret: "x",
    });
  }
}

export const published: DomainEvent[] = [];

export class PaymentEventPublisher extends BasePublisher {
  static publisherName = "payment_events";

  publishesFor(): string[] {
    return ["process_payment", "refund_payment"];
  }

  async transformPayload(ctx: StepEventContext): Promise<Record<string, unknown>> {
    return { payment_id: ctx.result?.payment_id, amount: ctx.result?.amount, status: ctx.result?.status };
  }

  async afterPublish(ctx: StepEventContext, event: DomainEvent): Promise<void> {
    published.push(event);
  }

  async additionalMetadata(ctx: StepEventContext): Promise<Record<string, unknown>> {
    return { payment_processor: "stripe", step: ctx.stepName };
  }
}

export const heard: InProcessDomainEvent[] = [];

export class AuditLoggingSubscriber extends BaseSubscriber {
  static subscriberName = "audit_logger";

  subscribesTo(): string[] {
    return ["payment.*", "order.completed"];
  }

  async handle(event: InProcessDomainEvent): Promise<SubscriberResult> {
    heard.push(event);
    return { success: true };
  }
}

export function registerHandlers(registry: HandlerRegistry): void {
  const handlers = [
    DoubleHandler,
    AddHandler,
    DiamondStartHandler,
    BranchBHandler,
    BranchCHandler,
    DiamondEndHandler,
    RoutingDecisionHandler,
    ApproveHandler,
    FinalizeHandler,
    CsvAnalyzerHandler,
    CsvBatchProcessorHandler,
    CsvAggregatorHandler,
    FetchUserHandler,
    NotifyAndRouteHandler,
    DoneHandler,
    RetryableErrorHandler,
    PermanentErrorHandler,
    ProcessPaymentHandler,
  ];
  for (const handler of handlers) registry.register(handler.handlerName, handler);
  for (const made of [LookUp, Weigh, Route, Drive, Fly, Pack, Load, Count]) registry.register(made.handlerName, made);
}
