/** Reports of handlers that have ended. */

import type { StepContext } from "./context.js";
import { runStep } from "./current.js";
import { Cancelled, Continue, Permanent, Returned, Yield, encodable, fault, isA, nextOf, type Json } from "./errors.js";
import type { Ended, Publishing } from "./events.js";
import type { Handler } from "./handlers.js";
import { Bytes, Encoded } from "./json.js";
import type { Report } from "./session.js";

/** Finds the handler of a step. */
export type Found = () => Handler | undefined | Promise<Handler | undefined>;

/**
 * Calls the handler of a step, and its publishers, and returns the report, which later changes of what they returned do
 * not reach; failed is called with a failure. It never rejects, whatever they throw.
 */
export async function reportOf(
  ctx: StepContext,
  find: Found,
  failed: (e: unknown) => void,
  publishing?: Publishing,
): Promise<Report> {
  const { fence } = ctx;
  let report: Report, end: Ended;
  try {
    const handler = await find();
    if (!handler) throw new Returned();
    const result = (await called(ctx, handler)) ?? null;
    [report, end] = succeeded(ctx, fence, result);
  } catch (thrown) {
    let e = thrown;
    if (isA(e, Yield) && ctx.events.length > 0) {
      // They would be lost, or published again by the next execution.
      e = new Permanent("a step that has published events cannot yield", { errorType: "EventNotPublished" });
    }
    if (isA(e, Yield)) return { fence, outcome: "yield", checkpoint: e.point, ...isolatedBy(ctx) };
    if (isA(e, Returned) || isA(e, Cancelled) || ctx.signal.aborted) return { fence, outcome: "returned" };
    failed(e);
    const failure = fault(e);
    [report, end] = [{ fence, outcome: "failure", error: failure }, { failure }];
  }
  const made = await publishing?.make(ctx, end);
  return made ? { ...report, made: made.made, recorded: made.recorded } : report;
}

async function called(ctx: StepContext, handler: Handler): Promise<Json> {
  try {
    return await runStep(ctx, () => handler(ctx));
  } finally {
    ctx.endPrinted();
  }
}

function succeeded(ctx: StepContext, fence: string, returned: Json): [Report, Ended] {
  const { events, added } = ctx;
  const next =
    returned instanceof Continue ? { next: encodable(nextOf(returned.next), "the next task", "NextTaskRefused") } : {};
  const value = returned instanceof Continue ? (returned.result ?? null) : returned;
  const result = encodable(value);
  return [
    {
      fence,
      outcome: "success",
      ...(value instanceof Bytes ? { result_bytes: value.base64, content_type: value.contentType } : { result }),
      ...next,
      ...isolatedBy(ctx),
      ...(events.length > 0 ? { events: [...events] } : {}),
      ...(added ? { metadata: added } : {}),
    },
    { result },
  ];
}

function isolatedBy(ctx: StepContext): Record<string, Json> {
  return ctx.isolated.length > 0 ? { isolated: [...ctx.isolated] } : {};
}

/** The fields of a report as they are sent. */
export function fieldsOf(report: Report): Record<string, Json> {
  const { recorded: _, ...fields } = report;
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => {
      const list = Array.isArray(value) && value.some((v) => v instanceof Encoded);
      return [name, list ? new Encoded(`[${(value as Encoded[]).map((v) => v.text).join(",")}]`) : value];
    }),
  );
}
