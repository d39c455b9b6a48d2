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

	"github.com/tasker-go/tasker/internal/settings"
)

// ErrOpen is wrapped by the error of a refused call.
var ErrOpen = errors.New("circuit breaker open")

// OpenError is a refusal. It wraps ErrOpen.
type OpenError struct {
	Component string
	// RetryAfter is when a call may go through; more than 0.
	RetryAfter time.Duration
}

// Error implements error.
func (e *OpenError) Error() string {
	return fmt.Sprintf("%v: %s refuses calls for %v", ErrOpen, e.Component, e.RetryAfter.Round(time.Millisecond))
}

// Unwrap returns ErrOpen.
func (e *OpenError) Unwrap() error { return ErrOpen }

// Settings of one breaker. Thresholds and Timeout are required: their defaults are in
// package config.
type Settings struct {
	// FailureThreshold is how many consecutive failures open it. Calls that fail together
	// count once: a connection that breaks under a batch of fifty requests is no outage.
	FailureThreshold int
	// SuccessThreshold is how many trials must succeed to close it again, and how many
	// are admitted for that.
	SuccessThreshold int
	// Timeout is how long it stays open, and the time limit of trials.
	Timeout time.Duration
	// MinInterval is the shortest time it stays open or closed, so that it does not flap;
	// 0: none. Half-open has no shortest time, and open lasts only a quarter of a second
	// where the dependency was Seen to answer.
	MinInterval time.Duration
	// Judge classifies a non-nil error; it must be safe for concurrent use and quick. By
	// default every error is a failure. It is not called for a call whose context was
	// cancelled: that is ignored. An exceeded deadline is judged, because a hanging
	// dependency shows in nothing else.
	Judge func(err error) Verdict
}

func (s Settings) check() error {
	return errors.Join(settings.Positive("FailureThreshold", s.FailureThreshold), settings.Positive("SuccessThreshold", s.SuccessThreshold),
		settings.Positive("Timeout", s.Timeout))
}

// everyFailure is the default Judge.
func everyFailure(err error) Verdict {
	if errors.Is(err, context.Canceled) {
		return Ignored
	}
	return Failure
}

// Breaker guards the calls to one dependency. It is safe for concurrent use; a nil Breaker
// admits everything.
//
// A call through a closed breaker takes no lock unless earlier calls have failed.
type Breaker struct {
	name     string
	settings Settings
	log      *zap.Logger
	metrics  breakerMetrics

	// phase is the state, and in the higher bits a number that changes with every
	// transition. It is written under mu. A call that ends in another phase than it began
	// in does not affect the state.
	phase  atomic.Uint64
	streak atomic.Int64 // consecutive failures while closed; written under mu

	calls, failures, rejected atomic.Uint64
	answers                   atomic.Uint64 // of the dependency to any call

	mu        sync.Mutex
	control   Control
	since     time.Time // of the latest change of the state; zero: there was none
	round     time.Time // when the present trials began
	trials    int       // under way
	successes int       // of trials
	seen      bool      // it answered another call while open, or a caller asks for a trial
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

// Do calls fn unless the breaker refuses; then the error is an *OpenError and fn was not
// called. fn's own error is returned unchanged. A panic passes through and does not affect
// the state.
func (b *Breaker) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	if b == nil {
		return fn(ctx)
	}
	u := underWay{breaker: b}
	return u.do(ctx, fn)
}

// DoSuspendable is Do for a call that Outside can suspend.
func (b *Breaker) DoSuspendable(ctx context.Context, fn func(ctx context.Context) error) error {
	if b == nil {
		return fn(ctx)
	}
	u := &underWay{breaker: b}
	return u.do(context.WithValue(ctx, underWayKey{}, u), fn)
}

// underWay is an admitted call. It belongs to one goroutine.
type underWay struct {
	breaker *Breaker
	call    call
	inside  bool
}

type underWayKey struct{}

func (u *underWay) do(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	if err := u.enter(); err != nil {
		return err
	}
	verdict := Ignored
	defer func() { u.leave(verdict, err) }()
	err = fn(ctx)
	verdict = u.breaker.judge(ctx, err)
	return err
}

func (u *underWay) enter() (err error) {
	u.call, err = u.breaker.enter()
	u.inside = err == nil
	return err
}

func (u *underWay) leave(v Verdict, err error) {
	if u.inside {
		u.inside = false
		u.breaker.leave(u.call, v, err)
	}
}

// Outside suspends the call of ctx, if ctx belongs to a DoSuspendable, while wait runs: a
// call that waits for something else than its dependency holds no trial. Then the call
// continues, unless the breaker refuses it; the error is that of wait, or an *OpenError.
func Outside(ctx context.Context, wait func() error) error {
	u, _ := ctx.Value(underWayKey{}).(*underWay)
	if u == nil {
		return wait()
	}
	u.leave(Ignored, nil)
	if err := wait(); err != nil {
		return err
	}
	return u.enter()
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

// call is an admitted call, as it began.
type call struct {
	phase   uint64
	streak  int64
	answers uint64
}

func (b *Breaker) newCall() call { return call{b.phase.Load(), b.streak.Load(), b.answers.Load()} }

// enter admits or refuses a call.
func (b *Breaker) enter() (call, error) {
	c := b.newCall()
	if stateOf(c.phase) == Closed {
		return c, nil
	}
	return b.enterTrial()
}

// leave records the end of an admitted call.
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

// Wait returns how long calls will be refused; 0: a call would be admitted. It takes no
// trial.
func (b *Breaker) Wait() time.Duration {
	if b == nil || stateOf(b.phase.Load()) == Closed {
		return 0
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waitLocked(now)
}

// Seen records that the dependency has answered, even to calls outside the breaker. An
// open breaker then need not wait for the end of its time-out: it admits trials a quarter
// of a second after it opened. While it is closed, calls that are Late meanwhile do not
// count. It costs next to nothing unless the breaker is open.
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

// Retry lets an open breaker admit trials from a quarter of a second after it opened, instead
// of at the end of its time-out: the caller has a reason to look that does not depend on what
// earlier calls met. One that an operator has forced open stays open.
func (b *Breaker) Retry() {
	if b == nil || stateOf(b.phase.Load()) != Open {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = true
}

// Force lets an operator decide about the state or, with Automatic, the outcomes of calls.
// A breaker that was forced open continues with trials.
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
	now := time.Now()
	switch {
	case c == ForcedOpen:
		b.change(Open, now)
	case c == ForcedClosed:
		b.change(Closed, now)
	case was == ForcedOpen:
		b.change(HalfOpen, now)
	}
}

// State returns the present state. An open breaker stays open until the first call after
// its time-out.
func (b *Breaker) State() State {
	if b == nil {
		return Closed
	}
	return stateOf(b.phase.Load())
}
