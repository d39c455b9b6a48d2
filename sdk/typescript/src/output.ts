/** What handlers print. */

import { format } from "node:util";

import { currentStep, isQuiet, quietly } from "./current.js";
import type { Level } from "./lines.js";

interface Stream {
  write(chunk: string | Uint8Array, ...more: unknown[]): boolean;
}

declare const process: { stdout: Stream; stderr: Stream };

const levels = { debug: "debug", log: "info", info: "info", warn: "warn", error: "error" } as const;

/** The console and the streams of the process, while workers capture what is printed. */
class Output {
  private workers = 0;
  private ended: (() => void)[] = [];

  capture(): void {
    if (this.workers++ > 0) return;
    for (const [name, level] of Object.entries(levels) as [keyof typeof levels, Level][]) {
      this.replace(console, name, (before) => (...args: unknown[]): void => {
        const ctx = captured();
        ctx?.keepLine(level, format(...args));
        if (ctx) quietly(() => before.apply(console, args));
        else before.apply(console, args);
      });
    }
    for (const [stream, level] of [[process.stdout, "info"], [process.stderr, "warn"]] as const) {
      this.replace(stream, "write", (before) => (chunk: string | Uint8Array, ...more: unknown[]): boolean => {
        captured()?.printed(level, typeof chunk === "string" ? chunk : new TextDecoder().decode(chunk));
        return before.call(stream, chunk, ...more);
      });
    }
  }

  /** Ends what capture has begun. What the program has put there meanwhile stays. */
  restore(): void {
    if (--this.workers > 0) return;
    for (const end of this.ended.splice(0)) end();
  }

  private replace<T extends object, K extends keyof T>(of: T, name: K, made: (before: T[K]) => T[K]): void {
    const own = Object.hasOwn(of, name),
      before = of[name],
      now = made(before);
    of[name] = now;
    this.ended.push(() => {
      if (of[name] !== now) return;
      if (own) of[name] = before;
      else delete of[name];
    });
  }
}

/** The step whose handler prints now, if its worker wants to know. */
function captured(): ReturnType<typeof currentStep> {
  const ctx = isQuiet() ? undefined : currentStep();
  return ctx?.captures ? ctx : undefined;
}

export const output = new Output();
