/** Domain events in the style of Tasker's package. */

import { textOf, type Json } from "../errors.js";
import { fits, type DomainEvent as NativeEvent, type Publisher, type StepEvent, type Subscriber } from "../events.js";
import { logError } from "./log.js";

type Fields = Record<string, Json>;

/** The end of a step, for its publishers. */
export class StepEventContext {
  taskUuid = "";
  stepUuid = "";
  stepName = "";
  namespace = "";
  correlationId = "";
  eventName = "";
  /** Of a step that has succeeded. */
  result: any = undefined;
  metadata: Fields = {};
  taskContext: any = undefined;
  success = true;
  errorMessage: string | undefined;
  errorType: string | undefined;

  constructor(fields: Partial<Omit<StepEventContext, "stepSucceeded">> = {}) {
    Object.assign(this, fields);
  }

  stepSucceeded(): boolean {
    return this.success;
  }
}

/** An event that was published. */
export class DomainEvent {
  constructor(
    readonly eventName: string,
    readonly payload: any,
    readonly metadata: Fields = {},
    readonly deliveryMode = "durable",
  ) {}
}

/** A fast event, as subscribers get it. */
export class InProcessDomainEvent {
  eventId = "";
  eventName = "";
  eventVersion = "";
  payload: any;
  metadata: Fields = {};

  constructor(fields: Partial<InProcessDomainEvent> = {}) {
    Object.assign(this, fields);
  }
}

/** How a subscriber has handled an event. */
export class SubscriberResult {
  success = true;
  error?: string;
}

function nativeName(type: object, field: string): string {
  const { constructor } = type as { constructor: Record<string, Json> & { name: string } },
    own = constructor[field];
  return typeof own === "string" && own !== "" ? own : constructor.name;
}

/** Makes the events of steps whose template names it: by its publisherName, or the name of its class. */
export abstract class BasePublisher {
  static publisherName = "";

  get publisherName(): string {
    return nativeName(this, "publisherName");
  }

  /** The names of the steps whose events it makes. */
  publishesFor(): string[] {
    return [];
  }

  shouldPublish(_ctx: StepEventContext): boolean | Promise<boolean> {
    return true;
  }

  transformPayload(ctx: StepEventContext): any {
    return ctx.result ?? {};
  }

  /** With false the event is not published. */
  beforePublish(_ctx: StepEventContext): any {}

  afterPublish(_ctx: StepEventContext, _event: DomainEvent): void | Promise<void> {}

  onPublishError(_ctx: StepEventContext, _error: Error): void | Promise<void> {}

  additionalMetadata(_ctx: StepEventContext): Fields | Promise<Fields> {
    return {};
  }

  /** Makes an event with all of the above; the engine is what publishes it. */
  async publish(ctx: StepEventContext): Promise<DomainEvent | null> {
    try {
      if ((await this.beforePublish(ctx)) === false || !(await this.shouldPublish(ctx))) return null;
      const event = new DomainEvent(
        ctx.eventName,
        await this.transformPayload(ctx),
        await this.additionalMetadata(ctx),
      );
      await this.afterPublish(ctx, event);
      return event;
    } catch (e) {
      await this.onPublishError(ctx, e instanceof Error ? e : new Error(textOf(e)));
      throw e;
    }
  }
}

/** Publishes results as they are. */
export class DefaultPublisher extends BasePublisher {}

function contextOf(e: StepEvent): StepEventContext {
  const message = e.failure?.["message"],
    type = e.failure?.["error_type"];
  return new StepEventContext({
    taskUuid: e.taskUuid,
    stepUuid: e.stepUuid,
    stepName: e.stepName,
    namespace: e.namespace,
    correlationId: e.correlationId,
    eventName: e.name,
    result: e.result,
    taskContext: e.context,
    success: e.success,
    errorMessage: message === undefined ? undefined : String(message),
    errorType: type === undefined ? undefined : String(type),
  });
}

/** A publisher of the engine under each of its names. */
export function nativePublishers(publisher: BasePublisher): Publisher[] {
  const contexts = new WeakMap<StepEvent, StepEventContext>(),
    made = new WeakMap<StepEvent, { payload?: Json; metadata?: Fields }>();
  const of = (e: StepEvent): StepEventContext => contexts.get(e) ?? (contexts.set(e, contextOf(e)), contexts.get(e)!);
  const keep = (e: StepEvent, part: { payload?: Json; metadata?: Fields }): void =>
    void made.set(e, { ...made.get(e), ...part });
  const one: Omit<Publisher, "name"> = {
    async shouldPublish(e) {
      return (await publisher.beforePublish(of(e))) !== false && (await publisher.shouldPublish(of(e)));
    },
    async payload(e) {
      const payload = await (e.success || publisher.transformPayload !== BasePublisher.prototype.transformPayload
        ? publisher.transformPayload(of(e))
        : e.payload);
      keep(e, { payload });
      return payload;
    },
    async metadata(e) {
      const metadata = await publisher.additionalMetadata(of(e));
      keep(e, { metadata });
      return metadata;
    },
    after(e) {
      const { payload, metadata } = made.get(e) ?? {};
      return publisher.afterPublish(of(e), new DomainEvent(e.name, payload, metadata, e.deliveryMode));
    },
    failed(e, error) {
      return publisher.onPublishError(of(e), error instanceof Error ? error : new Error(textOf(error)));
    },
  };
  return [...new Set([publisher.publisherName, publisher.constructor.name])].map((name) => ({ name, ...one }));
}

/** Receives fast events whose names fit. */
export abstract class BaseSubscriber {
  static subscriberName = "";
  private active = false;

  get subscriberName(): string {
    return nativeName(this, "subscriberName");
  }

  /** Names in which * stands for any characters. */
  subscribesTo(): string[] {
    const { patterns } = this.constructor as { patterns?: string[] };
    return patterns ?? ["*"];
  }

  abstract handle(event: InProcessDomainEvent): SubscriberResult | void | Promise<SubscriberResult | void>;

  /** With false the event is not handled. */
  beforeHandle(_event: InProcessDomainEvent): any {}

  afterHandle(_event: InProcessDomainEvent, _result: SubscriberResult): void | Promise<void> {}

  onHandleError(_event: InProcessDomainEvent, _error: Error): void | Promise<void> {}

  start(): void {
    this.active = true;
  }

  stop(): void {
    this.active = false;
  }

  isActive(): boolean {
    return this.active;
  }

  matches(eventName: string): boolean {
    return this.subscribesTo().some((pattern) => fits(pattern, eventName));
  }

  /** Handles an event with all of the above. */
  async process(event: InProcessDomainEvent): Promise<SubscriberResult> {
    try {
      if ((await this.beforeHandle(event)) === false) return { success: true };
      const result = (await this.handle(event)) ?? { success: true };
      await this.afterHandle(event, result);
      return result;
    } catch (e) {
      const error = e instanceof Error ? e : new Error(textOf(e));
      await this.onHandleError(event, error);
      return { success: false, error: error.message };
    }
  }
}

/** A fast event of the engine; its metadata have names in both styles. */
export function inProcess(e: NativeEvent): InProcessDomainEvent {
  const m = e.metadata as Record<string, Json>,
    camel = Object.entries(m).map(([name, value]) => [
      name.replace(/_(\w)/g, (_, c: string) => c.toUpperCase()),
      value,
    ]);
  return new InProcessDomainEvent({
    eventId: e.event_id,
    eventName: e.event_name,
    eventVersion: e.event_version,
    payload: e.payload,
    metadata: { ...m, ...Object.fromEntries(camel), ...(e.metadata.added ?? {}) },
  });
}

type Type<T> = (new () => T) | T;

function instanceOf<T extends object>(given: Type<T>): T {
  return typeof given === "function" ? new (given as new () => T)() : given;
}

/** The publishers of the process. */
export class PublisherRegistry {
  private static one: PublisherRegistry | undefined;
  private readonly known = new Map<string, BasePublisher>();
  private frozen = false;

  static getInstance(): PublisherRegistry {
    return (PublisherRegistry.one ??= new PublisherRegistry());
  }

  static instance(): PublisherRegistry {
    return PublisherRegistry.getInstance();
  }

  /** Registers a class or an object. */
  register(given: Type<BasePublisher>): BasePublisher {
    const publisher = instanceOf(given),
      { publisherName: name } = publisher;
    if (this.frozen) throw new Error(`register publisher ${name}: the registry is frozen`);
    if (this.known.has(name)) throw new Error(`register publisher ${name}: the name is already registered`);
    this.known.set(name, publisher);
    return publisher;
  }

  get(name: string): BasePublisher | undefined {
    return this.known.get(name);
  }

  getForStep(step: string): BasePublisher | undefined {
    return [...this.known.values()].find((p) => p.publishesFor().includes(step));
  }

  has(name: string): boolean {
    return this.known.has(name);
  }

  list(): BasePublisher[] {
    return [...this.known.values()];
  }

  get count(): number {
    return this.known.size;
  }

  /** Allows no more registrations. */
  freeze(): void {
    this.frozen = true;
  }

  isFrozen(): boolean {
    return this.frozen;
  }

  /** For tests. */
  reset(): void {
    this.known.clear();
    this.frozen = false;
  }

  clear(): void {
    this.reset();
  }
}

/** The subscribers of the process. */
export class SubscriberRegistry {
  private static one: SubscriberRegistry | undefined;
  private readonly known: BaseSubscriber[] = [];

  static getInstance(): SubscriberRegistry {
    return (SubscriberRegistry.one ??= new SubscriberRegistry());
  }

  static instance(): SubscriberRegistry {
    return SubscriberRegistry.getInstance();
  }

  register(given: Type<BaseSubscriber>): BaseSubscriber {
    const subscriber = instanceOf(given);
    if (this.known.some((s) => s.subscriberName === subscriber.subscriberName)) {
      throw new Error(`register subscriber ${subscriber.subscriberName}: the name is already registered`);
    }
    this.known.push(subscriber);
    return subscriber;
  }

  getMatchingSubscribers(eventName: string): BaseSubscriber[] {
    return this.known.filter((s) => s.matches(eventName));
  }

  list(): BaseSubscriber[] {
    return [...this.known];
  }

  get count(): number {
    return this.known.length;
  }

  startAll(): void {
    for (const subscriber of this.known) subscriber.start();
  }

  stopAll(): void {
    for (const subscriber of this.known) subscriber.stop();
  }

  /** For tests. */
  reset(): void {
    this.stopAll();
    this.known.length = 0;
  }

  clear(): void {
    this.reset();
  }

  /** Hands an event to the subscribers that are started. */
  async dispatch(event: InProcessDomainEvent): Promise<void> {
    for (const subscriber of this.getMatchingSubscribers(event.eventName)) {
      if (!subscriber.isActive()) continue;
      const { success, error } = await subscriber.process(event);
      if (!success)
        logError(`the subscriber ${subscriber.subscriberName} failed over ${event.eventName}: ${error ?? ""}`, {
          component: "domain_events",
        });
    }
  }
}

/** The started subscribers of the registry as one of the engine. */
export function nativeSubscriber(
  registry: SubscriberRegistry,
  deliver = (e: InProcessDomainEvent): Promise<void> => registry.dispatch(e),
): Subscriber {
  return {
    name: "subscribers",
    patterns: [...new Set(registry.list().flatMap((s) => s.subscribesTo()))],
    handle: (e) => deliver(inProcess(e)),
  };
}

/** Where fast events come from: undefined or null if there is none. */
export type PollFunction = () => InProcessDomainEvent | null | undefined;

/** Asks for fast events until it is stopped. */
export class InProcessDomainEventPoller {
  private poll: PollFunction | undefined;
  private timer: ReturnType<typeof setInterval> | undefined;
  private readonly listeners: ((event: InProcessDomainEvent) => unknown)[] = [];
  private readonly troubles: ((error: Error) => void)[] = [];

  constructor(
    private readonly config: { pollIntervalMs?: number; pollingIntervalMs?: number; maxEventsPerPoll?: number } = {},
  ) {}

  setPollFunction(poll: PollFunction): void {
    this.poll = poll;
  }

  onEvent(listener: (event: InProcessDomainEvent) => unknown): this {
    this.listeners.push(listener);
    return this;
  }

  onError(listener: (error: Error) => void): this {
    this.troubles.push(listener);
    return this;
  }

  start(listener?: (event: InProcessDomainEvent) => unknown): void {
    if (listener) this.listeners.push(listener);
    this.timer ??= setInterval(
      () => void this.take(),
      this.config.pollIntervalMs ?? this.config.pollingIntervalMs ?? 10,
    );
  }

  stop(): void {
    clearInterval(this.timer);
    this.timer = undefined;
  }

  isRunning(): boolean {
    return this.timer !== undefined;
  }

  private async take(): Promise<void> {
    try {
      for (let left = this.config.maxEventsPerPoll ?? 100; left > 0; left--) {
        const event = this.poll?.();
        if (!event) return;
        for (const listener of this.listeners) await listener(event);
      }
    } catch (e) {
      const error = e instanceof Error ? e : new Error(textOf(e));
      if (this.troubles.length === 0)
        logError(`a domain event was not handled: ${error.message}`, { component: "domain_events" });
      for (const listener of this.troubles) listener(error);
    }
  }
}
