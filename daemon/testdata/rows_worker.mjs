// Handlers of the other engine's templates: where the package is, and the address of the daemon.
import process from "node:process";
import { pathToFileURL } from "node:url";

const { BatchConfig, Decision, Permanent, Retryable, Worker } = await import(pathToFileURL(process.argv[2]).href);
const worker = new Worker({ url: process.argv[3], permits: 8, name: "typescript-rows" });
const examples = "tasker_example_rs::step_handlers::";

const number = (n) => (n < 2n ** 63n ? Number(n) : String(n));
const evenNumber = ({ context }) => {
  const n = BigInt(context.even_number);
  if (n % 2n) throw new Permanent(`${n} is odd`, { code: "VALIDATION_ERROR" });
  return number(n * n);
};
const squared = (ctx) => Object.values(ctx.results).reduce((all, n) => all * BigInt(n), 1n) ** 2n;
const most = 2n ** 128n - 1n;

for (const first of ["linear_workflow::LinearStep1", "diamond_workflow::DiamondStart", "tree_workflow::TreeRoot", "mixed_dag_workflow::DagInit"]) {
  worker.handler(`${examples}${first}Handler`, evenNumber);
}
for (const later of ["linear_workflow::LinearStep2", "linear_workflow::LinearStep3", "linear_workflow::LinearStep4",
  "diamond_workflow::DiamondBranchB", "diamond_workflow::DiamondBranchC", "diamond_workflow::DiamondEnd",
  "tree_workflow::TreeBranchLeft", "tree_workflow::TreeBranchRight", "tree_workflow::TreeLeafD", "tree_workflow::TreeLeafE",
  "tree_workflow::TreeLeafF", "tree_workflow::TreeLeafG", "tree_workflow::TreeFinalConvergence",
  "mixed_dag_workflow::DagProcessLeft", "mixed_dag_workflow::DagProcessRight", "mixed_dag_workflow::DagValidate",
  "mixed_dag_workflow::DagTransform", "mixed_dag_workflow::DagAnalyze"]) {
  worker.handler(`${examples}${later}Handler`, (ctx) => number(squared(ctx)));
}
worker.handler(`${examples}mixed_dag_workflow::DagFinalizeHandler`, (ctx) => number(squared(ctx) > most ? most : squared(ctx)));

worker.handler("FailNTimesHandler", (ctx) => {
  if (ctx.attempt <= ctx.config.fail_count) throw new Retryable(`attempt ${ctx.attempt} fails as planned`);
  return { attempts_before_success: ctx.attempt };
});

const approval = `${examples}conditional_approval_rust::`;
worker.decision(`${approval}RoutingDecisionHandler`, { inputs: ["amount"] }, (_ctx, { amount }) => {
  if (amount < 1000) return Decision.route("auto_approve");
  return amount < 5000 ? Decision.route("manager_approval") : Decision.route("manager_approval", "finance_review");
});
for (const step of ["ValidateRequest", "AutoApprove", "ManagerApproval", "FinanceReview"]) {
  worker.handler(`${approval}${step}Handler`, (ctx) => ({ approved_by: ctx.stepName }));
}
worker.handler(`${approval}FinalizeApprovalHandler`, (ctx) => {
  const given = Object.values(ctx.results).map((r) => r.approved_by);
  if (given.includes("auto_approve")) return { approval_path: "auto" };
  return { approval_path: given.includes("finance_review") ? "dual_approval" : "manager_only" };
});

const dataset = `${examples}batch_processing_example::`;
worker.batchAnalyzer(`${dataset}DatasetAnalyzerHandler`, "process_batch", { inputs: ["dataset_size"] }, ({ config }, { dataset_size: size }) =>
  new BatchConfig(size >= config.batch_size ? size : 0, config.batch_size, config.max_workers));
worker.batchWorker(`${dataset}BatchWorkerHandler`, (_ctx, batch) => ({ processed: batch.end - batch.start }));
worker.handler(`${dataset}ResultsAggregatorHandler`, async (ctx) => {
  const results = (await ctx.batchResults("process_batch")).map((b) => b.result);
  return { total: results.reduce((sum, r) => sum + (r.processed ?? 0), 0), workers: results.length };
});

worker.register("resolver_tests_multi_method", {
  validate: ({ context }) => {
    if (context.data.amount === undefined) throw new Permanent("the amount is missing", { code: "VALIDATION_ERROR" });
    return { invoked_method: "validate" };
  },
  process: ({ context: { data: { amount } } }) => ({ invoked_method: "process", processed_amount: (amount * 110) / 100, processing_fee: amount / 10 }),
  refund: () => ({ invoked_method: "refund" }),
  call: () => ({ invoked_method: "call" }),
});

await worker.run();
