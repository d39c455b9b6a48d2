/** The protocol: one session with a worker daemon over HTTP. */

import { textOf, type Json, type Point } from "./errors.js";
import type { DomainEvent } from "./events.js";
import { Bytes, Encoded, encoded, objectOf, parsed } from "./json.js";
import { readNow } from "./now.js";
import { fieldsOf } from "./report.js";

/** The daemon does not know the session (any more), or the requested object. */
export class NotFound extends Error {}

/** The session does not hold the step (any more). */
export class NotHeld extends Error {}

/** The daemon rejects a request permanently. */
export class Refused extends Error {}

/** The daemon is of a version that has no such request. */
export class NoRoute extends Refused {}

/** The daemon rejects the credentials of a request, not what it says. */
export class Unauthorized extends Refused {}

/** The daemon cannot be reached or has no room; the same request may work later. */
export class Unavailable extends Error {}

export interface Credentials {
  token?: string;
  apiKey?: string;
}

/** A step as it is handed out. */
export interface StepMessage {
  fence: string;
  task_uuid: string;
  step_uuid: string;
  correlation_id: string;
  parent_correlation_id?: string;
  namespace: string;
  task_name: string;
  task_version: string;
  step_name: string;
  callable: string;
  /** The resolver that the template names. */
  resolver?: string;
  /** The name under which the session offered the handler, where the template spells it otherwise. */
  offered?: string;
  method?: string;
  attempt: number;
  max_attempts: number;
  priority: number;
  requested_at?: string;
  traceparent?: string;
  tracestate?: string;
  time_left_ms?: number;
  context: Json;
  initialization?: Record<string, Json>;
  dependency_results: Record<string, Json>;
  /** Worker steps whose batches it joins. */
  batch_steps?: string[];
  batch?: {
    batch_id: string;
    start_cursor?: Json;
    end_cursor?: Json;
    batch_size: number;
    is_no_op: boolean;
    cursor_field?: string;
    failure_strategy?: string;
  };
  items?: Json[];
  checkpoint?: Point;
  publishes?: DeclaredEvent[];
}

/** An event that the template declares for the step, with a publisher of the process. */
export interface DeclaredEvent {
  name: string;
  condition: string;
  delivery_mode: string;
  publisher: string;
}

/** The result of one batch. */
export interface BatchEnd {
  step_name: string;
  result: Json;
  batch_id?: string;
  /** A placeholder without work. */
  is_no_op?: boolean;
  /** How many items it has isolated. */
  isolated?: number;
}

export interface Polled {
  answer: number;
  steps: StepMessage[];
  cancelled: { fence: string; reason: string }[];
  draining: boolean;
  /** Fast domain events. */
  events?: DomainEvent[];
}

/** The end of a step. Values may be encoded already. */
export interface Report {
  fence: string;
  outcome: string;
  /** Not sent: called when the end is recorded. */
  recorded?: () => void;
  [field: string]: Json;
}

export interface Reported {
  rejected: { fence: string; status: number; error: string }[];
  unrecorded?: string[];
}

/** Sends requests to one daemon. */
export class Transport {
  readonly base: string;
  readonly headers: Record<string, string>;

  constructor(
    url: string,
    credentials: Credentials,
    private readonly timeoutMs = 30_000,
  ) {
    if (!/^https?:\/\/[^/]/.test(url))
      throw new TypeError(`invalid url ${JSON.stringify(url)}: want http://host:port or https://host:port`);
    this.base = url.replace(/\/+$/, "");
    this.headers = { "content-type": "application/json", accept: "application/json" };
    if (credentials.token) this.headers["authorization"] = `Bearer ${credentials.token}`;
    else if (credentials.apiKey) this.headers["x-api-key"] = credentials.apiKey;
  }

  /** Sends one request and resolves to the answer's object. */
  async call(method: string, path: string, body?: Json): Promise<Record<string, Json>> {
    const answer = await this.begin(method, path, body);
    return objectIn(await reached(answer.text()));
  }

  /** Sends one request that is answered with events, and yields their data until they end, which is within timeoutMs
   *  unless the daemon cannot be reached. */
  async *follow(path: string, timeoutMs: number): AsyncGenerator<Record<string, Json>> {
    const answer = await this.begin("GET", path, undefined, timeoutMs);
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    if (!reader) return;
    try {
      for (let text = ""; ; ) {
        const { done, value } = await reached(reader.read());
        if (done) return;
        const lines = (text + value).split("\n");
        text = lines.pop() ?? "";
        for (const line of lines) if (line.startsWith("data: ")) yield objectIn(line.slice(6));
      }
    } finally {
      void reader.cancel().catch(() => undefined); // if it goes on
    }
  }

  private async begin(method: string, path: string, body?: Json, timeoutMs = this.timeoutMs): Promise<Response> {
    const answer = await reached(
      fetch(this.base + path, {
        method,
        headers: this.headers,
        body: body === undefined ? null : sendable(body),
        signal: AbortSignal.timeout(timeoutMs),
      }),
    );
    if (answer.status >= 300) throw failure(answer.status, await reached(answer.text()));
    return answer;
  }
}

/** The object of an answer. */
function objectIn(text: string): Record<string, Json> {
  try {
    const value = parsed(text);
    if (typeof value === "object" && value !== null) return value as Record<string, Json>;
  } catch {
    // the same as another value
  }
  throw new Unavailable(`the answer is not from a daemon: ${text.slice(0, 200)}`);
}

function sendable(body: Json): string {
  try {
    return encoded(body);
  } catch (e) {
    throw new Refused(`the request has no JSON form: ${textOf(e)}`);
  }
}

/** The answer of the daemon, or Unavailable. */
async function reached<T>(coming: Promise<T>): Promise<T> {
  try {
    return await coming;
  } catch (e) {
    throw new Unavailable(
      e instanceof Error ? `${e.message} ${e.cause === undefined ? "" : textOf(e.cause)}`.trim() : textOf(e),
    );
  }
}

function failure(status: number, text: string): Error {
  let detail = text.slice(0, 200);
  try {
    const problem = JSON.parse(text) as { detail?: string; message?: string };
    detail = problem.detail ?? problem.message ?? detail;
  } catch {
    // not JSON: a proxy before the daemon has answered
  }
  const message = `${status}: ${detail}`;
  if (status === 404) return new NotFound(message);
  if (status === 409) return new NotHeld(message);
  if (status === 405) return new NoRoute(message);
  if (status === 408 || status === 429 || status >= 500) return new Unavailable(message);
  return status === 401 || status === 403 ? new Unauthorized(message) : new Refused(message);
}

/** A report as it is sent: a result of bytes has fields of its own. */
function wire(report: Report): Encoded {
  const { result, ...rest } = fieldsOf(report);
  return objectOf(
    result instanceof Bytes
      ? { ...rest, result_bytes: result.base64, content_type: result.contentType }
      : { ...rest, result },
  );
}

function listOf(reports: Report[]): Encoded {
  try {
    return new Encoded(`[${reports.map((report) => wire(report).text).join(",")}]`);
  } catch (e) {
    throw new Refused(`the request has no JSON form: ${textOf(e)}`);
  }
}

/** A request that is repeated in another thread. */
export interface Presence {
  url: string;
  headers: Record<string, string>;
  waitMs: number;
  graceMs: number;
}

/** A step whose handler runs; the session renames its fence. */
export interface Held {
  fence: string;
  readonly taskUuid: string;
}

/** Sessions with one of several daemons, one after another. */
export class Session {
  graceMs = 3_000;
  maxWaitMs = 10_000;
  /** Another session is being opened, which what is held is presented to. */
  moving = false;
  /** The callables that no template in the namespaces of the session names. */
  unnamed: string[] = [];
  /** The daemon has no route for lines of handlers. */
  keepsNoLines = false;
  private path = "";
  private after = 0;

  constructor(private readonly transports: Transport[]) {}

  /** The address of the daemon. */
  get url(): string {
    return this.transport.base;
  }

  /** Where another thread shows that the process lives. */
  get presence(): Presence {
    return {
      url: `${this.url}${this.path}/presence`,
      headers: this.transport.headers,
      waitMs: this.maxWaitMs,
      graceMs: this.graceMs,
    };
  }

  /** There is more than one daemon. */
  get alternatives(): boolean {
    return this.transports.length > 1;
  }

  /** Selects the next daemon, which open tries first. */
  next(): void {
    this.transports.push(...this.transports.splice(0, 1));
  }

  /** Opens a session and presents the held steps. Returns those that were not kept: another worker has them. */
  async open<T extends Held>(request: Record<string, Json>, held: T[]): Promise<T[]> {
    const presented = held.map(({ fence, taskUuid }) => ({ fence, task_uuid: taskUuid }));
    const opened = await this.call("POST", "/v1/sessions", { ...request, held: presented });
    const kept = new Map(
      ((opened["kept"] ?? []) as { fence: string; new_fence: string }[]).map((k) => [k.fence, k.new_fence]),
    );
    this.path = `/v1/sessions/${String(opened["session_id"])}`;
    this.after = 0;
    this.keepsNoLines = false;
    this.graceMs = Number(opened["reclaim_grace_ms"]);
    this.maxWaitMs = Number(opened["max_wait_ms"]);
    this.unnamed = Array.isArray(opened["unnamed"]) ? opened["unnamed"].map(String) : [];
    const lost = held.filter((h) => !kept.has(h.fence));
    for (const h of held) h.fence = kept.get(h.fence) ?? h.fence;
    return lost;
  }

  /** Yields the steps and notices of the daemon, for the time of waitMs. */
  async *follow(waitMs: number, stops: boolean): AsyncGenerator<Polled> {
    const query = `after=${this.after}&wait=${waitMs}ms${stops ? "&stops=true" : ""}`;
    for await (const answer of this.transport.follow(`${this.path}/stream?${query}`, waitMs + this.graceMs)) {
      this.after = Number(answer["answer"]);
      yield answer as unknown as Polled;
    }
  }

  /** Ends follow. The daemon sends the steps and notices of this answer again. */
  async interrupt(): Promise<void> {
    await this.call("POST", `${this.path}/poll?after=${this.after}&stops=true`);
  }

  /**
   * Sends reports; they are recorded unless the answer says otherwise. What is rejected while the session changes
   * counts as not recorded: the next one may hold those steps.
   */
  async report(reports: Report[]): Promise<Reported> {
    const { path } = this;
    const answer = (await this.call("POST", `${path}/reports`, objectOf({ reports: listOf(reports) })).catch(
      (e: unknown) => {
        if (e instanceof Unauthorized) throw new Unavailable(e.message); // the steps have ended all the same; follow ends the work if this lasts
        throw e;
      },
    )) as unknown as Reported;
    if (!Array.isArray(answer.rejected)) throw new Unavailable("the answer is not from a daemon");
    if (answer.rejected.length === 0 || !(this.moving || this.path !== path)) return answer;
    return { rejected: [], unrecorded: [...(answer.unrecorded ?? []), ...answer.rejected.map((r) => r.fence)] };
  }

  /** Saves a checkpoint. Resolves to when it was saved, where the daemon says so. */
  async checkpoint(held: Held, point: Point & { isolated?: Json[] }): Promise<string | undefined> {
    const { timestamp: _, ...saved } = point,
      answer = await this.of(held, (fence) => this.call("POST", `${this.path}/checkpoint`, { fence, ...saved }));
    return typeof answer["saved_at"] === "string" ? answer["saved_at"] : undefined;
  }

  async progress(held: Held, fraction: number, message: string): Promise<void> {
    await this.call("POST", `${this.path}/progress`, { fence: held.fence, fraction, message });
  }

  /**
   * Sends lines of handlers: each as its step, and its JSON behind the fence. Throws NoRoute where the daemon keeps
   * none, which this session remembers.
   */
  async keep(lines: [Held, string][]): Promise<void> {
    const { path } = this,
      list = lines.map(([held, rest]) => `{"fence":${JSON.stringify(held.fence)},${rest}`);
    try {
      await this.call("POST", `${path}/logs`, new Encoded(`{"lines":[${list.join(",")}]}`));
    } catch (e) {
      if (!(e instanceof NotFound || e instanceof NoRoute)) throw e;
      if (this.path !== path || e.message.includes("session does not exist")) throw new Unavailable(e.message);
      this.keepsNoLines = true;
      throw new NoRoute(e.message);
    }
  }

  async result(held: Held, step: string): Promise<Json> {
    return (await this.get("results", held, step))["result"];
  }

  async batchResults(held: Held, step: string): Promise<BatchEnd[]> {
    return (await this.get("batch-results", held, step))["batches"] as BatchEnd[];
  }

  /** The answer of results or batch-results for a caller that cannot wait. */
  now(what: "results" | "batch-results", held: Held, step: string): Record<string, Json> {
    const { status, text } = readNow(this.url + this.reading(what, held.fence, step), this.transport.headers);
    if (status >= 300) throw failure(status, text);
    return objectIn(text);
  }

  private get(what: string, held: Held, step: string): Promise<Record<string, Json>> {
    return this.of(held, (fence) => this.call("GET", this.reading(what, fence, step)));
  }

  private reading(what: string, fence: string, step: string): string {
    return `${this.path}/${what}?${new URLSearchParams({ fence, step }).toString()}`;
  }

  /** A request for a step; one that was under way while the session changed may be sent again. */
  private async of<T>(held: Held, request: (fence: string) => Promise<T>): Promise<T> {
    const { fence } = held;
    try {
      return await request(fence);
    } catch (e) {
      if (e instanceof NotHeld && held.fence !== fence) throw new Unavailable("the session has changed");
      if (e instanceof NotFound && e.message.includes("session does not exist")) throw new Unavailable(e.message);
      throw e;
    }
  }

  async close(): Promise<void> {
    await this.call("DELETE", this.path);
  }

  private call(method: string, path: string, body?: Json): Promise<Record<string, Json>> {
    return this.transport.call(method, path, body);
  }

  private get transport(): Transport {
    const [transport] = this.transports;
    if (!transport) throw new TypeError("invalid url: want at least one");
    return transport;
  }
}
