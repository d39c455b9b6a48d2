package rest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/listener"
)

const (
	// pingTimeout bounds the database's part of a health check.
	pingTimeout = 2 * time.Second
	// pingAge is how long an answer of the database is cached: health routes are public
	// and must not cause load.
	pingAge = time.Second
)

// pingCache pings the database at most once per pingAge, one at a time.
type pingCache struct {
	mu   sync.Mutex
	at   time.Time
	last telemetry.Check
}

// check returns a healthy check, or an unhealthy one with a message that may be shown.
// Without a database it is unknown.
func (p *pingCache) check(ctx context.Context, d Database) telemetry.Check {
	if d == nil {
		return telemetry.Check{Status: deploymode.Unknown}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && time.Since(p.at) < pingAge {
		return p.last
	}
	// A caller that leaves must not make the check fail for the others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
	defer cancel()
	p.last = telemetry.RunCheck(ctx, d.Ping)
	p.at = time.Now()
	if p.last.Status != deploymode.Healthy {
		p.last.Message = "the database does not answer"
	}
	return p.last
}

// readinessChecks are the checks behind /health/ready.
func (h *healthRoutes) readinessChecks(database telemetry.Check) map[string]telemetry.Check {
	if h.worker != nil {
		return map[string]telemetry.Check{
			"database":          database,
			"command_processor": saturationCheck(h.status.Saturation()),
			"queue_processing":  systemsCheck(h.status),
		}
	}
	return map[string]telemetry.Check{
		"web_database":           database,
		"orchestration_database": database, // one pool serves both
		breakerCheck:             h.webBreaker(),
		"orchestration_system":   systemsCheck(h.status),
		"command_processor":      saturationCheck(h.status.Saturation()),
	}
}

// detailedChecks are those and the informational ones.
func (h *healthRoutes) detailedChecks(database telemetry.Check) map[string]telemetry.Check {
	checks := h.readinessChecks(database)
	unknown := telemetry.Check{Status: deploymode.Unknown, Message: "not measured"}
	if h.worker != nil {
		checks["event_system"] = systemsCheck(h.status)
		checks["step_processing"] = unknown
		checks["circuit_breakers"] = noBreaker() // unless the daemon has some
		return checks
	}
	checks["pool_utilization"] = poolCheck(h.database.PoolStat())
	checks["queue_depth"] = unknown
	checks["channel_saturation"] = saturationCheck(h.status.Saturation())
	return checks
}

// breakerCheck is the name of the check behind circuit_breaker_state.
const breakerCheck = "circuit_breaker"

// webBreaker is the check of the breaker before the API's database work.
func (h *healthRoutes) webBreaker() telemetry.Check {
	if h.breakers != nil {
		for _, b := range h.breakers.Health() {
			if b.Component == breaker.Web {
				return b.Check()
			}
		}
	}
	return noBreaker()
}

// noBreaker is the check of a breaker that does not exist.
func noBreaker() telemetry.Check {
	return telemetry.Check{Status: deploymode.Unknown, Message: "this daemon has no such circuit breaker"}
}

// breakerState translates a check of a circuit breaker for clients.
func breakerState(c telemetry.Check) string {
	switch c.Status {
	case deploymode.Healthy:
		return "Closed"
	case deploymode.Degraded:
		return "HalfOpen"
	case deploymode.Unhealthy:
		return "Open"
	}
	return "unknown"
}

// systemsCheck is the worst check of the event systems, with their messages.
func systemsCheck(s Status) telemetry.Check {
	var levels []deploymode.Level
	var reasons []string
	for name, system := range s.Health() {
		levels = append(levels, system.Status)
		if system.Status != deploymode.Healthy && system.Reason != "" {
			reasons = append(reasons, name+": "+withoutErrors(system.Reason, system))
		}
	}
	slices.Sort(reasons)
	return telemetry.Check{Status: deploymode.Worst(levels...), Message: strings.Join(reasons, "; ")}
}

func saturationCheck(saturation float64) telemetry.Check {
	return level(100*saturation, "the command channel is %.0f %% full")
}

func poolCheck(s store.PoolStat) telemetry.Check {
	return level(utilization(s), "%.0f %% of the database connections are in use")
}

// level judges a percentage: above 80 is degraded, above 95 unhealthy.
func level(percent float64, words string) telemetry.Check {
	c := telemetry.Check{Status: deploymode.Healthy, Message: fmt.Sprintf(words, percent)}
	switch {
	case percent > 95:
		c.Status = deploymode.Unhealthy
	case percent > 80:
		c.Status = deploymode.Degraded
	}
	return c
}

func utilization(s store.PoolStat) float64 {
	if s.Max <= 0 {
		return 0
	}
	return 100 * float64(s.Acquired) / float64(s.Max)
}

func poolOf(s store.PoolStat) *client.PoolUtilization {
	d := client.PoolDetail{
		ActiveConnections: int(s.Acquired), IdleConnections: int(s.Idle), MaxConnections: int(s.Max),
		UtilizationPercent: utilization(s), TotalAcquires: s.Acquires, SlowAcquires: s.EmptyAcquires,
	}
	if s.Acquires > 0 {
		d.AverageAcquireTimeMS = float64(s.AcquireDuration) / float64(time.Millisecond) / float64(s.Acquires)
	}
	return &client.PoolUtilization{TaskerPool: d, PGMQPool: d}
}

// overall is healthy or degraded; an unknown check does not degrade.
func overall(checks map[string]telemetry.Check) string {
	for _, c := range checks {
		if c.Status == deploymode.Degraded || c.Status == deploymode.Unhealthy {
			return string(deploymode.Degraded)
		}
	}
	return string(deploymode.Healthy)
}

func checksOf(checks map[string]telemetry.Check, worker bool) map[string]client.HealthCheck {
	w := make(map[string]client.HealthCheck, len(checks))
	for name, c := range checks {
		check := client.HealthCheck{Status: string(c.Status), Message: optional(c.Message), DurationMS: c.Duration.Milliseconds()}
		if worker {
			check.LastChecked = &client.Time{Time: time.Now()}
		}
		w[name] = check
	}
	return w
}

// eventSystemOf is an event system for the API.
func eventSystemOf(h coordinator.Health) client.EventSystem {
	w := client.EventSystem{
		Mode: string(h.Mode), ConfiguredMode: string(h.ConfiguredMode), Status: string(h.Status), Ready: h.Ready, Reason: withoutErrors(h.Reason, h),
		FallbackActive: h.FallbackActive, Found: h.Found, Errors: h.Errors, DeadLoops: h.DeadLoops,
		Poller: &client.Poller{Pace: string(h.Poller.Pace), Cycles: h.Poller.Cycles, Found: h.Poller.Found, Errors: h.Poller.Errors,
			LastPoll: unlessZero(h.Poller.LastPoll)},
	}
	if w.Found == nil {
		w.Found = map[string]uint64{}
	}
	w.Listener = listenerOf(h.Listener)
	return w
}

func listenerOf(l *listener.Health) *client.Listener {
	if l == nil {
		return nil
	}
	return &client.Listener{Source: l.Source, State: string(l.State), Proven: l.Proven, Reconnects: l.Reconnects,
		LagMS: l.LagMS, LagAt: unlessZero(l.LagAt), ConnectedAt: unlessZero(l.ConnectedAt), MovingFrom: listenerOf(l.From)}
}

func unlessZero(t time.Time) *client.Time {
	if t.IsZero() {
		return nil
	}
	return &client.Time{Time: t}
}

// withoutErrors removes the texts of errors from a reason: they may name hosts and
// tables, and health is public.
func withoutErrors(reason string, systems ...coordinator.Health) string {
	for _, h := range systems {
		texts := []string{h.LastError, h.Poller.LastError}
		for l := h.Listener; l != nil; l = l.From {
			texts = append(texts, l.LastError)
		}
		for _, text := range texts {
			if text != "" {
				reason = strings.ReplaceAll(reason, text, "see the log")
			}
		}
	}
	return reason
}
