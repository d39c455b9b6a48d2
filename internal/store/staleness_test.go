package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

const patientYAML = `
name: patient
namespace_name: slow
version: 1.0.0
lifecycle: {max_steps_in_process_minutes: 2, max_waiting_for_retry_minutes: 5, max_duration_minutes: 600}
steps:
  - name: only
    handler: {callable: only}
`

var thresholds = store.StaleThresholds{WaitingForDependencies: time.Hour, WaitingForRetry: 30 * time.Minute,
	StepsInProcess: 30 * time.Minute, MaxLifetime: 24 * time.Hour}

// aged makes a task as if created some minutes ago.
func aged(t *testing.T, s *store.Store, p *store.Plan, minutes int) uuid.UUID {
	t.Helper()
	n := newTask(p)
	id := n.UUID
	ms := time.Now().Add(-time.Duration(minutes) * time.Minute).UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	n.UUID = id
	_, err := s.CreateTasks(t.Context(), []store.NewTask{n})
	require.NoError(t, err)
	return id
}

func TestStaleTasksAreFound(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plain, patient := plan(t, s, diamondYAML), plan(t, s, patientYAML)
	set := func(id uuid.UUID, minutes int, change string) {
		db.Exec(t, `update tasker.board set requested_at = now() - $2 * interval '1 minute' where task_uuid = $1`, id, minutes)
		db.Exec(t, `update tasker.board set `+change+` where task_uuid = $1`, id)
	}
	want := map[uuid.UUID]string{}
	add := func(p *store.Plan, minutes int, change, reason string) uuid.UUID {
		id := aged(t, s, p, minutes)
		set(id, minutes, change)
		if reason != "" {
			want[id] = reason
		}
		return id
	}
	add(plain, 100, `task_state = 1`, "") // enqueued: no threshold but the lifetime
	add(plain, 100, `task_state = 6, state_since = now() - interval '61 minutes'`, "waiting_for_dependencies")
	add(plain, 100, `task_state = 6, state_since = now() - interval '59 minutes'`, "")
	add(plain, 100, `task_state = 7, state = 1, due_at = now() + interval '1 hour', state_since = now() - interval '31 minutes'`, "waiting_for_retry")
	add(patient, 100, `task_state = 7, state = 1, due_at = now() + interval '1 hour', state_since = now() - interval '6 minutes'`, "waiting_for_retry")
	add(plain, 100, `task_state = 4, state_since = now() - interval '90 minutes', updated_at = now() - interval '31 minutes'`, "steps_in_process")
	add(plain, 100, `task_state = 4, state_since = now() - interval '90 minutes', updated_at = now() - interval '2 minutes'`, "") // it moves
	running := `state = 3, token = 1, lease_until = now() + interval '1 minute', claimed_at = now() - interval '40 minutes'`
	add(plain, 100, `task_state = 4, state_since = now() - interval '90 minutes', `+running, "") // a long handler
	add(plain, 100, `task_state = 1, `+running, "")
	add(patient, 100, `task_state = 1, `+running, "steps_in_process") // its template says so
	add(plain, 25*60, `task_state = 1`, store.StaleMaxLifetime)
	add(patient, 601, `task_state = 1`, store.StaleMaxLifetime)
	add(plain, 25*60, `task_state = 1, state = 1, due_at = now() + interval '1 hour'`, "") // a delayed start
	started := add(plain, 25*60, `task_state = 1`, "")
	db.Exec(t, `update tasker.tasks set start_at = now() - interval '1 hour' where task_uuid = $1`, started)
	add(plain, 25*60, `task_state = 6, dead_letter = true`, "") // has an open dead letter

	got := map[uuid.UUID]string{}
	var after uuid.UUID
	for calls := 0; ; calls++ {
		require.Less(t, calls, 10)
		stale, next, err := s.StaleTasks(t.Context(), thresholds, after, 3)
		require.NoError(t, err)
		for _, x := range stale {
			got[x.UUID] = x.Reason
			require.GreaterOrEqual(t, max(x.MinutesInState, x.MinutesOld), x.ThresholdMinutes)
			require.NotEmpty(t, x.Namespace)
		}
		if next == uuid.Nil {
			break
		}
		after = next
	}
	require.Equal(t, want, got)

	none, next, err := s.StaleTasks(t.Context(), store.StaleThresholds{}, uuid.Nil, 100)
	require.NoError(t, err)
	require.Equal(t, uuid.Nil, next)
	require.Len(t, none, 3, "templates have thresholds of their own")

	monitor, err := s.StalenessMonitor(t.Context(), thresholds, 100)
	require.NoError(t, err)
	health := map[string]int{}
	last := store.StalenessStale
	for _, m := range monitor {
		require.LessOrEqual(t, m.Health, last, "stale tasks come first")
		last = m.Health
		health[m.Health.String()]++
	}
	require.Equal(t, len(want)+1, health["stale"], "also the task with an open dead letter")
	require.Equal(t, 1, health["warning"], "59 of 60 minutes")
	require.Positive(t, health["healthy"])
	require.Positive(t, db.QueryInt(t, `select count(*) from tasker.v_task_staleness_monitoring where health_status = 'stale'`))
}

func TestDeadlinesPass(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	ids := create(t, s, p, 4)
	for i, minutes := range []int{-5, -10, 10} {
		db.Exec(t, `update tasker.board set deadline = now() + $2 * interval '1 minute' where task_uuid = $1 and slot = 0`, ids[i], minutes)
	}
	past, err := s.PastDeadline(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{ids[1], ids[0]}, past)
	past, err = s.PastDeadline(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{ids[1]}, past)
}
