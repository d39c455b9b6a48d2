package sweep_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/sweep"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

func migrate(ctx context.Context, dsn string) error {
	m, err := store.NewMigrator(dsn)
	if err != nil {
		return err
	}
	_, err = m.Up(ctx)
	return err
}

func database(t testing.TB) *pgtest.DB {
	t.Helper()
	hash, err := store.SchemaHash()
	require.NoError(t, err)
	return pgtest.NewMigrated(t, hash, migrate)
}

func open(t testing.TB, db *pgtest.DB) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 8})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// The database decides whether an interval has passed, not the replicas.
func TestTwoReplicasMakeOneRunPerInterval(t *testing.T) {
	t.Parallel()
	const interval, runs = 50 * time.Millisecond, 10
	db := database(t)
	var made atomic.Int32
	begin, release := time.Now(), make(chan struct{})
	j := sweep.Job{Name: "test", Interval: interval, Lease: time.Minute, Run: func(ctx context.Context, _ bool) (sweep.Result, error) {
		n := made.Add(1)
		if early := time.Duration(n-1)*interval - time.Since(begin); early > 0 {
			t.Errorf("run %d comes %s early", n, early)
		}
		if n > runs { // the last one lasts until it has been looked at
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return sweep.Result{Items: map[string]int{"run": int(n)}}, nil
	}}
	fleet := []*sweep.Runner{newRunner(t, open(t, db), j), newRunner(t, open(t, db), j)}
	for _, r := range fleet {
		start(t, r)
	}
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) { return made.Load() > runs, "too few runs" })
	require.Equal(t, runs+1, db.QueryInt(t, `select runs from tasker.sweeps where name = 'test'`))
	require.Equal(t, runs, db.QueryInt(t, `select (result->'items'->'run')::int from tasker.sweeps where name = 'test'`))
	close(release)
	for _, r := range fleet {
		stop(t, r)
	}
}

// A killed process neither ends its run nor releases its lease.
func TestTheHolderIsKilledInItsRun(t *testing.T) {
	t.Parallel()
	db := database(t)
	const lease = 400 * time.Millisecond
	doomed := open(t, db)
	began, killed := make(chan struct{}), make(chan struct{})
	j := sweep.Job{Name: "test", Interval: 10 * time.Millisecond, Lease: lease, Run: func(context.Context, bool) (sweep.Result, error) {
		close(began)
		<-killed
		return sweep.Result{}, nil
	}}
	holder := newRunner(t, doomed, j)
	before := time.Now()
	over := make(chan error, 1)
	go func() { _, err := holder.RunNow(context.WithoutCancel(t.Context()), "test", false); over <- err }()
	<-began
	doomed.Close()

	var runs atomic.Int32
	var first atomic.Int64
	j.Run = func(context.Context, bool) (sweep.Result, error) {
		if runs.Add(1) == 1 {
			first.Store(int64(time.Since(before)))
		}
		return sweep.Result{}, nil
	}
	other := newRunner(t, open(t, db), j)
	start(t, other)
	_, err := other.RunNow(t.Context(), "test", false)
	if err != nil { // a slow machine may have let the lease pass
		require.ErrorIs(t, err, sweep.ErrRunning)
	}
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) { return runs.Load() > 2, fmt.Sprint(runs.Load(), " runs") })
	stop(t, other)
	require.GreaterOrEqual(t, time.Duration(first.Load()), lease, "no other run before the lease has ended")
	close(killed)
	require.NoError(t, <-over)
}

func TestConnectionsThatAreCutEndNoLoop(t *testing.T) {
	t.Parallel()
	db := database(t)
	var runs atomic.Int32
	// If the answer to TakeSweep is lost, the lease must expire.
	r := newRunner(t, open(t, db), sweep.Job{Name: "test", Interval: 5 * time.Millisecond, Lease: 300 * time.Millisecond,
		Run: func(context.Context, bool) (sweep.Result, error) { runs.Add(1); return sweep.Result{}, nil }})
	start(t, r)
	for range 5 {
		seen := runs.Load()
		db.Exec(t, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
		pgtest.Eventually(t, 30*time.Second, func() (bool, string) { return runs.Load() > seen+1, r.Health()[0].LastError })
	}
	require.Zero(t, r.Health()[0].Loop.Restarts)
	stop(t, r)
}

// tasks records the calls of the sweeps.
type tasks struct {
	overdue []uuid.UUID
	stale   []store.StaleTask
	signals []signal.Signal
}

func (r *tasks) CancelOverdue(_ context.Context, list []uuid.UUID) (int, error) {
	r.overdue = append(r.overdue, list...)
	return len(list), nil
}

func (r *tasks) EndStale(_ context.Context, stale []store.StaleTask, toError, deadLetters bool) (int, error) {
	if !toError || !deadLetters {
		return 0, errors.New("other actions")
	}
	r.stale = append(r.stale, stale...)
	return len(stale), nil
}

func (r *tasks) Publish(signals ...signal.Signal) { r.signals = append(r.signals, signals...) }

// neglected is a database with work for every sweep.
type neglected struct {
	db                           *pgtest.DB
	store                        *store.Store
	worker                       store.Daemon
	claimed                      store.Claimed
	overdue, stale, ended, young uuid.UUID
}

func neglect(t testing.TB) *neglected {
	t.Helper()
	db := database(t)
	n := &neglected{db: db, store: open(t, db), worker: store.Daemon{UUID: uuid.New(), ID: "worker-7", Hostname: "north", Namespaces: []string{"shop"}}}
	tmpl, _, err := template.Parse("test.yaml", []byte("name: order\nnamespace_name: shop\nversion: 1.0.0\nsteps:\n  - name: pay\n    handler: {callable: pay}\n"))
	require.NoError(t, err)
	_, err = n.store.RegisterTemplates(t.Context(), store.Registrant{Environment: "test"}, []*workflow.Template{tmpl.Resolve("test")})
	require.NoError(t, err)
	p, err := n.store.PlanNamed(t.Context(), "shop", "order", "1.0.0")
	require.NoError(t, err)

	// A worker that claimed a step, for longer than it will live.
	n.young = n.create(t, p, 0)
	_, err = n.store.WorkerHeartbeat(t.Context(), n.worker, nil, time.Hour)
	require.NoError(t, err)
	claimed, _, err := n.store.Claim(t.Context(), store.ClaimRequest{Worker: n.worker.UUID, Callables: p.Callables, Limit: 1, Lease: time.Hour}, true)
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	n.claimed = claimed[0]
	db.Exec(t, `update tasker.workers set heartbeat_at = clock_timestamp() - interval '5 minutes'`)

	n.overdue, n.stale, n.ended = n.create(t, p, 0), n.create(t, p, 30*time.Hour), n.create(t, p, 30*24*time.Hour)
	db.Exec(t, `update tasker.board set deadline = clock_timestamp() - interval '1 minute' where task_uuid = $1`, n.overdue)
	db.Exec(t, `update tasker.board set requested_at = clock_timestamp() - interval '30 hours' where task_uuid = $1`, n.stale)
	db.Exec(t, `update tasker.board set enqueued_at = clock_timestamp() - interval '10 minutes' where state = 2`)
	db.Exec(t, `delete from tasker.board where task_uuid = $1`, n.ended)
	db.Exec(t, `insert into tasker.step_attempts (task_uuid, token, applied_at, step_no, attempt, outcome, task_state)
		values ($1, 1, clock_timestamp() - interval '29 days', 0, 1, 1, 9)`, n.ended)
	return n
}

// create makes a task with a creation time age ago.
func (n *neglected) create(t testing.TB, p *store.Plan, age time.Duration) uuid.UUID {
	t.Helper()
	id := uuid.Must(uuid.NewV7())
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().Add(-age).UnixMilli()))
	copy(id[:6], ms[2:])
	_, err := n.store.CreateTasks(t.Context(), []store.NewTask{{UUID: id, Plan: p, Context: json.RawMessage(`{}`), CorrelationID: uuid.New()}})
	require.NoError(t, err)
	return id
}

// digest is a digest of all tables of the schema.
func (n *neglected) digest(t testing.TB) string {
	t.Helper()
	names := n.db.QueryString(t, `select string_agg(c.relname, ' ' order by c.relname) from pg_class c join pg_namespace s on s.oid = c.relnamespace
		where s.nspname = 'tasker' and c.relkind in ('r', 'p')`)
	var all strings.Builder
	for _, name := range strings.Fields(names) {
		fmt.Fprintln(&all, name, n.db.QueryString(t, `select coalesce(md5(string_agg(r::text, ',' order by r::text)), '') from tasker.`+name+` r`))
	}
	return all.String()
}

func (n *neglected) runner(t testing.TB, set ...func(c *sweep.Config)) (*sweep.Runner, *tasks) {
	t.Helper()
	asked := &tasks{}
	cfg := configured(t)
	cfg.Store, cfg.Tasks, cfg.Publisher, cfg.Holder, cfg.Metrics = n.store, asked, asked, uuid.New(), telemetry.Discard()
	act(&cfg, staleActions{toError: true, deadLetters: true})
	cfg.Settings.Retention.TTL, cfg.Settings.Retention.DeadLetterTTL = 7*24*time.Hour, 30*24*time.Hour
	for _, f := range set {
		f(&cfg)
	}
	r, err := sweep.New(cfg)
	require.NoError(t, err)
	return r, asked
}

func TestDryRunsChangeNothing(t *testing.T) {
	t.Parallel()
	n := neglect(t)
	r, asked := n.runner(t)
	before := n.digest(t)
	require.Contains(t, before, "board ")
	for sweepName, want := range map[string]map[string]int{
		"liveness":  {"would_mark_dead": 1, "would_release_steps": 1},
		"signals":   {"would_signal": 1},
		"deadlines": {"would_cancel": 1},
		"staleness": {"would_transition_to_dlq_and_error": 1},
		"retention": {"would_delete_tasks": 1},
	} {
		got := run(t, r, sweepName, true)
		require.True(t, got.DryRun)
		require.Equal(t, want, got.Items, sweepName)
	}
	require.Equal(t, before, n.digest(t))
	require.Equal(t, &tasks{}, asked)

	// By configuration a dry sweep is run and recorded, but changes nothing else.
	r, asked = n.runner(t, func(c *sweep.Config) {
		c.Settings.DLQ.StalenessDetection.DryRun, c.Settings.Retention.DryRun = true, true
	})
	before = n.digest(t)
	require.Equal(t, map[string]int{"would_transition_to_dlq_and_error": 1}, run(t, r, "staleness", false).Items)
	require.Equal(t, map[string]int{"would_delete_tasks": 1}, run(t, r, "retention", false).Items)
	require.Equal(t, before, n.digest(t))
	require.Equal(t, &tasks{}, asked)
}

func TestEverySweepDoesItsWork(t *testing.T) {
	t.Parallel()
	n := neglect(t)
	r, asked := n.runner(t)
	n.store.NoteCounts() // as a heartbeat does
	start(t, r)
	for _, name := range r.Sweeps() {
		if name == "predictions" {
			continue // no policy wants it, see TestPredictionsAreLearned
		}
		pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
			return n.db.QueryInt(t, `select count(*) from tasker.sweeps where name = $1 and finished_at is not null`, name) == 1, name
		})
	}
	stop(t, r)
	items := func(name string) (counts map[string]int) {
		text := n.db.QueryString(t, `select coalesce(result->'items', '{}')::text from tasker.sweeps where name = $1`, name)
		require.NoError(t, json.Unmarshal([]byte(text), &counts))
		return counts
	}
	require.Equal(t, map[string]int{"marked_dead": 1, "released_steps": 1}, items("liveness"))
	_, err := n.store.WorkerHeartbeat(t.Context(), n.worker, []store.ClaimKey{n.claimed.Key()}, time.Hour)
	require.ErrorIs(t, err, store.ErrWorkerDead)
	expired, err := n.store.ExpireLeases(t.Context(), store.UpTo(10), 10)
	require.NoError(t, err)
	require.Equal(t, 1, expired.Spared, "the step is free although its lease was long")

	require.Contains(t, []int{1, 2}, items("signals")["signalled"], "the lease that another sweep has just ended may be found too")
	require.Contains(t, asked.signals, signal.Signal{Topic: signal.WorkerTopic("shop")})
	require.Contains(t, asked.signals, signal.Signal{Topic: signal.TopicDue})

	require.Equal(t, map[string]int{"cancelled": 1}, items("deadlines"))
	require.Equal(t, []uuid.UUID{n.overdue}, asked.overdue)

	require.Equal(t, map[string]int{"transitioned_to_dlq_and_error": 1}, items("staleness"))
	require.Len(t, asked.stale, 1)
	require.Equal(t, n.stale, asked.stale[0].UUID)
	require.Equal(t, store.StaleMaxLifetime, asked.stale[0].Reason)

	require.Equal(t, map[string]int{"deleted_tasks": 1}, items("retention"))
	_, err = n.store.Task(t.Context(), n.ended)
	require.ErrorIs(t, err, store.ErrNotFound)
	for _, id := range []uuid.UUID{n.young, n.overdue, n.stale} {
		_, err = n.store.Task(t.Context(), id)
		require.NoError(t, err)
	}
	for _, h := range r.Health() {
		require.Zero(t, h.Errors, h.LastError)
		if h.Sweep == "predictions" {
			require.Zero(t, n.db.QueryInt(t, `select count(*) from tasker.sweeps where name = $1`, h.Sweep))
			continue
		}
		require.Equal(t, h.Sweep, h.LastRun.Sweep)
	}
}
