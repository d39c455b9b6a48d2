/** Results and errors of handlers in the style of Tasker's package. */

import { Permanent, Retryable, TaskerError as NativeError, type Json } from "../errors.js";

type Fields = Record<string, Json>;

/** Values of errorType. */
export const ErrorType = Object.freeze({
  PERMANENT_ERROR: "PermanentError",
  RETRYABLE_ERROR: "RetryableError",
  VALIDATION_ERROR: "ValidationError",
  TIMEOUT: "TimeoutError",
  TIMEOUT_ERROR: "TimeoutError",
  HANDLER_ERROR: "HandlerError",
  UNEXPECTED_ERROR: "UnexpectedError",
});
export type ErrorType = (typeof ErrorType)[keyof typeof ErrorType];

/** What a handler returns. */
export class StepHandlerResult {
  success = true;
  result: Fields = {};
  metadata: Fields = {};
  errorMessage: string | undefined;
  errorType: string | undefined;
  errorCode: string | undefined;
  retryable = true;
  /** Least delay to the next attempt, in seconds. */
  retryAfter: number | undefined;

  constructor(
    fields: Partial<
      Pick<
        StepHandlerResult,
        "success" | "result" | "metadata" | "errorMessage" | "errorType" | "errorCode" | "retryable" | "retryAfter"
      >
    > = {},
  ) {
    Object.assign(this, fields);
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
    const { success, result, metadata, errorMessage, errorType, errorCode, retryable } = this;
    return success
      ? { success, result, metadata }
      : { success, error_message: errorMessage, error_type: errorType, error_code: errorCode, retryable, metadata };
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

/** The step may run again, after some seconds where they are given. */
export class RetryableError extends Retryable {
  constructor(
    message: string,
    { retryAfter, context, errorCode }: { retryAfter?: number; context?: Fields; errorCode?: string } = {},
  ) {
    super(message, {
      errorType: ErrorType.RETRYABLE_ERROR,
      ...marksOf(context, errorCode),
      ...(retryAfter ? { after: retryAfter } : {}),
    });
  }
}

/** Another attempt would fail in the same way. */
export class PermanentError extends Permanent {
  constructor(
    message: string,
    {
      errorCode,
      context,
      errorType = ErrorType.PERMANENT_ERROR,
    }: { errorCode?: string; context?: Fields; errorType?: string } = {},
  ) {
    super(message, { errorType, ...marksOf(context, errorCode) });
  }
}

/** The input is not valid. */
export class ValidationError extends PermanentError {
  constructor(
    message: string,
    { field, errorCode, context }: { field?: string; errorCode?: string; context?: Fields } = {},
  ) {
    super(message, {
      errorType: ErrorType.VALIDATION_ERROR,
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

/** The handler has no such method. */
export class MethodDispatchError extends Permanent {
  constructor(message: string) {
    super(message, { errorType: "MethodNotFound" });
  }
}

function marksOf(details: Fields | undefined, code: string | undefined): { details?: Fields; code?: string } {
  return { ...(details && Object.keys(details).length > 0 ? { details } : {}), ...(code ? { code } : {}) };
}
