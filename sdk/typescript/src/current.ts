/** Which step runs, for code that its handler calls. */

import { AsyncLocalStorage } from "node:async_hooks";

import type { StepContext } from "./context.js";

const running = new AsyncLocalStorage<StepContext>();

/**
 * The step whose handler calls this, directly or behind await and timers, for the correlation of logs and
 * requests; undefined elsewhere.
 */
export function currentStep(): StepContext | undefined {
  return running.getStore();
}

/** Calls a handler of a step. */
export function runStep<R>(ctx: StepContext, handler: () => R): R {
  return running.run(ctx, handler);
}

let quiet = 0;

/** What is printed meanwhile is no output of a handler: a logger prints a line that is kept already. */
export function quietly<R>(print: () => R): R {
  quiet++;
  try {
    return print();
  } finally {
    quiet--;
  }
}

export function isQuiet(): boolean {
  return quiet > 0;
}
