"""The lines of a ledger in batches: outcomes, inputs of batches, partial failures and what is behind them."""

from __future__ import annotations

from typing import Any

from tasker_core.batch_processing import Batchable, BatchAggregationScenario
from tasker_core.step_handler import StepHandler
from tasker_core.types import StepContext, StepHandlerResult


class SplitLedgerHandler(StepHandler, Batchable):
    handler_name = "ledger_split"

    def call(self, context: StepContext) -> StepHandlerResult:
        lines = context.get_input("lines")
        if context.get_input("ranges"):
            outcome = self.create_batch_outcome_from_ranges(context.get_input("ranges"), total_items=lines)
        else:
            outcome = self.create_batch_outcome(total_items=lines, batch_size=10, batch_metadata={"currency": "EUR"})
        return self.batch_analyzer_success(outcome, worker_template_name="book_lines")


class BookLinesHandler(StepHandler, Batchable):
    handler_name = "ledger_book"
    CHUNK = 4

    def call(self, context: StepContext) -> StepHandlerResult:
        if (nothing := self.handle_no_op_worker(context)) is not None:
            return nothing
        inputs = self.get_batch_worker_inputs(context)
        batch = self.get_batch_context(context)
        assert inputs is not None and batch is not None and inputs.cursor.batch_id == batch.batch_id
        start = batch.checkpoint_cursor if batch.has_checkpoint() else inputs.cursor.start_cursor
        end = min(start + self.CHUNK, batch.end_cursor)
        sums = batch.accumulated_results or {"sum": 0}
        sums = {"sum": sums["sum"] + sum(range(start, end))}
        if end < batch.end_cursor:
            return self.checkpoint_yield(cursor=end, items_processed=end - batch.start_cursor, accumulated_results=sums)
        count = inputs.cursor.batch_size
        outcome = self.create_worker_outcome(
            items_processed=count,
            items_succeeded=count - 1,
            items_failed=1,
            errors=[{"line": end - 1}],
            last_cursor=end,
            batch_metadata=sums,
        )
        return self.batch_worker_partial_failure(outcome, "a line has no account")


class CloseLedgerHandler(StepHandler, Batchable):
    handler_name = "ledger_close"

    def call(self, context: StepContext) -> StepHandlerResult:
        scenario: BatchAggregationScenario = self.detect_aggregation_scenario(
            context.dependency_results, "split", "book_lines_"
        )

        def close(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
            totals = Batchable.aggregate_worker_results(list(results.values()))
            booked = sum(r["batch_metadata"]["sum"] for r in results.values())
            return {"booked": booked, "failed": totals["total_failed"], "errors": totals["error_count"]}

        return self.aggregate_batch_worker_results(scenario, zero_metrics={"booked": 0}, aggregation_fn=close)
