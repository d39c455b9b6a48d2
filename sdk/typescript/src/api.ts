/** Calls of other services, with failures that say whether another attempt may help. */

import { Permanent, Retryable, textOf, type Json } from "./errors.js";
import { encoded, parsed } from "./json.js";

/** An answer; body is parsed JSON or text. */
export class ApiResponse {
  constructor(readonly status: number, readonly headers: Headers, readonly body: Json) {}

  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  /** Another attempt may help: 408, 425, 429 and 5xx. */
  get retryable(): boolean {
    return [408, 425, 429].includes(this.status) || this.status >= 500;
  }

  /** Seconds from Retry-After, a number or a date; 0 without one. */
  get retryAfter(): number {
    const text = this.headers.get("retry-after")?.trim() ?? "";
    if (/^\d+$/.test(text)) return Number(text);
    const at = Date.parse(text);
    return Number.isNaN(at) ? 0 : Math.max((at - Date.now()) / 1000, 0);
  }

  /** Throws Retryable or Permanent unless the answer is a success. */
  check(): this {
    if (this.ok) return this;
    const message = `the service answered ${this.status}`;
    const marks = { code: `HTTP_${this.status}`, errorType: "ApiError" };
    if (this.retryable) throw new Retryable(message, { ...marks, after: this.retryAfter });
    throw new Permanent(message, marks);
  }
}

export interface ApiOptions {
  /** Sent as JSON. */
  body?: Json;
  headers?: Record<string, string>;
  /** For the whole call; default 30,000. */
  timeoutMs?: number;
}

/** Sends one request. A service that cannot be reached is Retryable; check judges answers. */
export async function apiCall(method: string, url: string, options: ApiOptions = {}): Promise<ApiResponse> {
  if (!/^https?:\/\//.test(url)) throw new Permanent(`invalid url ${JSON.stringify(url)}: want http or https`, { errorType: "ApiError" });
  const body = options.body === undefined ? null : encoded(options.body);
  try {
    const answer = await fetch(url, { method, body, headers: { "Content-Type": "application/json", ...options.headers },
      signal: AbortSignal.timeout(options.timeoutMs ?? 30_000) });
    return new ApiResponse(answer.status, answer.headers, documentIn(await answer.text()));
  } catch (e) {
    throw new Retryable(`the service cannot be reached: ${reason(e)}`, { code: "UNREACHABLE", errorType: "ApiError" });
  }
}

/** The JSON that a text is, or else the text. */
export function documentIn(text: string): Json {
  try {
    return parsed(text);
  } catch {
    return text;
  }
}

/** fetch gives the reason only in the cause of its error. */
function reason(e: unknown): string {
  return e instanceof Error && e.cause instanceof Error ? e.cause.message : textOf(e);
}
