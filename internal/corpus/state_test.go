package corpus_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

const even = `{"even_number":6}`

// thrice gives each step three attempts, as outside of the environment test, with short
// delays.
func thrice(w *workflow.Template) {
	quickly(w)
	for i := range w.Steps {
		w.Steps[i].Retry.MaxAttempts = 3
	}
}

// The states of tasks are (steps, complete, ready). If a permanent failure leaves no step
// that can run, the task stays blocked_by_failures in the other engine; here it does so
// with on_failure: block, and otherwise ends as error.

// Row 73.
func TestStatesOfASequence(t *testing.T) {
	t.Parallel()
	d := drive(t, "mathematical_sequence.yaml", even, nil)
	for i, name := range []string{"linear_step_1", "linear_step_2", "linear_step_3", "linear_step_4"} {
		d.counts(4, i, 1)
		require.Equal(t, []string{name}, d.ready())
		d.completes(name)
	}
	d.counts(4, 4, 0)
	require.Equal(t, workflow.TaskComplete, d.e.Read(d.id).State)
}

// Row 74: a step that failed three times of three is not retried, and its successors stay
// pending.
func TestAFailureBlocksASequence(t *testing.T) {
	t.Parallel()
	d := drive(t, "mathematical_sequence.yaml", even, func(w *workflow.Template) { thrice(w); w.OnFailure = workflow.OnFailureBlock })
	d.completes("linear_step_1")
	d.exhausts("linear_step_2")
	require.Equal(t, 3, d.step("linear_step_2").Attempts)
	for _, later := range []string{"linear_step_3", "linear_step_4"} {
		require.Equal(t, workflow.StepPending, d.step(later).State)
	}
	d.counts(4, 1, 0)
	require.Equal(t, workflow.TaskBlockedByFailures, d.e.Read(d.id).State)
}

// Row 75.
func TestAStepSucceedsAtLast(t *testing.T) {
	t.Parallel()
	d := drive(t, "mathematical_sequence.yaml", even, thrice)
	d.fails("linear_step_1")
	d.fails("linear_step_1")
	d.completes("linear_step_1")
	require.Equal(t, 3, d.step("linear_step_1").Attempts)
	require.Equal(t, []string{"linear_step_2"}, d.ready())
}

// Row 76: one failure of three waits for its time.
func TestAFailureWaits(t *testing.T) {
	t.Parallel()
	d := drive(t, "mathematical_sequence.yaml", even, thrice)
	d.report("linear_step_1", func(r *store.Report) {
		r.Error, r.Retryable, r.RetryAfter = json.RawMessage(`{"message":"later"}`), true, time.Hour
	})
	d.counts(4, 0, 0)
	s := d.step("linear_step_1")
	require.Equal(t, workflow.StepWaitingForRetry, s.State, "it may be retried")
	require.NotNil(t, s.NextRetryAt)
	require.Greater(t, s.NextRetryAt.Sub(*s.ReportedAt), 59*time.Minute)
	require.Equal(t, workflow.TaskWaitingForRetry, d.e.Read(d.id).State)
}

// Row 77.
func TestStatesOfADiamond(t *testing.T) {
	t.Parallel()
	d := drive(t, "diamond_pattern.yaml", even, nil)
	d.counts(4, 0, 1)
	d.completes("diamond_start")
	d.counts(4, 1, 2)
	d.completes("diamond_branch_b")
	d.counts(4, 2, 1)
	end := d.step("diamond_end")
	require.Equal(t, [2]int{2, 1}, [2]int{end.Parents, end.ParentsDone})
	require.False(t, end.Ready)
	d.completes("diamond_branch_c")
	d.counts(4, 3, 1)
	require.Equal(t, []string{"diamond_end"}, d.ready())
	d.completes("diamond_end")
	d.counts(4, 4, 0)
}

// Row 78.
func TestStatesOfATree(t *testing.T) {
	t.Parallel()
	d := drive(t, "hierarchical_tree.yaml", even, nil)
	d.counts(8, 0, 1)
	d.completes("tree_root")
	d.counts(8, 1, 2)
	d.completes("tree_branch_left", "tree_branch_right")
	d.counts(8, 3, 4)
	d.completes("tree_leaf_d", "tree_leaf_e", "tree_leaf_f", "tree_leaf_g")
	d.counts(8, 7, 1)
	d.completes("tree_final_convergence")
	d.counts(8, 8, 0)

	d = drive(t, "hierarchical_tree.yaml", even, quickly)
	d.completes("tree_root", "tree_branch_left", "tree_branch_right", "tree_leaf_d", "tree_leaf_e", "tree_leaf_f")
	d.exhausts("tree_leaf_g")
	d.counts(8, 6, 0)
	end := d.step("tree_final_convergence")
	require.Equal(t, [2]int{4, 3}, [2]int{end.Parents, end.ParentsDone})

	// The other branch continues without the left one.
	d = drive(t, "hierarchical_tree.yaml", even, quickly)
	d.completes("tree_root")
	d.exhausts("tree_branch_left")
	d.completes("tree_branch_right")
	d.counts(8, 2, 2)
	require.Equal(t, []string{"tree_leaf_f", "tree_leaf_g"}, d.ready())
	require.False(t, d.e.Read(d.id).State.Terminal())
}

// Row 79.
func TestStatesOfAMixedGraph(t *testing.T) {
	t.Parallel()
	d := drive(t, "complex_dag.yaml", even, nil)
	d.counts(7, 0, 1)
	d.completes("dag_init")
	d.counts(7, 1, 2)
	d.completes("dag_process_left", "dag_process_right")
	d.counts(7, 3, 3)
	d.completes("dag_validate", "dag_transform", "dag_analyze")
	d.counts(7, 6, 1)
	d.completes("dag_finalize")
	d.counts(7, 7, 0)

	d = drive(t, "complex_dag.yaml", even, quickly)
	d.completes("dag_init")
	d.exhausts("dag_process_left")
	d.completes("dag_process_right")
	d.counts(7, 2, 1)
	require.Equal(t, []string{"dag_analyze"}, d.ready())

	d = drive(t, "complex_dag.yaml", even, quickly)
	d.completes("dag_init", "dag_process_left", "dag_process_right", "dag_transform", "dag_analyze")
	d.exhausts("dag_validate")
	d.counts(7, 5, 0)
	finalize := d.step("dag_finalize")
	require.Equal(t, [2]int{3, 2}, [2]int{finalize.Parents, finalize.ParentsDone})
}

// Row 80: the payment may be tried twice.
func TestStatesOfAnOrder(t *testing.T) {
	t.Parallel()
	d := drive(t, "business_workflow.yaml", `{"customer":{"id":1,"name":"Ana","email":"ana@example.com"},"items":[{"sku":"W","quantity":1,"price":1.5}],
		"payment":{"method":"credit_card","token":"t"},"shipping":{"method":"standard","address":{"city":"Berlin"}}}`, quickly)
	d.completes("validate_order", "reserve_inventory")
	d.exhausts("process_payment")
	d.counts(4, 2, 0)
	require.Equal(t, 2, d.step("process_payment").Attempts)
}

// Row 81: the steps at the beginning.
func TestStatesAtTheBeginning(t *testing.T) {
	t.Parallel()
	drive(t, "conditional_approval_rust.yaml", `{"amount":500,"requester":"r","purpose":"p"}`, nil).counts(2, 0, 1)
	drive(t, "batch_processing_example.yaml", `{"dataset_size":5000}`, nil).counts(1, 0, 1)
}

// Row 82: the number of steps on the path to each.
func TestLevelsOfDependencies(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]map[string]int{
		"mathematical_sequence.yaml": {"linear_step_1": 0, "linear_step_2": 1, "linear_step_3": 2, "linear_step_4": 3},
		"diamond_pattern.yaml":       {"diamond_start": 0, "diamond_branch_b": 1, "diamond_branch_c": 1, "diamond_end": 2},
	} {
		plan, err := workflow.Compile(load(t, file))
		require.NoError(t, err)
		levels := map[string]int{}
		for no := range plan.Steps { // parents come first
			level := 0
			for _, parent := range plan.Steps[no].Parents {
				level = max(level, levels[plan.Steps[parent].Name]+1)
			}
			levels[plan.Steps[no].Name] = level
		}
		require.Equal(t, want, levels)
	}
}

// failedDiamond has failed for good in one branch.
func failedDiamond(t *testing.T) *driver {
	t.Helper()
	d := drive(t, "diamond_pattern.yaml", even, quickly)
	d.completes("diamond_start", "diamond_branch_b")
	d.exhausts("diamond_branch_c")
	d.counts(4, 2, 0)
	return d
}

// Row 83.
func TestAFailedStepIsResolved(t *testing.T) {
	t.Parallel()
	d := failedDiamond(t)
	require.NoError(t, d.act(orchestration.ActionResolveManually, "diamond_branch_c", nil))
	s := d.step("diamond_branch_c")
	require.Equal(t, workflow.StepResolvedManually, s.State)
	require.Nil(t, s.Result)
	require.Equal(t, []string{"diamond_end"}, d.ready())
	d.completes("diamond_end")
	require.Equal(t, workflow.TaskComplete, d.e.Read(d.id).State)
}

// Row 84.
func TestAFailedStepIsCompleted(t *testing.T) {
	t.Parallel()
	d := failedDiamond(t)
	require.NoError(t, d.act(orchestration.ActionCompleteManually, "diamond_branch_c", json.RawMessage(`{"result":1296}`)))
	s := d.step("diamond_branch_c")
	require.Equal(t, workflow.StepComplete, s.State)
	require.JSONEq(t, `{"result":1296}`, string(s.Result))
	require.Equal(t, "ana", s.Manual.Actor)
	require.NotNil(t, s.CompletedAt)
	require.Equal(t, []string{"diamond_end"}, d.ready())
}

// Row 85: as if it had never run. In other states the reset is rejected.
func TestAFailedStepIsReset(t *testing.T) {
	t.Parallel()
	d := failedDiamond(t)
	var refused *orchestration.TransitionError
	for _, name := range []string{"diamond_start", "diamond_end"} {
		require.ErrorAs(t, d.act(orchestration.ActionResetForRetry, name, nil), &refused, name)
	}
	require.NoError(t, d.act(orchestration.ActionResetForRetry, "diamond_branch_c", nil))
	s := d.step("diamond_branch_c")
	require.Equal(t, workflow.StepEnqueued, s.State, "pending, and enqueued at once, as its dependencies are met")
	require.Zero(t, s.Attempts)
	d.counts(4, 2, 1)
	require.ErrorAs(t, d.act(orchestration.ActionResetForRetry, "diamond_branch_c", nil), &refused)
	d.completes("diamond_branch_c", "diamond_end")
	require.Equal(t, workflow.TaskComplete, d.e.Read(d.id).State)
}
