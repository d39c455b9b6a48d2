/**
 * The worker process in the style of Tasker's package: a runtime, a poller and a subscriber, which a program starts
 * one by one.
 */

import type { StepContext as Native } from "../context.js";
import { Cancelled, Permanent, Returned, TaskerError, Yield, isA, textOf, type Json } from "../errors.js";
import { Worker } from "../worker.js";
import { clientCalls, TaskerClient, type ClientCalls, type ClientLayer } from "./client.js";
import { FfiStepEvent, StepContext, eventOf, nativeOf } from "./context.js";
import {
  DomainEvent,
  SubscriberRegistry,
  ffiEventToDomainEvent,
  inProcess,
  type FfiDomainEvent,
  type InProcessDomainEvent,
  type PollFunction,
} from "./events.js";
import { logDebug, logError, logInfo, logTrace, logWarn } from "./log.js";
import { HandlerRegistry, HandlerSystem, dispatched, kept, methodIn } from "./registry.js";
import { ErrorType, ResolutionError, StepHandlerResult, endOf } from "./result.js";

declare const process: {
  env: Record<string, string | undefined>;
  pid: number;
  on(signal: string, listener: () => void): void;
  off(signal: string, listener: () => void): void;
};

type Fields = Record<string, Json>;
type Listener = (payload: any) => void;

/** Names of the events of a worker process. */
export const StepEventNames = Object.freeze({
  STEP_EXECUTION_RECEIVED: "step.execution.received",
  STEP_EXECUTION_STARTED: "step.execution.started",
  STEP_EXECUTION_COMPLETED: "step.execution.completed",
  STEP_EXECUTION_FAILED: "step.execution.failed",
  STEP_COMPLETION_SENT: "step.completion.sent",
  STEP_EXECUTION_TIMEOUT: "step.execution.timeout",
  STEP_CHECKPOINT_YIELD_SENT: "step.checkpoint_yield.sent",
} as const);
export const PollerEventNames = Object.freeze({
  POLLER_STARTED: "poller.started",
  POLLER_STOPPED: "poller.stopped",
  POLLER_METRICS: "poller.metrics",
  POLLER_CYCLE_COMPLETE: "poller.cycle.complete",
  POLLER_STARVATION_DETECTED: "poller.starvation.detected",
  POLLER_ERROR: "poller.error",
} as const);
export const WorkerEventNames = Object.freeze({
  WORKER_STARTED: "worker.started",
  WORKER_READY: "worker.ready",
  WORKER_SHUTDOWN_STARTED: "worker.shutdown.started",
  WORKER_STOPPED: "worker.stopped",
  WORKER_ERROR: "worker.error",
} as const);
export const MetricsEventNames = Object.freeze({
  METRICS_UPDATED: "metrics.updated",
  METRICS_ERROR: "metrics.error",
} as const);
export const EventNames = Object.freeze({
  ...StepEventNames,
  ...PollerEventNames,
  ...WorkerEventNames,
  ...MetricsEventNames,
});
type Values<T> = T[keyof T];
export type StepEventName = Values<typeof StepEventNames>;
export type PollerEventName = Values<typeof PollerEventNames>;
export type WorkerEventName = Values<typeof WorkerEventNames>;
export type MetricsEventName = Values<typeof MetricsEventNames>;
export type EventName = Values<typeof EventNames>;

/** What listeners get, by the name of the event. */
export interface StepExecutionReceivedPayload {
  event: FfiStepEvent;
  receivedAt: Date;
}

interface StepPayload {
  eventId: string;
  stepUuid: string;
  taskUuid: string;
}

export interface StepExecutionStartedPayload extends StepPayload {
  handlerName: string;
  startedAt: Date;
}

export interface StepExecutionCompletedPayload extends StepPayload {
  result: any;
  executionTimeMs: number;
  completedAt: Date;
}

export interface StepExecutionFailedPayload extends StepPayload {
  error: Error;
  failedAt: Date;
}

export interface StepCompletionSentPayload {
  eventId: string;
  stepUuid: string;
  success: boolean;
  sentAt: Date;
}

export interface StepCheckpointYieldSentPayload {
  eventId: string;
  stepUuid: string;
  cursor: unknown;
  itemsProcessed: number;
  timestamp: Date;
}

export interface WorkerEventPayload {
  workerId?: string;
  timestamp: Date;
  message?: string;
}

export interface WorkerErrorPayload {
  error: Error;
  timestamp: Date;
  context?: Fields;
}

export interface PollerCyclePayload {
  eventsProcessed: number;
  cycleNumber: number;
  timestamp: Date;
}

export interface MetricsPayload {
  metrics: any;
  timestamp: Date;
}

export interface TaskerEventMap {
  "step.execution.received": StepExecutionReceivedPayload;
  "step.execution.started": StepExecutionStartedPayload;
  "step.execution.completed": StepExecutionCompletedPayload;
  "step.execution.failed": StepExecutionFailedPayload;
  "step.execution.timeout": StepExecutionFailedPayload;
  "step.completion.sent": StepCompletionSentPayload;
  "step.checkpoint_yield.sent": StepCheckpointYieldSentPayload;
  "worker.started": WorkerEventPayload;
  "worker.ready": WorkerEventPayload;
  "worker.shutdown.started": WorkerEventPayload;
  "worker.stopped": WorkerEventPayload;
  "worker.error": WorkerErrorPayload;
  "poller.started": WorkerEventPayload;
  "poller.stopped": WorkerEventPayload;
  "poller.cycle.complete": PollerCyclePayload;
  "poller.starvation.detected": MetricsPayload;
  "poller.error": WorkerErrorPayload;
  "metrics.updated": MetricsPayload;
  "metrics.error": WorkerErrorPayload;
}

/** Calls listeners by the names of events. A listener that throws is logged, and the others are called. */
export class EventEmitter {
  private readonly known = new Map<string, { listener: Listener; once: boolean }[]>();
  private readonly id = crypto.randomUUID();

  on(name: string, listener: Listener): this {
    return this.add(name, listener, false);
  }

  addListener(name: string, listener: Listener): this {
    return this.on(name, listener);
  }

  once(name: string, listener: Listener): this {
    return this.add(name, listener, true);
  }

  off(name: string, listener: Listener): this {
    this.known.set(
      name,
      this.of(name).filter((l) => l.listener !== listener),
    );
    return this;
  }

  removeListener(name: string, listener: Listener): this {
    return this.off(name, listener);
  }

  removeAllListeners(name?: string): this {
    if (name === undefined) this.known.clear();
    else this.known.delete(name);
    return this;
  }

  listenerCount(name: string): number {
    return this.of(name).length;
  }

  /** Which of the emitters of a process this is. */
  getInstanceId(): string {
    return this.id;
  }

  emitStepReceived(event: FfiStepEvent): void {
    this.emit(StepEventNames.STEP_EXECUTION_RECEIVED, { event, receivedAt: new Date() });
  }

  emitStepStarted(eventId: string, stepUuid: string, taskUuid: string, handlerName: string): void {
    this.emit(StepEventNames.STEP_EXECUTION_STARTED, {
      eventId,
      stepUuid,
      taskUuid,
      handlerName,
      startedAt: new Date(),
    });
  }

  emitStepCompleted(eventId: string, stepUuid: string, taskUuid: string, result: Json, executionTimeMs: number): void {
    const of = { eventId, stepUuid, taskUuid };
    this.emit(StepEventNames.STEP_EXECUTION_COMPLETED, { ...of, result, executionTimeMs, completedAt: new Date() });
  }

  emitStepFailed(eventId: string, stepUuid: string, taskUuid: string, error: Error): void {
    this.emit(StepEventNames.STEP_EXECUTION_FAILED, { eventId, stepUuid, taskUuid, error, failedAt: new Date() });
  }

  emitCompletionSent(eventId: string, stepUuid: string, success: boolean): void {
    this.emit(StepEventNames.STEP_COMPLETION_SENT, { eventId, stepUuid, success, sentAt: new Date() });
  }

  emitWorkerStarted(workerId?: string): void {
    this.tell(WorkerEventNames.WORKER_STARTED, workerId, "the worker has started");
  }

  emitWorkerReady(workerId?: string): void {
    this.tell(WorkerEventNames.WORKER_READY, workerId, "the worker takes steps");
  }

  emitWorkerShutdownStarted(workerId?: string): void {
    this.tell(WorkerEventNames.WORKER_SHUTDOWN_STARTED, workerId, "the worker takes no more steps");
  }

  emitWorkerStopped(workerId?: string): void {
    this.tell(WorkerEventNames.WORKER_STOPPED, workerId, "the worker has stopped");
  }

  emitWorkerError(error: Error, context?: Fields): void {
    this.emit(WorkerEventNames.WORKER_ERROR, { error, timestamp: new Date(), context });
  }

  emitMetricsUpdated(metrics: FfiDispatchMetrics): void {
    this.emit(MetricsEventNames.METRICS_UPDATED, { metrics, timestamp: new Date() });
  }

  emitStarvationDetected(metrics: FfiDispatchMetrics): void {
    this.emit(PollerEventNames.POLLER_STARVATION_DETECTED, { metrics, timestamp: new Date() });
  }

  private tell(name: string, workerId: string | undefined, message: string): void {
    this.emit(name, { workerId, timestamp: new Date(), message });
  }

  /** Returns whether there was a listener. */
  emit(name: string, payload?: unknown): boolean {
    const called = [...this.of(name)];
    for (const { listener, once } of called) {
      if (once) this.off(name, listener);
      try {
        listener(payload);
      } catch (e) {
        logError(`a listener of ${name} failed: ${textOf(e)}`, { component: "events" });
      }
    }
    return called.length > 0;
  }

  private of(name: string): { listener: Listener; once: boolean }[] {
    return this.known.get(name) ?? [];
  }

  private add(name: string, listener: Listener, once: boolean): this {
    this.known.set(name, [...this.of(name), { listener, once }]);
    return this;
  }
}
export const TaskerEventEmitter = EventEmitter;
export type TaskerEventEmitter = EventEmitter;

/** How a worker is set up. What Tasker reads from configPath and databaseUrl, the worker daemon has. */
export class BootstrapConfig {
  /** Of the process. It does not limit its steps: those of all templates that name its handlers come. */
  namespace?: string;
  workerId?: string;
  environment?: string;
  configPath?: string;
  databaseUrl?: string;
  logLevel?: string;
  /** How many handlers run at once; default 10. */
  maxConcurrentHandlers?: number;
  /** Of the worker daemon; default TASKER_WORKER_URL, then http://localhost:8081. */
  url?: string;
}

/** What bootstrapWorker and stopWorker say. */
export class BootstrapResult {
  success = true;
  status = "started";
  message = "";
  workerId = "";
  worker_id = "";
  error?: string;
}
export const StopResult = BootstrapResult;
export type StopResult = BootstrapResult;

export class WorkerStatus {
  workerCoreStatus?: string;
  webApiEnabled?: boolean;
  supportedNamespaces?: string[];
  databasePoolSize?: number;
  databasePoolIdle?: number;
  success = true;
  running = false;
  status = "stopped";
  environment = "";
  workerId = "";
  worker_id = "";
}

export class FfiDispatchMetrics {
  pending_count = 0;
  in_flight_count = 0;
  completed_count = 0;
  failed_count = 0;
  starvation_detected = false;
  starving_event_count = 0;
  oldest_pending_age_ms = 0;
}

interface Pending {
  event: FfiStepEvent;
  at: number;
  polled: boolean;
  resolve: (result: Json) => void;
  reject: (why: unknown) => void;
}

const starvesAfterMs = 10_000,
  mostEvents = 1000;

/** Holds a session with a worker daemon, and hands out its steps when it is asked. */
export class TaskerRuntime {
  readonly name = "tasker-go";
  private config: BootstrapConfig | undefined;
  private worker: Worker | undefined;
  private running: Promise<unknown> | undefined;
  private offered = false;
  private readonly pending = new Map<string, Pending>();
  private readonly fresh: Pending[] = [];
  private readonly wakes: (() => void)[] = [];
  private readonly events: InProcessDomainEvent[] = [];
  private eventsAsked = false;
  private completed = 0;
  private failed = 0;

  /** There is no library to load. */
  load(_libraryPath?: string): Promise<void> {
    return Promise.resolve();
  }

  get isLoaded(): boolean {
    return true;
  }

  unload(): void {}

  getVersion(): string {
    return "0.1.0";
  }

  getRustVersion(): string {
    return "none: the engine is written in Go";
  }

  isWorkerRunning(): boolean {
    return this.getWorkerStatus().running;
  }

  logError = logError;
  logWarn = logWarn;
  logInfo = logInfo;
  logDebug = logDebug;
  logTrace = logTrace;

  healthCheck(): boolean {
    return this.getWorkerStatus().running;
  }

  /** Sets the worker up. It opens its session once a StepExecutionSubscriber has started, which knows the handlers. */
  bootstrapWorker(config: BootstrapConfig = {}): BootstrapResult {
    if (this.config)
      return this.say({ status: "already_running", message: "the worker is already set up" });
    this.config = config;
    return this.say({ message: "the worker is set up" });
  }

  private say(fields: Partial<BootstrapResult>): BootstrapResult {
    const id = this.config?.workerId ?? `typescript-${process.pid}`;
    return { success: true, status: "started", message: "", workerId: id, worker_id: id, ...fields };
  }

  /**
   * Offers the handlers of a registry. The session is opened when the program has started the rest, too; with other
   * handlers another one takes its place.
   */
  offer(registry: HandlerRegistry, workerId?: string): void {
    if (!this.config) throw new Error("start the subscriber: the worker is not set up, call bootstrapWorker first");
    if (this.offered) return;
    this.offered = true;
    let waits = false;
    const soon = (): void => {
      if (waits) return;
      waits = true;
      setTimeout(() => {
        waits = false;
        this.open(registry, workerId);
      }, 0);
    };
    registry.onChange(soon);
    soon();
  }

  private open(registry: HandlerRegistry, workerId: string | undefined): void {
    if (!this.config) return; // it was stopped
    const subscribers = SubscriberRegistry.getInstance(),
      patterns = this.eventsAsked ? ["*"] : subscribers.list().flatMap((s) => s.subscribesTo());
    if (registry.isEmpty() && patterns.length === 0) return;
    const { url, maxConcurrentHandlers: permits = 10 } = this.config;
    const worker = new Worker({
      permits,
      name: workerId ?? this.say({}).workerId,
      log: (line) => logInfo(line, { component: "worker" }),
      ...(url ? { url } : {}),
    });
    void this.worker?.stop();
    this.worker = worker;
    const run = async (): Promise<void> => {
      registry.offer(worker, (name, _method, ctx) => this.handOut(name, ctx), undefined);
      if (patterns.length > 0)
        worker.subscribe({
          name: "subscribers",
          patterns: [...new Set(patterns)],
          handle: (e) => this.hear(inProcess(e)),
        });
      await worker.run({ signals: false });
    };
    const ended = run()
      .catch((e: unknown) => logError(`the worker has ended: ${textOf(e)}`, { component: "worker" }))
      .finally(() => {
        if (this.worker === worker) this.worker = undefined;
      });
    this.running = Promise.all([this.running, ended]);
  }

  /** Keeps a step until it is polled and completed. */
  private handOut(name: string, ctx: Native): Promise<Json> {
    const event = Object.assign(eventOf(ctx), { handler_name: name });
    return new Promise((resolve, reject) => {
      const one = { event, at: Date.now(), polled: false, resolve, reject };
      this.pending.set(event.event_id, one);
      this.fresh.push(one);
      for (const wake of this.wakes) wake();
    });
  }

  /** Calls a function when there is something to poll. */
  onPending(wake: () => void): void {
    this.wakes.push(wake);
  }

  /** The next step, or null. */
  pollStepEvents(): FfiStepEvent | null {
    const one = this.fresh.shift();
    if (one) one.polled = true;
    return one?.event ?? null;
  }

  /** Reports the end of a step. Returns false for one that is not pending. */
  completeStepEvent(eventId: string, result: Json): boolean {
    const end = typeof result === "string" ? (JSON.parse(result) as Fields) : (result as Fields);
    return this.end(eventId, (one) => {
      const native = nativeOf(one.event);
      one.resolve(endOf(resultOf(end), (fields) => native && kept(native, fields)));
    });
  }

  /** Saves progress; the step runs again from there. */
  checkpointYieldStepEvent(
    eventId: string,
    data: { cursor: Json; items_processed: number; accumulated_results?: Json } | NapiCheckpointYieldData,
  ): boolean {
    const { cursor, itemsProcessed, accumulatedResults } = data as NapiCheckpointYieldData,
      { items_processed: items = itemsProcessed, accumulated_results: results = accumulatedResults } = data as Fields;
    return this.end(eventId, (one) => one.reject(new Yield(cursor as Json, items as number, results ?? undefined)));
  }

  /** Reports what a handler has thrown. */
  failStepEvent(eventId: string, error: unknown): boolean {
    return this.end(eventId, (one) => one.reject(error));
  }

  private end(eventId: string, how: (one: Pending) => void): boolean {
    const one = this.pending.get(eventId);
    if (!one) return false;
    this.pending.delete(eventId);
    try {
      how(one);
      this.completed++;
    } catch (e) {
      this.failed++;
      one.reject(e);
    }
    return true;
  }

  /** Fast events are polled from now on, instead of handed to the SubscriberRegistry. */
  askForEvents(): void {
    this.eventsAsked = true;
  }

  /** The next fast event, or null. */
  pollInProcessEvents(): InProcessDomainEvent | null {
    return this.events.shift() ?? null;
  }

  private async hear(event: InProcessDomainEvent): Promise<void> {
    if (!this.eventsAsked) return SubscriberRegistry.getInstance().dispatch(event);
    if (this.events.length < mostEvents) this.events.push(event);
    else
      logWarn("a domain event is lost: the poller does not keep up", {
        component: "domain_events",
        event_name: event.eventName,
      });
  }

  getFfiDispatchMetrics(): FfiDispatchMetrics {
    const now = Date.now(),
      ages = this.fresh.map((one) => now - one.at),
      starving = ages.filter((age) => age > starvesAfterMs).length;
    return {
      pending_count: this.fresh.length,
      in_flight_count: this.pending.size - this.fresh.length,
      completed_count: this.completed,
      failed_count: this.failed,
      starvation_detected: starving > 0,
      starving_event_count: starving,
      oldest_pending_age_ms: Math.max(0, ...ages),
    };
  }

  checkStarvationWarnings(): void {
    const { starving_event_count: starving } = this.getFfiDispatchMetrics();
    if (starving > 0) logWarn(`${starving} steps wait to be polled`, { component: "worker" });
  }

  /** The engine ends steps whose time limit has passed. */
  cleanupTimeouts(): void {}

  getWorkerStatus(): WorkerStatus {
    const { worker_id: id } = this.say({}),
      running = this.worker !== undefined || (this.config !== undefined && this.running === undefined);
    return {
      success: true,
      running,
      status: running ? "running" : "stopped",
      environment: this.config?.environment ?? process.env["TASKER_ENV"] ?? "development",
      workerId: id,
      worker_id: id,
    };
  }

  /** Takes no more steps; those that run end. */
  transitionToGracefulShutdown(): BootstrapResult {
    void this.worker?.stop();
    return this.say({ status: "stopping", message: "the worker takes no more steps" });
  }

  /** Stops; steps that were not polled are handed back. */
  stopWorker(): BootstrapResult {
    void this.worker?.stop();
    for (const one of this.fresh.splice(0)) {
      this.pending.delete(one.event.event_id);
      one.reject(new Returned());
    }
    const said = this.say({
      status: this.config ? "stopped" : "not_running",
      message: this.config ? "the worker stops" : "the worker does not run",
    });
    this.config = undefined;
    return said;
  }

  /** Resolves when the worker has stopped. */
  async waitForStop(): Promise<void> {
    await this.running;
  }
}

export interface TaskerRuntime extends ClientCalls {}
Object.assign(TaskerRuntime.prototype, clientCalls);

/** How a native module is told of saved progress. */
export interface NapiCheckpointYieldData {
  stepUuid: string;
  cursor: any;
  itemsProcessed: number;
  accumulatedResults?: any;
}
export type CheckpointYieldData = NapiCheckpointYieldData;

export interface NapiStepExecutionError {
  message: string;
  errorType?: string;
  retryable?: boolean;
  statusCode?: number;
  backtrace?: string[];
  context?: Fields;
}

export interface NapiStepExecutionMetadata {
  executionTimeMs: number;
  workerId?: string;
  completedAt: string;
  retryable?: boolean;
  errorType?: string;
  errorCode?: string;
  custom?: Fields;
}

export interface NapiBackoffHint {
  backoffType: string;
  delaySeconds: number;
  context?: string | null;
}

export interface NapiOrchestrationMetadata {
  headers?: Record<string, string>;
  errorContext?: string | null;
  backoffHint?: NapiBackoffHint | null;
  custom?: Fields;
}

/** The end of a step in the style of native modules. */
export interface NapiStepExecutionResult {
  stepUuid: string;
  success: boolean;
  result: unknown;
  status: "completed" | "failed" | "error";
  metadata: NapiStepExecutionMetadata;
  error?: NapiStepExecutionError;
  orchestrationMetadata?: NapiOrchestrationMetadata;
}

export interface NapiDispatchMetrics {
  pendingCount: number;
  starvationDetected: boolean;
  starvingEventCount: number;
  oldestPendingAgeMs?: number;
  newestPendingAgeMs?: number;
  oldestEventId?: string;
}

/** What programs know as the native module. */
export type NapiModule = TaskerRuntime;

export interface FfiLayerConfig {
  /** There is no module to load. */
  modulePath?: string;
}

/** Gives out the runtime of a process. */
export class FfiLayer implements ClientLayer {
  private runtime: TaskerRuntime | undefined;

  constructor(readonly config: FfiLayerConfig = {}) {}

  load(_path?: string): Promise<void> {
    this.runtime ??= createRuntime();
    return Promise.resolve();
  }

  unload(): Promise<void> {
    this.runtime = undefined;
    return Promise.resolve();
  }

  isLoaded(): boolean {
    return this.runtime !== undefined;
  }

  getModule(): TaskerRuntime {
    if (!this.runtime) throw new Error("get the module: it is not loaded, call load first");
    return this.runtime;
  }

  getRuntime(): TaskerRuntime {
    return this.getModule();
  }

  getModulePath(): string | null {
    return this.config.modulePath ?? null;
  }

  static findModulePath(): string | null {
    return null;
  }

  static findLibraryPath(_from?: string): string | null {
    return null;
  }
}

let layer: FfiLayer | undefined;

/** The layer of the process. */
export async function getFfiLayer(): Promise<FfiLayer> {
  layer ??= new FfiLayer();
  await layer.load();
  return layer;
}

/** A client of the orchestrator at TASKER_ORCHESTRATION_URL. */
export async function getTaskerClient(): Promise<TaskerClient> {
  return new TaskerClient(await getFfiLayer());
}

/** A result in one of the forms in which it is handed over. */
function resultOf(end: Fields): Json {
  if (end instanceof StepHandlerResult || typeof end["success"] !== "boolean") return end;
  const error = (end["error"] ?? {}) as Fields,
    pick = (...names: string[]): any => names.map((n) => end[n]).find((v) => v !== undefined && v !== null);
  return new StepHandlerResult({
    success: end["success"],
    result: pick("result") ?? {},
    metadata: pick("metadata") ?? {},
    retryable: (pick("retryable") ?? error["retryable"] ?? true) as boolean,
    errorMessage: pick("errorMessage", "error_message") ?? error["message"],
    errorType: pick("errorType", "error_type") ?? error["error_type"] ?? error["errorType"],
    errorCode: pick("errorCode", "error_code") ?? error["error_code"] ?? error["errorCode"],
  });
}

/** The runtime of Node; in Bun and Deno it is the same. */
export function createRuntime(): TaskerRuntime {
  return new TaskerRuntime();
}

/** The part of a runtime that a poller needs. */
export interface Pollable {
  pollStepEvents(): object | null;
  checkStarvationWarnings?(): void;
  cleanupTimeouts?(): void;
  getFfiDispatchMetrics?(): FfiDispatchMetrics | null;
  onPending?(wake: () => void): void;
}

export interface EventPollerConfig {
  /** Default 10. */
  pollingIntervalMs?: number;
  pollIntervalMs?: number;
  /** In polls; default 100. */
  starvationCheckInterval?: number;
  /** In polls; default 1000. */
  cleanupInterval?: number;
  maxEventsPerPoll?: number;
  maxEventsPerCycle?: number;
  /** In polls; default that of starvationCheckInterval. */
  metricsInterval?: number;
}

export type StepEventCallback = (event: FfiStepEvent) => void | Promise<void>;
export type ErrorCallback = (error: Error) => void;
export type MetricsCallback = (metrics: any) => void;
export type PollerState = "stopped" | "running" | "stopping";

/** Takes steps from a runtime and emits them. */
export class EventPoller {
  private timer: ReturnType<typeof setInterval> | undefined;
  private polls = 0;
  private steps = 0;
  private readonly onSteps: StepEventCallback[] = [];
  private readonly onTrouble: ((error: Error) => void)[] = [];
  private readonly onNumbers: ((metrics: ReturnType<EventPoller["getMetrics"]>) => void)[] = [];

  constructor(
    private readonly runtime: Pollable,
    private readonly emitter: EventEmitter = new EventEmitter(),
    private readonly config: EventPollerConfig = {},
  ) {}

  start(): void {
    if (this.timer !== undefined) return;
    this.timer = setInterval(() => this.poll(), this.config.pollingIntervalMs ?? this.config.pollIntervalMs ?? 10);
    this.runtime.onPending?.(() => this.timer !== undefined && queueMicrotask(() => this.take()));
    this.polls = 0;
    this.emitter.emit(PollerEventNames.POLLER_STARTED, { timestamp: new Date() });
  }

  stop(): Promise<void> {
    if (this.timer !== undefined) {
      clearInterval(this.timer);
      this.timer = undefined;
      this.emitter.emit(PollerEventNames.POLLER_STOPPED, { timestamp: new Date() });
    }
    return Promise.resolve();
  }

  isRunning(): boolean {
    return this.timer !== undefined;
  }

  getState(): PollerState {
    return this.isRunning() ? "running" : "stopped";
  }

  getPollCount(): number {
    return this.polls;
  }

  getCycleCount(): number {
    return this.polls;
  }

  onStepEvent(listener: StepEventCallback): this {
    this.onSteps.push(listener);
    return this;
  }

  onError(listener: (error: Error) => void): this {
    this.onTrouble.push(listener);
    return this;
  }

  onMetrics(listener: MetricsCallback): this {
    this.onNumbers.push(listener);
    return this;
  }

  getMetrics() {
    const m = this.runtime.getFfiDispatchMetrics?.() ?? new FfiDispatchMetrics();
    return {
      ...m,
      pendingCount: m.pending_count,
      inFlightCount: m.in_flight_count,
      completedCount: m.completed_count,
      failedCount: m.failed_count,
      starvationDetected: m.starvation_detected,
      starvingEventCount: m.starving_event_count,
      oldestPendingAgeMs: m.oldest_pending_age_ms,
      pollCount: this.polls,
      eventCount: this.steps,
    };
  }

  private poll(): void {
    this.polls++;
    this.take();
    const { starvationCheckInterval = 100, metricsInterval = starvationCheckInterval } = this.config;
    if (this.polls % starvationCheckInterval === 0) {
      this.runtime.checkStarvationWarnings?.();
      const metrics = this.getMetrics();
      if (metrics.starvationDetected) this.emitter.emitStarvationDetected(metrics);
    }
    if (this.polls % metricsInterval === 0) {
      const metrics = this.getMetrics();
      for (const listener of this.onNumbers) listener(metrics);
      this.emitter.emit(PollerEventNames.POLLER_METRICS, metrics);
      this.emitter.emitMetricsUpdated(metrics);
    }
    if (this.polls % (this.config.cleanupInterval ?? 1000) === 0) this.runtime.cleanupTimeouts?.();
  }

  private take(): void {
    try {
      const { maxEventsPerCycle = 100, maxEventsPerPoll = maxEventsPerCycle } = this.config;
      for (let left = maxEventsPerPoll; left > 0 && this.timer !== undefined; left--) {
        const polled = this.runtime.pollStepEvents();
        if (!polled) return;
        const event = FfiStepEvent.from(polled);
        this.steps++;
        for (const listener of this.onSteps) void listener(event);
        this.emitter.emitStepReceived(event);
      }
    } catch (e) {
      const error = e instanceof Error ? e : new Error(textOf(e));
      for (const listener of this.onTrouble) listener(error);
      this.emitter.emit(PollerEventNames.POLLER_ERROR, { error });
    }
  }
}

export function createEventPoller(
  runtime: Pollable,
  emitter?: EventEmitter,
  config?: EventPollerConfig,
): EventPoller {
  return new EventPoller(runtime, emitter, config);
}

/** The part of a runtime that a subscriber needs. */
export interface Completable {
  completeStepEvent(eventId: string, result: Json): boolean;
  checkpointYieldStepEvent?(
    eventId: string,
    data: { cursor: Json; items_processed: number; accumulated_results?: Json },
  ): boolean;
  failStepEvent?(eventId: string, error: unknown): boolean;
}

export interface StepExecutionSubscriberConfig {
  workerId?: string;
  maxConcurrent?: number;
  handlerTimeoutMs?: number;
}

/** The part of a registry that a subscriber needs. */
export interface HandlerRegistryInterface {
  resolve(name: string): any;
}

/** Runs the handlers of the steps that are emitted, and completes them. */
export class StepExecutionSubscriber {
  private readonly active = new Set<Promise<void>>();
  private readonly listener: Listener = ({ event }: { event: object }) => this.begin(FfiStepEvent.from(event));
  private running = false;
  private processed = 0;
  private errors = 0;

  constructor(
    private readonly emitter: EventEmitter,
    private readonly registry: HandlerRegistryInterface,
    private readonly runtime: Completable,
    private readonly config: StepExecutionSubscriberConfig = {},
  ) {}

  start(): void {
    if (this.running) return;
    if (this.runtime instanceof TaskerRuntime && this.registry instanceof HandlerRegistry)
      this.runtime.offer(this.registry, this.config.workerId);
    this.running = true;
    this.emitter.on(StepEventNames.STEP_EXECUTION_RECEIVED, this.listener);
  }

  /** Begins no more handlers. */
  stop(): void {
    this.running = false;
    this.emitter.off(StepEventNames.STEP_EXECUTION_RECEIVED, this.listener);
  }

  isRunning(): boolean {
    return this.running;
  }

  getActiveHandlers(): number {
    return this.active.size;
  }

  getProcessedCount(): number {
    return this.processed;
  }

  getErrorCount(): number {
    return this.errors;
  }

  /** Resolves when no handler runs, or to false after some milliseconds. */
  async waitForCompletion(timeoutMs = 30_000): Promise<boolean> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<false>((resolve) => (timer = setTimeout(resolve, timeoutMs, false)));
    const done = (async (): Promise<true> => {
      while (this.active.size > 0) await Promise.all(this.active);
      return true;
    })();
    try {
      return await Promise.race([done, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  private begin(event: FfiStepEvent): void {
    const run = this.execute(event).catch((e: unknown) =>
      logError(`a step was not completed: ${textOf(e)}`, { component: "subscriber", step_uuid: event.step_uuid }),
    );
    this.active.add(run);
    void run.finally(() => this.active.delete(run));
  }

  private async execute(event: FfiStepEvent): Promise<void> {
    const { event_id: eventId, step_uuid: stepUuid, task_uuid: taskUuid } = event,
      begun = Date.now();
    const { handler_name: handlerName = event.step_definition?.handler?.callable ?? "" } = event as {
        handler_name?: string;
      },
      of = { eventId, stepUuid, taskUuid, handlerName };
    const took = (): { executionTimeMs: number; timestamp: Date } => ({
      executionTimeMs: Date.now() - begun,
      timestamp: new Date(),
    });
    this.emitter.emit(StepEventNames.STEP_EXECUTION_STARTED, { ...of, event, timestamp: new Date() });
    let result: StepHandlerResult | undefined, thrown: unknown;
    try {
      const handler = (await this.registry.resolve(handlerName)) as object | null;
      if (!handler) throw new ResolutionError(`No resolver could resolve callable '${handlerName}'`);
      const method = methodIn(handler, event.step_definition?.handler?.method || "call", handlerName),
        returned = await dispatched(handler, method, new StepContext(event, handlerName));
      result =
        typeof returned === "object" && returned !== null && Object.hasOwn(returned, "success")
          ? (resultOf(returned as Fields) as StepHandlerResult)
          : StepHandlerResult.success((returned ?? {}) as Fields);
    } catch (e) {
      thrown = e;
    }
    this.processed++;
    if (isA(thrown, Yield) && this.runtime.checkpointYieldStepEvent) {
      this.runtime.checkpointYieldStepEvent(eventId, thrown.point);
      this.emitter.emit(StepEventNames.STEP_CHECKPOINT_YIELD_SENT, { ...of, ...took() });
      return;
    }
    if (result?.success) this.emitter.emit(StepEventNames.STEP_EXECUTION_COMPLETED, { ...of, result, ...took() });
    else {
      this.errors++;
      const error = result
        ? new Error(result.errorMessage ?? "the handler failed")
        : isA(thrown, Error)
          ? thrown
          : new Error(textOf(thrown));
      this.emitter.emit(StepEventNames.STEP_EXECUTION_FAILED, { ...of, error, result, ...took() });
    }
    const success = result !== undefined ? this.runtime.completeStepEvent(eventId, result) : this.fail(eventId, thrown);
    this.emitter.emit(StepEventNames.STEP_COMPLETION_SENT, { ...of, success, ...took() });
  }

  private fail(eventId: string, thrown: unknown): boolean {
    if (this.runtime.failStepEvent) return this.runtime.failStepEvent(eventId, thrown);
    const marked = isA(thrown, TaskerError) ? thrown : undefined,
      final = isA(thrown, Permanent) || isA(thrown, Cancelled);
    return this.runtime.completeStepEvent(
      eventId,
      StepHandlerResult.failure(
        textOf(thrown),
        marked?.marks.errorType ?? ErrorType.HANDLER_ERROR,
        !final,
        marked?.marks.details ?? {},
        marked?.marks.code,
      ),
    );
  }
}

export interface EventSystemConfig {
  poller?: EventPollerConfig;
  subscriber?: StepExecutionSubscriberConfig;
}

export interface EventSystemStats {
  running: boolean;
  processedCount: number;
  errorCount: number;
  activeHandlers: number;
  pollCount: number;
}

/** The poller and the subscriber of a runtime together. */
export class EventSystem {
  readonly emitter = new EventEmitter();
  readonly subscriber: StepExecutionSubscriber;
  readonly poller: EventPoller;

  constructor(
    runtime: Pollable & Completable,
    registry: HandlerRegistryInterface,
    { poller, subscriber }: EventSystemConfig = {},
  ) {
    this.subscriber = new StepExecutionSubscriber(this.emitter, registry, runtime, subscriber);
    this.poller = new EventPoller(runtime, this.emitter, poller);
  }

  start(): void {
    this.subscriber.start();
    this.poller.start();
  }

  /** Resolves when the running handlers have ended. */
  async stop(timeoutMs?: number): Promise<void> {
    await this.poller.stop();
    await this.subscriber.waitForCompletion(timeoutMs);
    this.subscriber.stop();
  }

  isRunning(): boolean {
    return this.poller.isRunning();
  }

  getEmitter(): EventEmitter {
    return this.emitter;
  }

  getStats(): EventSystemStats {
    return {
      running: this.isRunning(),
      processedCount: this.subscriber.getProcessedCount(),
      errorCount: this.subscriber.getErrorCount(),
      activeHandlers: this.subscriber.getActiveHandlers(),
      pollCount: this.poller.getPollCount(),
    };
  }
}

let shared: TaskerRuntime | undefined;

/** Sets the worker of the process up. */
export function bootstrapWorker(
  config: BootstrapConfig = {},
  runtime = (shared ??= createRuntime()),
): Promise<BootstrapResult> {
  return Promise.resolve(runtime.bootstrapWorker(config));
}

export function getWorkerStatus(runtime = (shared ??= createRuntime())): WorkerStatus {
  return runtime.getWorkerStatus();
}

export function isWorkerRunning(runtime = (shared ??= createRuntime())): boolean {
  return runtime.getWorkerStatus().running;
}

export function transitionToGracefulShutdown(runtime = (shared ??= createRuntime())): BootstrapResult {
  return runtime.transitionToGracefulShutdown();
}

export function stopWorker(runtime = (shared ??= createRuntime())): BootstrapResult {
  return runtime.stopWorker();
}

export function healthCheck(runtime = (shared ??= createRuntime())): boolean {
  return runtime.healthCheck();
}

export function getVersion(runtime = (shared ??= createRuntime())): string {
  return runtime.getVersion();
}

export function getRustVersion(runtime = (shared ??= createRuntime())): string {
  return runtime.getRustVersion();
}

export const ServerStates = Object.freeze({
  INITIALIZED: "initialized",
  STARTING: "starting",
  RUNNING: "running",
  SHUTTING_DOWN: "shutting_down",
  STOPPED: "stopped",
  ERROR: "error",
} as const);
export type ServerState = Values<typeof ServerStates>;

/** How a WorkerServer is set up. */
export interface WorkerServerConfig {
  namespace?: string | undefined;
  logLevel?: "trace" | "debug" | "info" | "warn" | "error" | undefined;
  configPath?: string | undefined;
  databaseUrl?: string | undefined;
  libraryPath?: string | undefined;
  /** Default 10. */
  maxConcurrentHandlers?: number | undefined;
  handlerTimeoutMs?: number | undefined;
  pollIntervalMs?: number | undefined;
  starvationCheckInterval?: number | undefined;
  cleanupInterval?: number | undefined;
  metricsInterval?: number | undefined;
  workerId?: string | undefined;
  /** Of the worker daemon; default TASKER_WORKER_URL, then http://localhost:8081. */
  url?: string | undefined;
}

export interface ServerStatus {
  state: ServerState;
  workerId: string | null;
  running: boolean;
  processedCount: number;
  errorCount: number;
  activeHandlers: number;
  uptimeMs: number;
}

export interface ServerHealthCheckResult {
  healthy: boolean;
  status?: ServerStatus;
  error?: string;
}

/** The parts of a WorkerServer. */
export interface ServerComponents {
  module: NapiModule;
  emitter: EventEmitter;
  registry: HandlerRegistry;
  eventPoller: EventPoller;
  stepSubscriber: StepExecutionSubscriber;
  workerId: string;
}

/** A worker process as a whole. Handlers may be registered before and after it starts. */
export class WorkerServer {
  readonly runtime = createRuntime();
  readonly registry: HandlerRegistry;
  private readonly handlers: HandlerSystem;
  private system: EventSystem | null = null;
  private state: ServerState = ServerStates.INITIALIZED;
  private workerId: string | null = null;
  private started = 0;
  private readonly ending: ShutdownHandler[] = [];

  constructor(given: HandlerRegistry | FfiLayerConfig = {}) {
    this.registry = given instanceof HandlerRegistry ? given : new HandlerRegistry();
    this.handlers = new HandlerSystem(this.registry);
  }

  getState(): ServerState {
    return this.state;
  }

  getWorkerId(): string | null {
    return this.workerId;
  }

  getHandlerSystem(): HandlerSystem {
    return this.handlers;
  }

  getEventSystem(): EventSystem | null {
    return this.system;
  }

  isRunning(): boolean {
    return this.state === ServerStates.RUNNING;
  }

  /** Starts with the handlers of TYPESCRIPT_HANDLER_PATH, too. */
  async start(config: WorkerServerConfig = {}): Promise<this> {
    if (this.state === ServerStates.RUNNING || this.state === ServerStates.STARTING)
      throw new Error(`start the server: it is already ${this.state}`);
    this.state = ServerStates.STARTING;
    this.started = Date.now();
    await this.handlers.loadFromEnv();
    this.workerId = this.runtime.bootstrapWorker(given(config)).workerId;
    const { maxConcurrentHandlers: maxConcurrent, handlerTimeoutMs } = config;
    this.system = new EventSystem(this.runtime, this.registry, {
      poller: given(config),
      subscriber: given({ workerId: this.workerId, maxConcurrent, handlerTimeoutMs }),
    });
    SubscriberRegistry.getInstance().startAll();
    this.system.start();
    this.state = ServerStates.RUNNING;
    return this;
  }

  onShutdown(handler: ShutdownHandler): void {
    this.ending.push(handler);
  }

  /** Stops when the running handlers have ended. */
  async shutdown(): Promise<void> {
    if (this.state !== ServerStates.RUNNING) return;
    this.state = ServerStates.SHUTTING_DOWN;
    this.runtime.transitionToGracefulShutdown();
    await this.system?.stop();
    this.system = null;
    this.runtime.stopWorker();
    SubscriberRegistry.getInstance().stopAll();
    await this.runtime.waitForStop();
    for (const handler of this.ending) await calm(handler);
    this.state = ServerStates.STOPPED;
  }

  healthCheck(): ServerHealthCheckResult {
    if (!this.isRunning()) return { healthy: false, error: `the server is not running: it is ${this.state}` };
    return this.runtime.healthCheck()
      ? { healthy: true, status: this.status() }
      : { healthy: false, error: "the worker does not run" };
  }

  status(): ServerStatus {
    const { processedCount = 0, errorCount = 0, activeHandlers = 0 } = this.system?.getStats() ?? {};
    return {
      state: this.state,
      workerId: this.workerId,
      running: this.isRunning(),
      processedCount,
      errorCount,
      activeHandlers,
      uptimeMs: this.started ? Date.now() - this.started : 0,
    };
  }
}

/** The fields that are set. */
function given<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const set = Object.entries(fields as Fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(set) as { [K in keyof T]?: Exclude<T[K], undefined> };
}

export type ShutdownHandler = () => void | Promise<void>;

/** Calls a handler of a shutdown; one that fails keeps no other from it. */
async function calm(handler: ShutdownHandler): Promise<void> {
  try {
    await handler();
  } catch (e) {
    logError(`a shutdown handler failed: ${textOf(e)}`, { component: "shutdown" });
  }
}

/** Notices that the process should end. */
export class ShutdownController {
  private requested = false;
  private by: string | null = null;
  private wake: () => void = () => undefined;
  private readonly listener = (): void => this.requestShutdown();
  private readonly handlers: ShutdownHandler[] = [];
  /** Resolves when a shutdown is requested. */
  readonly promise = new Promise<void>((resolve) => (this.wake = resolve));

  registerSignalHandlers(): void {
    for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, this.listener);
  }

  unregisterSignalHandlers(): void {
    for (const signal of ["SIGTERM", "SIGINT"]) process.off(signal, this.listener);
  }

  onShutdown(handler: ShutdownHandler): void {
    this.handlers.push(handler);
  }

  get isRequested(): boolean {
    return this.requested;
  }

  /** Of the first request. */
  get signal(): string | null {
    return this.by;
  }

  /** Requests the shutdown, without its handlers. */
  trigger(signal: string): void {
    if (this.requested) return;
    this.requested = true;
    this.by = signal;
    this.wake();
  }

  async executeHandlers(): Promise<void> {
    for (const handler of this.handlers) await calm(handler);
  }

  /** Forgets the request and the handlers. */
  reset(): void {
    this.requested = false;
    this.by = null;
    this.handlers.length = 0;
  }

  requestShutdown(): void {
    if (this.requested) return;
    this.unregisterSignalHandlers();
    for (const handler of this.handlers) void calm(handler);
    this.trigger("request");
  }

  isShutdownRequested(): boolean {
    return this.requested;
  }

  async waitForShutdown(): Promise<void> {
    if (!this.requested) await this.promise;
  }
}

/** Where an InProcessDomainEventPoller gets the fast events of a runtime from. */
export function createFfiPollAdapter(runtime: { pollInProcessEvents(): any; askForEvents?(): void }): PollFunction {
  runtime.askForEvents?.();
  return () => {
    const event = runtime.pollInProcessEvents() as FfiDomainEvent | DomainEvent | null;
    return event && !(event instanceof DomainEvent) ? ffiEventToDomainEvent(event) : event;
  };
}
