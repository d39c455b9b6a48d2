/** Handlers in the style of Tasker's package: classes, and what they can be given. */

import { apiCall, documentIn } from "../api.js";
import { Permanent, Retryable, textOf, type Json } from "../errors.js";
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

  toString(): string {
    return `${this.constructor.name}(name=${this.name}, version=${this.version})`;
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

/** What runs a step: a handler, or what stands for one. */
export interface ExecutableHandler {
  readonly name: string;
  readonly version: string;
  readonly capabilities: string[];
  call(context: StepContext): StepHandlerResult | Promise<StepHandlerResult>;
  configSchema(): Fields | null;
}

/** What capabilities add, so that classes may be written with them. */
export interface StepHandler {
  get(...args: any[]): Promise<any>;
  post(...args: any[]): Promise<any>;
  put(...args: any[]): Promise<any>;
  patch(...args: any[]): Promise<any>;
  delete(...args: any[]): Promise<any>;
  request(...args: any[]): Promise<any>;
  apiSuccess(...args: any[]): any;
  apiFailure(...args: any[]): any;
  connectionError(...args: any[]): any;
  timeoutError(...args: any[]): any;
  decisionSuccess(...args: any[]): any;
  decisionSuccessWithOutcome(...args: any[]): any;
  decisionNoBranches(...args: any[]): any;
  skipBranches(...args: any[]): any;
  decisionFailure(...args: any[]): any;
}

/** The name of StepHandler in other languages. */
export const BaseStepHandler = StepHandler;
export type BaseStepHandler = StepHandler;

/** An answer of a service: of fetch with its body, or of its parts. */
export class ApiResponse {
  readonly statusCode: number;
  readonly headers: Record<string, string>;
  readonly body: any;
  /** From the header, in seconds. */
  readonly retryAfter: number | null;
  /** The answer of fetch, where there is one. */
  readonly rawResponse: Response | undefined;

  constructor(response: Response, body?: unknown);
  constructor(statusCode: number, headers: Record<string, string>, body: any, retryAfter?: number | null);
  constructor(given: number | Response, second?: unknown, body?: unknown, retryAfter?: number | null) {
    if (typeof given === "number") {
      this.statusCode = given;
      this.headers = (second ?? {}) as Record<string, string>;
      this.body = body;
    } else {
      this.statusCode = given.status;
      this.headers = headersOf(given.headers);
      this.body = second;
      this.rawResponse = given;
    }
    const after = this.headers["retry-after"],
      seconds = Number.parseInt(after ?? "", 10);
    this.retryAfter = retryAfter ?? (after ? (Number.isNaN(seconds) ? 60 : seconds) : null);
  }

  toDict(): Fields {
    return { status_code: this.statusCode, headers: this.headers, body: this.body };
  }

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
    return [408, 429, 500, 502, 503, 504].includes(this.statusCode);
  }
}

/** How a request is sent. */
export interface RequestOptions {
  params?: Record<string, Json>;
  headers?: Record<string, string>;
  body?: Json;
  /** With false the body is sent as a text. */
  json?: boolean;
  /** In milliseconds; default 30,000. */
  timeout?: number;
}

/**
 * Calls of a service. The second argument of each is an object with params, headers, body and timeout, or else the
 * params of get, the headers of delete, and the body of post, put and patch; headers may follow.
 */
export abstract class APICapable {
  abstract get(path: string, options?: RequestOptions | Fields, headers?: Record<string, string>): Promise<ApiResponse>;
  abstract post(path: string, options?: RequestOptions | Json, headers?: Record<string, string>): Promise<ApiResponse>;
  abstract put(path: string, options?: RequestOptions | Json, headers?: Record<string, string>): Promise<ApiResponse>;
  abstract patch(path: string, options?: RequestOptions | Json, headers?: Record<string, string>): Promise<ApiResponse>;
  abstract delete(
    path: string,
    options?: RequestOptions | Record<string, string>,
    headers?: Record<string, string>,
  ): Promise<ApiResponse>;
  /** Sends a request as fetch does; the body is a text. */
  abstract request(method: string, path: string, options?: RequestInit): Promise<ApiResponse>;
  /** Succeeds with the body, or with another result. */
  abstract apiSuccess(
    response: ApiResponse | Fields,
    result?: Fields,
    metadata?: Fields | boolean,
  ): StepHandlerResult;
  /** Fails: for good, unless another attempt may help. */
  abstract apiFailure(response: ApiResponse, message?: string, metadata?: Fields): StepHandlerResult;
  /** The service could not be reached; another attempt may help. */
  abstract connectionError(error: Error, context?: string): StepHandlerResult;
  /** The service did not answer in time; another attempt may help. */
  abstract timeoutError(error: Error, context?: string): StepHandlerResult;
}

const options = new Set(["params", "headers", "body", "json", "timeout"]);

function optionsOf(
  given: Json,
  headers: Record<string, string> | undefined,
  kind: "params" | "body" | "headers",
): RequestOptions {
  const names = typeof given === "object" && given !== null && !Array.isArray(given) ? Object.keys(given) : undefined;
  const asked =
    names !== undefined && names.every((name) => options.has(name)) ? (given as RequestOptions) : { [kind]: given };
  return headers ? { ...asked, headers: { ...asked.headers, ...headers } } : asked;
}

/** Where a service is and how it is called: fields of a handler, or static ones of its class. */
interface Service {
  baseUrl?: string;
  timeout?: number;
  defaultHeaders?: Record<string, string>;
}

async function request(
  handler: Service,
  method: string,
  path: string,
  { params = {}, headers = {}, body, json = true, timeout }: RequestOptions,
): Promise<ApiResponse> {
  const { baseUrl = "", defaultHeaders = {}, timeout: usual } = handler;
  const query = new URLSearchParams(
    Object.entries(params ?? {})
      .filter(([, v]) => v !== undefined && v !== null)
      .map(([k, v]) => [k, String(v)]),
  ).toString();
  const address = /^https?:/.test(path) ? path : `${baseUrl.replace(/\/+$/, "")}/${path.replace(/^\/+/, "")}`,
    url = query ? `${address}${address.includes("?") ? "&" : "?"}${query}` : address;
  const ms = timeout ?? (typeof usual === "number" ? usual : undefined),
    all = { ...defaultHeaders, ...headers };
  if (!json) return sent(url, { method, headers: all, body: body === undefined ? null : String(body) }, ms);
  const answer = await apiCall(method, url, {
    headers: all,
    ...(body === undefined ? {} : { body }),
    ...(ms ? { timeoutMs: ms } : {}),
  });
  return new ApiResponse(answer.status, headersOf(answer.headers), answer.body, answer.retryAfter || null);
}

/** Sends a request whose body is a text. */
async function sent(url: string, init: RequestInit, ms = 30_000): Promise<ApiResponse> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(ms), ...init });
    return new ApiResponse(answer, documentIn(await answer.text()));
  } catch (e) {
    throw new Retryable(`the service cannot be reached: ${textOf(e)}`, { code: "UNREACHABLE", errorType: "ApiError" });
  }
}

function headersOf(headers: Headers): Record<string, string> {
  const all: [string, string][] = [];
  headers.forEach((value, name) => all.push([name, value]));
  return Object.fromEntries(all);
}

/** What errors of a service are called, by their status. */
const statusTypes: Record<number, string> = {
  400: "bad_request",
  401: "unauthorized",
  403: "forbidden",
  404: "not_found",
  405: "method_not_allowed",
  408: "request_timeout",
  409: "conflict",
  410: "gone",
  422: "unprocessable_entity",
  429: "rate_limited",
  500: "internal_server_error",
  502: "bad_gateway",
  503: "service_unavailable",
  504: "gateway_timeout",
};

function typeOf({ statusCode, isClientError, isServerError }: ApiResponse): string {
  return statusTypes[statusCode] ?? (isClientError ? "client_error" : isServerError ? "server_error" : "http_error");
}

/** What a service says of an error: a text, or a field of its document. */
function saidIn(body: Json): string {
  if (typeof body === "string") return body;
  if (typeof body !== "object" || body === null) return "";
  for (const name of ["error", "message", "detail", "error_message", "msg"]) {
    const said: Json = (body as Fields)[name];
    if (typeof said === "string" && said) return said;
    const inner: Json = typeof said === "object" && said !== null ? (said as Fields)["message"] : undefined;
    if (inner) return textOf(inner);
  }
  return encoded(body);
}

function unreached(what: string, error: Error, during: string, type: string): StepHandlerResult {
  const message = `${what}${during ? ` while ${during}` : ""}: ${textOf(error)}`;
  return StepHandlerResult.failure(message, type, true, { exception_type: error.constructor.name });
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
    return request(this, "DELETE", path, optionsOf(given, headers, "headers"));
  },
  request(method, path, { headers, body, ...more } = {}) {
    const { baseUrl = "", defaultHeaders = {}, timeout } = this as Service;
    const all = { ...defaultHeaders, ...headersOf(new Headers(headers)) };
    const url = /^https?:/.test(path) ? path : `${baseUrl.replace(/\/+$/, "")}/${path.replace(/^\/+/, "")}`;
    return sent(url, { ...more, method, headers: all, body: body ?? null }, timeout);
  },
  apiSuccess(response, result, metadata = {}) {
    if (!(response instanceof ApiResponse)) return StepHandlerResult.success(result ?? response, objectIn(metadata));
    const { statusCode, headers, body } = response,
      object = typeof body === "object" && body !== null && !Array.isArray(body);
    return StepHandlerResult.success(result ?? (object ? body : { data: body ?? null }), {
      ...(metadata === false ? {} : { status_code: statusCode, headers }),
      ...objectIn(metadata),
    });
  },
  apiFailure(response, message, metadata = {}) {
    const { statusCode, headers, body, isRetryable, retryAfter } = response,
      said = saidIn(body);
    const end = StepHandlerResult.failure(
      message ?? `HTTP ${statusCode}${said ? `: ${said.slice(0, 500)}` : ""}`,
      typeOf(response),
      isRetryable,
      {
        status_code: statusCode,
        headers,
        ...(retryAfter === null ? {} : { retry_after_seconds: retryAfter }),
        ...(body ? { response_body: body } : {}),
        ...metadata,
      },
      `HTTP_${statusCode}`,
    );
    if (isRetryable && retryAfter) end.retryAfter = retryAfter;
    return end;
  },
  connectionError(error, context = "") {
    return unreached("Connection error", error, context, "connection_error");
  },
  timeoutError(error, context = "") {
    return unreached("Request timeout", error, context, ErrorType.TIMEOUT);
  },
};

function objectIn(given: Fields | boolean): Fields {
  return typeof given === "object" ? given : {};
}

/** Reads fields that are absent from the static ones of the class. A field that is set hides them. */
function readStatics(target: object): void {
  for (const [name, of, absent] of [
    ["baseUrl", "baseUrl", ""],
    ["timeout", "defaultTimeout", 30_000],
    ["defaultHeaders", "defaultHeaders", {}],
  ] as const) {
    if (name in target) continue;
    Object.defineProperty(target, name, {
      configurable: true,
      get(this: object): unknown {
        return (this.constructor as unknown as Fields)[of] || absent;
      },
      set(this: object, value: unknown) {
        Object.defineProperty(this, name, { value, configurable: true, enumerable: true, writable: true });
      },
    });
  }
}

/** Gives an object the methods of APICapable. */
export function applyAPI<T extends object>(handler: T): T & APICapable {
  readStatics(handler);
  return Object.assign(handler, api) as T & APICapable;
}

export const DecisionType = Object.freeze({ CREATE_STEPS: "create_steps", NO_BRANCHES: "no_branches" } as const);
export type DecisionType = (typeof DecisionType)[keyof typeof DecisionType];

/** The outcome of a decision: the steps to create, or none. */
export interface DecisionPointOutcome {
  decisionType: DecisionType;
  nextStepNames: string[];
  dynamicSteps?: Fields[] | undefined;
  reason?: string | undefined;
  routingContext: Fields;
}

class Outcome implements DecisionPointOutcome {
  constructor(
    readonly decisionType: DecisionType,
    readonly nextStepNames: string[],
    readonly routingContext: Fields,
    readonly reason = "",
  ) {}
}

export const DecisionPointOutcome = Object.freeze({
  createSteps(stepNames: string[], routingContext: Fields = {}): DecisionPointOutcome {
    return new Outcome(DecisionType.CREATE_STEPS, stepNames, routingContext);
  },
  noBranches(reason = "", routingContext: Fields = {}): DecisionPointOutcome {
    return new Outcome(DecisionType.NO_BRANCHES, [], routingContext, reason);
  },
});

function isOutcome(given: unknown): given is DecisionPointOutcome {
  return typeof given === "object" && given !== null && Object.hasOwn(given, "decisionType");
}

/** Decisions. */
export abstract class DecisionCapable {
  /** Creates steps. The routing context is in the result, as such and field by field. */
  abstract decisionSuccess(
    steps: string | string[] | DecisionPointOutcome,
    routingContext?: Fields,
    metadata?: Fields,
  ): StepHandlerResult;
  abstract decisionSuccessWithOutcome(outcome: DecisionPointOutcome, metadata?: Fields): StepHandlerResult;
  /** Creates no steps, for a reason, or with fields of the result. */
  abstract decisionNoBranches(reason?: string | Fields | DecisionPointOutcome, metadata?: Fields): StepHandlerResult;
  abstract skipBranches(
    reason?: string | DecisionPointOutcome,
    routingContext?: Fields,
    metadata?: Fields,
  ): StepHandlerResult;
  /** The decision cannot be made: a permanent failure, unless it is retryable. */
  abstract decisionFailure(
    message: string,
    errorType?: string,
    retryable?: boolean | Fields,
    metadata?: Fields,
  ): StepHandlerResult;
}

function decided(this: object, outcome: DecisionPointOutcome, more: Fields, metadata: Fields): StepHandlerResult {
  const { decisionType, nextStepNames, dynamicSteps, routingContext = {}, reason } = outcome,
    creates = decisionType === DecisionType.CREATE_STEPS;
  return StepHandlerResult.success(
    {
      ...routingContext,
      ...more,
      ...(reason ? { reason } : {}),
      ...(dynamicSteps ? { dynamic_steps: dynamicSteps } : {}),
      ...(Object.keys(routingContext).length > 0 ? { routing_context: routingContext } : {}),
      decision_point_outcome: { type: decisionType, ...(creates ? { step_names: nextStepNames } : {}) },
    },
    { ...metadata, ...decidedBy.call(this) },
  );
}

/** Which handler has decided. */
function decidedBy(this: { name?: string; version?: string }): Fields {
  return { decision_handler: this.name ?? "", decision_version: this.version ?? "1.0.0" };
}

const decision: {
  [K in keyof DecisionCapable]: (
    this: object,
    ...args: Parameters<DecisionCapable[K]>
  ) => ReturnType<DecisionCapable[K]>;
} = {
  decisionSuccess(steps, routingContext = {}, metadata = {}) {
    if (isOutcome(steps)) return decided.call(this, steps, routingContext, metadata);
    const names = typeof steps === "string" ? [steps] : steps;
    if (names.length === 0)
      throw new Permanent("a decision names no steps: want at least one, or decisionNoBranches", {
        errorType: "InvalidOutcome",
      });
    return decided.call(this, DecisionPointOutcome.createSteps(names, routingContext), {}, metadata);
  },
  decisionSuccessWithOutcome(outcome, metadata = {}) {
    return decided.call(this, outcome, {}, metadata);
  },
  decisionNoBranches(reason = "", metadata = {}) {
    if (isOutcome(reason)) return decided.call(this, reason, {}, metadata);
    return typeof reason === "string"
      ? decided.call(this, DecisionPointOutcome.noBranches(reason), {}, metadata)
      : decided.call(this, DecisionPointOutcome.noBranches(), reason, metadata);
  },
  skipBranches(reason = "", routingContext = {}, metadata = {}) {
    const outcome = isOutcome(reason) ? reason : DecisionPointOutcome.noBranches(reason, routingContext);
    return decided.call(this, outcome, {}, metadata);
  },
  decisionFailure(message, errorType = "decision_error", retryable = false, metadata = {}) {
    const again = retryable === true,
      facts = typeof retryable === "object" ? retryable : metadata;
    return StepHandlerResult.failure(message, errorType, again, { ...facts, ...decidedBy.call(this) });
  },
};

/** Gives an object the methods of DecisionCapable. */
export function applyDecision<T extends object>(handler: T): T & DecisionCapable {
  return Object.assign(handler, decision) as T & DecisionCapable;
}

/**
 * A handler that calls a service at baseUrl, a static field of its class or one of its own. The type leaves out
 * baseUrl, timeout and defaultHeaders, so that a class may declare each as it likes.
 */
export abstract class ApiHandler extends StepHandler {
  static baseUrl = "";
  /** In milliseconds. */
  static defaultTimeout = 30_000;
  static defaultHeaders: Record<string, string> = {};

  override get capabilities(): string[] {
    return ["process", "http", "api"];
  }
}
export interface ApiHandler {
  get(...args: Parameters<APICapable["get"]>): ReturnType<APICapable["get"]>;
  post(...args: Parameters<APICapable["post"]>): ReturnType<APICapable["post"]>;
  put(...args: Parameters<APICapable["put"]>): ReturnType<APICapable["put"]>;
  patch(...args: Parameters<APICapable["patch"]>): ReturnType<APICapable["patch"]>;
  delete(...args: Parameters<APICapable["delete"]>): ReturnType<APICapable["delete"]>;
  request(...args: Parameters<APICapable["request"]>): ReturnType<APICapable["request"]>;
  apiSuccess(...args: Parameters<APICapable["apiSuccess"]>): ReturnType<APICapable["apiSuccess"]>;
  apiFailure(...args: Parameters<APICapable["apiFailure"]>): ReturnType<APICapable["apiFailure"]>;
  connectionError(...args: Parameters<APICapable["connectionError"]>): ReturnType<APICapable["connectionError"]>;
  timeoutError(...args: Parameters<APICapable["timeoutError"]>): ReturnType<APICapable["timeoutError"]>;
}
applyAPI(ApiHandler.prototype);
export const APIHandler = ApiHandler;
export type APIHandler = ApiHandler;

/** A handler that decides which steps follow. */
export abstract class DecisionHandler extends StepHandler {
  override get capabilities(): string[] {
    return ["process", "decision", "routing"];
  }
}
export interface DecisionHandler {
  decisionSuccess(
    ...args: Parameters<DecisionCapable["decisionSuccess"]>
  ): ReturnType<DecisionCapable["decisionSuccess"]>;
  decisionSuccessWithOutcome(
    ...args: Parameters<DecisionCapable["decisionSuccessWithOutcome"]>
  ): ReturnType<DecisionCapable["decisionSuccessWithOutcome"]>;
  decisionNoBranches(
    ...args: Parameters<DecisionCapable["decisionNoBranches"]>
  ): ReturnType<DecisionCapable["decisionNoBranches"]>;
  skipBranches(...args: Parameters<DecisionCapable["skipBranches"]>): ReturnType<DecisionCapable["skipBranches"]>;
  decisionFailure(
    ...args: Parameters<DecisionCapable["decisionFailure"]>
  ): ReturnType<DecisionCapable["decisionFailure"]>;
}
applyDecision(DecisionHandler.prototype);
export const DecisionStepHandler = DecisionHandler;
export type DecisionStepHandler = DecisionHandler;

/** A handler that divides work into batches, or does the work of one. */
export abstract class BatchableStepHandler extends StepHandler {
  /** Sums up the results of batches. */
  static aggregateWorkerResults = (results: readonly Json[]): Fields =>
    applyBatchable({}).aggregateWorkerResults(results);
}
export interface BatchableStepHandler {
  createCursorConfig(
    ...args: Parameters<BatchableCapable["createCursorConfig"]>
  ): ReturnType<BatchableCapable["createCursorConfig"]>;
  createCursorConfigs(
    ...args: Parameters<BatchableCapable["createCursorConfigs"]>
  ): ReturnType<BatchableCapable["createCursorConfigs"]>;
  createCursorRanges(
    ...args: Parameters<BatchableCapable["createCursorRanges"]>
  ): ReturnType<BatchableCapable["createCursorRanges"]>;
  createBatchOutcome(
    ...args: Parameters<BatchableCapable["createBatchOutcome"]>
  ): ReturnType<BatchableCapable["createBatchOutcome"]>;
  createWorkerOutcome(
    ...args: Parameters<BatchableCapable["createWorkerOutcome"]>
  ): ReturnType<BatchableCapable["createWorkerOutcome"]>;
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
  detectAggregationScenario(
    ...args: Parameters<BatchableCapable["detectAggregationScenario"]>
  ): ReturnType<BatchableCapable["detectAggregationScenario"]>;
  noBatchesAggregationResult(
    ...args: Parameters<BatchableCapable["noBatchesAggregationResult"]>
  ): ReturnType<BatchableCapable["noBatchesAggregationResult"]>;
  aggregateBatchWorkerResults(
    ...args: Parameters<BatchableCapable["aggregateBatchWorkerResults"]>
  ): ReturnType<BatchableCapable["aggregateBatchWorkerResults"]>;
}
applyBatchable(BatchableStepHandler.prototype);
export const BatchableHandler = BatchableStepHandler;
export type BatchableHandler = BatchableStepHandler;

/** The methods of APICapable as a class. */
export class APIMixin {
  static baseUrl = "";
  static defaultTimeout = 30_000;
  static defaultHeaders: Record<string, string> = {};
}
export interface APIMixin extends APICapable {}
applyAPI(APIMixin.prototype);

/** The methods of DecisionCapable as a class. */
export class DecisionMixin {
  get name(): string {
    const type = this.constructor as { handlerName?: string; name: string };
    return type.handlerName || type.name;
  }

  get version(): string {
    return (this.constructor as { handlerVersion?: string }).handlerVersion || "1.0.0";
  }
}
export interface DecisionMixin extends DecisionCapable {}
applyDecision(DecisionMixin.prototype);

/** What handlers inherit, which are no methods for templates. */
export const inherited: readonly object[] = [
  StepHandler.prototype,
  ApiHandler.prototype,
  DecisionHandler.prototype,
  BatchableStepHandler.prototype,
];
