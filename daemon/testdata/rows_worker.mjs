// Handlers of the other engine's templates: where the package is, and the address of the daemon.
import { readFile } from "node:fs/promises";
import process from "node:process";
import { pathToFileURL } from "node:url";

const { BatchConfig, Decision, Permanent, Retryable, Worker, Yield } = await import(pathToFileURL(process.argv[2]).href);
const worker = new Worker({ url: process.argv[3], permits: 8, name: "typescript-rows" });
const examples = "tasker_example_rs::step_handlers::";

const number = (n) => (n < 2n ** 63n ? Number(n) : String(n));
const evenNumber = (_ctx, { even_number: even }) => {
  const n = BigInt(even);
  if (n % 2n) throw new Permanent(`${n} is odd`, { code: "VALIDATION_ERROR" });
  return number(n * n);
};
const squared = (ctx) => Object.values(ctx.results).reduce((all, n) => all * BigInt(n), 1n) ** 2n;
const most = 2n ** 128n - 1n;

for (const first of ["linear_workflow::LinearStep1", "diamond_workflow::DiamondStart", "tree_workflow::TreeRoot", "mixed_dag_workflow::DagInit"]) {
  worker.step(`${examples}${first}Handler`, { inputs: ["even_number"] }, evenNumber);
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
  if (amount < 0) return Decision.route("validate_request"); // not one of its descendants
  if (amount === 0) return Decision.skip();
  if (amount < 1000) return Decision.route("auto_approve");
  return amount < 5000 ? Decision.route("manager_approval") : Decision.route("manager_approval", "finance_review");
});
for (const step of ["ValidateRequest", "AutoApprove", "ManagerApproval", "FinanceReview"]) {
  worker.handler(`${approval}${step}Handler`, (ctx) => ({ approved_by: ctx.stepName }));
}
const approvalPath = (ctx) => {
  const given = Object.values(ctx.results).map((r) => r.approved_by);
  if (!given.some((by) => ["auto_approve", "manager_approval", "finance_review"].includes(by))) return { approval_path: "none" };
  if (given.includes("auto_approve")) return { approval_path: "auto" };
  return { approval_path: given.includes("finance_review") ? "dual_approval" : "manager_only" };
};
worker.handler(`${approval}FinalizeApprovalHandler`, approvalPath);

const dataset = `${examples}batch_processing_example::`;
worker.step(`${dataset}DatasetAnalyzerHandler`, { inputs: ["dataset_size"] }, ({ config }, { dataset_size: size }) => {
  if (size < 0) return { analyzed: true };
  const batches = new BatchConfig(size >= config.batch_size ? size : 0, config.batch_size, config.max_workers);
  return { batch_processing_outcome: batches.outcome(config.worker_template_name) };
});
// Reports its end, and then again by returning.
worker.handler(`${dataset}RepeatingAnalyzerHandler`, async (ctx) => {
  const result = { batch_processing_outcome: new BatchConfig(ctx.context.dataset_size, 1000).outcome("process_batch") };
  const { rejected } = await ctx.session.report([{ fence: ctx.fence, outcome: "success", result }]);
  if (rejected.length > 0) throw new Permanent(`the report was rejected: ${JSON.stringify(rejected)}`);
  return result;
});
worker.batchWorker(`${dataset}BatchWorkerHandler`, (_ctx, batch) => ({ processed: batch.end - batch.start }));
worker.handler(`${dataset}ResultsAggregatorHandler`, async (ctx) => {
  const results = (await ctx.batchResults("process_batch")).map((b) => b.result);
  return { total: results.reduce((sum, r) => sum + (r.processed ?? 0), 0), workers: results.length };
});

worker.batchWorker("CheckpointAndFailHandler", async (ctx, { start, end }) => {
  const begin = ctx.saved?.cursor ?? start;
  for (let item = begin; item < end; item++) {
    if (ctx.attempt === ctx.config.fail_on_attempt && item - start >= ctx.config.fail_after_items) throw new Retryable("the batch fails as planned");
    const done = item + 1 - start;
    if (done % ctx.config.items_per_checkpoint === 0) await ctx.checkpoint(item + 1, done);
  }
  return { resumed_from: begin, processed: end - start };
});

const numbers = `${examples}diamond_decision_batch::`;
const sum = (all) => all.reduce((a, b) => a + b, 0);
worker.handler(`${numbers}DiamondStartHandler`, ({ context }) => context.numbers.length);
worker.decision(`${numbers}RoutingDecisionHandler`, { dependsOn: { evens: "branch_evens", odds: "branch_odds" } }, (_ctx, { evens, odds }) =>
  Decision.route(evens.length >= odds.length ? "even_batch_analyzer" : "odd_batch_analyzer"));
for (const [rest, plain, of] of [[0, "even", "Even"], [1, "odd", "Odd"]]) {
  worker.handler(`${numbers}Branch${of}sHandler`, ({ context }) => context.numbers.filter((n) => n % 2 === rest));
  worker.batchAnalyzer(`${numbers}${of}BatchAnalyzerHandler`, `process_${plain}_batch`, { dependsOn: { selected: `branch_${plain}s` } }, ({ config }, { selected }) =>
    new BatchConfig(selected.length, config.batch_size, config.max_workers));
  worker.batchWorker(`${numbers}Process${of}BatchHandler`, async (ctx, { start, end }) => ({ sum: sum((await ctx.result(`branch_${plain}s`)).slice(start, end)) }));
  worker.handler(`${numbers}Aggregate${of}ResultsHandler`, async (ctx) => ({ sum: sum((await ctx.batchResults(`process_${plain}_batch`)).map((b) => b.result.sum)) }));
}

const parents = (ctx) => ({ parents: Object.keys(ctx.results).length });
worker.step(`${examples}order_fulfillment::ValidateOrderHandler`, { inputs: ["items"] }, (ctx, { items }) => {
  if (items.length === 0) throw new Permanent("the order has no items", { code: "VALIDATION_ERROR" });
  return parents(ctx);
});
for (const step of ["ReserveInventory", "ProcessPayment", "ShipOrder"]) worker.handler(`${examples}order_fulfillment::${step}Handler`, parents);
for (const [prefix, steps] of Object.entries({
  ecommerce_: ["validate_cart", "process_payment", "update_inventory", "create_order", "send_confirmation"],
  data_pipeline_: ["extract_sales", "extract_inventory", "extract_customers", "transform_sales", "transform_inventory", "transform_customers",
    "aggregate_metrics", "generate_insights"],
  microservices_: ["create_user_account", "initialize_preferences", "send_welcome_sequence", "update_user_status"],
  team_scaling_payments_: ["validate_eligibility", "process_gateway_refund", "update_records", "notify_customer"],
  team_scaling_cs_: ["validate_refund_request", "check_refund_policy", "get_manager_approval", "execute_refund_workflow", "update_ticket_status"],
})) {
  for (const step of steps) worker.handler(prefix + step, prefix.startsWith("team_") ? ({ namespace }) => ({ namespace }) : parents);
}
worker.handler("microservices_setup_billing_profile", ({ context }) => ({ status: context.user_info.plan === "free" ? "skipped" : "active" }));

worker.handler("arithmetic", (ctx) => {
  const given = Object.values(ctx.results);
  const [n] = given.length ? given : [ctx.context.n];
  const by = ctx.config.by;
  return { square: () => n * n, add: () => n + by, multiply: () => n * by, mean: () => sum(given) / given.length }[ctx.config.do]();
});
worker.handler("errors_success", () => "done");
worker.handler("errors_permanent", () => { throw new Permanent("for good"); });
const failForNow = () => { throw new Retryable("for now"); };
worker.handler("errors_retryable", failForNow);
worker.handler("TestHandlers::NoOpHandler", failForNow);

worker.batchAnalyzer("yields_analyze", "yield_batch", { inputs: ["total_items"] }, (_ctx, { total_items: total }) => new BatchConfig(total, 1000));
worker.batchWorker("yields_process", (ctx, { start, end: last }) => {
  const at = ctx.saved?.cursor ?? start;
  const before = ctx.saved?.accumulated ?? { processed: 0, checkpoints: 0 };
  const end = Math.min(at + ctx.context.items_per_checkpoint, last);
  if (ctx.attempt === 1 && end > (ctx.context.fail_after_items ?? last)) {
    throw ctx.context.permanent_failure ? new Permanent("the batch fails as planned") : new Retryable("the batch fails as planned");
  }
  const processed = before.processed + end - at;
  if (end < last) throw new Yield(end, end - start, { processed, checkpoints: before.checkpoints + 1 });
  return { ...before, processed };
});
worker.handler("yields_aggregate", async (ctx) => {
  const results = (await ctx.batchResults("yield_batch")).map((b) => b.result);
  return { processed: sum(results.map((r) => r.processed ?? 0)), checkpoints: sum(results.map((r) => r.checkpoints ?? 0)) };
});

const products = `${examples}batch_processing_products_csv::`;
const rows = async (path) => {
  const text = await readFile(path, "utf8").catch((e) => (e.code === "ENOENT" ? "" : Promise.reject(e)));
  const lines = text.trim().split("\n");
  return lines.slice(1).map((line) => {
    const fields = [...line.matchAll(/("((?:[^"]|"")*)"|[^,]*)(?:,|$)/g)].map(([, plain, quoted]) => quoted?.replaceAll('""', '"') ?? plain);
    return { title: fields[1], price: Number(fields[4]), stock: Number(fields[7]) };
  });
};
const dearest = (all) => all.reduce((a, b) => (b.price > a.price ? b : a));
worker.batchAnalyzer(`${products}CsvAnalyzerHandler`, "process_csv_batch", { inputs: ["csv_file_path"] }, async ({ config }, { csv_file_path: path }) =>
  new BatchConfig((await rows(path)).length, config.batch_size, config.max_workers));
worker.batchWorker(`${products}CsvBatchProcessorHandler`, async ({ context }, { start, end }) => {
  const part = (await rows(context.csv_file_path)).slice(start, end);
  const { title, price } = dearest(part);
  return { processed: part.length, value_cents: sum(part.map((row) => Math.round(row.price * 100) * row.stock)), dearest: title, price };
});
worker.handler(`${products}CsvResultsAggregatorHandler`, async (ctx) => {
  const parts = (await ctx.batchResults("process_csv_batch")).map((b) => b.result);
  return { processed: sum(parts.map((p) => p.processed)), workers: parts.length, value_cents: sum(parts.map((p) => p.value_cents)), dearest: dearest(parts).dearest };
});

const orderIsValid = ({ context }) => ({ order_id: context.order_id, validation_timestamp: "2025-11-28T00:00:00Z" });
worker.handler("domain_events::validate_order::ValidateOrderHandler", orderIsValid);
worker.handler("domain_events::process_payment::ProcessPaymentHandler", ({ context }) => {
  if (context.simulate_failure) throw new Permanent("the card was declined", { code: "CARD_DECLINED" });
  return { transaction_id: context.customer_id, amount: context.amount, payment_method: "card" };
});
worker.handler("domain_events::update_inventory::UpdateInventoryHandler", orderIsValid);
worker.handler("domain_events::send_notification::SendNotificationHandler", orderIsValid);

const methods = {
  validate: ({ context }) => {
    if (context.data.amount === undefined) throw new Permanent("the amount is missing", { code: "VALIDATION_ERROR" });
    return { invoked_method: "validate" };
  },
  process: ({ context: { data: { amount } } }) => ({ invoked_method: "process", processed_amount: (amount * 110) / 100, processing_fee: amount / 10 }),
  refund: () => ({ invoked_method: "refund" }),
  call: () => ({ invoked_method: "call" }),
};
worker.register("resolver_tests_multi_method", methods);
for (const [method, handler] of Object.entries(methods)) worker.handler("plain_methods", handler, method);

worker.handler("plain_success", () => Promise.resolve("done"));
worker.handler("plain_permanent", () => Promise.reject(new Permanent("for good")));
worker.handler("plain_retryable", () => Promise.reject(new RangeError("for now")));

worker.register("plain_approval.RoutingDecisionHandler", {
  call: ({ context: { amount } }) => ({
    decision_point_outcome: { type: "create_steps", step_names: amount < 1000 ? ["auto_approve"] : ["manager_approval", ...(amount >= 5000 ? ["finance_review"] : [])] },
  }),
});
for (const step of ["ValidateRequest", "AutoApprove", "ManagerApproval", "FinanceReview"]) {
  worker.handler(`plain_approval.${step}Handler`, (ctx) => ({ approved_by: ctx.stepName }));
}
worker.handler("plain_approval.FinalizeApprovalHandler", approvalPath);

worker.register("actions", { call: () => "called", execute_action: () => "executed" });
worker.handler("decide_for_another", async (ctx) => {
  const result = { decision_point_outcome: { type: "create_steps", step_names: ["auto_approve"] } };
  const { rejected: [refused] } = await ctx.session.report([{ fence: "9000000000000.1", outcome: "success", result }]); // of no claim
  return { refused: refused.status };
});
worker.handler("hints.plain", () => "from the chain");

await worker.run();
