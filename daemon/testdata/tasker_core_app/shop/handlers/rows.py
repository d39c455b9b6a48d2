"""Rows in batches: an analyzer, workers that save their progress, and the sum."""

from tasker_core import StepContext, StepHandler, StepHandlerResult
from tasker_core.batch_processing import Batchable
from tasker_core.types import aggregate_batch_results


class AnalyzeRowsHandler(StepHandler, Batchable):
    handler_name = "rows_analyze"

    def call(self, context: StepContext) -> StepHandlerResult:
        rows = context.input_data["rows"]
        if rows == 0:
            return self.batch_analyzer_success(cursor_configs=[], total_items=0, batch_metadata={"source": "none"})
        cursors = self.create_cursor_ranges(total_items=rows, batch_size=100, max_batches=5)
        return self.batch_analyzer_success(
            cursor_configs=cursors,
            total_items=rows,
            worker_template_name="process_rows",
            batch_metadata={"source": context.input_data["source"]},
        )


class ProcessRowsHandler(StepHandler, Batchable):
    handler_name = "rows_process"
    STEP = 40

    def call(self, context: StepContext) -> StepHandlerResult:
        batch = self.get_batch_context(context)
        no_op = self.handle_no_op_worker(batch)
        if no_op:
            return no_op
        assert context.step_inputs["cursor"]["batch_id"] == batch.batch_id
        source = context.get_dependency_result("analyze_rows")["batch_metadata"]["source"]
        at = batch.checkpoint_cursor if batch.has_checkpoint() else batch.start_cursor
        done = dict(batch.accumulated_results or {"sum": 0, "parts": 0})
        end = min(at + self.STEP, batch.end_cursor)
        done = {"sum": done["sum"] + sum(range(at, end)), "parts": done["parts"] + 1}
        if end < batch.end_cursor:
            self.checkpoint_yield(cursor=end, items_processed=end - batch.start_cursor, accumulated_results=done)
        failed = 1 if batch.start_cursor == 0 else 0
        return self.batch_worker_success(
            items_processed=batch.batch_size,
            items_succeeded=batch.batch_size - failed,
            items_failed=failed,
            results={**done, "source": source, "saved": batch.checkpoint_items_processed},
            last_cursor=end,
        )


class SumRowsHandler(StepHandler, Batchable):
    handler_name = "rows_sum"

    def call(self, context: StepContext) -> StepHandlerResult:
        found = {name: r for name, r in context.dependency_results.items() if name.startswith("process_rows_")}
        results = [context.get_dependency_result(name) for name in sorted(found)]
        assert results == list(found.values())
        totals = aggregate_batch_results(results).model_dump()
        parts = [r["results"]["parts"] for r in results if r and "results" in r]
        sums = sum(r["results"]["sum"] for r in results if r and "results" in r)
        return self.success(
            {
                **totals,
                "sum": sums,
                "parts": sum(parts),
                "same": self.aggregate_worker_results(results)["total_processed"],
            }
        )
