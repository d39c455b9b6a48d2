package amqpevents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/bridge/amqpevents"
	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(brokertest.With(pgtest.With(m))) }

const (
	patience = time.Minute
	exchange = "shop.events"
)

// shop is a database with the namespace shop, and a broker.
type shop struct {
	t       *testing.T
	host    *brokertest.Host
	db      *pgtest.DB
	store   *store.Store
	metrics *telemetry.Metrics
	logs    *observer.ObservedLogs
	cfg     amqpevents.Config
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, host: brokertest.New(t), metrics: telemetry.Discard()}
	s.store, s.db = enginetest.OpenStore(t)
	s.db.Exec(t, `insert into tasker.namespaces (name) values ('shop')`)
	var core zapcore.Core
	core, s.logs = observer.New(zap.InfoLevel)
	s.cfg = amqpevents.Config{Broker: amqp.Config{URL: s.host.URL, ConnectTimeout: 5 * time.Second}, Exchange: exchange, Type: "topic", Namespace: "shop",
		MaxConsumers: 10, BatchSize: 20, Lease: 10 * time.Second, Interval: 20 * time.Millisecond, Holder: "one", Log: s.store,
		NewEvents: func() <-chan struct{} { return nil }, Metrics: s.metrics, Logger: zap.New(core)}
	return s
}

func (s *shop) bounded() context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), patience)
	s.t.Cleanup(cancel)
	return ctx
}

// start starts a bridge, which stop ends.
func (s *shop) start(changes ...func(*amqpevents.Config)) (stop func()) {
	s.t.Helper()
	cfg := s.cfg
	for _, change := range changes {
		change(&cfg)
	}
	b, err := amqpevents.New(cfg)
	require.NoError(s.t, err)
	require.NoError(s.t, b.Start(s.t.Context()))
	stop = sync.OnceFunc(func() { require.NoError(s.t, b.Stop(s.bounded())) })
	s.t.Cleanup(stop)
	return stop
}

// channel is that of a connection of its own.
func (s *shop) channel() *amqp091.Channel {
	s.t.Helper()
	return s.host.Channel(s.t)
}

// queue declares the exchange, and a durable queue that is bound to it by keys.
func (s *shop) queue(name string, args amqp091.Table, keys ...string) {
	s.t.Helper()
	ch := s.channel()
	require.NoError(s.t, ch.ExchangeDeclare(exchange, "topic", true, false, false, false, nil))
	_, err := ch.QueueDeclare(name, true, false, false, false, args)
	require.NoError(s.t, err)
	for _, key := range keys {
		require.NoError(s.t, ch.QueueBind(name, key, exchange, false, nil))
	}
}

// emit publishes events of a task, numbered from first on, and commits them as one transaction
// after another would: positions are drawn under a lock.
func (s *shop) emit(task, first, events int) {
	s.t.Helper()
	s.db.Exec(s.t, `insert into tasker.domain_events (event_uuid, position, task_uuid, correlation_id, fired_at, namespace_id, step_no, attempt, outcome, name, version, step_name, fired_by, payload)
		select tasker.uuid_v7(), nextval('tasker.event_position'), ('00000000-0000-7000-8000-' || lpad($1::int::text, 12, '0'))::uuid, tasker.uuid_v7(), clock_timestamp(), n.namespace_id,
			0, 1, 1, 'order.paid', '1.0', 's', 'h', jsonb_build_object('task', $1::int, 'n', i)
		from (select pg_advisory_xact_lock(7) offset 0) l cross join tasker.namespaces n cross join generate_series($2::int, $3::int) i where n.name = 'shop' order by i`, task, first, first+events-1)
}

func (s *shop) named(name string) {
	s.t.Helper()
	s.emit(1, 1, 1)
	s.db.Exec(s.t, `update tasker.domain_events set name = $1 where name = 'order.paid'`, name)
}

func (s *shop) ids() map[string]bool {
	s.t.Helper()
	ids := map[string]bool{}
	for _, id := range strings.Fields(s.db.QueryString(s.t, `select coalesce(string_agg(event_uuid::text, ' '), '') from tasker.domain_events`)) {
		ids[id] = true
	}
	return ids
}

// read takes what is in a queue until every event of the database has come, and checks that the
// first copies of the events of each task are in order. It returns how many copies came later.
func (s *shop) read(queue string) (copies int) {
	s.t.Helper()
	var wanted, seen, last = s.ids(), map[string]bool{}, map[int]int{}
	ch := s.channel()
	pgtest.Eventually(s.t, patience, func() (bool, string) {
		for {
			d, ok, err := ch.Get(queue, true)
			require.NoError(s.t, err)
			if !ok {
				return len(seen) == len(wanted), fmt.Sprintf("%d of %d events; the log has %v", len(seen), len(wanted), s.logs.All())
			}
			require.True(s.t, wanted[d.MessageId])
			if seen[d.MessageId] {
				copies++
				continue
			}
			seen[d.MessageId] = true
			var e struct{ Payload struct{ Task, N int } }
			require.NoError(s.t, json.Unmarshal(d.Body, &e))
			require.Equal(s.t, last[e.Payload.Task]+1, e.Payload.N, "of task %d", e.Payload.Task)
			last[e.Payload.Task] = e.Payload.N
		}
	})
	return copies
}

// done waits until the position of the consumer is behind all events.
func (s *shop) done() {
	s.t.Helper()
	pgtest.Eventually(s.t, patience, func() (bool, string) {
		c, err := s.store.EventConsumer(s.t.Context(), "rabbitmq-events.shop")
		last, _ := s.store.LastEvent(s.t.Context(), "shop")
		return err == nil && c.Position == last && c.Holder == nil, fmt.Sprint(c.Position, last, err)
	})
}

func (s *shop) counted(outcome string) int {
	return int(testutil.ToFloat64(s.metrics.BridgeEvents.WithLabelValues("shop", outcome)))
}

// TestEventsReachTheExchange of a step that has run, woken by the orchestrator, as docs/use/events.md
// shows them.
func TestEventsReachTheExchange(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.queue("paid", nil, "test.pay.*")
	e := enginetest.Start(t, func(w *worker.Worker) error {
		return errors.Join(enginetest.RegisterTemplates(w, `
name: selling
namespace_name: test
version: 1.0.0
steps:
  - name: charge
    handler: {callable: charge}
    publishes_events: [{name: pay.done, schema: {}}, {name: pay.logged, schema: {}}, {name: other, schema: {}}]
`), w.Register("charge", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return map[string]string{"id": "T-1"}, nil })))
	})
	s.start(func(c *amqpevents.Config) {
		c.Log, c.NewEvents, c.Namespace, c.Patterns, c.Interval = e.Store, e.Orchestrator.NewEvents, "test", []string{"pay.d*", "other"}, 100*time.Millisecond
	})
	pgtest.Eventually(t, patience, func() (bool, string) {
		return e.DB.QueryInt(t, `select count(*) from tasker.event_consumers`) == 1, "no consumer"
	})
	received, err := s.channel().Consume("paid", "", true, false, false, false, nil)
	require.NoError(t, err)
	e.Run("test", "selling", `{}`)
	var d amqp091.Delivery
	select {
	case d = <-received:
	case <-time.After(patience):
		require.Fail(t, "no message", "%v %v", s.logs.All(), e.DB.QueryString(t, `select string_agg(c::text, $$;$$) from tasker.event_consumers c`))
	}
	var event client.Event
	require.NoError(t, json.Unmarshal(d.Body, &event))
	require.JSONEq(t, `{"id": "T-1"}`, string(event.Payload))
	require.Equal(t, []string{"pay.done", "charge", "charge", "test", d.MessageId, d.CorrelationId, "1.0"},
		[]string{event.Name, event.Metadata.StepName, event.Metadata.FiredBy, event.Metadata.Namespace, event.ID, event.Metadata.CorrelationID, event.Version})
	require.Equal(t, []string{"pay.done", "tasker", "application/json", "test.pay.done"}, []string{d.Type, d.AppId, d.ContentType, d.RoutingKey})
	require.Equal(t, amqp091.Table{"namespace": "test", "task_uuid": event.Metadata.TaskUUID, "step_uuid": event.Metadata.StepUUID, "position": event.Position}, d.Headers)
	require.Equal(t, amqp091.Persistent, d.DeliveryMode)
	require.Equal(t, event.Metadata.FiredAt.Unix(), d.Timestamp.Unix())
	pgtest.Eventually(t, patience, func() (bool, string) {
		n := testutil.ToFloat64(s.metrics.BridgeEvents.WithLabelValues("test", "unroutable"))
		return n == 1, fmt.Sprint(n, " unroutable, want that of other")
	})
	require.InDelta(t, 1, testutil.ToFloat64(s.metrics.BridgeEvents.WithLabelValues("test", "published")), 0)
	require.Empty(t, received, "pay.logged does not fit the patterns")
}

// TestResultsReachTheExchange, from the start of the bridge on.
func TestResultsReachTheExchange(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.queue("ends", nil, "test.tasker.task.*")
	e := enginetest.Start(t, func(w *worker.Worker) error {
		return errors.Join(enginetest.RegisterTemplates(w, "name: selling\nnamespace_name: test\nversion: 1.0.0\nsteps: [{name: charge, handler: {callable: charge}}]"),
			w.Register("charge", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return "T-1", nil })))
	})
	s.start(func(c *amqpevents.Config) {
		c.Log, c.NewEvents, c.Namespace, c.Results = e.Store, e.Orchestrator.NewEvents, "test", true
	})
	pgtest.Eventually(t, patience, func() (bool, string) {
		return e.DB.QueryBool(t, `select results from tasker.namespaces where name = 'test'`), "no results are wanted"
	})
	task := e.Run("test", "selling", `{}`)
	ch := s.channel()
	pgtest.Eventually(t, patience, func() (bool, string) {
		d, ok, err := ch.Get("ends", true)
		require.NoError(t, err)
		if !ok {
			return false, "no result"
		}
		require.Equal(t, "test.tasker.task.complete", d.RoutingKey)
		require.Equal(t, task.UUID.String(), d.Headers["task_uuid"])
		require.Equal(t, task.UUID.String(), d.Headers["step_uuid"])
		var event client.Event
		require.NoError(t, json.Unmarshal(d.Body, &event))
		require.JSONEq(t, `{"state": "complete", "task_name": "selling", "task_version": "1.0.0", "results": {"charge": "T-1"}}`, string(event.Payload))
		return true, ""
	})
}

// TestSignalsWakeTheBridge before its interval is over.
func TestSignalsWakeTheBridge(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.queue("all", nil, "#")
	news := make(chan struct{}, 1)
	s.start(func(c *amqpevents.Config) {
		c.Interval = time.Hour
		c.NewEvents = func() <-chan struct{} { return news }
	})
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		_, err := s.store.EventConsumer(t.Context(), "rabbitmq-events.shop")
		return err == nil, "the first look makes no consumer"
	})
	s.emit(1, 1, 3)
	news <- struct{}{}
	require.Zero(t, s.read("all"))
}

// TestAClaimWhoseAnswerIsLost: its events are published when its lease has ended, however long the interval is.
func TestAClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.queue("all", nil, "#")
	_, err := s.store.CreateEventConsumer(t.Context(), store.EventConsumer{Name: "rabbitmq-events.shop", Namespace: "shop"}, store.EventPlace{}, store.ConsumerBounds{All: 10, Namespace: 10},
		store.OperatorAction{Actor: "test", Action: "create_event_consumer", Reason: "test"})
	require.NoError(t, err)
	s.emit(1, 1, 3)
	lost, err := s.store.ClaimEvents(t.Context(), "rabbitmq-events.shop", "one", 10, time.Second)
	require.NoError(t, err)
	require.Len(t, lost.Events, 3)
	s.start(func(c *amqpevents.Config) { c.Interval, c.Lease = time.Hour, time.Second })
	require.Zero(t, s.read("all"))
}

// mortal is the log of a bridge that can crash: from then on it rejects every call.
type mortal struct {
	amqpevents.Log
	dead atomic.Bool
}

func (m *mortal) ClaimEvents(ctx context.Context, consumer, holder string, limit int, lease time.Duration) (c store.ClaimedEvents, err error) {
	if m.dead.Load() {
		return c, errors.New("planted: dead")
	}
	return m.Log.ClaimEvents(ctx, consumer, holder, limit, lease)
}

func (m *mortal) AckEvents(ctx context.Context, consumer string, token, position int64, release bool) error {
	if m.dead.Load() {
		return errors.New("planted: dead")
	}
	return m.Log.AckEvents(ctx, consumer, token, position, release)
}

// TestOrderUnderLoad: three orchestrators race for events, and are killed one after the other
// between publishing and the acknowledgement, while transactions publish.
func TestOrderUnderLoad(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.queue("all", nil, "#")
	s.cfg.Lease = time.Second
	lives := make(chan *mortal, 3)
	start := func(name string) {
		m := &mortal{Log: s.store}
		stop := s.start(func(c *amqpevents.Config) { c.Log, c.Holder = m, name })
		lives <- m
		t.Cleanup(stop)
	}
	for i := range 3 {
		start(fmt.Sprint("first ", i))
	}
	const writers, tasks, events = 4, 5, 20
	var writing conc.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for n := 1; n <= events; n += 2 {
				for task := range tasks {
					s.emit(w*tasks+task, n, 2)
				}
			}
		})
	}
	for i := range 3 {
		published := s.counted("published")
		pgtest.Eventually(t, patience, func() (bool, string) { return s.counted("published") > published+20, "nothing is published" })
		(<-lives).dead.Store(true)
		start(fmt.Sprint("then ", i))
	}
	writing.Wait()
	s.done()
	t.Log(s.read("all"), "copies of", writers*tasks*events)
}

// held is a log whose first claim waits until it is let on.
type held struct {
	amqpevents.Log
	claimed, on chan struct{}
	once        sync.Once
	acks        chan error
}

func (h *held) ClaimEvents(ctx context.Context, consumer, holder string, limit int, lease time.Duration) (store.ClaimedEvents, error) {
	c, err := h.Log.ClaimEvents(ctx, consumer, holder, limit, lease)
	if len(c.Events) > 0 {
		h.once.Do(func() {
			close(h.claimed)
			<-h.on
		})
	}
	return c, err
}

func (h *held) AckEvents(ctx context.Context, consumer string, token, position int64, release bool) error {
	err := h.Log.AckEvents(ctx, consumer, token, position, release)
	h.acks <- err
	return err
}

// TestALostLease: a publisher that publishes again what another one has published adds duplicates, and
// does not move the position; one whose lease has ended adds none.
func TestALostLease(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"it knows nothing of it": time.Minute, "it is over": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.queue("all", nil, "#")
			h := &held{Log: s.store, claimed: make(chan struct{}), on: make(chan struct{}), acks: make(chan error, 100)}
			for task := range 3 {
				s.emit(task, 1, 3)
			}
			s.start(func(c *amqpevents.Config) { c.Log, c.Lease, c.Holder = h, lease, "frozen" })
			<-h.claimed
			s.db.Exec(t, `update tasker.event_consumers set lease_until = clock_timestamp() - interval '1 ms'`)
			stop := s.start()
			s.done()
			s.emit(0, 4, 1)
			s.done()
			stop()
			close(h.on)
			require.ErrorIs(t, <-h.acks, store.ErrConsumerLost)
			if copies := s.read("all"); lease == time.Minute {
				require.Equal(t, 9, copies)
			} else {
				require.Zero(t, copies)
			}
		})
	}
}

// TestACrashBeforeTheAcknowledgement: the events are published again, with the same ids.
func TestACrashBeforeTheAcknowledgement(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.queue("all", nil, "#")
	s.emit(1, 1, 5)
	dying := &crashing{Log: s.store, crashed: make(chan struct{}, 100)}
	stop := s.start(func(c *amqpevents.Config) { c.Log = dying })
	<-dying.crashed
	stop()
	s.db.Exec(t, `update tasker.event_consumers set lease_until = clock_timestamp() - interval '1 ms'`)
	s.start()
	s.done()
	require.Equal(t, 5, s.read("all"))
}

type crashing struct {
	amqpevents.Log
	crashed chan struct{}
}

func (c *crashing) AckEvents(context.Context, string, int64, int64, bool) error {
	c.crashed <- struct{}{}
	return errors.New("planted: crashed")
}

// TestEventsThatNoQueueWants are counted and dropped, or block the events behind them.
func TestEventsThatNoQueueWants(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.queue("all", nil)
	s.emit(1, 1, 3)
	stop := s.start()
	s.done()
	require.Equal(t, 3, s.counted("unroutable"))
	require.Zero(t, s.counted("published"))
	stop()
	s.db.Exec(t, `delete from tasker.domain_events`)
	s.emit(1, 1, 3)
	s.emit(2, 1, 1)
	s.start(func(c *amqpevents.Config) { c.Mandatory = true })
	pgtest.Eventually(t, patience, func() (bool, string) { return s.counted("unroutable") > 6, "it does not try again" })
	require.Contains(t, s.logs.All()[0].ContextMap()["error"], `no queue is bound to the exchange "shop.events" for "shop.order.paid"`)
	require.Equal(t, 4, func() int { c, _ := s.store.EventConsumer(t.Context(), "rabbitmq-events.shop"); return c.Unread }())
	pgtest.Eventually(t, patience, func() (bool, string) {
		lag := testutil.ToFloat64(s.metrics.BridgeEventsLag.WithLabelValues("shop"))
		return lag > 0, "no lag"
	})
	require.NoError(t, s.channel().QueueBind("all", "shop.order.*", exchange, false, nil))
	s.done()
	require.Zero(t, s.read("all"))
	pgtest.Eventually(t, patience, func() (bool, string) {
		lag := testutil.ToFloat64(s.metrics.BridgeEventsLag.WithLabelValues("shop"))
		return lag == 0, fmt.Sprint(lag)
	})
}

// TestAQueueThatRefuses: the broker refuses messages in the middle of a batch, again and again.
func TestAQueueThatRefuses(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.queue("all", amqp091.Table{"x-max-length": 7, "x-overflow": "reject-publish"}, "#")
	for task := range 5 {
		s.emit(task, 1, 4)
	}
	s.start()
	pgtest.Eventually(t, patience, func() (bool, string) { return s.logs.Len() > 0, "nothing was refused" })
	require.Contains(t, s.logs.All()[0].ContextMap()["error"], "it refused")
	s.read("all") // makes room
	s.done()
}

// TestWhatTheExchangeIs: the error names how an existing exchange differs; a user who may only
// publish uses one that another user has declared.
func TestWhatTheExchangeIs(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.queue("all", nil, "#")
	s.emit(1, 1, 2)
	s.start(func(c *amqpevents.Config) { c.Type = "direct" })
	pgtest.Eventually(t, patience, func() (bool, string) { return s.logs.Len() > 0, "no warning" })
	require.Contains(t, s.logs.All()[0].ContextMap()["error"],
		`declare "shop.events": Exception (406) Reason: "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'shop.events' in vhost`)
	require.Contains(t, s.logs.All()[0].ContextMap()["error"], "received 'direct' but current is 'topic'")

	name := s.host.URL[strings.LastIndexByte(s.host.URL, '/')+1:]
	s.host.Call(t, http.MethodPut, "/users/%s", map[string]string{"password": "secret", "tags": ""}, nil)
	t.Cleanup(func() { s.host.Call(t, http.MethodDelete, "/users/%s", nil, nil) })
	s.host.Call(t, http.MethodPut, "/permissions/%s/%s", map[string]string{"configure": "^$", "write": "^shop", "read": "^$"}, nil)
	guest := func(c *amqpevents.Config) {
		c.Broker.URL = strings.Replace(s.host.URL, "guest:guest", name+":secret", 1)
	}
	s.start(guest)
	pgtest.Eventually(t, patience, func() (bool, string) { return s.logs.FilterMessageSnippet("wait").Len() > 1, "it may declare" })
	require.Contains(t, s.logs.All()[1].ContextMap()["error"], "ACCESS_REFUSED")
	s.start(guest, func(c *amqpevents.Config) { c.Type, c.Exchange = "", "shop.none" })
	pgtest.Eventually(t, patience, func() (bool, string) { return s.logs.FilterMessageSnippet("wait").Len() > 2, "there is one" })
	require.Contains(t, s.logs.All()[2].ContextMap()["error"], "no exchange 'shop.none'")
	s.start(guest, func(c *amqpevents.Config) { c.Type = "" })
	s.done()
	require.Zero(t, s.read("all"))
}

// TestLongNames: a routing key is cut, between two characters; the type has the name.
func TestLongNames(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.queue("all", nil, "shop.long.#")
	name := "long." + strings.Repeat("ä", 125)
	s.named(name)
	s.start()
	s.done()
	d, ok, err := s.channel().Get("all", true)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []string{name, "shop.long." + strings.Repeat("ä", 122)}, []string{d.Type, d.RoutingKey})
}

// TestWhereABridgeBegins: with the existing events, after them, or with all events of a
// namespace that is created later.
func TestWhereABridgeBegins(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.queue("all", nil, "#")
	now := func(c *amqpevents.Config) { c.FromNow = true }
	s.emit(1, 1, 2)
	s.start(now, func(c *amqpevents.Config) { c.Namespace = "Late" })
	s.start(now)
	s.done()
	require.Zero(t, s.counted("published"))
	s.emit(1, 3, 1)
	s.done()
	require.Equal(t, 1, s.counted("published"))
	s.db.Exec(t, `insert into tasker.namespaces (name) values ('Late')`)
	s.db.Exec(t, `update tasker.domain_events e set namespace_id = n.namespace_id, position = position + 100 from tasker.namespaces n where n.name = 'Late' and e.payload->>'n' = '2'`)
	pgtest.Eventually(t, patience, func() (bool, string) {
		n := testutil.ToFloat64(s.metrics.BridgeEvents.WithLabelValues("Late", "published"))
		return n == 1, fmt.Sprint(n)
	})
	require.Equal(t, "rabbitmq-events.late.0f950da1 rabbitmq-events.shop", s.db.QueryString(t, `select string_agg(name, ' ' order by name) from tasker.event_consumers`))
}

// TestABridgeBeginsWithoutItsBroker: what is published while it has never been there counts, results too.
func TestABridgeBeginsWithoutItsBroker(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.queue("all", nil, "#")
	s.emit(1, 1, 2)
	stop := s.start(func(c *amqpevents.Config) {
		c.FromNow, c.Results, c.Broker.URL = true, true, "amqp://guest:guest@127.0.0.1:1/"
	})
	pgtest.Eventually(t, patience, func() (bool, string) {
		return s.db.QueryInt(t, `select count(*) from tasker.event_consumers join tasker.namespaces using (namespace_id) where results`) == 1, "it does not begin"
	})
	s.emit(1, 3, 2)
	stop()
	s.start(func(c *amqpevents.Config) { c.FromNow, c.Results = true, true })
	s.done()
	require.Equal(t, 2, s.counted("published"))
}

// answers are those of a server, of which none comes through once there was another call.
type answers struct {
	net.Conn
	calls *atomic.Int32
	began int32 // calls by then
}

// Write implements io.Writer.
func (a answers) Write(b []byte) (int, error) {
	if a.calls.Load() != a.began {
		return len(b), nil
	}
	return a.Conn.Write(b)
}

// mute passes on what clients send to an address, and nothing that comes back on the connections
// that were there when it was called. Clients end their connections before the test ends.
func mute(t *testing.T, address string) (through string, call func()) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var work conc.WaitGroup
	var calls atomic.Int32
	work.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", address)
			if err != nil {
				_ = near.Close()
				continue
			}
			back := answers{near, &calls, calls.Load()}
			work.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
			work.Go(func() { _, _ = io.Copy(back, far); _ = near.Close() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		work.Wait()
	})
	return l.Addr().String(), func() { calls.Add(1) }
}

// TestConfirmationsThatStayAway: the bridge makes another connection, and publishes again.
func TestConfirmationsThatStayAway(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.queue("all", nil, "#")
	u, err := url.Parse(s.host.URL)
	require.NoError(t, err)
	through, silence := mute(t, u.Host)
	u.Host = through
	s.emit(1, 1, 3)
	s.start(func(c *amqpevents.Config) {
		c.Broker = amqp.Config{URL: u.String(), ConnectTimeout: time.Second}
		c.Lease = 500 * time.Millisecond
	})
	s.done()
	silence()
	s.emit(1, 4, 3)
	s.done()
	require.Positive(t, s.read("all"), "copies")
}

// TestABrokerThatFails: it blocks its publishers, and is killed and started again, while events
// are published. It touches the whole node, so it is not parallel.
func TestABrokerThatFails(t *testing.T) {
	s := newShop(t)
	s.queue("all", nil, "#")
	for i := range 2 {
		s.start(func(c *amqpevents.Config) { c.Holder = fmt.Sprint(i) })
	}
	n := 1
	emit := func() {
		for task := range 10 {
			s.emit(task, n, 3)
		}
		n += 3
	}
	emit()
	unblock := s.host.Block(t)
	emit()
	pgtest.Eventually(t, patience, func() (bool, string) {
		for _, line := range s.logs.All() {
			if strings.Contains(fmt.Sprint(line.ContextMap()["error"]), "it blocks publishers") {
				return true, ""
			}
		}
		return false, "nothing is blocked"
	})
	require.Positive(t, testutil.ToFloat64(s.metrics.BrokerErrors.WithLabelValues("rabbitmq_events", telemetry.BrokerBlocked)))
	emit()
	unblock()
	s.done()
	pgtest.Eventually(t, patience, func() (bool, string) {
		return s.logs.FilterMessage("events for RabbitMQ go on").Len() > 0, "the log does not say that it goes on"
	})
	require.InDelta(t, 1, testutil.ToFloat64(s.metrics.BrokerUp.WithLabelValues("rabbitmq_events")), 0)
	emit()
	s.host.Kill()
	emit()
	s.host.Start(t)
	emit()
	s.done()
	t.Log(s.read("all"), "copies of", 10*(n-1))
}
