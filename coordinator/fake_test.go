package coordinator_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/listener/listenertest"
	"github.com/tasker-go/tasker/poller"
	"github.com/tasker-go/tasker/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	s         = time.Second
	interval  = s
	relaxed   = 20 * s
	threshold = 5 * s
)

// board stands for the rows: work that a look takes, some of it due later.
type board struct {
	mu      sync.Mutex
	rows    map[signal.Topic]int
	due     []time.Time // of rows that become claimable later, on topic "a"
	limit   int         // per look; 0 is none
	waited  time.Duration
	err     error
	gate    chan struct{} // looks wait for it; nil blocks none
	wakes   []coordinator.Wake
	at      []time.Time
	looking int
	twice   bool
}

func (b *board) put(topic signal.Topic, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rows == nil {
		b.rows = map[signal.Topic]int{}
	}
	b.rows[topic] += n
}

func (b *board) putDue(in time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due = append(b.due, time.Now().Add(in))
}

func (b *board) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *board) hold(gate chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gate = gate
}

func (b *board) left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.due)
	for _, rows := range b.rows {
		n += rows
	}
	return n
}

func (b *board) seen() []coordinator.Wake {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	wakes := b.wakes
	b.wakes, b.at = nil, nil
	return wakes
}

func (b *board) reasons() (out []coordinator.Reason) {
	for _, w := range b.seen() {
		out = append(out, w.Reason)
	}
	return out
}

func (b *board) Look(ctx context.Context, w coordinator.Wake) (coordinator.Outcome, error) {
	b.mu.Lock()
	b.wakes = append(b.wakes, w)
	b.at = append(b.at, time.Now())
	b.looking++
	b.twice = b.twice || b.looking > 1
	gate := b.gate
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.looking--
	}()
	if _, ok := ctx.Deadline(); !ok {
		return coordinator.Outcome{}, errors.New("no deadline")
	}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return coordinator.Outcome{}, ctx.Err()
		}
	}
	return b.take(w)
}

func (b *board) take(w coordinator.Wake) (coordinator.Outcome, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return coordinator.Outcome{}, b.err
	}
	out := coordinator.Outcome{NextDue: coordinator.NoDue, Waited: b.waited}
	later := b.due[:0]
	for _, at := range b.due {
		wait := time.Until(at)
		switch {
		case wait <= 0:
			out.Found++
		case out.NextDue < 0 || wait < out.NextDue:
			out.NextDue = wait
			fallthrough
		default:
			later = append(later, at)
		}
	}
	b.due = later
	for topic, n := range b.rows {
		if !w.Has(topic) {
			continue
		}
		if b.limit > 0 && n > b.limit {
			n, out.More = b.limit, true
		}
		b.rows[topic] -= n
		out.Found += n
	}
	return out, nil
}

// world is a system with its source and its rows.
type world struct {
	*coordinator.EventSystem
	source  *listenertest.Source
	board   *board
	metrics *telemetry.Metrics
}

func listening(source signal.Source) *listener.Listener {
	if source == nil {
		return nil
	}
	return listener.New(listener.Config{Source: source})
}

func config(mode deploymode.Mode, source signal.Source) coordinator.Config {
	return coordinator.Config{
		SystemID: "sys",
		Mode:     mode,
		Listener: listening(source),
		Topics:   []signal.Topic{"a", "b"},

		Subscription: listener.SubscriptionConfig{ConnectTimeout: 10 * s, Config: deploymode.Config{
			HealthCheckInterval:         10 * s,
			FallbackActivationThreshold: threshold,
			RecoveryThreshold:           2,
			MaxReconnectAttempts:        3,
			OnListenerFailure:           deploymode.Unready,
			Reconnect:                   deploymode.Backoff{Base: s, Max: 8 * s, Multiplier: 2, Jitter: -1},
		}},
		Poller:               poller.Config{Interval: interval, RelaxedInterval: relaxed, Backoff: deploymode.Backoff{Base: s, Max: 30 * s, Multiplier: 2, Jitter: 0.1}},
		LookTimeout:          time.Minute,
		Retry:                deploymode.Backoff{Base: s, Max: 4 * s, Multiplier: 2},
		MaxConsecutiveErrors: 3,
		Metrics:              telemetry.Discard(),
	}
}

func launch(t *testing.T, mode deploymode.Mode, change ...func(*coordinator.Config)) *world {
	t.Helper()
	w := &world{source: &listenertest.Source{}, board: &board{}}
	cfg := config(mode, w.source)
	for _, f := range change {
		f(&cfg)
	}
	w.metrics = cfg.Metrics
	w.EventSystem = coordinator.New(cfg, w.board)
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() { _ = w.Stop(context.Background()) })
	return w
}

// settled waits until the listener is proven and forgets the looks until then.
func (w *world) settled() *world {
	after(threshold)
	w.board.seen()
	return w
}

// publish adds rows and sends their signals.
func (w *world) publish(topic signal.Topic, n int) {
	w.board.put(topic, n)
	w.source.Publish(signal.Signal{Topic: topic})
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// lookFunc makes a function what a system calls.
type lookFunc func(ctx context.Context, w coordinator.Wake) (coordinator.Outcome, error)

func (f lookFunc) Look(ctx context.Context, w coordinator.Wake) (coordinator.Outcome, error) {
	return f(ctx, w)
}
