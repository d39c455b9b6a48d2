package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/sourcegraph/conc/pool"

	"github.com/tasker-go/tasker/client"
)

// healthReport is the answer of commands that check health: what each daemon says
// of itself, and why one said nothing.
type healthReport struct {
	Orchestration *client.DetailedHealth            `json:"orchestration,omitempty"`
	Worker        *client.DetailedHealth            `json:"worker,omitempty"`
	Daemons       map[string]*client.DetailedHealth `json:"daemons,omitempty"` // those with names
	Errors        map[string]string                 `json:"errors,omitempty"`
}

// checkup is what one daemon says of its health.
type checkup struct {
	name   string // in tables and messages
	daemon daemon
	named  bool // it is told from others of its kind
	client *api // nil: it has no address
	health *client.DetailedHealth
	err    error
}

// ask takes the short answer, which is open to all, where the long one needs
// credentials.
func (c *checkup) ask(ctx context.Context) {
	if c.client == nil {
		c.err = coded{errors.New("it has registered no address"), exitUnavailable}
		return
	}
	c.health, c.err = c.client.DetailedHealth(ctx)
	if c.named && c.err != nil && exitCode(c.err) == exitPermission {
		var short *client.Health
		if short, c.err = c.client.Health(ctx); c.err == nil {
			c.health = &client.DetailedHealth{Status: short.Status, Timestamp: short.Timestamp, WorkerID: short.WorkerID}
		}
	}
	c.err = unreachable(c.daemon, c.err)
}

// daemonsFlags choose between the two daemons; without any both are meant.
func daemonsFlags(onlyOrchestration, onlyWorkers *bool) flags {
	return all(
		opt(onlyOrchestration, "orchestration", "only the orchestrator", also("o")),
		opt(onlyWorkers, "workers", "only the worker", also("w")),
	)
}

func chosen(onlyOrchestration, onlyWorkers bool) (daemons []daemon) {
	if onlyOrchestration || !onlyWorkers {
		daemons = append(daemons, orchestrator)
	}
	if onlyWorkers || !onlyOrchestration {
		daemons = append(daemons, worker)
	}
	return daemons
}

func (a *app) systemHealth() command {
	var onlyOrchestration, onlyWorkers bool
	return command{
		use: "health", short: "Check the health of both daemons",
		long: `Checks the health of both daemons. The exit code is 5 when one does not answer, 1
when one is unhealthy or a check of it is, 0 otherwise (degraded included).`,
		flags: daemonsFlags(&onlyOrchestration, &onlyWorkers),
		local: func(ctx context.Context, _ []string) error {
			return a.checkHealth(ctx, chosen(onlyOrchestration, onlyWorkers)...)
		},
	}
}

// checkHealth checks daemons at the addresses of the operator.
func (a *app) checkHealth(ctx context.Context, daemons ...daemon) error {
	list, err := a.checkups(ctx, daemons)
	if err != nil {
		return err
	}
	return a.health(ctx, list, 1)
}

func (a *app) checkups(ctx context.Context, daemons []daemon) ([]checkup, error) {
	list := make([]checkup, len(daemons))
	for i, d := range daemons {
		c, err := a.client(ctx, d)
		if err != nil {
			return nil, err
		}
		list[i] = checkup{name: string(d), daemon: d, client: c}
	}
	return list, nil
}

// atOnce is how many peers are asked at once. Other daemons are asked one after
// the other: their clients may tell of their requests, and those take turns.
const atOnce = 16

// health asks daemons, so many at once, and writes and judges what they say.
func (a *app) health(ctx context.Context, list []checkup, width int) error {
	askAll(ctx, list, width)
	if err := a.emit(reportOf(list), func() { a.showHealth(list) }); err != nil {
		return err
	}
	if err := answered(list); err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(c checkup) bool { return !unhealthy(c.health) })
	if len(list) > 0 {
		return failure("unhealthy: " + strings.Join(namesOf(list, func(c *checkup) string { return c.name }), ", "))
	}
	return nil
}

func reportOf(list []checkup) healthReport {
	report := healthReport{Daemons: map[string]*client.DetailedHealth{}, Errors: map[string]string{}}
	for i := range list {
		switch c := &list[i]; {
		case c.err != nil:
			report.Errors[c.name] = oneLine(c.err.Error())
		case c.named:
			report.Daemons[c.name] = c.health
		case c.daemon == worker:
			report.Worker = c.health
		default:
			report.Orchestration = c.health
		}
	}
	return report
}

func askAll(ctx context.Context, list []checkup, width int) {
	checks := pool.New().WithMaxGoroutines(width)
	for i := range list {
		checks.Go(func() { list[i].ask(ctx) })
	}
	checks.Wait() // each has its own error
}

// answered is an error where a daemon has not answered.
func answered(list []checkup) error {
	var first error
	var silent []string
	for i := range list {
		if c := &list[i]; c.err != nil {
			first, silent = cmp.Or(first, c.err), append(silent, c.name)
		}
	}
	if first == nil {
		return nil
	}
	return coded{errors.New("no answer from " + strings.Join(silent, ", ")), exitCode(first)}
}

// unhealthy reports whether a daemon or one of its checks is more than
// degraded.
func unhealthy(h *client.DetailedHealth) bool {
	sick := func(c client.HealthCheck) bool { return c.Status == "unhealthy" }
	return h.Status == "unhealthy" || h.NotReady != "" || slices.ContainsFunc(slices.Collect(maps.Values(h.Checks)), sick)
}

func (a *app) showHealth(list []checkup) {
	checks := a.newTable("DAEMON", "CHECK", "STATUS", "MS", "MESSAGE")
	systems := a.newTable("DAEMON", "EVENT SYSTEM", "MODE", "READY", "LISTENER", "LAG", "POLLER", "REASON")
	var notes []string
	for i := range list {
		name, h := list[i].name, list[i].health
		if list[i].err != nil {
			checks.row(name, nil, stateCell("unreachable"), nil, list[i].err.Error())
			continue
		}
		checks.row(name, nil, stateCell(h.Status), nil, h.NotReady)
		for _, check := range slices.Sorted(maps.Keys(h.Checks)) {
			c := h.Checks[check]
			checks.row(name, check, stateCell(c.Status), c.DurationMS, c.Message)
		}
		for _, system := range slices.Sorted(maps.Keys(h.EventSystems)) {
			eventSystemRow(systems, name, system, h.EventSystems[system])
		}
		for _, warning := range append(slices.Clone(h.Warnings), h.FleetWarning) {
			if warning != "" && !slices.Contains(notes, warning) {
				notes = append(notes, warning)
			}
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

func eventSystemRow(t *table, daemon, name string, s client.EventSystem) {
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
	ready := cellOf(s.Ready)
	if ready.style = red; s.Ready {
		ready.style = green
	}
	t.row(daemon, name, s.Mode, ready, listener, lag, poller, s.Reason)
}

func (a *app) systemInfo() command {
	var onlyOrchestration, onlyWorkers bool
	return command{
		use: "info", short: "Show versions, environments and connections of both daemons",
		flags: daemonsFlags(&onlyOrchestration, &onlyWorkers),
		local: func(ctx context.Context, _ []string) error {
			list, err := a.checkups(ctx, chosen(onlyOrchestration, onlyWorkers))
			if err != nil {
				return err
			}
			askAll(ctx, list, 1)
			if err := a.emit(reportOf(list), func() { listing(a, infoFacts)(list) }); err != nil {
				return err
			}
			return answered(list)
		},
	}
}

func infoFacts(c *checkup) facts {
	status, version, environment, state, up, connections := "unreachable", "", "", "", "", ""
	var pool *client.PoolUtilization
	if h := c.health; h != nil {
		status = h.Status
		if h.Info != nil && c.daemon == orchestrator {
			version, environment, state, pool = h.Info.Version, h.Info.Environment, h.Info.OperationalState, h.Info.PoolUtilization
		}
		if w := h.SystemInfo; w != nil && c.daemon == worker {
			version, environment, up, pool = w.Version, w.Environment, seconds(duration(float64(w.UptimeSeconds))), w.PoolUtilization
		}
	}
	if pool != nil {
		connections = share(pool.TaskerPool.ActiveConnections, pool.TaskerPool.MaxConnections)
	}
	return facts{{"DAEMON", c.name}, {"STATUS", stateCell(status)}, {"VERSION", version}, {"ENVIRONMENT", environment}, {"STATE", state}, {"UP", up},
		{"CONNECTIONS", connections}}
}
