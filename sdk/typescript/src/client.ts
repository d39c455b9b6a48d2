/** The client of the orchestrator's API: creates tasks, waits for them and sends events. */

import { currentStep } from "./current.js";
import { textOf, type Json } from "./errors.js";
import { encoded, parsed } from "./json.js";

declare const process: { env: Record<string, string | undefined> };

/** A refusal by the API. */
export class ApiError extends Error {
  constructor(readonly status: number, readonly code: string, message: string, readonly requestId: string,
              /** Of the task that exists already, where the API says so. */ readonly taskUuid: string, readonly retryAfter: number) {
    super(`${code} (${status}): ${message}`);
    this.name = "ApiError";
  }
}

/** The API did not answer. Whether a request had an effect is not known. */
export class NotReached extends Error {
  constructor(message: string, /** There was a connection. */ readonly sent: boolean) {
    super(message);
  }
}

export interface ClientOptions {
  /** Default TASKER_ORCHESTRATION_URL, then http://localhost:8080. */
  url?: string;
  /** Default TASKER_AUTH_TOKEN. */
  token?: string;
  apiKey?: string;
  /** Of a request, in seconds, besides its wait; default 30. */
  timeout?: number;
  initiator?: string;
  sourceSystem?: string;
}

/** A task as the API shows it; further fields are in it too. */
export interface Task {
  task_uuid: string;
  namespace: string;
  name: string;
  version: string;
  status: string;
  [field: string]: Json;
}

/** Whether a task has ended. */
export function hasEnded(task: Task): boolean {
  return ["complete", "error", "cancelled", "resolved_manually"].includes(task.status);
}

/** Fields of POST /v1/tasks by their names there, such as version, priority, tags, delay_seconds and deadline. */
export interface NewTask {
  namespace: string;
  name: string;
  context: Record<string, Json>;
  idempotency_key?: string;
  [field: string]: Json;
}

export interface ExternalEvent {
  name: string;
  namespace?: string;
  key?: string;
  task_uuid?: string;
  payload?: Json;
  /** With an id it is delivered once. */
  id?: string;
}

interface Call {
  method: string;
  path: string;
  body?: Json;
  query?: Record<string, string>;
  wait?: number;
  again: boolean;
  failed?: (e: unknown) => void;
}

const attempts = 4, longestWait = 60;

/** The shortest time between two requests that wait for a task, where the server does not wait. */
const leastPauseMs = 1000;

/**
 * Calls the API of an orchestrator. A call is repeated, up to three times, where that cannot have an effect twice: reads,
 * cancellations, creations with an idempotency key and events with an id. Redirects are not followed.
 */
export class Client {
  private readonly base: string;
  private readonly headers: Record<string, string>;
  private readonly timeout: number;
  private readonly sender: Record<string, string>;

  constructor(options: ClientOptions = {}) {
    const url = options.url ?? process.env["TASKER_ORCHESTRATION_URL"] ?? "http://localhost:8080";
    if (!/^https?:\/\/[^/]/.test(url)) throw new TypeError(`invalid url ${JSON.stringify(url)}: want http://host:port or https://host:port`);
    this.base = url.replace(/\/+$/, "");
    this.headers = { "content-type": "application/json", accept: "application/json" };
    const token = options.token ?? process.env["TASKER_AUTH_TOKEN"];
    if (token) this.headers["authorization"] = `Bearer ${token}`;
    else if (options.apiKey) this.headers["x-api-key"] = options.apiKey;
    this.timeout = options.timeout ?? 30;
    this.sender = { ...(options.initiator ? { initiator: options.initiator } : {}), ...(options.sourceSystem ? { source_system: options.sourceSystem } : {}) };
  }

  /** Creates a task. With wait the answer comes when it has ended, or after so many seconds. */
  async createTask(task: NewTask, wait = 0): Promise<Task> {
    let arrived = false;
    try {
      return (await this.call({ method: "POST", path: "/v1/tasks", body: { ...this.sender, ...task }, wait, again: Boolean(task.idempotency_key), failed: (e) => (arrived ||= mayHaveArrived(e)) })) as Task;
    } catch (e) {
      if (e instanceof ApiError && e.status === 409 && arrived && e.taskUuid) return this.task(e.taskUuid, wait); // an earlier attempt created it
      throw e;
    }
  }

  /** Creates a task and waits for its end. Rejects if it has not ended after timeout seconds; the task continues. */
  async run(task: NewTask, timeout = 300): Promise<Task> {
    const begun = Date.now(), deadline = begun + timeout * 1000;
    const created = await this.createTask(task, Math.min(timeout, longestWait));
    if (hasEnded(created)) return created;
    await paced(begun, deadline);
    return this.wait(created.task_uuid, Math.max(deadline - Date.now(), 0) / 1000);
  }

  /** Waits for the end of a task. Rejects if it has not ended after timeout seconds. */
  async wait(uuid: string, timeout = 300): Promise<Task> {
    for (const deadline = Date.now() + timeout * 1000; ; ) {
      const begun = Date.now(), left = (deadline - begun) / 1000;
      const task = await this.task(uuid, Math.min(Math.max(left, 0), longestWait));
      if (hasEnded(task)) return task;
      if (left <= 0) throw new Error(`task ${uuid} has not ended: it is ${task.status}`);
      await paced(begun, deadline);
    }
  }

  /** Reads a task; with wait when it has ended, or after so many seconds. */
  async task(uuid: string, wait = 0): Promise<Task> {
    return (await this.call({ method: "GET", path: `/v1/tasks/${encodeURIComponent(uuid)}`, wait, again: true })) as Task;
  }

  /** The steps of a task, with their results. */
  async steps(uuid: string): Promise<Record<string, Json>[]> {
    const path = `/v1/tasks/${encodeURIComponent(uuid)}/workflow_steps`;
    const steps = (await this.call({ method: "GET", path, again: true })) as { step_uuid: string }[];
    const shown: Record<string, Json>[] = [];
    for (const { step_uuid: step } of steps) shown.push((await this.call({ method: "GET", path: `${path}/${step}`, again: true })) as Record<string, Json>);
    return shown;
  }

  /** All tasks that match, the newest first, such as { namespace: "shop", status: "error" }. */
  async *tasks(filters: Record<string, string> = {}): AsyncGenerator<Task> {
    for (let cursor = "newest"; cursor; ) {
      const page = (await this.call({ method: "GET", path: "/v1/tasks", query: { ...filters, cursor }, again: true })) as { tasks: Task[]; next_cursor?: string };
      yield* page.tasks;
      cursor = page.next_cursor ?? "";
    }
  }

  /** Cancels a task. */
  async cancel(uuid: string, reason = ""): Promise<Task> {
    return (await this.call({ method: "DELETE", path: `/v1/tasks/${encodeURIComponent(uuid)}`, query: reason ? { reason } : {}, again: true })) as Task;
  }

  /** Delivers an event to the steps that wait for it, or keeps it. */
  async sendEvent(event: ExternalEvent): Promise<Record<string, Json>> {
    return (await this.call({ method: "POST", path: "/v1/external-events", body: event, again: Boolean(event.id) })) as Record<string, Json>;
  }

  /** Registers a template from the text of a file, YAML or JSON, and replaces the content of its version. */
  async registerTemplate(source: string, reason = "", actor = this.sender["initiator"] ?? ""): Promise<Record<string, Json>> {
    return (await this.call({ method: "POST", path: "/v1/templates", body: { source, reason, actor }, again: true })) as Record<string, Json>;
  }

  private async call(c: Call): Promise<Json> {
    const query = new URLSearchParams(c.query);
    if (c.wait && c.wait > 0) query.set("wait", `${Math.max(Math.trunc(c.wait * 1000), 1)}ms`);
    const url = this.base + c.path + (query.size > 0 ? `?${query.toString()}` : "");
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.send(c, url);
      } catch (e) {
        const passing = e instanceof NotReached || (e instanceof ApiError && [429, 502, 503, 504].includes(e.status));
        if (!c.again || !passing || attempt === attempts) throw e;
        c.failed?.(e);
        const pause = Math.max(e instanceof ApiError ? e.retryAfter : 0, 0.1 * 2 ** attempt * (0.5 + Math.random() / 2));
        await new Promise((resolve) => setTimeout(resolve, Math.min(pause, 60) * 1000));
      }
    }
  }

  private async send(c: Call, url: string): Promise<Json> {
    const body = c.body === undefined ? null : encoded(c.body);
    let answer: Response, text: string;
    try {
      answer = await fetch(url, { method: c.method, headers: { ...this.headers, ...trace() }, body, redirect: "manual", signal: AbortSignal.timeout((this.timeout + (c.wait ?? 0)) * 1000) });
      text = await answer.text();
    } catch (e) {
      const cause = e instanceof Error ? (e.cause as { code?: string } | undefined) : undefined;
      const sent = !["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"].includes(cause?.code ?? "");
      throw new NotReached(`${c.method} ${url}: ${e instanceof Error ? `${e.message} ${e.cause === undefined ? "" : textOf(e.cause)}`.trim() : textOf(e)}`, sent);
    }
    if (answer.ok) return parsed(text);
    throw refusal(answer, text);
  }
}

/** Waits so that the next request for a task comes a second after the last one at the earliest, or at the deadline. */
export async function paced(begun: number, deadline: number): Promise<void> {
  const now = Date.now(), ms = Math.min(begun + leastPauseMs, deadline) - now;
  if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
}

/** Whether an attempt that failed may have had an effect. */
function mayHaveArrived(e: unknown): boolean {
  if (e instanceof ApiError) return e.status !== 429 && !["BACKPRESSURE", "CIRCUIT_BREAKER_OPEN"].includes(e.code);
  return !(e instanceof NotReached) || e.sent;
}

/** The trace of the step whose handler calls this: tasks that it creates join that trace. */
function trace(): Record<string, string> {
  const { traceparent, tracestate } = currentStep() ?? {};
  return { ...(traceparent && { traceparent }), ...(tracestate && { tracestate }) };
}

function refusal(answer: Response, text: string): ApiError {
  let problem: Record<string, Json> = { message: text.slice(0, 200) };
  try {
    const document = JSON.parse(text) as Record<string, Json>;
    problem = typeof document["error"] === "object" && document["error"] !== null ? (document["error"] as Record<string, Json>) : document;
  } catch {
    // not JSON: a proxy before the orchestrator has answered
  }
  return new ApiError(answer.status, String(problem["code"] ?? answer.status), String(problem["message"] ?? problem["detail"] ?? answer.statusText),
    answer.headers.get("x-request-id") ?? "", String(problem["task_uuid"] ?? ""), Number(answer.headers.get("retry-after")) || 0);
}
