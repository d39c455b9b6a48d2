package enginetest_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// splitAgain has the step that makes batches run again, over so many numbers.
func splitAgain(task uuid.UUID, numbers int) orchestration.Action {
	split := store.StepUUID(task, 1)
	a := by(orchestration.ActionRunAgain, &split)
	a.Edit = &orchestration.ContextEdit{Patch: fmt.Appendf(nil, `{"total":%d}`, numbers)}
	return a
}

// TestBatchesRunAgainAndAgain: each run has its own batches, more or fewer than the one
// before, under the same numbers. The join adds up those of the present run, and the
// history distinguishes all of them.
func TestBatchesRunAgainAndAgain(t *testing.T) {
	t.Parallel()
	i := newIsolator(3, 14)
	e := enginetest.Start(t, i.register)
	id := e.Submit("test", "isolating", `{"total":120}`)
	e.Await(id)
	names := []string{}
	steps := map[string]uuid.UUID{}
	longest := 0
	for run, numbers := range []int{120, 75, 240, 9, 110, 240} {
		if run > 0 {
			require.NoError(t, e.Orchestrator.Act(t.Context(), id, splitAgain(id, numbers)))
		}
		task := e.Await(id)
		want := total{Sum: int64(numbers*(numbers-1)/2) - 3, Count: numbers - 1, Isolated: 1}
		if numbers > 14 {
			want = total{Sum: want.Sum - 14, Count: numbers - 2, Isolated: 2}
		}
		require.Equal(t, want, sumOf(t, task), "run %d", run)
		count := (numbers + 9) / 10
		require.Len(t, task.Batches, count)
		require.Len(t, task.Steps, 3+count)
		longest = max(longest, count)
		require.Len(t, task.Progress.Steps, 4+longest)
		for _, s := range task.Steps[3:] {
			require.Equal(t, 1, s.Attempts)
			require.Equal(t, workflow.StepComplete, s.State)
			attempts, err := e.Store.Attempts(t.Context(), id, s.No)
			require.NoError(t, err)
			require.Len(t, attempts, 1)
			names = append(names, s.Name)
			steps[s.UUID.String()] = s.UUID
		}
		require.Len(t, isolatedOf(t, e, id), want.Isolated)
		require.Len(t, names, len(steps), "no two batches are the same step")
		report, err := e.Store.CheckTask(t.Context(), e.Rules, id)
		require.NoError(t, err)
		require.Empty(t, report.Violations)
	}

	tl, err := e.Store.Timeline(t.Context(), id)
	require.NoError(t, err)
	var batches []string
	for _, a := range tl.Attempts {
		if a.Batch == "" {
			continue
		}
		batches = append(batches, a.Batch)
		delete(steps, store.BatchUUID(id, a.Step, a.Run).String())
	}
	slices.Sort(batches)
	slices.Sort(names)
	require.Equal(t, names, batches)
	require.Empty(t, steps, "each is in the history under its own UUID")
}

// TestAFormerBatchIsNobody: an operator's action on a former batch, by UUID or by name,
// does not affect the batch that has its number.
func TestAFormerBatchIsNobody(t *testing.T) {
	t.Parallel()
	i := newIsolator()
	e := enginetest.Start(t, i.register)
	id := e.Submit("test", "isolating", `{"total":20}`)
	e.Await(id)
	former := e.Read(id).Steps[3]
	require.Equal(t, store.StepUUID(id, former.No), former.UUID)

	found, err := e.Orchestrator.Preview(t.Context(), id, splitAgain(id, 10))
	require.NoError(t, err)
	require.Len(t, slices.DeleteFunc(found.Steps, func(s orchestration.StepPreview) bool { return !s.Gone }), 3, "both batches and the join")
	require.NoError(t, e.Orchestrator.Act(t.Context(), id, splitAgain(id, 10)))
	e.Await(id)
	present := e.Read(id).Steps[3]
	require.Equal(t, former.No, present.No)
	require.NotEqual(t, former.UUID, present.UUID)

	again := func(on uuid.UUID) error {
		return e.Orchestrator.Act(t.Context(), id, by(orchestration.ActionRunAgain, &on))
	}
	require.ErrorIs(t, again(former.UUID), store.ErrNotFound)
	require.ErrorIs(t, again(uuid.New()), store.ErrNotFound)
	named := by(orchestration.ActionRunAgain, nil)
	named.StepName = "part_002"
	require.ErrorIs(t, e.Orchestrator.Act(t.Context(), id, named), store.ErrNotFound, "the present run has one batch")
	require.NoError(t, again(present.UUID))
	require.Equal(t, total{Sum: 45, Count: 10}, sumOf(t, e.Await(id)))
	require.Equal(t, "part_001", e.DB.QueryString(t, `select metadata->>'step_name' from tasker.task_events
		where task_uuid = $1 and (metadata->>'step')::int = $2 and metadata->>'action' = 'run_again'`, id, present.No))
}

// TestAPreviewNamesTheBatchesThatWouldBeMade as they are named on creation.
func TestAPreviewNamesTheBatchesThatWouldBeMade(t *testing.T) {
	t.Parallel()
	i := newIsolator()
	e := enginetest.Start(t, i.register)
	id := e.Submit("test", "isolating", `{"total":20}`)
	e.Await(id)
	require.NoError(t, e.Orchestrator.Pause(t.Context(), store.Pause{Namespace: "test", Actor: "ana", Reason: "because"}))
	require.NoError(t, e.Orchestrator.Act(t.Context(), id, splitAgain(id, 30)))
	split := store.StepUUID(id, 1)
	a := by(orchestration.ActionCompleteManually, &split)
	a.Result = json.RawMessage(`{"batch_processing_outcome":{"type":"create_batches","worker_template_name":"part","worker_count":3,"total_items":3,"cursor_configs":[
		{"batch_id":"a","start_cursor":0,"end_cursor":1,"batch_size":1},{"batch_id":"b","start_cursor":1,"end_cursor":2,"batch_size":1},{"batch_id":"c","start_cursor":2,"end_cursor":3,"batch_size":1}]}}`)
	found, err := e.Orchestrator.Preview(t.Context(), id, a)
	require.NoError(t, err)
	foreseen := map[string]uuid.UUID{}
	for _, s := range found.Steps {
		if s.Batch != "" {
			foreseen[s.Batch] = store.BatchUUID(id, s.Step, s.Run)
		}
	}
	require.NoError(t, e.Orchestrator.Act(t.Context(), id, a))
	made := map[string]uuid.UUID{}
	for _, s := range e.Read(id).Steps[3:] {
		made[s.Name] = s.UUID
	}
	require.Len(t, made, 3)
	require.Equal(t, made, foreseen)
	require.NotContains(t, made, "part_001")
	require.NoError(t, e.Orchestrator.Resume(t.Context(), store.Pause{Namespace: "test", Actor: "ana", Reason: "because"}))
	require.Equal(t, total{Sum: 3, Count: 3}, sumOf(t, e.Await(id)))
}

// TestABatchGetsTheResultOfItsOwnMaker, also if a worker has cached that of the previous
// run for batches with the same numbers.
func TestABatchGetsTheResultOfItsOwnMaker(t *testing.T) {
	t.Parallel()
	i := newIsolator()
	i.part = func(ctx *worker.StepContext) (any, error) {
		made, err := worker.ResultOf[struct{ Total int64 }](ctx, "split")
		return partSum{Sum: made.Total, Count: 1}, err
	}
	e := enginetest.Start(t, i.register)
	id := e.Submit("test", "isolating", `{"total":30}`)
	require.Equal(t, total{Sum: 90, Count: 3}, sumOf(t, e.Await(id)))
	require.NoError(t, e.Orchestrator.Act(t.Context(), id, splitAgain(id, 28)))
	require.Equal(t, total{Sum: 84, Count: 3}, sumOf(t, e.Await(id)))
}
