package rig

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/signal/redis"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/signal"
)

const (
	limit = 60 * time.Second
	topic = signal.TopicTasks
)

// line is an event source over a broker, with a faulty network between them: the listener hears
// over one link, and another daemon sends over a link of its own.
type line struct {
	carrier
	source       string
	sends, hears *Link
	sender       signal.Transport
	receiver     signal.Source
	listener     *listener.Subscription
	arrived      chan string // payloads
	scans        atomic.Int64
}

// ends are a transport and a source over one link.
func ends(t *testing.T, source, address string) (signal.Transport, signal.Source) {
	t.Helper()
	var tr interface {
		signal.Transport
		Stop(ctx context.Context) error
	}
	var src signal.Source
	var err error
	if source == "amqp" {
		cfg := amqp.Config{URL: "amqp://guest:guest@" + address + "/", ConnectTimeout: 10 * time.Second}
		tr, err = amqp.NewTransport(cfg)
		require.NoError(t, err)
		src, err = amqp.New(cfg, tr)
	} else {
		cfg := redis.Config{URL: "redis://" + address, Prefix: "lines", Timeout: 10 * time.Second, BufferLimit: 1000}
		tr, err = redis.NewTransport(cfg)
		require.NoError(t, err)
		src, err = redis.New(cfg, tr)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tr.Stop(context.WithoutCancel(t.Context()))) })
	return tr, src
}

func newLine(t *testing.T, source string) *line {
	t.Helper()
	c, err := newCarrier(t.Context(), source)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.close()) })
	l := &line{carrier: c, source: source, arrived: make(chan string, 1000)}
	for _, link := range []**Link{&l.sends, &l.hears} {
		*link, err = newLink(t.Context(), source, c.address())
		require.NoError(t, err)
		t.Cleanup((*link).close)
	}
	l.sender, _ = ends(t, source, l.sends.address)
	_, l.receiver = ends(t, source, l.hears.address)
	l.listener = listener.New(listener.Config{Source: l.receiver}).Subscribe(listener.SubscriptionConfig{SystemID: "test", Topics: []signal.Topic{topic}, ConnectTimeout: 5 * time.Second,
		Config: deploymode.Config{Mode: deploymode.Hybrid, HealthCheckInterval: 300 * time.Millisecond, FallbackActivationThreshold: 3 * time.Second, RecoveryThreshold: 2,
			OnListenerFailure: deploymode.Unready, Reconnect: deploymode.Backoff{Base: 50 * time.Millisecond, Max: 500 * time.Millisecond}}},
		listener.Hooks{OnSignal: func(s signal.Signal) { l.arrived <- s.Payload }, OnConnected: func() { l.scans.Add(1) },
			OnChange: func(deploymode.Snapshot) {}, OnFatal: func(error) {}})
	require.NoError(t, l.listener.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, l.listener.Stop(context.WithoutCancel(t.Context()))) })
	return l
}

// say sends a signal.
func (l *line) say(t *testing.T, payload string) error {
	t.Helper()
	return sendWithin(t, l.sender, 2*time.Second, payload)
}

func sendWithin(t *testing.T, tr signal.Transport, d time.Duration, payload string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return tr.Send(ctx, []signal.Signal{{Topic: topic, Payload: payload}})
}

// hear waits for a signal; others may come before.
func (l *line) hear(t *testing.T, payload string) {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case got := <-l.arrived:
			if got == payload {
				return
			}
		case <-timer.C:
			require.Fail(t, "no signal "+payload, "%+v", l.listener.Health())
		}
	}
}

// back waits until the listener is proven, and until what is sent is heard. It has looked at
// everything since: scans is how often it had before the fault.
func (l *line) back(t *testing.T, scans int64) {
	t.Helper()
	pgtest.Eventually(t, limit, func() (bool, string) {
		s := l.listener.Snapshot()
		return s.Proven && l.scans.Load() > scans, fmt.Sprintf("%d scans, %d before: %+v", l.scans.Load(), scans, s)
	})
	n := 0
	pgtest.Eventually(t, limit, func() (bool, string) { // the other daemon has to connect again, too
		n++
		err := l.say(t, fmt.Sprint("back ", n))
		return err == nil, fmt.Sprint(err)
	})
	l.hear(t, fmt.Sprint("back ", n))
}

// lost waits until the listener knows that it hears nothing.
func (l *line) lost(t *testing.T) {
	t.Helper()
	pgtest.Eventually(t, limit, func() (bool, string) {
		s := l.listener.Snapshot()
		return !s.Proven && s.Pace == deploymode.PaceTight, fmt.Sprintf("%+v", s)
	})
}

// refused waits until no signal can be sent.
func (l *line) refused(t *testing.T, payload string) {
	t.Helper()
	pgtest.Eventually(t, limit, func() (bool, string) { return l.say(t, payload) != nil, "signals are taken" })
}

// tell is a signal that must be sent and heard.
func (l *line) tell(t *testing.T, payload string) {
	t.Helper()
	require.NoError(t, l.say(t, payload))
	l.hear(t, payload)
}

// faults are what a source must make good, or make known so that everything is looked at.
var faults = []struct {
	name string
	run  func(t *testing.T, l *line)
}{
	{"lossy", func(t *testing.T, l *line) { // what is sent is confirmed, and does not arrive
		scans := l.scans.Load()
		require.NoError(t, l.hears.Deafen())
		require.NoError(t, l.say(t, "lost"))
		l.lost(t)
		require.NoError(t, l.hears.Heal(t.Context()))
		l.back(t, scans)
	}},
	{"doubled", func(t *testing.T, l *line) { // the confirmation is lost, so the signal is sent again
		require.NoError(t, l.sends.Deafen())
		require.Error(t, l.say(t, "twice"))
		l.hear(t, "twice")
		require.NoError(t, l.sends.Heal(t.Context()))
		l.tell(t, "twice")
	}},
	{"reordered", func(t *testing.T, l *line) { // of two senders one has a slow line
		other, _ := ends(t, l.source, l.address())
		require.NoError(t, sendWithin(t, other, limit, "connected"))
		l.hear(t, "connected")
		require.NoError(t, l.sends.Slow(3*time.Second))
		sent := make(chan error, 1)
		go func() { sent <- l.sender.Send(t.Context(), []signal.Signal{{Topic: topic, Payload: "first"}}) }()
		require.NoError(t, sendWithin(t, other, limit, "second"))
		l.hear(t, "second")
		l.hear(t, "first")
		require.NoError(t, l.sends.Heal(t.Context()))
		require.NoError(t, <-sent)
	}},
	{"late", func(t *testing.T, l *line) { // and the listener stays with its connection
		scans := l.scans.Load()
		require.NoError(t, l.hears.Slow(200*time.Millisecond))
		began := time.Now()
		l.tell(t, "late")
		require.Greater(t, time.Since(began), 100*time.Millisecond)
		pgtest.Eventually(t, limit, func() (bool, string) {
			s := l.listener.Snapshot()
			return s.Proven && s.RoundTrip > 200*time.Millisecond, fmt.Sprintf("%+v", s)
		})
		require.NoError(t, l.hears.Heal(t.Context()))
		l.tell(t, "in time")
		require.Equal(t, scans, l.scans.Load())
	}},
	{"half-open for the sender", func(t *testing.T, l *line) { // calls end, and nothing is stuck
		require.NoError(t, l.sends.HalfOpen())
		require.Error(t, l.say(t, "never"))
		require.Error(t, l.say(t, "never"))
		require.NoError(t, l.sends.Heal(t.Context()))
		l.back(t, -1)
	}},
	{"slow", func(t *testing.T, l *line) { // a broker that does nothing for a while
		require.NoError(t, l.signal(syscall.SIGSTOP)) // each thread stops when it next enters the kernel
		l.refused(t, "frozen")
		require.NoError(t, l.signal(syscall.SIGCONT))
		l.back(t, -1)
	}},
	{"down and back", func(t *testing.T, l *line) {
		scans := l.scans.Load()
		require.NoError(t, l.kill())
		l.lost(t)
		require.Error(t, l.say(t, "down"))
		require.NoError(t, l.start(t.Context()))
		l.back(t, scans)
	}},
	{"wiped while connections stay", func(t *testing.T, l *line) {
		require.NoError(t, l.forget(t.Context()))
		scans := l.scans.Load()
		if l.source == "redis" { // nothing of it is kept there
			scans = -1
		}
		l.back(t, scans)
	}},
	{"wiped", func(t *testing.T, l *line) {
		scans := l.scans.Load()
		require.NoError(t, l.clear(t.Context()))
		l.back(t, scans)
	}},
	{"out of memory", func(t *testing.T, l *line) { l.alarmed(t, l.starve) }},
	{"out of disk", func(t *testing.T, l *line) { l.alarmed(t, l.fill) }},
}

// alarmed: RabbitMQ takes no signals, and its senders know at once; of Redis signals need
// neither.
func (l *line) alarmed(t *testing.T, set func(ctx context.Context, on bool) error) {
	t.Helper()
	require.NoError(t, set(t.Context(), true))
	if l.source == "redis" {
		l.tell(t, "through")
	} else {
		l.refused(t, "blocked")
		require.ErrorContains(t, l.say(t, "blocked"), "it blocks publishers")
		l.lost(t)
	}
	require.NoError(t, set(t.Context(), false))
	l.back(t, -1)
}

// TestSourcesOverAFaultyLine: after each failure of the broker or the network the listener
// knows that signals were lost, and receives signals again.
func TestSourcesOverAFaultyLine(t *testing.T) {
	for _, source := range []string{"amqp", "redis"} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, source)
			l.back(t, 0)
			for _, fault := range faults {
				t.Run(fault.name, func(t *testing.T) {
					began := time.Now()
					fault.run(t, l)
					t.Logf("over after %v", time.Since(began).Round(time.Millisecond))
				})
			}
		})
	}
}
