/** Domain events: publishers make those that templates declare, subscribers receive the fast ones. */

import type { StepContext } from "./context.js";
import { textOf, type Json } from "./errors.js";
import { Encoded, encoded, objectOf } from "./json.js";

/** A declared event, and the end of the step that it follows. */
export interface StepEvent {
  name: string;
  /** success, failure, retryable_failure, permanent_failure or always. */
  condition: string;
  /** durable, fast or broadcast. */
  deliveryMode: string;
  taskUuid: string;
  stepUuid: string;
  correlationId: string;
  namespace: string;
  taskName: string;
  taskVersion: string;
  stepName: string;
  attempt: number;
  /** The task's context. */
  context: Json;
  /** The handler has returned a result. */
  success: boolean;
  /** If successful. */
  result: Json;
  /** If failed: message, error_type and more. */
  failure: Record<string, Json> | undefined;
  /** The default: the result, or the failure under error, with error_code and error_message. */
  payload: Json;
}

/**
 * Makes the declared events of steps whose template names it (publishes_events[].publisher). Its functions are called
 * after the handler has ended, and before its end is reported, within the worker's publisherTimeout. They never
 * change the outcome of the step: after an error or a timeout the event is not published.
 */
export interface Publisher {
  /** The name that templates use. */
  name: string;
  /** Called first; after an error the event is not published. */
  before?(event: StepEvent): void | Promise<void>;
  /** Whether to publish the event; false is not a failure. */
  shouldPublish?(event: StepEvent): boolean | Promise<boolean>;
  /** Makes the payload; default: that of the event. */
  payload?(event: StepEvent): Json | Promise<Json>;
  /** Is added to the metadata of the event: 16 KiB at most. */
  metadata?(event: StepEvent): Record<string, Json> | Promise<Record<string, Json>>;
  /** Called after the end of the step was recorded, and the event with it. */
  after?(event: StepEvent): void | Promise<void>;
  /** Called when the event is not published because of a failure. */
  failed?(event: StepEvent, error: unknown): void | Promise<void>;
}

/** A domain event as subscribers receive it. */
export interface DomainEvent {
  event_id: string;
  event_name: string;
  event_version: string;
  payload: Json;
  metadata: {
    task_uuid: string;
    step_uuid: string;
    step_name: string;
    namespace: string;
    correlation_id: string;
    fired_at: string;
    /** The publisher, or the handler where there is none. */
    fired_by: string;
    success: boolean;
    attempt: number;
    /** What the publisher added. */
    added?: Record<string, Json>;
  };
}

/**
 * Receives fast domain events, one after the other. They arrive once at most, and a process that does not listen misses
 * them: what must arrive is durable.
 */
export interface Subscriber {
  /** For logs. */
  name: string;
  /** Names in which * stands for any characters: payment.*, *, or the name itself. */
  patterns: readonly string[];
  /** Handles an event. An error is logged, and there is no retry. */
  handle(event: DomainEvent): void | Promise<void>;
  /** Called before handle; its error skips handle. */
  before?(event: DomainEvent): void | Promise<void>;
  /** Called after a handle that succeeded. */
  after?(event: DomainEvent): void | Promise<void>;
  /** Called after a handle that failed. */
  failed?(event: DomainEvent, error: unknown): void | Promise<void>;
}

/** Whether a name fits a pattern, in which * stands for any characters. */
export function fits(pattern: string, name: string): boolean {
  const [first = "", ...rest] = pattern.split("*"),
    last = rest.pop();
  if (last === undefined) return pattern === name;
  if (!name.startsWith(first) || !name.endsWith(last) || name.length < first.length + last.length) return false;
  let at = first.length;
  for (const part of rest) {
    const found = name.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return at <= name.length - last.length;
}

/** How a step has ended, for its publishers. */
export interface Ended {
  result?: Encoded | undefined;
  failure?: Record<string, Json> | undefined;
}

/** What publishers made of the events of a step. */
export interface Made {
  /** For the report. */
  made: Encoded[];
  /** Tells publishers that the end of the step was recorded. */
  recorded(): void;
}

const maxMetadata = 16 * 1024;

/** Calls publishers. */
export class Publishing {
  constructor(
    private readonly publishers: Map<string, Publisher>,
    private readonly timeoutMs: number,
    private readonly log: (message: string) => void,
  ) {}

  /** Makes the events that follow the end of a step. Resolves to undefined without any. */
  async make(ctx: StepContext, end: Ended): Promise<Made | undefined> {
    const made: Encoded[] = [],
      published: [Publisher, StepEvent][] = [];
    for (const { name, condition, delivery_mode: deliveryMode, publisher: who } of ctx.publishes) {
      const publisher = this.publishers.get(who);
      if (!publisher || !follows(condition, end, ctx.isLastAttempt)) continue;
      const event: StepEvent = { name, condition, deliveryMode, ...about(ctx, end) };
      try {
        const one = await this.bounded(() => this.one(publisher, event));
        made.push(one);
        if (!one.vetoed) published.push([publisher, event]);
      } catch (e) {
        this.log(`the event ${name} of step ${ctx.stepName} is not published: ${textOf(e)}`);
        made.push(objectOf({ name, skip: "publisher_error" }));
        await this.hook(publisher, () => publisher.failed?.(event, e));
      }
    }
    if (made.length === 0) return undefined;
    return {
      made,
      recorded: () =>
        published.forEach(([publisher, event]) => void this.hook(publisher, () => publisher.after?.(event))),
    };
  }

  private async one(publisher: Publisher, event: StepEvent): Promise<Encoded & { vetoed?: boolean }> {
    await publisher.before?.(event);
    if (publisher.shouldPublish && !(await publisher.shouldPublish(event))) {
      return Object.assign(objectOf({ name: event.name, skip: "vetoed" }), { vetoed: true });
    }
    const payload = publisher.payload ? new Encoded(encoded((await publisher.payload(event)) ?? null)) : undefined;
    const added = await publisher.metadata?.(event),
      metadata = added && Object.keys(added).length > 0 ? new Encoded(encoded(added)) : undefined;
    if (metadata && new TextEncoder().encode(metadata.text).length > maxMetadata)
      throw new TypeError(`the metadata of the event have more than ${maxMetadata} bytes of JSON`);
    return objectOf({ name: event.name, payload, metadata });
  }

  /** Waits for a function of a publisher until its time limit; one that continues is left alone. */
  private async bounded<T>(call: () => Promise<T>): Promise<T> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>(
      (_, reject) =>
        (timer = setTimeout(
          () => reject(new Error(`the publisher did not end within ${this.timeoutMs} ms`)),
          this.timeoutMs,
        )),
    );
    try {
      return await Promise.race([call(), late]);
    } finally {
      clearTimeout(timer);
    }
  }

  private async hook(publisher: Publisher, call: () => void | Promise<void>): Promise<void> {
    try {
      await this.bounded(async () => call());
    } catch (e) {
      this.log(`the publisher ${publisher.name} failed: ${textOf(e)}`);
    }
  }
}

function follows(condition: string, end: Ended, last: boolean): boolean {
  if (condition === "always") return true;
  if (!end.failure) return condition === "success";
  const final = end.failure["retryable"] === false || last;
  return condition === "failure" || condition === (final ? "permanent_failure" : "retryable_failure");
}

function about(ctx: StepContext, end: Ended): Omit<StepEvent, "name" | "condition" | "deliveryMode"> {
  const { taskUuid, stepUuid, correlationId, namespace, taskName, taskVersion, stepName, attempt, context } = ctx,
    { failure } = end;
  const result = failure ? undefined : (end.result?.value ?? null);
  const payload = failure
    ? {
        error: { retryable: true, ...failure },
        error_code: failure["error_code"] ?? failure["error_type"],
        error_message: failure["message"],
      }
    : result;
  return {
    taskUuid,
    stepUuid,
    correlationId,
    namespace,
    taskName,
    taskVersion,
    stepName,
    attempt,
    context,
    success: !failure,
    result,
    failure,
    payload,
  };
}

const mostWaiting = 1000;

/** Hands events to subscribers, each in its own order. */
export class Delivery {
  private readonly queues: { subscriber: Subscriber; waiting: DomainEvent[]; running: boolean; lost: number }[];

  constructor(
    subscribers: Subscriber[],
    private readonly log: (message: string) => void,
  ) {
    this.queues = subscribers.map((subscriber) => ({ subscriber, waiting: [], running: false, lost: 0 }));
  }

  /** Begins to deliver an event. One for a subscriber that lags behind by 1,000 is lost. */
  deliver(event: DomainEvent): void {
    for (const queue of this.queues) {
      if (!queue.subscriber.patterns.some((pattern) => fits(pattern, event.event_name))) continue;
      if (queue.waiting.length >= mostWaiting) {
        if (queue.lost++ === 0) this.log(`the subscriber ${queue.subscriber.name} is too slow: events are lost`);
        continue;
      }
      queue.waiting.push(event);
      if (!queue.running) void this.work(queue);
    }
  }

  private async work(queue: (typeof this.queues)[number]): Promise<void> {
    queue.running = true;
    for (let event = queue.waiting.shift(); event; event = queue.waiting.shift())
      await this.one(queue.subscriber, event);
    queue.running = false;
    queue.lost = 0;
  }

  private async one(subscriber: Subscriber, event: DomainEvent): Promise<void> {
    try {
      await subscriber.before?.(event);
      await subscriber.handle(event);
    } catch (e) {
      this.log(`the subscriber ${subscriber.name} failed over ${event.event_name}: ${textOf(e)}`);
      await this.hook(subscriber, () => subscriber.failed?.(event, e));
      return;
    }
    await this.hook(subscriber, () => subscriber.after?.(event));
  }

  private async hook(subscriber: Subscriber, call: () => void | Promise<void>): Promise<void> {
    try {
      await call();
    } catch (e) {
      this.log(`the subscriber ${subscriber.name} failed: ${textOf(e)}`);
    }
  }
}
