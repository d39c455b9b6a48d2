/** Structured logging in the style of Tasker's package: lines of JSON on stderr. */

import { currentStep, quietly } from "../current.js";
import type { Json } from "../errors.js";
import { snapshot } from "../json.js";
import type { Level as Kept } from "../lines.js";

declare const process: { env: Record<string, string | undefined> };

/** The fields of a line beside its message. */
export class LogFields {
  [name: string]: Json;
}

const levels = ["trace", "debug", "info", "warn", "error"];

/** The least level, from RUST_LOG. */
function least(): number {
  const [named = "info"] = (process.env["RUST_LOG"] ?? "info").split(",").filter((part) => !part.includes("="));
  return Math.max(levels.indexOf(named), 0);
}

function write(level: string, message: string, fields: Record<string, Json>): void {
  // A handler's line is kept with its attempt.
  currentStep()?.keepLine(level === "trace" ? "debug" : (level as Kept), message, fields);
  if (levels.indexOf(level) < least()) return;
  const line = { time: new Date().toISOString(), level, message };
  quietly(() => {
    try {
      console.error(JSON.stringify(snapshot({ ...line, ...fields })));
    } catch {
      console.error(JSON.stringify(line)); // the fields have no JSON form
    }
  });
}

export function logError(message: string, fields: Record<string, Json> = {}): void {
  write("error", message, fields);
}

export function logWarn(message: string, fields: Record<string, Json> = {}): void {
  write("warn", message, fields);
}

export function logInfo(message: string, fields: Record<string, Json> = {}): void {
  write("info", message, fields);
}

export function logDebug(message: string, fields: Record<string, Json> = {}): void {
  write("debug", message, fields);
}

export function logTrace(message: string, fields: Record<string, Json> = {}): void {
  write("trace", message, fields);
}

type Level = "error" | "warn" | "info" | "debug" | "trace";

const byLevel = <L>(bound: (log: typeof logInfo) => L): Record<Level, L> => ({
  error: bound(logError),
  warn: bound(logWarn),
  info: bound(logInfo),
  debug: bound(logDebug),
  trace: bound(logTrace),
});

/** A logger whose lines all have some fields. */
export function createLogger(fields: Record<string, Json> = {}) {
  return byLevel(
    (log) =>
      (message: string, more: Record<string, Json> = {}): void =>
        log(message, { ...fields, ...more }),
  );
}

/** Takes a message, or fields and a message. */
export type LogMethod = (first: string | Record<string, Json>, message?: string) => void;

/** The logger of publishers and subscribers. */
export type Logger = Record<Level, LogMethod>;

export function loggerOf(component: string): Logger {
  return byLevel<LogMethod>(
    (log) =>
      (first, message = "") =>
        typeof first === "string" ? log(first, { component }) : log(message, { component, ...first }),
  );
}
