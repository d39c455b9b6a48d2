package corpus_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/sweep"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// stale is an engine with tasks that no worker runs.
type stale struct {
	t        *testing.T
	e        *enginetest.Engine
	template *workflow.Template
}

// neglected runs an engine without a worker, with the template about staleness, changed
// by change.
func neglected(t *testing.T, change func(*workflow.Template)) *stale {
	t.Helper()
	template := load(t, "dlq_staleness_test.yaml")
	if change != nil {
		change(template)
	}
	e := enginetest.Start(t, func(w *worker.Worker) error { return w.RegisterTemplate(template) },
		func(c *orchestration.Config, _ *worker.Config) { c.DeadLetters = true })
	require.NoError(t, e.Worker.Stop(t.Context()))
	return &stale{t, e, template}
}

// task makes a task that has been in a state for some time.
func (s *stale) task(state workflow.TaskState, since time.Duration) uuid.UUID {
	s.t.Helper()
	plan, err := s.e.Store.PlanNamed(s.t.Context(), s.template.Namespace, s.template.Name, s.template.Version)
	require.NoError(s.t, err)
	id := uuid.Must(uuid.NewV7())
	ms := time.Now().Add(-since - time.Minute).UnixMilli() // a UUID contains the age of its task
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	_, err = s.e.Store.CreateTasks(s.t.Context(), []store.NewTask{{UUID: id, Plan: plan, Context: json.RawMessage(`{"test_input":1}`), CorrelationID: id}})
	require.NoError(s.t, err)
	s.e.DB.Exec(s.t, `update tasker.board set task_state = $2, requested_at = now() - $3 * interval '1 ms' - interval '1 minute',
		state_since = now() - $3 * interval '1 ms', updated_at = now() - $3 * interval '1 ms' where task_uuid = $1 and slot = 0`, id, int(state), since.Milliseconds())
	return id
}

// judge is a run of the sweep.
func (s *stale) judge(dry bool, settings ...func(*config.Orchestration)) sweep.Run {
	s.t.Helper()
	defaults, err := config.Defaults()
	require.NoError(s.t, err)
	cfg := sweep.Config{Store: s.e.Store, Tasks: s.e.Orchestrator, Publisher: s.e.Bus, Holder: uuid.New(), Jitter: -1, Settings: defaults.Orchestration}
	for _, set := range settings {
		set(&cfg.Settings)
	}
	r, err := sweep.New(cfg)
	require.NoError(s.t, err)
	run, err := r.RunNow(s.t.Context(), "staleness", dry)
	require.NoError(s.t, err)
	return run
}

func (s *stale) entries() []store.DeadLetter {
	s.t.Helper()
	list, _, err := s.e.Store.DeadLetters(s.t.Context(), store.DeadLetterFilter{Limit: 100})
	require.NoError(s.t, err)
	return list
}

// Rows 86, 87 and 89: three minutes in a state limited to two. A dry run lists the
// actions; a run performs them, and a second one has none.
func TestAStaleTask(t *testing.T) {
	t.Parallel()
	s := neglected(t, nil)
	id := s.task(workflow.TaskStepsInProcess, 3*time.Minute)
	dry := s.judge(true)
	require.Equal(t, map[string]int{"would_transition_to_dlq_and_error": 1}, dry.Items)
	require.Equal(t, id.String(), dry.Findings[0].Subject)
	require.Empty(t, s.entries())
	require.Equal(t, workflow.TaskStepsInProcess, s.e.Read(id).State)

	require.Equal(t, map[string]int{"transitioned_to_dlq_and_error": 1}, s.judge(false).Items)
	list := s.entries()
	require.Len(t, list, 1)
	require.Equal(t, workflow.DeadLetterStaleness, list[0].Reason)
	require.Equal(t, store.ResolutionPending, list[0].Resolution)
	require.Equal(t, workflow.TaskStepsInProcess, list[0].OriginalState)
	require.Equal(t, workflow.TaskError, s.e.Read(id).State)

	require.Empty(t, s.judge(false).Items)
	require.Len(t, s.entries(), 1)
}

// Row 89: a run takes batch_size of them at once; the next one takes the rest. Here a run
// continues while it has time.
func TestStaleTasksInBatches(t *testing.T) {
	t.Parallel()
	s := neglected(t, nil)
	for range 5 {
		s.task(workflow.TaskStepsInProcess, 3*time.Minute)
	}
	run := s.judge(false, func(c *config.Orchestration) { c.DLQ.StalenessDetection.BatchSize = 2 })
	require.Equal(t, map[string]int{"transitioned_to_dlq_and_error": 5}, run.Items)
	require.Len(t, s.entries(), 5)
}

// Row 88: the template takes precedence over the default of the state; a state without a
// threshold is bounded only by the lifetime of the task.
func TestThresholdsOfStaleness(t *testing.T) {
	t.Parallel()
	defaults := store.StaleThresholds{WaitingForDependencies: time.Hour, WaitingForRetry: 30 * time.Minute, StepsInProcess: 30 * time.Minute, MaxLifetime: 24 * time.Hour}
	states := map[workflow.TaskState]int{workflow.TaskWaitingForDependencies: 60, workflow.TaskWaitingForRetry: 30, workflow.TaskStepsInProcess: 30, workflow.TaskBlockedByFailures: 24 * 60}
	minutes := func(s *stale) map[uuid.UUID]int {
		list, err := s.e.Store.StalenessMonitor(t.Context(), defaults, 100)
		require.NoError(t, err)
		got := map[uuid.UUID]int{}
		for _, m := range list {
			got[m.TaskUUID] = m.ThresholdMinutes
		}
		return got
	}
	plain := neglected(t, func(w *workflow.Template) { w.Lifecycle = nil })
	own := neglected(t, func(w *workflow.Template) { w.Lifecycle.MaxDurationMinutes = 0 })
	for _, s := range []*stale{plain, own} {
		want := map[uuid.UUID]int{}
		for state, limit := range states {
			if s == own && state != workflow.TaskBlockedByFailures {
				limit = 2
			}
			id := s.task(state, time.Minute)
			if state == workflow.TaskWaitingForRetry {
				s.e.DB.Exec(t, `update tasker.board set state = 1, due_at = now() + interval '1 hour' where task_uuid = $1`, id)
			}
			want[id] = limit
		}
		require.Equal(t, want, minutes(s))
	}
}

// Row 90: half of the threshold is healthy, most of it a warning, more is stale. A
// resolved entry leaves the queue.
func TestStalenessIsMonitored(t *testing.T) {
	t.Parallel()
	s := neglected(t, func(w *workflow.Template) {
		w.Lifecycle.MaxStepsInProcessMinutes, w.Lifecycle.MaxDurationMinutes = 20, 0
	})
	want := map[uuid.UUID]string{
		s.task(workflow.TaskStepsInProcess, 10*time.Minute): "healthy",
		s.task(workflow.TaskStepsInProcess, 17*time.Minute): "warning",
		s.task(workflow.TaskStepsInProcess, 30*time.Minute): "stale",
	}
	list, err := s.e.Store.StalenessMonitor(t.Context(), store.StaleThresholds{}, 100)
	require.NoError(t, err)
	got := map[uuid.UUID]string{}
	for _, m := range list {
		got[m.TaskUUID] = m.Health.String()
	}
	require.Equal(t, want, got)

	s.judge(false)
	queue, err := s.e.Store.InvestigationQueue(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, queue, 1)
	notes, resolution := "looked at", store.ResolutionPermanentlyFailed
	_, err = s.e.Store.UpdateDeadLetter(t.Context(), queue[0].UUID, store.DeadLetterUpdate{Resolution: &resolution, Notes: &notes})
	require.NoError(t, err)
	queue, err = s.e.Store.InvestigationQueue(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, queue)
}
