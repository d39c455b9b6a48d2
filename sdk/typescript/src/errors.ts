/** Errors of handlers, and their wire form. */

import { Encoded, encoded, snapshot, type Json } from "./json.js";

export type { Json } from "./json.js";

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

  constructor(
    message: string,
    readonly marks: Marks = {},
  ) {
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

/** A checkpoint cannot be stored: it has no JSON form, or is too large. Nothing was saved. */
export class CheckpointError extends Permanent {
  constructor(message: string) {
    super(message, { errorType: "CheckpointNotStorable" });
  }
}

/** A field of the task's context, or the result of a step, does not exist. */
export class Absent extends Error {
  override readonly name: string = "Absent";
}

/** This step does not depend on a step of that name, directly or not. */
export class UnknownStep extends Error {
  override readonly name: string = "UnknownStep";
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
  initiator?: string;
  sourceSystem?: string;
  reason?: string;
  correlationId?: string;
  parentCorrelationId?: string;
  /** Delay of its first steps, in seconds. */
  delay?: number;
  /** When its first steps start, in place of the delay. */
  startAt?: Date;
  deadline?: Date;
  /** UUIDs of tasks that end before it begins. */
  dependsOn?: string[];
  onDependencyFailure?: string;
  maxAttempts?: number;
  /** Texts such as 10s, in place of the template's backoff. */
  retryDelays?: string[];
}

/** What a handler returns to end its step with a result and to create the next task, both or neither. */
export class Continue {
  constructor(
    readonly result: Json,
    readonly next: NextTask = {},
  ) {}
}

/** The wire form of a next task. */
export function nextOf(next: NextTask): Record<string, Json> {
  const { delay, startAt, deadline, idempotencyKey, sourceSystem, correlationId, parentCorrelationId, ...more } = next,
    { dependsOn, onDependencyFailure, maxAttempts, retryDelays, ...same } = more;
  const renamed = {
    idempotency_key: idempotencyKey,
    source_system: sourceSystem,
    correlation_id: correlationId,
    parent_correlation_id: parentCorrelationId,
    delay_seconds: delay,
    start_at: startAt && timeOf(startAt),
    deadline: deadline && timeOf(deadline),
    depends_on: dependsOn,
    on_dependency_failure: onDependencyFailure,
    retry_delays: retryDelays,
  };
  return {
    ...same,
    ...(maxAttempts === undefined ? {} : { max_attempts: maxAttempts }),
    ...Object.fromEntries(Object.entries(renamed).filter(([, value]) => value)),
  };
}

const timeOf = (at: Date): string => at.toISOString().replace(/\.000Z$/, "Z");

/** The handler did nothing: the step is handed back, and no attempt is used. */
export class Returned extends Error {}

/**
 * Why the result of a step is not accepted any more: another worker has it or it was cancelled, its time limit has
 * passed, or the daemon stops.
 */
export type CancelReason = "lease_lost" | "timeout" | "shutdown" | (string & {});

/** The result of the step is not accepted any more. */
export class Cancelled extends Error {
  constructor(readonly reason: CancelReason) {
    super(`the step was cancelled: ${reason}`);
  }
}

/** A checkpoint on the wire. */
export interface Point {
  cursor: Json;
  items_processed: number;
  accumulated_results?: Json;
  /** When it was saved; of steps only. */
  timestamp?: string;
}

/** A copy of progress, as it is now. */
export function pointOf(cursor: Json, itemsProcessed: number, accumulated?: Json): Point {
  const part = (name: string, value: Json): Json => {
    try {
      return snapshot(value);
    } catch (e) {
      throw new CheckpointError(`store the checkpoint's ${name}: it has no JSON form: ${textOf(e)}`);
    }
  };
  if (!Number.isSafeInteger(itemsProcessed) || itemsProcessed < 0) {
    throw new CheckpointError(
      `store the checkpoint's items_processed: invalid number ${textOf(itemsProcessed)}: want a whole number of at least 0`,
    );
  }
  const point: Point = { cursor: part("cursor", cursor ?? null), items_processed: itemsProcessed };
  return accumulated === undefined || accumulated === null
    ? point
    : { ...point, accumulated_results: part("accumulated_results", accumulated) };
}

/** A text for whatever was thrown: also objects without a prototype, and those that throw when they are read. */
export function textOf(value: unknown): string {
  const ways = [
    (): unknown => (typeof value === "object" && value !== null ? (value as { message?: unknown }).message : undefined),
    (): unknown => (value instanceof Error ? value.name : undefined),
    (): unknown =>
      typeof value === "object" && value !== null && !(value instanceof Error) ? encoded(value) : undefined,
    (): unknown => String(value),
  ];
  let read: unknown;
  for (const way of ways) {
    try {
      read = way();
      if (typeof read === "string" && read !== "") return read;
    } catch {
      read = undefined; // the next way
    }
  }
  return read === "" ? "an empty value was thrown" : "a value that cannot be read was thrown";
}

/** Whether a value is of a class; false for one that throws when it is asked. */
export function isA<T>(value: unknown, type: abstract new (...args: never[]) => T): value is T {
  try {
    return value instanceof type;
  } catch {
    return false;
  }
}

/** The wire form of an error of a handler, whatever was thrown. */
export function fault(error: unknown): Record<string, Json> {
  const message = textOf(error);
  let name: unknown = typeof error;
  try {
    if (isA(error, Error)) name = error.name;
    if (isA(error, TaskerError)) return { message, ...marked(error) };
  } catch {
    // what it says of itself cannot be read
  }
  return { message, error_type: typeof name === "string" && name !== "" ? name : "Error" };
}

function marked({ name, retryable, marks: { code, details, errorType, after } }: TaskerError): Record<string, Json> {
  return {
    error_type: errorType || name || "TaskerError",
    retryable: Boolean(retryable),
    ...(code ? { error_code: String(code) } : {}),
    ...(details ? { context: factsOf(details) } : {}),
    ...(after && after > 0 && Number.isFinite(after) ? { retry_after_ms: Math.max(Math.trunc(after * 1000), 1) } : {}),
  };
}

/** Details as they are now: an object. */
function factsOf(details: Json): Json {
  try {
    const copy = snapshot(details);
    return typeof copy === "object" && copy !== null && !Array.isArray(copy) ? copy : { details: copy };
  } catch (e) {
    return { details_error: `the details have no JSON form: ${textOf(e)}` };
  }
}

/** The JSON of a value as it is now; what names the value in errors. */
export function encodable(value: Json, what = "the handler's result", errorType = "ResultNotEncodable"): Encoded {
  try {
    return new Encoded(encoded(value));
  } catch (e) {
    throw new Permanent(`${what} has no JSON form: ${textOf(e)}`, { errorType });
  }
}
