package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
)

// calledRows are behaviours that take more than one task, or more than its end.
var calledRows = []struct {
	name      string
	only      string // the prefix of the only language that the row is about; else all
	templates []string
	run       func(*testing.T, *languageRun)
}{
	{name: "rows_05_05_audits", templates: []string{"mathematical_sequence"}, run: auditedSequence},
	{name: "rows_06_06_the_same_context_twice", templates: []string{"mathematical_sequence"}, run: sequenceAgain(`{"even_number":6,"row":6}`, `{"even_number":6,"row":6}`)},
	{name: "rows_07_07_contexts_that_differ", templates: []string{"mathematical_sequence"}, run: sequenceAnew},
	{name: "rows_08_08_keys_in_another_order", templates: []string{"mathematical_sequence"}, run: sequenceAgain(`{"even_number":6,"row":8}`, `{"row":8, "even_number":6}`)},
	{name: "rows_10_10_a_created_diamond", templates: []string{"diamond_pattern"}, run: createdDiamond},
	{name: "rows_15_15_an_order_of_nothing", templates: []string{"business_workflow"}, run: orderOfNothing},
	{name: "rows_22_22_refunds_of_two_namespaces", templates: []string{"refund_of_payments", "refund_of_customer_success"}, run: refundsAtOnce},
	{name: "rows_32_32_plain_functions", templates: []string{"plain_errors"}, run: plainErrors},
	{name: "rows_46_46_a_decision_of_no_step", templates: []string{"foreign_decision"}, run: foreignDecision},
	{name: "rows_48_48_plain_functions", templates: []string{"plain_approval"}, run: plainApprovals},
	{name: "rows_53_53_in_python_an_empty_file", only: "py", templates: []string{"unnamed_products"}, run: noProducts("name,price\n")},
	{name: "rows_53_53_in_typescript_a_missing_file", only: "ts", templates: []string{"unnamed_products"}, run: noProducts("")},
	{name: "rows_58_58_three_batches_reported_twice", templates: []string{"repeated_batches"}, run: repeatedBatches},
	{name: "rows_71_71_named_resolvers", templates: []string{"resolvers"}, run: namedResolvers},
	{name: "rows_72_72_plain_methods", templates: []string{"plain_methods"}, run: plainMethods},
}

// derivedTemplates are those of the corpus with other words, for handlers of their own.
var derivedTemplates = map[string]struct {
	of    string
	words []string // old, new, …
}{
	"refund_of_payments":         {"payments_process_refund_rs", []string{"name: payments_process_refund_rs", "name: process_refund"}},
	"refund_of_customer_success": {"customer_success_process_refund_rs", []string{"name: customer_success_process_refund_rs", "name: process_refund"}},
	"plain_approval":             {"conditional_approval_rust", []string{"name: approval_routing", "name: plain_approval", "tasker_example_rs::step_handlers::conditional_approval_rust::", "plain_approval."}},
	"plain_methods":              {"method_dispatch_rust", []string{"name: method_dispatch_rust", "name: plain_methods", "resolver_tests_multi_method", "plain_methods"}},
	"repeated_batches":           {"batch_processing_example", []string{"name: large_dataset_processor", "name: repeated_batches", "DatasetAnalyzerHandler", "RepeatingAnalyzerHandler"}},
	"unnamed_products":           {"batch_processing_products_csv", []string{"name: csv_product_inventory_analyzer", "name: unnamed_products", `worker_template_name: "process_csv_batch"`, ""}},
}

func auditedSequence(t *testing.T, r *languageRun) {
	t.Helper()
	task := r.task(t, "mathematical_sequence", `{"even_number":6,"row":5}`)
	r.ended(t, task, "complete")
	steps := r.stepsOf(t, task)
	require.Len(t, steps, 4)
	for name, step := range steps {
		audits, err := r.api.StepAudit(r.ctx, task, step.StepUUID)
		require.NoError(t, err)
		require.Len(t, audits, 1, name)
		require.True(t, audits[0].Success)
		require.Equal(t, "enqueued_for_orchestration", audits[0].ToState)
		require.NotNil(t, audits[0].ExecutionTimeMS)
	}
}

// sequenceAgain: a second task of the same content is refused, while the handlers run the first.
func sequenceAgain(first, second string) func(*testing.T, *languageRun) {
	return func(t *testing.T, r *languageRun) {
		t.Helper()
		task := r.task(t, "mathematical_sequence", first)
		_, err := r.create("mathematical_sequence", second)
		var refused *client.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, http.StatusConflict, refused.Status)
		require.ErrorContains(t, err, "exists")
		require.Equal(t, "2821109907456", r.results(t, task)["linear_step_4"])
	}
}

func sequenceAnew(t *testing.T, r *languageRun) {
	t.Helper()
	one, two := r.task(t, "mathematical_sequence", `{"even_number":6,"row":"7a"}`), r.task(t, "mathematical_sequence", `{"even_number":6,"row":"7b"}`)
	require.NotEqual(t, one, two)
	for _, task := range []string{one, two} {
		require.Equal(t, "2821109907456", r.results(t, task)["linear_step_4"])
	}
}

func createdDiamond(t *testing.T, r *languageRun) {
	t.Helper()
	created, err := r.create("diamond_pattern", `{"even_number":8}`)
	require.NoError(t, err)
	require.EqualValues(t, 4, created.TotalSteps)
	read, err := r.api.Task(r.ctx, created.TaskUUID, 0)
	require.NoError(t, err)
	require.Equal(t, created.TaskUUID, read.TaskUUID)
	require.Equal(t, "281474976710656", r.results(t, created.TaskUUID)["diamond_end"])
}

// orderOfNothing: the daemons of the rows accept a context that breaks its schema, as the
// other engine does, and the handler finds out.
func orderOfNothing(t *testing.T, r *languageRun) {
	t.Helper()
	created, err := r.create("business_workflow", `{"customer":{"id":12345},"items":[]}`)
	require.NoError(t, err)
	require.EqualValues(t, 4, created.TotalSteps)
	r.ended(t, created.TaskUUID, "error")
	for name, step := range r.stepsOf(t, created.TaskUUID) {
		if name == "validate_order" {
			require.Equal(t, "error", step.CurrentState)
			require.Equal(t, 1, step.Attempts)
		} else {
			require.Zero(t, step.Attempts, name)
		}
	}
}

// refundsAtOnce: templates of one name in two namespaces stay separate.
func refundsAtOnce(t *testing.T, r *languageRun) {
	t.Helper()
	const each = 5
	type refund struct{ template, task string }
	var mu sync.Mutex
	var refunds []refund
	var errs error
	var all sync.WaitGroup
	for i := range each {
		for template, context := range map[string]string{
			"refund_of_payments":         `{"payment_id":"pay_test_12345abc","refund_amount":%d,"refund_reason":"customer_request","customer_email":"ana@example.com","partial_refund":false}`,
			"refund_of_customer_success": `{"ticket_id":"T-1","customer_id":"C-1","refund_amount":%d,"refund_reason":"broken","customer_email":"ana@example.com","requires_approval":true}`,
		} {
			all.Go(func() {
				task, err := r.create(template, fmt.Sprintf(context, 5000+i))
				mu.Lock()
				defer mu.Unlock()
				if errs = errors.Join(errs, err); err == nil {
					refunds = append(refunds, refund{template, task.TaskUUID})
				}
			})
		}
	}
	all.Wait()
	require.NoError(t, errs)
	require.Len(t, refunds, 2*each)
	require.NotEqual(t, r.known["refund_of_payments"].Namespace, r.known["refund_of_customer_success"].Namespace)
	require.Equal(t, r.known["refund_of_payments"].Name, r.known["refund_of_customer_success"].Name)
	for _, f := range refunds {
		results := r.results(t, f.task)
		require.Len(t, results, map[string]int{"refund_of_payments": 4, "refund_of_customer_success": 5}[f.template])
		for step, result := range results {
			require.JSONEq(t, fmt.Sprintf(`{"namespace":%q}`, r.known[f.template].Namespace), result, step)
		}
	}
}

// plainErrors: what the functions of the language raise or reject with, without the kinds of
// failures that the package has for those that may be retried.
func plainErrors(t *testing.T, r *languageRun) {
	t.Helper()
	task := r.task(t, "plain_errors", `{"row":32}`)
	r.ended(t, task, "blocked_by_failures")
	steps := r.stepsOf(t, task)
	for name, want := range map[string]struct {
		state    string
		attempts int
	}{"success_only": {"complete", 1}, "permanent_error_only": {"error", 1}, "retryable_error_only": {"error", 2}} {
		require.Equal(t, want.state, steps[name].CurrentState, name)
		require.Equal(t, want.attempts, steps[name].Attempts, name)
	}
}

// foreignDecision: a process that reports a decision of a step that it does not hold, of a task
// that may not exist, is refused.
func foreignDecision(t *testing.T, r *languageRun) {
	t.Helper()
	results := r.results(t, r.task(t, "foreign_decision", `{"row":46}`))
	require.Len(t, results, 1)
	require.JSONEq(t, `{"refused":409}`, results["decide_for_another"])
}

// plainApprovals: functions that return the outcome as the protocol has it.
func plainApprovals(t *testing.T, r *languageRun) {
	t.Helper()
	for _, row := range []struct {
		amount, steps int
		path          string
	}{{500, 4, "auto"}, {3000, 4, "manager_only"}, {10000, 5, "dual_approval"}} {
		results := r.results(t, r.task(t, "plain_approval", fmt.Sprintf(`{"amount":%d,"row":48}`, row.amount)))
		require.Len(t, results, row.steps)
		require.JSONEq(t, fmt.Sprintf(`{"approval_path":%q}`, row.path), results["finalize_approval"])
	}
}

// noProducts: an analyzer that finds nothing to do, and names no worker, ends the task. No
// content: there is no file.
func noProducts(content string) func(*testing.T, *languageRun) {
	return func(t *testing.T, r *languageRun) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "products.csv")
		if content != "" {
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		}
		task := r.task(t, "unnamed_products", fmt.Sprintf(`{"csv_file_path":%q,"analysis_mode":"inventory"}`, path))
		results := r.results(t, task)
		require.Len(t, results, 1, "no worker, and nothing to add up")
		require.Contains(t, results["analyze_csv"], "no_batches")
	}
}

// repeatedBatches: the analyzer reports its end, and then returns, which reports it again.
func repeatedBatches(t *testing.T, r *languageRun) {
	t.Helper()
	task := r.task(t, "repeated_batches", `{"dataset_size":3000,"row":58}`)
	results := r.results(t, task)
	require.Len(t, results, 5)
	require.JSONEq(t, `{"total":3000,"workers":3}`, results["aggregate_results"])
	steps := r.stepsOf(t, task)
	for _, name := range []string{"process_batch_001", "process_batch_002", "process_batch_003"} {
		require.JSONEq(t, `{"processed":1000}`, results[name])
		require.Equal(t, 1, steps[name].TotalParents, name)
		require.Equal(t, 1, steps[name].Attempts, name)
	}
	require.Equal(t, 3, steps["aggregate_results"].TotalParents)
	require.Equal(t, 1, steps["analyze_dataset"].Attempts)
}

// namedResolvers: the sessions of a worker are a resolver, which a template can name.
func namedResolvers(t *testing.T, r *languageRun) {
	t.Helper()
	results := r.results(t, r.task(t, "resolvers", fmt.Sprintf(`{"run":%q}`, uuid.NewString())))
	require.Equal(t, map[string]string{"hinted": `"called"`, "hinted_with_method": `"executed"`, "by_the_chain": `"from the chain"`}, results)
}

// plainMethods: functions that are registered one by one as the methods of a callable.
func plainMethods(t *testing.T, r *languageRun) {
	t.Helper()
	results := r.results(t, r.task(t, "plain_methods", `{"data":{"amount":100,"reason":"broken"}}`))
	require.Len(t, results, 4)
	for step, method := range map[string]string{"validate_step_rust": "validate", "refund_step_rust": "refund", "default_call_step_rust": "call"} {
		require.JSONEq(t, fmt.Sprintf(`{"invoked_method":%q}`, method), results[step])
	}
	require.JSONEq(t, `{"invoked_method":"process","processed_amount":110,"processing_fee":10}`, results["process_step_rust"])
}
