/** Handlers: functions with injected arguments, decisions and batches; and what belongs to them. */

import { converted, type Batch, type Convert, type StepContext } from "./context.js";
import { Absent, Permanent, type Json } from "./errors.js";
import type { Publisher, Subscriber } from "./events.js";
import type { Resolver } from "./resolving.js";

export type Handler = (ctx: StepContext) => Json | Promise<Json>;
export type Injected = (ctx: StepContext, values: Record<string, Json>) => Json | Promise<Json>;

/** The result of a step as an argument. */
export interface ResultNeed<T = Json> {
  step: string;
  /** Converts it. */
  as?: Convert<T>;
  /** Stands for a result that does not exist. */
  absent?: T;
}

/** A field of the task's context as an argument. */
export interface InputNeed<T = Json> {
  /** The field; default: the name of the argument. */
  field?: string;
  /** Converts it. */
  as?: Convert<T>;
  /** Stands for a field that does not exist. */
  absent?: T;
  /** Without the field the argument is undefined. */
  optional?: boolean;
}

/** What a function gets beside the context of its step. */
export interface Needs {
  /** Results of steps: name of the argument to the step, or to the step and how its result is converted. */
  dependsOn?: Readonly<Record<string, string | ResultNeed<any>>>;
  /**
   * Fields of the task's context: their names, which must exist, or each with how it is converted and whether it may
   * be absent.
   */
  inputs?: readonly string[] | Readonly<Record<string, InputNeed<any>>>;
}

type ValueOf<N> =
  | (N extends { as: Convert<infer T> } ? T : Json)
  | (N extends { optional: true } ? undefined : never)
  | (N extends { absent: infer A } ? A : never);
type ResultsOf<N> = N extends { dependsOn: infer D } ? { [K in keyof D]: ValueOf<D[K]> } : unknown;
type InputsOf<N> = N extends { inputs: infer I }
  ? I extends readonly (infer F)[]
    ? { [K in F & string]: Json }
    : { [K in keyof I]: ValueOf<I[K]> }
  : unknown;

/** The arguments that needs ask for. */
export type ValuesOf<N extends Needs> = ResultsOf<N> & InputsOf<N> extends infer V
  ? V extends object
    ? { -readonly [K in keyof V]: V[K] }
    : Record<string, Json>
  : never;

/** What a decision creates: the named steps, or none. */
export class Decision {
  private constructor(
    readonly steps: string[],
    readonly fields: Record<string, Json> = {},
  ) {}

  static route(...steps: string[]): Decision {
    if (steps.length === 0) throw new TypeError("route a decision: want at least one step; skip is for none");
    return new Decision(steps);
  }

  static skip(): Decision {
    return new Decision([]);
  }

  /** Adds a field to the result, such as why the decision was made. */
  with(name: string, value: Json): Decision {
    return new Decision(this.steps, { ...this.fields, [name]: value });
  }

  outcome(): Json {
    return this.steps.length === 0 ? { type: "no_branches" } : { type: "create_steps", step_names: this.steps };
  }
}

/** The part of one batch, with cursors of any kind, or with its items. */
export interface BatchCursor {
  start?: Json;
  /** It is not included. */
  end?: Json;
  /** Default: the number of items. */
  size?: number;
  /** The items of the batch, instead of those between cursors. */
  items?: Json[];
  /** Default: its number, such as 001. */
  id?: string;
}

/**
 * How a batchable step divides its items: in batches of batchSize, or larger ones if there would be more than
 * maxBatches; or with cursors of its own.
 */
export class BatchConfig {
  private own: BatchCursor[] | undefined;

  constructor(
    readonly totalItems: number,
    readonly batchSize: number,
    readonly maxBatches = 0,
    readonly result: Record<string, Json> = {},
  ) {}

  /** Batches with cursors of their own, such as times or keys: no cursors are no batches. */
  static of(
    cursors: BatchCursor[],
    totalItems = cursors.reduce((sum, c) => sum + sizeOf(c), 0),
    result: Record<string, Json> = {},
  ): BatchConfig {
    const config = new BatchConfig(totalItems, 1, 0, result);
    config.own = cursors;
    return config;
  }

  /** Adds a field to the result, for the steps that depend on it. */
  with(name: string, value: Json): BatchConfig {
    const config = new BatchConfig(this.totalItems, this.batchSize, this.maxBatches, { ...this.result, [name]: value });
    config.own = this.own;
    return config;
  }

  outcome(workerTemplate: string): Json {
    const cursors = this.cursors().map((c, i) => ({
      batch_id: c.id ?? String(i + 1).padStart(3, "0"),
      start_cursor: c.start ?? null,
      end_cursor: c.end ?? null,
      batch_size: sizeOf(c),
      ...(c.items ? { items: c.items } : {}),
    }));
    if (cursors.length === 0) return { type: "no_batches" };
    return {
      type: "create_batches",
      worker_template_name: workerTemplate,
      worker_count: cursors.length,
      cursor_configs: cursors,
      total_items: this.totalItems,
    };
  }

  private cursors(): BatchCursor[] {
    if (this.own) return this.own;
    const total = this.totalItems;
    if (!(total >= 0) || !(this.batchSize >= 1)) {
      throw new Permanent(`invalid batches of ${this.batchSize} of ${total} items`, { errorType: "InvalidBatches" });
    }
    const fewest = this.maxBatches > 0 ? Math.ceil(total / this.maxBatches) : 0,
      size = Math.max(this.batchSize, fewest);
    const cursors = [];
    for (let start = 0; start < total; start += size) {
      const end = Math.min(start + size, total);
      cursors.push({ start, end, size: end - start });
    }
    return cursors;
  }
}

function sizeOf({ size, items }: BatchCursor): number {
  return size ?? items?.length ?? 0;
}

/**
 * A collection of handlers, publishers, subscribers and resolvers, which Worker.include takes over. A Worker is one
 * itself.
 */
export class Handlers {
  protected readonly known = new Map<string, Map<string, Handler>>();
  protected readonly publishers = new Map<string, Publisher>();
  protected readonly subscribers: Subscriber[] = [];
  protected readonly resolvers = new Map<string, Resolver>();

  /** Registers a function as the handler of a callable, or of one of its methods. */
  handler(callable: string, handler: Handler, method = "call"): void {
    if (typeof handler !== "function") throw new TypeError(`register handler ${callable}: want a function`);
    const methods = this.known.get(callable) ?? new Map<string, Handler>();
    if (methods.has(method))
      throw new TypeError(`register handler ${callable}: the method ${method} is already registered`);
    methods.set(method, handler);
    this.known.set(callable, methods);
  }

  /** Registers an object: its method call, and further methods by their names. */
  register(callable: string, object: object): void {
    const names = methodsOf(object);
    if (names.length === 0) throw new TypeError(`register handler ${callable}: want an object with methods`);
    for (const name of names) this.handler(callable, (ctx) => (object as Record<string, Handler>)[name]!(ctx), name);
  }

  /** Registers a publisher of declared events by its name (publishes_events[].publisher of templates). */
  publisher(publisher: Publisher): void {
    const { name } = publisher;
    if (!name) throw new TypeError("register a publisher: want a name");
    if (this.publishers.has(name)) throw new TypeError(`register publisher ${name}: the name is already registered`);
    this.publishers.set(name, publisher);
  }

  /** Calls a subscriber with the fast domain events whose names fit its patterns. */
  subscribe(subscriber: Subscriber): void {
    if (subscriber.patterns.length === 0)
      throw new TypeError(`register subscriber ${subscriber.name}: want at least one pattern`);
    this.subscribers.push(subscriber);
  }

  /** Registers a resolver, which finds handlers of callables that are not registered. */
  resolver(resolver: Resolver): void {
    const { name } = resolver;
    if (!name) throw new TypeError("register a resolver: want a name");
    if (resolver.callables.length === 0)
      throw new TypeError(`register resolver ${name}: want callables that it resolves`);
    if (this.resolvers.has(name)) throw new TypeError(`register resolver ${name}: the name is already registered`);
    this.resolvers.set(name, resolver);
  }

  /** The handler that is registered, as a worker calls it: for tests, with runStep. */
  find(callable: string, method = "call"): Handler {
    const found = this.known.get(callable)?.get(method);
    if (!found) throw new TypeError(`no handler of ${callable} with the method ${method}`);
    return found;
  }

  /** Registers the handlers, publishers, subscribers and resolvers of another collection. */
  include(others: Handlers): void {
    others.addTo(this);
  }

  protected addTo(other: Handlers): void {
    for (const [callable, methods] of this.known) {
      for (const [method, handler] of methods) other.handler(callable, handler, method);
    }
    for (const publisher of this.publishers.values()) other.publisher(publisher);
    for (const subscriber of this.subscribers) other.subscribe(subscriber);
    for (const resolver of this.resolvers.values()) other.resolver(resolver);
  }

  /** Registers a function that gets the context, and results of steps and fields of the task's context. */
  step<const N extends Needs>(
    callable: string,
    needs: N,
    handler: (ctx: StepContext, values: ValuesOf<N>) => Json | Promise<Json>,
  ): void {
    this.handler(callable, async (ctx) => handler(ctx, (await valuesOf(ctx, needs)) as ValuesOf<N>));
  }

  /** Like step, for a function that returns a Decision. */
  decision<const N extends Needs>(
    callable: string,
    needs: N,
    handler: (ctx: StepContext, values: ValuesOf<N>) => Decision | Promise<Decision>,
  ): void {
    this.handler(callable, async (ctx) => {
      const decided: unknown = await handler(ctx, (await valuesOf(ctx, needs)) as ValuesOf<N>);
      if (!(decided instanceof Decision))
        throw new Permanent("a decision must return Decision.route or Decision.skip", { errorType: "InvalidOutcome" });
      return { ...decided.fields, route: decided.steps, decision_point_outcome: decided.outcome() };
    });
  }

  /** Like step, for a function that returns a BatchConfig. */
  batchAnalyzer<const N extends Needs>(
    callable: string,
    workerTemplate: string,
    needs: N,
    handler: (ctx: StepContext, values: ValuesOf<N>) => BatchConfig | Promise<BatchConfig>,
  ): void {
    this.handler(callable, async (ctx) => {
      const config: unknown = await handler(ctx, (await valuesOf(ctx, needs)) as ValuesOf<N>);
      if (!(config instanceof BatchConfig))
        throw new Permanent("an analyzer must return a BatchConfig", { errorType: "InvalidOutcome" });
      return { ...config.result, batch_processing_outcome: config.outcome(workerTemplate) };
    });
  }

  /**
   * Registers a function of the context and the batch, whose cursors are of type C, and of what it needs. It is not
   * called for a batch without work.
   */
  batchWorker<C = number>(
    callable: string,
    handler: (ctx: StepContext, batch: Batch<C>) => Json | Promise<Json>,
  ): void;
  batchWorker<const N extends Needs, C = number>(
    callable: string,
    needs: N,
    handler: (ctx: StepContext, batch: Batch<C>, values: ValuesOf<N>) => Json | Promise<Json>,
  ): void;
  batchWorker(callable: string, ...rest: [BatchHandler] | [Needs, BatchHandler]): void {
    const [needs, handler] = rest.length === 1 ? [{}, rest[0]] : rest;
    if (typeof handler !== "function") throw new TypeError(`register handler ${callable}: want a function`);
    this.handler(callable, async (ctx) => {
      if (!ctx.batch) throw new Permanent(`step ${ctx.stepName} is not a batch`, { errorType: "NotABatch" });
      return ctx.batch.noOp ? { no_op: true } : handler(ctx, ctx.batch, await valuesOf(ctx, needs));
    });
  }
}

type BatchHandler = (ctx: StepContext, batch: Batch<any>, values: any) => Json | Promise<Json>;

/** The names of the methods of an object, its own and those of its classes; getters are not called. */
export function methodsOf(object: object): string[] {
  const names = new Set<string>();
  for (
    let o: object | null = object;
    o !== Object.prototype && o !== null;
    o = Object.getPrototypeOf(o) as object | null
  ) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(o))) {
      if (name !== "constructor" && !name.startsWith("_") && typeof value === "function") names.add(name);
    }
  }
  return [...names];
}

/** The arguments by their names, which may be any, such as __proto__. */
async function valuesOf(ctx: StepContext, needs: Needs): Promise<Record<string, Json>> {
  const values: [string, Json][] = [],
    missing: string[] = [];
  for (const [name, need] of Object.entries(needs.dependsOn ?? {})) {
    values.push([name, typeof need === "string" ? await ctx.result(need) : await resultOf(ctx, need)]);
  }
  const context = (typeof ctx.context === "object" && ctx.context !== null ? ctx.context : {}) as Record<string, Json>;
  const inputs: [string, InputNeed][] = isList(needs.inputs)
    ? needs.inputs.map((name) => [name, {}])
    : Object.entries(needs.inputs ?? {});
  for (const [name, need] of inputs) {
    const field = need.field ?? name;
    if (Object.hasOwn(context, field))
      values.push([name, converted(context[field], need.as, `the field ${field} of the task's context`)]);
    else if (Object.hasOwn(need, "absent") || need.optional) values.push([name, need.absent]);
    else missing.push(field);
  }
  if (missing.length > 0) {
    throw new Permanent(`the task's context lacks ${missing.join(", ")}`, {
      code: "MISSING_CONTEXT_FIELD",
      errorType: "InvalidInput",
    });
  }
  return Object.fromEntries(values);
}

function isList(inputs: Needs["inputs"]): inputs is readonly string[] {
  return Array.isArray(inputs);
}

async function resultOf(ctx: StepContext, need: ResultNeed): Promise<Json> {
  try {
    return await ctx.result(need.step, need.as);
  } catch (e) {
    if (e instanceof Absent && Object.hasOwn(need, "absent")) return need.absent;
    throw e;
  }
}
