package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/workflow"
)

// lettered is a store with tasks whose first step is claimed.
type lettered struct {
	*store.Store
	db    *pgtest.DB
	pool  *pgxpool.Pool
	plan  *store.Plan
	tasks []uuid.UUID
}

func newLettered(t *testing.T, n int) *lettered {
	t.Helper()
	s, db := open(t)
	tmpl := plantest.Compiled(t).Template
	_, err := s.RegisterTemplates(t.Context(), store.Registrant{Environment: "test"}, []*workflow.Template{tmpl})
	require.NoError(t, err)
	l := &lettered{Store: s, db: db, pool: db.Pool(t)}
	l.plan, err = s.PlanNamed(t.Context(), tmpl.Namespace, tmpl.Name, tmpl.Version)
	require.NoError(t, err)
	for range n {
		l.tasks = append(l.tasks, uuid.Must(uuid.NewV7()))
		_, err := s.CreateTasks(t.Context(), []store.NewTask{{UUID: l.tasks[len(l.tasks)-1], Plan: l.plan, Context: json.RawMessage(`{}`),
			CorrelationID: uuid.Must(uuid.NewV7())}})
		require.NoError(t, err)
	}
	return l
}

func (l *lettered) record(t *testing.T, task uuid.UUID, reason workflow.DeadLetterReason, detail string, step *int) {
	t.Helper()
	_, err := pg.Run(t.Context(), l.pool, board.RecordDeadLetters.With(pg.Args{"o": []board.OpenedLetter{
		{TaskUUID: task, OriginalState: workflow.TaskStepsInProcess, Reason: reason, Detail: detail, No: step}}}))
	require.NoError(t, err)
}

func (l *lettered) marked(t *testing.T, task uuid.UUID) bool {
	t.Helper()
	return l.db.QueryBool(t, `select coalesce(dead_letter, false) from tasker.board where task_uuid = $1 and slot = 0`, task)
}

func TestDeadLetterTellsWhatIsKnown(t *testing.T) {
	t.Parallel()
	l := newLettered(t, 1)
	task, step := l.tasks[0], 0
	l.db.Exec(t, `update tasker.board set state = 4, token = 1, outcome = 2, attempt = 3, error = '{"message": "no"}', step_no = 0,
		requested_at = now() - interval '90 minutes', state_since = now() - interval '65 minutes' where task_uuid = $1`, task)
	l.record(t, task, workflow.DeadLetterExhausted, "permanent", &step)
	require.True(t, l.marked(t, task))
	entry, err := l.DeadLetterOfTask(t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, uuid.Version(7), entry.UUID.Version())
	require.Equal(t, workflow.TaskStepsInProcess, entry.OriginalState)
	require.Equal(t, workflow.TaskPending, entry.CurrentState)
	require.Equal(t, store.ResolutionPending, entry.Resolution)
	require.Equal(t, "permanent", entry.Detail)
	require.Equal(t, []string{"big", "p", "1.0.0"}, []string{entry.Namespace, entry.TaskName, entry.Version})
	require.Nil(t, entry.Metadata)
	var snapshot map[string]any
	require.NoError(t, json.Unmarshal(entry.Snapshot, &snapshot))
	require.Subset(t, snapshot, map[string]any{"task_uuid": task.String(), "namespace": "big", "task_name": "p", "version": "1.0.0",
		"current_state": "steps_in_process", "time_in_state_minutes": 65.0, "threshold_minutes": nil, "priority": 0.0,
		"step": "a", "error": map[string]any{"message": "no"}, "attempts": 3.0})
	require.Contains(t, snapshot, "age_minutes")
	require.Contains(t, snapshot, "detected_at")

	l.record(t, task, workflow.DeadLetterStaleness, "again", nil)
	again, err := l.DeadLetter(t.Context(), entry.UUID)
	require.NoError(t, err)
	require.Equal(t, workflow.DeadLetterExhausted, again.Reason, "the first reason stays")
	require.Equal(t, "again", again.Detail)
	require.JSONEq(t, string(entry.Snapshot), string(again.Snapshot))
	var metadata struct{ Latest map[string]any }
	require.NoError(t, json.Unmarshal(again.Metadata, &metadata))
	require.Equal(t, "staleness_timeout", metadata.Latest["reason"])
	require.Equal(t, 1, l.db.QueryInt(t, `select count(*) from tasker.dlq_entries`))
}

func TestDeadLetterOfAStaleTask(t *testing.T) {
	t.Parallel()
	l := newLettered(t, 2)
	l.record(t, l.tasks[1], workflow.DeadLetterStaleness, "waiting_for_retry", nil)
	require.NoError(t, l.DescribeStale(t.Context(), []store.StaleTask{{UUID: l.tasks[1], MinutesInState: 31, ThresholdMinutes: 30}}))
	described, err := l.DeadLetterOfTask(t.Context(), l.tasks[1])
	require.NoError(t, err)
	require.JSONEq(t, `{"detection_method":"automatic_staleness","time_in_state_minutes":31,"threshold_minutes":30}`, string(described.Metadata))
}

func TestDeadLetterByHand(t *testing.T) {
	t.Parallel()
	l := newLettered(t, 1)
	_, _, err := l.OpenDeadLetter(t.Context(), uuid.Must(uuid.NewV7()), workflow.DeadLetterManual, "", "ana", nil)
	require.ErrorIs(t, err, store.ErrNotFound)
	entry, created, err := l.OpenDeadLetter(t.Context(), l.tasks[0], workflow.DeadLetterManual, "odd", "ana", json.RawMessage(`{"ticket":"X-1"}`))
	require.NoError(t, err)
	require.True(t, created)
	require.True(t, l.marked(t, l.tasks[0]))
	require.JSONEq(t, `{"opened_by":"ana","ticket":"X-1"}`, string(entry.Metadata))
	second, created, err := l.OpenDeadLetter(t.Context(), l.tasks[0], workflow.DeadLetterManual, "odd still", "bo", nil)
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, entry.UUID, second.UUID)

	_, err = l.UpdateDeadLetter(t.Context(), uuid.Must(uuid.NewV7()), store.DeadLetterUpdate{})
	require.ErrorIs(t, err, store.ErrNotFound)
	notes, closed, pending := "fixed", store.ResolutionPermanentlyFailed, store.ResolutionPending
	changed, err := l.UpdateDeadLetter(t.Context(), entry.UUID, store.DeadLetterUpdate{Notes: &notes, Metadata: json.RawMessage(`{"root_cause":"disk"}`)})
	require.NoError(t, err)
	require.Equal(t, store.ResolutionPending, changed.Resolution)
	require.True(t, l.marked(t, l.tasks[0]))
	require.Contains(t, string(changed.Metadata), `"ticket"`)
	changed, err = l.UpdateDeadLetter(t.Context(), entry.UUID, store.DeadLetterUpdate{Resolution: &closed})
	require.NoError(t, err)
	require.Equal(t, closed, changed.Resolution)
	require.NotNil(t, changed.ResolvedAt)
	require.Equal(t, notes, *changed.Notes)
	require.False(t, l.marked(t, l.tasks[0]), "the mark goes with the last open entry")
	_, err = l.UpdateDeadLetter(t.Context(), entry.UUID, store.DeadLetterUpdate{Resolution: &pending})
	require.NoError(t, err)
	require.True(t, l.marked(t, l.tasks[0]), "and comes back with it")

	other := uuid.Must(uuid.NewV7())
	require.NoError(t, l.MarkReplayed(t.Context(), entry.UUID, other, "ana"))
	changed, err = l.DeadLetter(t.Context(), entry.UUID)
	require.NoError(t, err)
	require.Equal(t, other, *changed.ReplayedAs)
	require.Equal(t, store.ResolutionManuallyResolved, changed.Resolution)
	_, created, err = l.OpenDeadLetter(t.Context(), l.tasks[0], workflow.DeadLetterManual, "anew", "ana", nil)
	require.NoError(t, err)
	require.True(t, created)
	_, err = l.UpdateDeadLetter(t.Context(), entry.UUID, store.DeadLetterUpdate{Resolution: &pending})
	require.ErrorIs(t, err, store.ErrDeadLetterOpen)
}

func TestDeadLetterOfAnEndedTask(t *testing.T) {
	t.Parallel()
	l := newLettered(t, 1)
	l.db.Exec(t, `delete from tasker.board`)
	l.db.Exec(t, `insert into tasker.step_attempts (task_uuid, token, step_no, attempt, outcome, error, task_state, task_progress)
		values ($1, 1, 0, 2, 3, '{"message": "no"}', 10, '\x01')`, l.tasks[0])
	entry, created, err := l.OpenDeadLetter(t.Context(), l.tasks[0], workflow.DeadLetterManual, "odd", "ana", nil)
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, workflow.TaskError, entry.OriginalState)
	require.Equal(t, workflow.TaskError, entry.CurrentState)
	l.record(t, l.tasks[0], workflow.DeadLetterExhausted, "again", new(int))
}

func TestDeadLettersAreListedCountedAndPurged(t *testing.T) {
	t.Parallel()
	l := newLettered(t, 6)
	for i, task := range l.tasks {
		reason := workflow.DeadLetterReasons()[i%5]
		l.record(t, task, reason, "d", nil)
		l.db.Exec(t, `update tasker.dlq_entries set dlq_timestamp = now() - $2 * interval '1 minute' where task_uuid = $1`, task, 100-10*i)
	}
	closed, pending, exhausted := store.ResolutionCancelled, store.ResolutionPending, workflow.DeadLetterExhausted
	first, err := l.DeadLetterOfTask(t.Context(), l.tasks[0])
	require.NoError(t, err)
	reason, err := l.PendingReason(t.Context(), l.tasks[0])
	require.NoError(t, err)
	require.Equal(t, first.Reason, reason)
	_, err = l.UpdateDeadLetter(t.Context(), first.UUID, store.DeadLetterUpdate{Resolution: &closed})
	require.NoError(t, err)
	_, err = l.PendingReason(t.Context(), l.tasks[0])
	require.ErrorIs(t, err, store.ErrNotFound)

	list := func(f store.DeadLetterFilter) (tasks []uuid.UUID) {
		t.Helper()
		entries, _, err := l.DeadLetters(t.Context(), f)
		require.NoError(t, err)
		for i := range entries {
			tasks = append(tasks, entries[i].TaskUUID)
		}
		return tasks
	}
	k := l.tasks
	require.Equal(t, []uuid.UUID{k[5], k[4], k[3], k[2], k[1], k[0]}, list(store.DeadLetterFilter{Limit: 50}))
	require.Equal(t, []uuid.UUID{k[4], k[3]}, list(store.DeadLetterFilter{Limit: 2, Offset: 1}))
	require.Equal(t, []uuid.UUID{k[1], k[2]}, list(store.DeadLetterFilter{Limit: 2, Resolution: &pending, OldestFirst: true}))
	require.Equal(t, []uuid.UUID{k[0]}, list(store.DeadLetterFilter{Limit: 50, Resolution: &closed}))
	require.Equal(t, []uuid.UUID{k[1]}, list(store.DeadLetterFilter{Limit: 50, Reason: &exhausted}))
	since, until := time.Now().Add(-85*time.Minute), time.Now().Add(-65*time.Minute)
	require.Equal(t, []uuid.UUID{k[3], k[2]}, list(store.DeadLetterFilter{Limit: 50, Since: &since, Until: &until}))
	require.Len(t, list(store.DeadLetterFilter{Limit: 50, Namespace: "big", Name: "p"}), 6)
	require.Empty(t, list(store.DeadLetterFilter{Limit: 50, Namespace: "none"}))
	require.Empty(t, list(store.DeadLetterFilter{Limit: 50, Name: "none"}))

	stats, err := l.DeadLetterStats(t.Context())
	require.NoError(t, err)
	require.Len(t, stats, 5)
	stale := stats[0]
	require.Equal(t, workflow.DeadLetterStaleness, stale.Reason)
	require.Equal(t, []int{2, 1, 0, 0, 1}, []int{stale.Total, stale.Pending, stale.ManuallyResolved, stale.PermanentlyFailed, stale.Cancelled})
	require.InDelta(t, 100, stale.AverageResolution.Minutes(), 1)
	require.InDelta(t, 50, stale.Newest.Sub(stale.Oldest).Minutes(), 1)
	require.Nil(t, stats[1].AverageResolution)

	queue, err := l.InvestigationQueue(t.Context(), 50)
	require.NoError(t, err)
	var order []workflow.DeadLetterReason
	for _, q := range queue {
		order = append(order, q.Reason)
	}
	require.Equal(t, []workflow.DeadLetterReason{workflow.DeadLetterCycle, workflow.DeadLetterExhausted, workflow.DeadLetterStaleness,
		workflow.DeadLetterWorkerUnavailable, workflow.DeadLetterManual}, order)
	require.InDelta(t, 1080, queue[0].Score, 1)
	require.InDelta(t, 80, queue[0].Minutes, 1)
	require.NotNil(t, queue[0].MinutesInState)
	require.Equal(t, 5, l.db.QueryInt(t, `select count(*) from tasker.v_dlq_investigation_queue`))
	require.Equal(t, 5, l.db.QueryInt(t, `select count(*) from tasker.v_dlq_dashboard`))

	l.db.Exec(t, `update tasker.dlq_entries set resolution_timestamp = now() - interval '1 hour' where resolution > 1`)
	for _, dry := range []bool{true, false} {
		n, err := l.PurgeDeadLetters(t.Context(), 30*time.Minute, 10, store.OperatorAction{Actor: "ana", Action: "purge_dlq", DryRun: dry})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	n, err := l.PurgeDeadLetters(t.Context(), 30*time.Minute, 10, store.OperatorAction{Actor: "ana", Action: "purge_dlq"})
	require.NoError(t, err)
	require.Zero(t, n, "open entries stay")
	require.Equal(t, "0 0 f, 1 1 f, 1 0 t", l.db.QueryString(t, `select string_agg(concat_ws(' ', matched, changed, dry_run), ', ' order by action_id desc) from tasker.operator_actions`))
}
