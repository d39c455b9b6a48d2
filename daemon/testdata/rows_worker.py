"""Handlers of the other engine's templates: the address of the daemon."""

import sys

from math import prod

from tasker import Batch, BatchConfig, Decision, Permanent, Retryable, StepContext, Worker

worker = Worker(sys.argv[1], permits=8, name="python-rows")
EXAMPLES = "tasker_example_rs::step_handlers::"


def number(n: int) -> object:
    return n if n < 2**63 else str(n)


def even_number(ctx: StepContext) -> object:
    n = ctx.context["even_number"]
    if n % 2:
        raise Permanent(f"{n} is odd", code="VALIDATION_ERROR")
    return number(n * n)


def product(ctx: StepContext) -> object:
    return number(prod(int(n) for n in ctx.results.values()) ** 2)


def saturated(ctx: StepContext) -> object:
    return number(min(int(str(product(ctx))), 2**128 - 1))


for first in ("linear_workflow::LinearStep1", "diamond_workflow::DiamondStart", "tree_workflow::TreeRoot", "mixed_dag_workflow::DagInit"):
    worker.register(EXAMPLES + first + "Handler", even_number)
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
    return {"approval_path": "auto" if "auto_approve" in given else "dual_approval" if "finance_review" in given else "manager_only"}


DATASET = EXAMPLES + "batch_processing_example::"


@worker.batch_analyzer(DATASET + "DatasetAnalyzerHandler", worker_template="process_batch", inputs=["dataset_size"])
def analyze(ctx: StepContext, dataset_size: int) -> BatchConfig:
    size = ctx.config["batch_size"]
    return BatchConfig(dataset_size if dataset_size >= size else 0, size, max_batches=ctx.config["max_workers"])


@worker.batch_worker(DATASET + "BatchWorkerHandler")
def process(ctx: StepContext, batch: Batch) -> object:
    return {"processed": batch.end - batch.start}


@worker.handler(DATASET + "ResultsAggregatorHandler")
def aggregate(ctx: StepContext) -> object:
    results = [b["result"] for b in ctx.batch_results("process_batch")]
    return {"total": sum(r.get("processed", 0) for r in results), "workers": len(results)}


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
worker.run()
