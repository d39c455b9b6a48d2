/** Domain events in the style of Tasker's package. */

import { textOf, type Json } from "../errors.js";
import { fits, type DomainEvent as NativeEvent, type Publisher, type StepEvent, type Subscriber } from "../events.js";
import { logError, loggerOf } from "./log.js";

type Fields = Record<string, Json>;

/** The result of a step, for its publishers. */
export interface StepResult {
  success: boolean;
  result?: Fields;
  metadata?: Fields;
}

/** An event as a template declares it. */
export interface EventDeclaration {
  name: string;
  condition?: "success" | "failure" | "retryable_failure" | "permanent_failure" | "always";
  deliveryMode?: "durable" | "fast" | "broadcast";
  publisher?: string;
  schema?: Fields;
}

/** What an event is made of outside of a workflow. */
export interface PublishContext {
  eventName: string;
  stepResult: StepResult;
  eventDeclaration?: EventDeclaration;
  stepContext?: Partial<StepEventContext>;
}

/** The end of a step, for its publishers. It stands for the step's result, too. */
export class StepEventContext {
  taskUuid = "";
  stepUuid = "";
  stepName = "";
  namespace = "";
  correlationId = "";
  eventName = "";
  /** Of a step that has succeeded. */
  result: any = undefined;
  /** Of a failure: error_code, error_type, error_message and retryable. */
  metadata: Fields = {};
  taskContext: any = undefined;
  success = true;
  errorMessage: string | undefined;
  errorType: string | undefined;

  constructor(fields: Partial<Omit<StepEventContext, "stepSucceeded">> = {}) {
    const { task: _task, ...own } = fields;
    Object.assign(this, own);
  }

  stepSucceeded(): boolean {
    return this.success;
  }

  get task(): { context: any } {
    return { context: this.taskContext ?? {} };
  }

  /** The name of the event, for hooks whose first argument is that. */
  toString(): string {
    return this.eventName;
  }
}

export function createStepEventContext(
  data: Pick<StepEventContext, "taskUuid" | "stepUuid" | "stepName"> & Partial<StepEventContext>,
): StepEventContext {
  const { namespace = "default", correlationId = data.taskUuid, metadata = {} } = data;
  return new StepEventContext({ ...data, namespace, correlationId, metadata });
}

/** The metadata of an event. */
export interface DomainEventMetadata {
  taskUuid: string;
  stepUuid: string;
  stepName?: string;
  namespace: string;
  correlationId: string;
  firedAt: string;
  publisher?: string;
  [field: string]: any;
}

/** An event that was published. */
export class DomainEvent {
  eventId = "";
  readonly deliveryMode?: string;
  /** There is no other result than the payload. */
  executionResult: StepResult;

  constructor(
    readonly eventName: string,
    readonly payload: any,
    readonly metadata: any = {},
    deliveryMode = "durable",
  ) {
    this.deliveryMode = deliveryMode;
    this.executionResult = { success: true, result: payload as Fields };
  }
}

export function createDomainEvent(data: {
  eventId: string;
  eventName: string;
  payload: Fields;
  metadata: Fields;
  executionResult: StepResult;
}): DomainEvent {
  return Object.assign(new DomainEvent(data.eventName, data.payload, data.metadata), data);
}

/** A fast event, as subscribers get it. */
export class InProcessDomainEvent extends DomainEvent {
  eventVersion = "";

  constructor(fields: Partial<InProcessDomainEvent> = {}) {
    super(fields.eventName ?? "", fields.payload, fields.metadata ?? {}, "fast");
    const { businessPayload: _payload, ...own } = fields;
    Object.assign(this, own);
  }

  /** The payload under another name. */
  get businessPayload(): any {
    return this.payload;
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

/** Lets classes have a name as a static field or as one of their objects; without one it is theirs. */
function readName(prototype: object, field: string): void {
  Object.defineProperty(prototype, field, {
    configurable: true,
    get(this: object): string {
      return nativeName(this, field);
    },
    set(this: object, value: string) {
      Object.defineProperty(this, field, { value, configurable: true, enumerable: true, writable: true });
    },
  });
}

/**
 * Makes the events of steps whose template names it: by its publisherName, or the name of its class. Its hooks get the
 * end of the step: shouldPublish, transformPayload and additionalMetadata the declaration too, and the end once more.
 * A hook with three parameters gets the name of the event, or the error, and the payload.
 */
export abstract class BasePublisher {
  static publisherName = "";
  protected readonly logger = loggerOf("domain-events");

  /** The names of the steps whose events it makes. */
  publishesFor(): string[] {
    return [];
  }

  shouldPublish(_ctx: any, _declaration?: any, _stepContext?: any): any {
    return true;
  }

  transformPayload(ctx: any, _declaration?: any, _stepContext?: any): any {
    return (ctx as StepEventContext).result ?? {};
  }

  /** With false the event is not published. */
  beforePublish(..._given: any[]): any {}

  afterPublish(..._given: any[]): any {}

  onPublishError(..._given: any[]): any {}

  additionalMetadata(_ctx: any, _declaration?: any, _stepContext?: any): any {
    return {};
  }

  /**
   * Makes an event with all of the above; the engine is what publishes it. Of the end of a step it resolves to the
   * event or null; of a PublishContext it returns whether the event is to be published.
   */
  publish(given: StepEventContext): Promise<DomainEvent | null>;
  publish(given: PublishContext): boolean;
  publish(given: StepEventContext | PublishContext): Promise<DomainEvent | null> | boolean {
    if (given instanceof StepEventContext) return this.made(given);
    const { eventName, stepResult, eventDeclaration = { name: eventName }, stepContext } = given,
      ctx = new StepEventContext({ ...stepContext, ...stepResult, eventName });
    const hooks = new Hooks(this, ctx, eventDeclaration, stepContext ? ctx : undefined);
    if (hooks.shouldPublish() === false) return false;
    const payload = hooks.payload() as Fields,
      metadata = { publisher: this.publisherName, ...(hooks.metadata() as Fields) };
    try {
      if (hooks.before(payload, metadata) === false) return false;
      hooks.after(new DomainEvent(eventName, payload, metadata));
      return true;
    } catch (e) {
      hooks.failed(e, payload);
      return false;
    }
  }

  private async made(ctx: StepEventContext): Promise<DomainEvent | null> {
    const hooks = new Hooks(this, ctx, { name: ctx.eventName }, ctx);
    try {
      if (!(await hooks.shouldPublish())) return null;
      const payload: Json = await hooks.payload(),
        metadata = (await hooks.metadata()) as Fields;
      if ((await hooks.before(payload, metadata)) === false) return null;
      const event = new DomainEvent(ctx.eventName, payload, metadata);
      await hooks.after(event);
      return event;
    } catch (e) {
      await hooks.failed(e);
      throw e;
    }
  }
}
export interface BasePublisher {
  readonly publisherName: string;
}
readName(BasePublisher.prototype, "publisherName");

/** Calls the hooks of a publisher for one event, each in the style in which it is written. */
class Hooks {
  constructor(
    private readonly publisher: BasePublisher,
    private readonly ctx: StepEventContext,
    private readonly declaration: EventDeclaration,
    private readonly stepContext: StepEventContext | undefined = ctx,
  ) {}

  shouldPublish(): any {
    return this.publisher.shouldPublish(this.ctx, this.declaration, this.stepContext);
  }

  payload(): any {
    return this.publisher.transformPayload(this.ctx, this.declaration, this.stepContext);
  }

  metadata(): any {
    return this.publisher.additionalMetadata(this.ctx, this.declaration, this.stepContext);
  }

  /** Whether a hook is called with the name of the event, the payload and more. */
  private named(hook: (...given: any[]) => any, least: number): boolean {
    return hook.length >= least;
  }

  before(payload: Json, metadata: Fields): any {
    const { publisher, ctx } = this,
      named = this.named(publisher.beforePublish, 2);
    return named ? publisher.beforePublish(ctx.eventName, payload, metadata) : publisher.beforePublish(ctx);
  }

  after(event: DomainEvent): any {
    const { publisher, ctx } = this;
    return this.named(publisher.afterPublish, 3)
      ? publisher.afterPublish(ctx.eventName, event.payload, event.metadata)
      : publisher.afterPublish(ctx, event);
  }

  failed(thrown: unknown, payload: Json = {}): any {
    const { publisher, ctx } = this,
      error = thrown instanceof Error ? thrown : new Error(textOf(thrown));
    return this.named(publisher.onPublishError, 3)
      ? publisher.onPublishError(ctx.eventName, error, payload)
      : publisher.onPublishError(ctx, error);
  }
}

/** Publishes results as they are. */
export class DefaultPublisher extends BasePublisher {
  static override publisherName = "default";
}

function contextOf(e: StepEvent): StepEventContext {
  const { message, error_type: type, error_code: code, retryable = true, context } = e.failure ?? {};
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
    metadata: e.failure
      ? { error_message: message, error_type: type, error_code: code, retryable, ...(context as Fields | undefined) }
      : {},
  });
}

/** A publisher of the engine under each of its names. */
export function nativePublishers(publisher: BasePublisher): Publisher[] {
  const known = new WeakMap<StepEvent, Hooks>(),
    made = new WeakMap<StepEvent, { payload?: Json; metadata?: Fields }>();
  const of = (e: StepEvent): Hooks => {
    const declaration = { name: e.name, condition: e.condition, deliveryMode: e.deliveryMode } as EventDeclaration,
      hooks = known.get(e) ?? new Hooks(publisher, contextOf(e), declaration);
    known.set(e, hooks);
    return hooks;
  };
  const payload = (e: StepEvent): any =>
    e.success || publisher.transformPayload !== BasePublisher.prototype.transformPayload ? of(e).payload() : e.payload;
  const one: Omit<Publisher, "name"> = {
    async shouldPublish(e) {
      const hooks = of(e);
      if (!(await hooks.shouldPublish())) return false;
      const event = { payload: (await payload(e)) as Json, metadata: (await hooks.metadata()) as Fields };
      made.set(e, event);
      return (await hooks.before(event.payload, event.metadata)) !== false;
    },
    payload: (e) => made.get(e)?.payload,
    metadata: (e) => made.get(e)?.metadata ?? {},
    after(e) {
      const { payload, metadata } = made.get(e) ?? {};
      return of(e).after(new DomainEvent(e.name, payload, metadata, e.deliveryMode)) as void;
    },
    failed(e, error) {
      return of(e).failed(error, made.get(e)?.payload) as void;
    },
  };
  return [...new Set([publisher.publisherName, publisher.constructor.name])].map((name) => ({ name, ...one }));
}

/** Receives fast events whose names fit. */
export abstract class BaseSubscriber {
  static subscriberName = "";
  protected readonly logger = loggerOf("domain-events");
  private started = false;
  private subscribed: string[] = [];

  /** Names in which * stands for any characters. */
  static subscribesTo(): string[] {
    return (this as { patterns?: string[] }).patterns ?? ["*"];
  }

  /** Like the static method, for an object. A field patterns does as well. */
  subscribesTo(): string[] {
    const { patterns } = this as { patterns?: string[] };
    return patterns ?? (this.constructor as typeof BaseSubscriber).subscribesTo();
  }

  abstract handle(event: any): any;

  /** With false the event is not handled. */
  beforeHandle(_event: any): any {}

  afterHandle(_event: any, _result?: any): any {}

  onHandleError(_event: any, _error: Error): any {}

  /** With a poller the events come from that. */
  start(poller?: InProcessDomainEventPoller): void {
    if (this.started) return;
    this.started = true;
    this.subscribed = this.subscribesTo();
    for (const pattern of poller ? this.subscribed : [])
      poller?.subscribe(pattern, async (event) => {
        if (this.started) await this.process(event as InProcessDomainEvent);
      });
  }

  stop(): void {
    this.started = false;
    this.subscribed = [];
  }

  get active(): boolean {
    return this.started;
  }

  /** The patterns since the start. */
  get subscriptions(): readonly string[] {
    return this.subscribed;
  }

  isActive(): boolean {
    return this.started;
  }

  matches(eventName: string): boolean {
    return this.subscribesTo().some((pattern) => fits(pattern, eventName));
  }

  /** Handles an event with all of the above. */
  async process(event: InProcessDomainEvent): Promise<SubscriberResult> {
    try {
      if ((await this.beforeHandle(event)) === false) return { success: true };
      const returned = (await this.handle(event)) as SubscriberResult | undefined;
      const result = typeof returned?.success === "boolean" ? returned : { success: true };
      await this.afterHandle(event, result);
      return result;
    } catch (e) {
      const error = e instanceof Error ? e : new Error(textOf(e));
      await this.onHandleError(event, error);
      return { success: false, error: error.message };
    }
  }
}

export interface BaseSubscriber {
  readonly subscriberName: string;
}
readName(BaseSubscriber.prototype, "subscriberName");

/** A class of subscribers. */
export interface SubscriberClass {
  new (): BaseSubscriber;
  subscribesTo(): string[];
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
    metadata: {
      ...m,
      ...Object.fromEntries(camel),
      eventVersion: e.event_version,
      ...(m["fired_by"] ? { publisher: m["fired_by"] } : {}),
      ...(e.metadata.added ?? {}),
    },
  });
}

/** A fast event of a native module. */
export interface FfiDomainEvent {
  eventId: string;
  eventName: string;
  eventVersion: string;
  metadata: FfiDomainEventMetadata;
  payload: any;
}
export type NapiDomainEvent = FfiDomainEvent;

export interface FfiDomainEventMetadata {
  taskUuid: string;
  stepUuid?: string | null;
  stepName?: string | null;
  namespace: string;
  correlationId: string;
  firedAt: string;
  firedBy?: string | null;
}
export type NapiDomainEventMetadata = FfiDomainEventMetadata;

export function ffiEventToDomainEvent(given: FfiDomainEvent): DomainEvent {
  const { stepUuid, stepName, firedBy, ...same } = given.metadata ?? {};
  const metadata = {
    ...same,
    stepUuid: stepUuid ?? "",
    eventVersion: given.eventVersion,
    ...(stepName ? { stepName } : {}),
    ...(firedBy ? { publisher: firedBy } : {}),
  };
  return new InProcessDomainEvent({ ...given, metadata });
}

type Type<T> = (abstract new () => T) | (new () => T) | T;

function instanceOf<T extends object>(given: Type<T>): T {
  return typeof given === "function" ? new (given as new () => T)() : given;
}

/** No publisher has the name. */
export class PublisherNotFoundError extends Error {
  override readonly name = "PublisherNotFoundError";

  constructor(
    readonly publisherName: string,
    readonly registeredPublishers: string[],
  ) {
    super(`find publisher ${publisherName}: it is not registered; those are: ${registeredPublishers.join(", ")}`);
  }
}

/** Publishers that are required are missing. */
export class PublisherValidationError extends Error {
  override readonly name = "PublisherValidationError";

  constructor(
    readonly missingPublishers: string[],
    readonly registeredPublishers: string[],
  ) {
    const [missing, known] = [missingPublishers.join(", "), registeredPublishers.join(", ")];
    super(`validate publishers: ${missing} are not registered; those are: ${known}`);
  }
}

/** The registry takes no more publishers. */
export class RegistryFrozenError extends Error {
  override readonly name = "RegistryFrozenError";

  constructor() {
    super("change the publishers: the registry is frozen");
  }
}

/** Another publisher has the name. */
export class DuplicatePublisherError extends Error {
  override readonly name = "DuplicatePublisherError";

  constructor(readonly publisherName: string) {
    super(`register publisher ${publisherName}: the name is already registered`);
  }
}

/** The publishers of the process. */
export class PublisherRegistry {
  private static one: PublisherRegistry | undefined;
  private readonly known = new Map<string, BasePublisher>();
  private readonly usual = new DefaultPublisher();
  private frozen = false;

  static getInstance(): PublisherRegistry {
    return (PublisherRegistry.one ??= new PublisherRegistry());
  }

  static get instance(): PublisherRegistry {
    return PublisherRegistry.getInstance();
  }

  /** Registers a class or an object. */
  register(given: Type<BasePublisher>): BasePublisher {
    const publisher = instanceOf(given),
      { publisherName: name } = publisher;
    this.thawed();
    if (this.known.has(name)) throw new DuplicatePublisherError(name);
    this.known.set(name, publisher);
    return publisher;
  }

  unregister(name: string): boolean {
    this.thawed();
    return this.known.delete(name);
  }

  private thawed(): void {
    if (this.frozen) throw new RegistryFrozenError();
  }

  get(name: string): BasePublisher | undefined {
    return this.known.get(name);
  }

  /** The publisher of a name, or that which publishes results as they are. */
  getOrDefault(name?: string): BasePublisher {
    return this.known.get(name ?? "") ?? this.usual;
  }

  getStrict(name: string): BasePublisher {
    const found = name === "default" ? this.usual : this.known.get(name);
    if (!found) throw new PublisherNotFoundError(name, this.registeredNames);
    return found;
  }

  getForStep(step: string): BasePublisher | undefined {
    return [...this.known.values()].find((p) => p.publishesFor().includes(step));
  }

  has(name: string): boolean {
    return this.known.has(name);
  }

  isRegistered(name: string): boolean {
    return name === "default" || this.known.has(name);
  }

  list(): BasePublisher[] {
    return [...this.known.values()];
  }

  get registeredNames(): string[] {
    return [...this.known.keys()];
  }

  get count(): number {
    return this.known.size;
  }

  get isEmpty(): boolean {
    return this.known.size === 0;
  }

  /** Freezes the registry, unless publishers are missing. */
  validateRequired(names: string[]): void {
    const missing = names.filter((name) => !this.isRegistered(name));
    if (missing.length > 0) throw new PublisherValidationError(missing, this.registeredNames);
    this.frozen = true;
  }

  /** Allows no more registrations. */
  freeze(): void {
    this.frozen = true;
  }

  get isFrozen(): boolean {
    return this.frozen;
  }

  /** For tests. */
  reset(): void {
    this.known.clear();
    this.frozen = false;
  }

  clear(): void {
    this.thawed();
    this.known.clear();
  }
}

export interface SubscriberStats {
  started: boolean;
  subscriberCount: number;
  activeCount: number;
  subscribers: { className: string; active: boolean; patterns: readonly string[] }[];
}

/** The subscribers of the process. */
export class SubscriberRegistry {
  private static one: SubscriberRegistry | undefined;
  private readonly known: BaseSubscriber[] = [];
  private started = false;

  static getInstance(): SubscriberRegistry {
    return (SubscriberRegistry.one ??= new SubscriberRegistry());
  }

  static get instance(): SubscriberRegistry {
    return SubscriberRegistry.getInstance();
  }

  register(given: Type<BaseSubscriber>): BaseSubscriber {
    const subscriber = instanceOf(given);
    this.known.push(subscriber);
    return subscriber;
  }

  registerInstance(subscriber: BaseSubscriber): void {
    this.register(subscriber);
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

  get isStarted(): boolean {
    return this.started;
  }

  get stats(): SubscriberStats {
    const subscribers = this.known.map((s) => ({
      className: s.constructor.name,
      active: s.active,
      patterns: s.subscribesTo(),
    }));
    const activeCount = subscribers.filter((s) => s.active).length;
    return { started: this.started, subscriberCount: this.known.length, activeCount, subscribers };
  }

  /** With a poller the events come from that. */
  startAll(poller?: InProcessDomainEventPoller): void {
    this.started = true;
    for (const subscriber of this.known) subscriber.start(poller);
  }

  stopAll(): void {
    this.started = false;
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
export type PollFunction = () => any;
export type DomainEventCallback = (event: DomainEvent) => unknown;
export type DomainEventErrorCallback = (error: Error) => void;

export interface DomainEventPollerConfig {
  /** Default 10. */
  pollIntervalMs?: number;
  pollingIntervalMs?: number;
  /** Default 100. */
  maxEventsPerPoll?: number;
}

export interface PollerStats {
  pollCount: number;
  eventsProcessed: number;
  /** How many polls left events behind. */
  eventsLagged: number;
  running: boolean;
}

/** Asks for fast events until it is stopped. */
export class InProcessDomainEventPoller {
  private poll: PollFunction | undefined;
  private timer: ReturnType<typeof setInterval> | undefined;
  private polls = 0;
  private events = 0;
  private lagged = 0;
  private busy = false;
  private listeners: { pattern: string; listener: (event: any) => unknown }[] = [];
  private readonly troubles: DomainEventErrorCallback[] = [];

  constructor(private readonly config: DomainEventPollerConfig = {}) {}

  setPollFunction(poll: PollFunction): void {
    this.poll = poll;
  }

  /** Calls a function with the events whose names fit. */
  subscribe(pattern: string, listener: DomainEventCallback): void {
    this.listeners.push({ pattern, listener });
  }

  unsubscribe(pattern: string): void {
    this.listeners = this.listeners.filter((l) => l.pattern !== pattern);
  }

  onEvent(listener: (event: any) => unknown): this {
    this.subscribe("*", listener);
    return this;
  }

  onError(listener: DomainEventErrorCallback): this {
    this.troubles.push(listener);
    return this;
  }

  start(listener?: (event: any) => unknown): void {
    if (listener) this.onEvent(listener);
    this.timer ??= setInterval(
      () => void this.take(),
      this.config.pollIntervalMs ?? this.config.pollingIntervalMs ?? 10,
    );
  }

  stop(): void {
    clearInterval(this.timer);
    this.timer = undefined;
  }

  get isRunning(): boolean {
    return this.timer !== undefined;
  }

  get stats(): PollerStats {
    const { polls: pollCount, events: eventsProcessed, lagged: eventsLagged } = this;
    return { pollCount, eventsProcessed, eventsLagged, running: this.isRunning };
  }

  /** Events are handled one after the other: a poll that is due while listeners are busy is left out. */
  private async take(): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    try {
      await this.takeSome();
    } catch (e) {
      this.trouble(e);
    } finally {
      this.busy = false;
    }
  }

  private async takeSome(): Promise<void> {
    this.polls++;
    const most = this.config.maxEventsPerPoll ?? 100;
    for (let taken = 0; taken < most; taken++) {
      const event = this.poll?.() as DomainEvent | null | undefined;
      if (!event) return;
      this.events++;
      await this.deliver(event);
    }
    this.lagged++;
  }

  private async deliver(event: DomainEvent): Promise<void> {
    for (const { pattern, listener } of this.listeners.filter((l) => fits(l.pattern, event.eventName))) {
      try {
        await listener(event);
      } catch (e) {
        this.trouble(e, pattern);
      }
    }
  }

  private trouble(thrown: unknown, pattern = "*"): void {
    const error = thrown instanceof Error ? thrown : new Error(textOf(thrown));
    if (this.troubles.length === 0)
      logError(`a domain event was not handled: ${error.message}`, { component: "domain_events", pattern });
    for (const listener of this.troubles) listener(error);
  }
}
