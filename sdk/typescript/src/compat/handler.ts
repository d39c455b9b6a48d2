/** Handlers in the style of Tasker's package: classes, and what they can be given. */

import { apiCall } from "../api.js";
import { Permanent, type Json } from "../errors.js";
import { encoded } from "../json.js";
import { applyBatchable, type BatchableCapable } from "./batch.js";
import type { StepContext } from "./context.js";
import { ErrorType, StepHandlerResult } from "./result.js";

type Fields = Record<string, Json>;

/**
 * A step's code: call, and further methods that templates name with handler.method. An object is made for each
 * execution. The methods of APICapable, DecisionCapable and BatchableCapable exist once their apply function was
 * called, or in the classes that do so.
 */
export abstract class StepHandler {
  /** The name under which a registry has the class, where it is given none. */
  static handlerName = "";
  static handlerVersion = "1.0.0";

  abstract call(context: StepContext): StepHandlerResult | Promise<StepHandlerResult>;

  get name(): string {
    const type = this.constructor as typeof StepHandler;
    return type.handlerName || type.name;
  }

  get version(): string {
    return (this.constructor as typeof StepHandler).handlerVersion;
  }

  get capabilities(): string[] {
    return ["process"];
  }

  /** The JSON Schema of the handler's configuration. */
  configSchema(): Fields | null {
    return null;
  }

  success(result: Fields = {}, metadata: Fields = {}): StepHandlerResult {
    return StepHandlerResult.success(result, metadata);
  }

  /** The success of older handlers. */
  successResult({
    result,
    results = result ?? {},
    metadata = {},
  }: { results?: Fields; result?: Fields; metadata?: Fields } = {}): StepHandlerResult {
    return this.success(results, metadata);
  }

  failure(
    message: string,
    errorType?: string,
    retryable?: boolean,
    metadata?: Fields,
    errorCode?: string,
  ): StepHandlerResult;
  failure(
    message: string,
    errorType: string | undefined,
    errorCode: string | undefined,
    retryable?: boolean,
    metadata?: Fields,
  ): StepHandlerResult;
  failure(
    message: string,
    errorType: string = ErrorType.HANDLER_ERROR,
    third?: boolean | string,
    fourth?: Fields | boolean,
    fifth?: string | Fields,
  ): StepHandlerResult {
    const coded = typeof third === "string" || typeof fourth === "boolean";
    const [code, retryable, metadata] = coded ? [third, fourth, fifth] : [fifth, third, fourth];
    return StepHandlerResult.failure(
      message,
      errorType,
      retryable === undefined ? true : Boolean(retryable),
      (metadata ?? {}) as Fields,
      code as string | undefined,
    );
  }
}

/** What capabilities add, so that classes may be written with them. */
export interface StepHandler {
  get(...args: any[]): Promise<any>;
  post(...args: any[]): Promise<any>;
  put(...args: any[]): Promise<any>;
  patch(...args: any[]): Promise<any>;
  delete(...args: any[]): Promise<any>;
  apiSuccess(...args: any[]): any;
  apiFailure(...args: any[]): any;
  decisionSuccess(...args: any[]): any;
  decisionNoBranches(...args: any[]): any;
  skipBranches(...args: any[]): any;
  decisionFailure(...args: any[]): any;
}

/** The name of StepHandler in other languages. */
export const BaseStepHandler = StepHandler;
export type BaseStepHandler = StepHandler;

/** An answer of a service. */
export class ApiResponse {
  constructor(
    readonly statusCode: number,
    readonly headers: Record<string, string>,
    readonly body: any,
    readonly retryAfter: number | null = null,
  ) {}

  get ok(): boolean {
    return this.statusCode >= 200 && this.statusCode < 300;
  }

  get isClientError(): boolean {
    return this.statusCode >= 400 && this.statusCode < 500;
  }

  get isServerError(): boolean {
    return this.statusCode >= 500 && this.statusCode < 600;
  }

  /** Another attempt may help. */
  get isRetryable(): boolean {
    return [408, 429].includes(this.statusCode) || (this.statusCode >= 500 && this.statusCode <= 504);
  }
}

/** How a request is sent. */
export interface RequestOptions {
  params?: Record<string, Json>;
  headers?: Record<string, string>;
  body?: Json;
  /** In milliseconds; default 30,000. */
  timeout?: number;
}

/**
 * Calls of a service. The second argument of each is an object with params, headers, body and timeout, or else the
 * params of get and delete, and the body of post, put and patch; headers may follow.
 */
export abstract class APICapable {
  abstract get(path: string, options?: RequestOptions | Fields, headers?: Record<string, string>): Promise<ApiResponse>;
  abstract post(path: string, options?: RequestOptions | Json, headers?: Record<string, string>): Promise<ApiResponse>;
  abstract put(path: string, options?: RequestOptions | Json, headers?: Record<string, string>): Promise<ApiResponse>;
  abstract patch(path: string, options?: RequestOptions | Json, headers?: Record<string, string>): Promise<ApiResponse>;
  abstract delete(
    path: string,
    options?: RequestOptions | Fields,
    headers?: Record<string, string>,
  ): Promise<ApiResponse>;
  /** Succeeds with the body, or with another result. */
  abstract apiSuccess(response: ApiResponse, result?: Fields, metadata?: Fields): StepHandlerResult;
  /** Fails: for good, unless another attempt may help. */
  abstract apiFailure(response: ApiResponse, message?: string, metadata?: Fields): StepHandlerResult;
}

const options = new Set(["params", "headers", "body", "timeout"]);

function optionsOf(given: Json, headers: Record<string, string> | undefined, kind: "params" | "body"): RequestOptions {
  const names = typeof given === "object" && given !== null && !Array.isArray(given) ? Object.keys(given) : undefined;
  const asked =
    names !== undefined && names.every((name) => options.has(name)) ? (given as RequestOptions) : { [kind]: given };
  return headers ? { ...asked, headers: { ...asked.headers, ...headers } } : asked;
}

async function request(
  handler: object,
  method: string,
  path: string,
  { params = {}, headers = {}, body, timeout }: RequestOptions,
): Promise<ApiResponse> {
  const {
    baseUrl = "",
    defaultHeaders = {},
    timeout: usual,
  } = handler as { baseUrl?: string; defaultHeaders?: Record<string, string>; timeout?: number };
  const query = new URLSearchParams(
    Object.entries(params ?? {})
      .filter(([, v]) => v !== undefined && v !== null)
      .map(([k, v]) => [k, String(v)]),
  ).toString();
  const address = /^https?:/.test(path) ? path : `${baseUrl.replace(/\/+$/, "")}/${path.replace(/^\/+/, "")}`;
  const ms = timeout ?? (typeof usual === "number" ? usual : undefined);
  const answer = await apiCall(method, query ? `${address}${address.includes("?") ? "&" : "?"}${query}` : address, {
    headers: { ...defaultHeaders, ...headers },
    ...(body === undefined ? {} : { body }),
    ...(ms ? { timeoutMs: ms } : {}),
  });
  return new ApiResponse(answer.status, headersOf(answer.headers), answer.body, answer.retryAfter || null);
}

function headersOf(headers: Headers): Record<string, string> {
  const all: [string, string][] = [];
  headers.forEach((value, name) => all.push([name, value]));
  return Object.fromEntries(all);
}

const api: {
  [K in keyof APICapable]: (this: object, ...args: Parameters<APICapable[K]>) => ReturnType<APICapable[K]>;
} = {
  get(path, given, headers) {
    return request(this, "GET", path, optionsOf(given, headers, "params"));
  },
  post(path, given, headers) {
    return request(this, "POST", path, optionsOf(given, headers, "body"));
  },
  put(path, given, headers) {
    return request(this, "PUT", path, optionsOf(given, headers, "body"));
  },
  patch(path, given, headers) {
    return request(this, "PATCH", path, optionsOf(given, headers, "body"));
  },
  delete(path, given, headers) {
    return request(this, "DELETE", path, optionsOf(given, headers, "params"));
  },
  apiSuccess({ statusCode, body }, result, metadata = {}) {
    const object = typeof body === "object" && body !== null && !Array.isArray(body);
    return StepHandlerResult.success(result ?? (object ? body : { data: body ?? null }), {
      status_code: statusCode,
      ...metadata,
    });
  },
  apiFailure({ statusCode, body, isRetryable, retryAfter }, message, metadata = {}) {
    const said =
      typeof body === "string"
        ? body
        : typeof body === "object" && body !== null
          ? String(body.message ?? body.error ?? encoded(body))
          : "";
    const type = isRetryable ? ErrorType.RETRYABLE_ERROR : ErrorType.PERMANENT_ERROR;
    const end = StepHandlerResult.failure(
      message ?? `HTTP ${statusCode}${said ? `: ${said.slice(0, 500)}` : ""}`,
      type,
      isRetryable,
      { status_code: statusCode, ...metadata },
      `HTTP_${statusCode}`,
    );
    if (isRetryable && retryAfter) end.retryAfter = retryAfter;
    return end;
  },
};

/** Gives an object the methods of APICapable. */
export function applyAPI<T extends object>(handler: T): T & APICapable {
  return Object.assign(handler, api) as T & APICapable;
}

/** The outcome of a decision: the steps to create, or none. */
export class DecisionPointOutcome {
  constructor(
    readonly type: "create_steps" | "no_branches",
    readonly stepNames: string[] = [],
    readonly routingContext: Fields = {},
    readonly reason = "",
  ) {}

  static createSteps(stepNames: string[], routingContext: Fields = {}): DecisionPointOutcome {
    return new DecisionPointOutcome("create_steps", stepNames, routingContext);
  }

  static noBranches(reason = "", routingContext: Fields = {}): DecisionPointOutcome {
    return new DecisionPointOutcome("no_branches", [], routingContext, reason);
  }

  toJSON(): Fields {
    return this.type === "create_steps" ? { type: this.type, step_names: this.stepNames } : { type: this.type };
  }
}

/** Decisions. */
export abstract class DecisionCapable {
  /** Creates steps. The routing context is in the result, as such and field by field. */
  abstract decisionSuccess(
    steps: string | string[] | DecisionPointOutcome,
    routingContext?: Fields,
    metadata?: Fields,
  ): StepHandlerResult;
  /** Creates no steps, for a reason, or with fields of the result. */
  abstract decisionNoBranches(reason?: string | Fields | DecisionPointOutcome, metadata?: Fields): StepHandlerResult;
  abstract skipBranches(
    reason?: string | DecisionPointOutcome,
    routingContext?: Fields,
    metadata?: Fields,
  ): StepHandlerResult;
  /** The decision cannot be made: a permanent failure. */
  abstract decisionFailure(message: string, errorType?: string, metadata?: Fields): StepHandlerResult;
}

function decided(outcome: DecisionPointOutcome, more: Fields, metadata: Fields): StepHandlerResult {
  const { routingContext, reason } = outcome;
  return StepHandlerResult.success(
    {
      ...routingContext,
      ...more,
      ...(reason ? { reason } : {}),
      routing_context: routingContext,
      decision_point_outcome: outcome.toJSON(),
    },
    metadata,
  );
}

const decision: { [K in keyof DecisionCapable]: DecisionCapable[K] } = {
  decisionSuccess(steps, routingContext = {}, metadata = {}) {
    if (steps instanceof DecisionPointOutcome) return decided(steps, routingContext, metadata);
    const names = typeof steps === "string" ? [steps] : steps;
    if (names.length === 0)
      throw new Permanent("a decision names no steps: want at least one, or decisionNoBranches", {
        errorType: "InvalidOutcome",
      });
    return decided(DecisionPointOutcome.createSteps(names, routingContext), {}, metadata);
  },
  decisionNoBranches(reason = "", metadata = {}) {
    if (reason instanceof DecisionPointOutcome) return decided(reason, {}, metadata);
    return typeof reason === "string"
      ? decided(DecisionPointOutcome.noBranches(reason), {}, metadata)
      : decided(DecisionPointOutcome.noBranches(), reason, metadata);
  },
  skipBranches(reason = "", routingContext = {}, metadata = {}) {
    return decided(
      reason instanceof DecisionPointOutcome ? reason : DecisionPointOutcome.noBranches(reason, routingContext),
      {},
      metadata,
    );
  },
  decisionFailure(message, errorType = "DecisionError", metadata = {}) {
    return StepHandlerResult.failure(message, errorType, false, metadata);
  },
};

/** Gives an object the methods of DecisionCapable. */
export function applyDecision<T extends object>(handler: T): T & DecisionCapable {
  return Object.assign(handler, decision) as T & DecisionCapable;
}

/** A handler that calls a service at baseUrl. */
export abstract class ApiHandler extends StepHandler {
  protected baseUrl: string = "";
}
export interface ApiHandler {
  get(...args: Parameters<APICapable["get"]>): ReturnType<APICapable["get"]>;
  post(...args: Parameters<APICapable["post"]>): ReturnType<APICapable["post"]>;
  put(...args: Parameters<APICapable["put"]>): ReturnType<APICapable["put"]>;
  patch(...args: Parameters<APICapable["patch"]>): ReturnType<APICapable["patch"]>;
  delete(...args: Parameters<APICapable["delete"]>): ReturnType<APICapable["delete"]>;
  apiSuccess(...args: Parameters<APICapable["apiSuccess"]>): ReturnType<APICapable["apiSuccess"]>;
  apiFailure(...args: Parameters<APICapable["apiFailure"]>): ReturnType<APICapable["apiFailure"]>;
}
applyAPI(ApiHandler.prototype);
export const APIHandler = ApiHandler;
export type APIHandler = ApiHandler;

/** A handler that decides which steps follow. */
export abstract class DecisionHandler extends StepHandler {}
export interface DecisionHandler {
  decisionSuccess(
    ...args: Parameters<DecisionCapable["decisionSuccess"]>
  ): ReturnType<DecisionCapable["decisionSuccess"]>;
  decisionNoBranches(
    ...args: Parameters<DecisionCapable["decisionNoBranches"]>
  ): ReturnType<DecisionCapable["decisionNoBranches"]>;
  skipBranches(...args: Parameters<DecisionCapable["skipBranches"]>): ReturnType<DecisionCapable["skipBranches"]>;
  decisionFailure(
    ...args: Parameters<DecisionCapable["decisionFailure"]>
  ): ReturnType<DecisionCapable["decisionFailure"]>;
}
applyDecision(DecisionHandler.prototype);

/** A handler that divides work into batches, or does the work of one. */
export abstract class BatchableStepHandler extends StepHandler {
  /** Sums up the results of batches. */
  static aggregateWorkerResults = (results: readonly Json[]): Fields =>
    applyBatchable({}).aggregateWorkerResults(results);
}
export interface BatchableStepHandler {
  createCursorConfigs(
    ...args: Parameters<BatchableCapable["createCursorConfigs"]>
  ): ReturnType<BatchableCapable["createCursorConfigs"]>;
  createCursorRanges(
    ...args: Parameters<BatchableCapable["createCursorRanges"]>
  ): ReturnType<BatchableCapable["createCursorRanges"]>;
  batchSuccess(...args: Parameters<BatchableCapable["batchSuccess"]>): ReturnType<BatchableCapable["batchSuccess"]>;
  batchAnalyzerSuccess(
    ...args: Parameters<BatchableCapable["batchAnalyzerSuccess"]>
  ): ReturnType<BatchableCapable["batchAnalyzerSuccess"]>;
  noBatchesResult(
    ...args: Parameters<BatchableCapable["noBatchesResult"]>
  ): ReturnType<BatchableCapable["noBatchesResult"]>;
  noBatchesOutcome(
    ...args: Parameters<BatchableCapable["noBatchesOutcome"]>
  ): ReturnType<BatchableCapable["noBatchesOutcome"]>;
  getBatchContext(
    ...args: Parameters<BatchableCapable["getBatchContext"]>
  ): ReturnType<BatchableCapable["getBatchContext"]>;
  getBatchWorkerInputs(
    ...args: Parameters<BatchableCapable["getBatchWorkerInputs"]>
  ): ReturnType<BatchableCapable["getBatchWorkerInputs"]>;
  handleNoOpWorker(
    ...args: Parameters<BatchableCapable["handleNoOpWorker"]>
  ): ReturnType<BatchableCapable["handleNoOpWorker"]>;
  batchWorkerSuccess(
    ...args: Parameters<BatchableCapable["batchWorkerSuccess"]>
  ): ReturnType<BatchableCapable["batchWorkerSuccess"]>;
  batchWorkerComplete(
    ...args: Parameters<BatchableCapable["batchWorkerComplete"]>
  ): ReturnType<BatchableCapable["batchWorkerComplete"]>;
  batchFailure(...args: Parameters<BatchableCapable["batchFailure"]>): ReturnType<BatchableCapable["batchFailure"]>;
  checkpointYield(
    ...args: Parameters<BatchableCapable["checkpointYield"]>
  ): ReturnType<BatchableCapable["checkpointYield"]>;
  aggregateWorkerResults(
    ...args: Parameters<BatchableCapable["aggregateWorkerResults"]>
  ): ReturnType<BatchableCapable["aggregateWorkerResults"]>;
}
applyBatchable(BatchableStepHandler.prototype);
export const BatchableHandler = BatchableStepHandler;
export type BatchableHandler = BatchableStepHandler;

/** The names of mixins in other languages. */
export { APICapable as APIMixin, DecisionCapable as DecisionMixin };

/** What handlers inherit, which are no methods for templates. */
export const inherited: readonly object[] = [
  StepHandler.prototype,
  ApiHandler.prototype,
  DecisionHandler.prototype,
  BatchableStepHandler.prototype,
];
