package engine

import (
	"context"
	"sync"
	"time"
)

// lazyContext is the context of one execution. Few handlers of quick steps ever wait for
// its end, and what package context needs for that (a channel, a timer, a place among the
// parent's children) costs more than the rest of a step. So that context is created on
// first use; until then a lazyContext is a deadline and the cause of its end.
//
// Derived contexts and context.Cause go through Value, which leads package context to the
// created context, so that all of its functions work.
type lazyContext struct {
	mu       sync.Mutex
	deadline time.Time // zero: none; changed only by limit
	cause    error     // why it ended; nil while it lasts
	parent   context.Context
	cancel   context.CancelCauseFunc // ends parent
	asked    context.Context         // parent with the deadline; nil until first used
	release  context.CancelFunc      // of the timer of asked
	traced   context.Context         // has the span; nil: there is none
}

var _ context.Context = (*lazyContext)(nil)

// Deadline implements context.Context.
func (l *lazyContext) Deadline() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline, !l.deadline.IsZero()
}

// Done implements context.Context.
func (l *lazyContext) Done() <-chan struct{} { return l.context().Done() }

// Value implements context.Context. The span is the only value; package context looks up
// its own.
func (l *lazyContext) Value(key any) any {
	l.mu.Lock()
	traced := l.traced
	l.mu.Unlock()
	if traced != nil {
		if value := traced.Value(key); value != nil {
			return value
		}
	}
	return l.context().Value(key)
}

// trace adds the span of ctx, which has nothing else.
func (l *lazyContext) trace(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.traced = ctx
}

// Err implements context.Context.
func (l *lazyContext) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.asked != nil:
		return l.asked.Err()
	case l.cause == nil:
		return nil
	case l.cause == ErrTimeout: //nolint:errorlint // set by expire, as it is
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// why returns the cause of the end; nil before the end.
func (l *lazyContext) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked != nil {
		return context.Cause(l.asked)
	}
	return l.cause
}

// context creates the context of package context, once.
func (l *lazyContext) context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked != nil {
		return l.asked
	}
	if l.parent == nil {
		l.parent, l.cancel = context.WithCancelCause(context.Background())
		if l.cause != nil && l.cause != ErrTimeout { //nolint:errorlint // as above; the deadline sees to that one
			l.cancel(l.cause)
		}
	}
	l.asked = l.parent
	if !l.deadline.IsZero() {
		l.asked, l.release = context.WithDeadlineCause(l.parent, l.deadline, ErrTimeout)
	}
	return l.asked
}

// limit sets the deadline. Contexts created before do not have it.
func (l *lazyContext) limit(deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline, l.asked = deadline, nil
}

// end ends the context with a cause; the first one counts.
func (l *lazyContext) end(cause error) {
	l.mu.Lock()
	if l.cause == nil {
		l.cause = cause
	}
	cancel, release := l.cancel, l.release
	l.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
	if release != nil {
		release()
	}
}

// expire ends a context whose deadline has passed; false if it had ended before for
// another reason.
func (l *lazyContext) expire() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return false
	}
	l.cause = ErrTimeout // a created context has its own timer
	return true
}
