/** Errors of handlers, and their wire form. */

export type Json = unknown;

export interface Marks {
  /** Of the handler's own vocabulary. */
  code?: string;
  /** Facts with a JSON form. */
  details?: Record<string, Json>;
  /** Default: the name of the class. */
  errorType?: string;
  /** Least delay to the next attempt, in seconds; without one the step's backoff decides. */
  after?: number;
}

/** A failure with the marks that the engine stores. It may run again. */
export class TaskerError extends Error {
  readonly retryable: boolean = true;

  constructor(message: string, readonly marks: Marks = {}) {
    super(message);
    this.name = new.target.name;
  }
}

/** The step may run again. */
export class Retryable extends TaskerError {}

/** Another attempt would fail in the same way. */
export class Permanent extends TaskerError {
  override readonly retryable = false;
}

/** Ends this execution and continues later from cursor, in the same attempt. */
export class Yield extends Error {
  readonly point: Point;

  constructor(cursor: Json, itemsProcessed: number, accumulated?: Json) {
    super("the handler yields");
    this.point = pointOf(cursor, itemsProcessed, accumulated);
  }
}

/** The task that continues a task. Absent fields are those of the step's task. */
export interface NextTask {
  name?: string;
  /** Of another template without one: the highest that is not deprecated. */
  version?: string;
  namespace?: string;
  context?: Record<string, Json>;
  /** Without one the next task is always a new one. */
  idempotencyKey?: string;
  priority?: number;
  tags?: string[];
  reason?: string;
  /** Delay of its first steps, in seconds. */
  delay?: number;
}

/** What a handler returns to end its step with a result and to create the next task, both or neither. */
export class Continue {
  constructor(readonly result: Json, readonly next: NextTask = {}) {}
}

/** The wire form of a next task. */
export function nextOf({ idempotencyKey, delay, ...same }: NextTask): Record<string, Json> {
  return { ...same, ...(idempotencyKey ? { idempotency_key: idempotencyKey } : {}), ...(delay ? { delay_seconds: delay } : {}) };
}

/** The handler did nothing: the step is handed back, and no attempt is used. */
export class Returned extends Error {}

/** The result of the step is not accepted any more. */
export class Cancelled extends Error {
  constructor(readonly reason: string) {
    super(`the step was cancelled: ${reason}`);
  }
}

/** A checkpoint on the wire. */
export interface Point {
  cursor: Json;
  items_processed: number;
  accumulated_results?: Json;
}

export function pointOf(cursor: Json, itemsProcessed: number, accumulated?: Json): Point {
  const point: Point = { cursor: cursor ?? null, items_processed: itemsProcessed };
  return accumulated === undefined || accumulated === null ? point : { ...point, accumulated_results: accumulated };
}

/** The wire form of an error of a handler. */
export function fault(error: unknown): Record<string, Json> {
  const message = error instanceof Error ? error.message || error.name : String(error);
  if (!(error instanceof TaskerError)) {
    return { message, error_type: error instanceof Error ? error.name : typeof error };
  }
  const { code, details, errorType, after } = error.marks;
  return {
    message,
    error_type: errorType ?? error.name,
    retryable: error.retryable,
    ...(code ? { error_code: code } : {}),
    ...(details ? { context: details } : {}),
    ...(after && after > 0 ? { retry_after_ms: Math.max(Math.trunc(after * 1000), 1) } : {}),
  };
}

/** Returns a value that has a JSON form; what names the value in errors. */
export function encodable(value: Json, what = "the handler's result", errorType = "ResultNotEncodable"): Json {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (e) {
    throw new Permanent(`${what} has no JSON form: ${String(e)}`, { errorType });
  }
  if (text === undefined) throw new Permanent(`${what} has no JSON form`, { errorType });
  return value;
}
