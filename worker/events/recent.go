package events

import (
	"sync"

	"github.com/google/uuid"
)

// Recent remembers the latest ids, up to a bound. It is safe for concurrent use.
type Recent struct {
	limit int

	mu    sync.Mutex
	known map[uuid.UUID]struct{}
	ring  []uuid.UUID // in order of arrival
	next  int         // index of the oldest, once the ring is full
}

// NewRecent remembers limit ids, none if limit is not positive. Memory is allocated as ids
// arrive.
func NewRecent(limit int) *Recent { return &Recent{limit: limit, known: map[uuid.UUID]struct{}{}} }

// Add remembers an id, replacing the oldest beyond the limit, and reports whether it was
// new.
func (r *Recent) Add(id uuid.UUID) (isNew bool) {
	if r.limit <= 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.known[id]; known {
		return false
	}
	r.known[id] = struct{}{}
	if len(r.ring) < r.limit {
		r.ring = append(r.ring, id)
		return true
	}
	delete(r.known, r.ring[r.next])
	r.ring[r.next] = id
	r.next = (r.next + 1) % r.limit
	return true
}
