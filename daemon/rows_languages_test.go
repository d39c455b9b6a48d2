package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
)

// completedRows are behaviours of the other engine that end well, by the names of the subtests
// that internal/corpus counts: rows_FIRST_LAST_WHAT. A template is a file of the corpus, or one
// of ownTemplates. order names steps that run one after the other.
var completedRows = []struct {
	name, template, context string
	steps                   int
	results                 map[string]string
	attempts                map[string]int
	order                   []string
	events                  []string // durable ones, with their payloads
}{
	{name: "rows_01_01_squares_of_6", template: "mathematical_sequence", context: `{"even_number":6}`, steps: 4, results: map[string]string{
		"linear_step_1": `36`, "linear_step_2": `1296`, "linear_step_3": `1679616`, "linear_step_4": `2821109907456`}},
	{name: "rows_02_02_squares_of_8", template: "mathematical_sequence", context: `{"even_number":8,"run":2}`, steps: 4, results: map[string]string{
		"linear_step_4": `281474976710656`}},
	{name: "rows_03_03_squares_of_10", template: "mathematical_sequence", context: `{"even_number":10}`, steps: 4, results: map[string]string{
		"linear_step_4": `10000000000000000`}},
	{name: "rows_09_09_a_diamond", template: "diamond_pattern", context: `{"even_number":6}`, steps: 4, results: map[string]string{
		"diamond_start": `36`, "diamond_branch_b": `1296`, "diamond_branch_c": `1296`, "diamond_end": `2821109907456`}},
	{name: "rows_11_11_a_tree", template: "hierarchical_tree", context: `{"even_number":6}`, steps: 8, results: map[string]string{
		"tree_root": `36`, "tree_branch_left": `1296`, "tree_branch_right": `1296`, "tree_leaf_d": `1679616`, "tree_leaf_g": `1679616`,
		"tree_final_convergence": `"63340286662973277706162286946811886609896461828096"`}},
	{name: "rows_12_12_a_mixed_graph_of_6", template: "complex_dag", context: `{"even_number":6}`, steps: 7, results: map[string]string{
		"dag_finalize": `"340282366920938463463374607431768211455"`}},
	{name: "rows_13_13_a_mixed_graph_of_2", template: "complex_dag", context: `{"even_number":2}`, steps: 7, results: map[string]string{
		"dag_finalize": `"18446744073709551616"`}},
	{name: "rows_14_14_an_order", template: "business_workflow", steps: 4, context: `{"customer":{"id":12345,"name":"Ana","email":"ana@example.com"},
		"items":[{"sku":"WIDGET-001","quantity":2,"price":29.99},{"sku":"GADGET-002","quantity":1,"price":149.99}],
		"payment":{"method":"credit_card","token":"tok_1"},"shipping":{"method":"standard","address":{"city":"Berlin"}}}`, results: map[string]string{
		"validate_order": `{"parents":0}`, "reserve_inventory": `{"parents":1}`, "process_payment": `{"parents":2}`, "ship_order": `{"parents":3}`},
		order: []string{"validate_order", "reserve_inventory", "process_payment", "ship_order"}},
	{name: "rows_16_16_a_cart", template: "ecommerce_order_processing_rs", steps: 5, context: `{"cart_items":[{"product_id":1,"quantity":2},{"product_id":2,"quantity":1}],
		"customer_info":{"email":"ana@example.com","name":"Ana","phone":"1"},"payment_info":{"method":"credit_card","token":"tok_test_valid","amount":124.76}}`,
		order: []string{"validate_cart", "process_payment", "update_inventory", "create_order", "send_confirmation"}},
	{name: "rows_17_17_a_pipeline", template: "data_pipeline_analytics_pipeline_rs", steps: 8,
		context: `{"pipeline_id":"p1","date_range":{"start_date":"2025-11-01","end_date":"2025-11-30"}}`,
		results: map[string]string{"extract_sales_data": `{"parents":0}`, "transform_customers": `{"parents":1}`, "aggregate_metrics": `{"parents":3}`},
		order:   []string{"extract_customer_data", "transform_customers", "aggregate_metrics", "generate_insights"}},
	{name: "rows_18_18_a_registration", template: "microservices_user_registration_rs", steps: 5,
		context: `{"user_info":{"email":"ana@example.com","name":"Ana","plan":"pro","source":"api_test"}}`,
		results: map[string]string{"setup_billing_profile": `{"status":"active"}`, "send_welcome_sequence": `{"parents":2}`}},
	{name: "rows_19_19_a_free_plan", template: "microservices_user_registration_rs", steps: 5,
		context: `{"user_info":{"email":"ana@example.com","name":"Ana","plan":"free","source":"api_test"}}`,
		results: map[string]string{"setup_billing_profile": `{"status":"skipped"}`}},
	{name: "rows_19_19_an_enterprise", template: "microservices_user_registration_rs", steps: 5,
		context: `{"user_info":{"email":"ana@example.com","name":"Ana","plan":"enterprise","source":"api_test"}}`,
		results: map[string]string{"setup_billing_profile": `{"status":"active"}`}},
	{name: "rows_20_20_a_refund_of_payments", template: "payments_process_refund_rs", steps: 4,
		context: `{"payment_id":"pay_test_12345abc","refund_amount":4999,"refund_reason":"customer_request","customer_email":"ana@example.com","partial_refund":false}`,
		order:   []string{"validate_payment_eligibility", "process_gateway_refund", "update_payment_records", "notify_customer"}},
	{name: "rows_21_21_a_refund_of_customer_success", template: "customer_success_process_refund_rs", steps: 5,
		context: `{"ticket_id":"T-1","customer_id":"C-1","refund_amount":4999,"refund_reason":"broken","customer_email":"ana@example.com","requires_approval":true}`,
		order:   []string{"validate_refund_request", "check_refund_policy", "get_manager_approval", "execute_refund_workflow", "update_ticket_status"}},
	{name: "rows_23_23_other_arithmetic_of_4", template: "linear", context: `{"n":4}`, steps: 4, results: map[string]string{
		"squared": `16`, "plus_ten": `26`, "times_three": `78`, "halved": `39`}},
	{name: "rows_23_23_other_arithmetic_of_10", template: "linear", context: `{"n":10}`, steps: 4, results: map[string]string{"halved": `165`}},
	{name: "rows_24_24_a_mean_of_4", template: "mean", context: `{"n":4}`, steps: 4, results: map[string]string{"mean": `36.5`}},
	{name: "rows_24_24_a_mean_of_6", template: "mean", context: `{"n":6}`, steps: 4, results: map[string]string{"mean": `66.5`}},
	{name: "rows_25_25_one_after_the_other", template: "mathematical_sequence", context: `{"even_number":8}`, steps: 4,
		order: []string{"linear_step_1", "linear_step_2", "linear_step_3", "linear_step_4"}},
	{name: "rows_26_26_two_failures", template: "retry_mechanics_test", context: `{"test_id":"r26"}`, steps: 1,
		results: map[string]string{"fail_twice_then_succeed": `{"attempts_before_success":3}`}, attempts: map[string]int{"fail_twice_then_succeed": 3}},
	{name: "rows_38_38_an_amount_of_500", template: "conditional_approval_rust", context: `{"amount":500}`, steps: 4, results: map[string]string{
		"auto_approve": `{"approved_by":"auto_approve"}`, "finalize_approval": `{"approval_path":"auto"}`}},
	{name: "rows_39_39_an_amount_of_3000", template: "conditional_approval_rust", context: `{"amount":3000}`, steps: 4, results: map[string]string{
		"manager_approval": `{"approved_by":"manager_approval"}`, "finalize_approval": `{"approval_path":"manager_only"}`}},
	{name: "rows_40_40_an_amount_of_10000", template: "conditional_approval_rust", context: `{"amount":10000}`, steps: 5,
		results:  map[string]string{"finalize_approval": `{"approval_path":"dual_approval"}`},
		attempts: map[string]int{"finalize_approval": 1}, order: []string{"finance_review", "finalize_approval"}},
	{name: "rows_41_41_an_amount_of_1000", template: "conditional_approval_rust", context: `{"amount":1000}`, steps: 4, results: map[string]string{
		"finalize_approval": `{"approval_path":"manager_only"}`}},
	{name: "rows_42_42_an_amount_of_5000", template: "conditional_approval_rust", context: `{"amount":5000}`, steps: 5, results: map[string]string{
		"finalize_approval": `{"approval_path":"dual_approval"}`}},
	{name: "rows_42_42_an_amount_of_7500", template: "conditional_approval_rust", context: `{"amount":7500}`, steps: 5, results: map[string]string{
		"finalize_approval": `{"approval_path":"dual_approval"}`}},
	{name: "rows_43_43_an_amount_of_a_cent", template: "conditional_approval_rust", context: `{"amount":0.01}`, steps: 4, results: map[string]string{
		"finalize_approval": `{"approval_path":"auto"}`}},
	{name: "rows_44_44_no_branches", template: "conditional_approval_rust", context: `{"amount":0}`, steps: 3, results: map[string]string{
		"finalize_approval": `{"approval_path":"none"}`}},
	{name: "rows_47_47_after_the_decision", template: "conditional_approval_rust", context: `{"amount":7501}`, steps: 5,
		order: []string{"validate_request", "routing_decision", "manager_approval", "finalize_approval"}},
	{name: "rows_49_49_five_batches", template: "batch_processing_example", context: `{"dataset_size":5000}`, steps: 7, results: map[string]string{
		"process_batch_001": `{"processed":1000}`, "process_batch_005": `{"processed":1000}`, "aggregate_results": `{"total":5000,"workers":5}`}},
	{name: "rows_50_50_less_than_a_batch", template: "batch_processing_example", context: `{"dataset_size":500}`, steps: 3, results: map[string]string{
		"process_batch_000": `{"no_op":true}`, "aggregate_results": `{"total":0,"workers":1}`}},
	{name: "rows_50_50_much_less_than_a_batch", template: "batch_processing_example", context: `{"dataset_size":50}`, steps: 3, results: map[string]string{
		"aggregate_results": `{"total":0,"workers":1}`}},
	{name: "rows_51_51_at_most_ten_batches", template: "batch_processing_example", context: `{"dataset_size":20500}`, steps: 12, results: map[string]string{
		"aggregate_results": `{"total":20500,"workers":10}`}},
	{name: "rows_52_52_products_of_a_file", template: "batch_processing_products_csv", context: `{"csv_file_path":"PRODUCTS","analysis_mode":"inventory"}`, steps: 7,
		results: map[string]string{"aggregate_csv_results": `{"processed":1000,"workers":5,"value_cents":3558804700,"dearest":"Rolex Submariner Watch"}`}},
	{name: "rows_53_53_no_items_and_no_worker_named", template: "unnamed", context: `{"total_items":0,"items_per_checkpoint":5}`, steps: 1},
	{name: "rows_54_54_more_even_numbers", template: "diamond_decision_batch", context: `{"numbers":[2,4,6,8,10,12]}`, steps: 9, results: map[string]string{
		"process_even_batch_003": `{"sum":22}`, "aggregate_even_results": `{"sum":42}`}},
	{name: "rows_55_55_more_odd_numbers", template: "diamond_decision_batch", context: `{"numbers":[1,3,5,7,9,11,2,4]}`, steps: 9, results: map[string]string{
		"process_odd_batch_003": `{"sum":20}`, "aggregate_odd_results": `{"sum":36}`}},
	{name: "rows_56_56_as_many_of_both", template: "diamond_decision_batch", context: `{"numbers":[1,2,3,4,5,6,7,8,9,10]}`, steps: 9, results: map[string]string{
		"process_even_batch_003": `{"sum":10}`, "aggregate_even_results": `{"sum":30}`}},
	{name: "rows_57_57_from_a_checkpoint", template: "batch_resumption_test", context: `{"dataset_size":100}`, steps: 2,
		results: map[string]string{"checkpoint_fail_batch_001": `{"resumed_from":50,"processed":100}`}, attempts: map[string]int{"checkpoint_fail_batch_001": 2}},
	{name: "rows_60_60_three_yields", template: "yields", context: `{"total_items":100,"items_per_checkpoint":25}`, steps: 3,
		results: map[string]string{"aggregate_results": `{"processed":100,"checkpoints":3}`}, attempts: map[string]int{"yield_batch_001": 1}},
	{name: "rows_61_61_a_failure_between_yields", template: "yields", context: `{"total_items":100,"items_per_checkpoint":20,"fail_after_items":50}`, steps: 3,
		results: map[string]string{"aggregate_results": `{"processed":100,"checkpoints":4}`}, attempts: map[string]int{"yield_batch_001": 2}},
	{name: "rows_63_63_nine_yields", template: "yields", context: `{"total_items":50,"items_per_checkpoint":5}`, steps: 3, results: map[string]string{
		"aggregate_results": `{"processed":50,"checkpoints":9}`}},
	{name: "rows_64_64_no_items", template: "yields", context: `{"total_items":0,"items_per_checkpoint":5}`, steps: 3, results: map[string]string{
		"aggregate_results": `{"processed":0,"checkpoints":0}`}},
	{name: "rows_65_65_fewer_than_a_checkpoint", template: "yields", context: `{"total_items":10,"items_per_checkpoint":20}`, steps: 3,
		results: map[string]string{"aggregate_results": `{"processed":10,"checkpoints":0}`}, attempts: map[string]int{"yield_batch_001": 1}},
	{name: "rows_66_67_events_of_a_payment", template: "domain_event_publishing", steps: 4,
		context: `{"order_id":"0197f5a0-0000-7000-8000-000000000001","customer_id":"c1","amount":100,"simulate_failure":false}`,
		events:  []string{`payment.processed {"amount":100,"payment_method":"card","transaction_id":"c1"}`}},
	{name: "rows_66_67_events_of_another_payment", template: "domain_event_publishing", steps: 4,
		context: `{"order_id":"0197f5a0-0000-7000-8000-000000000002","customer_id":"c2","amount":7,"simulate_failure":false}`,
		events:  []string{`payment.processed {"amount":7,"payment_method":"card","transaction_id":"c2"}`}},
	{name: "rows_69_69_methods", template: "method_dispatch_rust", context: `{"data":{"amount":100,"reason":"broken"}}`, steps: 4, results: map[string]string{
		"validate_step_rust": `{"invoked_method":"validate"}`, "refund_step_rust": `{"invoked_method":"refund"}`, "default_call_step_rust": `{"invoked_method":"call"}`,
		"process_step_rust": `{"invoked_method":"process","processed_amount":110,"processing_fee":10}`}},
}

// failingRows end with a failure: the step that fails, the number of its attempts, whether the
// failure was retryable, and what is said of it. blocked tasks wait for an operator.
var failingRows = []struct {
	name, template, context string
	step                    string
	attempts                int
	retryable               bool
	problem                 string
	complete                string // a step that completes all the same
	blocked                 bool
	event                   string // durable
}{
	{name: "rows_04_04_an_odd_number", template: "mathematical_sequence", context: `{"even_number":7}`, step: "linear_step_1", attempts: 1, problem: "VALIDATION_ERROR"},
	{name: "rows_04_04_no_number", template: "mathematical_sequence", context: `{"row":4}`, step: "linear_step_1", attempts: 1, problem: "MISSING_CONTEXT_FIELD"},
	{name: "rows_27_27_too_many_failures", template: "retry_exhaustion_test", context: `{"test_id":"r27"}`, step: "always_fail", attempts: 3, retryable: true, problem: "as planned"},
	{name: "rows_28_29_for_good", template: "errors", context: `{"run":1}`, step: "permanent_error_only", attempts: 1, problem: "for good", complete: "success_only"},
	{name: "rows_30_30_twice", template: "errors", context: `{"run":2}`, step: "retryable_error_only", attempts: 2, retryable: true, problem: "for now"},
	{name: "rows_31_31_independent_steps", template: "blocked_errors", context: `{"run":3}`, step: "retryable_error_only", attempts: 2, retryable: true, problem: "for now",
		complete: "success_only", blocked: true},
	{name: "rows_33_33_zero_attempts", template: "boundary_max_attempts_zero", context: `{}`, step: "boundary_test_step", attempts: 1, retryable: true, problem: "for now"},
	{name: "rows_34_34_one_attempt", template: "boundary_max_attempts_one", context: `{}`, step: "boundary_test_step", attempts: 1, retryable: true, problem: "for now"},
	{name: "rows_35_35_three_attempts", template: "boundary_max_attempts_three", context: `{}`, step: "boundary_test_step", attempts: 3, retryable: true, problem: "for now"},
	{name: "rows_36_36_not_retryable", template: "boundary_non_retryable_first", context: `{}`, step: "boundary_test_step", attempts: 1, retryable: true, problem: "for now"},
	{name: "rows_37_37_not_retryable_with_three", template: "boundary_non_retryable_retries", context: `{}`, step: "boundary_test_step", attempts: 1, retryable: true, problem: "for now"},
	{name: "rows_45_45_not_a_descendant", template: "conditional_approval_rust", context: `{"amount":-1}`, step: "routing_decision", attempts: 1, problem: "does not depend on the decision"},
	{name: "rows_59_59_no_outcome", template: "batch_processing_example", context: `{"dataset_size":-1}`, step: "analyze_dataset", attempts: 1, problem: "batch_processing_outcome"},
	{name: "rows_62_62_for_good_between_yields", template: "yields", context: `{"total_items":100,"items_per_checkpoint":25,"fail_after_items":30,"permanent_failure":true}`,
		step: "yield_batch_001", attempts: 1, problem: "as planned"},
	{name: "rows_68_68_a_payment_that_fails", template: "domain_event_publishing", step: "domain_events_process_payment", attempts: 1, problem: "CARD_DECLINED",
		context:  `{"order_id":"0197f5a0-0000-7000-8000-000000000003","customer_id":"c3","amount":100,"simulate_failure":true}`,
		complete: "domain_events_validate_order", event: "payment.failed"},
	{name: "rows_70_70_methods_without_an_amount", template: "method_dispatch_rust", context: `{"data":{"reason":"broken"}}`, step: "validate_step_rust", attempts: 1, problem: "VALIDATION_ERROR"},
}

// ownTemplates stand for those that the corpus lacks.
var ownTemplates = map[string]string{
	"linear": `{name: linear, namespace_name: none, version: 1.0.0, steps: [
  {name: squared, handler: {callable: arithmetic, initialization: {do: square}}},
  {name: plus_ten, dependencies: [squared], handler: {callable: arithmetic, initialization: {do: add, by: 10}}},
  {name: times_three, dependencies: [plus_ten], handler: {callable: arithmetic, initialization: {do: multiply, by: 3}}},
  {name: halved, dependencies: [times_three], handler: {callable: arithmetic, initialization: {do: multiply, by: 0.5}}}]}`,
	"mean": `{name: mean, namespace_name: none, version: 1.0.0, steps: [
  {name: squared, handler: {callable: arithmetic, initialization: {do: square}}},
  {name: plus, dependencies: [squared], handler: {callable: arithmetic, initialization: {do: add, by: 25}}},
  {name: twice, dependencies: [squared], handler: {callable: arithmetic, initialization: {do: multiply, by: 2}}},
  {name: mean, dependencies: [plus, twice], handler: {callable: arithmetic, initialization: {do: mean}}}]}`,
	"errors":           `{name: errors, namespace_name: none, version: 1.0.0, ` + errorSteps,
	"blocked_errors":   `{name: blocked_errors, namespace_name: none, version: 1.0.0, on_failure: block, ` + errorSteps,
	"plain_errors":     `{name: plain_errors, namespace_name: none, version: 1.0.0, on_failure: block, ` + strings.ReplaceAll(errorSteps, "errors_", "plain_"),
	"foreign_decision": `{name: foreign_decision, namespace_name: none, version: 1.0.0, steps: [{name: decide_for_another, handler: {callable: decide_for_another}}]}`,
	"resolvers": `{name: resolver_hints, namespace_name: resolver_tests, version: 1.0.0, steps: [
  {name: hinted, handler: {callable: actions, resolver: session}},
  {name: hinted_with_method, dependencies: [hinted], handler: {callable: actions, resolver: session, method: execute_action}},
  {name: by_the_chain, dependencies: [hinted_with_method], handler: {callable: hints.plain}}]}`,
	"yields":  `{name: yields, ` + fmt.Sprintf(yieldSteps, `, initialization: {worker_template_name: yield_batch}`),
	"unnamed": `{name: unnamed, ` + fmt.Sprintf(yieldSteps, ""),
}

const yieldSteps = `namespace_name: none, version: 1.0.0, steps: [
  {name: analyze_items, type: batchable, handler: {callable: yields_analyze%s},
   batch_config: {batch_size: 1000, parallelism: 1, cursor_field: id, worker_template: yield_batch, failure_strategy: fail_fast}},
  {name: yield_batch, type: batch_worker, dependencies: [analyze_items], handler: {callable: yields_process},
   retry: {retryable: true, max_attempts: 3, backoff: exponential, backoff_base_ms: 50}},
  {name: aggregate_results, type: deferred_convergence, dependencies: [yield_batch], handler: {callable: yields_aggregate}}]}`

const errorSteps = `steps: [
  {name: success_only, handler: {callable: errors_success}, retry: {retryable: false, max_attempts: 0}},
  {name: permanent_error_only, handler: {callable: errors_permanent}, retry: {retryable: false, max_attempts: 0}},
  {name: retryable_error_only, handler: {callable: errors_retryable}, retry: {retryable: true, max_attempts: 2, backoff: exponential, backoff_base_ms: 150}}]}`

func TestPythonRows(t *testing.T) {
	t.Parallel()
	rowsOf(t, inPython)
}

func TestTypeScriptRows(t *testing.T) {
	t.Parallel()
	rowsOf(t, inTypeScript)
}

// rowsOf runs the rows with handlers of one language.
func rowsOf(t *testing.T, in func(*testing.T) language) {
	t.Helper()
	if _, err := os.Stat(corpusTemplates); errors.Is(err, os.ErrNotExist) {
		t.Skip("the corpus of templates is not here")
	}
	l := in(t)
	l.program = "rows_worker"
	p := newPair(t, "", func(c *config.Loaded) {
		c.Worker.Sessions.ReclaimGrace, c.Worker.Namespaces, c.Orchestration.Create.InputSchema = longGrace, []string{"*"}, "warn"
	})
	r := &languageRun{p, client.New(client.Config{BaseURL: p.rest}), map[string]*client.TemplateDetail{}}
	for i := range completedRows {
		r.register(t, completedRows[i].template)
	}
	for i := range failingRows {
		r.register(t, failingRows[i].template)
	}
	for i := range calledRows {
		for _, template := range calledRows[i].templates {
			r.register(t, template)
		}
	}
	r.workerOf(t, l)
	for _, row := range completedRows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			task := r.task(t, row.template, row.context)
			results, steps := r.results(t, task), r.stepsOf(t, task)
			require.Lenf(t, steps, row.steps, "%v", slices.Sorted(maps.Keys(steps)))
			for step, result := range row.results {
				require.Contains(t, results, step)
				require.JSONEq(t, result, results[step], step)
			}
			for step, attempts := range row.attempts {
				require.Equal(t, attempts, steps[step].Attempts, step)
			}
			events := r.events(t, row.template, task)
			require.Len(t, events, len(row.events))
			for i, event := range row.events {
				require.Equal(t, event, events[i].Name+" "+compact(t, events[i].Payload))
			}
			for i := 1; i < len(row.order); i++ {
				before, after := steps[row.order[i-1]], steps[row.order[i]]
				require.NotNil(t, before.CompletedAt, row.order[i-1])
				require.NotNil(t, after.LastAttemptedAt, row.order[i])
				require.False(t, after.LastAttemptedAt.Before(before.CompletedAt.Time), "%s starts after %s", after.Name, before.Name)
			}
		})
	}
	for _, row := range calledRows {
		if row.only != "" && row.only != l.prefix {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.run(t, r)
		})
	}
	for _, row := range failingRows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			task, status := r.task(t, row.template, row.context), "error"
			if row.blocked {
				status = "blocked_by_failures"
			}
			r.ended(t, task, status)
			steps := r.stepsOf(t, task)
			failed, err := r.api.Step(r.ctx, task, steps[row.step].StepUUID)
			require.NoError(t, err)
			require.Equal(t, "error", failed.CurrentState)
			require.Equal(t, row.attempts, failed.Attempts)
			require.Contains(t, string(failed.Results), row.problem)
			var result struct {
				Error struct{ Retryable *bool }
			}
			require.NoError(t, json.Unmarshal(failed.Results, &result))
			require.NotNil(t, result.Error.Retryable, "%s", failed.Results)
			require.Equal(t, row.retryable, *result.Error.Retryable)
			if row.event != "" {
				events := r.events(t, row.template, task)
				require.Len(t, events, 1)
				require.Equal(t, row.event, events[0].Name)
			}
			if row.complete != "" {
				require.Equal(t, "complete", steps[row.complete].CurrentState)
				require.Equal(t, 1, steps[row.complete].Attempts)
			}
		})
	}
}

const corpusTemplates = "../../shared/corpus/templates"

// languageRun is a pair of daemons with the templates of the rows.
type languageRun struct {
	*pair
	api   *client.Client
	known map[string]*client.TemplateDetail // as registered, by the names of the rows
}

// register registers a template, once.
func (r *languageRun) register(t *testing.T, template string) {
	t.Helper()
	if r.known[template] != nil {
		return
	}
	source, own := ownTemplates[template]
	if !own {
		source = corpusTemplate(t, template)
	}
	known, err := r.api.RegisterTemplate(r.ctx, client.TemplateSource{Source: source, Reason: "test", Actor: "test"})
	require.NoError(t, err, template)
	r.known[template] = known
}

// corpusTemplate is the text of a template of the corpus, or of one that is derived from it.
func corpusTemplate(t *testing.T, name string) string {
	t.Helper()
	derived, ok := derivedTemplates[name]
	if !ok {
		derived.of = name
	}
	file, err := os.ReadFile(filepath.Join(corpusTemplates, derived.of+".yaml"))
	require.NoError(t, err)
	for i := 0; i < len(derived.words); i += 2 {
		require.Contains(t, string(file), derived.words[i], derived.of)
	}
	return strings.NewReplacer(derived.words...).Replace(string(file))
}

// create creates a task of a registered template.
func (r *languageRun) create(template, context string) (*client.Task, error) {
	known := r.known[template]
	return r.api.CreateTask(r.ctx, client.TaskRequest{Name: known.Name, Namespace: known.Namespace, Version: known.Version,
		Context: json.RawMessage(context), Initiator: "test", SourceSystem: "test", Reason: "test"})
}

func (r *languageRun) task(t *testing.T, template, context string) string {
	t.Helper()
	products, err := filepath.Abs(filepath.Join(corpusTemplates, "../products.csv"))
	require.NoError(t, err)
	task, err := r.create(template, strings.ReplaceAll(context, "PRODUCTS", products))
	require.NoError(t, err)
	return task.TaskUUID
}

// stepsOf returns the steps of a task by their names.
func (r *languageRun) stepsOf(t *testing.T, task string) map[string]client.Step {
	t.Helper()
	steps, err := r.api.Steps(r.ctx, task)
	require.NoError(t, err)
	named := make(map[string]client.Step, len(steps))
	for i := range steps {
		named[steps[i].Name] = steps[i]
	}
	return named
}

// events returns the durable events of a task, all of which have its correlation id.
func (r *languageRun) events(t *testing.T, template, task string) []client.Event {
	t.Helper()
	list, err := r.api.Events(r.ctx, client.EventListOptions{Namespace: r.known[template].Namespace, TaskUUID: task})
	require.NoError(t, err)
	for i := range list.Events {
		require.Equal(t, task, list.Events[i].Metadata.CorrelationID, "the task has no other one")
	}
	return list.Events
}

// compact writes JSON with sorted keys and without white space.
func compact(t *testing.T, text json.RawMessage) string {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal(text, &value))
	out, err := json.Marshal(value)
	require.NoError(t, err)
	return string(out)
}
