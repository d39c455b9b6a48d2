//go:build unix

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/redistest"
	"github.com/tasker-go/tasker/internal/signal/redis"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// overRedis is a fleet of two daemons whose signals travel over a Redis of its own.
type overRedis struct {
	t            *testing.T
	server       *redistest.Server
	db           *pgtest.DB
	orchestrator *Orchestrator
	worker       *Worker
	created      int
}

// startOverRedis returns once all listeners are proven. A fleet in which a round trip takes
// longer than timeout does not hear: on a busy machine a short one is for faults alone.
func startOverRedis(t *testing.T, mode deploymode.Mode, timeout time.Duration) *overRedis {
	t.Helper()
	r := &overRedis{t: t, server: redistest.Start(t), db: enginetest.Migrated(t)}
	settings := fmt.Sprintf("[common.signals]\nevent_source = \"redis\"\n[common.signals.redis]\nurl = %q\nprefix = \"a.fleet\"\ntimeout_ms = %d\n", r.server.URL, timeout.Milliseconds()) +
		"[common.circuit_breakers]\ndefault_config.timeout_seconds = 300\nglobal_settings.min_state_transition_interval_seconds = 0.1\n"
	for _, system := range []string{"orchestration.event_systems.orchestration", "orchestration.event_systems.task_readiness", "worker.event_systems.worker"} {
		settings += fmt.Sprintf("[%s]\ndeployment_mode = %q\nlistener = {health_check_interval_ms = 100, fallback_activation_threshold_ms = %d, reconnect_max_ms = 200}\n"+
			"poller = {interval_ms = 100, relaxed_interval_ms = 60000}\n", system, mode, timeout.Milliseconds())
	}
	r.start(loadToo(t, r.db, settings), "name: two\nnamespace_name: none\nversion: 1.0.0\nsteps:\n"+
		"  - {name: a, handler: {callable: s}}\n  - {name: b, handler: {callable: s}}\n  - {name: c, handler: {callable: s}, dependencies: [a, b]}\n")
	r.hears()
	return r
}

// start starts the daemons, with a template whose steps call s.
func (r *overRedis) start(loaded *config.Loaded, steps string) {
	r.t.Helper()
	var err error
	r.orchestrator, err = newOrchestrator(r.t.Context(), loaded, nil, zap.NewNop())
	require.NoError(r.t, err)
	r.worker, err = newWorker(r.t.Context(), loaded, func(w *worker.Worker) error {
		two, _, err := template.Parse("two.yaml", []byte(steps))
		require.NoError(r.t, err)
		require.NoError(r.t, w.RegisterTemplate(two))
		return worker.Handle(w, "s", func(*worker.StepContext, any) (int, error) { return 1, nil })
	}, nil, zap.NewNop())
	require.NoError(r.t, err)
	for _, d := range []interface {
		Start(ctx context.Context) error
		Stop(ctx context.Context) error
	}{r.orchestrator, r.worker} {
		require.NoError(r.t, d.Start(r.t.Context()))
		r.t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), 30*time.Second)
			defer cancel()
			require.NoError(r.t, d.Stop(ctx))
		})
	}
}

// hears waits until probes have come back to all listeners, and the pollers have relaxed.
func (r *overRedis) hears() {
	r.t.Helper()
	pgtest.Eventually(r.t, 30*time.Second, func() (bool, string) {
		systems := r.orchestrator.engine.Health()
		systems["worker"] = *r.worker.worker.Health().Events
		for name, h := range systems {
			if l := h.Listener; l == nil || !l.Proven || h.Pace == deploymode.PaceTight {
				return false, fmt.Sprintf("%s does not hear: %+v", name, h)
			}
		}
		return true, ""
	})
}

func (r *overRedis) create(n int) {
	r.t.Helper()
	for range n {
		r.created++
		_, err := r.orchestrator.engine.Create(r.t.Context(), orchestration.Request{Namespace: "none", Name: "two", Version: "1.0.0", Initiator: "test",
			Context: json.RawMessage(fmt.Sprintf(`{"n":%d}`, r.created))})
		require.NoError(r.t, err)
	}
}

// completes waits until all tasks are complete.
func (r *overRedis) completes() {
	r.t.Helper()
	pgtest.Eventually(r.t, 30*time.Second, func() (bool, string) {
		n := r.db.QueryInt(r.t, `select count(*) from tasker.v_tasks where state = 'complete'`)
		return n == r.created, fmt.Sprintf("%d of %d are complete", n, r.created)
	})
}

// found is the work that the signals have found, and all work.
func (r *overRedis) found() (bySignals, all uint64) {
	for how, n := range r.worker.worker.Health().Events.Found {
		if how != telemetry.ByPoller && how != telemetry.ByCatchUp {
			bySignals += n
		}
		all += n
	}
	return bySignals, all
}

// TestSignalsOverRedis: without a poll, and beside a relaxed poller, signals alone find the
// work; Redis holds no key afterwards.
func TestSignalsOverRedis(t *testing.T) {
	t.Parallel()
	for _, mode := range []deploymode.Mode{deploymode.EventDrivenOnly, deploymode.Hybrid} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := startOverRedis(t, mode, 20*time.Second)
			before, allBefore := r.found()
			r.create(200)
			r.completes()
			bySignals, all := r.found()
			require.GreaterOrEqual(t, all-allBefore, uint64(200))
			require.GreaterOrEqual(t, float64(bySignals-before), 0.99*float64(all-allBefore))
			require.Zero(t, r.worker.worker.Health().Events.Missed)
			require.Equal(t, "redis", r.worker.worker.Health().Events.Listener.Source)
			keys, err := r.server.Client(t).DBSize(t.Context()).Result()
			require.NoError(t, err)
			require.Zero(t, keys)
			channels, err := r.server.Client(t).PubSubChannels(t.Context(), "*").Result()
			require.NoError(t, err)
			require.NotEmpty(t, channels)
			for _, channel := range channels {
				require.True(t, strings.HasPrefix(channel, "a.fleet:tasker_"), channel)
			}
		})
	}
}

// TestBreakersJudgeRedis: the breaker of messages opens for a Redis that is not there.
func TestBreakersJudgeRedis(t *testing.T) {
	t.Parallel()
	b, err := redis.NewTransport(redis.Config{URL: "unix:///nowhere", Timeout: time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Stop(context.WithoutCancel(t.Context()))) }()
	require.Equal(t, breaker.Failure, judge(b.Send(t.Context(), []signal.Signal{{Topic: signal.TopicDue}})))
}

// TestTheBridgeFromRedis: jobs that another program has pushed become tasks where the bridge
// is enabled.
func TestTheBridgeFromRedis(t *testing.T) {
	t.Parallel()
	s, db := redistest.Start(t), enginetest.Migrated(t)
	require.NoError(t, s.Client(t).RPush(t.Context(), "their:queue:normal", `{"id":"a","type":"FAX","payload":{"to":"b"}}`).Err())
	o, err := newOrchestrator(t.Context(), loadToo(t, db, fmt.Sprintf("[orchestration.bridge.redis_queue]\nenabled = true\nurl = %q\nprefix = \"their\"\n", s.URL)),
		nil, zap.NewNop())
	require.NoError(t, err)
	_, err = o.engine.RegisterTaskType(t.Context(), &workflow.Template{Namespace: "office", Name: "FAX", Version: "1.0.0",
		Steps: []workflow.StepTemplate{{Name: "run", Kind: workflow.KindStandard, Handler: workflow.HandlerReference{Callable: "FAX"}}}},
		orchestration.Why{Actor: "test", Reason: "test"})
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	defer func() { require.NoError(t, o.Stop(context.WithoutCancel(t.Context()))) }()
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		n := db.QueryInt(t, `select count(*) from tasker.v_tasks where namespace = 'office' and context = '{"to":"b"}'`)
		return n == 1, fmt.Sprintf("%d tasks", n)
	})
}

// TestRedisFailsInTheMiddle: whatever becomes of Redis, all work completes; once probes come
// back, signals find the work again, however long the breaker would have stayed open.
func TestRedisFailsInTheMiddle(t *testing.T) {
	t.Parallel()
	r := startOverRedis(t, deploymode.Hybrid, 500*time.Millisecond)
	for _, fault := range []func(){
		func() { r.server.Wipe(t) },
		func() { r.server.Freeze(t) },
		func() { r.server.Thaw(t) },
		func() {
			r.server.Kill(t)
			pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
				r.create(1)
				state := r.orchestrator.breakers.Breaker(breaker.Messaging).State()
				return state == breaker.Open, fmt.Sprint("the breaker is ", state)
			})
			require.Zero(t, testutil.ToFloat64(r.orchestrator.metrics.BrokerUp.WithLabelValues("signals")))
			require.Positive(t, testutil.ToFloat64(r.orchestrator.metrics.BrokerErrors.WithLabelValues("signals", telemetry.BrokerUnreachable)))
		},
		func() { r.server.Restart(t) },
	} {
		r.create(20)
		fault()
		r.create(20)
		r.completes()
	}
	r.hears()
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		before, allBefore := r.found()
		r.create(10)
		r.completes()
		bySignals, all := r.found()
		return bySignals-before >= 10, fmt.Sprintf("signals found %d of %d", bySignals-before, all-allBefore)
	})
	require.InDelta(t, 1, testutil.ToFloat64(r.orchestrator.metrics.BrokerUp.WithLabelValues("signals")), 0)
	r.completes()
}
