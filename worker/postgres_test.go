package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/poller"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

const diamondYAML = `
name: diamond
namespace_name: shapes
version: 1.0.0
steps:
  - name: start
    handler: {callable: start}
  - name: left
    dependencies: [start]
    handler: {callable: double}
    retry: {retryable: true, max_attempts: 3, backoff: fixed, backoff_base_ms: 100}
  - name: right
    dependencies: [start]
    handler: {callable: double}
  - name: end
    dependencies: [left, right]
    handler: {callable: sum}
`

const patient = 30 * time.Second

// bench is a database with a store, and an orchestrator that tests run step by step.
type bench struct {
	*store.Store
	db     *pgtest.DB
	source string
	send   signal.Transport
}

func newBench(t *testing.T, source string) *bench {
	t.Helper()
	hash, err := store.SchemaHash()
	require.NoError(t, err)
	migrated := pgtest.NewMigrated
	if source == "wal" { // a slot waits for all transactions of a server
		migrated = pgtest.Private(t, nil).NewMigrated
	}
	db := migrated(t, hash, func(ctx context.Context, dsn string) error {
		m, err := store.NewMigrator(dsn)
		if err != nil {
			return err
		}
		_, err = m.Up(ctx)
		return err
	})
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, SignalsInTransaction: source == "wal"})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return &bench{Store: s, db: db, source: source, send: notify.NewTransport(s.Execer())}
}

func templateOf(t *testing.T, yaml string) *workflow.Template {
	t.Helper()
	tmpl, _, err := template.Parse("test.yaml", []byte(yaml))
	require.NoError(t, err)
	return tmpl
}

// worker returns a worker for a template, not started.
func (b *bench) worker(t *testing.T, cfg Config, tmpl *workflow.Template) *Worker {
	t.Helper()
	cfg.DatabaseURL, cfg.EventSourceName = b.db.DSN, b.source
	w, err := New(cfg)
	require.NoError(t, err)
	require.NoError(t, w.RegisterTemplate(tmpl))
	return w
}

func start(t *testing.T, w *Worker) {
	t.Helper()
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	pgtest.Eventually(t, patient, w.Ready)
}

func (b *bench) publish(t *testing.T, signals ...signal.Signal) {
	t.Helper()
	if !b.SendsSignals() {
		require.NoError(t, b.send.Send(t.Context(), signals))
	}
}

// create makes n tasks of a template's current plan.
func (b *bench) create(t *testing.T, tmpl *workflow.Template, n int) []uuid.UUID {
	t.Helper()
	plan, err := b.PlanNamed(t.Context(), tmpl.Namespace, tmpl.Name, tmpl.Version)
	require.NoError(t, err)
	tasks, ids := make([]store.NewTask, n), make([]uuid.UUID, n)
	for i := range tasks {
		ids[i] = uuid.Must(uuid.NewV7())
		tasks[i] = store.NewTask{UUID: ids[i], Plan: plan, Context: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)),
			CorrelationID: uuid.Must(uuid.NewV7()), Initiator: "test"}
	}
	_, err = b.CreateTasks(t.Context(), tasks)
	require.NoError(t, err)
	b.publish(t, signal.Signal{Topic: signal.WorkerTopic(tmpl.Namespace)})
	return ids
}

// orchestrate applies reports and promotes due steps, once.
func (b *bench) orchestrate(t *testing.T) {
	t.Helper()
	rules := workflow.Rules{MaxCrashes: 3, Backoff: workflow.BackoffDefaults{Delays: []time.Duration{time.Millisecond}, Multiplier: 1, Max: time.Second}}
	taken, err := b.TakeReported(t.Context(), 500, true)
	require.NoError(t, err)
	var changes []store.Change
	for i := range taken.Tasks {
		task := &taken.Tasks[i]
		var in []workflow.Input
		for _, r := range task.Reported {
			if r.Outcome == workflow.OutcomeLeaseLost {
				in = append(in, workflow.LeaseLost{Step: r.Step, Attempt: r.Attempt})
				continue
			}
			in = append(in, workflow.Reported{Step: r.Step, Attempt: r.Attempt, Success: r.Outcome == workflow.OutcomeSuccess,
				Retryable: r.Retryable, RetryAfter: r.RetryAfter})
		}
		progress, effects, err := workflow.Advance(task.Plan.Plan, task.State, task.Progress, rules, in...)
		require.NoError(t, err)
		changes = append(changes, store.Change{Task: task, Progress: progress, Effects: effects, Actor: "test"})
	}
	if len(changes) > 0 {
		done, err := taken.Commit(t.Context(), uuid.Nil, changes)
		require.NoError(t, err)
		b.publish(t, done.Signals...)
	}
	_, err = b.ExpireLeases(t.Context(), store.UpTo(100), 10)
	require.NoError(t, err)
	promoted, err := b.PromoteDue(t.Context(), store.UpTo(100))
	require.NoError(t, err)
	b.publish(t, promoted.Signals...)
}

// finish orchestrates until all tasks have ended in the state.
func (b *bench) finish(t *testing.T, ids []uuid.UUID, want workflow.TaskState) {
	t.Helper()
	pgtest.Eventually(t, patient, func() (bool, string) {
		b.orchestrate(t)
		ends, err := b.TaskEnds(t.Context(), ids)
		require.NoError(t, err)
		for _, state := range ends {
			require.Equal(t, want, state)
		}
		return len(ends) == len(ids), fmt.Sprintf("%d of %d tasks have ended", len(ends), len(ids))
	})
}

func registerDiamond(t *testing.T, w *Worker) {
	t.Helper()
	type in struct {
		N int `json:"n"`
	}
	require.NoError(t, Handle(w, "start", func(_ *StepContext, i in) (map[string]int, error) {
		return map[string]int{"result": i.N + 1}, nil
	}, Strict()))
	require.NoError(t, w.Register("double", HandlerFunc(func(ctx *StepContext) (any, error) {
		n, err := ResultOf[int](ctx, "start")
		return 2 * n, err
	})))
	require.NoError(t, w.Register("sum", HandlerFunc(func(ctx *StepContext) (any, error) {
		left, err := ResultOf[int](ctx, "left")
		if err != nil {
			return nil, err
		}
		right, err := ResultOf[int](ctx, "right")
		if err != nil {
			return nil, err
		}
		first, err := ResultOf[int](ctx, "start") // an ancestor, read on first use
		return map[string]int{"total": left + right, "first": first}, err
	})))
}

// quick finds work within a test's time in every mode.
func quick() coordinator.Config {
	return coordinator.Config{
		Poller:       poller.Config{Interval: 20 * time.Millisecond, RelaxedInterval: time.Minute},
		Subscription: listener.SubscriptionConfig{Config: deploymode.Config{FallbackActivationThreshold: 2 * time.Second}},
	}
}

func TestWorkflowInEveryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []deploymode.Mode{deploymode.PollingOnly, deploymode.EventDrivenOnly, deploymode.Hybrid} {
		for _, source := range []string{"notify", "wal"} {
			t.Run(string(mode)+"/"+source, func(t *testing.T) {
				t.Parallel()
				b, tmpl := newBench(t, source), templateOf(t, diamondYAML)
				w := b.worker(t, Config{Mode: mode, Events: quick(), MaxConcurrent: 4}, tmpl)
				registerDiamond(t, w)
				start(t, w)
				ids := b.create(t, tmpl, 20)
				b.finish(t, ids, workflow.TaskComplete)
				for i, id := range ids {
					task, err := b.Task(t.Context(), id)
					require.NoError(t, err)
					require.Len(t, task.Steps, 4)
					require.JSONEq(t, fmt.Sprintf(`{"total":%d,"first":%d}`, 4*(i+1), i+1), string(task.Steps[3].Result))
					require.Equal(t, w.Health().WorkerUUID, *task.Steps[3].WorkerUUID)
				}
				pgtest.Eventually(t, patient, func() (bool, string) {
					h := w.Health()
					return h.Succeeded == 80, fmt.Sprintf("%+v", h)
				})
				h := w.Health()
				require.Zero(t, h.Stale+h.Failed+h.LeasesLost)
				if mode == deploymode.EventDrivenOnly {
					require.Zero(t, h.Events.Found["poller"])
				}
			})
		}
	}
}

// TestWorkflowOverABroker: a worker that is not told where signals go has its own connections
// to the broker.
func TestWorkflowOverABroker(t *testing.T) {
	t.Parallel()
	broker := amqp.Config{URL: brokertest.New(t).URL}
	sender, err := amqp.NewTransport(broker)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sender.Stop(context.Background())) })
	b, tmpl := newBench(t, "amqp"), templateOf(t, diamondYAML)
	b.send = sender
	w := b.worker(t, Config{Mode: deploymode.EventDrivenOnly, Events: quick(), MaxConcurrent: 4, broker: broker}, tmpl)
	registerDiamond(t, w)
	start(t, w)
	require.True(t, w.parts.store.SendsSignals(), "after the commits")
	b.finish(t, b.create(t, tmpl, 20), workflow.TaskComplete)
	pgtest.Eventually(t, patient, func() (bool, string) {
		h := w.Health()
		return h.Succeeded == 80, fmt.Sprintf("%+v", h)
	})
	require.Positive(t, w.Health().Events.Found["listener"])
}

// TestWorkflowWhileItsFleetMoves: a worker of its own hears what is sent over either source, and sends
// over both.
func TestWorkflowWhileItsFleetMoves(t *testing.T) {
	t.Parallel()
	broker := amqp.Config{URL: brokertest.New(t).URL}
	b, tmpl := newBench(t, "amqp"), templateOf(t, diamondYAML)
	w := b.worker(t, Config{Mode: deploymode.EventDrivenOnly, Events: quick(), MaxConcurrent: 4, broker: broker, movingFrom: "notify"}, tmpl)
	registerDiamond(t, w)
	start(t, w)
	overBroker, err := amqp.NewTransport(broker)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, overBroker.Stop(context.Background())) })
	overDatabase := notify.NewTransport(b.Execer())
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	for other, send := range map[string]signal.Transport{"notify": overBroker, "amqp": overDatabase} {
		b.send = send
		source, err := w.ends(w.parts).Source(other, send)
		require.NoError(t, err)
		receiver, err := source.Connect(ctx, []signal.Topic{signal.WorkerTopic(tmpl.Namespace)})
		require.NoError(t, err)
		b.finish(t, b.create(t, tmpl, 10), workflow.TaskComplete)
		_, err = receiver.Receive(ctx) // of the worker, for the second steps
		require.NoError(t, err, other)
		require.NoError(t, receiver.Close(ctx))
	}
	require.Positive(t, w.Health().Events.Found["listener"])
	require.Equal(t, "notify", w.Health().Events.Listener.From.Source)
	require.Equal(t, store.AnnounceNotify, w.announcement())
	w.cfg.EventSourceName = "wal"
	require.Equal(t, store.AnnounceBoth, w.announcement())
}

func TestRetriesAndFailuresInTheDatabase(t *testing.T) {
	t.Parallel()
	b, tmpl := newBench(t, "notify"), templateOf(t, diamondYAML)
	w := b.worker(t, Config{Events: quick()}, tmpl)
	require.NoError(t, w.Register("start", says("started")))
	require.NoError(t, w.Register("double", HandlerFunc(func(ctx *StepContext) (any, error) {
		switch {
		case ctx.StepName() == "right":
			return nil, WithCode(Permanent(errors.New("no\x00thing")), "E42")
		case ctx.Attempt() < 3:
			return nil, Retryable(errors.New("not yet"), time.Millisecond)
		}
		require.True(t, ctx.IsLastAttempt())
		return "done", nil
	})))
	require.NoError(t, w.Register("sum", says("never")))
	start(t, w)
	ids := b.create(t, tmpl, 1)
	b.finish(t, ids, workflow.TaskError)
	task, err := b.Task(t.Context(), ids[0])
	require.NoError(t, err)
	steps := map[string]store.Step{}
	for _, s := range task.Steps {
		steps[s.Name] = s
	}
	require.Equal(t, workflow.StepComplete, steps["left"].State)
	require.Equal(t, 3, steps["left"].Attempts)
	require.Equal(t, workflow.StepError, steps["right"].State)
	require.Equal(t, 1, steps["right"].Attempts)
	require.JSONEq(t, `{"message":"no\ufffdthing","error_type":"PermanentError","error_code":"E42","retryable":false}`, string(steps["right"].Error))
}

func TestSeveralWorkersRunEachStepOnce(t *testing.T) {
	t.Parallel()
	b, tmpl := newBench(t, "notify"), templateOf(t, oneStepYAML)
	var runs sync.Map
	var total atomic.Int64
	for range 3 {
		w := b.worker(t, Config{Events: quick(), MaxConcurrent: 5, Prefetch: 5}, tmpl)
		require.NoError(t, w.Register("do", HandlerFunc(func(ctx *StepContext) (any, error) {
			if _, twice := runs.LoadOrStore(ctx.StepUUID(), true); twice {
				t.Error("run twice")
			}
			return total.Add(1), nil
		})))
		start(t, w)
	}
	ids := b.create(t, tmpl, 500)
	b.finish(t, ids, workflow.TaskComplete)
	require.EqualValues(t, 500, total.Load())
}

const oneStepYAML = `
name: job
namespace_name: jobs
version: 1.0.0
steps: [{name: only, handler: {callable: do}}]
`

func TestWhatIsHandedBackIsRunByAnother(t *testing.T) {
	t.Parallel()
	b, tmpl := newBench(t, "notify"), templateOf(t, oneStepYAML)
	release := make(chan struct{})
	first := b.worker(t, Config{Events: quick(), MaxConcurrent: 1, Prefetch: 4}, tmpl)
	require.NoError(t, first.Register("do", HandlerFunc(func(ctx *StepContext) (any, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return 1, nil
	})))
	start(t, first)
	ids := b.create(t, tmpl, 5)
	pgtest.Eventually(t, patient, func() (bool, string) {
		h := first.Health()
		return h.Running == 1 && h.Prefetched == 4, fmt.Sprintf("%+v", h)
	})
	second := b.worker(t, Config{Events: quick(), Mode: deploymode.EventDrivenOnly}, tmpl)
	require.NoError(t, second.Register("do", HandlerFunc(func(ctx *StepContext) (any, error) {
		require.Equal(t, 1, ctx.Attempt(), "an execution that did not happen is not counted")
		return 2, nil
	})))
	start(t, second)
	stopped := make(chan error, 1)
	go func() { stopped <- first.Stop(context.Background()) }()
	pgtest.Eventually(t, patient, func() (bool, string) {
		h := second.Health()
		return h.Succeeded == 4, fmt.Sprintf("%d", h.Succeeded)
	})
	close(release)
	require.NoError(t, <-stopped)
	b.finish(t, ids, workflow.TaskComplete)
	require.Equal(t, 1, b.db.QueryInt(t, `select count(*) from tasker.workers where stopped_at is not null`))
}

func TestAnExpiredLeaseIsFenced(t *testing.T) {
	t.Parallel()
	b, tmpl := newBench(t, "notify"), templateOf(t, oneStepYAML)
	release := make(chan struct{})
	var runs atomic.Int32 // a lost lease uses no attempt
	w := b.worker(t, Config{Events: quick(), MaxConcurrent: 2, HeartbeatInterval: 50 * time.Millisecond}, tmpl)
	require.NoError(t, w.Register("do", HandlerFunc(func(ctx *StepContext) (any, error) {
		if runs.Add(1) == 1 {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
			<-release
			return "from the first", nil
		}
		return "from the second", nil
	})))
	start(t, w)
	ids := b.create(t, tmpl, 1)
	pgtest.Eventually(t, patient, func() (bool, string) {
		return w.Health().Running == 1, "not begun"
	})
	// As if the worker had not sent heartbeats for too long.
	pgtest.Eventually(t, patient, func() (bool, string) {
		b.db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where state = 3 and attempt = 1`)
		n, err := b.ExpireLeases(t.Context(), store.UpTo(10), 10)
		require.NoError(t, err)
		return n.Claims() == 1, "the lease was extended in between"
	})
	b.finish(t, ids, workflow.TaskComplete)
	close(release)
	pgtest.Eventually(t, patient, func() (bool, string) {
		h := w.Health()
		return h.Stale == 1 && h.LeasesLost == 1 && h.Running == 0, fmt.Sprintf("%+v", h)
	})
	task, err := b.Task(t.Context(), ids[0])
	require.NoError(t, err)
	require.JSONEq(t, `"from the second"`, string(task.Steps[0].Result))
}

func TestConnectionsThatBreak(t *testing.T) {
	t.Parallel()
	b, tmpl := newBench(t, "notify"), templateOf(t, oneStepYAML)
	w := b.worker(t, Config{Events: quick(), MaxConcurrent: 10}, tmpl)
	require.NoError(t, w.Register("do", says("done")))
	start(t, w)
	var ids []uuid.UUID
	for range 10 {
		ids = append(ids, b.create(t, tmpl, 50)...)
		b.db.Exec(t, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name like 'tasker-worker%'`)
	}
	// A claim whose answer was lost with its connection is claimable again after its
	// lease.
	pgtest.Eventually(t, patient, func() (bool, string) {
		b.db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where state = 3 and claimed_at < now() - interval '3 s'`)
		b.orchestrate(t)
		ends, err := b.TaskEnds(t.Context(), ids)
		require.NoError(t, err)
		return len(ends) == len(ids), fmt.Sprintf("%d of %d, %+v", len(ends), len(ids), w.Health())
	})
	pgtest.Eventually(t, patient, func() (bool, string) {
		h := w.Health()
		return h.Ready && h.Reporting == 0, fmt.Sprintf("%+v", h)
	})
}

func TestModeIsChangedAtRunTime(t *testing.T) {
	t.Parallel()
	b, tmpl := newBench(t, "notify"), templateOf(t, oneStepYAML)
	w := b.worker(t, Config{Events: quick()}, tmpl)
	require.NoError(t, w.Register("do", says("done")))
	start(t, w)
	for _, mode := range []deploymode.Mode{deploymode.EventDrivenOnly, deploymode.PollingOnly, deploymode.Hybrid} {
		require.NoError(t, w.SetMode(t.Context(), mode))
		require.Equal(t, mode, w.Mode())
		b.finish(t, b.create(t, tmpl, 10), workflow.TaskComplete)
	}
}

func TestStartNeedsTheSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	w, err := New(Config{DatabaseURL: db.DSN, Every: true})
	require.NoError(t, err)
	require.ErrorIs(t, w.Start(t.Context()), store.ErrSchema)
	ready, _ := w.Ready()
	require.False(t, ready)
}

func TestAStoreOfOnesOwnStaysOpen(t *testing.T) {
	t.Parallel()
	b, tmpl := newBench(t, "notify"), templateOf(t, oneStepYAML)
	w, err := New(Config{Store: b.Store, Events: quick()}) // no URL: it polls
	require.NoError(t, err)
	require.NoError(t, w.RegisterTemplate(tmpl))
	require.NoError(t, w.Register("do", says("done")))
	start(t, w)
	require.Equal(t, deploymode.PollingOnly, w.Mode())
	b.finish(t, b.create(t, tmpl, 3), workflow.TaskComplete)
	require.NoError(t, w.Stop(t.Context()))
	require.NoError(t, b.Ping(t.Context()))
}
