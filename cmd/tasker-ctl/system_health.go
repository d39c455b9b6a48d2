package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/client"
)

// healthReport is the answer of `system health`: what each daemon says of
// itself, and why one said nothing.
type healthReport struct {
	Orchestration *client.DetailedHealth `json:"orchestration,omitempty"`
	Worker        *client.DetailedHealth `json:"worker,omitempty"`
	Errors        map[string]string      `json:"errors,omitempty"`
}

// of is the place of a daemon's answer.
func (r *healthReport) of(d daemon) **client.DetailedHealth {
	if d == worker {
		return &r.Worker
	}
	return &r.Orchestration
}

func (a *app) systemHealth() command {
	var onlyOrchestration, onlyWorkers bool
	return command{
		use: "health", short: "Check the health of both daemons",
		long: `Checks the health of both daemons. The exit code is 5 when one does not answer, 1
when one is unhealthy or a check of it is, 0 otherwise (degraded included).`,
		flags: all(
			opt(&onlyOrchestration, "orchestration,o", "only the orchestrator"),
			opt(&onlyWorkers, "workers,w", "only the worker"),
		),
		local: func(ctx context.Context, _ []string) error {
			daemons := []daemon{orchestrator, worker}
			switch {
			case onlyOrchestration && !onlyWorkers:
				daemons = daemons[:1]
			case onlyWorkers && !onlyOrchestration:
				daemons = daemons[1:]
			}
			return a.health(ctx, daemons)
		},
	}
}
func (a *app) health(ctx context.Context, daemons []daemon) error {
	report := healthReport{Errors: map[string]string{}}
	var firstErr error
	var sick []string
	for _, d := range daemons {
		c, err := a.client(d)
		if err != nil {
			return err
		}
		h, err := c.DetailedHealth(ctx)
		if err = unreachable(d, err); err != nil {
			report.Errors[string(d)] = oneLine(err.Error())
			firstErr = cmp.Or(firstErr, err)
			continue
		}
		*report.of(d) = h
		if unhealthy(h) {
			sick = append(sick, string(d))
		}
	}
	if err := a.emit(report, func() { a.showHealth(&report, daemons) }); err != nil {
		return err
	}
	if firstErr != nil {
		return coded{errors.New("no answer from " + strings.Join(slices.Sorted(maps.Keys(report.Errors)), ", ")), exitCode(firstErr)}
	}
	if len(sick) > 0 {
		return failure("unhealthy: " + strings.Join(sick, ", "))
	}
	return nil
}

// unhealthy reports whether a daemon or one of its checks is more than
// degraded.
func unhealthy(h *client.DetailedHealth) bool {
	if h.Status == "unhealthy" || h.NotReady != "" {
		return true
	}
	for _, check := range h.Checks {
		if check.Status == "unhealthy" {
			return true
		}
	}
	return false
}

func (a *app) showHealth(report *healthReport, daemons []daemon) {
	checks := a.newTable("DAEMON", "CHECK", "STATUS", "MS", "MESSAGE")
	systems := a.newTable("DAEMON", "EVENT SYSTEM", "MODE", "READY", "LISTENER", "LAG", "POLLER", "REASON")
	var notes []string
	for _, d := range daemons {
		h := *report.of(d)
		if h == nil {
			checks.row(d, nil, stateCell("unreachable"), nil, report.Errors[string(d)])
			continue
		}
		checks.row(d, nil, stateCell(h.Status), nil, h.NotReady)
		for _, name := range slices.Sorted(maps.Keys(h.Checks)) {
			c := h.Checks[name]
			checks.row(d, name, stateCell(c.Status), c.DurationMS, valueOf(c.Message))
		}
		for _, name := range slices.Sorted(maps.Keys(h.EventSystems)) {
			eventSystemRow(systems, d, name, h.EventSystems[name])
		}
		if h.FleetWarning != "" && !slices.Contains(notes, h.FleetWarning) {
			notes = append(notes, h.FleetWarning)
		}
	}
	checks.write(a.stdout)
	if len(systems.rows) > 1 {
		a.printf("\n")
		systems.write(a.stdout)
	}
	for _, note := range notes {
		a.printf("\n%s\n", a.screen.paint(yellow, "warning: "+oneLine(note)))
	}
}

func eventSystemRow(t *table, d daemon, name string, s client.EventSystem) {
	listener, lag, poller := "", "", ""
	if s.Listener != nil {
		listener = s.Listener.State
		if s.Listener.LagAt != nil {
			lag = seconds(duration(s.Listener.LagMS / 1000))
		}
	}
	if s.Poller != nil {
		poller = s.Poller.Pace
	}
	ready := cell{"yes", green}
	if !s.Ready {
		ready = cell{"no", red}
	}
	t.row(d, name, s.Mode, ready, listener, lag, poller, s.Reason)
}
