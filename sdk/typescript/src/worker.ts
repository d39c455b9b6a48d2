/** The worker: opens sessions, runs handlers and reports how they ended. */

import { StepContext } from "./context.js";
import { Permanent, fault, type Json } from "./errors.js";
import { Handlers, type Handler } from "./handlers.js";
import { Told, type Hooks } from "./hooks.js";
import { reportOf } from "./report.js";
import { NotFound, NotHeld, Refused, Session, Transport, Unavailable, type Report, type StepMessage } from "./session.js";

declare const process: {
  env: Record<string, string | undefined>;
  pid: number;
  once(signal: string, listener: () => void): void;
  off(signal: string, listener: () => void): void;
};

export interface WorkerOptions {
  /**
   * Of a worker daemon, or of several with commas between them: when one does not answer, the worker continues with its
   * steps at the next. Default TASKER_WORKER_URL, then http://localhost:8081.
   */
  url?: string;
  /** How many steps run at once; default 1. */
  permits?: number;
  /** Shown to operators. */
  name?: string;
  /** Default TASKER_AUTH_TOKEN. */
  token?: string;
  apiKey?: string;
  /** Callbacks. */
  hooks?: Hooks;
  /** Gets one line per incident; default console.warn. */
  log?: (message: string) => void;
}

const version = "0.1.0";

/** Runs the steps of its handlers until it is stopped. */
export class Worker extends Handlers {
  private readonly session: Session;
  private readonly permits: number;
  private readonly name: string;
  private readonly log: (message: string) => void;
  private readonly hooks: Told;
  private stopping = false;
  private wake: (() => void) | undefined;

  constructor(options: WorkerOptions = {}) {
    super();
    const credentials = { token: options.token ?? process.env["TASKER_AUTH_TOKEN"] ?? "", apiKey: options.apiKey ?? "" };
    const addresses = options.url ?? process.env["TASKER_WORKER_URL"] ?? "http://localhost:8081";
    this.session = new Session(addresses.split(",").map((url) => new Transport(url.trim(), credentials)));
    this.permits = options.permits ?? 1;
    this.name = options.name ?? `node-${process.pid}`;
    this.log = options.log ?? ((message) => console.warn(message));
    this.hooks = new Told(options.hooks ?? {}, this.log);
  }

  /** Runs until SIGTERM, SIGINT or stop; the steps that run then end first. With signals: false the program handles the signals. */
  async run({ signals = true }: { signals?: boolean } = {}): Promise<void> {
    if (this.known.size === 0) throw new TypeError("run the worker: want at least one handler");
    const heeded = signals ? ["SIGTERM", "SIGINT"] : [], stop = (): void => void this.stop();
    for (const name of heeded) process.once(name, stop);
    try {
      while (!this.stopping) await new Life(this.session, this.known, this.request(), () => this.stopping, (ms) => this.pause(ms), this.log, this.hooks).live();
    } finally {
      for (const name of heeded) process.off(name, stop);
    }
    this.hooks.tell("stopped");
  }

  /** Takes no more steps; run ends when the running ones have ended. */
  async stop(): Promise<void> {
    this.stopping = true;
    this.wake?.();
    try {
      await this.session.interrupt();
    } catch {
      // the wait for steps ends by itself
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

  private request(): Record<string, Json> {
    const callables = [...this.known].map(([callable, methods]) => ({ callable, methods: [...methods.keys()].filter((m) => m !== "call") }));
    return { protocol: 1, name: this.name, client: `tasker-typescript/${version}`, permits: this.permits, callables };
  }
}

/** Works until the worker or the daemon stops, with one session after another. */
class Life {
  private readonly held = new Map<string, StepContext>(); // by their first fences; their ends are not confirmed
  private reports: [StepContext, Report][] = [];
  private sending: Promise<void> | undefined;

  constructor(private readonly session: Session, private readonly handlers: Map<string, Map<string, Handler>>,
              private readonly request: Record<string, Json>, private readonly stopping: () => boolean,
              private readonly pause: (ms: number) => Promise<void>, private readonly log: (message: string) => void,
              private readonly hooks: Told) {}

  async live(): Promise<void> {
    try {
      if (!(await this.open())) return;
      await this.follow();
      await this.session.close().catch((e: unknown) => this.log(`the session was not closed: ${String(e)}`));
      if (this.session.alternatives && !this.stopping()) this.session.next(); // this daemon stops
    } finally {
      this.drop([...this.held.values()]);
    }
  }

  /** Cancels steps that another worker has; their results here are not reported. */
  private drop(lost: StepContext[]): void {
    this.forget(lost);
    for (const ctx of lost) ctx.cancel("lease_lost");
  }

  /** Opens a session with the held steps. Resolves to whether it succeeded: not if the worker stops first. */
  private async open(): Promise<boolean> {
    this.session.moving = true;
    return await this.openAnother().finally(() => (this.session.moving = false));
  }

  private async openAnother(): Promise<boolean> {
    const begun = Date.now();
    for (let failures = 0; ; ) {
      if (this.stopping() && (this.held.size === 0 || Date.now() - begun > this.session.graceMs)) return false;
      const held = [...this.held.values()];
      try {
        const lost = await this.session.open(this.request, held);
        this.hooks.tell("opened");
        if (lost.length > 0) this.log(`${lost.length} of ${held.length} steps were not kept`);
        this.drop(lost);
        return true;
      } catch (e) {
        if (!(e instanceof Unavailable || e instanceof NotFound)) throw e;
        if (++failures === 1) this.log(`no session: ${e.message}`);
        this.session.next();
        // Held steps have the grace of a restarted daemon.
        const longest = held.length > 0 ? Math.min(2000, this.session.graceMs / 4) : 2000;
        const ms = Math.min(50 * 2 ** failures, longest) * (0.5 + Math.random() / 2);
        await (held.length > 0 ? delay(ms) : this.pause(ms));
      }
    }
  }

  private async follow(): Promise<void> {
    let answered = Date.now();
    for (let draining = false, told = false; ; ) {
      const stops: boolean = draining || this.stopping();
      if (stops && !told) this.hooks.tell("draining");
      told ||= stops;
      if (stops && this.held.size === 0) return;
      try {
        for await (const answer of this.session.follow(stops ? 200 : this.session.maxWaitMs, stops)) {
          answered = Date.now();
          draining = answer.draining;
          for (const message of answer.steps) this.take(message);
          for (const notice of answer.cancelled) [...this.held.values()].find((ctx) => ctx.fence === notice.fence)?.cancel(notice.reason);
        }
      } catch (e) {
        if (!(e instanceof NotFound || e instanceof Unavailable)) throw e;
        const away = Date.now() - answered, { graceMs, alternatives } = this.session;
        const elsewhere = e instanceof Unavailable && (away > graceMs || (alternatives && away > graceMs / 10));
        if (elsewhere) this.session.next();
        if (elsewhere || e instanceof NotFound) {
          if (!(await this.open())) return;
          answered = Date.now();
        } else await delay(50);
      }
      if (draining) await delay(50); // a draining daemon answers at once
    }
  }

  private take(message: StepMessage): void {
    if (this.held.has(message.fence)) return; // delivered again
    const ctx = new StepContext(this.session, message);
    this.held.set(ctx.fence, ctx);
    const begun = Date.now();
    this.hooks.tell("before", ctx);
    void this.execute(ctx).then((report) => {
      this.hooks.tell("after", ctx, report.outcome, (Date.now() - begun) / 1000);
      this.reports.push([ctx, report]);
      this.sending ??= this.send();
    });
  }

  private async execute(ctx: StepContext): Promise<Report> {
    const handler = this.handlers.get(ctx.callable)?.get(ctx.method);
    return reportOf(ctx, handler, (e) => {
      this.log(`step ${ctx.stepName} failed: ${String(e)}`);
      this.hooks.tell("failed", ctx, e);
    });
  }

  /** Sends reports; those that come while one request is under way share the next. */
  private async send(): Promise<void> {
    while (this.reports.length > 0) {
      const batch = this.reports;
      this.reports = [];
      await this.deliver(batch);
    }
    this.sending = undefined;
  }

  /** Sends reports until they are recorded, or rejected, or another worker has their steps. */
  private async deliver(batch: [StepContext, Report][]): Promise<void> {
    for (;;) {
      const held = new Set(this.held.values());
      batch = batch.filter(([ctx]) => held.has(ctx));
      if (batch.length === 0) return;
      for (const [ctx, report] of batch) report.fence = ctx.fence;
      try {
        const answer = await this.session.report(batch.map(([, report]) => report));
        for (const rejection of answer.rejected) this.log(`the end of a step was rejected: ${JSON.stringify(rejection)}`);
        const unrecorded = new Set(answer.unrecorded ?? []);
        const wrong = new Map(answer.rejected.filter((r) => r.status === 400).map((r) => [r.fence, r.error])); // the daemon waits for another
        this.forget(batch.filter(([, { fence }]) => !unrecorded.has(fence) && !wrong.has(fence)).map(([ctx]) => ctx));
        for (const one of batch) {
          const why = wrong.get(one[1].fence);
          if (why !== undefined) await this.refused([one], new Refused(why));
        }
        if (unrecorded.size > 0) await delay(50);
      } catch (e) {
        if (e instanceof Refused) return this.refused(batch, e);
        if (!(e instanceof Unavailable || e instanceof NotFound)) throw e;
        await delay(50); // follow opens another session if necessary
      }
    }
  }

  private forget(ended: StepContext[]): void {
    const gone = new Set(ended);
    for (const [key, ctx] of this.held) if (gone.has(ctx)) this.held.delete(key);
  }

  /** Finds the report that the daemon refuses (too large), and reports that instead. */
  private async refused(batch: [StepContext, Report][], why: Refused): Promise<void> {
    const [only, ...more] = batch;
    if (!only) return;
    const [ctx, report] = only, failed = report["error"] as { error_type?: string; retryable?: boolean } | undefined;
    if (more.length > 0) {
      for (const one of batch) await this.deliver([one]);
    } else if (failed?.error_type !== "ReportRefused") {
      const error = fault(new Permanent(`the daemon refused the end of the step: ${why.message}`, { errorType: "ReportRefused" }));
      error["retryable"] = failed?.retryable ?? report.outcome === "failure";
      await this.deliver([[ctx, { fence: ctx.fence, outcome: "failure", error }]]);
    } else {
      this.log(`the failure of a step was not reported: ${why.message}`);
      this.forget([ctx]);
    }
  }
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

export { NotFound, NotHeld, Refused, Unavailable };
