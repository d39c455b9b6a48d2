package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/rates"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// What is not read of the tasks and executions of a window is left out as a whole, and the
// period begins later.
func TestAnalysisIsOfWholeTasks(t *testing.T) {
	t.Parallel()
	db := plantest.Open(t)
	plantest.Fixture{Finished: 100}.Fill(t, db)
	conn, err := db.Pool(t).Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	const year = 24 * 365 * time.Hour
	for name, c := range map[string]struct {
		tasks, attempts int
		total           int64
		cut             bool
	}{
		"all are read":        {1000, 1000, 100, false},
		"not all tasks":       {30, 1000, 30, true},
		"not all executions":  {1000, 11, 10, true},
		"no task of this age": {0, 1000, 0, false},
	} {
		p, err := stmt.One[Performance](t.Context(), conn, performance.With(analysis(year).And(pg.Args{"tasks": c.tasks, "attempts": c.attempts})))
		require.NoError(t, err, name)
		require.Equal(t, c.total, p.Total, name)
		require.Equal(t, c.total, p.Completed, name)
		require.Equal(t, c.cut, p.At.Sub(p.Since) < year, name)
	}
}

// A window with more tasks than are analysed is summed up by the rates, all of it.
func TestAnalysisOfMoreTasksIsByRates(t *testing.T) {
	t.Parallel()
	l, counter, exec := openRates(t, 2)
	at := time.Now().Add(-time.Hour)
	attempt := func(step int, outcome workflow.AttemptOutcome, ran time.Duration) rates.Attempt {
		return rates.Attempt{Callable: 1, Plan: 1, Step: step, Outcome: outcome, Claimed: at, Reported: at.Add(ran), Applied: at}
	}
	counter.Count([]rates.Attempt{attempt(0, workflow.OutcomeSuccess, 2*time.Second), attempt(0, workflow.OutcomeFailed, 4*time.Second), attempt(1, workflow.OutcomeSuccess, time.Second)},
		[]rates.End{{Plan: 1, State: workflow.TaskComplete, Requested: at.Add(-3 * time.Second), Ended: at}, {Plan: 1, State: workflow.TaskError, Requested: at.Add(-5 * time.Second), Ended: at}})
	_, err := l.KeepRates(t.Context(), time.Minute)
	require.NoError(t, err)
	exec(`insert into tasker.task_counts (plan_id, state, at, count) values (1, 1, date_trunc('minute', $1::timestamptz), 20000)`, at)
	_, _, err = l.AddUpRates(t.Context(), 100)
	require.NoError(t, err)

	few, err := l.Performance(t.Context(), 24*time.Hour)
	require.NoError(t, err)
	require.Zero(t, few.Total, "the ledger has no task")
	exec(`insert into tasker.tasks (task_uuid, requested_at, plan_id, queue, priority, context)
		select tasker.uuid_v7(), now(), 1, 1, 0, '{}' from generate_series(1, $1::int)`, analysedTasks)
	p, err := l.Performance(t.Context(), 24*time.Hour)
	require.NoError(t, err)
	require.Equal(t, []int64{20_000, 19_998, 1, 1, 2}, []int64{p.Total, p.Active, p.Completed, p.Failed, p.Steps})
	require.InDelta(t, 4, p.TaskSeconds, 0.001)
	require.InDelta(t, 7.0/3, p.StepSeconds, 0.001)
	for _, window := range []time.Duration{24 * time.Hour, 300 * time.Hour} {
		b, err := l.Bottlenecks(t.Context(), window, 10, 1)
		require.NoError(t, err)
		require.Len(t, b.Steps, 2)
		require.Equal(t, "a", b.Steps[0].Step)
		require.InDelta(t, 3, b.Steps[0].Average, 0.001)
		require.InDelta(t, 4, b.Steps[0].Longest, 0.001)
		require.Equal(t, []int64{2, 1}, []int64{b.Steps[0].Executions, b.Steps[0].Errors})
		require.Len(t, b.Tasks, 1)
		require.InDelta(t, 4, b.Tasks[0].Average, 0.001)
		require.InDelta(t, 5, b.Tasks[0].Longest, 0.001)
		require.InDelta(t, 1, b.Tasks[0].Steps, 0.001)
		require.EqualValues(t, 1, b.Tasks[0].Errors)
	}
}
