package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
)

var control = signal.Signal{Topic: signal.TopicControl}

// TestABlockedBroker: Send fails at once, says why, and works again afterwards. It blocks the
// whole node, so it is not parallel.
func TestABlockedBroker(t *testing.T) {
	metrics := telemetry.Discard()
	cfg := amqp.Config{URL: brokertest.New(t).URL, Metrics: metrics}
	host := brokertest.New(t) // any: the alarm is the node's
	tr := transport(t, cfg)
	c := connect(t, cfg, tr, signal.TopicControl)
	require.NoError(t, tr.Send(bounded(t), []signal.Signal{control}))
	require.Equal(t, control, receive(t, c))
	for short, block := range map[string]func(t testing.TB) func(){"memory": host.Block, "disk": host.Fill} {
		unblock := block(t)
		var err error
		pgtest.Eventually(t, patience, func() (bool, string) { // the alarm reaches the connection a moment later
			err = tr.Send(bounded(t), []signal.Signal{control})
			return err != nil, "not blocked"
		})
		// Known before Send, or while it waits for the confirmation: RabbitMQ says so with the first message.
		for range 2 {
			begin := time.Now()
			require.ErrorIs(t, err, amqp.ErrUnavailable)
			require.ErrorContains(t, err, "it blocks publishers: low on "+short)
			require.Equal(t, telemetry.BrokerBlocked, amqp.Reason(err))
			require.InDelta(t, 1, testutil.ToFloat64(metrics.BrokerBlocked), 0, "the connection that sends")
			err = tr.Send(bounded(t), []signal.Signal{control})
			require.Less(t, time.Since(begin), 20*time.Second)
		}
		unblock()
		after := signal.Signal{Topic: signal.TopicControl, Payload: "after " + short}
		pgtest.Eventually(t, patience, func() (bool, string) {
			err := tr.Send(bounded(t), []signal.Signal{after})
			return err == nil, fmt.Sprint(err)
		})
		for receive(t, c) != after { // the ones before
		}
		require.Zero(t, testutil.ToFloat64(metrics.BrokerBlocked))
	}
}

// TestAKilledBroker: while it is away Send fails within its context, and once it is back the
// same transport sends. Delays queues are there again.
func TestAKilledBroker(t *testing.T) {
	host := brokertest.New(t)
	cfg := amqp.Config{URL: host.URL}
	tr := transport(t, cfg)
	c := connect(t, cfg, tr, signal.TopicControl)
	require.NoError(t, tr.SendAfter(bounded(t), time.Hour, []signal.Signal{control}))
	host.Kill()
	_, err := c.Receive(bounded(t))
	require.ErrorContains(t, err, "waiting for a signal: ")
	require.Error(t, c.Subscribe(bounded(t), []signal.Topic{signal.TopicDue}))
	for range 2 {
		require.ErrorIs(t, tr.Send(bounded(t), []signal.Signal{control}), amqp.ErrUnavailable)
	}
	host.Start(t)
	again := connect(t, cfg, tr, signal.TopicControl)
	require.NoError(t, tr.Send(bounded(t), []signal.Signal{control}))
	require.Equal(t, control, receive(t, again))
	require.NoError(t, tr.SendAfter(bounded(t), time.Millisecond, []signal.Signal{{Topic: signal.TopicControl, Payload: "delayed"}}))
	require.Equal(t, "delayed", receive(t, again).Payload)
}

// TestAFrozenBroker answers nothing: all waits end with their contexts, and the connection that
// sends works again when the broker does.
func TestAFrozenBroker(t *testing.T) {
	host := brokertest.New(t)
	cfg := amqp.Config{URL: host.URL}
	tr := transport(t, cfg)
	c := connect(t, cfg, tr, signal.TopicControl)
	require.NoError(t, tr.Send(bounded(t), []signal.Signal{control}))
	require.Equal(t, control, receive(t, c))
	thaw := host.Freeze(t)
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	begin := time.Now()
	pgtest.Eventually(t, patience, func() (bool, string) { // a moment after the signal
		err := tr.Send(soon(), []signal.Signal{control})
		return errors.Is(err, context.DeadlineExceeded), fmt.Sprint(err)
	})
	require.ErrorIs(t, c.Subscribe(soon(), []signal.Topic{signal.TopicControl, signal.TopicDue}), context.DeadlineExceeded)
	var err error
	for err == nil { // a signal may have come before
		_, err = c.Receive(bounded(t))
	}
	require.ErrorContains(t, err, "waiting for a signal", "its state is unknown")
	s, err := amqp.New(cfg, tr)
	require.NoError(t, err)
	_, err = s.Connect(soon(), nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, c.Close(bounded(t)))
	require.Less(t, time.Since(begin), 20*time.Second)
	thaw()
	c = connect(t, cfg, tr, signal.TopicControl)
	require.NoError(t, tr.Send(bounded(t), []signal.Signal{control}))
	require.Equal(t, control, receive(t, c))
}

// TestDelays: a signal comes when it is due, though one with a long delay was sent before.
func TestDelays(t *testing.T) {
	t.Parallel()
	cfg := amqp.Config{URL: brokertest.New(t).URL}
	tr := transport(t, cfg)
	c := connect(t, cfg, tr, signal.TopicControl, signal.TopicDue)
	begin := time.Now()
	for _, delay := range []time.Duration{36 * time.Hour, time.Minute, 1500 * time.Millisecond, 300 * time.Millisecond} {
		require.NoError(t, tr.SendAfter(bounded(t), delay, []signal.Signal{{Topic: signal.TopicDue, Payload: delay.String()}, {Topic: signal.TopicTasks}}))
	}
	for _, delay := range []time.Duration{300 * time.Millisecond, 1500 * time.Millisecond} {
		require.Equal(t, signal.Signal{Topic: signal.TopicDue, Payload: delay.String()}, receive(t, c))
		require.GreaterOrEqual(t, time.Since(begin), delay)
	}
	require.Less(t, time.Since(begin), 30*time.Second, "the minute has not passed")
	for _, delay := range []time.Duration{0, -time.Second, 40 * time.Hour} {
		require.ErrorContains(t, tr.SendAfter(bounded(t), delay, []signal.Signal{control}), "invalid delay "+delay.String())
	}
}

type binding struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	RoutingKey  string `json:"routing_key"`
}

type queue struct {
	Name      string         `json:"name"`
	Type      string         `json:"type"`
	Durable   bool           `json:"durable"`
	Messages  int            `json:"messages"`
	Arguments map[string]any `json:"arguments"`
}

// TestTopology is what the management API shows of it.
func TestTopology(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text     string
		queues   []string
		bindings []binding
	}{
		"by namespace": {"namespace = \"tasks\"\nqueues = [\"default\", \"high\"]\n", []string{"tasks.default", "tasks.dlq", "tasks.high", "tasks.retry.default", "tasks.retry.high"},
			[]binding{{"tasks.direct", "tasks.default", "default"}, {"tasks.direct", "tasks.high", "high"}, {"tasks.dlx", "tasks.dlq", ""}}},
		"as Tasker names them": {"naming = \"tasker\"\nqueues = [\"orders\"]\nqueue_type = \"quorum\"\n", []string{"orchestration_step_results", "orchestration_task_finalizations",
			"orchestration_task_requests", "tasker.dlq", "tasker.retry.orchestration_step_results", "tasker.retry.orchestration_task_finalizations",
			"tasker.retry.orchestration_task_requests", "tasker.retry.worker_orders_queue", "worker_orders_queue"},
			[]binding{{"tasker.direct", "orchestration_step_results", "orchestration_step_results"}, {"tasker.direct", "orchestration_task_finalizations", "orchestration_task_finalizations"},
				{"tasker.direct", "orchestration_task_requests", "orchestration_task_requests"}, {"tasker.direct", "worker_orders_queue", "worker_orders_queue"}, {"tasker.dlx", "tasker.dlq", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, metrics := brokertest.New(t), telemetry.Discard()
			cfg := configured(t, "[common.queues.rabbitmq]\n"+tt.text)
			cfg.URL, cfg.Metrics = host.URL, metrics
			require.Empty(t, present(t, cfg))
			require.NoError(t, amqp.Declare(bounded(t), cfg))
			require.Len(t, present(t, cfg), 3+len(tt.queues), "with the exchanges")
			tr := transport(t, cfg)
			for range 2 { // what is there is declared again
				require.NoError(t, tr.Send(bounded(t), []signal.Signal{control, {Topic: "default"}, {Topic: "orchestration_step_results"}}))
				require.NoError(t, tr.Stop(bounded(t)))
			}
			pgtest.Eventually(t, patience, func() (bool, string) { // counted when it is returned, before the confirmation is read
				n := testutil.ToFloat64(metrics.SignalsReturned)
				return n == 6, fmt.Sprint(n, " signals returned, want 6: none enters a durable queue")
			})
			var queues []queue
			var names []string
			host.Call(t, http.MethodGet, "/queues/%s?sort=name", nil, &queues)
			for _, q := range queues {
				names = append(names, q.Name)
				require.True(t, q.Durable, q.Name)
				require.Equal(t, cfg.Topology.QueueType, q.Type, q.Name)
			}
			require.Equal(t, tt.queues, names)
			var bindings, named []binding
			host.Call(t, http.MethodGet, "/bindings/%s", nil, &bindings)
			for _, b := range bindings {
				if b.Source != "" {
					named = append(named, b)
				}
			}
			require.ElementsMatch(t, tt.bindings, named)

			conn, err := amqp091.Dial(host.URL) // a message that was rejected goes round the retry queue
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			ch, err := conn.Channel()
			require.NoError(t, err)
			one := cfg.Topology.Queues[0]
			require.NoError(t, ch.PublishWithContext(t.Context(), "", one.Retry, false, false, amqp091.Publishing{Body: []byte("again"), Expiration: "1"}))
			received, err := ch.Consume(one.Name, "", false, false, false, false, nil)
			require.NoError(t, err)
			back := <-received
			require.Equal(t, "again", string(back.Body))
			require.NoError(t, back.Reject(false))
			dead, err := ch.Consume(cfg.Topology.Namespace+".dlq", "", true, false, false, false, nil)
			require.NoError(t, err)
			require.Equal(t, "again", string((<-dead).Body))
		})
	}
}

// present are the names of the objects that the broker has.
func present(t *testing.T, cfg amqp.Config) (names []string) {
	t.Helper()
	list, err := amqp.Inspect(bounded(t), cfg)
	require.NoError(t, err)
	for _, o := range list {
		if o.Found != nil {
			require.Equal(t, amqp.Found{}, *o.Found, o.Name)
			names = append(names, o.Name)
		}
	}
	return names
}

func configured(t *testing.T, text string) amqp.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tasker.toml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	loaded, err := config.Load(config.Options{Path: path, LookupEnv: func(string) (string, bool) { return "", false }})
	require.NoError(t, err)
	return amqp.Configure(loaded.Common)
}

// TestWhatTheBrokerRefuses: the error says which object, and what differs.
func TestWhatTheBrokerRefuses(t *testing.T) {
	t.Parallel()
	host := brokertest.New(t)
	conn, err := amqp091.Dial(host.URL)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	require.NoError(t, err)
	require.NoError(t, ch.ExchangeDeclare("odd.direct", "topic", true, false, false, false, nil))
	_, err = ch.QueueDeclare("even.high", false, false, false, false, nil)
	require.NoError(t, err)
	for namespace, want := range map[string]string{
		"odd":  `declare "odd.direct": Exception (406) Reason: "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'odd.direct' in vhost`,
		"even": `declare "even.high": Exception (406) Reason: "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'even.high' in vhost`,
	} {
		cfg := amqp.Config{URL: host.URL, Topology: amqp.Topology{Namespace: namespace, Queues: []amqp.Queue{{Key: "high", Name: namespace + ".high", Retry: namespace + ".retry.high"}}}}
		err := transport(t, cfg).Send(bounded(t), []signal.Signal{control})
		require.ErrorIs(t, err, amqp.ErrUnavailable)
		require.ErrorContains(t, err, want)
		require.Equal(t, telemetry.BrokerTopology, amqp.Reason(err))
		s, err := amqp.New(cfg, transport(t, cfg))
		require.NoError(t, err)
		_, err = s.Connect(bounded(t), nil)
		require.ErrorContains(t, err, want)
	}
}

// TestPermissions are those that docs/operate/modes.md names.
func TestPermissions(t *testing.T) {
	t.Parallel()
	const needed = `^(tasker\.|amq\.default$).*`
	host := brokertest.New(t)
	name := host.URL[strings.LastIndexByte(host.URL, '/')+1:]
	host.Call(t, http.MethodPut, "/users/%s", map[string]string{"password": "secret", "tags": ""}, nil)
	t.Cleanup(func() { host.Call(t, http.MethodDelete, "/users/%s", nil, nil) })
	cfg := amqp.Config{URL: strings.Replace(host.URL, "guest:guest", name+":secret", 1)}
	err := transport(t, cfg).Send(bounded(t), []signal.Signal{control})
	require.ErrorContains(t, err, "NOT_ALLOWED")
	require.Equal(t, telemetry.BrokerRefused, amqp.Reason(err))
	host.Call(t, http.MethodPut, "/permissions/%s/%s", map[string]string{"configure": needed, "write": needed, "read": needed}, nil)
	tr := transport(t, cfg)
	c := connect(t, cfg, tr, signal.TopicControl)
	require.NoError(t, tr.SendAfter(bounded(t), time.Millisecond, []signal.Signal{control}))
	require.Equal(t, control, receive(t, c))
	docs, err := os.ReadFile("../../../docs/operate/modes.md")
	require.NoError(t, err)
	require.Contains(t, string(docs), "`"+needed+"`")
}

// TestAFullQueue: what the broker drops of a connection that is slow, since it takes one after
// the other, becomes "anything" on each topic.
func TestAFullQueue(t *testing.T) {
	t.Parallel()
	const limit, n = 5, 2000
	host, metrics := brokertest.New(t), telemetry.Discard()
	cfg := amqp.Config{URL: host.URL, MaxWaiting: limit, Prefetch: 1, Metrics: metrics}
	tr := transport(t, amqp.Config{URL: host.URL, MaxWaiting: limit})
	probe := signal.ProbeTopic("me")
	c := connect(t, cfg, tr, signal.TopicTasks, signal.TopicDue, probe)
	batch := make([]signal.Signal, n)
	for i := range batch {
		batch[i] = signal.Signal{Topic: signal.TopicTasks, Payload: fmt.Sprint(i)}
	}
	require.NoError(t, tr.Send(bounded(t), batch))
	missing := map[signal.Signal]bool{{Topic: signal.TopicTasks}: true, {Topic: signal.TopicDue}: true, batch[n-1]: true}
	for len(missing) > 0 {
		s := receive(t, c)
		require.NotEqual(t, probe, s.Topic)
		delete(missing, s)
	}
	require.Positive(t, testutil.ToFloat64(metrics.SignalQueueOverflows))
}

// TestEncrypted: amqps trusts the given authority, and no other.
func TestEncrypted(t *testing.T) {
	t.Parallel()
	host := brokertest.New(t)
	cfg := amqp.Config{URL: host.TLSURL, CA: host.CA}
	tr := transport(t, cfg)
	c := connect(t, cfg, tr, signal.TopicControl)
	require.NoError(t, tr.Send(bounded(t), []signal.Signal{control}))
	require.Equal(t, control, receive(t, c))

	err := transport(t, amqp.Config{URL: host.TLSURL}).Send(bounded(t), []signal.Signal{control})
	require.ErrorContains(t, err, "certificate signed by unknown authority")
	for name, content := range map[string]string{"none": "", "no PEM": "x"} {
		path := filepath.Join(t.TempDir(), "ca.pem")
		if content != "" {
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		}
		_, err := amqp.NewTransport(amqp.Config{URL: host.TLSURL, CA: path})
		require.Error(t, err, name)
	}
}

// TestUnreachable: connecting is bounded, and errors contain no password.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts no connection
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	for url, want := range map[string]error{"amqp://u:secret@127.0.0.1:1/x": amqp.ErrUnavailable, "amqp://u:secret@" + silent.Addr().String(): context.DeadlineExceeded} {
		tr := transport(t, amqp.Config{URL: url})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		err := tr.Send(ctx, []signal.Signal{control})
		require.ErrorIs(t, err, want)
		require.Equal(t, telemetry.BrokerUnreachable, amqp.Reason(err))
		require.NotContains(t, err.Error(), "secret")
		s, err := amqp.New(amqp.Config{URL: url, ConnectTimeout: 100 * time.Millisecond}, tr)
		require.NoError(t, err)
		_, err = s.Connect(t.Context(), nil)
		require.ErrorIs(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, url := range []string{"amqp://u:secret@%%%", "http://u:secret@h", "amqp://u:secret@h:port"} {
		_, err := amqp.NewTransport(amqp.Config{URL: url})
		require.ErrorContains(t, err, "invalid URL of the broker")
		require.NotContains(t, err.Error(), "secret")
	}
	_, err = amqp.New(amqp.Config{}, nil)
	require.ErrorContains(t, err, "missing transport")
	_, err = amqp.NewTransport(amqp.Config{Prefetch: -1, Topology: amqp.Topology{Namespace: "n", Queues: []amqp.Queue{{Key: "signal.x"}}}})
	require.ErrorContains(t, err, "invalid Prefetch -1")
	require.ErrorContains(t, err, `invalid queue key "signal.x"`)
	if errors.Is(err, amqp.ErrUnavailable) {
		t.Error("a mistake in the configuration is no outage")
	}
}
