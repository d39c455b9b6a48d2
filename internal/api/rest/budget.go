package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tasker-go/tasker/internal/places"
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
	places  *places.Places
	held    prometheus.Gauge
	refused prometheus.Counter
}

func newBudget(name string, total int64, cfg Config) *budget {
	m := cfg.Telemetry
	m.WebBudget.WithLabelValues(name).Set(float64(total))
	return &budget{name: name, places: places.New("bytes of "+name, total, cfg.Access.Share),
		held: m.WebBudgetHeld.WithLabelValues(name), refused: m.WebBudgetRefused.WithLabelValues(name)}
}

// share is a request's part of a budget. It belongs to one goroutine.
type share struct {
	budget *budget
	of     *exchange
	held   *places.Held // nil: nothing is held
}

// take waits for n bytes, or for the whole budget where n is more.
func (s *share) take(ctx context.Context, n int64) error {
	waiting, cancel := context.WithTimeout(ctx, budgetWait)
	defer cancel()
	held, err := s.budget.places.Take(waiting, s.of.holder(), n)
	if err != nil {
		return s.refuse(err)
	}
	s.held = held
	s.budget.held.Add(float64(held.Number()))
	return nil
}

// become sets the share to n bytes. It does not wait for more: a waiting request must not
// hold memory.
func (s *share) become(n int64) error {
	var err error
	before := s.bytes()
	if s.held == nil {
		s.held, err = s.budget.places.TryTake(s.of.holder(), n)
	} else {
		err = s.held.Become(n)
	}
	if err != nil {
		return s.refuse(err)
	}
	s.budget.held.Add(float64(s.bytes() - before))
	return nil
}

func (s *share) bytes() int64 {
	if s.held == nil {
		return 0
	}
	return s.held.Number()
}

// most is how many bytes the principal of the request may hold.
func (s *share) most() int64 { return s.budget.places.Each(s.of.holder()) }

// giveBack ends the share.
func (s *share) giveBack() {
	if s.held != nil {
		s.budget.held.Sub(float64(s.held.Number()))
		s.held.Leave()
		s.held = nil
	}
}

func (s *share) refuse(err error) *failure {
	s.budget.refused.Inc()
	return refusedPlace(err, budgetRetry, fmt.Sprintf("The requests under way use all of the %d bytes for %s", s.budget.places.Total(), s.budget.name))
}

// refusedPlace is the answer to a request without a place: 429 if its principal uses its share,
// else 503.
func refusedPlace(err error, retry time.Duration, full string) *failure {
	if own := (*places.ShareError)(nil); errors.As(err, &own) {
		return &failure{status: http.StatusTooManyRequests, code: codeShare, retryAfter: retry, message: own.Error(), cause: err}
	}
	return &failure{status: http.StatusServiceUnavailable, code: codeBackpressure, retryAfter: retry, message: full}
}
