package pgtest

import (
	"testing"
	"time"
)

// Eventually waits until cond is true and fails the test with cond's last state when that
// takes longer than timeout. It polls after 1 ms at first and every 50 ms later on, in the
// test's own goroutine, so cond may use t.Fatal. The last poll is at the deadline.
func Eventually(t testing.TB, timeout time.Duration, cond func() (ok bool, state string)) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for delay := time.Millisecond; ; delay = min(2*delay, 50*time.Millisecond) {
		last := !time.Now().Before(deadline)
		ok, state := cond()
		if ok {
			return
		}
		if last {
			t.Fatalf("not within %v: %s", timeout, state)
			return
		}
		time.Sleep(min(delay, max(time.Until(deadline), 0))) // takes time: between two looks
	}
}
