package rest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// intake admits requests until it is closed, and knows when the admitted ones have ended.
// Probes and metrics bypass it. It is safe for concurrent use.
type intake struct {
	mu     sync.Mutex
	open   int // under way
	closed bool
	empty  chan struct{} // closed once it is closed and none is under way
}

// enter admits a request, which must call leave; false: closed.
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

// close admits no more; the channel is closed when all have left.
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

// isProbe reports whether a request is about the daemon itself. It is answered until the
// end, without a share of a budget.
func isProbe(r *http.Request) bool {
	path := r.URL.Path
	return path == "/health" || strings.HasPrefix(path, "/health/") || path == metricsPath || path == actuatorPath || strings.HasPrefix(path, metricsPath+"/")
}

// CloseIdle closes connections without a request: the next one on them would be refused after
// Finish. A request that comes at this moment is lost, so it is for those that had none during a
// delay after Drain; the others have ended with their answers.
func (s *Server) CloseIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.http != nil {
		s.http.SetKeepAlivesEnabled(false)
	}
}

// Finish admits only requests for health and metrics, answers those that wait for a task
// with its present state, and returns when the others have ended. If ctx ends first they
// continue, and Stop closes them.
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
