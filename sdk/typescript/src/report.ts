/** Reports of handlers that have ended. */

import type { StepContext } from "./context.js";
import { runStep } from "./current.js";
import { Cancelled, Continue, Permanent, Returned, Yield, encodable, fault, nextOf, type Json } from "./errors.js";
import type { Handler } from "./handlers.js";
import type { Report } from "./session.js";

/** Calls a handler and returns its report; failed is called with a failure. */
export async function reportOf(ctx: StepContext, handler: Handler | undefined, failed: (e: unknown) => void): Promise<Report> {
  const { fence } = ctx;
  try {
    if (!handler) throw new Returned();
    const returned = (await runStep(ctx, () => handler(ctx))) ?? null;
    const next = returned instanceof Continue ? { next: encodable(nextOf(returned.next)) } : {};
    const result = encodable(returned instanceof Continue ? (returned.result ?? null) : returned);
    return { fence, outcome: "success", result, ...next, ...isolatedBy(ctx), ...(ctx.events.length > 0 ? { events: ctx.events } : {}) };
  } catch (thrown) {
    let e = thrown;
    if (e instanceof Yield && ctx.events.length > 0) {
      // They would be lost, or published again by the next execution.
      e = new Permanent("a step that has published events cannot yield", { errorType: "EventNotPublished" });
    }
    if (e instanceof Yield) return { fence, outcome: "yield", checkpoint: e.point, ...isolatedBy(ctx) };
    if (e instanceof Returned || e instanceof Cancelled || ctx.signal.aborted) return { fence, outcome: "returned" };
    failed(e);
    return { fence, outcome: "failure", error: fault(e) };
  }
}

function isolatedBy(ctx: StepContext): Record<string, Json> {
  return ctx.isolated.length > 0 ? { isolated: ctx.isolated } : {};
}
