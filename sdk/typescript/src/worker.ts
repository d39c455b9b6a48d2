/** The worker: opens sessions, runs handlers and reports how they ended. */

import { StepContext } from "./context.js";
import { discover } from "./discover.js";
import { Permanent, fault, textOf, type Json } from "./errors.js";
import { Delivery, Publishing } from "./events.js";
import { Handlers } from "./handlers.js";
import { Told, type Hooks } from "./hooks.js";
import { Lines, maxBytes } from "./lines.js";
import { output } from "./output.js";
import { Presences } from "./presence.js";
import { reportOf } from "./report.js";
import { Resolution } from "./resolving.js";
import {
  NotFound,
  NotHeld,
  Refused,
  Session,
  Transport,
  Unavailable,
  type Report,
  type StepMessage,
} from "./session.js";

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
  /** Only steps of these namespaces; default: all that the credentials allow. */
  namespaces?: readonly string[];
  /** Shown to operators. */
  name?: string;
  /** Default TASKER_AUTH_TOKEN. */
  token?: string;
  apiKey?: string;
  /** Callbacks. */
  hooks?: Hooks;
  /** How long a publisher may work on one event, in seconds; default 5. */
  publisherTimeout?: number;
  /** Gets one line per incident; default console.warn. */
  log?: (message: string) => void;
  /** Gets what handlers write to ctx.logger; default: lines of JSON on stderr. */
  stepLog?: (entry: Record<string, Json>) => void;
  /** Bounds the lines of handlers that wait to be sent, of all together; default 4 MiB, and 0 sends none. */
  maxLogBytes?: number;
  /** Whether what handlers print is kept like what they log. Default false. */
  captureOutput?: boolean;
  /** Whether the log tells of each session: "connected to URL, serving N handlers". Default true. */
  announce?: boolean;
}

const version = "0.1.0";

/** The shortest time between two requests to a daemon that answers at once and has nothing. */
const leastMs = 1000;

/** How long the end of a session waits for the lines of its handlers. */
const linesMs = 1000;

/** Pauses that end early when there is something to do. */
class Rest {
  /** When a session was opened last. */
  opened = 0;
  private end: (() => void) | undefined;

  pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.end = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  wake(): void {
    this.end?.();
  }
}

/** Notices when a handler has kept the event loop for long. */
class Pulse {
  /** When the loop went on after it stood still. */
  back = 0;
  private readonly timer: ReturnType<typeof setInterval>;

  constructor() {
    let last = Date.now();
    this.timer = setInterval(() => {
      const now = Date.now();
      if (now - last > 500) this.back = now;
      last = now;
    }, 250);
    (this.timer as unknown as { unref(): void }).unref();
  }

  stop(): void {
    clearInterval(this.timer);
  }
}

/** Runs the steps of its handlers until it is stopped. */
export class Worker extends Handlers {
  private readonly session: Session;
  private readonly permits: number;
  private readonly name: string;
  private readonly log: (message: string) => void;
  private readonly hooks: Told;
  private readonly lines: Lines;
  private readonly rest = new Rest();
  /** No address was given. */
  private readonly unset: boolean;
  private stopping = false;

  constructor(private readonly options: WorkerOptions = {}) {
    super();
    const credentials = {
      token: options.token ?? process.env["TASKER_AUTH_TOKEN"] ?? "",
      apiKey: options.apiKey ?? "",
    };
    const addresses = options.url ?? process.env["TASKER_WORKER_URL"] ?? "http://localhost:8081";
    this.session = new Session(addresses.split(",").map((url) => new Transport(url.trim(), credentials)));
    this.unset = options.url === undefined && process.env["TASKER_WORKER_URL"] === undefined;
    const most = options.maxLogBytes ?? maxBytes;
    if (!(most >= 0)) throw new TypeError(`invalid maxLogBytes ${most}: want at least 0`);
    this.lines = new Lines(this.session, most, options.captureOutput);
    this.permits = options.permits ?? 1;
    this.name = options.name ?? `node-${process.pid}`;
    const log = options.log ?? ((message) => console.warn(message));
    this.log = (message) => {
      try {
        log(message);
      } catch {
        // a log that fails changes nothing
      }
    };
    this.hooks = new Told(options.hooks ?? {}, this.log);
  }

  /**
   * Imports the modules of a folder, and includes the Handlers that they export. Resolves to how many callables there
   * are then.
   */
  async discover(folder: string | URL): Promise<number> {
    this.include(await discover(folder));
    return this.known.size;
  }

  /**
   * Runs until SIGTERM, SIGINT or stop; the steps that run then end first. With signals: false the program handles
   * the signals.
   */
  async run({ signals = true }: { signals?: boolean } = {}): Promise<void> {
    if (this.known.size === 0 && this.resolvers.size === 0)
      throw new TypeError("run the worker: want at least one handler");
    const heeded = signals ? ["SIGTERM", "SIGINT"] : [],
      stop = (): void => void this.stop();
    const pulse = new Pulse(),
      presences = new Presences(this.log);
    const works: Works = {
      session: this.session,
      request: this.request(),
      stopping: () => this.stopping,
      rest: this.rest,
      log: this.log,
      hooks: this.hooks,
      pulse,
      presences,
      resolution: new Resolution(this.known, this.resolvers),
      publishing: new Publishing(this.publishers, (this.options.publisherTimeout ?? 5) * 1000, this.log),
      delivery: new Delivery(this.subscribers, this.log),
      announce: () => this.announce(),
      hint: this.unset ? "; TASKER_WORKER_URL is not set, and make dev serves http://localhost:8082" : "",
      stepLog: this.options.stepLog,
      lines: this.lines,
    };
    for (const name of heeded) process.once(name, stop);
    if (this.lines.captures) output.capture();
    try {
      while (!this.stopping) await new Life(works).live();
    } finally {
      for (const name of heeded) process.off(name, stop);
      if (this.lines.captures) output.restore();
      this.lines.close();
      pulse.stop();
      presences.stop();
    }
    this.hooks.tell("stopped");
  }

  /** Takes no more steps; run ends when the running ones have ended. */
  async stop(): Promise<void> {
    this.stopping = true;
    this.rest.wake();
    try {
      await this.session.interrupt();
    } catch {
      // the wait for steps ends by itself
    }
  }

  private announce(): void {
    if (this.options.announce === false) return;
    const served = this.known.size + this.resolvers.size;
    this.log(`connected to ${this.session.url}, serving ${served} ${served === 1 ? "handler" : "handlers"}`);
    for (const callable of this.session.unnamed)
      this.log(`no template in the namespaces of this session names the callable ${callable}`);
  }

  private request(): Record<string, Json> {
    const { namespaces } = this.options;
    const callables = [...this.known].map(([callable, methods]) => ({
      callable,
      methods: [...methods.keys()].filter((m) => m !== "call"),
    }));
    const resolved = [...this.resolvers.values()].flatMap(({ name, callables: patterns, methods = ["*"] }) =>
      patterns.map((callable) => ({ callable, methods, resolver: name })),
    );
    return {
      protocol: 1,
      name: this.name,
      client: `tasker-typescript/${version}`,
      permits: this.permits,
      callables: [...callables, ...resolved],
      ...(namespaces ? { namespaces } : {}),
      ...(this.publishers.size > 0 ? { publishers: [...this.publishers.keys()] } : {}),
      ...(this.subscribers.length > 0 ? { subscribes: [...new Set(this.subscribers.flatMap((s) => s.patterns))] } : {}),
    };
  }
}

/** What a worker lends to each of its lives. */
interface Works {
  session: Session;
  request: Record<string, Json>;
  stopping: () => boolean;
  rest: Rest;
  log: (message: string) => void;
  hooks: Told;
  pulse: Pulse;
  presences: Presences;
  resolution: Resolution;
  publishing: Publishing;
  delivery: Delivery;
  announce: () => void;
  /** What is added where no daemon answers. */
  hint: string;
  stepLog: ((entry: Record<string, Json>) => void) | undefined;
  lines: Lines;
}

/** Works until the worker or the daemon stops, with one session after another. */
class Life {
  private readonly held = new Map<string, StepContext>(); // by their first fences; their ends are not confirmed
  private readonly session: Session;
  private readonly log: (message: string) => void;
  private reports: [StepContext, Report][] = [];
  private sending: Promise<void> | undefined;

  constructor(private readonly works: Works) {
    ({ session: this.session, log: this.log } = works);
  }

  async live(): Promise<void> {
    try {
      if (!(await this.open())) return;
      await this.follow();
      this.works.presences.show(undefined);
      await this.works.lines.settle(linesMs);
      await this.session.close().catch((e: unknown) => this.log(`the session was not closed: ${textOf(e)}`));
      if (this.session.alternatives && !this.works.stopping()) this.session.next(); // this daemon stops
    } finally {
      this.works.presences.show(undefined);
      this.drop([...this.held.values()]);
    }
  }

  /** Cancels steps that another worker has; their results here are not reported. */
  private drop(lost: StepContext[]): void {
    this.forget(lost);
    for (const ctx of lost) {
      ctx.cancel("lease_lost");
      this.tell(ctx, false);
    }
  }

  /** Opens a session with the held steps. Resolves to whether it succeeded: not if the worker stops first. */
  private async open(): Promise<boolean> {
    this.session.moving = true;
    return await this.openAnother().finally(() => (this.session.moving = false));
  }

  private async openAnother(): Promise<boolean> {
    const begun = Date.now(),
      { rest, stopping, request, hooks } = this.works;
    for (let failures = 0; ; ) {
      const pause = (ms: number): Promise<void> => (this.held.size > 0 ? delay(ms) : rest.pause(ms));
      const early = rest.opened + Math.min(leastMs, this.session.graceMs / 3) - Date.now();
      if (early > 0 && !stopping()) await pause(early); // the last one has not lasted
      if (stopping() && (this.held.size === 0 || Date.now() - begun > this.session.graceMs)) return false;
      const held = [...this.held.values()];
      try {
        const lost = await this.session.open(request, held);
        rest.opened = Date.now();
        this.works.presences.show(this.session.presence);
        this.works.announce();
        hooks.tell("opened");
        if (lost.length > 0) this.log(`${lost.length} of ${held.length} steps were not kept`);
        this.drop(lost);
        return true;
      } catch (e) {
        if (!(e instanceof Unavailable || e instanceof NotFound)) throw e;
        if (++failures === 1) this.log(`no session with ${this.session.url}: ${e.message}${this.works.hint}`);
        this.session.next();
        // Held steps have the grace of a restarted daemon.
        const urgent = held.length > 0 && Date.now() - begun < 2 * this.session.graceMs;
        await pause(Math.min(50 * 2 ** failures, urgent ? this.session.graceMs / 4 : 2000) * (0.5 + Math.random() / 2));
      }
    }
  }

  private async follow(): Promise<void> {
    const { rest, stopping, pulse } = this.works;
    let answered = Date.now(),
      failures = 0;
    for (let draining = false, told = false; ; ) {
      const stops: boolean = draining || stopping();
      if (stops && !told) this.works.hooks.tell("draining");
      told ||= stops;
      if (stops && this.held.size === 0) return;
      const begun = Date.now(),
        wait: number = stops ? 200 : this.session.maxWaitMs;
      let news = false;
      try {
        for await (const answer of this.session.follow(wait, stops)) {
          answered = Date.now();
          failures = 0;
          draining = answer.draining;
          for (const message of answer.steps) news = this.take(message) || news;
          for (const notice of answer.cancelled)
            [...this.held.values()].find((ctx) => ctx.fence === notice.fence)?.cancel(notice.reason);
          for (const event of answer.events ?? []) this.works.delivery.deliver(event);
          news ||= answer.cancelled.length > 0 || (answer.events ?? []).length > 0;
        }
        // A daemon that answers at once, such as one that drains, is not asked again at once.
        const took = Date.now() - begun,
          ended = stopping() !== stops || ((draining || stops) && this.held.size === 0);
        if (!news && !ended && took < Math.min(wait, leastMs) / 2) await rest.pause(leastMs - took);
      } catch (e) {
        if (!(e instanceof NotFound || e instanceof Unavailable)) throw e;
        await delay(1); // the pulse notices first that the loop stood still
        const away = Date.now() - Math.max(answered, pulse.back),
          { graceMs, alternatives } = this.session;
        const elsewhere = e instanceof Unavailable && (away > graceMs || (alternatives && away > graceMs / 10));
        if (elsewhere) this.session.next();
        if (elsewhere || e instanceof NotFound) {
          if (!(await this.open())) return;
          answered = Date.now();
        } else await delay(Math.min(50 * 2 ** failures++, Math.max(graceMs / 10, 50), leastMs));
      }
    }
  }

  /** Runs a step. Returns false for one that was delivered before. */
  private take(message: StepMessage): boolean {
    if (this.held.has(message.fence)) return false;
    const { hooks, lines, stepLog } = this.works,
      ctx = new StepContext(this.session, message, stepLog, lines.keeps ? lines : undefined);
    this.held.set(ctx.fence, ctx);
    const begun = Date.now();
    this.works.presences.start();
    hooks.tell("before", ctx);
    void this.execute(ctx, message.offered).then((report) => {
      hooks.tell("after", ctx, report.outcome, (Date.now() - begun) / 1000);
      this.reports.push([ctx, report]);
      this.sending ??= this.send();
    });
    return true;
  }

  private execute(ctx: StepContext, offered: string | undefined): Promise<Report> {
    const failed = (e: unknown): void => {
      this.log(`step ${ctx.stepName} failed: ${textOf(e)}`);
      this.works.hooks.tell("failed", ctx, e);
    };
    return reportOf(ctx, () => this.works.resolution.find(ctx, offered), failed, this.works.publishing);
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
    for (let pause = 50; ; pause = Math.min(2 * pause, leastMs)) {
      const held = new Set(this.held.values());
      batch = batch.filter(([ctx]) => held.has(ctx));
      if (batch.length === 0) return;
      for (const [ctx, report] of batch) report.fence = ctx.fence;
      this.works.lines.flush(batch.map(([ctx]) => ctx));
      try {
        const answer = await this.session.report(batch.map(([, report]) => report));
        for (const rejection of answer.rejected)
          this.log(`the end of a step was rejected: ${JSON.stringify(rejection)}`);
        const unrecorded = new Set(answer.unrecorded ?? []),
          rejected = new Set(answer.rejected.map((r) => r.fence));
        const wrong = new Map(answer.rejected.filter((r) => r.status === 400).map((r) => [r.fence, r.error])); // the daemon waits for another
        const ended = batch.filter(([, { fence }]) => !unrecorded.has(fence) && !wrong.has(fence));
        this.forget(ended.map(([ctx]) => ctx));
        for (const [ctx, report] of ended) this.settle(ctx, report, !rejected.has(report.fence));
        for (const one of batch) {
          const why = wrong.get(one[1].fence);
          if (why !== undefined) await this.refused([one], new Refused(why));
        }
        if (unrecorded.size > 0) await delay(pause);
      } catch (e) {
        if (e instanceof Refused) return this.refused(batch, e);
        if (!(e instanceof Unavailable || e instanceof NotFound)) throw e;
        await delay(Math.min(pause, this.session.graceMs / 4)); // follow opens another session if necessary
      }
    }
  }

  /** Tells those who wait that the end of a step is recorded, or cannot be. */
  private settle(ctx: StepContext, report: Report, accepted: boolean): void {
    if (accepted) report.recorded?.();
    if (report.outcome === "success" || report.outcome === "failure") this.tell(ctx, accepted);
  }

  private tell(ctx: StepContext, accepted: boolean): void {
    try {
      ctx.tellRecorded(accepted);
    } catch (e) {
      this.log(`a callback of step ${ctx.stepName} failed: ${textOf(e)}`);
    }
  }

  private forget(ended: StepContext[]): void {
    const gone = new Set(ended);
    for (const [key, ctx] of this.held) if (gone.has(ctx)) this.held.delete(key);
    if (this.held.size === 0) this.works.rest.wake();
  }

  /** Finds the report that the daemon refuses (too large), and reports that instead. */
  private async refused(batch: [StepContext, Report][], why: Refused): Promise<void> {
    const [only, ...more] = batch;
    if (!only) return;
    const [ctx, report] = only,
      failed = report["error"] as { error_type?: string; retryable?: boolean } | undefined;
    if (more.length > 0) {
      for (const one of batch) await this.deliver([one]);
    } else if (failed?.error_type !== "ReportRefused") {
      const error = fault(
        new Permanent(`the daemon refused the end of the step: ${why.message}`, { errorType: "ReportRefused" }),
      );
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
