/** What handlers log, on its way to the daemon. */

import { textOf, type Json } from "./errors.js";
import { encoded } from "./json.js";
import { NoRoute, Unauthorized, Unavailable, type Held, type Session } from "./session.js";

export type Level = "debug" | "info" | "warn" | "error";

/** Takes what handlers log. */
export interface Sink {
  /** It takes what they print, too. */
  readonly captures: boolean;
  write(held: Held, level: Level, text: string, fields?: Record<string, Json>): void;
}

/** The most that lines may have that wait, unless the worker says otherwise. */
export const maxBytes = 4 << 20;

const afterMs = 250, // how long a line waits for others
  maxLines = 1000,
  maxRequest = 512 << 10, // bytes
  maxText = 16 << 10,
  maxFields = 16 << 10,
  maxTraceback = 8 << 10,
  mostOldest = 20, // lines of an execution that are dropped last
  overhead = 64, // bytes of a line for its fence
  longestPauseMs = 1000;

interface Line {
  /** Of its JSON, behind the fence. */
  rest: string;
  at: string;
  size: number;
}

/** The lines of one execution that are not sent: the oldest, then a gap, then the newest. */
class Waiting {
  size = 0;
  dropped = 0;
  private readonly oldest: Line[] = [];
  private newest: Line[] = [];
  private first = 0; // of the newest ones: those before it are gone

  add(line: Line): void {
    const begins = this.count === 0 && this.dropped === 0 && this.oldest.length < mostOldest;
    (begins ? this.oldest : this.newest).push(line);
    this.size += line.size;
  }

  private get count(): number {
    return this.newest.length - this.first;
  }

  private shift(): Line | undefined {
    const line = this.newest[this.first++];
    if (this.first > 1000 && this.first > this.newest.length / 2) {
      this.newest = this.newest.slice(this.first);
      this.first = 0;
    }
    return line;
  }

  /** Drops the line that is missed least, and returns its size. */
  drop(): number {
    const line = this.count > 1 || this.oldest.length === 0 ? this.shift() : this.oldest.pop();
    const size = line?.size ?? 0;
    this.dropped++;
    this.size -= size;
    return size;
  }

  /** Removes the next line to be sent, which may be the one that says how many there are not. */
  take(): Line | undefined {
    if (this.oldest.length === 0 && this.dropped > 0) {
      const { dropped: n } = this,
        at = this.count > 0 ? this.newest[this.first]?.at : undefined;
      this.dropped = 0;
      return lineOf("warn", n === 1 ? "1 line was dropped" : `${n} lines were dropped`, undefined, at);
    }
    const line = this.oldest.shift() ?? (this.count > 0 ? this.shift() : undefined);
    this.size -= line?.size ?? 0;
    return line;
  }
}

/**
 * Gathers the lines of all handlers of a process, and sends them: after a while, or with the report of their step. Who
 * writes one never waits for the daemon. What has no room is dropped from the middle, and counted.
 */
export class Lines implements Sink {
  private readonly waiting = new Map<Held, Waiting>();
  private size = 0; // of what waits, and of what is being sent
  private sending: Promise<void> | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private wake: (() => void) | undefined; // ends a pause
  private closed = false;

  constructor(
    private readonly session: Session,
    private readonly limit = maxBytes,
    readonly captures = false,
  ) {}

  /** Whether lines are sent at all. */
  get keeps(): boolean {
    return this.limit > 0 && !this.session.keepsNoLines;
  }

  write(held: Held, level: Level, text: string, fields?: Record<string, Json>): void {
    if (!this.keeps || this.closed) return;
    const line = lineOf(level, text, fields);
    let waiting = this.waiting.get(held);
    if (!waiting) this.waiting.set(held, (waiting = new Waiting()));
    waiting.add(line);
    this.size += line.size;
    const share = Math.floor(this.limit / this.waiting.size);
    while (waiting.size > share || this.size > this.limit) {
      let most = waiting;
      if (waiting.size <= share) {
        // Another one has more than its part, which others' lines have made smaller.
        for (const one of this.waiting.values()) if (one.size > most.size) most = one;
        if (most.size === 0) break;
      }
      this.size -= most.drop();
    }
    if (!this.sending) this.timer ??= setTimeout(() => this.begin(), afterMs);
  }

  /** Has the lines of executions sent before their reports, which do not wait for that. */
  flush(executions: Held[]): void {
    const first = new Map<Held, Waiting>();
    for (const held of executions) {
      const waiting = this.waiting.get(held);
      if (waiting) first.set(held, waiting);
    }
    if (first.size === 0) return;
    const others = [...this.waiting].filter(([held]) => !first.has(held));
    this.waiting.clear();
    for (const [held, waiting] of [...first, ...others]) this.waiting.set(held, waiting);
    this.begin();
  }

  /** Waits until the daemon has everything, at most for some milliseconds. */
  async settle(ms: number): Promise<void> {
    this.begin();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)));
    await Promise.race([this.sending, late]);
    clearTimeout(timer);
  }

  /** Ends. What is not sent is lost. */
  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.wake?.();
  }

  /** Sends what waits, if nothing else is being sent; then what has come meanwhile. */
  private begin(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (this.waiting.size > 0) this.sending ??= this.send();
  }

  private async send(): Promise<void> {
    while (this.waiting.size > 0 && !this.closed) {
      const [batch, bytes] = this.take();
      await this.deliver(batch);
      this.size -= bytes;
    }
    this.sending = undefined;
  }

  private take(): [batch: [Held, string][], bytes: number] {
    const batch: [Held, string][] = [];
    let bytes = 0;
    for (const [held, waiting] of this.waiting) {
      for (let line; batch.length < maxLines && bytes < maxRequest && (line = waiting.take()); ) {
        batch.push([held, line.rest]);
        bytes += line.size;
      }
      if (waiting.size > 0 || waiting.dropped > 0) break;
      this.waiting.delete(held);
    }
    this.size = bytes; // a line that tells of others has no size while it waits
    for (const waiting of this.waiting.values()) this.size += waiting.size;
    return [batch, bytes];
  }

  /** Sends lines until the daemon has them or does not want them. */
  private async deliver(batch: [Held, string][]): Promise<void> {
    for (let pause = 50; !this.session.keepsNoLines && !this.closed; pause = Math.min(2 * pause, longestPauseMs)) {
      try {
        return await this.session.keep(batch);
      } catch (e) {
        if (e instanceof NoRoute) this.waiting.clear();
        if (!(e instanceof Unavailable || e instanceof Unauthorized)) return; // it refuses them
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, pause);
        this.wake = () => (clearTimeout(timer), resolve());
      });
    }
  }
}

function lineOf(level: Level, text: string, fields?: Record<string, Json>, at = new Date().toISOString()): Line {
  const shown = fieldsOf(fields),
    more = shown.length > 2 ? `,"fields":${shown}` : "";
  const rest = `"at":"${at}","level":"${level}","text":${JSON.stringify(clipped(text, maxText))}${more}}`;
  return { rest, at, size: bytesOf(rest) + overhead };
}

/** The fields of a line as JSON: what has no form in it is a text, and an error its stack. */
export function fieldsOf(fields: Record<string, Json> = {}): string {
  const parts = Object.keys(fields).flatMap((name) => {
    const text = valueOf(fields, name);
    return text === undefined ? [] : [`${JSON.stringify(name)}:${text}`];
  });
  const text = `{${parts.join(",")}}`,
    size = bytesOf(text);
  return size <= maxFields ? text : `{"fields_left_out_bytes":${size}}`;
}

function valueOf(fields: Record<string, Json>, name: string): string | undefined {
  let value: Json;
  try {
    value = fields[name];
    if (value === undefined) return undefined;
    if (value instanceof Error) return JSON.stringify(clipped(value.stack ?? textOf(value), maxTraceback));
    return encoded(value);
  } catch (e) {
    return JSON.stringify(textOf(value ?? e));
  }
}

function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}

/** A text of at most so many bytes. */
function clipped(text: string, limit: number): string {
  if (3 * text.length <= limit || bytesOf(text) <= limit) return text;
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(limit - 3));
  return `${text.slice(0, read)}…`;
}
