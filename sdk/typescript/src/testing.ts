/** For tests: runs handlers without a daemon (runStep), and workflows on a private engine of the test (startEngine). */

import { parsed } from "./bytes.js";
import { StepContext } from "./context.js";
import type { Json, Point } from "./errors.js";
import type { Handler } from "./handlers.js";
import { reportOf } from "./report.js";
import { NotFound, NotHeld, Session, type StepMessage } from "./session.js";

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
  /** Further fields of a step, as in docs/protocol.md. */
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
  /** Checkpoints of the handler, in order. */
  saved: Point[];
}

/** Answers the requests of a handler to its session. */
class Daemon extends Session {
  readonly saved: Point[] = [];

  constructor(private readonly options: StepOptions) {
    super([]);
  }

  override checkpoint(_: unknown, point: Point): Promise<void> {
    if (this.options.leaseLost) return Promise.reject(new NotHeld("the session does not hold this step"));
    this.saved.push(point);
    return Promise.resolve();
  }

  override progress(): Promise<void> {
    return Promise.resolve();
  }

  override result(_: unknown, step: string): Promise<Json> {
    const known = this.options.ancestors ?? {};
    return step in known ? Promise.resolve(sent(known[step])) : Promise.reject(new NotFound(`no result of the step ${step}`));
  }

  override batchResults(_: unknown, step: string): Promise<{ step_name: string; result: Json }[]> {
    const list = this.options.batchResults?.[step] ?? [];
    return Promise.resolve(list.map((result, n) => ({ step_name: `${step}_${String(n + 1).padStart(3, "0")}`, result: sent(result) })));
  }
}

/** A value as it arrives from a daemon. */
function sent(value: Json): Json {
  return value === undefined ? undefined : parsed(JSON.stringify(value));
}

/** Calls a handler as a worker does. */
export async function runStep(handler: Handler, options: StepOptions = {}): Promise<Outcome> {
  const daemon = new Daemon(options), { checkpoint, items } = options;
  const message: StepMessage = {
    fence: "1.1", task_uuid: crypto.randomUUID(), step_uuid: crypto.randomUUID(), correlation_id: crypto.randomUUID(),
    namespace: "test", task_name: "test", task_version: "1.0.0", step_name: "test", callable: "test", attempt: 1, max_attempts: 3, priority: 0,
    context: options.context ?? {}, initialization: options.config ?? {}, dependency_results: options.results ?? {},
    ...(checkpoint ? { checkpoint } : {}),
    ...(items ? { items, batch: { batch_id: "batch-1", batch_size: items.length, is_no_op: false } } : {}),
    ...options.message,
  };
  const ctx = new StepContext(daemon, sent(message) as StepMessage);
  const { fence: _, ...report } = await reportOf(ctx, handler, () => {});
  return { ...report, saved: daemon.saved } as unknown as Outcome;
}
