package breaker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/lifecycle"
)

// ErrOpen is wrapped by the error of a call that was refused.
var ErrOpen = errors.New("circuit breaker open")

// OpenError is a refusal. It wraps ErrOpen.
type OpenError struct {
	Component string
	// RetryAfter is when a call may go through; more than 0.
	RetryAfter time.Duration
}

// Error implements error.
func (e *OpenError) Error() string {
	return fmt.Sprintf("%v: %s takes no calls for %v", ErrOpen, e.Component, e.RetryAfter.Round(time.Millisecond))
}

// Unwrap returns ErrOpen.
func (e *OpenError) Unwrap() error { return ErrOpen }

// Settings of one breaker. Thresholds and Timeout are required: their defaults
// are those of the configuration.
type Settings struct {
	// FailureThreshold is how many failures in a row open it. Of
	// calls that fail together one counts: a connection that breaks under a
	// batch of fifty requests is no outage.
	FailureThreshold int
	// SuccessThreshold is how many trials must succeed to close it again, and
	// how many go through for that.
	SuccessThreshold int
	// Timeout is how long it stays open, and how long trials have.
	Timeout time.Duration
	// MinInterval is how long it stays open or closed at least, so that it does
	// not flap; 0: not at all. Half-open it stays no longer than it must, and open
	// a quarter of a second where the dependency was Seen to answer.
	MinInterval time.Duration
	// Judge says what an error that is not nil tells about the dependency; it
	// must be safe for concurrent use and quick. By default every error is a
	// failure. It is not asked about a call whose context was cancelled: that
	// is ignored. A deadline that has passed is judged, because a dependency
	// that hangs shows in nothing else.
	Judge func(err error) Verdict
}

func (s Settings) check() error {
	return errors.Join(config.Positive("FailureThreshold", s.FailureThreshold), config.Positive("SuccessThreshold", s.SuccessThreshold),
		config.Positive("Timeout", s.Timeout))
}

// everyFailure is the Judge of settings that have none.
func everyFailure(err error) Verdict {
	if errors.Is(err, context.Canceled) {
		return Ignored
	}
	return Failure
}

// Breaker guards the calls to one dependency. It is safe for concurrent use; a
// nil Breaker lets everything through.
//
// A call through a closed breaker takes no lock as long as the calls before it
// have not failed.
type Breaker struct {
	name     string
	settings Settings
	clock    lifecycle.Clock
	log      *zap.Logger
	metrics  breakerMetrics

	// phase is the state, and in the bits above a number that is new with every
	// change. It is written under mu. A call that ends in another phase than it
	// began in says nothing about the state.
	phase  atomic.Uint64
	streak atomic.Int64 // failures in a row while closed; written under mu

	calls, failures, rejected atomic.Uint64
	answers                   atomic.Uint64 // of the dependency to anybody

	mu        sync.Mutex
	control   Control
	since     time.Time // of the latest change of the state; zero: there was none
	round     time.Time // when the present trials began
	trials    int       // under way
	successes int       // of trials
	seen      bool      // it answered somebody else while we are open
	opened    uint64
	lastError string
	failedAt  time.Time
	countedAt time.Time // of the latest failure that made the streak longer
}

type breakerMetrics struct {
	state       prometheus.Gauge
	transitions *prometheus.CounterVec // to; the component is fixed
	rejected    prometheus.Counter
}

// Do calls fn unless the breaker refuses; then the error is an *OpenError and
// fn was not called. fn's own error is returned as it is. A panic passes
// through and proves nothing.
func (b *Breaker) Do(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	if b == nil {
		return fn(ctx)
	}
	c, err := b.enter()
	if err != nil {
		return err
	}
	verdict := Ignored
	defer func() { b.leave(c, verdict, err) }()
	err = fn(ctx)
	verdict = b.judge(ctx, err)
	return err
}

func (b *Breaker) judge(ctx context.Context, err error) Verdict {
	switch {
	case err == nil:
		return Success
	case errors.Is(ctx.Err(), context.Canceled):
		return Ignored // the caller left, whatever the error says
	}
	return b.settings.Judge(err)
}

// call is a call that was let through, as it began.
type call struct {
	phase   uint64
	streak  int64
	answers uint64
}

func (b *Breaker) newCall() call { return call{b.phase.Load(), b.streak.Load(), b.answers.Load()} }

// enter asks to be let through.
func (b *Breaker) enter() (call, error) {
	c := b.newCall()
	if stateOf(c.phase) == Closed {
		return c, nil
	}
	return b.enterTrial()
}

// leave tells how a call ended that was let through.
func (b *Breaker) leave(c call, v Verdict, err error) {
	b.calls.Add(1)
	if v == Late {
		if v = Failure; b.answers.Load() != c.answers {
			v = Ignored
		}
	}
	if stateOf(c.phase) == Closed && (v == Ignored || v == Success && b.streak.Load() == 0) {
		return
	}
	b.record(c, v, err)
}

// Wait is how long calls would be refused from now on; 0: one would be let
// through. It takes no trial.
func (b *Breaker) Wait() time.Duration {
	if b == nil || stateOf(b.phase.Load()) == Closed {
		return 0
	}
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waitLocked(now)
}

// Seen tells that the dependency has answered, be it calls that do not go
// through the breaker. An open one need not wait for the end of its time-out
// then: it lets trials through a quarter of a second after it opened. While it
// is closed, calls that are Late meanwhile do not count. It costs next to
// nothing unless the breaker is open.
func (b *Breaker) Seen() {
	if b == nil {
		return
	}
	b.answers.Add(1)
	if stateOf(b.phase.Load()) != Open {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = true
}

// Force puts an operator in charge, or with Automatic the outcomes of calls
// again. What was forced open begins with trials then.
func (b *Breaker) Force(c Control) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.control
	if was == c {
		return
	}
	b.control = c
	b.log.Warn("the control of a circuit breaker was changed", zap.String("component", b.name),
		zap.Stringer("from", was), zap.Stringer("to", c))
	now := b.clock.Now()
	switch {
	case c == ForcedOpen:
		b.change(Open, now)
	case c == ForcedClosed:
		b.change(Closed, now)
	case was == ForcedOpen:
		b.change(HalfOpen, now)
	}
}

// Name returns the component that the breaker stands for.
func (b *Breaker) Name() string { return b.name }

// State returns the present state. An open breaker shows as open until a call
// comes after its time-out.
func (b *Breaker) State() State {
	if b == nil {
		return Closed
	}
	return stateOf(b.phase.Load())
}
