package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// hearing is how a test learns of signals.
type hearing interface {
	receives(topic signal.Topic) (payload string)
	receivesNothing()
}

// published hears what a store passes on.
type published struct {
	t    *testing.T
	list chan signal.Signal
}

func (p published) receives(topic signal.Topic) string {
	p.t.Helper()
	select {
	case s := <-p.list:
		require.Equal(p.t, topic, s.Topic)
		return s.Payload
	default:
		require.Fail(p.t, "no signal", topic)
		return ""
	}
}

func (p published) receivesNothing() {
	p.t.Helper()
	require.Empty(p.t, p.list)
}

// ear listens on all topics of the test's namespace.
type ear struct {
	t    *testing.T
	conn *pgx.Conn
}

func listen(t *testing.T, dsn string) ear {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	for _, topic := range []signal.Topic{signal.WorkerTopic("shapes"), signal.TopicOrchestration, signal.TopicDue, signal.TopicTasks} {
		_, err := conn.Exec(t.Context(), "listen "+pgx.Identifier{string(topic)}.Sanitize())
		require.NoError(t, err)
	}
	return ear{t, conn}
}

func (e ear) receives(topic signal.Topic) string {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), 10*time.Second)
	defer cancel()
	n, err := e.conn.WaitForNotification(ctx)
	require.NoError(e.t, err, "no signal on %s", topic)
	require.Equal(e.t, string(topic), n.Channel)
	return n.Payload
}

func (e ear) receivesNothing() {
	e.t.Helper()
	// Everything sent before is delivered when this returns.
	_, err := e.conn.Exec(e.t.Context(), `select pg_notify($1, 'end')`, string(signal.TopicTasks))
	require.NoError(e.t, err)
	require.Equal(e.t, "end", e.receives(signal.TopicTasks))
}

func TestSignalsFollowTheCommit(t *testing.T) {
	t.Parallel()
	t.Run("notified", func(t *testing.T) {
		t.Parallel()
		signalsFollowTheCommit(t, store.Options{NotifyAfterCommit: true}, func(dsn string) hearing { return listen(t, dsn) })
	})
	t.Run("published", func(t *testing.T) {
		t.Parallel()
		p := published{t, make(chan signal.Signal, 100)}
		publish := func(signals ...signal.Signal) {
			for _, s := range signals {
				p.list <- s
			}
		}
		signalsFollowTheCommit(t, store.Options{Publish: publish}, func(string) hearing { return p })
	})
}

func signalsFollowTheCommit(t *testing.T, opts store.Options, listen func(dsn string) hearing) {
	t.Helper()
	hash, err := store.SchemaHash()
	require.NoError(t, err)
	db := pgtest.NewMigrated(t, hash, migrate)
	opts.URL = db.DSN
	s, err := store.Open(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.True(t, s.SendsSignals())
	p := plan(t, s, diamondYAML)
	e := listen(db.DSN)

	id := create(t, s, p, 1)[0]
	e.receives(signal.WorkerTopic("shapes"))
	c := claim(t, s, p, 1)[0]
	require.Equal(t, []bool{true}, report(t, s, succeed(c, `1`)))
	e.receives(signal.TopicOrchestration)
	applyAll(t, s)
	e.receives(signal.WorkerTopic("shapes"))

	bad := claim(t, s, p, 1)[0]
	_, err = s.Report(t.Context(), []store.Report{{ClaimKey: key(bad), Success: true, Result: []byte(`"\u0000"`), RetryAfter: -1}})
	require.Error(t, err)
	e.receivesNothing()
	require.Equal(t, []bool{true}, report(t, s, succeed(bad, `2`)), "the connection is as good as before")
	e.receives(signal.TopicOrchestration)

	db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where state = 3`)
	require.Empty(t, mustExpire(t, s))
	claim(t, s, p, 1)
	db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where state = 3`)
	_, err = s.ExpireLeases(t.Context(), store.UpTo(10), 10)
	require.NoError(t, err)
	e.receives(signal.TopicOrchestration)

	watched, err := s.Watch(t.Context(), id)
	require.NoError(t, err)
	require.True(t, watched)
	taken, err := s.TakeTask(t.Context(), id)
	require.NoError(t, err)
	task := &taken.Tasks[0]
	progress, effects, err := workflow.Advance(task.Plan.Plan, task.State, task.Progress, rules, workflow.Operation{Action: workflow.ActionCancel})
	require.NoError(t, err)
	_, err = taken.Commit(t.Context(), uuid.Nil, []store.Change{{Task: task, Progress: progress, Effects: effects, Actor: "test"}})
	require.NoError(t, err)
	require.Equal(t, id.String(), e.receives(signal.TopicTasks), "clients that wait for the task get its id")
}

func mustExpire(t *testing.T, s *store.Store) (none []int) {
	t.Helper()
	n, err := s.ExpireLeases(t.Context(), store.UpTo(10), 10)
	require.NoError(t, err)
	if n.Lost > 0 {
		none = append(none, n.Lost)
	}
	return none
}
