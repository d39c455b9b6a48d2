package worker

import (
	"context"
	"sync"
	"time"
)

// life is the context of one execution. Few handlers of many quick ones ever
// ask for its end, and what package context needs for that (a channel, a timer,
// a place among the children of its parent) costs more than the rest of a
// step. So it is made when somebody first asks; until then a life is a deadline
// and the cause of its end.
//
// Whoever derives from it or asks for its cause goes through Value, which
// leads package context to the context made, so that all of its functions work
// as with one of its own.
type life struct {
	mu       sync.Mutex
	deadline time.Time // zero: none; changed by limit alone
	cause    error     // why it ended; nil while it lasts
	parent   context.Context
	cancel   context.CancelCauseFunc // ends parent
	asked    context.Context         // parent with the deadline; nil until somebody asks
	release  context.CancelFunc      // of the timer of asked
}

var _ context.Context = (*life)(nil)

// Deadline implements context.Context.
func (l *life) Deadline() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline, !l.deadline.IsZero()
}

// Done implements context.Context.
func (l *life) Done() <-chan struct{} { return l.context().Done() }

// Value implements context.Context. There are no values; package context asks
// for its own.
func (l *life) Value(key any) any { return l.context().Value(key) }

// Err implements context.Context.
func (l *life) Err() error {
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

// why is the cause of the end; nil while it lasts.
func (l *life) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked != nil {
		return context.Cause(l.asked)
	}
	return l.cause
}

// context makes what package context needs, once.
func (l *life) context() context.Context {
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

// limit sets the deadline. What was asked for before does not have it.
func (l *life) limit(deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline, l.asked = deadline, nil
}

// end ends the life for a reason; the first one counts.
func (l *life) end(cause error) {
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

// expire ends a life whose deadline has passed, and reports false where it had
// ended before for another reason.
func (l *life) expire() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return false
	}
	l.cause = ErrTimeout // the context made, if any, has a timer of its own
	return true
}
