/** The context of a step in the style of Tasker's package. */

import type { StepContext as Native } from "../context.js";
import type { Json } from "../errors.js";

type Fields = Record<string, Json>;

/** A step as it is handed to handlers. Fields that a test leaves out are empty. */
export class FfiStepEvent {
  event_id = "";
  task_uuid = "";
  step_uuid = "";
  correlation_id = "";
  task: { task?: Fields; context?: Fields; task_name?: string; namespace_name?: string; version?: string } = {};
  workflow_step: {
    workflow_step_uuid?: string;
    name?: string;
    attempts?: number;
    max_attempts?: number;
    inputs?: Fields | null;
    checkpoint?: Fields | null;
  } = {};
  step_definition: {
    name?: string;
    handler?: { callable?: string; method?: string; resolver?: string; initialization?: Fields };
  } = {};
  /** Each result in an object, as result. */
  dependency_results: Record<string, Json> = {};
}

/** A step as older handlers get it. */
export const TaskSequenceStep = FfiStepEvent;
export type TaskSequenceStep = FfiStepEvent | StepContext;

const natives = new WeakMap<object, Native>();

/** The step of the engine behind an event or a context; undefined in tests that make their own. */
export function nativeOf(value: object): Native | undefined {
  return natives.get(value instanceof StepContext ? value.event : value);
}

/** The event of a step of the engine. */
export function eventOf(ctx: Native): FfiStepEvent {
  const { batch, saved } = ctx;
  const inputs = batch && {
    cursor: {
      batch_id: batch.id,
      start_cursor: batch.start,
      end_cursor: batch.end,
      batch_size: batch.size,
      ...(batch.items ? { items: batch.items } : {}),
    },
    batch_metadata: { cursor_field: batch.cursorField, failure_strategy: batch.failureStrategy },
    is_no_op: batch.noOp,
  };
  const checkpoint = saved && {
    cursor: saved.cursor,
    items_processed: saved.itemsProcessed,
    accumulated_results: saved.accumulated,
    ...(saved.time ? { timestamp: saved.time.toISOString() } : {}),
  };
  const event = Object.assign(new FfiStepEvent(), {
    event_id: ctx.fence,
    task_uuid: ctx.taskUuid,
    step_uuid: ctx.stepUuid,
    correlation_id: ctx.correlationId,
    task: {
      task: {
        task_uuid: ctx.taskUuid,
        context: ctx.context,
        correlation_id: ctx.correlationId,
        priority: ctx.priority,
      },
      task_name: ctx.taskName,
      namespace_name: ctx.namespace,
      version: ctx.taskVersion,
    },
    workflow_step: {
      workflow_step_uuid: ctx.stepUuid,
      name: ctx.stepName,
      attempts: ctx.attempt - 1,
      max_attempts: ctx.maxAttempts,
      inputs: inputs ?? null,
      checkpoint: checkpoint ?? null,
    },
    step_definition: {
      name: ctx.stepName,
      handler: { callable: ctx.callable, method: ctx.method, resolver: ctx.resolver, initialization: ctx.config },
    },
    dependency_results: Object.fromEntries(
      Object.entries(ctx.results).map(([name, result]) => [name, { success: true, result }]),
    ),
  });
  natives.set(event, ctx);
  return event;
}

/** One execution of a step. */
export class StepContext {
  readonly taskUuid: string;
  readonly stepUuid: string;
  readonly correlationId: string;
  readonly namespace: string;
  readonly taskName: string;
  readonly stepName: string;
  /** The task's context. */
  readonly taskContext: Fields;
  /** The task's context, too. */
  readonly inputData: Fields;
  /** The part of the work of a batch; of other steps the task's context. */
  readonly stepInputs: Fields;
  /** handler.initialization of the template. */
  readonly stepConfig: Fields;
  /** The results of the direct parents, without their envelopes. */
  readonly dependencyResults: Fields;
  /** How many attempts have failed before. */
  readonly retryCount: number;
  readonly maxRetries: number;
  /** The saved progress as it is stored, or null. */
  readonly checkpoint: Fields | null;

  constructor(
    readonly event: FfiStepEvent,
    readonly handlerName = "",
  ) {
    const { task = {}, workflow_step: step = {}, step_definition: definition = {} } = event;
    this.taskUuid = event.task_uuid;
    this.stepUuid = event.step_uuid || (step.workflow_step_uuid ?? "");
    this.correlationId = event.correlation_id || String(task.task?.["correlation_id"] ?? "");
    this.namespace = task.namespace_name ?? "";
    this.taskName = task.task_name ?? "";
    this.stepName = definition.name ?? step.name ?? "";
    this.taskContext = objectOf(task.task?.["context"] ?? task.context);
    this.inputData = this.taskContext;
    this.stepInputs = step.inputs ?? this.taskContext;
    this.stepConfig = objectOf(definition.handler?.initialization);
    this.dependencyResults = Object.fromEntries(
      Object.entries(event.dependency_results ?? {}).map(([name, kept]) => [name, unwrapped(kept)]),
    );
    this.retryCount = step.attempts ?? 0;
    this.maxRetries = step.max_attempts ?? 3;
    this.checkpoint = step.checkpoint ?? null;
  }

  static fromFfiEvent(event: Partial<FfiStepEvent>, handlerName = ""): StepContext {
    return new StepContext(
      event instanceof FfiStepEvent ? event : Object.assign(new FfiStepEvent(), event),
      handlerName,
    );
  }

  /** dependencyResults under another name. */
  get previousResults(): Fields {
    return this.dependencyResults;
  }

  /** One field of the task's context, or of the inputs of the step; undefined without it. */
  getInput<T = Json>(key: string): T | undefined {
    return (own(this.taskContext, key) ?? own(this.stepInputs, key)) as T | undefined;
  }

  getInputOr<T>(key: string, absent: T): T {
    return this.getInput<T>(key) ?? absent;
  }

  getTaskField<T = Json>(name: string): T | undefined {
    return own(this.taskContext, name) as T | undefined;
  }

  getConfig<T = Json>(key: string): T | undefined {
    return own(this.stepConfig, key) as T | undefined;
  }

  getConfigOr<T>(key: string, absent: T): T {
    return this.getConfig<T>(key) ?? absent;
  }

  /**
   * The result of a step that this one depends on, null without one. That of a direct parent came with the step;
   * another is read from the daemon, while the event loop stands still.
   */
  getDependencyResult<T = any>(step: string): T | null {
    if (Object.hasOwn(this.dependencyResults, step)) return (this.dependencyResults[step] ?? null) as T | null;
    return (nativeOf(this)?.readNow("results", step)?.["result"] ?? null) as T | null;
  }

  getDependencyField<T = any>(step: string, ...path: (string | number)[]): T | null {
    let value: Json = this.getDependencyResult(step);
    for (const part of path)
      value =
        typeof value === "object" && value !== null && Object.hasOwn(value, part) ? (value as Fields)[part] : null;
    return (value ?? null) as T | null;
  }

  /** The results of all batches of a worker step, null for those without one; of another step its only result. */
  getAllDependencyResults<T = any>(step: string): (T | null)[] {
    const batches = nativeOf(this)?.readNow("batch-results", step)?.["batches"] as { result: Json }[] | undefined;
    if (batches) return batches.map((b) => (b.result ?? null) as T | null);
    const names = Object.keys(this.dependencyResults).filter(
      (name) => name === step || (name.startsWith(`${step}_`) && /^\d+$/.test(name.slice(step.length + 1))),
    );
    return names.sort().map((name) => (this.dependencyResults[name] ?? null) as T | null);
  }

  isRetry(): boolean {
    return this.retryCount > 0;
  }

  isLastRetry(): boolean {
    return this.retryCount >= this.maxRetries - 1;
  }

  hasCheckpoint(): boolean {
    return this.checkpoint !== null;
  }

  get checkpointCursor(): any {
    return this.checkpoint?.["cursor"] ?? undefined;
  }

  get checkpointItemsProcessed(): number {
    return Number(this.checkpoint?.["items_processed"] ?? 0);
  }

  get accumulatedResults(): any {
    return this.checkpoint?.["accumulated_results"] ?? undefined;
  }
}

function objectOf(value: Json): Fields {
  return typeof value === "object" && value !== null ? (value as Fields) : {};
}

function own(fields: Fields, key: string): Json {
  return Object.hasOwn(fields, key) ? fields[key] : undefined;
}

/** Results are in an object, as result; one that a test made without it is the result itself. */
function unwrapped(kept: Json): Json {
  return typeof kept === "object" && kept !== null && Object.hasOwn(kept, "result")
    ? (kept as { result: Json }).result
    : kept;
}
