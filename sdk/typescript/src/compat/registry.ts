/** Registries and resolvers in the style of Tasker's package. */

import type { StepContext as Native } from "../context.js";
import { runStep } from "../current.js";
import { imported, modulesOf } from "../discover.js";
import { textOf, type Json } from "../errors.js";
import { Handlers, methodsOf } from "../handlers.js";
import type { Resolver } from "../resolving.js";
import { StepContext, eventOf, nativeOf } from "./context.js";
import { PublisherRegistry, SubscriberRegistry, nativePublishers, nativeSubscriber } from "./events.js";
import { StepHandler, inherited } from "./handler.js";
import { logWarn } from "./log.js";
import { MethodDispatchError, ResolutionError, endOf, type StepHandlerResult } from "./result.js";

/** A class of handlers. */
export type StepHandlerClass = (new () => StepHandler) & { handlerName?: string; handlerVersion?: string };

/** What a registry takes: a class, of which each execution gets an object, an object with methods, or a function. */
export type Registered =
  | StepHandlerClass
  | object
  | ((context: StepContext) => StepHandlerResult | Promise<StepHandlerResult>);

/** How a template names a handler. */
export class HandlerDefinition {
  callable = "";
  method?: string | undefined;
  resolver?: string | undefined;
  initialization?: Record<string, Json>;
}

/** Of which step a handler is resolved. */
export class ResolutionContext {
  namespace?: string;
  taskName?: string;
  stepName?: string;
}

/** A resolved handler: an object with methods, or a class of which one is made. */
export type ResolvedHandler = object;
export const ResolvedHandler = Object;

/** Finds handlers by what templates say. */
export abstract class BaseResolver {
  /** The callables that it resolves, with * at the end for any; default all. */
  callables: readonly string[] = ["*"];

  abstract resolverName(): string;

  get name(): string {
    return this.resolverName();
  }

  /** Smallest first: registered handlers have 10, classes by their names 100. */
  priority(): number {
    return 50;
  }

  abstract canResolve(definition: HandlerDefinition, context?: ResolutionContext): boolean;
  abstract resolve(
    definition: HandlerDefinition,
    context?: ResolutionContext,
  ): ResolvedHandler | null | Promise<ResolvedHandler | null>;
}
export const StepHandlerResolver = BaseResolver;
export type StepHandlerResolver = BaseResolver;

const isClass = (given: Registered): given is StepHandlerClass =>
  typeof given === "function" &&
  (given.prototype instanceof StepHandler || /^class\b/.test(Function.prototype.toString.call(given)));

/** A handler as an object with methods. */
function objectOf(given: Registered): object {
  if (isClass(given)) return new given();
  return typeof given === "function" ? { call: given } : given;
}

/** The methods that templates may name. */
function entriesOf(given: Registered): string[] {
  if (typeof given === "function" && !isClass(given)) return ["call"];
  const names = methodsOf(isClass(given) ? (given.prototype as object) : given),
    plain = new Set(inherited.flatMap((o) => methodsOf(o)));
  return names.filter((name) => name === "call" || !plain.has(name));
}

/** Calls a method of a handler. */
export async function dispatched(handler: object, method: string, context: StepContext): Promise<Json> {
  if (!methodsOf(handler).includes(method)) {
    throw new MethodDispatchError(`MethodNotFound: Handler '${context.handlerName}' does not respond to '${method}'`);
  }
  const native = nativeOf(context),
    call = (): Json => (handler as Record<string, (context: StepContext) => Json>)[method]!(context);
  return await (native ? runStep(native, call) : call());
}

/** Runs a method of a handler as a step of the engine. */
export async function run(handler: object, name: string, method: string, ctx: Native): Promise<Json> {
  return endOf(await dispatched(handler, method, new StepContext(eventOf(ctx), name)), (fields) => kept(ctx, fields));
}

/** Adds metadata to the end of a step; some that cannot be stored do not fail it. */
export function kept(ctx: Native, fields: Record<string, Json>): void {
  try {
    ctx.metadata(fields);
  } catch (e) {
    logWarn(`the metadata of step ${ctx.stepName} are not stored: ${textOf(e)}`, { component: "handler" });
  }
}

/** Runs a method of a registered handler. */
export type Run = (name: string, method: string, ctx: Native) => Promise<Json>;

/**
 * Handlers by their names. It is a collection that Worker.include and startEngine take, with the publishers and
 * subscribers of PublisherRegistry and SubscriberRegistry.
 */
export class HandlerRegistry extends Handlers {
  private static one: HandlerRegistry | undefined;
  private readonly classes = new Map<string, Registered>();
  private readonly chain = new ResolverChain().register(new ExplicitMappingResolver(this));

  static getInstance(): HandlerRegistry {
    return (HandlerRegistry.one ??= new HandlerRegistry());
  }

  static instance(): HandlerRegistry {
    return HandlerRegistry.getInstance();
  }

  /**
   * Registers a handler; a class may have its name as handlerName. A name that is registered again gets the new one.
   */
  override register(name: string | StepHandlerClass, handler?: Registered): void {
    const [key, given] = typeof name === "string" ? [name, handler] : [name.handlerName || name.name, name];
    if (!key) throw new TypeError("register a handler: want a name");
    if (given === undefined || given === null || entriesOf(given).length === 0)
      throw new TypeError(`register handler ${key}: want a class with call, an object or a function`);
    if (this.classes.has(key)) logWarn(`the handler ${key} is registered again`, { component: "registry" });
    this.classes.set(key, given);
  }

  registerHandler(name: string, handler: Registered): void {
    this.register(name, handler);
  }

  isRegistered(name: string): boolean {
    return this.classes.has(name);
  }

  /** A new object of the class; null for an unknown name. */
  resolve(name: string): any {
    const given = this.classes.get(name);
    return given === undefined ? null : objectOf(given);
  }

  getHandlerClass(name: string): Registered | undefined {
    return this.classes.get(name);
  }

  listHandlers(): string[] {
    return [...this.classes.keys()];
  }

  handlerCount(): number {
    return this.classes.size;
  }

  unregister(name: string): boolean {
    return this.classes.delete(name);
  }

  clear(): void {
    this.classes.clear();
  }

  get resolverChain(): ResolverChain {
    return this.chain;
  }

  getResolverChain(): ResolverChain {
    return this.chain;
  }

  registerResolver(resolver: BaseResolver): void {
    this.chain.register(resolver);
  }

  /** Imports the modules of a folder, and registers the classes of handlers that they export. Resolves to how many. */
  async discoverHandlers(folder: string | URL): Promise<number> {
    const found = new Set<StepHandlerClass>();
    for (const path of await modulesOf(folder)) {
      for (const exported of Object.values(await imported(path))) {
        if (
          typeof exported === "function" &&
          exported.prototype instanceof StepHandler &&
          Object.hasOwn(exported.prototype as object, "call")
        )
          found.add(exported as StepHandlerClass);
      }
    }
    for (const type of found) this.register(type);
    return found.size;
  }

  /** Gives another collection the handlers, with another way to run them. */
  offer(other: Handlers, how: Run, events: SubscriberRegistry | undefined): void {
    super.addTo(other);
    for (const [name, given] of this.classes)
      for (const method of entriesOf(given)) other.handler(name, (ctx) => how(name, method, ctx), method);
    for (const resolver of this.chain.resolvers)
      if (!(resolver instanceof ExplicitMappingResolver)) other.resolver(nativeResolver(resolver));
    for (const publisher of PublisherRegistry.getInstance().list())
      for (const one of nativePublishers(publisher)) other.publisher(one);
    if (events && events.count > 0) other.subscribe(nativeSubscriber(events));
  }

  protected override addTo(other: Handlers): void {
    const events = SubscriberRegistry.getInstance();
    events.startAll();
    this.offer(other, (name, method, ctx) => run(this.resolve(name) as object, name, method, ctx), events);
  }
}

/** A resolver of the engine. */
function nativeResolver(resolver: BaseResolver): Resolver {
  return {
    name: resolver.resolverName(),
    priority: resolver.priority(),
    callables: resolver.callables ?? ["*"],
    canResolve: (reference) => resolver.canResolve({ ...reference, resolver: reference.resolver || undefined }),
    async resolve({ callable, method, resolver: named, initialization }) {
      const found = await resolver.resolve({ callable, method, resolver: named || undefined, initialization }, {});
      if (!found) return undefined;
      const handler = objectOf(found);
      return methodsOf(handler).includes(method)
        ? { [method]: (ctx: Native) => run(handler, callable, method, ctx) }
        : {};
    },
  };
}

/** Resolvers in the order of their priority. */
export class ResolverChain {
  private readonly ordered: BaseResolver[] = [];

  register(resolver: BaseResolver): this {
    this.ordered.push(resolver);
    this.ordered.sort((a, b) => a.priority() - b.priority());
    return this;
  }

  get resolvers(): readonly BaseResolver[] {
    return this.ordered;
  }

  listResolvers(): string[] {
    return this.ordered.map((r) => r.resolverName());
  }

  canResolve(definition: HandlerDefinition): boolean {
    return this.asked(definition).some((r) => r.canResolve(definition));
  }

  /** The first handler that a resolver finds, with the method that the definition names as call. */
  async resolve(definition: HandlerDefinition, context: ResolutionContext = {}): Promise<any> {
    for (const resolver of this.asked(definition)) {
      if (!resolver.canResolve(definition, context)) continue;
      const found = await resolver.resolve(definition, context);
      if (found)
        return definition.method && definition.method !== "call"
          ? new MethodDispatchWrapper(objectOf(found), definition.method)
          : objectOf(found);
    }
    throw new ResolutionError(`No resolver could resolve callable '${definition.callable}'`);
  }

  private asked({ resolver }: HandlerDefinition): BaseResolver[] {
    if (!resolver) return this.ordered;
    const named = this.ordered.find((r) => r.resolverName() === resolver || r.constructor.name === resolver);
    return named ? [named] : [];
  }
}

/** A handler whose call is another method of it. */
export class MethodDispatchWrapper {
  constructor(
    readonly handler: object,
    readonly targetMethod: string,
  ) {}

  call(context: StepContext): Promise<Json> {
    return dispatched(this.handler, this.targetMethod, context);
  }
}

/** The handlers of a registry, or of its own, by their names. */
export class ExplicitMappingResolver extends BaseResolver {
  private readonly own = new Map<string, Registered>();

  constructor(private readonly registry?: HandlerRegistry) {
    super();
  }

  resolverName(): string {
    return "explicit_mapping";
  }

  override priority(): number {
    return 10;
  }

  register(name: string, handler: Registered): this {
    this.own.set(name, handler);
    return this;
  }

  canResolve({ callable }: HandlerDefinition): boolean {
    return this.own.has(callable) || this.registry?.isRegistered(callable) === true;
  }

  resolve({ callable }: HandlerDefinition): ResolvedHandler | null {
    const given = this.own.get(callable) ?? this.registry?.getHandlerClass(callable);
    return given === undefined ? null : objectOf(given);
  }
}

/** Classes by their names, such as PaymentHandlers.ProcessPaymentHandler: exports of the modules of a folder. */
export class ClassLookupResolver extends BaseResolver {
  private classes: Promise<Map<string, StepHandlerClass>> | undefined;

  constructor(private readonly folder: string | URL = "handlers") {
    super();
  }

  resolverName(): string {
    return "class_lookup";
  }

  override priority(): number {
    return 100;
  }

  canResolve({ callable }: HandlerDefinition): boolean {
    return /^[A-Z]|\.|::/.test(callable);
  }

  async resolve({ callable }: HandlerDefinition): Promise<ResolvedHandler | null> {
    const type = (await (this.classes ??= this.read())).get(callable.split(/\.|::/).pop() ?? "");
    return type ? new type() : null;
  }

  private async read(): Promise<Map<string, StepHandlerClass>> {
    const found = new Map<string, StepHandlerClass>();
    for (const path of await modulesOf(this.folder)) {
      for (const exported of Object.values(await imported(path))) {
        if (typeof exported === "function" && exported.prototype instanceof StepHandler)
          found.set(exported.name, exported as StepHandlerClass);
      }
    }
    return found;
  }
}
