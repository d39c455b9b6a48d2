package rest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/tasker-go/tasker/internal/telemetry"
)

const (
	// budgetWait is how long a request waits for its share of a budget before it is
	// answered with Retry-After: budgetRetry.
	budgetWait  = 5 * time.Second
	budgetRetry = 2 * time.Second
	// smallBody is the size of bodies that need no share: the number of connections
	// bounds those.
	smallBody = 16 << 10
	// usualAnswer is the share of an answer of unknown length. It also bounds the
	// requests that read at once.
	usualAnswer = 1 << 20
)

// budget bounds the bytes of concurrent requests. Requests get their shares in the order
// of arrival. It is safe for concurrent use.
type budget struct {
	name    string
	total   int64
	free    *semaphore.Weighted
	held    prometheus.Gauge
	refused prometheus.Counter
}

func newBudget(name string, total int64, m *telemetry.Metrics) *budget {
	m.WebBudget.WithLabelValues(name).Set(float64(total))
	return &budget{name: name, total: total, free: semaphore.NewWeighted(total),
		held: m.WebBudgetHeld.WithLabelValues(name), refused: m.WebBudgetRefused.WithLabelValues(name)}
}

// share is a request's part of a budget. It belongs to one goroutine.
type share struct {
	budget *budget
	bytes  int64
}

// take waits for n bytes, or for the whole budget where n is more.
func (s *share) take(ctx context.Context, n int64) error {
	n = min(n, s.budget.total)
	waiting, cancel := context.WithTimeout(ctx, budgetWait)
	defer cancel()
	if s.budget.free.Acquire(waiting, n) != nil {
		return s.refuse()
	}
	s.note(n)
	return nil
}

// become sets the share to n bytes. It does not wait for more: a waiting request must not
// hold memory.
func (s *share) become(n int64) error {
	more := min(n, s.budget.total) - s.bytes
	switch {
	case more > 0 && !s.budget.free.TryAcquire(more):
		return s.refuse()
	case more < 0:
		s.budget.free.Release(-more)
	}
	s.note(more)
	return nil
}

func (s *share) note(n int64) {
	s.bytes += n
	s.budget.held.Add(float64(n))
}

// giveBack ends the share.
func (s *share) giveBack() {
	if s.bytes > 0 {
		s.budget.free.Release(s.bytes)
		s.note(-s.bytes)
	}
}

func (s *share) refuse() error {
	s.budget.refused.Inc()
	return &failure{status: http.StatusServiceUnavailable, code: codeBackpressure, retryAfter: budgetRetry,
		message: fmt.Sprintf("The requests under way use all of the %d bytes for %s", s.budget.total, s.budget.name)}
}
