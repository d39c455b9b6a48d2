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
export const CursorConfig = RustCursorConfig;
export type CursorConfig = RustCursorConfig;

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

const mostErrors = 100;

export function aggregateBatchResults(results: Iterable<Json> | Fields): BatchAggregationResult {
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

  private constructor(
    private readonly context: StepContext,
    readonly inputs: RustBatchWorkerInputs,
  ) {
    this.cursor = inputs.cursor;
    ({
      batch_id: this.batchId,
      start_cursor: this.startCursor,
      end_cursor: this.endCursor,
      batch_size: this.batchSize,
    } = inputs.cursor);
    this.isNoOp = inputs.is_no_op;
    ({ cursor_field: this.cursorField, failure_strategy: this.failureStrategy } = inputs.batch_metadata);
  }

  /** Of a step, which need not be a batch: then there are no cursors. */
  static fromStepData(data: StepContext | FfiStepEvent | Native): BatchWorkerContext {
    const context =
      data instanceof StepContext
        ? data
        : new StepContext(
            data instanceof FfiStepEvent || !Object.hasOwn(data, "fence")
              ? (data as FfiStepEvent)
              : eventOf(data as Native),
          );
    const given = context.event.workflow_step.inputs as Partial<RustBatchWorkerInputs> | null | undefined,
      none = new RustBatchWorkerInputs();
    return new BatchWorkerContext(context, {
      ...none,
      ...given,
      cursor: { ...none.cursor, ...given?.cursor },
      batch_metadata: { ...none.batch_metadata, ...given?.batch_metadata },
    });
  }

  static fromStepContext(context: StepContext): BatchWorkerContext {
    return BatchWorkerContext.fromStepData(context);
  }

  hasCheckpoint(): boolean {
    return this.context.hasCheckpoint();
  }

  get checkpointCursor(): any {
    return this.context.checkpointCursor;
  }

  get accumulatedResults(): any {
    return this.context.accumulatedResults;
  }

  get checkpointItemsProcessed(): number {
    return this.context.checkpointItemsProcessed;
  }
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

/** Batches: their analyzer, their workers, and who sums up. */
export abstract class BatchableCapable {
  /** Divides items into the parts of workerCount batches, from 0 on. */
  abstract createCursorConfigs(totalItems: number, workerCount: number): RustCursorConfig[];
  /**
   * Divides items into parts of batchSize, or larger ones if there would be more than maxBatches: no item is left
   * out.
   */
  abstract createCursorRanges(totalItems: number, batchSize: number, maxBatches?: number): RustCursorConfig[];
  /** Creates a batch for each cursor. The metadata are in the result, as batch_metadata and field by field. */
  abstract batchSuccess(
    workerTemplate: string,
    cursors: Partial<RustCursorConfig>[],
    metadata?: Fields,
    totalItems?: number,
  ): BatchableResult;
  abstract batchAnalyzerSuccess(
    cursors: Partial<RustCursorConfig>[],
    totalItems: number,
    workerTemplate: string,
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
  abstract batchWorkerSuccess(counts: BatchCounts | number, resultData?: Fields): StepHandlerResult;
  abstract batchWorkerComplete(processedCount: number | BatchCounts, resultData?: Fields): StepHandlerResult;
  abstract batchFailure(message: string, errorType?: string, retryable?: boolean, metadata?: Fields): StepHandlerResult;
  /** Saves progress and ends this execution, which continues from there. */
  abstract checkpointYield(
    point: { cursor: Json; itemsProcessed: number; accumulatedResults?: Json } | Json,
    itemsProcessed?: number,
    accumulatedResults?: Json,
  ): Promise<never>;
  abstract aggregateWorkerResults(results: readonly Json[]): Fields;
}

function cursorsOf(totalItems: number, size: number): RustCursorConfig[] {
  const cursors: RustCursorConfig[] = [];
  for (let start = 0; start < totalItems; start += size) {
    const end = Math.min(start + size, totalItems);
    cursors.push({
      batch_id: String(cursors.length + 1).padStart(3, "0"),
      start_cursor: start,
      end_cursor: end,
      batch_size: end - start,
    });
  }
  return cursors;
}

/** Cursors with all of their fields; those in the style of JavaScript are taken too. */
function filled(given: readonly object[]): RustCursorConfig[] {
  return given.map((one, i) => {
    const c = one as Fields,
      start = c["start_cursor"] ?? c["startCursor"] ?? null,
      end = c["end_cursor"] ?? c["endCursor"] ?? null;
    const between = typeof start === "number" && typeof end === "number" ? end - start : 1;
    return {
      batch_id: String(c["batch_id"] ?? c["batchId"] ?? String(i + 1).padStart(3, "0")),
      start_cursor: start,
      end_cursor: end,
      batch_size: Number(c["batch_size"] ?? c["batchSize"] ?? between),
    };
  });
}

const batchable: { [K in keyof BatchableCapable]: BatchableCapable[K] } = {
  createCursorConfigs(totalItems, workerCount) {
    return cursorsOf(totalItems, Math.max(Math.ceil(totalItems / Math.max(workerCount, 1)), 1));
  },
  createCursorRanges(totalItems, batchSize, maxBatches = 0) {
    return cursorsOf(totalItems, Math.max(batchSize, maxBatches > 0 ? Math.ceil(totalItems / maxBatches) : 0, 1));
  },
  batchSuccess(workerTemplate, cursors, metadata = {}, totalItems) {
    const configs = filled(cursors),
      total = totalItems ?? configs.reduce((sum, c) => sum + c.batch_size, 0);
    const outcome = configs.length === 0 ? noBatches() : createBatches(workerTemplate, configs.length, configs, total);
    return StepHandlerResult.success({
      ...metadata,
      batch_metadata: metadata,
      worker_count: configs.length,
      total_items: total,
      batch_processing_outcome: outcome,
    });
  },
  batchAnalyzerSuccess(cursors, totalItems, workerTemplate, metadata = {}) {
    return batchable.batchSuccess(workerTemplate, cursors, metadata, totalItems);
  },
  noBatchesResult(reason = "", metadata = {}) {
    return StepHandlerResult.success({
      ...metadata,
      batch_metadata: metadata,
      ...(reason ? { reason } : {}),
      worker_count: 0,
      total_items: 0,
      batch_processing_outcome: noBatches(),
    });
  },
  noBatchesOutcome(reason, metadata) {
    return batchable.noBatchesResult(reason, metadata);
  },
  getBatchContext(context) {
    return context.event.workflow_step.inputs ? BatchWorkerContext.fromStepData(context) : null;
  },
  getBatchWorkerInputs(context) {
    return batchable.getBatchContext(context)?.inputs ?? null;
  },
  handleNoOpWorker(context) {
    const batch = context instanceof StepContext ? batchable.getBatchContext(context) : context;
    if (!batch?.isNoOp) return null;
    return StepHandlerResult.success(
      {
        batch_id: batch.batchId,
        no_op: true,
        processed_count: 0,
        items_processed: 0,
        items_succeeded: 0,
        items_failed: 0,
      },
      { no_op: true },
    );
  },
  batchWorkerSuccess(counts, resultData = {}) {
    const {
      processedCount,
      itemsProcessed = processedCount ?? 0,
      itemsFailed = 0,
      itemsSkipped = 0,
      itemsSucceeded = itemsProcessed - itemsFailed - itemsSkipped,
      results,
      errors,
      lastCursor,
      resultData: data = resultData,
      metadata = {},
    } = typeof counts === "number" ? { itemsProcessed: counts } : counts;
    return StepHandlerResult.success(
      {
        batch_worker: true,
        processed_count: itemsProcessed,
        items_processed: itemsProcessed,
        items_succeeded: itemsSucceeded,
        items_failed: itemsFailed,
        items_skipped: itemsSkipped,
        ...(results === undefined ? {} : { results }),
        ...(errors === undefined ? {} : { errors }),
        ...(lastCursor === undefined ? {} : { last_cursor: lastCursor }),
        ...data,
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
    if (itemsProcessed !== undefined) return Promise.reject(new Yield(point, itemsProcessed, accumulatedResults));
    const {
      cursor,
      itemsProcessed: items,
      accumulatedResults: results,
    } = point as { cursor: Json; itemsProcessed: number; accumulatedResults?: Json };
    return Promise.reject(new Yield(cursor, items, results));
  },
  aggregateWorkerResults(results) {
    return { ...aggregateBatchResults(results) };
  },
};

/** Gives an object the methods of BatchableCapable. */
export function applyBatchable<T extends object>(handler: T): T & BatchableCapable {
  return Object.assign(handler, batchable) as T & BatchableCapable;
}
