package breaker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// The components with breakers in the daemons.
const (
	Web           = "web"            // database queries of API requests
	TaskReadiness = "task_readiness" // the search for due steps and expired leases
	Messaging     = "messaging"      // sending signals
	MovedFrom     = "moved_from"     // the same, over the source that the fleet moves away from
	Report        = "report"         // a worker's reports of results
	Predictor     = "predictor"      // the program that is asked how long handlers take
)

// ErrUnknown says that a set has no breaker of a name.
var ErrUnknown = errors.New("no such circuit breaker")

// Config is shared by the breakers of a set.
type Config struct {
	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

// Set is the breakers of one daemon, which are independent. It is safe for concurrent use;
// a nil Set admits everything.
type Set struct {
	byName map[string]*Breaker
	list   []*Breaker // by name
}

// NewSet returns closed breakers with the given names and settings. It returns an error
// where a required value is missing.
func NewSet(cfg Config, settings map[string]Settings) (*Set, error) {
	cfg.Logger = cmp.Or(cfg.Logger, zap.NewNop())
	cfg.Metrics = cfg.Metrics.OrDiscard()
	s := &Set{byName: make(map[string]*Breaker, len(settings))}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		own := settings[name]
		if err := own.check(); err != nil {
			return nil, fmt.Errorf("configure the circuit breaker %s: %w", name, err)
		}
		if own.Judge == nil {
			own.Judge = everyFailure
		}
		b := &Breaker{name: name, settings: own, log: cfg.Logger,
			metrics: breakerMetrics{
				state:       cfg.Metrics.BreakerState.WithLabelValues(name),
				transitions: cfg.Metrics.BreakerTransitions.MustCurryWith(prometheus.Labels{"component": name}),
				rejected:    cfg.Metrics.BreakerRejected.WithLabelValues(name),
			}}
		b.metrics.state.Set(float64(Closed))
		cfg.Metrics.Known("component", name)
		s.byName[name], s.list = b, append(s.list, b)
	}
	return s, nil
}

// Breaker returns the breaker of a name; nil, which admits everything, where the set has
// none.
func (s *Set) Breaker(name string) *Breaker {
	if s == nil {
		return nil
	}
	return s.byName[name]
}

// Force is Breaker(name).Force; the error wraps ErrUnknown.
func (s *Set) Force(name string, c Control) error {
	b := s.Breaker(name)
	if b == nil {
		return fmt.Errorf("force %q to be %v: %w", name, c, ErrUnknown)
	}
	b.Force(c)
	return nil
}

// Health is the state of a breaker.
type Health struct {
	Component string  `json:"component"`
	State     State   `json:"state"`
	Control   Control `json:"control"`
	// Since is the time of the last transition; absent: there was none.
	Since time.Time `json:"since,omitzero"`
	// RetryAfter is how long calls are refused from now on.
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`

	Streak   int64  `json:"failures_in_a_row"`
	Calls    uint64 `json:"calls"` // admitted calls that have ended
	Failures uint64 `json:"failures"`
	Rejected uint64 `json:"rejected"`
	Opened   uint64 `json:"opened"` // times

	// LastError is the error of the latest failure, for operators: it may contain internal
	// names.
	LastError   string    `json:"last_error,omitempty"`
	LastFailure time.Time `json:"last_failure,omitzero"`
}

// Health reports all breakers by name.
func (s *Set) Health() []Health {
	if s == nil {
		return nil
	}
	list := make([]Health, len(s.list))
	for i, b := range s.list {
		list[i] = b.Health()
	}
	return list
}

// Health reports the breaker.
func (b *Breaker) Health() Health {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	return Health{
		Component: b.name, State: stateOf(b.phase.Load()), Control: b.control, Since: b.since, RetryAfter: b.waitLocked(now),
		Streak: b.streak.Load(), Calls: b.calls.Load(), Failures: b.failures.Load(), Rejected: b.rejected.Load(), Opened: b.opened,
		LastError: b.lastError, LastFailure: b.failedAt,
	}
}

// Check judges the set for the detailed health report by its worst breaker. It is for
// operators, and at most for routing requests: restarting a process because a dependency is
// away helps nothing.
func (s *Set) Check() telemetry.Check {
	all := telemetry.Check{Status: deploymode.Healthy}
	var messages []string
	for _, h := range s.Health() {
		c := h.Check()
		all.Status = deploymode.Worst(all.Status, c.Status)
		if c.Status != deploymode.Healthy || h.Control != Automatic {
			messages = append(messages, c.Message)
		}
	}
	all.Message = strings.Join(messages, "; ")
	if messages == nil {
		all.Message = "all circuit breakers are closed"
	}
	return all
}

// Check judges the breaker: half-open is degraded, open is unhealthy.
func (h *Health) Check() telemetry.Check {
	c := telemetry.Check{Status: deploymode.Healthy, Message: fmt.Sprintf("%s is %v", h.Component, h.State)}
	switch h.State {
	case HalfOpen:
		c.Status = deploymode.Degraded
	case Open:
		c.Status = deploymode.Unhealthy
	}
	if h.Control != Automatic {
		c.Message += ", forced by an operator"
	}
	if h.Rejected > 0 {
		c.Message += fmt.Sprintf(", %d calls refused so far", h.Rejected)
	}
	return c
}
