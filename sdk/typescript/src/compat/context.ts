/** The context of a step in the style of Tasker's package. */

import type { StepContext as Native } from "../context.js";
import type { Json } from "../errors.js";

type Fields = Record<string, Json>;

/** The task of an event, as native modules show it. */
export interface NapiTaskInfo {
  taskUuid: string;
  name: string;
  namespace: string;
  version: string;
  context?: any;
  correlationId: string;
  priority: number;
  [field: string]: any;
}

/** The step of an event, as native modules show it. */
export interface NapiWorkflowStep {
  workflowStepUuid: string;
  name: string;
  attempts: number;
  maxAttempts: number;
  inputs?: any;
  checkpoint?: any;
  [field: string]: any;
}

/** What the template says of the step of an event, as native modules show it. */
export interface NapiStepDefinition {
  name: string;
  handlerCallable: string;
  handlerMethod?: string;
  handlerResolver?: string;
  handlerInitialization: any;
  [field: string]: any;
}

/** The result of a step before, as native modules show it. */
export interface NapiDependencyResult {
  stepUuid: string;
  success: boolean;
  result: any;
  status: string;
  [field: string]: any;
}

/** A step as native modules show it. */
export interface NapiStepEvent {
  eventId: string;
  taskUuid: string;
  stepUuid: string;
  correlationId: string;
  task: NapiTaskInfo;
  workflowStep: NapiWorkflowStep;
  stepDefinition: NapiStepDefinition;
  dependencyResults: Record<string, any>;
  [field: string]: any;
}

/** A step as it is handed to handlers. Fields that a test leaves out are empty. */
export class FfiStepEvent {
  event_id = "";
  task_uuid = "";
  step_uuid = "";
  correlation_id = "";
  task: {
    task?: Fields;
    context?: Fields;
    task_name?: string;
    namespace_name?: string;
    version?: string;
    [field: string]: Json;
  } = {};
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

  /** An event of fields, in the style of this class or of native modules. */
  static from(given: object): FfiStepEvent {
    if (given instanceof FfiStepEvent) return given;
    const { eventId, taskUuid, stepUuid, correlationId, dependencyResults, ...more } = given as Partial<NapiStepEvent>,
      { task, workflowStep, stepDefinition, ...same } = more;
    const event = Object.assign(new FfiStepEvent(), same);
    if (eventId !== undefined) event.event_id = eventId;
    if (taskUuid !== undefined) event.task_uuid = taskUuid;
    if (stepUuid !== undefined) event.step_uuid = stepUuid;
    if (correlationId !== undefined) event.correlation_id = correlationId;
    if (dependencyResults) event.dependency_results = dependencyResults;
    if (task) event.task = { task_name: task.name, namespace_name: task.namespace, ...(task as Fields) };
    if (workflowStep) {
      const { attempts = 0, maxAttempts = 3, workflowStepUuid = "", inputs, checkpoint, name } = workflowStep;
      event.workflow_step = {
        workflow_step_uuid: workflowStepUuid,
        name,
        attempts,
        max_attempts: maxAttempts,
        inputs: (inputs ?? null) as Fields | null,
        checkpoint: (checkpoint ?? null) as Fields | null,
      };
    }
    if (stepDefinition) {
      const { name, handlerCallable, handlerMethod, handlerResolver, handlerInitialization } = stepDefinition;
      event.step_definition = {
        name,
        handler: {
          callable: handlerCallable,
          ...(handlerMethod ? { method: handlerMethod } : {}),
          ...(handlerResolver ? { resolver: handlerResolver } : {}),
          initialization: (handlerInitialization ?? {}) as Fields,
        },
      };
    }
    return event;
  }

  get eventId(): string {
    return this.event_id;
  }

  get taskUuid(): string {
    return this.task_uuid;
  }

  get stepUuid(): string {
    return this.step_uuid;
  }

  get correlationId(): string {
    return this.correlation_id;
  }

  get dependencyResults(): Record<string, any> {
    return this.dependency_results;
  }

  get workflowStep(): NapiWorkflowStep {
    const { workflow_step_uuid: workflowStepUuid = "", max_attempts: maxAttempts = 3, ...more } = this.workflow_step,
      { name = "", attempts = 0, ...same } = more;
    return { workflowStepUuid, name, attempts, maxAttempts, ...same };
  }

  get stepDefinition(): NapiStepDefinition {
    const { name = "", handler = {} } = this.step_definition;
    return {
      name,
      handlerCallable: handler.callable ?? "",
      handlerInitialization: handler.initialization ?? {},
      ...(handler.method ? { handlerMethod: handler.method } : {}),
      ...(handler.resolver ? { handlerResolver: handler.resolver } : {}),
    };
  }
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
      taskUuid: ctx.taskUuid,
      name: ctx.taskName,
      namespace: ctx.namespace,
      context: ctx.context as Fields,
      correlationId: ctx.correlationId,
      priority: ctx.priority,
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
      Object.entries(ctx.results).map(([name, result]) => [name, { success: true, result, status: "completed" }]),
    ),
  });
  natives.set(event, ctx);
  return event;
}

/** All fields of a context. */
export interface StepContextParams {
  event: object;
  taskUuid: string;
  stepUuid: string;
  correlationId: string;
  handlerName: string;
  inputData: Fields;
  dependencyResults: Fields;
  stepConfig: Fields;
  stepInputs: Fields;
  retryCount: number;
  maxRetries: number;
}

/** What the fields of a context have, and events have not. */
const fieldNames = ["event", "inputData", "stepInputs", "stepConfig"];

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
  /** The results of the direct parents, each in an object, as result; its fields are fields of that, too. */
  readonly dependencyResults: Record<string, any>;
  /** How many attempts have failed before. */
  readonly retryCount: number;
  readonly maxRetries: number;
  /** The saved progress as it is stored, or null. */
  readonly checkpoint: Fields | null;

  /** The event as it was given. */
  readonly event: FfiStepEvent;
  readonly handlerName: string;

  /** Of an event, or of fields of a context. */
  constructor(of: FfiStepEvent | NapiStepEvent | Partial<StepContextParams> | object, handlerName = "") {
    const fields = fieldNames.some((name) => Object.hasOwn(of, name)) ? (of as Partial<StepContextParams>) : undefined,
      event = FfiStepEvent.from(fields ? (fields.event ?? {}) : of);
    this.event = (fields ? (fields.event ?? event) : of) as FfiStepEvent;
    this.handlerName = fields?.handlerName ?? handlerName;
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
    this.dependencyResults = enveloped(event.dependency_results);
    this.retryCount = step.attempts ?? 0;
    this.maxRetries = step.max_attempts ?? 3;
    this.checkpoint = step.checkpoint ?? null;
    if (!fields) return;
    const { dependencyResults, inputData = {}, stepInputs = {}, stepConfig = {}, ...same } = fields;
    Object.assign(this, same, { event: this.event, inputData, stepInputs, stepConfig, taskContext: inputData });
    this.dependencyResults = enveloped(dependencyResults);
  }

  static fromFfiEvent(event: object, handlerName = ""): StepContext {
    return new StepContext(event, handlerName);
  }

  /** The names of the steps whose results came with this one. */
  getDependencyResultKeys(): string[] {
    return Object.keys(this.dependencyResults);
  }

  /** dependencyResults under another name. */
  get previousResults(): Record<string, any> {
    return this.dependencyResults;
  }

  /** One field of the task's context, or of the inputs of the step; undefined without it. */
  getInput<T = Json>(key: string): T | undefined {
    return (own(this.taskContext, key) ?? own(this.stepInputs, key)) as T | undefined;
  }

  getInputOr<T>(key: string, absent: T): T {
    const given = this.getInput<T>(key);
    return given === undefined ? absent : given;
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
    const kept = own(this.dependencyResults, step);
    if (kept !== undefined) return (unwrapped(kept) ?? null) as T | null;
    return (nativeOf(this)?.readNow("results", step)?.["result"] ?? null) as T | null;
  }

  getDependencyField<T = any>(step: string, ...path: (string | number)[]): T | null {
    let value: Json = this.getDependencyResult(step);
    for (const part of path) {
      if (typeof value !== "object" || value === null) return null;
      value = own(value as Fields, String(part));
    }
    return value as T | null;
  }

  /**
   * The results of all batches of a worker step, null for those without one; of other steps the results of those whose
   * names begin with the name.
   */
  getAllDependencyResults<T = any>(step: string): (T | null)[] {
    const batches = nativeOf(this)?.readNow("batch-results", step)?.["batches"] as { result: Json }[] | undefined;
    if (batches) return batches.map((b) => (b.result ?? null) as T | null);
    const names = Object.keys(this.dependencyResults).filter((name) => name.startsWith(step));
    const results = names.sort().map((name) => (unwrapped(this.dependencyResults[name]) ?? null) as T | null);
    return results.filter((result) => result !== null);
  }

  isRetry(): boolean {
    return this.retryCount > 0;
  }

  isLastRetry(): boolean {
    return this.retryCount >= this.maxRetries - 1;
  }

  hasCheckpoint(): boolean {
    return this.checkpointCursor !== null;
  }

  get checkpointCursor(): any {
    return this.checkpoint?.["cursor"] ?? null;
  }

  get checkpointItemsProcessed(): number {
    return Number(this.checkpoint?.["items_processed"] ?? 0);
  }

  get accumulatedResults(): any {
    return this.checkpoint?.["accumulated_results"] ?? null;
  }
}

function isObject(value: Json): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function objectOf(value: Json): Fields {
  return typeof value === "object" && value !== null ? (value as Fields) : {};
}

function own(fields: Fields, key: string): Json {
  return Object.hasOwn(fields, key) ? fields[key] : undefined;
}

/** Results by the names of their steps. The fields of each can be read where its envelope is, but are not listed. */
function enveloped(results: Fields | null | undefined): Fields {
  return Object.fromEntries(
    Object.entries(results ?? {}).map(([name, kept]) => {
      const result = unwrapped(kept);
      if (result === kept || !isObject(result)) return [name, kept];
      const both = { ...(kept as Fields) };
      for (const [field, value] of Object.entries(result))
        if (!Object.hasOwn(both, field)) Object.defineProperty(both, field, { value });
      return [name, both];
    }),
  );
}

/** Results are in an object, as result; one that a test made without it is the result itself. */
function unwrapped(kept: Json): Json {
  return typeof kept === "object" && kept !== null && Object.hasOwn(kept, "result")
    ? (kept as { result: Json }).result
    : kept;
}
