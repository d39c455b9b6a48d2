package orchestration

import "sync"

// news tells those who follow domain events that there may be some. It is a hint:
// whoever waits for it has to look by itself from time to time. The zero value
// is ready; it is safe for concurrent use.
type news struct {
	mu   sync.Mutex
	next chan struct{} // closed with the next news; nil: nobody waits
}

func (n *news) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// NewEvents returns a channel that is closed when the orchestrator next learns
// that durable domain events were published, here or by another replica. Ask for
// it before looking, so that nothing falls in between.
func (o *Orchestrator) NewEvents() <-chan struct{} { return o.news.wait() }
