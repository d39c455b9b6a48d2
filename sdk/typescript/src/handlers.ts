/** Handlers: functions with injected arguments, decisions and batches. */

import type { Batch, StepContext } from "./context.js";
import { Permanent, type Json } from "./errors.js";

export type Handler = (ctx: StepContext) => Json | Promise<Json>;
export type Injected = (ctx: StepContext, values: Record<string, Json>) => Json | Promise<Json>;

export interface Needs {
  /** Results of steps: name of the value to step. */
  dependsOn?: Record<string, string>;
  /** Fields of the task's context, which must exist. */
  inputs?: string[];
}

/** What a decision creates: the named steps, or none. */
export class Decision {
  private constructor(readonly steps: string[]) {}

  static route(...steps: string[]): Decision {
    if (steps.length === 0) throw new TypeError("route a decision: want at least one step; skip is for none");
    return new Decision(steps);
  }

  static skip(): Decision {
    return new Decision([]);
  }

  outcome(): Json {
    return this.steps.length === 0 ? { type: "no_branches" } : { type: "create_steps", step_names: this.steps };
  }
}

/** How a batchable step divides its items: in batches of batchSize, or larger ones if there would be more than maxBatches. */
export class BatchConfig {
  constructor(readonly totalItems: number, readonly batchSize: number, readonly maxBatches = 0, readonly result: Record<string, Json> = {}) {}

  outcome(workerTemplate: string): Json {
    const total = this.totalItems;
    if (total < 0 || this.batchSize < 1) {
      throw new Permanent(`invalid batches of ${this.batchSize} of ${total} items`, { errorType: "InvalidBatches" });
    }
    if (total === 0) return { type: "no_batches" };
    let size = this.batchSize;
    if (this.maxBatches > 0 && Math.ceil(total / size) > this.maxBatches) size = Math.ceil(total / this.maxBatches);
    const cursors = [];
    for (let start = 0; start < total; start += size) {
      const end = Math.min(start + size, total);
      cursors.push({ batch_id: String(cursors.length + 1).padStart(3, "0"), start_cursor: start, end_cursor: end, batch_size: end - start });
    }
    return { type: "create_batches", worker_template_name: workerTemplate, worker_count: cursors.length, cursor_configs: cursors, total_items: total };
  }
}

/** A collection of handlers, which Worker.include takes over. A Worker is one itself. */
export class Handlers {
  protected readonly known = new Map<string, Map<string, Handler>>();

  /** Registers a function as the handler of a callable, or of one of its methods. */
  handler(callable: string, handler: Handler, method = "call"): void {
    const methods = this.known.get(callable) ?? new Map<string, Handler>();
    if (methods.has(method)) throw new TypeError(`register handler ${callable}: the method ${method} is already registered`);
    methods.set(method, handler);
    this.known.set(callable, methods);
  }

  /** Registers an object: its method call, and further methods by their names. */
  register(callable: string, object: object): void {
    const names = new Set<string>();
    for (let o = object; o !== Object.prototype && o !== null; o = Object.getPrototypeOf(o) as object) {
      for (const name of Object.getOwnPropertyNames(o)) names.add(name);
    }
    let registered = 0;
    for (const name of names) {
      const value = (object as Record<string, unknown>)[name];
      if (name === "constructor" || name.startsWith("_") || typeof value !== "function") continue;
      this.handler(callable, (ctx) => (value as Handler).call(object, ctx), name);
      registered++;
    }
    if (registered === 0) throw new TypeError(`register handler ${callable}: want an object with methods`);
  }

  /** Registers the handlers of another collection. */
  include(others: Handlers): void {
    for (const [callable, methods] of others.known) {
      for (const [method, handler] of methods) this.handler(callable, handler, method);
    }
  }

  /** Registers a function that gets the context, and results of steps and fields of the task's context. */
  step(callable: string, needs: Needs, handler: Injected): void {
    this.handler(callable, async (ctx) => handler(ctx, await valuesOf(ctx, needs)));
  }

  /** Like step, for a function that returns a Decision. */
  decision(callable: string, needs: Needs, handler: (ctx: StepContext, values: Record<string, Json>) => Decision | Promise<Decision>): void {
    this.handler(callable, async (ctx) => {
      const decided: unknown = await handler(ctx, await valuesOf(ctx, needs));
      if (!(decided instanceof Decision)) throw new Permanent("a decision must return Decision.route or Decision.skip", { errorType: "InvalidOutcome" });
      return { route: decided.steps, decision_point_outcome: decided.outcome() };
    });
  }

  /** Like step, for a function that returns a BatchConfig. */
  batchAnalyzer(callable: string, workerTemplate: string, needs: Needs,
                handler: (ctx: StepContext, values: Record<string, Json>) => BatchConfig | Promise<BatchConfig>): void {
    this.handler(callable, async (ctx) => {
      const config: unknown = await handler(ctx, await valuesOf(ctx, needs));
      if (!(config instanceof BatchConfig)) throw new Permanent("an analyzer must return a BatchConfig", { errorType: "InvalidOutcome" });
      return { ...config.result, batch_processing_outcome: config.outcome(workerTemplate) };
    });
  }

  /** Registers a function of the context and the batch. It is not called for a batch without work. */
  batchWorker(callable: string, handler: (ctx: StepContext, batch: Batch) => Json | Promise<Json>): void {
    this.handler(callable, (ctx) => {
      if (!ctx.batch) throw new Permanent(`step ${ctx.stepName} is not a batch`, { errorType: "NotABatch" });
      return ctx.batch.noOp ? { no_op: true } : handler(ctx, ctx.batch);
    });
  }
}

async function valuesOf(ctx: StepContext, needs: Needs): Promise<Record<string, Json>> {
  const values: Record<string, Json> = {};
  for (const [name, step] of Object.entries(needs.dependsOn ?? {})) values[name] = await ctx.result(step);
  const context = (typeof ctx.context === "object" && ctx.context !== null ? ctx.context : {}) as Record<string, Json>;
  const missing = (needs.inputs ?? []).filter((name) => !(name in context));
  if (missing.length > 0) {
    throw new Permanent(`the task's context lacks ${missing.join(", ")}`, { code: "MISSING_CONTEXT_FIELD", errorType: "InvalidInput" });
  }
  for (const name of needs.inputs ?? []) values[name] = context[name];
  return values;
}
