package lifecycle

import "sync"

// Underway counts what is under way, such as requests, and tells when all of it has ended. It is
// safe for concurrent use.
type Underway struct {
	mu     sync.Mutex
	count  int
	closed bool
	ended  chan struct{} // nil: Close was not called, or all have ended
}

// Enter counts one more, which must call Leave.
func (u *Underway) Enter() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count++
}

// Admit is Enter until Close, and false from then on.
func (u *Underway) Admit() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.count++
	}
	return !u.closed
}

// Leave ends one.
func (u *Underway) Leave() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count--
	u.release()
}

// Close returns a channel that is closed once none is under way.
func (u *Underway) Close() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed = true; u.ended == nil {
		u.ended = make(chan struct{})
	}
	ended := u.ended
	u.release()
	return ended
}

// release closes the channel that Close has returned.
func (u *Underway) release() {
	if u.count == 0 && u.ended != nil {
		close(u.ended)
		u.ended = nil
	}
}

// Count is how many are under way.
func (u *Underway) Count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.count
}
