package rest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// intake lets requests in until it is closed, and knows when those that were
// let in have ended. Probes and metrics need not ask. It is safe for concurrent
// use.
type intake struct {
	mu     sync.Mutex
	open   int // under way
	closed bool
	empty  chan struct{} // closed once it is closed and none is under way
}

// enter lets a request in, which must leave; false: no more are taken.
func (i *intake) enter() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return false
	}
	i.open++
	return true
}

func (i *intake) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.open--; i.closed && i.open == 0 {
		close(i.empty)
	}
}

// close takes no more; the channel is closed when all have left.
func (i *intake) close() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.closed {
		i.closed, i.empty = true, make(chan struct{})
		if i.open == 0 {
			close(i.empty)
		}
	}
	return i.empty
}

func (i *intake) underWay() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.open
}

// isProbe reports whether a request asks about the daemon itself. It is answered
// until the very end, and out of none of the budgets.
func isProbe(r *http.Request) bool {
	path := r.URL.Path
	return path == "/health" || strings.HasPrefix(path, "/health/") || path == "/metrics" || strings.HasPrefix(path, "/metrics/")
}

// Finish takes no more requests but those for health and metrics, answers those
// that wait for a task with its present state, and returns when the others have
// ended. When ctx ends first they go on, and Stop cuts them off.
func (s *Server) Finish(ctx context.Context) error {
	s.Drain()
	s.stop()
	ended := s.intake.close()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d requests have not ended: %w", s.intake.underWay(), ctx.Err())
	}
}
