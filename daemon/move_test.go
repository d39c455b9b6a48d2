package daemon

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// moving is a fleet of two daemons in EventDrivenOnly that moves between notify and amqp, whose broker
// is at url.
func moving(t *testing.T, url, source, from string) *overRedis {
	t.Helper()
	r := &overRedis{t: t, db: enginetest.Migrated(t)}
	settings := fmt.Sprintf("[common.signals]\nevent_source = %q\nmoving_from = %q\n[common.queues.rabbitmq]\nurl = %q\n", source, from, url)
	for _, system := range []string{"orchestration.event_systems.orchestration", "orchestration.event_systems.task_readiness", "worker.event_systems.worker"} {
		settings += fmt.Sprintf("[%s]\ndeployment_mode = \"EventDrivenOnly\"\nlistener = {health_check_interval_ms = 100, max_reconnect_attempts = 2, reconnect_initial_ms = 10, reconnect_max_ms = 200}\n", system)
	}
	r.start(loadToo(t, r.db, settings), "name: two\nnamespace_name: none\nversion: 1.0.0\nsteps:\n"+
		"  - {name: a, handler: {callable: s}}\n  - {name: b, handler: {callable: s}, dependencies: [a]}\n")
	return r
}

// TestMovingWithoutTheBroker: whether a fleet moves to a broker that cannot be reached or away
// from it, its daemons start, are ready, do their work by the signals of the other source, and
// tell of what is missing.
func TestMovingWithoutTheBroker(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{{"amqp", "notify"}, {"notify", "amqp"}} {
		t.Run("to "+c[0], func(t *testing.T) {
			t.Parallel()
			r := moving(t, "amqp://guest:guest@127.0.0.1:1/", c[0], c[1])
			pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
				o, _ := r.orchestrator.engine.Ready()
				w, reason := r.worker.worker.Ready()
				return o && w, reason
			})
			begin := time.Now()
			r.create(50)
			r.completes()
			t.Logf("50 tasks in %v", time.Since(begin))
			require.Less(t, time.Since(begin), 10*time.Second, "no heartbeat has found them")
			pgtest.Eventually(t, 30*time.Second, func() (bool, string) { // the first probe of the other source is back
				unheard := r.worker.worker.Health().Events.Unheard
				return slices.Equal(unheard, []string{"amqp"}), fmt.Sprint(unheard)
			})
			events := r.worker.worker.Health().Events
			require.Positive(t, events.Found["listener"])
			require.Equal(t, []string{"amqp"}, events.Unheard)
			require.Equal(t, deploymode.Degraded, events.Status)
			require.Equal(t, deploymode.Degraded, r.orchestrator.topology.addTo(t.Context(), r.orchestrator.checks(t.Context()))["broker_topology"].Status)
			pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
				told := r.db.QueryString(t, `select string_agg(distinct signals::text, ' ') from (select signals from tasker.workers union all select signals from tasker.processors) d`)
				return told == fmt.Sprintf(`{"source": %q, "unheard": ["amqp"], "moving_from": %q}`, c[0], c[1]), told
			})
		})
	}
}

// TestHealthShowsTheTopology: what is missing or differs is named, and makes no daemon unready.
func TestHealthShowsTheTopology(t *testing.T) {
	t.Parallel()
	host := brokertest.New(t)
	b := newBrokerTopology(amqp.Config{URL: host.URL, Topology: amqp.Topology{Queues: []amqp.Queue{{Key: "high", Name: "tasker.high", Retry: "tasker.retry.high"}}}})
	require.NoError(t, amqp.Declare(t.Context(), b.cfg))
	look := func() (deploymode.Level, string) {
		b.forget()
		c := b.addTo(t.Context(), map[string]telemetry.Check{})["broker_topology"]
		return c.Status, c.Message
	}
	level, message := look()
	require.Equal(t, deploymode.Healthy, level, message)
	host.Call(t, http.MethodDelete, "/queues/%s/tasker.dlq", nil, nil)
	host.Call(t, http.MethodDelete, "/queues/%s/tasker.high", nil, nil)
	host.Call(t, http.MethodPut, "/queues/%s/tasker.high", map[string]any{"durable": true, "arguments": map[string]any{"x-max-length": 7}}, nil)
	level, message = look()
	require.Equal(t, deploymode.Degraded, level)
	require.Contains(t, message, "queue tasker.dlq is missing; queue tasker.high is not what the configuration wants: PRECONDITION_FAILED")
	var none *brokerTopology
	require.Empty(t, none.addTo(t.Context(), map[string]telemetry.Check{}))
}
