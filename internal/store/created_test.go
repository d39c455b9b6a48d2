package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// A new task as computed must equal the same task as read.
func TestATaskAsCreatedIsTheOneThatIsRead(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, diamondYAML)
	full, later := newTask(p), newTask(p)
	parent := uuid.Must(uuid.NewV7())
	full.ParentCorrelationID, full.SourceSystem, full.Reason, full.Tags, full.Priority = &parent, "test", "why not", []string{"a", "b"}, -7
	later.StartIn, later.Initiator, later.Context = time.Hour, "", json.RawMessage(`{}`)
	retried, instant, past := newTask(p), newTask(p), newTask(p)
	retried.Retry = &workflow.RetryOverride{MaxAttempts: 3, DelaysMS: []int64{1000, 2000}}
	instant.StartAt = time.Now().Add(time.Hour).Truncate(time.Microsecond)
	past.StartAt = time.Now().Add(-time.Hour).Truncate(time.Microsecond)
	tasks := []store.NewTask{full, later, retried, instant, past}
	created, err := s.CreateTasks(t.Context(), tasks)
	require.NoError(t, err)
	for i, c := range created {
		read, err := s.Task(t.Context(), c.UUID)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), c.RequestedAt, time.Minute)
		require.True(t, read.RequestedAt.Equal(c.RequestedAt), "the time is the database's")
		said := store.AsCreated(&tasks[i], c.RequestedAt)
		require.JSONEq(t, string(read.Context), string(said.Context))
		said.Context = read.Context
		for no := range read.Steps {
			// Steps are enqueued a moment after the transaction began.
			require.WithinDuration(t, said.Steps[no].CreatedAt, read.Steps[no].CreatedAt, 10*time.Second)
			said.Steps[no].CreatedAt = read.Steps[no].CreatedAt
			if due := read.Steps[no].NextRetryAt; due != nil {
				require.WithinDuration(t, *due, *said.Steps[no].NextRetryAt, 10*time.Second)
				said.Steps[no].NextRetryAt = due
			}
		}
		require.Equal(t, asJSON(t, read), asJSON(t, said))
	}
}

// asJSON makes tasks comparable regardless of the zones of their times.
func asJSON(t *testing.T, task *store.Task) string {
	t.Helper()
	utc := func(moments ...*time.Time) {
		for _, m := range moments {
			if m != nil {
				*m = m.UTC()
			}
		}
	}
	utc(&task.RequestedAt, &task.UpdatedAt, task.StartAt)
	for i := range task.Steps {
		utc(&task.Steps[i].CreatedAt, task.Steps[i].NextRetryAt)
	}
	if len(task.Tags) == 0 {
		task.Tags = nil
	}
	text, err := json.MarshalIndent(task, "", " ")
	require.NoError(t, err)
	return string(text)
}

// TestATaskIsNotADuplicateOfItself: a first try whose answer was lost has created it, and
// its identity window is over when the second comes.
func TestATaskIsNotADuplicateOfItself(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	task := keyed(p, "k")
	task.IdentityEnd.After = time.Second
	first, err := s.CreateTasks(t.Context(), []store.NewTask{task})
	require.NoError(t, err)
	db.Exec(t, `update tasker.task_identities set expires_at = now() - interval '1 s'`)
	second, err := s.CreateTasks(t.Context(), []store.NewTask{task})
	require.NoError(t, err)
	require.Equal(t, first, second)
	other, err := s.CreateTasks(t.Context(), []store.NewTask{keyed(p, "k")})
	require.NoError(t, err)
	require.False(t, other[0].Duplicate)
	noViolations(t, s)
}
