/** The protocol: one session with a worker daemon over HTTP. */

import type { Json, Point } from "./errors.js";

/** The daemon does not know the session (any more), or what was asked for. */
export class NotFound extends Error {}

/** The session does not hold the step (any more). */
export class NotHeld extends Error {}

/** The daemon refuses a request for good. */
export class Refused extends Error {}

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
  namespace: string;
  task_name: string;
  task_version: string;
  step_name: string;
  callable: string;
  method?: string;
  attempt: number;
  max_attempts: number;
  priority: number;
  time_left_ms?: number;
  context: Json;
  initialization?: Record<string, Json>;
  dependency_results: Record<string, Json>;
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
}

export interface Polled {
  answer: number;
  steps: StepMessage[];
  cancelled: { fence: string; reason: string }[];
  draining: boolean;
}

export type Report = Record<string, Json> & { fence: string; outcome: string };

/** Sends requests to one daemon. */
export class Transport {
  private readonly base: string;
  private readonly headers: Record<string, string>;

  constructor(url: string, credentials: Credentials, private readonly timeoutMs = 30_000) {
    if (!/^https?:\/\/[^/]/.test(url)) throw new TypeError(`invalid url ${JSON.stringify(url)}: want http://host:port or https://host:port`);
    this.base = url.replace(/\/+$/, "");
    this.headers = { "content-type": "application/json", accept: "application/json" };
    if (credentials.token) this.headers["authorization"] = `Bearer ${credentials.token}`;
    else if (credentials.apiKey) this.headers["x-api-key"] = credentials.apiKey;
  }

  async call(method: string, path: string, body?: Json): Promise<Record<string, Json>> {
    let status: number, text: string;
    try {
      const answer = await fetch(this.base + path, {
        method,
        headers: this.headers,
        body: body === undefined ? null : JSON.stringify(body),
        signal: AbortSignal.timeout(this.timeoutMs),
      });
      status = answer.status;
      text = await answer.text();
    } catch (e) {
      throw new Unavailable(e instanceof Error ? `${e.message} ${String(e.cause ?? "")}`.trim() : String(e));
    }
    if (status < 300) return JSON.parse(text) as Record<string, Json>;
    throw failure(status, text);
  }
}

function failure(status: number, text: string): Error {
  let detail = text.slice(0, 200);
  try {
    const problem = JSON.parse(text) as { detail?: string; message?: string };
    detail = problem.detail ?? problem.message ?? detail;
  } catch {
    // not JSON: something between us and the daemon has answered
  }
  const message = `${status}: ${detail}`;
  if (status === 404) return new NotFound(message);
  if (status === 409) return new NotHeld(message);
  if (status === 408 || status === 429 || status >= 500) return new Unavailable(message);
  return new Refused(message);
}

/** An open session. */
export class Session {
  readonly graceMs: number;
  readonly maxWaitMs: number;
  private readonly path: string;
  private after = 0;

  private constructor(private readonly transport: Transport, opened: Record<string, Json>) {
    this.path = `/v1/sessions/${String(opened["session_id"])}`;
    this.graceMs = Number(opened["reclaim_grace_ms"]);
    this.maxWaitMs = Number(opened["max_wait_ms"]);
  }

  static async open(transport: Transport, request: Json): Promise<Session> {
    return new Session(transport, await transport.call("POST", "/v1/sessions", request));
  }

  async poll(waitMs: number, stops: boolean): Promise<Polled> {
    const answer = (await this.transport.call("POST", `${this.path}/poll?after=${this.after}&wait=${waitMs}ms${stops ? "&stops=true" : ""}`)) as unknown as Polled;
    this.after = answer.answer;
    return answer;
  }

  /** Ends the poll that waits. What this one is answered is told the next poll again. */
  async interrupt(): Promise<void> {
    await this.transport.call("POST", `${this.path}/poll?after=${this.after}&stops=true`);
  }

  async report(reports: Report[]): Promise<Json[]> {
    return (await this.transport.call("POST", `${this.path}/reports`, { reports }))["rejected"] as Json[];
  }

  async checkpoint(fence: string, point: Point): Promise<void> {
    await this.transport.call("POST", `${this.path}/checkpoint`, { fence, ...point });
  }

  async result(fence: string, step: string): Promise<Json> {
    return (await this.get("results", fence, step))["result"];
  }

  async batchResults(fence: string, step: string): Promise<{ step_name: string; result: Json }[]> {
    return (await this.get("batch-results", fence, step))["batches"] as { step_name: string; result: Json }[];
  }

  private get(what: string, fence: string, step: string): Promise<Record<string, Json>> {
    return this.transport.call("GET", `${this.path}/${what}?${new URLSearchParams({ fence, step }).toString()}`);
  }

  async close(): Promise<void> {
    await this.transport.call("DELETE", this.path);
  }
}
