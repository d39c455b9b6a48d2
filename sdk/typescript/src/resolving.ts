/** Resolvers: how the handler of a step is found. */

import type { StepContext } from "./context.js";
import { Permanent, TaskerError, isA, textOf } from "./errors.js";
import { fits } from "./events.js";
import { methodsOf, type Handler } from "./handlers.js";

/** How a template names a handler. */
export interface HandlerReference {
  callable: string;
  method: string;
  /** The resolver that the template names, or an empty text. */
  resolver: string;
  initialization: Record<string, unknown>;
  /** Of the task's template. */
  namespace: string;
}

/**
 * Finds the handlers of callables that are not registered. A template's handler.resolver names one; without it the
 * resolvers are asked in ascending priority, after the handlers with that exact name.
 */
export interface Resolver {
  /** The value for handler.resolver. */
  name: string;
  /**
   * Smallest first; default 50. Registered handlers with the exact name have 10, those with another spelling of it
   * 100.
   */
  priority?: number;
  /** The callables that it resolves, such as service://*. A * is allowed at the end. */
  callables: readonly string[];
  /** The methods of its handlers; default any. */
  methods?: readonly string[];
  /** Whether resolve should be called; default yes. */
  canResolve?(reference: HandlerReference): boolean;
  /**
   * Returns a function, or an object with methods; undefined if it has none. A callable that no resolver finds, and an
   * error, are a retryable failure of the step, unless the error is a Permanent.
   */
  resolve(reference: HandlerReference): Handler | object | undefined | Promise<Handler | object | undefined>;
}

const defaultPriority = 50,
  spelledPriority = 100;

/** Finds the handlers of steps; offered is the name under which the session offered a handler with another spelling. */
export class Resolution {
  private readonly ordered: Resolver[];

  constructor(
    private readonly known: Map<string, Map<string, Handler>>,
    resolvers: Map<string, Resolver>,
  ) {
    const priority = (r: Resolver): number => r.priority ?? defaultPriority;
    this.ordered = [...resolvers.values()].sort((a, b) => priority(a) - priority(b));
  }

  /** Resolves to undefined where this process has no handler. */
  async find(ctx: StepContext, offered: string | undefined): Promise<Handler | undefined> {
    const { callable, method, resolver, config: initialization, namespace } = ctx,
      reference = { callable, method, resolver, initialization, namespace };
    const named = resolver === "" ? undefined : this.ordered.find((r) => r.name === resolver);
    if (!named) {
      const exact = this.known.get(callable)?.get(method);
      if (exact) return exact;
    }
    for (const one of named ? [named] : resolver === "" ? this.ordered : []) {
      if (!named && offered !== undefined && (one.priority ?? defaultPriority) > spelledPriority) break;
      const found = await this.ask(one, reference);
      if (found) return found;
    }
    const other = named ? undefined : this.known.get(offered ?? callable)?.get(method);
    if (other || !this.ordered.some((r) => r.callables.some((pattern) => fits(pattern, callable)))) return other;
    throw new TaskerError(`ResolutionError: No resolver could resolve callable '${callable}'`, {
      errorType: "ResolutionError",
    });
  }

  private async ask(resolver: Resolver, reference: HandlerReference): Promise<Handler | undefined> {
    const { callable, method } = reference;
    let found: Handler | object | undefined;
    try {
      if (!resolver.callables.some((pattern) => fits(pattern, callable))) return undefined;
      if (resolver.canResolve && !resolver.canResolve(reference)) return undefined;
      found = await resolver.resolve(reference);
    } catch (e) {
      if (isA(e, TaskerError)) throw e;
      throw new TaskerError(`resolve callable ${JSON.stringify(callable)} with ${resolver.name}: ${textOf(e)}`, {
        errorType: "ResolutionError",
      });
    }
    if (found === undefined || found === null) return undefined;
    if (typeof found === "function" && method === "call") return found as Handler;
    if (typeof found === "object" && methodsOf(found).includes(method))
      return (ctx) => (found as Record<string, Handler>)[method]!(ctx);
    throw new Permanent(`MethodNotFound: Handler '${callable}' does not respond to '${method}'`, {
      errorType: "MethodNotFound",
    });
  }
}
