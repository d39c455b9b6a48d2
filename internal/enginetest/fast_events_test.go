package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/redistest"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/internal/signal/redis"
	"github.com/tasker-go/tasker/internal/signal/relay"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/poller"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/workflow/template"
)

const fastYAML = `
name: quick
namespace_name: test
version: 1.0.0
steps:
  - name: pay
    handler: {callable: pay}
    publishes_events:
      - {name: pay.fast, delivery_mode: fast, schema: {}}
      - {name: pay.both, delivery_mode: broadcast, schema: {}}
`

// replica is a worker with its own listener, and the events that its subscriber received.
type replica struct {
	*worker.Worker
	metrics  *telemetry.Metrics
	mu       sync.Mutex
	received map[string]int // by event id
}

func newReplica(t *testing.T, e *enginetest.Engine, id, source, brokerURL string) *replica {
	t.Helper()
	r := &replica{metrics: telemetry.Discard(), received: map[string]int{}}
	defaults, err := config.Defaults()
	require.NoError(t, err)
	settings := *defaults // a copy: all tests share the defaults
	settings.Common.Signals.Redis.URL, settings.Common.Queues.RabbitMQ.URL = config.DSN(brokerURL), config.DSN(brokerURL)
	cfg := worker.Configure(&settings)
	cfg.Store, cfg.EventSourceName, cfg.ListenerURL, cfg.WorkerID, cfg.Environment = e.Store, source, e.DB.DSN, id, "test"
	cfg.Namespaces, cfg.MaxConcurrent, cfg.Metrics = []string{"test"}, 1, r.metrics
	cfg.Events = coordinator.Config{Poller: poller.Config{Interval: 50 * time.Millisecond, RelaxedInterval: 50 * time.Millisecond}}
	r.Worker, err = worker.New(cfg)
	require.NoError(t, err)
	require.NoError(t, errors.Join(
		r.Register("pay", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })),
		r.Subscribe(events.Subscriber{Name: "display", Patterns: []string{"pay.*"}, Handle: func(_ context.Context, e events.Event) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.received[e.ID]++
			return nil
		}})))
	require.NoError(t, r.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		require.NoError(t, r.Stop(ctx))
	})
	require.Eventually(t, func() bool {
		l := r.Health().Events.Listener
		return l != nil && !l.LagAt.IsZero() // a probe has come back: it receives signals
	}, patience, 5*time.Millisecond)
	return r
}

func (r *replica) events() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.received)
}

func (r *replica) outcome(name string) int {
	return int(testutil.ToFloat64(r.metrics.DomainEventsReceived.WithLabelValues(name)))
}

// TestFastEventsReachEveryReplica once, whichever has run the step, over each transport
// of signals.
func TestFastEventsReachEveryReplica(t *testing.T) {
	t.Parallel()
	for _, source := range []string{notify.Name, wal.Name, relay.Name, redis.Name, amqp.Name} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			var db *pgtest.DB
			if source == wal.Name || source == relay.Name {
				db = pgtest.Private(t, nil).NewMigrated(t, "quick", enginetest.Migrate) // slots wait for all transactions of a server
			} else {
				db = enginetest.Migrated(t)
			}
			e := enginetest.StartOn(t, db, func(w *worker.Worker) error {
				tmpl, _, err := template.Parse("quick.yaml", []byte(fastYAML))
				return errors.Join(err, w.RegisterTemplate(tmpl))
			}, func(_ *orchestration.Config, w *worker.Config) { w.Namespaces = []string{"other"} })
			transport := wal.NewTransport(e.Store.Execer())
			url := ""
			switch source {
			case notify.Name:
				transport = notify.NewTransport(e.Store.Execer())
			case redis.Name:
				url = redistest.Start(t).URL
				broker, err := redis.NewTransport(redis.Config{URL: url, Prefix: "tasker", Timeout: patience})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, broker.Stop(context.WithoutCancel(t.Context()))) })
				transport = broker
			case amqp.Name:
				url = brokertest.New(t).URL
				broker, err := amqp.NewTransport(amqp.Config{URL: url})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, broker.Stop(context.WithoutCancel(t.Context()))) })
				transport = broker
			}
			if source == relay.Name {
				startRelay(t, e)
			}
			replicas := []*replica{newReplica(t, e, "one", source, url), newReplica(t, e, "two", source, url)}
			const tasks = 20
			for i := range tasks {
				e.Submit("test", "quick", fmt.Sprintf(`{"n":%d}`, i))
			}
			require.Eventually(t, func() bool { return len(replicas[0].events()) == 2*tasks && len(replicas[1].events()) == 2*tasks }, patience, 5*time.Millisecond)

			// Everything sent before this has arrived when this has.
			require.NoError(t, transport.Send(t.Context(), []signal.Signal{{Topic: signal.FastTopic("test"), Payload: "no event"}}))
			for _, r := range replicas {
				require.Eventually(t, func() bool { return r.outcome("malformed") == 1 }, patience, 5*time.Millisecond)
				for id, times := range r.events() {
					require.Equal(t, 1, times, id)
				}
				own := r.Host().EventStats()
				require.Equal(t, uint64(2*tasks), own.Fast+own.Broadcast+uint64(r.outcome("delivered")))
				require.Zero(t, r.outcome("duplicate"))
			}
			require.Equal(t, slices.Sorted(maps.Keys(replicas[0].events())), slices.Sorted(maps.Keys(replicas[1].events())))
			require.Eventually(t, func() bool { return e.DB.QueryInt(t, `select count(*)::int from tasker.domain_events`) == tasks },
				patience, 20*time.Millisecond, "of broadcast events the durable halves")
		})
	}
}

func startRelay(t *testing.T, e *enginetest.Engine) {
	t.Helper()
	r, err := relay.New(relay.Config{WAL: wal.Config{DSN: e.DB.DSN}, RetryInterval: 50 * time.Millisecond, ProbeInterval: 50 * time.Millisecond,
		Namespaces: func(context.Context) ([]string, error) { return []string{"test"}, nil }})
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		require.NoError(t, r.Stop(ctx))
	})
}
