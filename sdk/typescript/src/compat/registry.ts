/** Registries and resolvers in the style of Tasker's package. */

import { join } from "node:path";

import type { StepContext as Native } from "../context.js";
import { runStep } from "../current.js";
import { imported, modulesOf } from "../discover.js";
import { textOf, type Json } from "../errors.js";
import { Handlers, methodsOf } from "../handlers.js";
import type { Resolver } from "../resolving.js";
import { StepContext, eventOf, nativeOf } from "./context.js";
import { PublisherRegistry, SubscriberRegistry, nativePublishers, nativeSubscriber } from "./events.js";
import { StepHandler, inherited, type ExecutableHandler } from "./handler.js";
import { logWarn } from "./log.js";
import { MethodDispatchError, ResolverNotFoundError, endOf, type StepHandlerResult } from "./result.js";

declare const process: { env: Record<string, string | undefined>; cwd(): string };

/** A class of handlers. */
export interface StepHandlerClass {
  new (): StepHandler;
  handlerName: string;
  handlerVersion?: string;
}

/** What a registry takes: a class, of which each execution gets an object, an object with methods, or a function. */
export type Registered =
  | StepHandlerClass
  | object
  | ((context: StepContext) => StepHandlerResult | Promise<StepHandlerResult>);

/** How a template names a handler. */
export class HandlerDefinition {
  callable = "";
  method?: string | null | undefined;
  resolver?: string | null | undefined;
  initialization?: Record<string, Json>;
}

/** A handler by its name, or as a template names it. */
export type HandlerSpec = string | Partial<HandlerDefinition>;

export function effectiveMethod({ method }: Partial<HandlerDefinition>): string {
  return method || "call";
}

export function usesMethodDispatch(definition: Partial<HandlerDefinition>): boolean {
  return effectiveMethod(definition) !== "call";
}

export function hasResolverHint({ resolver }: Partial<HandlerDefinition>): boolean {
  return Boolean(resolver);
}

export function fromCallable(callable: string): HandlerDefinition {
  return fromDto({ callable });
}

export function fromDto(given: Partial<HandlerDefinition> | null | undefined): HandlerDefinition {
  const { callable = "", method = null, resolver = null, initialization = {} } = given ?? {};
  return { callable, method, resolver, initialization };
}

export function normalizeToDefinition(spec: HandlerSpec): HandlerDefinition {
  if (typeof spec === "string") return fromCallable(spec);
  return "method" in spec || "resolver" in spec ? (spec as HandlerDefinition) : fromDto(spec);
}

/** Of which step a handler is resolved. */
export class ResolutionContext {
  namespace?: string;
  taskName?: string;
  stepName?: string;
}

/** What resolvers are given beside a definition. */
export interface ResolverConfig {
  [name: string]: any;
}

/** A resolved handler: an object with methods, or a class of which one is made. */
export type ResolvedHandler = object;
export const ResolvedHandler = Object;

/** Finds handlers by what templates say. */
export interface BaseResolver {
  readonly name: string;
  /** Smallest first: registered handlers have 10, classes by their names 100. It may be a method. */
  readonly priority: any;
  /** The callables that it resolves, with * at the end for any; default all. */
  readonly callables?: readonly string[];
  canResolve(definition: HandlerDefinition, context?: any): boolean;
  resolve(definition: HandlerDefinition, context?: any): any;
}

abstract class ResolverBase {
  callables: readonly string[] = ["*"];

  abstract resolverName(): string;

  get name(): string {
    return this.resolverName();
  }

  priority(): number {
    return 50;
  }

  abstract canResolve(definition: HandlerDefinition, context?: ResolutionContext): boolean;
  abstract resolve(
    definition: HandlerDefinition,
    context?: ResolutionContext,
  ): ResolvedHandler | null | Promise<ResolvedHandler | null>;
}
export const BaseResolver = ResolverBase;
export const StepHandlerResolver = ResolverBase;
export type StepHandlerResolver = BaseResolver;

function nameOf(resolver: BaseResolver): string {
  const { resolverName } = resolver as Partial<ResolverBase>;
  return typeof resolverName === "function" ? resolverName.call(resolver) : resolver.name;
}

function priorityOf(resolver: BaseResolver): number {
  const { priority } = resolver as { priority?: number | (() => number) };
  return typeof priority === "function" ? priority.call(resolver) : (priority ?? 50);
}

/** What a class of RegistryResolver has: its name, and the pattern or the prefix of its callables. */
export interface RegistryResolverStatic {
  readonly _name: string;
  readonly _priority?: number;
  readonly pattern?: RegExp;
  readonly prefix?: string;
}

/** Resolves the callables that fit the pattern, or begin with the prefix, of its class. */
export abstract class RegistryResolver {
  private get of(): Partial<RegistryResolverStatic> {
    return this.constructor as unknown as Partial<RegistryResolverStatic>;
  }

  get name(): string {
    return this.of._name ?? "custom_resolver";
  }

  get priority(): number {
    return this.of._priority ?? 50;
  }

  canResolve({ callable }: HandlerDefinition, _config?: ResolverConfig): boolean {
    const { pattern, prefix } = this.of;
    if (pattern) return callable.search(pattern) >= 0;
    return prefix !== undefined && prefix !== "" && callable.startsWith(prefix);
  }

  async resolve(definition: HandlerDefinition, config?: ResolverConfig): Promise<any> {
    const { pattern } = this.of;
    return this.resolveHandler(definition, pattern ? definition.callable.match(pattern) : null, config);
  }

  abstract resolveHandler(
    definition: HandlerDefinition,
    match: RegExpMatchArray | null,
    config?: ResolverConfig,
  ): Promise<any>;
}

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

/** Whether a template may name the method. */
function has(handler: object, method: string): boolean {
  return method !== "toString" && methodsOf(handler).includes(method);
}

/** Calls a method of a handler. */
export async function dispatched(handler: object, method: string, context: StepContext): Promise<Json> {
  if (!has(handler, method)) {
    throw new MethodDispatchError(context.handlerName, method);
  }
  const native = nativeOf(context),
    call = (): Json => (handler as Record<string, (context: StepContext) => Json>)[method]!(context);
  return await (native ? runStep(native, call) : call());
}

/** The method that a template names, or call where a handler has none such. */
export function methodIn(handler: object, method: string, callable: string): string {
  if (has(handler, method)) return method;
  logWarn(`the handler ${callable} has no method ${method}: its call is used`, { component: "registry" });
  return "call";
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
  private readonly explicit = new ExplicitMappingResolver(this);
  private readonly chain = new ResolverChain().register(this.explicit);
  private readonly watchers: (() => void)[] = [];
  private ready = false;

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
    this.changed();
  }

  /** Calls a function when there is another handler or resolver. */
  onChange(watcher: () => void): void {
    this.watchers.push(watcher);
  }

  private changed(): void {
    for (const watcher of this.watchers) watcher();
  }

  initialize(): Promise<void> {
    this.ready = true;
    return Promise.resolve();
  }

  registerHandler(name: string, handler: Registered): void {
    this.register(name, handler);
  }

  isRegistered(name: string): boolean {
    return this.classes.has(name);
  }

  /**
   * A new object of the class of a name; of a definition, and of a name that only another resolver may know, a promise.
   * It is null where there is none.
   */
  resolve(spec: HandlerSpec): any {
    if (typeof spec !== "string") return this.chain.resolve(normalizeToDefinition(spec));
    const given = this.classes.get(spec);
    if (given !== undefined) return objectOf(given);
    return this.chain.resolvers.length > 1 ? this.chain.resolve(fromCallable(spec)) : null;
  }

  /** The handler of a name, or null; other resolvers are not asked. */
  resolveSync(name: string): any {
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

  /** There are neither handlers nor resolvers. */
  isEmpty(): boolean {
    return this.classes.size === 0 && this.chain.resolvers.length === 1;
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
    this.changed();
  }

  addResolver(resolver: BaseResolver): Promise<void> {
    this.registerResolver(resolver);
    return Promise.resolve();
  }

  getResolver(name: string): Promise<BaseResolver | undefined> {
    return Promise.resolve(this.chain.getResolver(name));
  }

  listResolvers(): Promise<[string, number][]> {
    return Promise.resolve(this.chain.listResolvers());
  }

  debugInfo(): Record<string, unknown> {
    return {
      initialized: this.ready,
      handlerCount: this.classes.size,
      handlers: Object.fromEntries(this.listHandlers().map((name) => [name, name])),
    };
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
    offerByName(other, this.listHandlers(), how);
    for (const resolver of this.chain.resolvers)
      if (resolver !== this.explicit) other.resolver(nativeResolver(resolver));
    for (const publisher of PublisherRegistry.getInstance().list())
      for (const one of nativePublishers(publisher)) other.publisher(one);
    if (events && events.count > 0) other.subscribe(nativeSubscriber(events));
  }

  protected override addTo(other: Handlers): void {
    const events = SubscriberRegistry.getInstance();
    events.startAll();
    const how: Run = (name, method, ctx) => {
      const handler = this.resolveSync(name) as object;
      return run(handler, name, methodIn(handler, method, name), ctx);
    };
    this.offer(other, how, events);
  }
}

/** How the registered handlers of each collection run, by their names. */
const byName = new WeakMap<Handlers, Map<string, Run>>();

/** Offers handlers to steps that name a method which they have not, too. */
function offerByName(other: Handlers, names: string[], how: Run): void {
  const known = byName.get(other) ?? new Map<string, Run>();
  for (const name of names) known.set(name, how);
  if (byName.has(other) || known.size === 0) return;
  byName.set(other, known);
  other.resolver({
    name: "any_method",
    priority: 10,
    get callables() {
      return [...known.keys()];
    },
    canResolve: ({ callable }) => known.has(callable),
    resolve: async ({ callable, method }) => ({
      [method]: (ctx: Native) => known.get(callable)!(callable, method, ctx),
    }),
  });
}

/** A resolver of the engine. */
function nativeResolver(resolver: BaseResolver): Resolver {
  return {
    name: nameOf(resolver),
    priority: priorityOf(resolver),
    callables: resolver.callables ?? ["*"],
    canResolve: (reference) => resolver.canResolve({ ...reference, resolver: reference.resolver || undefined }),
    async resolve({ callable, method, resolver: named, initialization }) {
      const found = (await resolver.resolve(
        { callable, method, resolver: named || undefined, initialization },
        {},
      )) as Registered | null;
      if (!found) return undefined;
      const handler = objectOf(found);
      return has(handler, method)
        ? { [method]: (ctx: Native) => run(handler, callable, method, ctx) }
        : {};
    },
  };
}

/** Resolvers in the order of their priority. */
export class ResolverChain {
  private static shared: ResolverChain | undefined;
  private readonly ordered: BaseResolver[] = [];

  /** The chain of the process, with the usual resolvers. */
  static default(): Promise<ResolverChain> {
    ResolverChain.shared ??= ResolverChain.withResolvers([new ExplicitMappingResolver(), new ClassLookupResolver()]);
    return Promise.resolve(ResolverChain.shared);
  }

  /** For tests. */
  static resetDefault(): void {
    ResolverChain.shared = undefined;
  }

  static withResolvers(resolvers: readonly BaseResolver[]): ResolverChain {
    const chain = new ResolverChain();
    for (const resolver of resolvers) chain.register(resolver);
    return chain;
  }

  register(resolver: BaseResolver): this {
    this.ordered.push(resolver);
    this.ordered.sort((a, b) => priorityOf(a) - priorityOf(b));
    return this;
  }

  addResolver(resolver: BaseResolver): void {
    this.register(resolver);
  }

  getResolver(name: string): BaseResolver | undefined {
    return this.ordered.findLast((r) => nameOf(r) === name);
  }

  get resolvers(): readonly BaseResolver[] {
    return this.ordered;
  }

  /** Names and priorities. */
  listResolvers(): [string, number][] {
    return this.ordered.map((r) => [nameOf(r), priorityOf(r)]);
  }

  canResolve(definition: HandlerDefinition): boolean {
    return this.ordered.some((r) => r.canResolve(definition));
  }

  /** The first handler that a resolver finds, with the method that the definition names as call; null without one. */
  async resolve(definition: HandlerDefinition, context: ResolutionContext & ResolverConfig = {}): Promise<any> {
    for (const resolver of this.asked(definition)) {
      if (!hasResolverHint(definition) && !resolver.canResolve(definition, context)) continue;
      const found = (await resolver.resolve(definition, context)) as Registered | null;
      if (found) return this.wrapForMethodDispatch(objectOf(found), definition);
    }
    return null;
  }

  /** A handler whose call is the method of the definition; the handler itself if it has none such. */
  wrapForMethodDispatch(handler: object, definition: HandlerDefinition): any {
    const method = effectiveMethod(definition);
    const found = methodIn(handler, method, definition.callable);
    return found === "call" ? handler : new MethodDispatchWrapper(handler, found);
  }

  private asked({ resolver }: HandlerDefinition): BaseResolver[] {
    if (!resolver) return this.ordered;
    const named = this.ordered.find((r) => nameOf(r) === resolver || r.constructor.name === resolver);
    if (!named) throw new ResolverNotFoundError(resolver);
    return [named];
  }
}

/** A handler whose call is another method of it. */
export class MethodDispatchWrapper implements ExecutableHandler {
  constructor(
    readonly handler: object,
    readonly targetMethod: string,
  ) {
    if (!has(handler, targetMethod)) throw new MethodDispatchError(this.name, targetMethod);
  }

  private get of(): Partial<ExecutableHandler> {
    return this.handler;
  }

  get name(): string {
    return this.of.name ?? this.handler.constructor.name;
  }

  get version(): string {
    return this.of.version ?? "1.0.0";
  }

  get capabilities(): string[] {
    return this.of.capabilities ?? ["process"];
  }

  configSchema(): Record<string, Json> | null {
    return this.of.configSchema?.() ?? null;
  }

  unwrap(): any {
    return this.handler;
  }

  toString(): string {
    return `MethodDispatchWrapper(handler=${this.name}, method=${this.targetMethod})`;
  }

  call(context: StepContext): Promise<any> {
    return dispatched(this.handler, this.targetMethod, context);
  }
}

/** Makes a handler for each execution. */
export type HandlerFactory = (config: ResolverConfig) => StepHandler;
export type HandlerEntry = StepHandlerClass | StepHandler | HandlerFactory;

/** The handlers of a registry, or of its own, by their names. A function of its own makes handlers. */
export class ExplicitMappingResolver {
  readonly name: string;
  readonly priority = 10;
  private readonly registry: HandlerRegistry | undefined;
  private readonly own = new Map<string, HandlerEntry>();

  constructor(of: HandlerRegistry | string = "explicit_mapping") {
    this.name = typeof of === "string" ? of : "explicit_mapping";
    this.registry = typeof of === "string" ? undefined : of;
  }

  register(name: string, handler: HandlerEntry): this {
    this.own.set(name, handler);
    return this;
  }

  unregister(name: string): boolean {
    return this.own.delete(name);
  }

  registeredCallables(): string[] {
    return [...this.own.keys(), ...(this.registry?.listHandlers() ?? [])];
  }

  canResolve({ callable }: HandlerDefinition, _config?: ResolverConfig): boolean {
    return this.own.has(callable) || this.registry?.isRegistered(callable) === true;
  }

  async resolve({ callable }: HandlerDefinition, config: ResolverConfig = {}): Promise<any> {
    const own = this.own.get(callable);
    if (own !== undefined) return typeof own === "function" && !isClass(own) ? own(config) : objectOf(own);
    return this.registry?.resolveSync(callable) ?? null;
  }
}

/**
 * Classes by their names, such as PaymentHandlers.ProcessPaymentHandler: exports of the modules of a folder. A callable
 * such as ./handlers/pay.js or @shop/handlers is a module, whose first handler it is.
 */
export class ClassLookupResolver {
  readonly name = "class_lookup";
  readonly priority = 100;
  private classes: Promise<Map<string, StepHandlerClass>> | undefined;

  constructor(private readonly folder: string | URL = "handlers") {}

  canResolve({ callable }: HandlerDefinition, _config?: ResolverConfig): boolean {
    return isModule(callable) || (!callable.startsWith("/") && /^[A-Z]|\.|::/.test(callable));
  }

  async resolve({ callable }: HandlerDefinition, _config?: ResolverConfig): Promise<any> {
    if (isModule(callable)) return await inModule(callable);
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

function isModule(callable: string): boolean {
  return /^(\.\.?\/|@[\w-]+\/)/.test(callable);
}

/** The default export of a module that is a class of handlers, or another one; null without one. */
async function inModule(name: string): Promise<StepHandler | null> {
  try {
    const module = name.startsWith(".")
      ? await imported(join(process.cwd(), name))
      : ((await import(name)) as Record<string, unknown>);
    const type = [module["default"], ...Object.values(module)].find(isHandlerClass);
    return type ? new type() : null;
  } catch (e) {
    logWarn(`the module ${name} has no handler: ${textOf(e)}`, { component: "registry" });
    return null;
  }
}

/** Whether it is a class of handlers with its name. */
function isHandlerClass(value: unknown): value is StepHandlerClass {
  return typeof value === "function" && typeof (value as Partial<StepHandlerClass>).handlerName === "string";
}

/** The lists of handlers that modules may export in place of the handlers themselves. */
const listsOf = ["ALL_EXAMPLE_HANDLERS", "ALL_DSL_HANDLERS"];

/** The handlers of a worker process, which may be loaded from a folder. */
export class HandlerSystem {
  constructor(private readonly registry = new HandlerRegistry()) {}

  initialize(): Promise<void> {
    return this.registry.initialize();
  }

  get initialized(): boolean {
    return this.registry.debugInfo()["initialized"] as boolean;
  }

  /**
   * Registers the handlers of the index modules of a folder, or of all its modules. A module may export a list of them,
   * such as ALL_EXAMPLE_HANDLERS. Resolves to how many.
   */
  async loadFromPath(folder: string): Promise<number> {
    let count = 0;
    try {
      const paths = await modulesOf(folder),
        root = folder.replace(/\/+$/, "");
      const index = (below: string): string | undefined =>
        paths.find((path) => path.replace(/\.\w+$/, "") === `${root}/${below}index`);
      const indexes = [index("examples/") ?? index(""), index("dsl_examples/")].filter((path) => path !== undefined);
      for (const path of indexes) count += this.registerAll(await imported(path));
      if (count > 0) return count;
      for (const path of paths) count += this.registerAll(await imported(path));
    } catch (e) {
      logWarn(`the handlers of ${folder} are not loaded: ${textOf(e)}`, { component: "handler-system" });
    }
    return count;
  }

  /** Loads the folder that TYPESCRIPT_HANDLER_PATH names. */
  async loadFromEnv(): Promise<number> {
    const folder = process.env["TYPESCRIPT_HANDLER_PATH"];
    return folder ? this.loadFromPath(folder) : 0;
  }

  private registerAll(module: Record<string, unknown>): number {
    const listed = listsOf.flatMap((name) => (Array.isArray(module[name]) ? (module[name] as unknown[]) : []));
    const found = (listed.length > 0 ? listed : Object.values(module)).filter(isHandlerClass),
      named = found.filter((type) => type.handlerName !== "");
    for (const type of named) this.register(type.handlerName, type);
    return named.length;
  }

  register(name: string | StepHandlerClass, handler?: Registered): void {
    this.registry.register(name, handler);
  }

  unregister(name: string): boolean {
    return this.registry.unregister(name);
  }

  /** The handler of a name or a definition, or null. */
  async resolve(spec: HandlerSpec): Promise<any> {
    return await this.registry.resolve(spec);
  }

  isRegistered(name: string): boolean {
    return this.registry.isRegistered(name);
  }

  listHandlers(): string[] {
    return this.registry.listHandlers();
  }

  handlerCount(): number {
    return this.registry.handlerCount();
  }

  clear(): void {
    this.registry.clear();
  }

  addResolver(resolver: BaseResolver): Promise<void> {
    return this.registry.addResolver(resolver);
  }

  getResolver(name: string): Promise<BaseResolver | undefined> {
    return this.registry.getResolver(name);
  }

  listResolvers(): Promise<[string, number][]> {
    return this.registry.listResolvers();
  }

  getResolverChain(): Promise<ResolverChain | null> {
    return Promise.resolve(this.registry.getResolverChain());
  }

  getRegistry(): HandlerRegistry {
    return this.registry;
  }

  debugInfo(): Record<string, unknown> {
    return { ...this.registry.debugInfo(), component: "HandlerSystem" };
  }
}
