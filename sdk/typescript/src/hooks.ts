/** Callbacks of a worker. */

import type { StepContext } from "./context.js";
import { textOf } from "./errors.js";

/** An error that a hook throws is logged and changes nothing. Hooks are not awaited. */
export interface Hooks {
  /** The worker has a session, at first or again: it is ready for steps. */
  opened?(): void;
  /** A handler is about to be called. */
  before?(ctx: StepContext): void;
  /** A handler has failed; after is called too. */
  failed?(ctx: StepContext, error: unknown): void;
  /** A handler has ended with success, failure, yield or returned; its end is not reported yet. */
  after?(ctx: StepContext, outcome: string, seconds: number): void;
  /** The worker, or its daemon, takes no more steps and waits for those that run. */
  draining?(): void;
  /** The worker has ended. */
  stopped?(): void;
}

/** Calls hooks. */
export class Told {
  constructor(private readonly hooks: Hooks, private readonly log: (message: string) => void) {}

  tell<K extends keyof Hooks>(hook: K, ...args: Parameters<NonNullable<Hooks[K]>>): void {
    try {
      (this.hooks[hook] as ((...args: unknown[]) => void) | undefined)?.apply(this.hooks, args);
    } catch (e) {
      this.log(`a hook failed: ${textOf(e)}`);
    }
  }
}
