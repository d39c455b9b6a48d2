package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// private returns a store over a server of the test's own.
func private(t *testing.T, opts store.Options) (*store.Store, *pgtest.DB) {
	t.Helper()
	hash, err := store.SchemaHash()
	require.NoError(t, err)
	db := pgtest.Private(t, nil).NewMigrated(t, hash, migrate)
	opts.URL = db.DSN
	s, err := store.Open(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s, db
}

// everyFlow calls each flow once; the answer has the errors by name.
func everyFlow(ctx context.Context, s *store.Store, p *store.Plan) map[string]error {
	id := uuid.Must(uuid.NewV7())
	k := []store.ClaimKey{{TaskUUID: id, Step: 0, Token: 1}}
	d := store.Daemon{UUID: id, ID: "d"}
	errs := map[string]error{}
	add := func(name string, err error) { errs[name] = err }
	_, err := s.CreateTasks(ctx, []store.NewTask{newTask(p)})
	add("create", err)
	_, _, err = s.Claim(ctx, store.ClaimRequest{Callables: p.Callables, Limit: 1, Lease: time.Minute}, true)
	add("claim", err)
	_, err = s.Report(ctx, []store.Report{{ClaimKey: k[0], Success: true}})
	add("report", err)
	_, err = s.SaveCheckpoints(ctx, []store.Checkpoint{{ClaimKey: k[0], Cursor: json.RawMessage(`1`)}}, 1, time.Minute)
	add("checkpoint", err)
	_, err = s.StalledSteps(ctx, time.Minute, 1)
	add("stalled", err)
	_, err = s.HandBack(ctx, k)
	add("hand back", err)
	add("release", s.ReleaseLeases(ctx, k))
	_, err = s.TakeReported(ctx, 1, true)
	add("take", err)
	_, err = s.TakeTask(ctx, id)
	add("take task", err)
	_, err = s.PromoteDue(ctx, store.UpTo(1))
	add("promote", err)
	_, err = s.ExpireLeases(ctx, store.UpTo(1), 10)
	add("expire", err)
	_, err = s.Horizon(ctx, store.Without{})
	add("horizon", err)
	_, err = s.WorkerHeartbeat(ctx, d, k, time.Minute)
	add("worker heartbeat", err)
	_, err = s.ProcessorHeartbeat(ctx, d, time.Minute, true)
	add("processor heartbeat", err)
	add("stopped", s.Stopped(ctx, id))
	_, err = s.Fleet(ctx, time.Minute)
	add("fleet", err)
	_, err = s.Task(ctx, id)
	add("task", err)
	_, err = s.Tasks(ctx, store.TaskFilter{Limit: 1})
	add("tasks", err)
	_, err = s.Timeline(ctx, id)
	add("timeline", err)
	_, err = s.Watch(ctx, id)
	add("watch", err)
	_, err = s.TaskEnds(ctx, []uuid.UUID{id})
	add("task ends", err)
	_, err = s.StepResults(ctx, id, []int{0})
	add("step results", err)
	_, err = s.Queues(ctx, nil)
	add("queues", err)
	_, err = s.Plans(ctx, "")
	add("plans", err)
	_, err = s.PlanByID(ctx, 999)
	add("plan", err)
	_, err = s.EnsurePartitions(ctx, 1)
	add("partitions", err)
	_, err = s.CheckIntegrity(ctx, rules)
	add("integrity", err)
	add("schema", s.CheckSchema(ctx))
	add("ping", s.Ping(ctx))
	return errs
}

func TestServerThatIsGoneIsUnavailable(t *testing.T) {
	t.Parallel()
	s, db := private(t, store.Options{MaxConns: 2, ConnectTimeout: time.Second, AcquireTimeout: time.Second, StatementTimeout: time.Second})
	p := plan(t, s, diamondYAML)
	create(t, s, p, 1)
	c := claim(t, s, p, 1)[0]
	require.NoError(t, db.Server().StopImmediate(t.Context()))

	for name, err := range everyFlow(t.Context(), s, p) {
		require.ErrorIs(t, err, store.ErrUnavailable, name)
		require.NotErrorIs(t, err, store.ErrNotFound, name)
	}
	_, err := store.Open(t.Context(), store.Options{URL: db.DSN, ConnectTimeout: time.Second})
	require.ErrorIs(t, err, store.ErrUnavailable)

	require.NoError(t, db.Server().Restart(t.Context()))
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		err := s.Ping(t.Context())
		return err == nil, fmt.Sprint(err)
	})
	for name, err := range everyFlow(t.Context(), s, p) {
		require.NotErrorIs(t, err, store.ErrUnavailable, name)
	}
	require.Equal(t, []bool{true}, report(t, s, succeed(c, `1`)), "the claim has outlived the crash")
}

func TestServerThatDoesNotAnswerIsUnavailableInTime(t *testing.T) {
	t.Parallel()
	const limit = 300 * time.Millisecond
	s, db := private(t, store.Options{MaxConns: 2, ConnectTimeout: limit, AcquireTimeout: limit, StatementTimeout: limit})
	p := plan(t, s, diamondYAML)
	rows, err := db.Pool(t).Query(t.Context(), `select pid from pg_stat_activity where application_name = 'tasker'`)
	require.NoError(t, err)
	frozen, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	// Stopped processes keep their sockets open and do not answer.
	frozen = append(frozen, db.Server().PID())
	for _, pid := range frozen {
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	defer func() {
		for _, pid := range frozen {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}()
	for _, flow := range []struct {
		name string
		run  func() error
	}{
		{"claim", func() error {
			_, _, err := s.Claim(t.Context(), store.ClaimRequest{Callables: p.Callables, Limit: 1, Lease: time.Minute}, true)
			return err
		}},
		{"take", func() error { _, err := s.TakeReported(t.Context(), 1, true); return err }},
		{"promote", func() error { _, err := s.PromoteDue(t.Context(), store.UpTo(1)); return err }},
		{"ping", func() error { return s.Ping(t.Context()) }},
	} {
		start := time.Now()
		require.ErrorIs(t, flow.run(), store.ErrUnavailable, flow.name)
		require.Less(t, time.Since(start), 10*limit, flow.name)
	}
}

func TestSlowStatementIsUnavailable(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	patient, err := store.Open(t.Context(), store.Options{URL: db.DSN})
	require.NoError(t, err)
	t.Cleanup(patient.Close)
	p := plan(t, patient, diamondYAML)
	id := create(t, patient, p, 1)[0]
	holder, err := patient.TakeTask(t.Context(), id)
	require.NoError(t, err)
	defer holder.Release()
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, StatementTimeout: 200 * time.Millisecond})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Watch(t.Context(), id)
	require.ErrorIs(t, err, store.ErrUnavailable, "the server has ended the statement")
	require.ErrorContains(t, err, "57014")
	_, err = s.TakeTask(t.Context(), id)
	require.ErrorIs(t, err, store.ErrUnavailable)
	holder.Release()
	holder.Release()
	_, err = holder.Commit(t.Context(), uuid.Nil, nil)
	require.Error(t, err, "the tasks have been released")
	taken, err := s.TakeTask(t.Context(), id)
	require.NoError(t, err)
	taken.Release()
	require.Zero(t, s.PoolStat().Acquired, "every connection is idle again")
}

func TestCallersOwnCancellationIsNoOutage(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, diamondYAML)
	id := create(t, s, p, 1)[0]
	holder, err := s.TakeTask(t.Context(), id)
	require.NoError(t, err)
	defer holder.Release()
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() {
		_, err := s.TakeTask(ctx, id)
		answer <- err
	}()
	cancel()
	err = <-answer
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, store.ErrUnavailable)
	for name, err := range everyFlow(ctx, s, p) {
		require.ErrorIs(t, err, context.Canceled, name)
		require.NotErrorIs(t, err, store.ErrUnavailable, name)
	}
}

func TestBusyPoolIsUnavailableInTime(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 1, AcquireTimeout: 100 * time.Millisecond})
	require.NoError(t, err)
	defer s.Close()
	p := plan(t, s, diamondYAML)
	id := create(t, s, p, 1)[0]
	holder, err := s.TakeTask(t.Context(), id)
	require.NoError(t, err)
	start := time.Now()
	_, err = s.Horizon(t.Context(), store.Without{})
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.Less(t, time.Since(start), 5*time.Second, "AcquireTimeout bounds it, not the statement's time-out")
	holder.Release()
	_, err = s.Horizon(t.Context(), store.Without{})
	require.NoError(t, err)
}

func TestOneConnectionIsEnoughForEveryFlow(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	opened := func() *store.Store {
		s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 1, AcquireTimeout: time.Second})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		return s
	}
	first := opened()
	p := plan(t, first, diamondYAML)
	id := create(t, first, p, 1)[0]
	// Each of these has to read the plan, which a new store has not cached.
	taken, err := opened().TakeTask(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "diamond", taken.Tasks[0].Plan.Template.Name)
	taken.Release()
	report(t, first, succeed(claim(t, first, p, 1)[0], `1`))
	taken, err = opened().TakeReported(t.Context(), 1, true)
	require.NoError(t, err)
	require.Len(t, taken.Tasks, 1)
	taken.Release()
	_, err = opened().Task(t.Context(), id)
	require.NoError(t, err)
	_, err = opened().TakeTask(t.Context(), uuid.Must(uuid.NewV7()))
	require.ErrorIs(t, err, store.ErrNotFound)
	noViolations(t, opened())
}

func TestPasswordIsNeverShown(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, url := range []string{
		"postgres://user:" + secret + "@localhost:port/db",
		"postgres://user:" + secret + "@[::1/db",
		"postgres://user:" + secret + "%zz@localhost/db",
		"postgres://user:" + secret + "@127.0.0.1:1/db?sslmode=nonsense",
		"postgres://user:" + secret + "@127.0.0.1:1/db?pool_max_conns=" + secret,
		"host=localhost password=" + secret + " sslmode",
		"host=localhost password='" + secret,
		"host=127.0.0.1 port=1 user=u password=" + secret,
		"postgres://user:" + secret + "@127.0.0.1:1/db?connect_timeout=1",
		"postgres://user@127.0.0.1:1/db?password=" + secret,
	} {
		_, open := store.Open(t.Context(), store.Options{URL: url, ConnectTimeout: time.Second})
		require.Error(t, open)
		m, migrator := store.NewMigrator(url)
		if migrator == nil {
			_, migrator = m.Up(t.Context())
		}
		require.Error(t, migrator)
		for _, err := range []error{open, migrator} {
			eachError(err, func(err error) {
				for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
					if strings.Contains(text, secret) {
						t.Errorf("the password is in %T: %s", err, text)
					}
				}
			})
		}
	}
}

// eachError visits an error and everything it wraps.
func eachError(err error, visit func(error)) {
	if err == nil {
		return
	}
	visit(err)
	switch e := err.(type) { //nolint:errorlint // every level is to be seen
	case interface{ Unwrap() error }:
		eachError(e.Unwrap(), visit)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			eachError(err, visit)
		}
	}
}

func TestContentTheDatabaseRefusesIsNoOutage(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 2)
	claimed := claim(t, s, p, 2)
	for _, hostile := range []string{`"\u0000"`, `{"a\u0000b":1}`, "\"a\x00b\"", "\"\xff\"", `"\ud800"`, `{`, ``, `NaN`, `1e999999`} {
		_, err := s.Report(t.Context(), []store.Report{succeed(claimed[0], hostile), succeed(claimed[1], `1`)})
		require.Error(t, err, "%q", hostile)
		require.NotErrorIs(t, err, store.ErrUnavailable, "%q", hostile)
		var state interface{ SQLState() string }
		require.ErrorAs(t, err, &state, "%q", hostile)
		require.True(t, strings.HasPrefix(state.SQLState(), "22"), "%q: %v", hostile, err)

		task := newTask(p)
		task.Context = json.RawMessage(hostile)
		_, err = s.CreateTasks(t.Context(), []store.NewTask{newTask(p), task})
		require.Error(t, err, "%q", hostile)
		require.NotErrorIs(t, err, store.ErrUnavailable, "%q", hostile)
	}
	for _, spoil := range []func(*store.NewTask){
		func(n *store.NewTask) { n.Initiator = "a\x00b" },
		func(n *store.NewTask) { n.Reason = "\xff\xfe" },
		func(n *store.NewTask) { n.Tags = []string{"a\x00b"} },
	} {
		task := newTask(p)
		spoil(&task)
		_, err := s.CreateTasks(t.Context(), []store.NewTask{task})
		require.Error(t, err)
		require.NotErrorIs(t, err, store.ErrUnavailable)
	}
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.tasks`), "all or nothing")
	require.Equal(t, []bool{true, true}, report(t, s, succeed(claimed[0], `{"☃":1e300}`), succeed(claimed[1], `null`)), "the claims are as they were")
	require.Zero(t, s.PoolStat().Acquired)
}

func TestEveryFlowRunsWithoutPreparedStatements(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, NoPreparedStatements: true, MaxConns: 1})
	require.NoError(t, err)
	defer s.Close()
	// The pooler's reset of a session between two transactions.
	forget := func() {
		_, err := s.Execer().Exec(t.Context(), `discard all`, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
	}
	p := plan(t, s, diamondYAML)
	id := create(t, s, p, 1)[0]
	for range 3 {
		forget()
		for _, c := range claim(t, s, p, 10) {
			require.Len(t, c.ParentResults, len(p.Steps[c.Step].Parents))
			lost, err := s.WorkerHeartbeat(t.Context(), store.Daemon{UUID: id}, []store.ClaimKey{key(c)}, time.Minute)
			require.NoError(t, err)
			require.Empty(t, lost)
			require.Equal(t, []bool{true}, report(t, s, succeed(c, `{"n":1}`)))
		}
		forget()
		applyAll(t, s)
	}
	forget()
	task := read(t, s, id)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.JSONEq(t, `{"n":1}`, string(task.Steps[3].Result))
	for name, err := range everyFlow(t.Context(), s, p) {
		if err != nil {
			require.ErrorIs(t, err, store.ErrNotFound, name)
		}
	}
	var prepared int
	require.NoError(t, s.Execer().QueryRow(t.Context(), `select count(*) from pg_prepared_statements where name <> ''`).Scan(&prepared))
	require.Zero(t, prepared)
	noViolations(t, s)
}
