/**
 * Shows from a thread of its own that the process lives, also while a handler computes and the event loop stands
 * still.
 */

import { Worker as Thread } from "node:worker_threads";

import { textOf } from "./errors.js";
import type { Presence } from "./session.js";

/** Keeps a session present. The thread does not keep the process alive. */
export class Presences {
  private thread: Thread | undefined;
  private target: Presence | undefined;

  constructor(private readonly log: (message: string) => void) {}

  /** Starts the thread, unless it runs. */
  start(): void {
    if (this.thread) return;
    const thread = new Thread(new URL("./thread.js", import.meta.url), { execArgv: [] });
    this.thread = thread;
    thread.unref();
    thread.on("error", (e) => {
      this.log(`the thread that shows presence has ended: ${textOf(e)}`);
      if (this.thread === thread) this.thread = undefined;
    });
    thread.postMessage(this.target);
  }

  /** The session from now on; none while another one is opened. */
  show(target: Presence | undefined): void {
    this.target = target;
    this.thread?.postMessage(target);
  }

  stop(): void {
    void this.thread?.terminate();
    this.thread = undefined;
  }
}
