package rest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

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
	select {
	case <-s.intake.Close():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d requests have not ended: %w", s.intake.Count(), ctx.Err())
	}
}
