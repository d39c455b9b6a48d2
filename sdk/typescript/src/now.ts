/** Requests for callers that cannot wait: their thread stands still until the answer is there. */

import { MessageChannel, Worker as Thread, receiveMessageOnPort, type MessagePort } from "node:worker_threads";

/** A request to the thread that reads. */
export interface Reading {
  url: string;
  headers: Record<string, string>;
  /** Default GET. */
  method?: string;
  body?: string;
  timeoutMs: number;
  port: MessagePort;
  /** Becomes 1 when the answer is there. */
  flag: Int32Array;
}

const timeoutMs = 10_000;

let thread: Thread | undefined;

/** Sends a request and returns its answer; an unreachable server is a 503. */
export function readNow(
  url: string,
  headers: Record<string, string>,
  sent: { method?: string; body?: string } = {},
): { status: number; text: string } {
  const flag = new Int32Array(new SharedArrayBuffer(4)),
    { port1, port2 } = new MessageChannel();
  thread ??= new Thread(new URL("./thread.js", import.meta.url), { execArgv: [] });
  thread.unref();
  thread.postMessage({ url, headers, ...sent, timeoutMs, port: port2, flag }, [port2]);
  Atomics.wait(flag, 0, 0, timeoutMs + 1000);
  const answer = receiveMessageOnPort(port1)?.message as { status: number; text: string } | undefined;
  port1.close();
  return answer ?? { status: 503, text: "no answer came in time" };
}
