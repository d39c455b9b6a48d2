// Package clocktest has a clock for tests that moves only with Advance.
//
// Tests of a single package may prefer testing/synctest; this clock is for tests that also
// use something real, such as a database.
package clocktest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// Clock is a lifecycle.Clock whose time stands still between calls of Advance.
// It is safe for concurrent use.
type Clock struct {
	mu      sync.Mutex
	now     time.Time
	timers  []*timer
	changed chan struct{} // closed and replaced when a timer is armed or stopped
}

var _ lifecycle.Clock = (*Clock)(nil)

// New returns a clock that shows start.
func New(start time.Time) *Clock { return &Clock{now: start, changed: make(chan struct{})} }

// Now returns the time the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// NewTimer implements lifecycle.Clock.
func (c *Clock) NewTimer(d time.Duration) lifecycle.Timer {
	t := &timer{clock: c, ch: make(chan time.Time, 1)}
	t.Reset(d)
	return t
}

// AfterFunc implements lifecycle.Clock; f runs in the goroutine that calls
// Advance, before Advance returns.
func (c *Clock) AfterFunc(d time.Duration, f func()) lifecycle.Timer {
	t := &timer{clock: c, f: f}
	t.Reset(d)
	return t
}

// Advance moves the clock by d and fires the timers that become due, in the order of time,
// including those armed meanwhile.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for {
		due := c.earliest(end)
		if due == nil {
			break
		}
		if due.at.After(c.now) {
			c.now = due.at
		}
		c.disarm(due)
		now := c.now
		c.mu.Unlock()
		due.fire(now)
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}

// Armed returns the number of armed timers.
func (c *Clock) Armed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

// WaitArmed waits until at least n timers are armed, which shows that the code under test
// sleeps. It returns the error of ctx.
func (c *Clock) WaitArmed(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		armed, changed := len(c.timers), c.changed
		c.mu.Unlock()
		if armed >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Clock) earliest(until time.Time) *timer {
	var first *timer
	for _, t := range c.timers {
		if !t.at.After(until) && (first == nil || t.at.Before(first.at)) {
			first = t
		}
	}
	return first
}

// arm and disarm require the lock.
func (c *Clock) arm(t *timer) {
	c.timers = append(c.timers, t)
	c.announce()
}

func (c *Clock) disarm(t *timer) bool {
	i := slices.Index(c.timers, t)
	if i < 0 {
		return false
	}
	c.timers = slices.Delete(c.timers, i, i+1)
	c.announce()
	return true
}

func (c *Clock) announce() {
	close(c.changed)
	c.changed = make(chan struct{})
}

type timer struct {
	clock *Clock
	at    time.Time
	ch    chan time.Time
	f     func()
}

func (t *timer) C() <-chan time.Time { return t.ch }

func (t *timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.drain()
	return t.clock.disarm(t)
}

func (t *timer) Reset(d time.Duration) bool {
	t.clock.mu.Lock()
	was := t.clock.disarm(t)
	t.drain()
	t.at = t.clock.now.Add(d)
	now := t.clock.now
	if d > 0 {
		t.clock.arm(t)
	}
	t.clock.mu.Unlock()
	if d <= 0 {
		t.fire(now)
	}
	return was
}

func (t *timer) drain() {
	select {
	case <-t.ch:
	default:
	}
}

func (t *timer) fire(now time.Time) {
	if t.f != nil {
		t.f()
		return
	}
	select {
	case t.ch <- now:
	default:
	}
}
