package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

const booksYAML = `
name: book
namespace_name: books
version: 1.0.0
input_schema: {type: object, properties: {n: {type: integer}}}
steps:
  - name: only
    timeout_seconds: 1
    handler: {callable: book}
    retry: {retryable: true, max_attempts: 3, backoff: fixed, backoff_base_ms: 10}
`

// counter is a worker whose handlers write into a table of the user.
type counter struct {
	*bench
	*Worker
	t       *testing.T
	tmpl    *workflow.Template
	metrics *telemetry.Metrics
}

func newCounter(t *testing.T, cfg Config, source string, book HandlerFunc) *counter {
	t.Helper()
	c := &counter{bench: newBench(t, source), t: t, tmpl: templateOf(t, booksYAML), metrics: telemetry.Discard()}
	c.db.Exec(t, `create table books (step uuid primary key, attempt int not null)`)
	cfg.Metrics = c.metrics
	cfg.Events = quick()
	c.Worker = c.worker(t, cfg, c.tmpl)
	require.NoError(t, c.Register("book", book))
	start(t, c.Worker)
	return c
}

// record is the first write of every handler.
func record(ctx *StepContext, tx store.Tx) error {
	_, err := tx.Exec(ctx, `insert into books values ($1, $2)`, ctx.StepUUID(), ctx.Attempt())
	return err
}

func (c *counter) books() int { return c.db.QueryInt(c.t, `select count(*) from books`) }

func (c *counter) outcomes(outcome string) float64 {
	return testutil.ToFloat64(c.metrics.Transactions.WithLabelValues(outcome))
}

// failures lists the error types of a task's attempts, in order.
func (c *counter) failures(task uuid.UUID) string {
	return c.db.QueryString(c.t, `select coalesce(string_agg(error->>'error_type', ' ' order by attempt), '') from tasker.step_attempts where task_uuid = $1`, task)
}

func (c *counter) all(cond func(h Health) bool) {
	c.t.Helper()
	pgtest.Eventually(c.t, patient, func() (bool, string) {
		h := c.Health()
		return cond(h), fmt.Sprintf("%+v", h)
	})
}

func TestAHandlersWritesAndItsStepAreOne(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"notify", "wal"} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			type in struct {
				N int `json:"n"`
			}
			c := newCounter(t, Config{MaxConcurrent: 5, HeartbeatInterval: 20 * time.Millisecond}, source, TypedTx(func(ctx *StepContext, tx store.Tx, i in) (int, error) {
				return i.N, record(ctx, tx)
			}, Strict()))
			ids := c.create(t, c.tmpl, 30)
			c.finish(t, ids, workflow.TaskComplete)
			require.Equal(t, 30, c.books())
			for i, id := range ids {
				task, err := c.Task(t.Context(), id)
				require.NoError(t, err)
				require.JSONEq(t, fmt.Sprint(i), string(task.Steps[0].Result))
				// On a busy machine a claim may be handed back whose answer came too late.
				require.Equal(t, c.db.QueryInt(t, `select attempt from books where step = $1`, task.Steps[0].UUID), task.Steps[0].Attempts)
			}
			c.all(func(h Health) bool { return h.Succeeded == 30 && h.Running == 0 && h.Reporting == 0 })
			require.Zero(t, c.Health().Stale+c.Health().Failed)
			require.InDelta(t, 30, c.outcomes("committed"), 0)
			pool := c.Host().TransactionPool()
			require.EqualValues(t, 10, pool.Max)
			require.Zero(t, pool.Acquired)
			require.Positive(t, pool.Total)
			require.Equal(t, int(pool.Total), c.db.QueryInt(t, `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'tasker-worker-transactions'`))
			require.Positive(t, testutil.CollectAndCount(c.metrics.TransactionWait))
		})
	}
}

func TestWorkersWithoutTransactionsOpenNoPool(t *testing.T) {
	t.Parallel()
	c := newCounter(t, Config{}, "notify", says("done"))
	c.finish(t, c.create(t, c.tmpl, 3), workflow.TaskComplete)
	require.Equal(t, store.PoolStat{Max: 10}, c.Host().TransactionPool())
}

// Each failure leaves neither the row nor the completion, and is recorded as itself.
func TestWhatFailsIsRolledBack(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		after func(ctx *StepContext, tx store.Tx) (any, error) // the row has been written
		types string                                           // of the attempts
	}{
		"error":     {func(*StepContext, store.Tx) (any, error) { return nil, errors.New("no") }, "UnexpectedError UnexpectedError UnexpectedError"},
		"permanent": {func(*StepContext, store.Tx) (any, error) { return nil, Permanent(errors.New("never")) }, "PermanentError"},
		"panic":     {func(*StepContext, store.Tx) (any, error) { panic("no") }, "PanicError PanicError PanicError"},
		"goexit":    {func(*StepContext, store.Tx) (any, error) { runtime.Goexit(); return nil, nil }, "PanicError PanicError PanicError"},
		"timeout": {func(ctx *StepContext, _ store.Tx) (any, error) {
			<-ctx.Done()
			return "too late", nil
		}, "Timeout Timeout Timeout"},
		"too large": {func(*StepContext, store.Tx) (any, error) { return strings.Repeat("x", 2000), nil }, engine.TypeResultNotStored},
		"no JSON":   {func(*StepContext, store.Tx) (any, error) { return make(chan int), nil }, engine.TypeResultNotEncoded},
		"no jsonb":  {func(*StepContext, store.Tx) (any, error) { return json.RawMessage(`"` + "\\u0000" + `"`), nil }, engine.TypeResultNotStored},
		"went on":   {func(ctx *StepContext, tx store.Tx) (any, error) { _, _ = tx.Exec(ctx, `nonsense`); return 1, nil }, "TransactionFailed TransactionFailed TransactionFailed"},
		"lost":      {func(ctx *StepContext, tx store.Tx) (any, error) { return 1, tx.Conn().Close(ctx) }, "TransactionFailed TransactionFailed TransactionFailed"},
		"deferred": {func(ctx *StepContext, tx store.Tx) (any, error) {
			_, err := tx.Exec(ctx, `insert into parts values (42)`)
			return 1, err
		}, "TransactionFailed TransactionFailed TransactionFailed"},
		"twice":       {func(ctx *StepContext, _ store.Tx) (any, error) { return InTx(nil)(ctx) }, "TransactionFailed"},
		"serializing": {func(*StepContext, store.Tx) (any, error) { return nil, fmt.Errorf("read: %w", sqlError("40001")) }, "SerializationFailure SerializationFailure SerializationFailure"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCounter(t, Config{MaxResultBytes: 1000}, "notify", InTx(func(ctx *StepContext, tx store.Tx) (any, error) {
				if err := record(ctx, tx); err != nil {
					return nil, err
				}
				return tt.after(ctx, tx)
			}))
			c.db.Exec(t, `create table kinds (n int primary key); create table parts (n int references kinds (n) deferrable initially deferred)`)
			ids := c.create(t, c.tmpl, 1)
			c.finish(t, ids, workflow.TaskError)
			require.Equal(t, tt.types, c.failures(ids[0]))
			require.Zero(t, c.books())
			c.all(func(h Health) bool { return h.Running == 0 && h.Reporting == 0 })
			pgtest.Eventually(t, patient, func() (bool, string) { // the pool closes broken connections in the background
				n := c.Host().TransactionPool().Acquired
				return n == 0, fmt.Sprint(n, " connections are still in use")
			})
			require.Zero(t, c.outcomes("committed"))
		})
	}
}

// A handler that ignores the end of its time keeps its permit, but not the locks of its
// transaction: the next attempt needs the same rows.
func TestAZombieHoldsNoLocks(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	c := newCounter(t, Config{MaxConcurrent: 2}, "notify", InTx(func(ctx *StepContext, tx store.Tx) (any, error) {
		if _, err := tx.Exec(context.WithoutCancel(ctx), `update stock set n = n - 1`); err != nil {
			return nil, err
		}
		if ctx.Attempt() == 1 {
			<-release
		}
		return "done", record(ctx, tx)
	}))
	c.db.Exec(t, `create table stock as select 10 as n`)
	ids := c.create(t, c.tmpl, 1)
	c.finish(t, ids, workflow.TaskComplete)
	require.Equal(t, 1, c.Health().Zombies, "the first still runs")
	close(release)
	c.all(func(h Health) bool { return h.Zombies == 0 })
	require.Equal(t, 9, c.db.QueryInt(t, `select n from stock`))
	require.Equal(t, "Timeout", c.failures(ids[0]))
	require.Zero(t, c.Health().Stale, "the late outcome was not sent")
}

// The claim is lost while the handler works: by its lease, or by an operator.
func TestTheFenceRefusesTheWholeTransaction(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, c *counter, task uuid.UUID){
		"lease": func(t *testing.T, c *counter, _ uuid.UUID) {
			pgtest.Eventually(t, patient, func() (bool, string) {
				c.db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where state = 3 and attempt = 1`)
				n, err := c.ExpireLeases(t.Context(), store.UpTo(10), 10)
				require.NoError(t, err)
				return n.Claims() == 1, "the lease was extended in between"
			})
		},
		"cancelled": func(t *testing.T, c *counter, task uuid.UUID) {
			taken, err := c.TakeTasks(t.Context(), []uuid.UUID{task}, store.Taking{})
			require.NoError(t, err)
			progress, effects, err := workflow.Advance(taken.Tasks[0].Plan.Plan, taken.Tasks[0].State, taken.Tasks[0].Progress, workflow.Rules{}, workflow.Operation{Action: workflow.ActionCancel})
			require.NoError(t, err)
			_, err = taken.Commit(t.Context(), uuid.Nil, []store.Change{{Task: &taken.Tasks[0], Progress: progress, Effects: effects, Actor: "test"}})
			require.NoError(t, err)
		},
	} {
		for _, notified := range []bool{true, false} { // whether the worker learns of it before the handler ends
			t.Run(fmt.Sprintf("%s/notified=%v", name, notified), func(t *testing.T) {
				t.Parallel()
				recorded, release := make(chan struct{}), make(chan struct{})
				var runs atomic.Int32 // a lost lease uses no attempt
				cfg := Config{MaxConcurrent: 2, HeartbeatInterval: 20 * time.Millisecond}
				if !notified {
					cfg.HeartbeatInterval, cfg.Lease = time.Minute, 5*time.Minute
				}
				c := newCounter(t, cfg, "notify", InTx(func(ctx *StepContext, tx store.Tx) (any, error) {
					err, run := record(ctx, tx), runs.Add(1)
					if run == 1 {
						close(recorded)
						<-release
					}
					return "from " + fmt.Sprint(run), err
				}))
				ids := c.create(t, c.tmpl, 1)
				<-recorded // a notified worker aborts what the handler still does
				lose(t, c, ids[0])
				if notified {
					c.all(func(h Health) bool { return h.LeasesLost == 1 })
				}
				close(release)
				c.all(func(h Health) bool { return h.Stale == 1 && h.Running == 0 })
				require.InDelta(t, 1, c.outcomes("refused"), 0)
				pgtest.Eventually(t, patient, func() (bool, string) { // counted later than the health
					n := testutil.ToFloat64(c.metrics.StaleResults)
					return n == 1, fmt.Sprint(n, " stale results are counted")
				})
				want := workflow.TaskComplete
				if name == "cancelled" {
					want = workflow.TaskCancelled
					require.Zero(t, c.books())
				}
				c.finish(t, ids, want)
				if want == workflow.TaskComplete {
					require.Equal(t, 1, c.books())
				}
			})
		}
	}
}

// An operator may call a step off at any moment, also during the report.
func TestConflictsOfSerializableTransactionsAreRetried(t *testing.T) {
	t.Parallel()
	var met sync.WaitGroup
	met.Add(2)
	c := newCounter(t, Config{MaxConcurrent: 2}, "notify", InTx(func(ctx *StepContext, tx store.Tx) (any, error) {
		var n int
		if err := tx.QueryRow(ctx, `select n from stock`).Scan(&n); err != nil {
			return nil, err
		}
		if ctx.Attempt() == 1 {
			met.Done()
			met.Wait()
		}
		if _, err := tx.Exec(ctx, `update stock set n = $1`, n-1); err != nil {
			return nil, err
		}
		return n, record(ctx, tx)
	}, WithTxOptions(pgx.TxOptions{IsoLevel: pgx.Serializable})))
	c.db.Exec(t, `create table stock as select 10 as n`)
	ids := c.create(t, c.tmpl, 2)
	c.finish(t, ids, workflow.TaskComplete)
	require.Equal(t, 8, c.db.QueryInt(t, `select n from stock`), "one after the other")
	require.Equal(t, engine.TypeSerialization, strings.TrimSpace(c.failures(ids[0])+" "+c.failures(ids[1])))
	require.Equal(t, "40001", c.db.QueryString(t, `select error->>'error_code' from tasker.step_attempts where error is not null`))
}

// Handlers beyond the number of connections wait; claims, heartbeats and reports do not.
func TestThePoolOfTransactionsIsBounded(t *testing.T) {
	t.Parallel()
	var inside, most atomic.Int32
	release := make(chan struct{})
	c := newCounter(t, Config{MaxConcurrent: 6, HeartbeatInterval: 20 * time.Millisecond, MaxConnections: 2, Transactions: TransactionConfig{MaxConnections: 2}}, "notify",
		InTx(func(ctx *StepContext, tx store.Tx) (any, error) {
			now := inside.Add(1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			defer inside.Add(-1)
			if ctx.Attempt() == 1 {
				<-release
			}
			return 1, record(ctx, tx)
		}))
	ids := c.create(t, c.tmpl, 6)
	c.all(func(h Health) bool { return h.Running == 6 && inside.Load() == 2 })
	beats := c.db.QueryInt(t, `select (extract(epoch from heartbeat_at) * 1000)::bigint from tasker.workers`)
	pgtest.Eventually(t, patient, func() (bool, string) {
		return c.db.QueryInt(t, `select (extract(epoch from heartbeat_at) * 1000)::bigint from tasker.workers`) > beats, "no heartbeat"
	})
	// Waiting handlers have their time limit, and the error names the reason.
	pgtest.Eventually(t, patient, func() (bool, string) {
		c.orchestrate(t)
		n := c.db.QueryInt(t, `select count(*) from tasker.step_attempts where error->>'message' like '%got no connection for its transaction%'`)
		return n >= 4, fmt.Sprint(n)
	})
	close(release)
	c.finish(t, ids, workflow.TaskComplete)
	require.EqualValues(t, 2, most.Load())
	require.Equal(t, 6, c.books())
}

func TestAPoolOfTheProgramsOwn(t *testing.T) {
	t.Parallel()
	b, tmpl := newBench(t, "notify"), templateOf(t, booksYAML)
	other := pgtest.New(t)
	wrong, err := New(Config{DatabaseURL: b.db.DSN, EventSourceName: "none", Namespaces: []string{"books"}, Transactions: TransactionConfig{Pool: other.Pool(t)}})
	require.NoError(t, err)
	require.ErrorContains(t, wrong.Start(t.Context()), "pool for transactions of handlers")

	b.db.Exec(t, `create table books (step uuid primary key, attempt int not null)`)
	pool := b.db.Pool(t)
	w := b.worker(t, Config{Events: quick(), Transactions: TransactionConfig{Pool: pool}}, tmpl)
	require.NoError(t, HandleTx(w, "book", func(ctx *StepContext, tx pgx.Tx, _ struct{}) (string, error) { return "x", record(ctx, tx) }))
	start(t, w)
	b.finish(t, b.create(t, tmpl, 5), workflow.TaskComplete)
	require.Equal(t, 5, b.db.QueryInt(t, `select count(*) from books`))
	require.Positive(t, pool.Stat().AcquireCount())
	require.NoError(t, w.Stop(t.Context()))
	require.NoError(t, pool.Ping(t.Context()), "it is the program's")
}

func TestRegisteringHandlersInTransactions(t *testing.T) {
	t.Parallel()
	w, err := New(Config{DatabaseURL: "postgres://unused", Every: true})
	require.NoError(t, err)
	fn := func(*StepContext, pgx.Tx, struct{}) (any, error) { return nil, nil }
	require.NoError(t, HandleTx(w, "a", fn, Strict(), WithTxOptions(pgx.TxOptions{IsoLevel: pgx.RepeatableRead})))
	require.ErrorContains(t, HandleTx(w, "b", fn, WithTxOptions(pgx.TxOptions{AccessMode: pgx.ReadOnly})), "read only")
	require.ErrorContains(t, HandleTx[struct{}, any](w, "c", nil), "nil")
	require.NoError(t, w.RegisterMethods("d", map[string]HandlerFunc{"call": InTx(func(*StepContext, store.Tx) (any, error) { return nil, nil }), "other": TypedTx(fn)}))
	require.ErrorContains(t, w.Start(t.Context()), "read only", "it is not overlooked")

	ctx := contextOf(t, "first", nil, nil)
	_, err = TypedTx(func(*StepContext, store.Tx, []int) (any, error) { return nil, nil })(ctx)
	require.Equal(t, engine.TypeInvalidInput, engine.FailureOf(err).Type, "no transaction is begun for input that does not fit")
}

// Shutdown: a handler that succeeds in its grace is committed, one that ends early is
// handed back, and both leave no transaction open.
func TestStoppingWithTransactionsOpen(t *testing.T) {
	t.Parallel()
	recorded := make(chan struct{}, 2)
	c := newCounter(t, Config{MaxConcurrent: 2, HandlerTimeout: time.Hour}, "notify", InTx(func(ctx *StepContext, tx store.Tx) (any, error) {
		if err := record(ctx, tx); err != nil {
			return nil, err
		}
		recorded <- struct{}{}
		<-ctx.Done()
		if n, _ := ctx.InputValue("n"); fmt.Sprint(n) == "0" {
			return "after all", nil
		}
		return nil, ctx.Err()
	}))
	c.tmpl.Steps[0].TimeoutSeconds = 0
	ids := c.create(t, c.tmpl, 2)
	<-recorded
	<-recorded
	require.EqualValues(t, 2, c.Host().TransactionPool().Acquired)
	stopAtOnce(t, c.Worker)
	require.Equal(t, 1, c.books())
	require.Equal(t, ids[0].String(), c.db.QueryString(t, `select task_uuid::text from tasker.board where state = 4 and outcome = 1`))
	require.Equal(t, ids[1].String(), c.db.QueryString(t, `select task_uuid::text from tasker.board where state = 2 and attempt = 0`))
	require.Eventually(t, func() bool { // the server notices a closed connection a moment later
		return c.db.QueryInt(t, `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'tasker-worker-transactions'`) == 0
	}, 30*time.Second, 10*time.Millisecond)
}

// stopAtOnce stops a worker and cancels its handlers at once, which leaves them all of
// the handlers' grace.
func stopAtOnce(t *testing.T, w *Worker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first := make(chan error, 1)
	go func() { first <- w.Stop(ctx) }()
	require.Eventually(t, func() bool { return w.Health().State == "draining" }, 30*time.Second, time.Millisecond)
	require.NoError(t, w.Stop(ctx), "a second call forces it")
	require.NoError(t, <-first)
}
