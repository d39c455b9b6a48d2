/** For tests: runs handlers without a daemon (runStep), and workflows on a private engine of the test (startEngine). */

import { StepContext } from "./context.js";
import type { Json, Point } from "./errors.js";
import { Publishing, type Publisher } from "./events.js";
import type { Handler } from "./handlers.js";
import { Encoded, snapshot } from "./json.js";
import { fieldsOf } from "./lines.js";
import { reportOf } from "./report.js";
import { NotFound, NotHeld, Session, type BatchEnd, type StepMessage } from "./session.js";

export { Engine, EngineError, startEngine, type EngineOptions, type StepEnd, type TaskEnd } from "./engine.js";

/** The input of a handler. It arrives as from a daemon: as JSON, with Bytes in it. */
export interface StepOptions {
  context?: Json;
  /** Results of the direct parents. */
  results?: Record<string, Json>;
  /** Results of earlier steps. */
  ancestors?: Record<string, Json>;
  /** Results of the batches of a worker step. */
  batchResults?: Record<string, Json[]>;
  config?: Record<string, Json>;
  checkpoint?: Point;
  items?: Json[];
  /** The first checkpoint finds that the step is not held. */
  leaseLost?: boolean;
  /** Make the declared events that message.publishes lists. */
  publishers?: Publisher[];
  /** Further fields of a step, as in docs/reference/protocol.md. */
  message?: Partial<StepMessage>;
}

/** The end of a handler, as in its report. */
export interface Outcome {
  outcome: string;
  result?: Json;
  error?: Record<string, Json>;
  checkpoint?: Point;
  next?: Record<string, Json>;
  isolated?: Json[];
  events?: { name: string; payload: Json }[];
  metadata?: Record<string, Json>;
  /** What publishers made. */
  made?: { name: string; payload?: Json; metadata?: Record<string, Json>; skip?: string }[];
  /** Checkpoints of the handler, in order. */
  saved: Point[];
  /** What the handler has logged, in order. */
  logs: { level: string; text: string; fields: Record<string, Json> }[];
}

/** Answers the requests of a handler to its session. */
class Daemon extends Session {
  readonly saved: Point[] = [];

  constructor(private readonly options: StepOptions) {
    super([]);
  }

  override checkpoint(_: unknown, point: Point): Promise<string | undefined> {
    if (this.options.leaseLost) return Promise.reject(new NotHeld("the session does not hold this step"));
    this.saved.push(point);
    return Promise.resolve(undefined);
  }

  override progress(): Promise<void> {
    return Promise.resolve();
  }

  override result(_: unknown, step: string): Promise<Json> {
    const known = this.options.ancestors ?? {};
    return Object.hasOwn(known, step)
      ? Promise.resolve(sent(known[step]))
      : Promise.reject(new NotFound(`no result of the step ${step}`));
  }

  override batchResults(_: unknown, step: string): Promise<BatchEnd[]> {
    const known = this.options.batchResults ?? {},
      list = Object.hasOwn(known, step) ? (known[step] ?? []) : [];
    return Promise.resolve(this.batchesOf(list, step));
  }

  override now(what: "results" | "batch-results", _: unknown, step: string): Record<string, Json> {
    const { ancestors = {}, batchResults = {} } = this.options;
    const found = what === "results" ? ancestors : batchResults;
    if (!Object.hasOwn(found, step)) throw new NotFound(`no result of the step ${step}`);
    return what === "results"
      ? { result: sent(ancestors[step]) }
      : { batches: this.batchesOf(batchResults[step] ?? [], step) };
  }

  private batchesOf(list: Json[], step: string): BatchEnd[] {
    return list.map((result, n) => ({ step_name: `${step}_${String(n + 1).padStart(3, "0")}`, result: sent(result) }));
  }
}

/** A value as it arrives from a daemon. */
function sent(value: Json): Json {
  return value === undefined ? undefined : snapshot(value);
}

/** Calls a handler as a worker does. */
export async function runStep(handler: Handler, options: StepOptions = {}): Promise<Outcome> {
  const daemon = new Daemon(options),
    { checkpoint, items } = options;
  const message: StepMessage = {
    fence: "1.1",
    task_uuid: crypto.randomUUID(),
    step_uuid: crypto.randomUUID(),
    correlation_id: crypto.randomUUID(),
    namespace: "test",
    task_name: "test",
    task_version: "1.0.0",
    step_name: "test",
    callable: "test",
    attempt: 1,
    max_attempts: 3,
    priority: 0,
    context: options.context ?? {},
    initialization: options.config ?? {},
    dependency_results: options.results ?? {},
    ...(checkpoint ? { checkpoint } : {}),
    ...(items ? { items, batch: { batch_id: "batch-1", batch_size: items.length, is_no_op: false } } : {}),
    ...options.message,
  };
  const logs: Outcome["logs"] = [];
  const ctx = new StepContext(daemon, sent(message) as StepMessage, undefined, {
    captures: false,
    write: (_, level, text, fields = {}) => logs.push({ level, text, fields: JSON.parse(fieldsOf(fields)) as Record<string, Json> }),
  });
  const publishing = new Publishing(new Map((options.publishers ?? []).map((p) => [p.name, p])), 5000, (line) =>
    console.warn(line),
  );
  const {
    fence: _,
    recorded,
    result_bytes: base64,
    content_type: type,
    ...report
  } = await reportOf(
    ctx,
    () => handler,
    () => {},
    publishing,
  );
  recorded?.();
  const bytes = base64 === undefined ? {} : { result: snapshot({ $bytes: base64, content_type: type }) };
  return {
    ...Object.fromEntries(Object.entries(report).map(([name, value]) => [name, plain(value)])),
    ...bytes,
    saved: daemon.saved,
    logs,
  } as unknown as Outcome;
}

/** A value of a report without its encoding. */
function plain(value: Json): Json {
  return Array.isArray(value) ? value.map(plain) : value instanceof Encoded ? value.value : value;
}
