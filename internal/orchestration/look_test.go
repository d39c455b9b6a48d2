package orchestration_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/inproc"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// signalled is an orchestrator that learns of work only from the signals of the test:
// it neither polls nor looks after heartbeats, and the store of the test sends none.
type signalled struct {
	*orchestration.Orchestrator
	t     *testing.T
	store *store.Store
	db    *pgtest.DB
	bus   *inproc.Bus
	plan  *store.Plan
	logs  *observer.ObservedLogs
}

func startSignalled(t *testing.T, prepare func(db *pgtest.DB), options ...func(*orchestration.Config)) *signalled {
	t.Helper()
	s, db := enginetest.OpenStore(t)
	prepare(db)
	template, _, err := template.Parse("one.yaml", []byte(oneStepYAML))
	require.NoError(t, err)
	_, err = s.RegisterTemplates(t.Context(), store.Registrant{ID: "test"}, []*workflow.Template{template})
	require.NoError(t, err)
	plan, err := s.PlanNamed(t.Context(), "many", "one", "1.0.0")
	require.NoError(t, err)
	core, logs := observer.New(zap.WarnLevel)
	bus := inproc.New()
	shared := listener.New(listener.Config{Source: bus})
	system := func(id string) coordinator.Config {
		return enginetest.Completed(t, coordinator.Config{SystemID: id, Mode: deploymode.EventDrivenOnly, Listener: shared})
	}
	c := enginetest.Configured(t)
	c.Store, c.Publisher, c.Rules, c.Logger = s, bus, workflow.Rules{MaxCrashes: 3}, zap.New(core)
	c.Orchestration, c.Readiness = system("orchestration"), system("task_readiness")
	c.HeartbeatInterval, c.DeadLetters = time.Hour, true
	for _, option := range options {
		option(&c)
	}
	o, err := orchestration.New(c)
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		require.NoError(t, o.Stop(ctx))
	})
	h := &signalled{Orchestrator: o, t: t, store: s, db: db, bus: bus, plan: plan, logs: logs}
	h.eventually(func() bool { return o.Health()["orchestration"].CatchUpScans > 0 }, "the listener does not come up")
	return h
}

func (h *signalled) eventually(cond func() bool, message string) {
	h.t.Helper()
	require.Eventually(h.t, cond, 30*time.Second, 2*time.Millisecond, message)
}

// claimed creates tasks whose steps are claimed, without a signal.
func (h *signalled) claimed(n int, lease time.Duration) ([]uuid.UUID, []store.Claimed) {
	h.t.Helper()
	tasks, ids := make([]store.NewTask, n), make([]uuid.UUID, n)
	for i := range tasks {
		ids[i] = uuid.Must(uuid.NewV7())
		tasks[i] = store.NewTask{UUID: ids[i], Plan: h.plan, Context: json.RawMessage(`{}`), CorrelationID: ids[i]}
	}
	_, err := h.store.CreateTasks(h.t.Context(), tasks)
	require.NoError(h.t, err)
	claimed, _, err := h.store.Claim(h.t.Context(), store.ClaimRequest{Worker: uuid.Max, Callables: h.plan.Callables, Limit: n, Lease: lease}, true)
	require.NoError(h.t, err)
	require.Len(h.t, claimed, n)
	return ids, claimed
}

// reported creates tasks whose steps are claimed and reported.
func (h *signalled) reported(n int) []uuid.UUID {
	h.t.Helper()
	ids, claimed := h.claimed(n, time.Hour)
	reports := make([]store.Report, n)
	for i := range claimed {
		reports[i] = store.Report{ClaimKey: claimed[i].Key(), Success: true, Result: json.RawMessage(`{}`), RetryAfter: -1}
	}
	accepted, err := h.store.Report(h.t.Context(), reports)
	require.NoError(h.t, err)
	require.NotContains(h.t, accepted, false)
	return ids
}

// sendSignal sends the one signal, and waits until a look has used it up.
func (h *signalled) sendSignal() {
	h.t.Helper()
	looks := h.Health()["orchestration"].Looks
	h.bus.Publish(signal.Signal{Topic: signal.TopicOrchestration})
	h.eventually(func() bool { return h.Health()["orchestration"].Looks > looks }, "nothing looks")
}

func (h *signalled) ended(id uuid.UUID) func() bool {
	return func() bool {
		ends, err := h.store.TaskEnds(h.t.Context(), []uuid.UUID{id})
		return err == nil && ends[id] == workflow.TaskComplete
	}
}

// TestAReportIsFoundThoughItsRowWasLocked: when the row of a task is locked while the
// only signal of its report is used up, the orchestrator looks again by itself.
func TestAReportIsFoundThoughItsRowWasLocked(t *testing.T) {
	t.Parallel()
	h := startSignalled(t, func(*pgtest.DB) {})
	id := h.reported(1)[0]
	tx, err := h.db.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `update tasker.board set watched = true where task_uuid = $1`, id)
	require.NoError(t, err)
	h.sendSignal()
	require.False(t, h.ended(id)())
	require.NoError(t, tx.Commit(t.Context()))
	h.eventually(h.ended(id), "the report is not found: its signal was used up")
	require.Empty(t, h.Health()["orchestration"].Found["poller"])
}

// TestAReportIsFoundBehindTheMark: also when the look that used up its signal found
// others in front of the mark.
func TestAReportIsFoundBehindTheMark(t *testing.T) {
	t.Parallel()
	h := startSignalled(t, func(db *pgtest.DB) { db.Exec(t, `alter sequence tasker.step_seq restart with 100000`) })
	for range 3 { // moves the mark
		id := h.reported(1)[0]
		h.sendSignal()
		h.eventually(h.ended(id), "nothing is applied")
	}
	ids := h.reported(2)
	h.db.Exec(t, `update tasker.board set seq = 1 where task_uuid = $1`, ids[0])
	h.sendSignal()
	h.eventually(h.ended(ids[1]), "the report in front of the mark is not found")
	h.eventually(h.ended(ids[0]), "the report behind the mark is not found: its signal was used up")
}

// TestNoLeaseEndsBeforeItsWorkerCouldExtendIt: a newly started orchestrator cannot know
// whether the workers could reach the database.
func TestNoLeaseEndsBeforeItsWorkerCouldExtendIt(t *testing.T) {
	t.Parallel()
	const lease = 50 * time.Millisecond
	for name, c := range map[string]struct {
		grace time.Duration
		ends  bool
	}{"without": {0, true}, "over": {300 * time.Millisecond, true}, "not over": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startSignalled(t, func(*pgtest.DB) {}, func(o *orchestration.Config) { o.LeaseGrace = c.grace })
			begin := h.store.ReachedSince()
			ids, _ := h.claimed(1, lease)
			over := func() bool { // or found by then
				return h.db.QueryBool(t, `select not exists (select from tasker.board where lease_until >= now())`)
			}
			h.eventually(over, "the lease does not end")
			again := func() bool { // for another attempt
				return h.db.QueryInt(t, `select count(*) from tasker.step_attempts where task_uuid = $1 and outcome = 4`, ids[0]) == 1
			}
			looks := h.Health()["task_readiness"].Looks
			h.bus.Publish(signal.Signal{Topic: signal.TopicDue})
			if c.ends {
				h.eventually(again, "the lost lease is not found")
				require.GreaterOrEqual(t, time.Since(begin), c.grace)
				return
			}
			h.eventually(func() bool { return h.Health()["task_readiness"].Looks > looks }, "nothing looks")
			require.False(t, again())
		})
	}
}

// TestHeartbeatsThatFailAreLoggedOnce: an outage of the database is no flood of lines.
func TestHeartbeatsThatFailAreLoggedOnce(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	h := startSignalled(t, func(*pgtest.DB) {}, func(c *orchestration.Config) {
		c.HeartbeatInterval, c.Logger = 2*time.Millisecond, zap.New(core)
	})
	failed := func() int { return logs.FilterMessage("heartbeat failed and will be repeated").Len() }
	h.db.Exec(t, `alter table tasker.processors rename to away`)
	h.eventually(func() bool { return failed() > 0 }, "no heartbeat fails")
	const rolledBack = `select xact_rollback::int from pg_stat_database where datname = current_database()`
	enough := h.db.QueryInt(t, rolledBack) + 10
	h.eventually(func() bool { return h.db.QueryInt(t, rolledBack) > enough }, "no other heartbeat fails")
	h.db.Exec(t, `alter table tasker.away rename to processors`)
	again := logs.FilterMessage("heartbeats succeed again")
	h.eventually(func() bool { again = logs.FilterMessage("heartbeats succeed again"); return again.Len() > 0 }, "the end of the outage is not logged")
	require.Greater(t, again.All()[0].ContextMap()["failures"], int64(2))
	require.Equal(t, again.Len(), failed(), "a line when it begins, and one when it ends")
}
