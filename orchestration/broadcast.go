package orchestration

import "sync"

// broadcast wakes the goroutines that follow domain events when there may be new ones.
// It is a hint: a waiter must also look by itself from time to time. The zero value is
// ready; it is safe for concurrent use.
type broadcast struct {
	mu   sync.Mutex
	next chan struct{} // closed by the next notify; nil: no waiters
}

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

func (b *broadcast) notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// NewEvents returns a channel that is closed when the orchestrator next learns that
// durable domain events were published, here or by another replica. Get it before
// looking, so that no event falls in between.
func (o *Orchestrator) NewEvents() <-chan struct{} { return o.eventsPublished.wait() }
