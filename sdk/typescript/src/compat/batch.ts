/** Batches in the style of Tasker's package. */

import type { StepContext as Native } from "../context.js";
import { Yield, type Json } from "../errors.js";
import { FfiStepEvent, StepContext, eventOf } from "./context.js";
import { ErrorType, StepHandlerResult, type BatchableResult } from "./result.js";

type Fields = Record<string, Json>;

/** The part of one batch: cursors of any kind, the end not included. */
export class RustCursorConfig {
  batch_id = "";
  start_cursor: any;
  end_cursor: any;
  batch_size = 0;
}

/** The part of one batch in the style of JavaScript. */
export class CursorConfig {
  startCursor = 0;
  endCursor = 0;
  stepSize = 1;
  metadata: Fields = {};
}

/** The part of one of some workers. */
export class BatchWorkerConfig {
  batch_id = "";
  cursor_start = 0;
  cursor_end = 0;
  row_count = 0;
  worker_index = 0;
  total_workers = 0;
  metadata?: Fields;
}

/** A part with its names in every style: only those of one are seen where it is copied or becomes JSON. */
export type Cursor = RustCursorConfig & CursorConfig & BatchWorkerConfig;

/** What an analyzer found. */
export class BatchAnalyzerOutcome {
  cursorConfigs: CursorConfig[] = [];
  totalItems: number | null = null;
  batchMetadata: Fields = {};
}

/** What a worker did. */
export class BatchWorkerOutcome {
  itemsProcessed = 0;
  itemsSucceeded = 0;
  itemsFailed = 0;
  itemsSkipped = 0;
  results: Fields[] = [];
  errors: Fields[] = [];
  lastCursor: number | null = null;
  batchMetadata: Fields = {};
}

/** What the step after batches finds. */
export class BatchAggregationScenario {
  isNoBatches = false;
  /** The result of the step that created the batches. */
  batchableResult: Fields = {};
  /** The results of the batches by their names. */
  batchResults: Record<string, Fields> = {};
  workerCount = 0;
}

/** How batches deal with failures. */
export type FailureStrategy = "continue_on_failure" | "fail_fast" | "isolate";
export const FailureStrategy = Object.freeze({
  CONTINUE_ON_FAILURE: "continue_on_failure",
  FAIL_FAST: "fail_fast",
  ISOLATE: "isolate",
} as const);

export class BatchMetadata {
  cursor_field = "";
  failure_strategy: FailureStrategy = "fail_fast";
}

/** What a batch is given. */
export class RustBatchWorkerInputs {
  cursor = new RustCursorConfig();
  batch_metadata = new BatchMetadata();
  is_no_op = false;
}
export const BatchWorkerInputs = RustBatchWorkerInputs;
export type BatchWorkerInputs = RustBatchWorkerInputs;

export class NoBatchesOutcome {
  readonly type = "no_batches";
}

export class CreateBatchesOutcome {
  readonly type = "create_batches";

  constructor(
    readonly worker_template_name: string,
    readonly worker_count: number,
    readonly cursor_configs: RustCursorConfig[],
    readonly total_items: number,
  ) {}
}

/** The outcome of a batchable step. */
export type BatchProcessingOutcome = NoBatchesOutcome | CreateBatchesOutcome;
export const BatchProcessingOutcome = Object.freeze({ noBatches, createBatches });

export function noBatches(): BatchProcessingOutcome {
  return new NoBatchesOutcome();
}

export function createBatches(
  workerTemplate: string,
  workerCount: number,
  cursors: RustCursorConfig[],
  totalItems: number,
): BatchProcessingOutcome {
  if (cursors.length !== workerCount)
    throw new Error(`create batches: ${cursors.length} cursors for ${workerCount} workers: want one each`);
  return new CreateBatchesOutcome(workerTemplate, workerCount, cursors, totalItems);
}

export function isNoBatches(outcome: BatchProcessingOutcome): outcome is NoBatchesOutcome {
  return outcome.type === "no_batches";
}

export function isCreateBatches(outcome: BatchProcessingOutcome): outcome is CreateBatchesOutcome {
  return outcome.type === "create_batches";
}

/** The results of batches, summed up. */
export class BatchAggregationResult {
  total_processed = 0;
  total_succeeded = 0;
  total_failed = 0;
  total_skipped = 0;
  batch_count = 0;
  /** From 0 to 1. */
  success_rate = 0;
  /** The first 100. */
  errors: Json[] = [];
  error_count = 0;
}

export function aggregateBatchResults(results: Iterable<Json> | Fields, mostErrors = 100): BatchAggregationResult {
  const all = new BatchAggregationResult(),
    list = Symbol.iterator in results ? [...(results as Iterable<Json>)] : Object.values(results);
  for (const one of list) {
    if (typeof one !== "object" || one === null) continue;
    const r = one as Fields,
      count = (...names: string[]): number | undefined => {
        for (const name of names) if (typeof r[name] === "number") return r[name];
        return undefined;
      };
    if (r["no_op"] === true) continue;
    const processed =
        count("items_processed", "processed_count", "total_processed", "rows_processed", "processed") ?? 0,
      failed = count("items_failed", "failed_count") ?? 0;
    const skipped = count("items_skipped") ?? 0;
    all.batch_count++;
    all.total_processed += processed;
    all.total_failed += failed;
    all.total_skipped += skipped;
    all.total_succeeded += count("items_succeeded", "success_count") ?? Math.max(processed - failed - skipped, 0);
    const errors = Array.isArray(r["errors"]) ? (r["errors"] as Json[]) : [];
    all.errors.push(...errors.slice(0, mostErrors - all.errors.length));
    all.error_count += Math.max(errors.length, count("error_count") ?? 0);
  }
  all.success_rate = all.total_processed > 0 ? all.total_succeeded / all.total_processed : 0;
  return all;
}

/** A batch: its cursors, and the progress to continue from. */
export class BatchWorkerContext {
  readonly cursor: RustCursorConfig;
  readonly batchId: string;
  readonly startCursor: any;
  readonly endCursor: any;
  readonly batchSize: number;
  readonly isNoOp: boolean;
  readonly cursorField: string;
  readonly failureStrategy: string;
  readonly cursorConfig: CursorConfig;
  readonly batchIndex: number = 0;
  readonly totalBatches: number = 1;
  readonly batchMetadata: Fields;
  readonly stepSize: number;

  private constructor(
    readonly inputs: RustBatchWorkerInputs,
    /** The saved progress, empty without one. */
    readonly checkpoint: Fields,
    more: Partial<Pick<BatchWorkerContext, "batchIndex" | "totalBatches" | "batchMetadata" | "cursorConfig">> = {},
  ) {
    const { cursor, batch_metadata: metadata } = inputs;
    this.cursor = cursor;
    ({
      batch_id: this.batchId,
      start_cursor: this.startCursor,
      end_cursor: this.endCursor,
      batch_size: this.batchSize,
    } = cursor);
    this.isNoOp = inputs.is_no_op;
    ({ cursor_field: this.cursorField, failure_strategy: this.failureStrategy } = metadata);
    this.cursorConfig = more.cursorConfig ?? {
      startCursor: cursor.start_cursor,
      endCursor: cursor.end_cursor,
      stepSize: cursor.batch_size,
      metadata: {},
    };
    this.stepSize = this.cursorConfig.stepSize;
    this.batchMetadata = more.batchMetadata ?? { ...metadata };
    this.batchIndex = more.batchIndex ?? 0;
    this.totalBatches = more.totalBatches ?? 1;
  }

  /** Of a step, which need not be a batch: then there are no cursors. */
  static fromStepData(data: StepContext | FfiStepEvent | Native): BatchWorkerContext {
    if (data instanceof StepContext) return BatchWorkerContext.fromStepContext(data);
    const event = data instanceof FfiStepEvent || !Object.hasOwn(data, "fence") ? data : eventOf(data as Native);
    return BatchWorkerContext.fromStepContext(new StepContext(event as FfiStepEvent));
  }

  static fromStepContext(context: StepContext): BatchWorkerContext {
    const given = inputsOf(context) as Partial<RustBatchWorkerInputs> | undefined,
      none = new RustBatchWorkerInputs();
    const inputs = {
      ...none,
      ...given,
      cursor: { ...none.cursor, ...given?.cursor },
      batch_metadata: { ...none.batch_metadata, ...given?.batch_metadata },
    };
    const own = (given?.cursor ?? {}) as Fields,
      more = given?.batch_metadata ? {} : { batchMetadata: {} };
    const cursorConfig = {
      startCursor: inputs.cursor.start_cursor as number,
      endCursor: inputs.cursor.end_cursor as number,
      stepSize: Number(own["step_size"] ?? own["batch_size"] ?? 1),
      metadata: (own["metadata"] ?? {}) as Fields,
    };
    return new BatchWorkerContext(inputs, context.checkpoint ?? {}, { ...more, cursorConfig });
  }

  /** Of fields: batch_id, cursor_config or its fields, batch_index, total_batches and batch_metadata. */
  static fromFields(data: Fields, checkpoint: Fields = {}): BatchWorkerContext {
    const own = (data["cursor_config"] ?? data) as Fields,
      start = own["start_cursor"] ?? 0,
      end = own["end_cursor"] ?? 0;
    const none = new RustBatchWorkerInputs(),
      size = own["batch_size"] ?? (typeof start === "number" && typeof end === "number" ? end - start : 0);
    const cursor = {
      batch_id: String(data["batch_id"] ?? ""),
      start_cursor: start,
      end_cursor: end,
      batch_size: Number(size),
    };
    return new BatchWorkerContext({ ...none, cursor, is_no_op: data["is_no_op"] === true }, checkpoint, {
      batchIndex: Number(data["batch_index"] ?? 0),
      totalBatches: Number(data["total_batches"] ?? 1),
      batchMetadata: (data["batch_metadata"] ?? {}) as Fields,
      cursorConfig: {
        startCursor: start as number,
        endCursor: end as number,
        stepSize: Number(own["step_size"] ?? 1),
        metadata: (own["metadata"] ?? {}) as Fields,
      },
    });
  }

  hasCheckpoint(): boolean {
    return (this.checkpoint["cursor"] ?? undefined) !== undefined;
  }

  get checkpointCursor(): any {
    return this.checkpoint["cursor"] ?? undefined;
  }

  get accumulatedResults(): any {
    return this.checkpoint["accumulated_results"] ?? undefined;
  }

  get checkpointItemsProcessed(): number {
    return Number(this.checkpoint["items_processed"] ?? 0);
  }
}

export function createBatchWorkerContext(data: Fields, checkpoint?: Fields): BatchWorkerContext {
  return BatchWorkerContext.fromFields(data, checkpoint);
}

/** The counts of a batch; all but the number of processed items may be absent. */
export interface BatchCounts {
  processedCount?: number;
  itemsProcessed?: number;
  itemsSucceeded?: number;
  itemsFailed?: number;
  itemsSkipped?: number;
  results?: Json;
  errors?: Json[];
  lastCursor?: Json;
  resultData?: Fields;
  metadata?: Fields;
}

/** Ends an execution with its progress: a handler that returns or awaits it yields. */
export class CheckpointYield extends StepHandlerResult {
  constructor(private readonly point: [cursor: Json, itemsProcessed: number, accumulated?: Json]) {
    const [cursor, items, accumulated] = point;
    super({
      success: true,
      result: {
        type: "checkpoint_yield",
        cursor,
        items_processed: items,
        ...(accumulated === undefined ? {} : { accumulated_results: accumulated }),
      },
      metadata: { checkpoint_yield: true, batch_worker: true },
    });
    Object.defineProperty(this, "point", { enumerable: false });
  }

  /** Rejects: handlers return it, or await it where they stand. */
  then(resolve?: (value: never) => unknown, reject?: (why: unknown) => unknown): Promise<unknown> {
    return Promise.reject(new Yield(...this.point)).then(resolve, reject);
  }

  catch(reject: (why: unknown) => unknown): Promise<unknown> {
    return this.then(undefined, reject);
  }
}

/** Batches: their analyzer, their workers, and who sums up. */
export abstract class BatchableCapable {
  abstract createCursorConfig(start: number, end: number, stepSize?: number, metadata?: Fields): Cursor;
  /** Divides items into the parts of workerCount batches, from 0 on. */
  abstract createCursorConfigs(totalItems: number, workerCount: number): Cursor[];
  /**
   * Divides items into parts of batchSize, or larger ones if there would be more than maxBatches: no item is left
   * out.
   */
  abstract createCursorRanges(
    totalItems: number,
    batchSize: number,
    stepSize?: number,
    maxBatches?: number,
  ): Cursor[];
  abstract createBatchOutcome(
    totalItems: number,
    batchSize: number,
    stepSize?: number,
    batchMetadata?: Fields,
  ): BatchAnalyzerOutcome;
  abstract createWorkerOutcome(
    itemsProcessed: number,
    itemsSucceeded?: number,
    itemsFailed?: number,
    itemsSkipped?: number,
    results?: Fields[],
    errors?: Fields[],
    lastCursor?: number | null,
    batchMetadata?: Fields,
  ): BatchWorkerOutcome;
  /** Creates a batch for each cursor. The metadata are in the result, as batch_metadata and field by field. */
  abstract batchSuccess(
    workerTemplate: string,
    cursors: Partial<Cursor>[],
    metadata?: Fields,
    totalItems?: number,
  ): BatchableResult;
  /** Of an outcome with its metadata, or of cursors. */
  abstract batchAnalyzerSuccess(
    found: BatchAnalyzerOutcome | Partial<Cursor>[],
    totalItems?: number | Fields,
    workerTemplate?: string,
    metadata?: Fields,
  ): BatchableResult;
  /** There is nothing to do. */
  abstract noBatchesResult(reason?: string, metadata?: Fields): BatchableResult;
  abstract noBatchesOutcome(reason?: string, metadata?: Fields): BatchableResult;
  /** The batch of a step, or null. */
  abstract getBatchContext(context: StepContext): BatchWorkerContext | null;
  abstract getBatchWorkerInputs(context: StepContext): RustBatchWorkerInputs | null;
  /** The result of a placeholder without work, or null. */
  abstract handleNoOpWorker(context: StepContext | BatchWorkerContext | null): StepHandlerResult | null;
  /** Of an outcome with metadata, or of counts with more fields of the result. */
  abstract batchWorkerSuccess(counts: BatchWorkerOutcome | BatchCounts | number, more?: Fields): StepHandlerResult;
  abstract batchWorkerComplete(processedCount: number | BatchCounts, resultData?: Fields): StepHandlerResult;
  abstract batchFailure(message: string, errorType?: string, retryable?: boolean, metadata?: Fields): StepHandlerResult;
  /** Saves progress and ends this execution, which continues from there. */
  abstract checkpointYield(
    point: { cursor: Json; itemsProcessed: number; accumulatedResults?: Json } | Json,
    itemsProcessed?: number,
    accumulatedResults?: Json,
  ): CheckpointYield;
  abstract aggregateWorkerResults(results: readonly Json[]): Fields;
  abstract detectAggregationScenario(
    results: Fields,
    batchableStep: string,
    workerPrefix: string,
  ): BatchAggregationScenario;
  abstract noBatchesAggregationResult(zeroMetrics?: Fields): StepHandlerResult;
  /** Sums up what the batches did, with a function. */
  abstract aggregateBatchWorkerResults(
    scenario: BatchAggregationScenario,
    zeroMetrics?: Fields,
    aggregate?: (results: Record<string, any>) => Fields,
  ): StepHandlerResult;
}
export type Batchable = BatchableCapable;

/** The results of batches among those of the steps before; none of them is an error. */
export function detectAggregationScenario(
  results: Fields,
  batchableStep: string,
  workerPrefix: string,
): BatchAggregationScenario {
  const fieldsOf = (kept: Json): Fields => {
    if (typeof kept !== "object" || kept === null) return {};
    return (Object.hasOwn(kept, "result") ? ((kept as Fields)["result"] ?? {}) : kept) as Fields;
  };
  const found: Json = results[batchableStep];
  if (found === undefined || found === null)
    throw new Error(`sum up batches: there is no result of the step ${batchableStep}`);
  const batchableResult = fieldsOf(found);
  if ((batchableResult["batch_processing_outcome"] as Fields | undefined)?.["type"] === "no_batches")
    return { isNoBatches: true, batchableResult, batchResults: {}, workerCount: 0 };
  const batches = Object.entries(results).filter(([name]) => name.startsWith(workerPrefix));
  if (batches.length === 0)
    throw new Error(`sum up batches: no step begins with ${workerPrefix}, and ${batchableStep} has created batches`);
  return {
    isNoBatches: false,
    batchableResult,
    batchResults: Object.fromEntries(batches.map(([name, kept]) => [name, fieldsOf(kept)])),
    workerCount: batches.length,
  };
}

const cursorNames = {
  rust: ["batch_id", "start_cursor", "end_cursor", "batch_size"],
  camel: ["startCursor", "endCursor", "stepSize", "metadata"],
  worker: ["batch_id", "cursor_start", "cursor_end", "row_count", "worker_index", "total_workers"],
} as const;

/** A part whose other names are hidden. */
function cursorOf(
  start: number,
  end: number,
  index: number,
  of: number,
  stepSize: number,
  style: keyof typeof cursorNames,
): Cursor {
  const all: Fields = {
    batch_id: String(index + 1).padStart(3, "0"),
    start_cursor: start,
    end_cursor: end,
    batch_size: end - start,
    startCursor: start,
    endCursor: end,
    stepSize,
    metadata: {},
    cursor_start: start,
    cursor_end: end,
    row_count: end - start,
    worker_index: index,
    total_workers: of,
  };
  const seen: readonly string[] = cursorNames[style],
    cursor = {};
  for (const [name, value] of Object.entries(all))
    Object.defineProperty(cursor, name, { value, enumerable: seen.includes(name), writable: true, configurable: true });
  return cursor as Cursor;
}

function cursorsOf(totalItems: number, size: number, stepSize: number, style: keyof typeof cursorNames): Cursor[] {
  const starts: number[] = [];
  for (let start = 0; start < totalItems; start += size) starts.push(start);
  return starts.map((start, i) =>
    cursorOf(start, Math.min(start + size, totalItems), i, starts.length, stepSize, style),
  );
}

/** The inputs of a step: those of its event, or those that a test has given it. Other steps have the task's context. */
function inputsOf({ event, stepInputs, taskContext }: StepContext): Fields | undefined {
  const given = event ? (FfiStepEvent.from(event).workflow_step?.inputs ?? undefined) : undefined;
  return given ?? (stepInputs === taskContext ? undefined : stepInputs);
}

/** Cursors with all of the engine's fields; those in other styles are taken too. */
function filled(given: readonly object[]): RustCursorConfig[] {
  return given.map((one, i) => {
    const c = one as Fields,
      start = c["start_cursor"] ?? c["startCursor"] ?? c["cursor_start"] ?? null,
      end = c["end_cursor"] ?? c["endCursor"] ?? c["cursor_end"] ?? null;
    const between = typeof start === "number" && typeof end === "number" ? end - start : 1;
    return {
      batch_id: String(c["batch_id"] ?? c["batchId"] ?? String(i + 1).padStart(3, "0")),
      start_cursor: start,
      end_cursor: end,
      batch_size: Number(c["batch_size"] ?? c["batchSize"] ?? c["row_count"] ?? between),
    };
  });
}

const batchable: { [K in keyof BatchableCapable]: BatchableCapable[K] } = {
  createCursorConfig(start, end, stepSize = 1, metadata = {}) {
    return Object.assign(cursorOf(start, end, 0, 1, stepSize, "camel"), { metadata });
  },
  createCursorConfigs(totalItems, workerCount) {
    if (!(workerCount > 0)) throw new Error(`divide ${totalItems} items: want at least one worker`);
    const cursors = cursorsOf(totalItems, Math.max(Math.ceil(totalItems / workerCount), 1), 1, "worker");
    for (const cursor of cursors) cursor.total_workers = workerCount;
    return cursors;
  },
  createCursorRanges(totalItems, batchSize, stepSize = 1, maxBatches = 0) {
    if (totalItems > 0 && !(batchSize > 0)) throw new Error(`divide ${totalItems} items: want at least one a batch`);
    const least = maxBatches > 0 ? Math.ceil(totalItems / maxBatches) : 0;
    return cursorsOf(totalItems, Math.max(batchSize, least), stepSize, "camel");
  },
  createBatchOutcome(totalItems, batchSize, stepSize, batchMetadata = {}) {
    const cursorConfigs = batchable.createCursorRanges(totalItems, batchSize, stepSize);
    return { cursorConfigs, totalItems, batchMetadata };
  },
  createWorkerOutcome(
    itemsProcessed,
    itemsSucceeded = 0,
    itemsFailed = 0,
    itemsSkipped = 0,
    results = [],
    errors = [],
    lastCursor = null,
    batchMetadata = {},
  ) {
    return {
      itemsProcessed,
      itemsSucceeded: itemsSucceeded || itemsProcessed,
      itemsFailed,
      itemsSkipped,
      results,
      errors,
      lastCursor,
      batchMetadata,
    };
  },
  batchSuccess(workerTemplate, cursors, metadata = {}, totalItems) {
    const configs = filled(cursors),
      total = totalItems ?? configs.reduce((sum, c) => sum + c.batch_size, 0);
    const outcome = configs.length === 0 ? noBatches() : createBatches(workerTemplate, configs.length, configs, total);
    const result = { worker_count: configs.length, total_items: total, batch_processing_outcome: outcome };
    return StepHandlerResult.success({ ...metadata, batch_metadata: metadata, ...result }, metadata);
  },
  batchAnalyzerSuccess(found, totalItems, workerTemplate = "", metadata = {}) {
    if (Array.isArray(found)) return batchable.batchSuccess(workerTemplate, found, metadata, totalItems as number);
    const { cursorConfigs, totalItems: total, batchMetadata } = found;
    const outcome = {
      cursor_configs: cursorConfigs.map((c) => ({
        start_cursor: c.startCursor,
        end_cursor: c.endCursor,
        step_size: c.stepSize,
        metadata: c.metadata,
      })),
      total_items: total,
      batch_metadata: batchMetadata,
    };
    return StepHandlerResult.success({ batch_analyzer_outcome: outcome }, (totalItems ?? {}) as Fields);
  },
  noBatchesResult(reason = "", metadata = {}) {
    const result = { worker_count: 0, total_items: 0, batch_processing_outcome: noBatches() },
      why = reason ? { reason } : {};
    return StepHandlerResult.success({ ...metadata, batch_metadata: metadata, ...why, ...result }, metadata);
  },
  noBatchesOutcome(reason, metadata) {
    return batchable.noBatchesResult(reason, metadata);
  },
  getBatchContext(context) {
    const inputs = inputsOf(context);
    if (inputs && Object.hasOwn(inputs, "cursor")) return BatchWorkerContext.fromStepContext(context);
    const own =
      context.stepConfig?.["batch_context"] ?? context.inputData?.["batch_context"] ?? inputs?.["batch_context"];
    return own ? BatchWorkerContext.fromFields(own as Fields, context.checkpoint ?? {}) : null;
  },
  getBatchWorkerInputs(context) {
    const inputs = inputsOf(context);
    return inputs && Object.keys(inputs).length > 0 ? (inputs as unknown as RustBatchWorkerInputs) : null;
  },
  handleNoOpWorker(context) {
    const batch = context instanceof BatchWorkerContext ? context.inputs : context && inputsOf(context);
    if (!batch?.is_no_op) return null;
    const { cursor } = batch as Partial<RustBatchWorkerInputs>;
    return StepHandlerResult.success(
      {
        batch_id: cursor?.batch_id || "no_op",
        no_op: true,
        processed_count: 0,
        items_processed: 0,
        items_succeeded: 0,
        items_failed: 0,
      },
      { no_op: true },
    );
  },
  batchWorkerSuccess(given, more = {}) {
    const counts: BatchCounts = typeof given === "number" ? { itemsProcessed: given } : (given as BatchCounts),
      outcome = (counts as Partial<BatchWorkerOutcome>).batchMetadata; // of createWorkerOutcome
    const {
      processedCount,
      itemsProcessed = processedCount ?? 0,
      itemsFailed = 0,
      itemsSkipped = 0,
      itemsSucceeded = itemsProcessed - itemsFailed - itemsSkipped,
      results,
      errors,
      lastCursor,
      resultData = outcome ? {} : more,
      metadata = outcome ? more : {},
    } = counts;
    const fields = {
      items_processed: itemsProcessed,
      items_succeeded: itemsSucceeded,
      items_failed: itemsFailed,
      items_skipped: itemsSkipped,
      ...(results === undefined ? {} : { results }),
      ...(errors === undefined ? {} : { errors }),
      ...(lastCursor === undefined ? {} : { last_cursor: lastCursor }),
    };
    return StepHandlerResult.success(
      {
        batch_worker: true,
        processed_count: itemsProcessed,
        ...fields,
        ...(outcome ? { batch_worker_outcome: { ...fields, batch_metadata: outcome } } : {}),
        ...resultData,
      },
      metadata,
    );
  },
  batchWorkerComplete(processedCount, resultData) {
    return batchable.batchWorkerSuccess(processedCount, resultData);
  },
  batchFailure(message, errorType = ErrorType.HANDLER_ERROR, retryable = true, metadata = {}) {
    return StepHandlerResult.failure(message, errorType, retryable, metadata);
  },
  checkpointYield(point, itemsProcessed, accumulatedResults) {
    if (itemsProcessed !== undefined) return new CheckpointYield([point, itemsProcessed, accumulatedResults]);
    const { cursor, itemsProcessed: items, accumulatedResults: results } = point as Fields;
    return new CheckpointYield([cursor, items as number, results]);
  },
  aggregateWorkerResults(results) {
    return { ...aggregateBatchResults(results) };
  },
  detectAggregationScenario,
  noBatchesAggregationResult(zeroMetrics = {}) {
    return StepHandlerResult.success({ worker_count: 0, scenario: "no_batches", ...zeroMetrics });
  },
  aggregateBatchWorkerResults(scenario, zeroMetrics, aggregate = (results) => ({ batch_results: results })) {
    const { isNoBatches, batchResults, workerCount } = scenario;
    if (isNoBatches) return batchable.noBatchesAggregationResult(zeroMetrics);
    return StepHandlerResult.success({
      ...aggregate(batchResults),
      worker_count: workerCount,
      scenario: "with_batches",
    });
  },
};

/** Gives an object the methods of BatchableCapable. */
export function applyBatchable<T extends object>(handler: T): T & BatchableCapable {
  return Object.assign(handler, batchable) as T & BatchableCapable;
}

/** The methods of BatchableCapable as a class. */
export class BatchableMixin {
  static aggregateWorkerResults(results: Iterable<Json>, mostErrors?: number): BatchAggregationResult {
    return aggregateBatchResults(results, mostErrors);
  }
}
export interface BatchableMixin extends BatchableCapable {}
applyBatchable(BatchableMixin.prototype);
