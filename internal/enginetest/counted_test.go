package enginetest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// TestCountersEqualTheDatabase: after retries, failures, decisions, batches and
// cancellations, by workers and orchestrators, each counter is what the ledger says.
func TestCountersEqualTheDatabase(t *testing.T) {
	t.Parallel()
	m := telemetry.Discard()
	slow := make(chan struct{})
	e := enginetest.Start(t, func(w *worker.Worker) error {
		return errors.Join(registerCreating(w), handlers(slow)(w), enginetest.RegisterTemplates(w, fmt.Sprintf(oneStep, "bad", "test.bad")),
			w.Register("test.bad", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return nil, errors.New("never") })))
	}, func(o *orchestration.Config, w *worker.Config) { o.Metrics, w.Metrics = m, m })

	var running, all []uuid.UUID
	for n := range 12 { // "slow" takes fewer permits than there are
		input := func(more string) string { return fmt.Sprintf(`{"n": %d%s}`, n, more) }
		running = append(running, e.Submit("test", "slow", input("")))
		for _, name := range []string{"ok", "flaky", "bad"} {
			all = append(all, e.Submit("test", name, input("")))
		}
		for _, outcome := range []string{asksSmall, asksBoth, asksNone, `"outcome": {"other": 1}`} {
			all = append(all, e.Submit("test", "choice", input(", "+outcome)))
		}
		all = append(all, e.Submit("test", "parts", input(", "+asksFour)))
	}
	for i, task := range running {
		if i%2 == 0 {
			e.Until(task, func(task *store.Task) bool { return task.Steps[0].State == workflow.StepInProgress })
			require.NoError(t, e.Orchestrator.Cancel(t.Context(), task, "ana", "no longer wanted"))
		}
	}
	close(slow)
	for _, task := range append(all, running...) {
		e.Await(task)
	}

	count := func(sql string) float64 { return float64(e.DB.QueryInt(t, sql)) }
	ended := func(state workflow.TaskState) string {
		return fmt.Sprintf(`select count(*) from tasker.step_attempts where task_state = %d`, state)
	}
	created := `select count(distinct (a.task_uuid, a.step_no)) from tasker.step_attempts a join tasker.tasks using (task_uuid) join tasker.plans p using (plan_id)
		where (p.name, a.step_no >= %d) = ('%s', true)`
	for name, c := range map[string]struct {
		counter prometheus.Counter
		sql     string
	}{
		"created":   {m.TasksCreated.WithLabelValues("test"), `select count(*) from tasker.tasks`},
		"claimed":   {m.StepsClaimed.WithLabelValues("test"), `select count(*) from tasker.step_attempts where claimed_at is not null`},
		"ready":     {m.StepsReady.WithLabelValues("test"), `select count(*) from tasker.step_attempts where claimed_at is not null`}, // none is cancelled before it runs
		"complete":  {m.TasksCompleted.WithLabelValues("test", "complete"), ended(workflow.TaskComplete)},
		"error":     {m.TasksCompleted.WithLabelValues("test", "error"), ended(workflow.TaskError)},
		"cancelled": {m.TasksCompleted.WithLabelValues("test", "cancelled"), ended(workflow.TaskCancelled)},
		"batches":   {m.BatchesCreated.WithLabelValues("test"), fmt.Sprintf(created, 4, "parts")},
		"decisions": {m.StepsCreated.WithLabelValues("test"), `select (` + fmt.Sprintf(created, 2, "choice") + `) + (` + fmt.Sprintf(created, 3, "parts") + ` and a.step_no = 3)`},
	} {
		want := count(c.sql)
		require.Positive(t, want, name)
		pgtest.Eventually(t, patience, func() (bool, string) {
			got := testutil.ToFloat64(c.counter)
			return got == want, fmt.Sprintf("%s: %v are counted, %v recorded", name, got, want)
		})
	}
	for outcome := workflow.OutcomeSuccess; outcome <= workflow.OutcomeCancelled; outcome++ {
		want := count(fmt.Sprintf(`select count(*) from tasker.step_attempts where outcome = %d and step_no >= 0`, outcome))
		got := testutil.ToFloat64(m.StepResults.WithLabelValues("test", outcome.String()))
		require.InDelta(t, want, got, 0, outcome)
		require.Equal(t, outcome != workflow.OutcomeLeaseLost, want > 0, outcome)
	}
}
