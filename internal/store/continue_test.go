package store_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

// next is a task that continues the one of a claim.
func (s *shop) next(c store.Claimed, name string) store.Continuation {
	id := uuid.Must(uuid.NewV7())
	task := store.NewTask{UUID: id, Plan: s.plan, Context: []byte(`{}`), CorrelationID: c.CorrelationID}
	if name != "" {
		identity := dedup.KeyIdentity("shapes", "diamond", name)
		task.Identity, task.IdempotencyKey = &identity, name
	}
	return store.Continuation{Claim: key(c), StepName: "start", Actor: "w", Next: task}
}

// links counts the links between a task and the next one, in both directions.
func (s *shop) links(from, to uuid.UUID) int {
	return s.db.QueryInt(s.t, `select (select count(*) from tasker.v_task_continuations where task_uuid = $1 and continued_by = $2)
		+ (select count(*) from tasker.tasks where task_uuid = $2 and continues_task_uuid = $1)`, from, to)
}

func TestTheNextTaskAndTheReportAreOne(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]store.Options{"direct": {NotifyAfterCommit: true}, "for a pooler": {NotifyAfterCommit: true, NoPreparedStatements: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, opts)
			ear := listen(t, s.db.DSN)
			c := s.claimOne()
			ear.receives(signal.WorkerTopic("shapes"))
			w := s.begin(c, store.TxOptions{})
			first := s.next(c, "")
			created, err := w.Continue(t.Context(), first)
			require.NoError(t, err)
			require.Equal(t, first.Next.UUID, created.UUID)
			require.False(t, created.Duplicate)
			require.Equal(t, 1, s.db.QueryInt(t, `select count(*) from tasker.tasks`), "invisible before the commit")
			accepted, err := w.Report(t.Context(), succeed(c, `1`))
			require.NoError(t, err)
			require.True(t, accepted)
			ear.receivesNothing()
			require.NoError(t, w.Commit(t.Context()))
			ear.receives(signal.WorkerTopic("shapes"))
			require.Equal(t, 2, s.links(c.TaskUUID, first.Next.UUID))
			require.Equal(t, []uuid.UUID{first.Next.UUID}, read(t, s.Store, c.TaskUUID).ContinuedBy)
			require.Equal(t, c.TaskUUID, *read(t, s.Store, first.Next.UUID).ContinuesTask)
			applyAll(t, s.Store)
			noViolations(t, s.Store)
		})
	}
}

// An uncommitted task leaves no link, and an existing task keeps its own.
func TestNextTasksThatAreNotNew(t *testing.T) {
	t.Parallel()
	s := newShop(t, store.Options{})
	c := s.claimOne()

	undone := s.begin(c, store.TxOptions{})
	lost := s.next(c, "key")
	_, err := undone.Continue(t.Context(), lost)
	require.NoError(t, err)
	undone.Rollback()
	require.Zero(t, s.links(c.TaskUUID, lost.Next.UUID))
	_, err = undone.Continue(t.Context(), lost)
	require.Error(t, err, "after the end of its transaction")
	require.Equal(t, 1, s.db.QueryInt(t, `select count(*) from tasker.tasks`))

	there := s.next(c, "key")
	rows, err := s.CreateTasks(t.Context(), []store.NewTask{there.Next})
	require.NoError(t, err)
	require.False(t, rows[0].Duplicate)
	w := s.begin(c, store.TxOptions{})
	created, err := w.Continue(t.Context(), s.next(c, "key"))
	require.NoError(t, err)
	require.True(t, created.Duplicate)
	require.Equal(t, there.Next.UUID, created.UUID)
	require.Empty(t, w.Signals())
	accepted, err := w.Report(t.Context(), succeed(c, `1`))
	require.NoError(t, err)
	require.True(t, accepted)
	require.NoError(t, w.Commit(t.Context()))
	require.Equal(t, 1, s.links(c.TaskUUID, there.Next.UUID), "only the old task has a link")

	own := s.claimNamed("own")
	w = s.begin(own, store.TxOptions{})
	_, err = w.Continue(t.Context(), s.next(own, "own"))
	require.ErrorIs(t, err, store.ErrContinuesItself)
	w.Rollback()
	noViolations(t, s.Store)
}

// claimNamed makes a task with an idempotency key and claims its first step.
func (s *shop) claimNamed(name string) store.Claimed {
	s.t.Helper()
	for _, c := range claim(s.t, s.Store, s.plan, 10) { // out of the way
		_, err := s.Report(s.t.Context(), []store.Report{succeed(c, `1`)})
		require.NoError(s.t, err)
	}
	task := s.next(store.Claimed{CorrelationID: uuid.New()}, name).Next
	_, err := s.CreateTasks(s.t.Context(), []store.NewTask{task})
	require.NoError(s.t, err)
	claimed := claim(s.t, s.Store, s.plan, 1)
	require.Len(s.t, claimed, 1)
	require.Equal(s.t, task.UUID, claimed[0].TaskUUID)
	return claimed[0]
}
