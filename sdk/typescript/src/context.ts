/** The context of a step for its handler. */

import { Cancelled, Permanent, encodable, fault, pointOf, type Json, type Point } from "./errors.js";
import { NotFound, NotHeld, Unavailable, type Session, type StepMessage } from "./session.js";

/** The part of the work that a step does; end is exclusive. */
export interface Batch {
  id: string;
  start: Json;
  end: Json;
  size: number;
  noOp: boolean;
  cursorField: string;
  failureStrategy: string;
  items: Json[] | undefined;
}

/** Saved progress. */
export interface Checkpoint {
  cursor: Json;
  itemsProcessed: number;
  accumulated: Json;
}

/** How long a request of a handler is repeated while no daemon answers it. */
const patienceMs = 60_000;

/** One execution of a step. */
export class StepContext {
  /** Names the execution; a new one once it continues in another session. */
  fence: string;
  readonly taskUuid: string;
  readonly stepUuid: string;
  readonly correlationId: string;
  readonly namespace: string;
  readonly taskName: string;
  readonly taskVersion: string;
  readonly stepName: string;
  readonly callable: string;
  readonly method: string;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly priority: number;
  /** The span of this attempt as W3C trace context, for a tracing library; empty without a trace. */
  readonly traceparent: string;
  /** What the sender of the trace added to it. */
  readonly tracestate: string;
  readonly context: Json;
  readonly config: Record<string, Json>;
  readonly results: Record<string, Json>;
  /** Seconds of the step's time limit when it was handed out. */
  readonly timeLeft: number | undefined;
  readonly batch: Batch | undefined;
  readonly isolated: Json[] = [];
  readonly events: { name: string; payload: Json }[] = [];
  private point: Point | undefined;
  private readonly controller = new AbortController();

  constructor(private readonly session: Session, m: StepMessage) {
    this.fence = m.fence;
    this.taskUuid = m.task_uuid;
    this.stepUuid = m.step_uuid;
    this.correlationId = m.correlation_id;
    this.namespace = m.namespace;
    this.taskName = m.task_name;
    this.taskVersion = m.task_version;
    this.stepName = m.step_name;
    this.callable = m.callable;
    this.method = m.method || "call";
    this.attempt = m.attempt;
    this.maxAttempts = m.max_attempts;
    this.priority = m.priority;
    this.traceparent = m.traceparent ?? "";
    this.tracestate = m.tracestate ?? "";
    this.context = m.context;
    this.config = m.initialization ?? {};
    this.results = m.dependency_results ?? {};
    this.timeLeft = m.time_left_ms === undefined ? undefined : m.time_left_ms / 1000;
    this.point = m.checkpoint;
    this.batch = m.batch && {
      id: m.batch.batch_id,
      start: m.batch.start_cursor,
      end: m.batch.end_cursor,
      size: m.batch.batch_size,
      noOp: m.batch.is_no_op,
      cursorField: m.batch.cursor_field ?? "",
      failureStrategy: m.batch.failure_strategy ?? "",
      items: m.items,
    };
  }

  /** The same for every attempt of this step. */
  get idempotencyKey(): string {
    return this.stepUuid;
  }

  get isLastAttempt(): boolean {
    return this.attempt >= this.maxAttempts;
  }

  /** Aborts, with a Cancelled as the reason, once the result of the step is not accepted any more. */
  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** The latest checkpoint. */
  get saved(): Checkpoint | undefined {
    return this.point && { cursor: this.point.cursor, itemsProcessed: this.point.items_processed, accumulated: this.point.accumulated_results };
  }

  /** Saves progress; throws Cancelled if the step is not held any more. */
  async checkpoint(cursor: Json, itemsProcessed: number, accumulated?: Json): Promise<void> {
    const point = pointOf(cursor, itemsProcessed, accumulated);
    try {
      // With the items isolated so far: the next execution begins behind them.
      const sent = this.isolated.length > 0 ? { ...point, isolated: [...this.isolated] } : point;
      await this.ask(() => this.session.checkpoint(this, sent));
    } catch (e) {
      if (!(e instanceof NotHeld)) throw e;
      this.cancel("lease_lost");
      throw new Cancelled("lease_lost");
    }
    this.point = point;
  }

  /** Shows operators how far the step is, from 0 to 1. Nothing is recorded, and a daemon that cannot be reached does
   *  not get it. */
  async progress(fraction: number, message = ""): Promise<void> {
    try {
      await this.session.progress(this, fraction, message);
    } catch (e) {
      if (!(e instanceof NotHeld || e instanceof NotFound || e instanceof Unavailable)) throw e; // the next checkpoint or notice reports it
    }
  }

  /** The result of a step that this one depends on, directly or not. */
  async result(step: string): Promise<Json> {
    return step in this.results ? this.results[step] : this.ask(() => this.session.result(this, step));
  }

  /** The results of the batches of a worker step. */
  batchResults(step: string): Promise<{ step_name: string; result: Json }[]> {
    return this.ask(() => this.session.batchResults(this, step));
  }

  /** Records an item of a batch that could not be processed (failure_strategy: isolate). */
  isolate(item: Json, why: Error | string): void {
    this.isolated.push({ item, error: fault(typeof why === "string" ? new Permanent(why) : why) });
  }

  /** Publishes a durable domain event, which the template does not declare, with the success of the step.
   * An attempt that fails publishes none, and a step that has published cannot yield. */
  publish(name: string, payload: Json): void {
    this.events.push({ name, payload: encodable(payload, `the payload of the event ${name}`, "EventNotPublished") });
  }

  /** Repeats a request while the worker looks for a daemon that answers. */
  private async ask<T>(request: () => Promise<T>): Promise<T> {
    for (const deadline = Date.now() + patienceMs; ; ) {
      this.signal.throwIfAborted();
      try {
        return await request();
      } catch (e) {
        if (!(e instanceof Unavailable) || Date.now() > deadline) throw e;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  /** Of the worker. */
  cancel(reason: string): void {
    this.controller.abort(new Cancelled(reason));
  }
}
