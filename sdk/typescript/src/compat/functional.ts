/** Handlers that are functions, in the style of Tasker's package: classes that a registry takes are made of them. */

import { Cancelled, Returned, TaskerError as NativeError, Yield, isA, textOf, type Json } from "../errors.js";
import { applyBatchable, type BatchWorkerContext } from "./batch.js";
import type { StepContext } from "./context.js";
import { StepHandler, applyAPI, applyDecision, type APICapable } from "./handler.js";
import type { StepHandlerClass } from "./registry.js";
import { ErrorType, PermanentError, RetryableError, StepHandlerResult } from "./result.js";

type Fields = Record<string, Json>;

/** What a function gets beside its context: each argument by its name. */
export interface HandlerOptions {
  /** The steps whose results are arguments. */
  depends?: Record<string, string>;
  /** The fields of the task's context that are arguments. */
  inputs?: Record<string, string>;
  /** Default "1.0.0". */
  version?: string;
}

export type HandlerArgs = Record<string, unknown> & { context: StepContext };

/** What a function may return: fields are the result, nothing is an empty one. */
type Returns = object | string | number | boolean | null | undefined | void;
type Fn<A, R> = (args: A) => R | Promise<R>;

export type HandlerFn = Fn<HandlerArgs, Returns>;

/** What a decision function returns. */
export class Decision {
  private constructor(
    readonly type: "create_steps" | "no_branches",
    readonly steps: string[],
    readonly reason: string | undefined,
    readonly routingContext: Fields,
  ) {}

  /** Creates steps. */
  static route(steps: string[], routingContext: Fields = {}): Decision {
    return new Decision("create_steps", steps, undefined, routingContext);
  }

  /** Creates no steps. */
  static skip(reason: string, routingContext: Fields = {}): Decision {
    return new Decision("no_branches", [], reason, routingContext);
  }
}

/** What an analyzer function returns. */
export class BatchConfig {
  totalItems = 0;
  batchSize = 0;
  metadata?: Fields;
}

export interface BatchAnalyzerOptions extends HandlerOptions {
  /** The step whose batches are created; default: the one that the template names. */
  workerTemplate?: string;
}

export interface ApiHandlerOptions extends HandlerOptions {
  baseUrl: string;
  /** In milliseconds; default 30,000. */
  defaultTimeout?: number;
  defaultHeaders?: Record<string, string>;
}

/** The client of a service, and where that is. */
export type ServiceClient = APICapable & {
  readonly baseUrl: string;
  readonly timeout: number;
  readonly defaultHeaders: Record<string, string>;
};
export type ApiHandlerArgs = HandlerArgs & { api: ServiceClient };
export type BatchWorkerArgs = HandlerArgs & { batchContext: BatchWorkerContext | null };

export function defineHandler(name: string, options: HandlerOptions, fn: HandlerFn): StepHandlerClass {
  return defined(name, options, fn, {});
}

/** The function returns a Decision. */
export function defineDecisionHandler(
  name: string,
  options: HandlerOptions,
  fn: Fn<HandlerArgs, Decision | Returns>,
): StepHandlerClass {
  return defined(name, options, fn, {
    capabilities: ["process", "decision", "routing"],
    finish(returned, handler) {
      if (!(returned instanceof Decision)) return resultOf(returned);
      const { type, steps, reason, routingContext } = returned;
      const decides = applyDecision(handler);
      return type === "create_steps"
        ? decides.decisionSuccess(steps, routingContext)
        : decides.skipBranches(reason, routingContext);
    },
  });
}

/** The function returns a BatchConfig. */
export function defineBatchAnalyzer(
  name: string,
  options: BatchAnalyzerOptions,
  fn: Fn<HandlerArgs, BatchConfig | Returns>,
): StepHandlerClass {
  return defined(name, options, fn, {
    finish(returned, handler) {
      const { totalItems, batchSize, metadata = {} } = (returned ?? {}) as Partial<BatchConfig>;
      if (typeof totalItems !== "number" || typeof batchSize !== "number") return resultOf(returned);
      const batches = applyBatchable(handler),
        cursors = batches.createCursorRanges(totalItems, batchSize);
      const numbered = cursors.map((c, i) => ({
        batch_id: `batch_${String(i).padStart(3, "0")}`,
        start_cursor: c.startCursor,
        end_cursor: c.endCursor,
        batch_size: c.endCursor - c.startCursor,
      }));
      const end = batches.batchSuccess(options.workerTemplate ?? "", numbered, metadata, totalItems);
      end.metadata = { batch_count: cursors.length, total_items: totalItems, ...metadata };
      return end;
    },
  });
}

/** The function gets its batch as batchContext, null where the step is none. */
export function defineBatchWorker(
  name: string,
  options: HandlerOptions,
  fn: Fn<BatchWorkerArgs, Returns>,
): StepHandlerClass {
  return defined(name, options, fn, {
    more: (handler, context) => ({ batchContext: applyBatchable(handler).getBatchContext(context) }),
  });
}

/** The function gets the client of the service as api. */
export function defineApiHandler(
  name: string,
  options: ApiHandlerOptions,
  fn: Fn<ApiHandlerArgs, Returns>,
): StepHandlerClass {
  const { baseUrl, defaultTimeout = 30_000, defaultHeaders = {} } = options;
  return defined(name, options, fn, {
    settings: { baseUrl, defaultTimeout, defaultHeaders },
    made: (handler) => void applyAPI(handler),
    more: (handler) => ({ api: handler as unknown as ServiceClient }),
  });
}

/** What makes one kind of function differ from a plain one. */
interface Kind<M> {
  capabilities?: string[];
  /** Static fields of the class. */
  settings?: Fields;
  /** Completes a new handler. */
  made?: (handler: StepHandler) => void;
  /** Arguments that only this kind has. */
  more?: (handler: StepHandler, context: StepContext) => M;
  /** Makes the result of what was returned. */
  finish?: (returned: unknown, handler: StepHandler) => StepHandlerResult;
}

/** The class of a function. */
function defined<M extends object, R>(
  name: string,
  { depends = {}, inputs = {}, version = "1.0.0" }: HandlerOptions,
  fn: Fn<HandlerArgs & M, R>,
  { capabilities, settings = {}, made, more, finish = resultOf }: Kind<M>,
): StepHandlerClass {
  class Defined extends StepHandler {
    static override handlerName = name;
    static override handlerVersion = version;

    constructor() {
      super();
      made?.(this);
    }

    override get capabilities(): string[] {
      return capabilities ?? super.capabilities;
    }

    async call(context: StepContext): Promise<StepHandlerResult> {
      try {
        const args: Record<string, unknown> = { context };
        for (const [argument, step] of Object.entries(depends)) args[argument] = context.getDependencyResult(step);
        for (const [argument, field] of Object.entries(inputs)) args[argument] = context.getInput(field);
        Object.assign(args, more?.(this, context));
        const returned: unknown = await fn(args as HandlerArgs & M);
        return returned instanceof StepHandlerResult ? returned : finish(returned, this);
      } catch (e) {
        return failureOf(e);
      }
    }
  }
  Object.defineProperty(Defined, "name", { value: name });
  return Object.assign(Defined, settings);
}

function resultOf(returned: unknown): StepHandlerResult {
  if (returned === undefined || returned === null) return StepHandlerResult.success({});
  const fields = typeof returned === "object" && !Array.isArray(returned);
  return StepHandlerResult.success(fields ? (returned as Fields) : { result: returned });
}

/** The failure for what a function has thrown. What is not a failure of it goes on to the worker. */
function failureOf(thrown: unknown): StepHandlerResult {
  if (isA(thrown, PermanentError) || isA(thrown, RetryableError)) {
    const { message, metadata, retryable, marks } = thrown;
    const usual = retryable ? ErrorType.RETRYABLE_ERROR : ErrorType.PERMANENT_ERROR,
      type = isA(thrown, PermanentError) ? thrown.ownType : undefined;
    const end = StepHandlerResult.failure(message, type ?? usual, retryable, metadata, marks.code);
    end.retryAfter = marks.after;
    return end;
  }
  for (const worker of [NativeError, Yield, Cancelled, Returned]) if (isA(thrown, worker)) throw thrown;
  const kind = isA(thrown, Error) ? thrown.constructor.name : typeof thrown;
  return StepHandlerResult.failure(textOf(thrown), ErrorType.HANDLER_ERROR, true, { errorType: kind });
}
