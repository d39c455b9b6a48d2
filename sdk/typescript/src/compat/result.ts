/** Results and errors of handlers in the style of Tasker's package. */

import { Permanent, Retryable, TaskerError as NativeError, type Json } from "../errors.js";

type Fields = Record<string, Json>;

/** Values of errorType. */
export const ErrorType = Object.freeze({
  PERMANENT_ERROR: "permanent_error",
  RETRYABLE_ERROR: "retryable_error",
  VALIDATION_ERROR: "validation_error",
  TIMEOUT: "timeout",
  TIMEOUT_ERROR: "timeout",
  HANDLER_ERROR: "handler_error",
  UNEXPECTED_ERROR: "unexpected_error",
} as const);
export type ErrorType = (typeof ErrorType)[keyof typeof ErrorType];

/** Whether it is one of ErrorType's values. */
export function isStandardErrorType(errorType: string): boolean {
  return (Object.values(ErrorType) as string[]).includes(errorType);
}

/** Whether another attempt usually helps. */
export function isTypicallyRetryable(errorType: string): boolean {
  return errorType === ErrorType.RETRYABLE_ERROR || errorType === ErrorType.TIMEOUT;
}

/** What a StepHandlerResult is made of. */
export interface StepHandlerResultParams {
  success: boolean;
  result?: Fields | null | undefined;
  metadata?: Fields | undefined;
  errorMessage?: string | null | undefined;
  errorType?: string | null | undefined;
  errorCode?: string | null | undefined;
  retryable?: boolean | undefined;
  retryAfter?: number | undefined;
  orchestrationMetadata?: Fields | null | undefined;
}

/** What a handler returns. */
export class StepHandlerResult {
  success: boolean;
  /** Null without one; the type leaves that out, so that programs need not ask. */
  result: Fields;
  metadata: Fields;
  errorMessage: string | null;
  errorType: string | null;
  errorCode: string | null;
  retryable: boolean;
  orchestrationMetadata: Fields | null;
  /** Least delay to the next attempt, in seconds. */
  retryAfter: number | undefined;

  constructor(fields: Partial<StepHandlerResultParams> = {}) {
    this.success = fields.success ?? true;
    this.result = fields.result ?? (null as unknown as Fields);
    this.metadata = fields.metadata ?? {};
    this.errorMessage = fields.errorMessage ?? null;
    this.errorType = fields.errorType ?? null;
    this.errorCode = fields.errorCode ?? null;
    this.retryable = fields.retryable ?? true;
    this.orchestrationMetadata = fields.orchestrationMetadata ?? null;
    this.retryAfter = fields.retryAfter;
  }

  static success(result: Fields = {}, metadata: Fields = {}): StepHandlerResult {
    return new StepHandlerResult({ success: true, result, metadata });
  }

  static failure(
    message: string,
    errorType: string = ErrorType.HANDLER_ERROR,
    retryable = true,
    metadata: Fields = {},
    errorCode?: string,
  ): StepHandlerResult {
    return new StepHandlerResult({ success: false, errorMessage: message, errorType, retryable, metadata, errorCode });
  }

  static successHandlerResult(result: Fields = {}, metadata: Fields = {}): StepHandlerResult {
    return StepHandlerResult.success(result, metadata);
  }

  static failureHandlerResult(
    message: string,
    errorType?: string,
    retryable = true,
    metadata: Fields = {},
    errorCode?: string,
  ): StepHandlerResult {
    return StepHandlerResult.failure(message, errorType, retryable, metadata, errorCode);
  }

  isSuccess(): boolean {
    return this.success;
  }

  isFailure(): boolean {
    return !this.success;
  }

  toJSON(): Fields {
    return {
      success: this.success,
      result: this.result,
      error_message: this.errorMessage,
      error_type: this.errorType,
      error_code: this.errorCode,
      retryable: this.retryable,
      metadata: this.metadata,
      orchestration_metadata: this.orchestrationMetadata,
    };
  }
}

/** The result of a batchable step. */
export class BatchableResult extends StepHandlerResult {}

/** The name of StepHandlerResult in older handlers. */
export const StepExecutionResult = StepHandlerResult;
export type StepExecutionResult = StepHandlerResult;

/** The result of a step for the engine; a failure is thrown. Metadata that cannot be stored are left out. */
export function endOf(returned: Json, metadata: (fields: Fields) => void): Json {
  const end = returned as Partial<StepHandlerResult> | null | undefined;
  if (typeof end !== "object" || end === null || typeof end.success !== "boolean") return returned;
  if (!end.success) throw failureOf(end);
  if (end.metadata && Object.keys(end.metadata).length > 0) metadata(end.metadata);
  return end.result ?? {};
}

function failureOf({
  errorMessage,
  errorType,
  errorCode,
  retryable,
  metadata,
  retryAfter,
}: Partial<StepHandlerResult>): NativeError {
  const marks = {
    errorType: errorType || ErrorType.HANDLER_ERROR,
    ...(errorCode ? { code: errorCode } : {}),
    ...(metadata && Object.keys(metadata).length > 0 ? { details: metadata } : {}),
    ...(retryAfter ? { after: retryAfter } : {}),
  };
  return retryable === false
    ? new Permanent(errorMessage || "the handler failed", marks)
    : new Retryable(errorMessage || "the handler failed", marks);
}

/** The base of errors with marks. They may be thrown in place of a failure. */
export class TaskerError extends NativeError {}

/** What an error is made with beside its message: marks, or else fields that are its metadata. */
type Given = { errorCode?: string; context?: Fields; errorType?: string; retryAfter?: number } & Fields;

const marksGiven = new Set(["errorCode", "context", "errorType", "retryAfter"]);

/** The metadata of an error: fields, or the context in its marks. */
function metadataOf(given: Given): Fields {
  const { context } = given;
  const marks = Object.keys(given).every((name) => marksGiven.has(name)) && typeof (context ?? {}) === "object";
  return marks ? (context ?? {}) : given;
}

/** A code alone, or marks and fields. */
function givenOf(given: Given | string | undefined): Given {
  return typeof given === "string" ? { errorCode: given } : (given ?? {});
}

function textIn(value: Json): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** The step may run again, after some seconds where they are given. */
export class RetryableError extends Retryable {
  readonly metadata: Fields;

  constructor(message: string, given?: Given | string) {
    const { errorCode, retryAfter } = givenOf(given),
      metadata = metadataOf(givenOf(given));
    super(message, {
      errorType: "RetryableError",
      ...marksOf(metadata, textIn(errorCode)),
      ...(typeof retryAfter === "number" && retryAfter > 0 ? { after: retryAfter } : {}),
    });
    this.metadata = metadata;
  }
}

/** Another attempt would fail in the same way. */
export class PermanentError extends Permanent {
  readonly metadata: Fields;
  /** The type that it was given. */
  readonly ownType: string | undefined;

  constructor(message: string, given?: Given | string) {
    const { errorCode, errorType } = givenOf(given),
      metadata = metadataOf(givenOf(given));
    super(message, { errorType: textIn(errorType) ?? "PermanentError", ...marksOf(metadata, textIn(errorCode)) });
    this.metadata = metadata;
    this.ownType = textIn(errorType);
  }
}

/** The input is not valid. */
export class ValidationError extends PermanentError {
  constructor(
    message: string,
    { field, errorCode, context }: { field?: string; errorCode?: string; context?: Fields } = {},
  ) {
    super(message, {
      errorType: "ValidationError",
      context: { ...context, ...(field ? { field } : {}) },
      ...(errorCode ? { errorCode } : {}),
    });
  }
}

/** A failure with its type and whether it may run again. */
export class StepExecutionError extends NativeError {
  override readonly retryable: boolean;

  constructor(message: string, errorType: string = ErrorType.HANDLER_ERROR, retryable = true, metadata: Fields = {}) {
    super(message, { errorType, ...marksOf(metadata, undefined) });
    this.retryable = retryable;
  }
}

/** The program is not set up as it should be. */
export class ConfigurationError extends PermanentError {}

/** No resolver has found the handler. */
export class ResolutionError extends NativeError {
  constructor(message: string) {
    super(message, { errorType: "ResolutionError" });
  }
}

/** The resolver that a template names is not known. */
export class ResolverNotFoundError extends ResolutionError {
  constructor(readonly resolverName: string) {
    super(`find the resolver '${resolverName}': it is not registered`);
  }
}

/** None of the resolvers knows the callable. */
export class NoResolverMatchError extends ResolutionError {
  constructor(
    readonly callable: string,
    readonly triedResolvers: string[] = [],
  ) {
    super(`resolve the callable '${callable}': none of the resolvers knows it: ${triedResolvers.join(", ") || "none"}`);
  }
}

/** The handler has no such method. */
export class MethodDispatchError extends Permanent {
  constructor(
    readonly handlerName: string,
    readonly methodName = "call",
  ) {
    super(`MethodNotFound: Handler '${handlerName}' does not respond to '${methodName}'`, {
      errorType: "MethodNotFound",
    });
  }
}

function marksOf(details: Fields | undefined, code: string | undefined): { details?: Fields; code?: string } {
  return { ...(details && Object.keys(details).length > 0 ? { details } : {}), ...(code ? { code } : {}) };
}
