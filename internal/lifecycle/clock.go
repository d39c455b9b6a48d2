package lifecycle

import "time"

// Clock is the source of timers, so that tests can replace it. It does not decide about
// data: the clock of the database does. It is safe for concurrent use.
type Clock interface {
	// Now has a monotonic reading with the real clock.
	Now() time.Time
	// NewTimer returns a timer that sends on C once after d.
	NewTimer(d time.Duration) Timer
	// AfterFunc calls f in a goroutine of its own once after d; the C of the
	// timer it returns is nil.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a timer as in package time: after Stop or Reset has returned, no stale value is
// received from C.
type Timer interface {
	C() <-chan time.Time
	// Stop reports whether it prevented the timer from firing.
	Stop() bool
	// Reset arms the timer anew and reports whether it was armed.
	Reset(d time.Duration) bool
}

// RealClock returns the clock of the machine.
func RealClock() Clock { return realClock{} }

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) NewTimer(d time.Duration) Timer { return realTimer{time.NewTimer(d)} }

func (realClock) AfterFunc(d time.Duration, f func()) Timer { return realTimer{time.AfterFunc(d, f)} }

type realTimer struct{ *time.Timer }

func (t realTimer) C() <-chan time.Time { return t.Timer.C }
