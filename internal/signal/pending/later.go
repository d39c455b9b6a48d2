package pending

import (
	"context"
	"math/bits"
	"sync"
	"time"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/signal"
)

// later has the signals that leave with a delay. A signal for nearly the same time as one that
// left already is not sent again.
type later struct {
	ready chan struct{} // holds a token when something waits

	mu      sync.Mutex
	waiting []delayed
	known   map[delayed]struct{} // whose time has not come; those that wait among them
}

// delayed is a signal and when it is due, in milliseconds since 1970.
type delayed struct {
	at     int64
	signal signal.Signal
}

func newLater() *later {
	return &later{ready: make(chan struct{}, 1), known: make(map[delayed]struct{})}
}

// finest is the smallest step between the times of delayed signals.
const finest = 100 * time.Millisecond

// slot is the end of the step of time in which a delay ends. Steps are an eighth of the delay at
// most, so any rate of signals makes a few hundred slots.
func slot(now time.Time, delay time.Duration) int64 {
	step := max(finest, time.Duration(1)<<max(bits.Len64(uint64(max(delay, 0)))-4, 0)).Milliseconds()
	return (now.Add(delay).UnixMilli()/step + 1) * step
}

// put reports whether the signal is one that has to be sent, and whether there is room for it.
func (l *later) put(now time.Time, delay time.Duration, s signal.Signal, limit int) (fresh, room bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := delayed{slot(now, delay), s}
	if _, there := l.known[d]; there {
		return false, true
	}
	for old := range l.known {
		if old.at <= now.UnixMilli() {
			delete(l.known, old)
		}
	}
	if max(len(l.known), len(l.waiting)) >= limit {
		return false, false
	}
	l.known[d] = struct{}{}
	l.waiting = append(l.waiting, d)
	lifecycle.Nudge(l.ready)
	return true, true
}

func (l *later) take() (d delayed, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return d, false
	}
	d, l.waiting = l.waiting[0], l.waiting[1:]
	return d, true
}

func (l *later) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// PublishAfter publishes a signal with a delay that the transport keeps: it leaves now, and comes
// when it is due or an eighth of the delay later. One that is for nearly the same time as another
// one coalesces with it. It does nothing unless the transport keeps delays, and never blocks.
func (s *Sender) PublishAfter(delay time.Duration, sig signal.Signal) {
	if s.cfg.SendAfter == nil {
		return
	}
	s.published.Add(1)
	fresh, room := false, false
	select {
	case <-s.stopping:
	default:
		if sig.Validate() == nil {
			fresh, room = s.later.put(time.Now(), delay, sig, s.waiting.limit)
		}
	}
	switch {
	case !room:
		s.dropped.Add(1)
	case !fresh:
		s.joined.Add(1)
	}
}

// flushLater sends one delayed signal, if there is one. It is not tried again: a timer of each
// orchestrator stands beside it.
func (s *Sender) flushLater(ctx context.Context) (worked bool) {
	d, ok := s.later.take()
	if !ok {
		return false
	}
	sent := false
	defer func() { // also after a panic
		if !sent {
			s.dropped.Add(1)
		}
	}()
	left := max(time.Until(time.UnixMilli(d.at)), time.Millisecond)
	sent = s.send(ctx, []signal.Signal{d.signal}, func(ctx context.Context, batch []signal.Signal) error { return s.cfg.SendAfter(ctx, left, batch) })
	return true
}
