/** The worker: opens sessions, runs handlers and reports how they ended. */

import { StepContext } from "./context.js";
import { runStep } from "./current.js";
import { Cancelled, Permanent, Returned, Yield, fault, type Json } from "./errors.js";
import { Handlers, type Handler } from "./handlers.js";
import { NotFound, NotHeld, Refused, Session, Transport, Unavailable, type Report, type StepMessage } from "./session.js";

declare const process: {
  env: Record<string, string | undefined>;
  pid: number;
  once(signal: string, listener: () => void): void;
};

export interface WorkerOptions {
  /** Of the daemon; default TASKER_WORKER_URL, then http://localhost:8081. */
  url?: string;
  /** How many steps run at once; default 1. */
  permits?: number;
  /** For operators. */
  name?: string;
  /** Default TASKER_AUTH_TOKEN. */
  token?: string;
  apiKey?: string;
  /** Gets one line per incident; default console.warn. */
  log?: (message: string) => void;
}

const version = "0.1.0";

/** Runs the steps of its handlers until it is stopped. */
export class Worker extends Handlers {
  private readonly transport: Transport;
  private readonly permits: number;
  private readonly name: string;
  private readonly log: (message: string) => void;
  private stopping = false;
  private session: Session | undefined;
  private wake: (() => void) | undefined;

  constructor(options: WorkerOptions = {}) {
    super();
    this.transport = new Transport(options.url ?? process.env["TASKER_WORKER_URL"] ?? "http://localhost:8081",
      { token: options.token ?? process.env["TASKER_AUTH_TOKEN"] ?? "", apiKey: options.apiKey ?? "" });
    this.permits = options.permits ?? 1;
    this.name = options.name ?? `node-${process.pid}`;
    this.log = options.log ?? ((message) => console.warn(message));
  }

  /** Runs until SIGTERM, SIGINT or stop; the steps that run then end first. */
  async run(): Promise<void> {
    if (this.known.size === 0) throw new TypeError("run the worker: want at least one handler");
    for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => void this.stop());
    for (let failures = 0; !this.stopping; ) {
      try {
        this.session = await Session.open(this.transport, this.request());
        failures = 0;
        await new Life(this.session, this.known, () => this.stopping, this.log).live();
      } catch (e) {
        if (!(e instanceof Unavailable || e instanceof NotFound)) throw e;
        this.log(`no session: ${e.message}`);
        await this.pause(Math.min(100 * 2 ** ++failures, 5000) * (0.5 + Math.random() / 2));
      }
    }
  }

  /** Takes no more steps; run ends when those that run have ended. */
  async stop(): Promise<void> {
    this.stopping = true;
    this.wake?.();
    try {
      await this.session?.interrupt();
    } catch {
      // the poll ends by itself
    }
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  private request(): Json {
    const callables = [...this.known].map(([callable, methods]) => ({ callable, methods: [...methods.keys()].filter((m) => m !== "call") }));
    return { protocol: 1, name: this.name, client: `tasker-typescript/${version}`, permits: this.permits, callables };
  }
}

/** The life of one session. */
class Life {
  private readonly held = new Map<string, StepContext>();
  private reports: Report[] = [];
  private sending: Promise<void> | undefined;

  constructor(private readonly session: Session, private readonly handlers: Map<string, Map<string, Handler>>,
              private readonly stopping: () => boolean, private readonly log: (message: string) => void) {}

  /** Polls until the worker or the daemon stops, or the session is lost. */
  async live(): Promise<void> {
    try {
      await this.poll();
      await this.session.close().catch((e: unknown) => this.log(`the session was not closed: ${String(e)}`));
    } finally {
      for (const ctx of this.held.values()) ctx.cancel("lease_lost");
    }
  }

  private async poll(): Promise<void> {
    let answered = Date.now();
    for (let draining = false; ; ) {
      const stops = draining || this.stopping();
      if (stops && this.held.size === 0) return;
      try {
        const answer = await this.session.poll(stops ? 200 : this.session.maxWaitMs, stops);
        answered = Date.now();
        draining = answer.draining;
        for (const message of answer.steps) this.take(message);
        for (const notice of answer.cancelled) this.held.get(notice.fence)?.cancel(notice.reason);
      } catch (e) {
        if (!(e instanceof Unavailable)) throw e;
        if (Date.now() - answered > this.session.graceMs) throw new NotFound(`no answer within the grace: ${e.message}`);
        await delay(50);
      }
      if (draining) await delay(50); // a draining daemon answers at once
    }
  }

  private take(message: StepMessage): void {
    if (this.held.has(message.fence)) return; // told again
    const ctx = new StepContext(this.session, message);
    this.held.set(ctx.fence, ctx);
    void this.execute(ctx).then((report) => {
      this.reports.push(report);
      this.sending ??= this.send();
    });
  }

  private async execute(ctx: StepContext): Promise<Report> {
    const { fence } = ctx;
    try {
      const handler = this.handlers.get(ctx.callable)?.get(ctx.method);
      if (!handler) throw new Returned();
      const result = encodable((await runStep(ctx, () => handler(ctx))) ?? null);
      return { fence, outcome: "success", result, ...isolatedBy(ctx) };
    } catch (e) {
      if (e instanceof Yield) return { fence, outcome: "yield", checkpoint: e.point, ...isolatedBy(ctx) };
      if (e instanceof Returned || e instanceof Cancelled || ctx.signal.aborted) return { fence, outcome: "returned" };
      this.log(`step ${ctx.stepName} failed: ${String(e)}`);
      return { fence, outcome: "failure", error: fault(e) };
    }
  }

  /** Sends reports; those that come while one request is under way share the next. */
  private async send(): Promise<void> {
    while (this.reports.length > 0) {
      const batch = this.reports;
      this.reports = [];
      await this.deliver(batch);
      for (const report of batch) this.held.delete(report.fence);
    }
    this.sending = undefined;
  }

  private async deliver(batch: Report[]): Promise<void> {
    for (const deadline = Date.now() + this.session.graceMs; ; ) {
      try {
        for (const rejection of await this.session.report(batch)) this.log(`the end of a step was rejected: ${JSON.stringify(rejection)}`);
        return;
      } catch (e) {
        if (e instanceof Refused) return this.refused(batch, e);
        if (!(e instanceof Unavailable) || Date.now() > deadline) {
          this.log(`${batch.length} steps were not reported: ${String(e)}`);
          return;
        }
        await delay(50);
      }
    }
  }

  /** Finds the report that the daemon refuses (too large), and reports that instead. */
  private async refused(batch: Report[], why: Refused): Promise<void> {
    const [only, ...more] = batch;
    if (!only) return;
    if (more.length > 0) {
      for (const report of batch) await this.deliver([report]);
    } else if (only.outcome !== "failure") {
      const error = fault(new Permanent(`the daemon refused the end of the step: ${why.message}`, { errorType: "ReportRefused" }));
      await this.deliver([{ fence: only.fence, outcome: "failure", error }]);
    } else {
      this.log(`the failure of a step was not reported: ${why.message}`);
    }
  }
}

function isolatedBy(ctx: StepContext): Record<string, Json> {
  return ctx.isolated.length > 0 ? { isolated: ctx.isolated } : {};
}

function encodable(result: Json): Json {
  let text: string | undefined;
  try {
    text = JSON.stringify(result);
  } catch (e) {
    throw new Permanent(`the handler's result has no JSON form: ${String(e)}`, { errorType: "ResultNotEncodable" });
  }
  if (text === undefined) throw new Permanent("the handler's result has no JSON form", { errorType: "ResultNotEncodable" });
  return result;
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

export { NotFound, NotHeld, Refused, Unavailable };
