/** The context of a step for its handler. */

import {
  Absent,
  Cancelled,
  CheckpointError,
  Permanent,
  TaskerError,
  UnknownStep,
  encodable,
  fault,
  isA,
  pointOf,
  textOf,
  type CancelReason,
  type Json,
  type Point,
} from "./errors.js";
import { quietly } from "./current.js";
import { snapshot } from "./json.js";
import type { Level, Sink } from "./lines.js";
import {
  NotFound,
  NotHeld,
  Refused,
  Unavailable,
  type BatchEnd,
  type DeclaredEvent,
  type Session,
  type StepMessage,
} from "./session.js";

/** Makes a value of a type from JSON: a function, or a schema with parse, such as one of zod. */
export type Convert<T> = ((value: Json) => T) | { parse(value: Json): T };

/**
 * Converts a value. What the conversion throws is a permanent failure of type InvalidInput, except errors with marks.
 */
export function converted<T>(value: Json, as: Convert<T> | undefined, what: string): T {
  if (as === undefined) return value as T;
  try {
    return typeof as === "function" ? as(value) : as.parse(value);
  } catch (e) {
    if (isA(e, TaskerError)) throw e;
    throw new Permanent(`${what} does not fit the handler: ${textOf(e)}`, { errorType: "InvalidInput" });
  }
}

/** The names and kinds of cursors are those of the batchable step: whole numbers unless it makes others. */
export interface Batch<C = number> {
  id: string;
  /** Where the part begins. Absent in a batch of items. StepContext.range checks that it is a number. */
  start: C;
  /** Where the part ends; it is not included. Absent in a batch of items. */
  end: C;
  /** How many items there are, as the batchable step counted them. */
  size: number;
  /** The batchable step found nothing to do. */
  noOp: boolean;
  /** What the cursors count, as in the template. */
  cursorField: string;
  /** continue_on_failure, fail_fast or isolate. */
  failureStrategy: string;
  /** The items of a batch without cursors: a replay of isolated items has exactly those. */
  items: Json[] | undefined;
}

/** The result of one batch, see StepContext.batchValues. */
export interface BatchValue<T> {
  stepName: string;
  batchId: string;
  value: T;
  /** How many items it has isolated. */
  isolated: number;
}

/** Saved progress. */
export interface Checkpoint {
  cursor: Json;
  itemsProcessed: number;
  accumulated: Json;
  /** When it was saved, by the clock of the database. */
  time: Date | undefined;
}

/** Logs for a step: each line carries what identifies it, and is kept with the attempt with its fields. */
export interface StepLogger {
  debug(message: string, fields?: Record<string, Json>): void;
  info(message: string, fields?: Record<string, Json>): void;
  warn(message: string, fields?: Record<string, Json>): void;
  error(message: string, fields?: Record<string, Json>): void;
}

/** How long a request of a handler is repeated while no daemon answers it, and the longest pause between two. */
const patienceMs = 60_000,
  longestPauseMs = 1000;

/** The most that metadata may have, in bytes of JSON. */
const maxMetadata = 16 * 1024;

/** Characters of a printed line that has not ended. */
const maxBegun = 16 * 1024;

/** One execution of a step. */
export class StepContext {
  /** Names the execution; a new one once it continues in another session. */
  fence: string;
  readonly taskUuid: string;
  readonly stepUuid: string;
  readonly correlationId: string;
  /** Of the task that caused this one. */
  readonly parentCorrelationId: string | undefined;
  readonly namespace: string;
  readonly taskName: string;
  readonly taskVersion: string;
  readonly stepName: string;
  /** As the template names it. */
  readonly callable: string;
  /** The resolver that the template names, or an empty text. */
  readonly resolver: string;
  readonly method: string;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly priority: number;
  /** When the task was created, by the clock of the database. */
  readonly requestedAt: Date;
  /** The span of this attempt as W3C trace context, for a tracing library; empty without a trace. */
  readonly traceparent: string;
  /** What the sender of the trace added to it. */
  readonly tracestate: string;
  /** The task's context. */
  readonly context: Json;
  /** handler.initialization of the template. */
  readonly config: Record<string, Json>;
  /** The results of the direct parents that have one. To read one of batches throws UnknownStep: they are in batchResults. */
  readonly results: Record<string, Json>;
  /** The worker steps that this one depends on: those of batchResults. */
  readonly batchSteps: readonly string[];
  /** Seconds of the step's time limit when it was handed out. */
  readonly timeLeft: number | undefined;
  /** When the time limit of the step passes, by the clock of this machine. */
  readonly deadline: Date | undefined;
  readonly batch: Batch | undefined;
  readonly isolated: Json[] = [];
  readonly events: { name: string; payload: Json }[] = [];
  /** Of the worker: the declared events of the step with a publisher of the process. */
  readonly publishes: DeclaredEvent[];
  /** Of the worker: what metadata has collected. */
  added: Record<string, Json> | undefined;
  private point: Point | undefined;
  private recorded: ((accepted: boolean) => void) | undefined;
  private saving: Promise<void> = Promise.resolve();
  private readonly fetched = new Map<string, Promise<Json>>();
  private readonly batches = new Map<string, Promise<BatchEnd[]>>();
  private readonly controller = new AbortController();
  private readonly begun = new Map<Level, string>();

  constructor(
    private readonly session: Session,
    m: StepMessage,
    private readonly sink: (entry: Record<string, Json>) => void = toStderr,
    private readonly lines?: Sink,
  ) {
    this.fence = m.fence;
    this.taskUuid = m.task_uuid;
    this.stepUuid = m.step_uuid;
    this.correlationId = m.correlation_id;
    this.parentCorrelationId = m.parent_correlation_id;
    this.namespace = m.namespace;
    this.taskName = m.task_name;
    this.taskVersion = m.task_version;
    this.stepName = m.step_name;
    this.callable = m.callable;
    this.resolver = m.resolver ?? "";
    this.method = m.method || "call";
    this.attempt = m.attempt;
    this.maxAttempts = m.max_attempts;
    this.priority = m.priority;
    this.requestedAt = new Date(m.requested_at ?? NaN);
    this.traceparent = m.traceparent ?? "";
    this.tracestate = m.tracestate ?? "";
    this.context = m.context;
    this.config = m.initialization ?? {};
    this.results = resultsOf(m);
    this.batchSteps = m.batch_steps ?? [];
    this.timeLeft = m.time_left_ms === undefined ? undefined : m.time_left_ms / 1000;
    this.deadline = m.time_left_ms === undefined ? undefined : new Date(Date.now() + m.time_left_ms);
    this.point = m.checkpoint;
    this.publishes = m.publishes ?? [];
    this.batch = m.batch && {
      id: m.batch.batch_id,
      start: m.batch.start_cursor as number,
      end: m.batch.end_cursor as number,
      size: m.batch.batch_size,
      noOp: m.batch.is_no_op,
      cursorField: m.batch.cursor_field ?? "",
      failureStrategy: m.batch.failure_strategy ?? "",
      items: m.items,
    };
  }

  /** The same for every attempt of this step: pass it to calls that must not happen twice. */
  get idempotencyKey(): string {
    return this.stepUuid;
  }

  /**
   * The fence of the claim: greater than those of all earlier claims of the step. A service that keeps the greatest one
   * can refuse requests of a process that has lost its step without knowing.
   */
  get token(): bigint {
    return BigInt(this.fence.split(".")[0] || 0);
  }

  /** An earlier attempt has failed, or was lost. */
  get isRetry(): boolean {
    return this.attempt > 1;
  }

  /** A failure of this execution is final. */
  get isLastAttempt(): boolean {
    return this.attempt >= this.maxAttempts;
  }

  /** Aborts, with a Cancelled as the reason, once the result of the step is not accepted any more. */
  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /**
   * Writes lines of JSON with the identifiers of the step, to stderr or to the worker's logger. They are kept with the
   * attempt.
   */
  get logger(): StepLogger {
    const write =
      (level: Level) =>
      (message: string, fields: Record<string, Json> = {}): void => {
        this.keepLine(level, message, fields);
        quietly(() =>
          this.sink({
            time: new Date().toISOString(),
            level,
            message,
            correlation_id: this.correlationId,
            task_uuid: this.taskUuid,
            step_uuid: this.stepUuid,
            namespace: this.namespace,
            template: this.taskName,
            step_name: this.stepName,
            attempt: this.attempt,
            ...fields,
          }),
        );
      };
    return { debug: write("debug"), info: write("info"), warn: write("warn"), error: write("error") };
  }

  /** The task's context, converted. */
  contextAs<T>(as: Convert<T>): T {
    return converted(this.context, as, "the task's context");
  }

  /** handler.initialization of the template, converted. */
  configAs<T>(as: Convert<T>): T {
    return converted(this.config, as, "the initialization of the step");
  }

  /** One field of the task's context. Throws Absent without it. */
  field<T = Json>(name: string, as?: Convert<T>): T {
    const { context } = this;
    if (typeof context !== "object" || context === null || !Object.hasOwn(context, name)) {
      throw new Absent(`the field ${JSON.stringify(name)} of the task's context is absent`);
    }
    return converted(
      (context as Record<string, Json>)[name],
      as,
      `the field ${JSON.stringify(name)} of the task's context`,
    );
  }

  /** One field of the task's context, or another value where the field is absent or null. */
  fieldOr<T>(name: string, absent: T, as?: Convert<T>): T {
    try {
      return this.field(name) === null ? absent : this.field(name, as);
    } catch (e) {
      if (e instanceof Absent) return absent;
      throw e;
    }
  }

  /** The latest checkpoint. */
  get saved(): Checkpoint | undefined {
    const { point } = this;
    return (
      point && {
        cursor: point.cursor,
        itemsProcessed: point.items_processed,
        accumulated: point.accumulated_results,
        time: point.timestamp === undefined ? undefined : new Date(point.timestamp),
      }
    );
  }

  /** The cursor of the latest checkpoint, converted, or another value without a checkpoint. */
  cursorOr<T>(absent: T, as?: Convert<T>): T {
    return this.point ? converted(this.point.cursor, as, "the cursor of the checkpoint") : absent;
  }

  /** What the latest checkpoint accumulated, converted, or another value without any. */
  accumulatedOr<T>(absent: T, as?: Convert<T>): T {
    const accumulated = this.point?.accumulated_results ?? null;
    return accumulated === null ? absent : converted(accumulated, as, "what the checkpoint accumulated");
  }

  /**
   * Saves progress as it is now. Throws Cancelled if the step is not held any more, and a CheckpointError for what
   * cannot be stored.
   */
  async checkpoint(cursor: Json, itemsProcessed: number, accumulated?: Json): Promise<void> {
    const point = pointOf(cursor, itemsProcessed, accumulated);
    // With the items isolated so far: the next execution begins behind them.
    const sent = this.isolated.length > 0 ? { ...point, isolated: [...this.isolated] } : point;
    const before = this.saving.catch(() => undefined);
    this.saving = before
      .then(() => this.save(sent))
      .then((at) => {
        this.point = at === undefined ? point : { ...point, timestamp: at };
      });
    await this.saving;
  }

  private async save(sent: Point & { isolated?: Json[] }): Promise<string | undefined> {
    try {
      return await this.ask(() => this.session.checkpoint(this, sent));
    } catch (e) {
      if (e instanceof Refused) throw new CheckpointError(`save a checkpoint: ${e.message}`);
      if (!(e instanceof NotHeld)) throw e;
      this.cancel("lease_lost");
      throw new Cancelled("lease_lost");
    }
  }

  /** Shows operators how far the step is, from 0 to 1: the latest is shown by the step. A daemon that cannot be reached
   *  does not get it. */
  async progress(fraction: number, message = ""): Promise<void> {
    try {
      await this.session.progress(this, fraction, message);
    } catch (e) {
      if (!(e instanceof NotHeld || e instanceof NotFound || e instanceof Unavailable)) throw e; // the next checkpoint or notice reports it
    }
  }

  /**
   * The result of a step that this one depends on, directly or not; converted where a conversion is given. Throws
   * Absent where it has none, and UnknownStep for other steps.
   */
  async result<T = Json>(step: string, as?: Convert<T>): Promise<T> {
    const value = Object.hasOwn(this.results, step)
      ? this.results[step]
      : await this.once(this.fetched, step, () => this.session.result(this, step));
    return converted(value, as, `the result of the step ${step}`);
  }

  /** The results of the batches of a worker step, in the order of their creation; null where one has none. */
  batchResults(step: string): Promise<BatchEnd[]> {
    return this.once(this.batches, step, () => this.session.batchResults(this, step));
  }

  /**
   * The results of the batches of a worker step that did something, converted. missing counts batches without a result:
   * failed and tolerated, or resolved by hand.
   */
  async batchValues<T = Json>(step: string, as?: Convert<T>): Promise<{ values: BatchValue<T>[]; missing: number }> {
    const values: BatchValue<T>[] = [];
    let missing = 0;
    for (const b of await this.batchResults(step)) {
      if (b.is_no_op) continue;
      if (b.result === undefined || b.result === null) missing++;
      else {
        const value = converted(b.result, as, `the result of the batch ${b.step_name}`);
        values.push({
          stepName: b.step_name,
          batchId: b.batch_id ?? b.step_name.slice(step.length + 1),
          value,
          isolated: b.isolated ?? 0,
        });
      }
    }
    return { values, missing };
  }

  /** Of @tasker-go/tasker/compat: what result or batchResults read, at once; the event loop stands still meanwhile. */
  readNow(what: "results" | "batch-results", step: string): Record<string, Json> | undefined {
    try {
      return this.session.now(what, this, step);
    } catch (e) {
      if (e instanceof NotFound) return undefined;
      throw e;
    }
  }

  /** The cursors of a batch as whole numbers: from included, to not. */
  range(): [from: number, to: number] {
    const { batch } = this;
    if (!batch) throw new Permanent(`step ${this.stepName} is not a batch`, { errorType: "NotABatch" });
    if (batch.items) throw new Permanent(`the batch ${batch.id} has items and no range`, { errorType: "ItemsNotRead" });
    for (const [name, cursor] of [
      ["start", batch.start],
      ["end", batch.end],
    ] as const) {
      if (!Number.isSafeInteger(cursor))
        throw new Permanent(`invalid ${name} of the batch ${batch.id}: want a whole number`, {
          errorType: "InvalidInput",
        });
    }
    return [batch.start, batch.end];
  }

  /** The items of a batch without cursors, converted; undefined for other steps. */
  itemsAs<T>(as: Convert<T>): T[] | undefined {
    return this.batch?.items?.map((item, i) => converted(item, as, `item ${i + 1} of the batch`));
  }

  /** Records an item of a batch that could not be processed (failure_strategy: isolate), as it is now. */
  isolate(item: Json, why: Error | string): void {
    const wrong = !this.batch
      ? "it is not a batch"
      : ["", "isolate"].includes(this.batch.failureStrategy)
        ? ""
        : `its failure_strategy is ${this.batch.failureStrategy}`;
    if (wrong)
      throw new Permanent(`isolate an item of step ${this.stepName}: ${wrong}`, { errorType: "ItemNotIsolated" });
    this.isolated.push({
      item: encodable(item, "the isolated item", "ItemNotIsolated").value,
      error: fault(typeof why === "string" ? new Permanent(why) : why),
    });
  }

  /**
   * Publishes a durable domain event, which the template does not declare, with the success of the step; its payload
   * is as it is now. An attempt that fails publishes none, and a step that has published cannot yield.
   */
  publish(name: string, payload: Json): void {
    this.events.push({
      name,
      payload: encodable(payload, `the payload of the event ${name}`, "EventNotPublished").value,
    });
  }

  /** Adds fields to what is stored beside the result (metadata.custom), if the step succeeds: 16 KiB of JSON in all. */
  metadata(fields: Record<string, Json>): void {
    const all = encodable({ ...this.added, ...fields }, "the metadata");
    if (new TextEncoder().encode(all.text).length > maxMetadata) {
      throw new Permanent(
        `add metadata: with it there are ${all.text.length} characters of JSON: want at most ${maxMetadata} bytes`,
        { errorType: "ResultNotStorable" },
      );
    }
    this.added = all.value as Record<string, Json>;
  }

  /** Calls a function when the success or failure of this execution is recorded; with false if it is not. */
  onRecorded(call: (accepted: boolean) => void): void {
    this.recorded = call;
  }

  /** Of the worker: the end is recorded, or cannot be. */
  tellRecorded(accepted: boolean): void {
    const call = this.recorded;
    this.recorded = undefined;
    call?.(accepted);
  }

  /** Reads what does not change, once; a failed reading is tried again. */
  private once<T>(known: Map<string, Promise<T>>, step: string, read: () => Promise<T>): Promise<T> {
    const found = known.get(step);
    if (found) return found;
    const reading = this.ask(read).catch((e: unknown) => {
      known.delete(step);
      if (!(e instanceof NotFound)) throw e;
      throw e.message.includes("not a step this one depends on") ? new UnknownStep(e.message) : new Absent(e.message);
    });
    known.set(step, reading);
    return reading;
  }

  /** Repeats a request while the worker looks for a daemon that answers. */
  private async ask<T>(request: () => Promise<T>): Promise<T> {
    for (let deadline = Date.now() + patienceMs, pause = 50; ; pause = Math.min(pause * 2, longestPauseMs)) {
      this.signal.throwIfAborted();
      try {
        return await request();
      } catch (e) {
        if (!(e instanceof Unavailable) || Date.now() > deadline) throw e;
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
    }
  }

  /** Of the worker: keeps a line with the attempt. */
  keepLine(level: Level, text: string, fields?: Record<string, Json>): void {
    this.lines?.write(this, level, String(text), fields);
  }

  /** Of the worker: it captures what the handler prints. */
  get captures(): boolean {
    return this.lines?.captures ?? false;
  }

  /** Of the worker: keeps the lines of what the handler prints, once they have ended. */
  printed(level: Level, text: string): void {
    const lines = ((this.begun.get(level) ?? "") + text).split("\n");
    this.begun.set(level, (lines.pop() ?? "").slice(-maxBegun));
    for (const line of lines) this.keepLine(level, line.replace(/\r$/, ""));
  }

  /** Of the worker: keeps what the handler has printed without ending the line. */
  endPrinted(): void {
    for (const [level, line] of this.begun) if (line !== "") this.keepLine(level, line);
    this.begun.clear();
  }

  /** Of the worker. */
  cancel(reason: CancelReason): void {
    this.controller.abort(new Cancelled(reason));
  }
}

function toStderr(entry: Record<string, Json>): void {
  console.error(JSON.stringify(snapshot(entry)));
}

/** The results of the direct parents; one behind batches says where theirs are. */
function resultsOf(m: StepMessage): Record<string, Json> {
  const results: Record<string, Json> = { ...m.dependency_results };
  for (const step of m.batch_steps ?? []) {
    Object.defineProperty(results, step, {
      enumerable: false, // a handler that copies all of them does not ask for this one
      get(): never {
        throw new UnknownStep(
          `${step} has many results: ctx.batchResults(${JSON.stringify(step)}) reads those of its batches`,
        );
      },
    });
  }
  return results;
}
