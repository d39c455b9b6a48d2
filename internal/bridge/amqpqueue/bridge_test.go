package amqpqueue_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/bridge"
	"github.com/tasker-go/tasker/internal/bridge/amqpqueue"
	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(brokertest.With(pgtest.With(m))) }

const patience = time.Minute

// queues is a broker with the queues tasks.high and tasks.low, in front of an engine that has
// the task type EMAIL.
type queues struct {
	t       *testing.T
	host    *brokertest.Host
	broker  amqp.Config
	engine  *enginetest.Engine
	metrics *telemetry.Metrics
	welcome atomic.Bool
	hints   hints
	log     *zap.Logger
}

// hints are the signals that bridges publish.
type hints struct {
	mu   sync.Mutex
	seen []signal.Signal
}

func (h *hints) Publish(signals ...signal.Signal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, signals...)
}

func (h *hints) all() []signal.Signal {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]signal.Signal(nil), h.seen...)
}

func newQueues(t *testing.T) *queues {
	t.Helper()
	q := &queues{t: t, host: brokertest.New(t), metrics: telemetry.Discard(), log: zap.NewNop()}
	q.welcome.Store(true)
	q.broker = amqp.Config{URL: q.host.URL, Prefetch: 50, ConnectTimeout: 5 * time.Second, Topology: amqp.Topology{Namespace: "tasks", QueueType: "classic", Queues: []amqp.Queue{
		{Key: "high", Name: "tasks.high", Retry: "tasks.retry.high"}, {Key: "low", Name: "tasks.low", Retry: "tasks.retry.low"}}}}
	require.NoError(t, amqp.Declare(q.bounded(), q.broker))
	q.engine = enginetest.Start(t, func(w *worker.Worker) error {
		return w.Register("EMAIL", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return "sent", nil }))
	}, func(_ *orchestration.Config, w *worker.Config) { w.Namespaces = []string{"jobs"} })
	_, err := q.engine.Orchestrator.RegisterTaskType(t.Context(), &workflow.Template{Namespace: "jobs", Name: "EMAIL", Version: "1.0.0",
		Steps: []workflow.StepTemplate{{Name: "run", Kind: workflow.KindStandard, Handler: workflow.HandlerReference{Callable: "EMAIL"}}}},
		orchestration.Why{Actor: "test", Reason: "test"})
	require.NoError(t, err)
	return q
}

func (q *queues) bounded() context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.t.Context()), patience)
	q.t.Cleanup(cancel)
	return ctx
}

// start starts a bridge, which stop ends.
func (q *queues) start(engine bridge.Engine, keys ...string) (stop func()) {
	q.t.Helper()
	b, err := amqpqueue.New(amqpqueue.Config{Broker: q.broker, Keys: keys, BatchSize: 20, Tasks: q.engine.Store, Publisher: &q.hints, Logger: q.log,
		Door: bridge.Door{Engine: engine, Admitted: func(string) bool { return q.welcome.Load() }, Metrics: q.metrics, ParkedFor: time.Second}})
	require.NoError(q.t, err)
	require.NoError(q.t, b.Start(q.t.Context()))
	return sync.OnceFunc(func() { require.NoError(q.t, b.Stop(q.bounded())) })
}

func (q *queues) run() { q.t.Cleanup(q.start(q.engine.Orchestrator)) }

// publish sends persistent messages to the queue of a key, confirmed by the broker.
func (q *queues) publish(key string, bodies ...string) {
	q.t.Helper()
	messages := make([]amqp091.Publishing, len(bodies))
	for i, body := range bodies {
		messages[i] = amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: []byte(body)}
	}
	q.publishAll(key, messages...)
}

func (q *queues) publishAll(key string, messages ...amqp091.Publishing) {
	q.t.Helper()
	ch := q.channel()
	defer func() { _ = ch.Close() }()
	require.NoError(q.t, ch.Confirm(false))
	for _, m := range messages {
		confirmed, err := ch.PublishWithDeferredConfirmWithContext(q.t.Context(), "tasks.direct", key, true, false, m)
		require.NoError(q.t, err)
		ok, err := confirmed.WaitContext(q.bounded())
		require.NoError(q.t, err)
		require.True(q.t, ok)
	}
}

func (q *queues) channel() *amqp091.Channel {
	q.t.Helper()
	return q.host.Channel(q.t)
}

// left is what the broker has of a queue: messages that wait for a bridge, and those that one
// has.
func (q *queues) left(name string) (ready, held int) {
	q.t.Helper()
	var list []struct {
		Name  string `json:"name"`
		Ready int    `json:"messages_ready"`
		Held  int    `json:"messages_unacknowledged"`
	}
	q.host.Call(q.t, http.MethodGet, "/queues/%s", nil, &list)
	for _, l := range list {
		if l.Name == name {
			ready, held = ready+l.Ready, held+l.Held
		}
	}
	return ready, held
}

// emptied waits until all messages are acknowledged, as far as the statistics of the node tell.
func (q *queues) emptied() {
	q.t.Helper()
	pgtest.Eventually(q.t, patience, func() (bool, string) {
		left := ""
		for _, name := range []string{"tasks.high", "tasks.low"} {
			ready, held := q.left(name)
			if ready+held > 0 {
				left += fmt.Sprintf("%s: %d wait, %d are held; ", name, ready, held)
			}
		}
		return left == "", left
	})
}

// letters are the dead letters, by their bodies.
func (q *queues) letters(want int) map[string]amqp091.Delivery {
	q.t.Helper()
	ch, found := q.channel(), map[string]amqp091.Delivery{}
	pgtest.Eventually(q.t, patience, func() (bool, string) {
		for {
			d, ok, err := ch.Get("tasks.dlq", true)
			require.NoError(q.t, err)
			if !ok {
				return len(found) >= want, fmt.Sprintf("%d dead letters, want %d", len(found), want)
			}
			found[string(d.Body)] = d
		}
	})
	return found
}

func (q *queues) tasks() int {
	q.t.Helper()
	return q.engine.DB.QueryInt(q.t, `select count(*) from tasker.v_tasks`)
}

// done waits until all tasks are complete, of which there are n.
func (q *queues) done(n int) {
	q.t.Helper()
	pgtest.Eventually(q.t, patience, func() (bool, string) {
		complete := q.engine.DB.QueryInt(q.t, `select count(*) from tasker.v_tasks where state = 'complete'`)
		return complete == n && q.tasks() == n, fmt.Sprintf("%d of %d tasks are complete", complete, q.tasks())
	})
}

func (q *queues) counted(outcome string) int {
	return int(testutil.ToFloat64(q.metrics.BridgeJobs.WithLabelValues("rabbitmq", outcome)))
}

func job(n int) string { return fmt.Sprintf(`{"id":"job-%d","type":"EMAIL","payload":{"n":%d}}`, n, n) }

// TestMessagesBecomeTasks, from the queues of the bridge only, and those that are published
// twice become one.
func TestMessagesBecomeTasks(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.publish("high", job(1), job(1), `{"id":"job-2","type":"EMAIL","payload":"{\"n\":2}","max_attempts":3}`)
	q.publish("low", job(3))
	stop := q.start(q.engine.Orchestrator, "high")
	q.done(2)
	stop()
	pgtest.Eventually(t, patience, func() (bool, string) { // its statistics are late
		ready, held := q.left("tasks.low")
		return ready == 1 && held == 0, fmt.Sprint(ready, held)
	})
	q.run()
	q.emptied()
	q.done(3)
	q.publish("low", job(1))
	pgtest.Eventually(t, patience, func() (bool, string) { return q.counted("duplicate") == 2, fmt.Sprint(q.counted("duplicate")) })
	require.Equal(t, 3, q.counted("created"))
	require.Equal(t, `1 2 3`, q.engine.DB.QueryString(t, `select string_agg(context->>'n', ' ' order by context->>'n') from tasker.v_tasks where name = 'EMAIL'`))
	require.Empty(t, q.hints.all())
}

// TestMessagesAboutTasksAreSignals: a task is named by its id, or by its key.
func TestMessagesAboutTasksAreSignals(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	key := uuid.NewString()
	created, err := q.engine.Orchestrator.Create(t.Context(), orchestration.Request{Namespace: "jobs", Name: "EMAIL", Version: "1.0.0", Initiator: "test",
		Context: []byte(`{}`), IdempotencyKey: key})
	require.NoError(t, err)
	q.run()
	for i, named := range []string{created.UUID.String(), key} {
		q.publish("high", fmt.Sprintf(`{"id":%q,"type":"EMAIL","payload":null}`, named))
		pgtest.Eventually(t, patience, func() (bool, string) { return q.counted("signalled") == i+1, fmt.Sprint(q.counted("signalled")) })
	}
	q.publish("low", fmt.Sprintf(`{"id":%q,"type":"no type"}`, created.UUID))
	pgtest.Eventually(t, patience, func() (bool, string) { return q.counted("signalled") == 3, fmt.Sprint(q.counted("signalled")) })
	q.emptied()
	for _, s := range q.hints.all() {
		require.Contains(t, []signal.Signal{{Topic: signal.TopicOrchestration}, {Topic: signal.WorkerTopic("jobs")}}, s)
	}
	require.Len(t, q.hints.all(), 6)
	q.done(1)
	require.Zero(t, q.counted("refused"))
}

// TestOtherMessagesBecomeDeadLetters, with the reason and the queue, and hold up no other.
func TestOtherMessagesBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	wrong := map[string]string{
		"no json":                                      "want a JSON object",
		`["job-1"]`:                                    "want a JSON object",
		`{"id":7,"type":"EMAIL","payload":{}}`:         "want a JSON object",
		`{"type":"EMAIL","payload":{}}`:                "want a JSON object",
		`{"id":"a","type":"FAX","payload":{}}`:         "Unknown task type: FAX",
		`{"id":"b","type":"FAX"}`:                      "Unknown task type: FAX",
		`{"id":"c","type":"EMAIL"}`:                    `there is no task of the type EMAIL with the id or idempotency key "c"`,
		`{"id":"d","type":"EMAIL","payload":"text"}`:   "context",
		`{"id":"f","type":"EM\u0000AIL","payload":{}}`: "Unknown task type: EM",
		`{"id":"g","type":"EM\u0000AIL"}`:              "Unknown task type: EM",
		fmt.Sprintf(`{"id":%q,"type":"EMAIL","payload":{}}`, strings.Repeat("k", 300)):  "idempotency_key",
		fmt.Sprintf(`{"id":"e","type":%q,"payload":{}}`, strings.Repeat("ä", 5000)):     "Unknown task type: ää",
		fmt.Sprintf(`{"id":%q,"type":"EMAIL"}`, "0190163d-8694-739b-aea5-966c26f8ad91"): "there is no task",
	}
	for body := range wrong {
		// The broker would act on these again.
		q.publishAll("high", amqp091.Publishing{Body: []byte(body), ContentType: "application/json", MessageId: "m", UserId: "guest", Expiration: "600000",
			Headers: amqp091.Table{"CC": []any{"low"}}})
	}
	q.publish("high", job(1))
	q.run()
	letters := q.letters(len(wrong))
	require.Len(t, letters, len(wrong))
	for body, letter := range letters {
		require.Contains(t, wrong, body)
		require.Contains(t, letter.Headers[amqp.ReasonHeader], wrong[body])
		require.Contains(t, []any{"tasks.high", "tasks.low"}, letter.Headers[amqp.QueueHeader])
		require.Len(t, letter.Headers, 2)
		require.Equal(t, amqp091.Persistent, letter.DeliveryMode)
		require.Equal(t, []string{"application/json", "m", "", ""}, []string{letter.ContentType, letter.MessageId, letter.UserId, letter.Expiration})
	}
	q.done(1)
	q.emptied()
	require.Equal(t, 2*len(wrong), q.counted("refused"), "CC has doubled them before")
}

// TestNoDeadLetterIsLost: without its queue messages stay where they are.
func TestNoDeadLetterIsLost(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	receiver, err := amqp.NewReceiver(q.broker, []string{"high"})
	require.NoError(t, err)
	require.NoError(t, receiver.Connect(q.bounded()))
	defer receiver.Close()
	_, err = q.channel().QueueDelete("tasks.dlq", false, false, false)
	require.NoError(t, err)
	q.publish("high", "no json")
	m := <-receiver.Arrived()
	err = receiver.Bury(q.bounded(), amqp.Letter{Message: m, Reason: "planted"})
	require.ErrorContains(t, err, "no queue takes dead letters: NO_ROUTE")
	require.Equal(t, telemetry.BrokerTopology, amqp.Reason(err))
	receiver.Close()
	q.run() // declares the queue
	pgtest.Eventually(t, patience, func() (bool, string) { return q.counted("refused") == 1, "it is no dead letter yet" })
	pgtest.Eventually(t, patience, func() (bool, string) {
		n := testutil.ToFloat64(q.metrics.BridgeDeadLetters.WithLabelValues("rabbitmq"))
		return n == 1, fmt.Sprint(n, " dead letters")
	})
	require.InDelta(t, 1, testutil.ToFloat64(q.metrics.BrokerUp.WithLabelValues("rabbitmq_queue")), 0)
	require.Contains(t, q.letters(1), "no json")
}

// failing is an engine that fails before or after it has created tasks.
type failing struct {
	bridge.Engine
	calls  atomic.Int64
	create bool
}

func (f *failing) CreateMany(ctx context.Context, requests []orchestration.Request) []orchestration.CreateResult {
	if f.create {
		f.Engine.CreateMany(ctx, requests)
	}
	if len(requests) > 0 {
		f.calls.Add(1)
	}
	results := make([]orchestration.CreateResult, len(requests))
	for i := range results {
		results[i].Err = fmt.Errorf("planted: %w", store.ErrUnavailable)
	}
	return results
}

// TestABridgeThatDies leaves its messages to another one, which makes one task of each, whether
// the first has created it or not.
func TestABridgeThatDies(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]bool{"before the creation": false, "between commit and acknowledgement": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueues(t)
			const jobs = 15
			for i := range jobs {
				q.publish("high", job(i))
			}
			dies := &failing{Engine: q.engine.Orchestrator, create: create}
			stop := q.start(dies)
			pgtest.Eventually(t, patience, func() (bool, string) { return dies.calls.Load() > 0, "nothing was moved" })
			stop()
			pgtest.Eventually(t, patience, func() (bool, string) {
				ready, held := q.left("tasks.high")
				return ready == jobs && held == 0, fmt.Sprint(ready, held)
			})
			q.run()
			q.emptied()
			q.done(jobs)
			require.Equal(t, jobs, q.counted("created")+q.counted("duplicate"))
			require.Equal(t, create, q.counted("duplicate") > 0)
		})
	}
}

// TestRefusedTasksStayInTheBroker: back-pressure reaches the queues. Of each queue the bridge
// has the prefetch at most.
func TestRefusedTasksStayInTheBroker(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.broker.Prefetch = 5
	q.welcome.Store(false)
	const jobs = 30
	for i := range jobs {
		q.publish("high", job(i))
	}
	q.publish("low", "no json")
	q.run()
	require.Len(t, q.letters(1), 1) // needs no welcome
	pgtest.Eventually(t, patience, func() (bool, string) {
		ready, held := q.left("tasks.high")
		return ready == jobs-5 && held == 5, fmt.Sprint(ready, held)
	})
	require.Zero(t, q.tasks())
	require.InDelta(t, 5, testutil.ToFloat64(q.metrics.BridgeHeld.WithLabelValues("rabbitmq")), 0)
	require.InDelta(t, time.Now().Unix(), testutil.ToFloat64(q.metrics.BridgeWaiting.WithLabelValues("rabbitmq")), 60)
	q.welcome.Store(true)
	q.emptied()
	q.done(jobs)
	require.Equal(t, jobs, q.counted("created"))
	require.Zero(t, testutil.ToFloat64(q.metrics.BridgeHeld.WithLabelValues("rabbitmq")))
	require.Zero(t, testutil.ToFloat64(q.metrics.BridgeWaiting.WithLabelValues("rabbitmq")))
}

// TestMessagesOfAFullNamespaceHoldUpNoOthers: more of them than the bridge may hold are refused, and
// the database rejects the task of one. The others become tasks, the refused ones once there is
// room, and the rejected one a dead letter.
func TestMessagesOfAFullNamespaceHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	q := newQueues(t)
	q.broker.Prefetch = 5
	engine := enginetest.FullNamespace(q.engine.Orchestrator)
	named := func(id string) string { return fmt.Sprintf(`{"id":%q,"type":"EMAIL","payload":{"id":%q}}`, id, id) }
	q.publish("high", named("rejected"))
	for i := range 30 {
		q.publish("high", named(fmt.Sprintf("full-%d", i)))
	}
	for i := range 10 {
		q.publish("high", named(fmt.Sprintf("other-%d", i)))
	}
	q.publish("low", `{"id":"`+"\xff"+`","type":"EMAIL","payload":{}}`)
	t.Cleanup(q.start(engine))
	q.done(10)
	engine.Full.Store(false)
	q.done(40)
	require.Len(t, q.letters(2), 2)
	require.GreaterOrEqual(t, q.counted("parked"), 30)
}

// TestAKilledBroker: each message becomes one task while the broker loses all connections, and
// is killed and started again in the middle. It touches the whole node, so it is not parallel.
func TestAKilledBroker(t *testing.T) {
	q := newQueues(t)
	core, logs := observer.New(zap.InfoLevel)
	q.log = zap.New(core)
	const jobs = 400
	for range 2 {
		q.run()
	}
	for i := range jobs {
		if i%20 == 0 {
			var batch []string
			for j := i; j < i+20; j++ {
				batch = append(batch, job(j))
			}
			q.publish([]string{"high", "low"}[i/20%2], batch...)
		}
		if i == jobs/2 {
			q.host.Kill()
			pgtest.Eventually(t, patience, func() (bool, string) {
				up := testutil.ToFloat64(q.metrics.BrokerUp.WithLabelValues("rabbitmq_queue"))
				return up == 0 && testutil.ToFloat64(q.metrics.BrokerErrors.WithLabelValues("rabbitmq_queue", telemetry.BrokerUnreachable)) > 0, fmt.Sprint("up is ", up)
			})
			q.host.Start(t)
		}
	}
	q.emptied()
	q.done(jobs)
	require.Equal(t, 2, logs.FilterMessage("messages in RabbitMQ wait").Len(), "once for each bridge")
	pgtest.Eventually(t, patience, func() (bool, string) { // where none is left, a look says it
		n := logs.FilterMessage("messages in RabbitMQ are taken again").Len()
		return n == 2, fmt.Sprint(n, " bridges go on")
	})
	require.InDelta(t, 1, testutil.ToFloat64(q.metrics.BrokerUp.WithLabelValues("rabbitmq_queue")), 0)
}
