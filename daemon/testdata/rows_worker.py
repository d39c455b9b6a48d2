"""Handlers of the other engine's templates: the address of the daemon."""

import csv
import sys
from itertools import islice
from math import prod

from tasker import Batch, BatchConfig, Decision, Permanent, Retryable, StepContext, Worker, Yield

worker = Worker(sys.argv[1], permits=8, name="python-rows")
EXAMPLES = "tasker_example_rs::step_handlers::"


def number(n: int) -> object:
    return n if n < 2**63 else str(n)


def even_number(ctx: StepContext, even_number: int) -> object:
    if even_number % 2:
        raise Permanent(f"{even_number} is odd", code="VALIDATION_ERROR")
    return number(even_number * even_number)


def product(ctx: StepContext) -> object:
    return number(prod(int(n) for n in ctx.results.values()) ** 2)


def saturated(ctx: StepContext) -> object:
    return number(min(int(str(product(ctx))), 2**128 - 1))


for first in ("linear_workflow::LinearStep1", "diamond_workflow::DiamondStart", "tree_workflow::TreeRoot", "mixed_dag_workflow::DagInit"):
    worker.step(EXAMPLES + first + "Handler", inputs=["even_number"])(even_number)
for later in ("linear_workflow::LinearStep2", "linear_workflow::LinearStep3", "linear_workflow::LinearStep4",
              "diamond_workflow::DiamondBranchB", "diamond_workflow::DiamondBranchC", "diamond_workflow::DiamondEnd",
              "tree_workflow::TreeBranchLeft", "tree_workflow::TreeBranchRight", "tree_workflow::TreeLeafD", "tree_workflow::TreeLeafE",
              "tree_workflow::TreeLeafF", "tree_workflow::TreeLeafG", "tree_workflow::TreeFinalConvergence",
              "mixed_dag_workflow::DagProcessLeft", "mixed_dag_workflow::DagProcessRight", "mixed_dag_workflow::DagValidate",
              "mixed_dag_workflow::DagTransform", "mixed_dag_workflow::DagAnalyze"):
    worker.register(EXAMPLES + later + "Handler", product)
worker.register(EXAMPLES + "mixed_dag_workflow::DagFinalizeHandler", saturated)


@worker.handler("FailNTimesHandler")
def fail_n_times(ctx: StepContext) -> object:
    if ctx.attempt <= ctx.config["fail_count"]:
        raise Retryable(f"attempt {ctx.attempt} fails as planned")
    return {"attempts_before_success": ctx.attempt}


APPROVAL = EXAMPLES + "conditional_approval_rust::"


@worker.decision(APPROVAL + "RoutingDecisionHandler", inputs=["amount"])
def route(ctx: StepContext, amount: float) -> Decision:
    if amount < 0:
        return Decision.route("validate_request")  # not one of its descendants
    if amount == 0:
        return Decision.skip()
    if amount < 1000:
        return Decision.route("auto_approve")
    return Decision.route("manager_approval") if amount < 5000 else Decision.route("manager_approval", "finance_review")


def approve(ctx: StepContext) -> object:
    return {"approved_by": ctx.step_name}


for step in ("ValidateRequest", "AutoApprove", "ManagerApproval", "FinanceReview"):
    worker.register(APPROVAL + step + "Handler", approve)


@worker.handler(APPROVAL + "FinalizeApprovalHandler")
def finalize(ctx: StepContext) -> object:
    given = {r["approved_by"] for r in ctx.results.values() if "approved_by" in r}
    if not given & {"auto_approve", "manager_approval", "finance_review"}:
        return {"approval_path": "none"}
    return {"approval_path": "auto" if "auto_approve" in given else "dual_approval" if "finance_review" in given else "manager_only"}


DATASET = EXAMPLES + "batch_processing_example::"


@worker.step(DATASET + "DatasetAnalyzerHandler", inputs=["dataset_size"])
def analyze(ctx: StepContext, dataset_size: int) -> object:
    if dataset_size < 0:
        return {"analyzed": True}
    size = ctx.config["batch_size"]
    batches = BatchConfig(dataset_size if dataset_size >= size else 0, size, max_batches=ctx.config["max_workers"])
    return {"batch_processing_outcome": batches.outcome(ctx.config["worker_template_name"])}


@worker.handler(DATASET + "RepeatingAnalyzerHandler")
def analyze_twice(ctx: StepContext) -> object:
    """Reports its end, and then again by returning."""
    result = {"batch_processing_outcome": BatchConfig(ctx.context["dataset_size"], 1000).outcome("process_batch")}
    answer = ctx._session.report([(ctx, {"outcome": "success", "result": result})])
    if answer["rejected"]:
        raise Permanent(f"the report was rejected: {answer}")
    return result


@worker.batch_worker(DATASET + "BatchWorkerHandler")
def process(ctx: StepContext, batch: Batch) -> object:
    return {"processed": batch.end - batch.start}


@worker.handler(DATASET + "ResultsAggregatorHandler")
def aggregate(ctx: StepContext) -> object:
    results = [b["result"] for b in ctx.batch_results("process_batch")]
    return {"total": sum(r.get("processed", 0) for r in results), "workers": len(results)}


@worker.batch_worker("CheckpointAndFailHandler")
def fail_after_a_checkpoint(ctx: StepContext, batch: Batch) -> object:
    begin = ctx.saved.cursor if ctx.saved else batch.start
    for item in range(begin, batch.end):
        if ctx.attempt == ctx.config["fail_on_attempt"] and item - batch.start >= ctx.config["fail_after_items"]:
            raise Retryable("the batch fails as planned")
        done = item + 1 - batch.start
        if done % ctx.config["items_per_checkpoint"] == 0:
            ctx.checkpoint(item + 1, done)
    return {"resumed_from": begin, "processed": batch.end - batch.start}


NUMBERS = EXAMPLES + "diamond_decision_batch::"


@worker.handler(NUMBERS + "DiamondStartHandler")
def numbers(ctx: StepContext) -> object:
    return len(ctx.context["numbers"])


@worker.decision(NUMBERS + "RoutingDecisionHandler", depends_on={"evens": "branch_evens", "odds": "branch_odds"})
def larger(ctx: StepContext, evens: list[int], odds: list[int]) -> Decision:
    return Decision.route("even_batch_analyzer" if len(evens) >= len(odds) else "odd_batch_analyzer")


def branch(rest: int) -> None:
    plain, of = ("even", "Even") if rest == 0 else ("odd", "Odd")

    @worker.handler(f"{NUMBERS}Branch{of}sHandler")
    def select(ctx: StepContext) -> object:
        return [n for n in ctx.context["numbers"] if n % 2 == rest]

    @worker.batch_analyzer(f"{NUMBERS}{of}BatchAnalyzerHandler", f"process_{plain}_batch", depends_on={"selected": f"branch_{plain}s"})
    def divide(ctx: StepContext, selected: list[int]) -> BatchConfig:
        return BatchConfig(len(selected), ctx.config["batch_size"], max_batches=ctx.config["max_workers"])

    @worker.batch_worker(f"{NUMBERS}Process{of}BatchHandler")
    def add(ctx: StepContext, batch: Batch) -> object:
        return {"sum": sum(ctx.result(f"branch_{plain}s")[batch.start:batch.end])}

    @worker.handler(f"{NUMBERS}Aggregate{of}ResultsHandler")
    def total(ctx: StepContext) -> object:
        return {"sum": sum(b["result"]["sum"] for b in ctx.batch_results(f"process_{plain}_batch"))}


branch(0)
branch(1)


def parents(ctx: StepContext) -> object:
    return {"parents": len(ctx.results)}


def team(ctx: StepContext) -> object:
    return {"namespace": ctx.namespace}


@worker.step(EXAMPLES + "order_fulfillment::ValidateOrderHandler", inputs=["items"])
def validate_items(ctx: StepContext, items: list[object]) -> object:
    if not items:
        raise Permanent("the order has no items", code="VALIDATION_ERROR")
    return parents(ctx)


for step in ("ReserveInventory", "ProcessPayment", "ShipOrder"):
    worker.register(f"{EXAMPLES}order_fulfillment::{step}Handler", parents)
for step in ("validate_cart", "process_payment", "update_inventory", "create_order", "send_confirmation"):
    worker.register("ecommerce_" + step, parents)
for step in ("extract_sales", "extract_inventory", "extract_customers", "transform_sales", "transform_inventory", "transform_customers",
             "aggregate_metrics", "generate_insights"):
    worker.register("data_pipeline_" + step, parents)
for step in ("create_user_account", "initialize_preferences", "send_welcome_sequence", "update_user_status"):
    worker.register("microservices_" + step, parents)
for step in ("payments_validate_eligibility", "payments_process_gateway_refund", "payments_update_records", "payments_notify_customer",
             "cs_validate_refund_request", "cs_check_refund_policy", "cs_get_manager_approval", "cs_execute_refund_workflow", "cs_update_ticket_status"):
    worker.register("team_scaling_" + step, team)


@worker.handler("microservices_setup_billing_profile")
def billing(ctx: StepContext) -> object:
    return {"status": "skipped" if ctx.context["user_info"]["plan"] == "free" else "active"}


@worker.handler("arithmetic")
def arithmetic(ctx: StepContext) -> object:
    given = list(ctx.results.values()) or [ctx.context["n"]]
    n, by = given[0], ctx.config.get("by")
    return {"square": lambda: n * n, "add": lambda: n + by, "multiply": lambda: n * by, "mean": lambda: sum(given) / len(given)}[ctx.config["do"]]()


@worker.handler("errors_success")
def succeed(ctx: StepContext) -> object:
    return "done"


@worker.handler("errors_permanent")
def fail_for_good(ctx: StepContext) -> object:
    raise Permanent("for good")


def fail_for_now(ctx: StepContext) -> object:
    raise Retryable("for now")


worker.register("errors_retryable", fail_for_now)
worker.register("TestHandlers::NoOpHandler", fail_for_now)


@worker.batch_analyzer("yields_analyze", "yield_batch", inputs=["total_items"])
def one_batch(ctx: StepContext, total_items: int) -> BatchConfig:
    return BatchConfig(total_items, 1000)


@worker.batch_worker("yields_process")
def yield_at_checkpoints(ctx: StepContext, batch: Batch) -> object:
    at = ctx.saved.cursor if ctx.saved else batch.start
    so_far = ctx.saved.accumulated if ctx.saved else {"processed": 0, "checkpoints": 0}
    end = min(at + ctx.context["items_per_checkpoint"], batch.end)
    if ctx.attempt == 1 and end > ctx.context.get("fail_after_items", batch.end):
        if ctx.context.get("permanent_failure"):
            raise Permanent("the batch fails as planned")
        raise Retryable("the batch fails as planned")
    so_far = {**so_far, "processed": so_far["processed"] + end - at}
    if end < batch.end:
        raise Yield(end, end - batch.start, {**so_far, "checkpoints": so_far["checkpoints"] + 1})
    return so_far


@worker.handler("yields_aggregate")
def sum_up(ctx: StepContext) -> object:
    results = [b["result"] for b in ctx.batch_results("yield_batch")]
    return {part: sum(r.get(part, 0) for r in results) for part in ("processed", "checkpoints")}


PRODUCTS = EXAMPLES + "batch_processing_products_csv::"


def rows(path: str) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@worker.batch_analyzer(PRODUCTS + "CsvAnalyzerHandler", "process_csv_batch", inputs=["csv_file_path"])
def count(ctx: StepContext, csv_file_path: str) -> BatchConfig:
    return BatchConfig(len(rows(csv_file_path)), ctx.config["batch_size"], max_batches=ctx.config["max_workers"])


@worker.batch_worker(PRODUCTS + "CsvBatchProcessorHandler")
def value(ctx: StepContext, batch: Batch) -> object:
    part = list(islice(rows(ctx.context["csv_file_path"]), batch.start, batch.end))
    dearest = max(part, key=lambda row: float(row["price"]))
    return {"processed": len(part), "value_cents": sum(round(float(row["price"]) * 100) * int(row["stock"]) for row in part),
            "dearest": dearest["title"], "price": float(dearest["price"])}


@worker.handler(PRODUCTS + "CsvResultsAggregatorHandler")
def all_products(ctx: StepContext) -> object:
    parts = [b["result"] for b in ctx.batch_results("process_csv_batch")]
    return {"processed": sum(p["processed"] for p in parts), "workers": len(parts), "value_cents": sum(p["value_cents"] for p in parts),
            "dearest": max(parts, key=lambda p: p["price"])["dearest"]}


EVENTS = "domain_events::"


@worker.handler(EVENTS + "validate_order::ValidateOrderHandler")
def validate_order(ctx: StepContext) -> object:
    return {"order_id": ctx.context["order_id"], "validation_timestamp": "2025-11-28T00:00:00Z"}


@worker.handler(EVENTS + "process_payment::ProcessPaymentHandler")
def pay(ctx: StepContext) -> object:
    if ctx.context["simulate_failure"]:
        raise Permanent("the card was declined", code="CARD_DECLINED")
    return {"transaction_id": ctx.context["customer_id"], "amount": ctx.context["amount"], "payment_method": "card"}


worker.register(EVENTS + "update_inventory::UpdateInventoryHandler", validate_order)
worker.register(EVENTS + "send_notification::SendNotificationHandler", validate_order)


class Methods:
    def validate(self, ctx: StepContext) -> object:
        if "amount" not in ctx.context["data"]:
            raise Permanent("the amount is missing", code="VALIDATION_ERROR")
        return {"invoked_method": "validate"}

    def process(self, ctx: StepContext) -> object:
        amount = ctx.context["data"]["amount"]
        return {"invoked_method": "process", "processed_amount": amount * 110 / 100, "processing_fee": amount / 10}

    def refund(self, ctx: StepContext) -> object:
        return {"invoked_method": "refund"}

    def call(self, ctx: StepContext) -> object:
        return {"invoked_method": "call"}


worker.register("resolver_tests_multi_method", Methods())
for method in ("validate", "process", "refund", "call"):
    worker.handler("plain_methods", method)(getattr(Methods(), method))


@worker.handler("plain_success")
async def plain_success(ctx: StepContext) -> object:
    return "done"


@worker.handler("plain_permanent")
async def plain_permanent(ctx: StepContext) -> object:
    raise Permanent("for good")


@worker.handler("plain_retryable")
async def plain_retryable(ctx: StepContext) -> object:
    raise OSError("for now")


class Routing:
    def call(self, ctx: StepContext) -> object:
        amount = ctx.context["amount"]
        steps = ["auto_approve"] if amount < 1000 else ["manager_approval", *(["finance_review"] if amount >= 5000 else [])]
        return {"decision_point_outcome": {"type": "create_steps", "step_names": steps}}


worker.register("plain_approval.RoutingDecisionHandler", Routing())
for step in ("ValidateRequest", "AutoApprove", "ManagerApproval", "FinanceReview"):
    worker.register("plain_approval." + step + "Handler", approve)
worker.register("plain_approval.FinalizeApprovalHandler", finalize)


class Actions:
    def call(self, ctx: StepContext) -> object:
        return "called"

    def execute_action(self, ctx: StepContext) -> object:
        return "executed"


worker.register("actions", Actions())


class Unknown:
    fence = "9000000000000.1"  # of no claim


@worker.handler("decide_for_another")
def decide_for_another(ctx: StepContext) -> object:
    outcome = {"decision_point_outcome": {"type": "create_steps", "step_names": ["auto_approve"]}}
    (refused,) = ctx._session.report([(Unknown, {"outcome": "success", "result": outcome})])["rejected"]
    return {"refused": refused["status"]}


@worker.handler("hints.plain")
def by_the_chain(ctx: StepContext) -> object:
    return "from the chain"


worker.run()
