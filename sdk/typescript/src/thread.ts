/**
 * The code of the package's threads. One shows presence: it keeps one request open, as long as the daemon knows the
 * session. Another one reads for callers that cannot wait.
 */

import { parentPort } from "node:worker_threads";

import type { Reading } from "./now.js";
import type { Presence } from "./session.js";

/** The shortest time between two requests to a daemon that does not wait. */
const leastMs = 1000;

let target: Presence | undefined,
  running = false,
  stop = (): void => undefined;

parentPort?.on("message", (message) => {
  if (typeof message === "object" && message !== null && Object.hasOwn(message, "flag"))
    return void read(message as Reading);
  target = message as Presence | undefined;
  stop();
  if (!running) void live();
});

async function live(): Promise<void> {
  running = true;
  while (target) {
    const of = target,
      begun = Date.now();
    if ((await present(of)) && target === of) target = undefined; // the session is lost, or the daemon has no such route
    const early = Math.min(leastMs, of.graceMs / 3) - (Date.now() - begun);
    if (early > 0 && target === of)
      await new Promise<void>((resolve) => ((stop = resolve), setTimeout(resolve, early)));
  }
  running = false;
}

/** Sends one request. Resolves to whether there is no sense in another. */
async function present({ url, headers, waitMs, graceMs }: Presence): Promise<boolean> {
  const ending = new AbortController(),
    timer = setTimeout(() => ending.abort(), waitMs + graceMs);
  stop = () => ending.abort();
  try {
    const answer = await fetch(`${url}?wait=${waitMs}ms`, { method: "POST", headers, signal: ending.signal });
    await answer.arrayBuffer();
    return [404, 405].includes(answer.status);
  } catch {
    return false;
  } finally {
    clearTimeout(timer);
  }
}

/** Sends a request, and wakes the caller with the answer. */
async function read({ url, headers, method = "GET", body, timeoutMs, port, flag }: Reading): Promise<void> {
  try {
    const answer = await fetch(url, { method, headers, body: body ?? null, signal: AbortSignal.timeout(timeoutMs) });
    port.postMessage({ status: answer.status, text: await answer.text() });
  } catch (e) {
    port.postMessage({ status: 503, text: String(e) });
  }
  Atomics.store(flag, 0, 1);
  Atomics.notify(flag, 0);
}
