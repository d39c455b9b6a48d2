package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/wording"
)

func (a *app) system() command {
	return command{
		use: "system", short: "Health, fleet, workers, deployment modes, sweeps, breakers and replication slots",
		commands: []command{a.systemHealth(), a.systemFleet(), a.systemWorkers(), a.systemMode(),
			a.systemSweeps(), a.systemBreakers(), a.systemDropSlot()},
	}
}

func (a *app) systemFleet() command {
	return command{
		use: "fleet", short: "List the daemons that share the database",
		long: `Lists the daemons that sent a heartbeat within ten minutes, and those that
stopped within the last one. ADDRESS is where the API of a daemon listens; it
has the host's name where the daemon listens on all addresses.`,
		run: ask(a, plainly((*api).Fleet), func(fleet *client.Fleet) {
			listing(a, replicaFacts)(fleet.Replicas)
			if fleet.Warning != "" {
				a.printf("\n%s\n", a.screen.paint(yellow, "warning: "+oneLine(fleet.Warning)))
			}
		}),
	}
}

func replicaFacts(r *client.Replica) facts {
	state := "lost"
	switch {
	case r.Stopped:
		state = "stopped"
	case r.Live:
		state = "live"
	}
	return facts{{"ID", cmp.Or(r.ID, r.UUID)}, {"KIND", r.Kind}, {"HOST", r.Hostname},
		{"ADDRESS", r.Address}, {"MODE", r.Mode}, {"NAMESPACES", r.Namespaces},
		{"VERSION", r.Version}, {"HEARTBEAT", ago(r.HeartbeatAgeSeconds)},
		{"STATE", stateCell(state)}}
}

// ago is the age of a heartbeat.
func ago(age float64) string { return seconds(duration(age)) + " ago" }

func (a *app) systemWorkers() command {
	o := client.WorkerListOptions{Limit: client.DefaultWorkerLimit}
	return command{
		use: "workers", short: "List the registered workers",
		long: `Lists the registered workers, those with the latest heartbeat first. A worker
without heartbeats becomes stale and then dead; other workers then claim the
steps of a dead one. Below the list stand the templates for which a worker brings
other content than the one that tasks have used: the worker runs without these.`,
		flags: all(
			opt(&o.Status, "status,s", "only with this status: active, stale or dead", among("active", "stale", "dead")),
			opt(&o.Namespace, "namespace,n", "only workers that serve this namespace", a.offering(byNamespace)),
			limit(&o.Limit, client.MaxWorkerLimit, "how many"),
		),
		run: ask(a, with((*api).Workers, &o), func(list *client.WorkerList) {
			listing(a, a.workerFacts)(list.Workers)
			for i := range list.Workers {
				a.showRefused(&list.Workers[i])
			}
		}),
	}
}

func (a *app) workerFacts(w *client.WorkerState) facts {
	return facts{{"ID", w.WorkerID}, {"STATUS", workerCell(w)},
		{"SINCE", a.since(w.StatusSince.Time)}, {"HEARTBEAT", ago(w.HeartbeatAgeSeconds)},
		{"NAMESPACES", w.Namespaces}, {"TAGS", w.Tags}, {"HOST", w.Hostname},
		{"ADDRESS", w.Address}, {"VERSION", w.Version}, {"UUID", w.WorkerUUID}}
}

func workerCell(w *client.WorkerState) cell {
	switch {
	case w.StoppedAt != nil:
		return stateCell("stopped")
	case w.Status == "stale":
		return cell{w.Status, yellow}
	case w.Status == "active" && w.Draining:
		return stateCell("draining")
	case w.Status == "active":
		return cell{w.Status, green}
	}
	return stateCell(w.Status)
}

// showRefused lists the templates that a worker runs without.
func (a *app) showRefused(w *client.WorkerState) {
	for _, r := range w.RefusedTemplates {
		a.printf("\n%s brings another %s/%s:%s than the one that tasks have used\n  its content %s\n  in use      %s\n",
			oneLine(w.WorkerID), r.Namespace, r.Name, r.Version, r.Brought, r.Registered)
	}
}

func (a *app) systemMode() command {
	var d daemon
	return command{
		use: "mode [MODE]", short: "Show or change the deployment mode of a daemon",
		long: `Shows the deployment mode of a daemon, or changes it at run time: Hybrid,
EventDrivenOnly, PollingOnly or Disabled. It holds for the replica that answers
and until it restarts.`,
		example: "  tasker-ctl system mode PollingOnly --daemon worker",
		flags:   daemonFlag(&d),
		daemon:  &d,
		run: ask(a, func(ctx context.Context, c *api, args []string) (m client.DeploymentMode, err error) {
			if len(args) == 0 {
				m.Mode, err = c.Mode(ctx)
			} else {
				m.Mode, err = c.SetMode(ctx, args[0])
			}
			return m, err
		}, func(m client.DeploymentMode) { a.printf("%s: %s\n", d, m.Mode) }),
	}
}

func modeWords() []string {
	return []string{string(deploymode.Hybrid), string(deploymode.EventDrivenOnly),
		string(deploymode.PollingOnly), string(deploymode.Disabled)}
}

func parseMode(text string) (string, error) {
	mode, ok := deploymode.Parse(text)
	if !ok {
		return "", invalid("mode", text, oneOf(modeWords()))
	}
	return string(mode), nil
}

// daemonFlag says whom a command asks.
func daemonFlag(d *daemon) flags {
	*d = orchestrator
	words := []string{string(orchestrator), string(worker)}
	return opt((*string)(d), "daemon", "orchestrator or worker", offering(oneOfWords(words...)), checked(oneOf(words), func(string) bool {
		if *d == "orchestration" { // as its part of the configuration is called
			*d = orchestrator
		}
		return *d == orchestrator || *d == worker
	}))
}

// breakerWords are the states in which a circuit breaker can be held.
var breakerWords = []string{client.BreakerForcedOpen, client.BreakerForcedClosed, client.BreakerAutomatic}

// parseBreakerState also reads the short forms open, closed and auto.
func parseBreakerState(text string) (string, error) {
	switch strings.ToLower(text) {
	case "open", "closed":
		return "forced_" + strings.ToLower(text), nil
	case "auto":
		return client.BreakerAutomatic, nil
	}
	return wordOf("state", text, breakerWords)
}

func (a *app) systemBreakers() command {
	var d, forced daemon
	return command{
		use: "breakers [COMMAND]", short: "List the circuit breakers of a daemon, or force one",
		flags: daemonFlag(&d), daemon: &d,
		run: ask(a, plainly((*api).Breakers), func(list *client.BreakerList) { listing(a, breakerFacts)(list.Breakers) }),
		commands: []command{{
			use: "force BREAKER STATE", short: "Hold a circuit breaker open or closed, or let it decide again",
			long: `Holds a circuit breaker in a state: forced_open (every call is rejected),
forced_closed (every call is let through), or automatic, where the outcomes of
calls decide again. It holds for the replica that answers and until it restarts.`,
			example: "  tasker-ctl system breakers force messaging forced_open --daemon worker",
			flags:   daemonFlag(&forced), daemon: &forced,
			run: ask(a, ofPair((*api).ForceBreaker), func(b *client.Breaker) {
				a.printf("%s %s: %s (%s)\n", forced, oneLine(b.Name), b.State, b.Control)
			}),
		}},
	}
}

func breakerFacts(b *client.Breaker) facts {
	again := ""
	if b.RetryAfterSeconds > 0 {
		again = "in " + seconds(duration(b.RetryAfterSeconds))
	}
	return facts{{"BREAKER", b.Name}, {"STATE", stateCell(b.State)}, {"CONTROL", b.Control},
		{"SINCE", b.Since}, {"IN A ROW", b.FailuresInARow}, {"FAILURES", b.Failures},
		{"CALLS", b.Calls}, {"REJECTED", b.Rejected}, {"OPENED", b.Opened}, {"TRIES AGAIN", again}}
}

func (a *app) systemSweeps() command {
	var r client.SweepRequest
	return command{
		use: "sweeps [COMMAND]", short: "List the sweeps and their last runs, or run one",
		long: `Lists the jobs that the orchestrators take turns in, such as looking for dead
workers, and what each did the last time.`,
		run: ask(a, plainly((*api).Sweeps), func(list *client.SweepList) { listing(a, sweepFacts)(list.Sweeps) }),
		commands: []command{{
			use: "run SWEEP", short: "Run a sweep now, whenever it is due",
			flags: opt(&r.DryRun, "dry-run", "only show what it would do"),
			run:   ask(a, ofWith((*api).RunSweep, &r), a.showSweep),
		}},
	}
}

func sweepFacts(s *client.Sweep) facts {
	took := cell{}
	switch {
	case s.Running:
		took = cell{"running", cyan}
	case s.FinishedAt != nil:
		took.text = seconds(s.FinishedAt.Sub(s.StartedAt.Time))
	}
	return facts{{"SWEEP", s.Name}, {"RUNS", s.Runs}, {"LAST", s.StartedAt}, {"TOOK", took},
		{"NEXT", s.NextAt}, {"RESULT", wording.Clip(shownJSON(s.Result), 100)}}
}

func (a *app) showSweep(run *client.SweepRun) {
	if len(run.Findings) > 0 {
		listing(a, func(f *client.SweepFinding) facts {
			return facts{{"SUBJECT", f.Subject}, {"ACTION", f.Action}, {"DETAIL", f.Detail}}
		})(run.Findings)
		a.printf("\n")
	}
	var items []string
	for _, action := range slices.Sorted(maps.Keys(run.Items)) {
		items = append(items, fmt.Sprintf("%s %d", oneLine(action), run.Items[action]))
	}
	if len(items) == 0 {
		items = []string{"nothing to do"}
	}
	dry := ""
	if run.DryRun {
		dry = ", nothing was changed"
	}
	a.printf("%s: %s (%s in %dms%s)\n", oneLine(run.Sweep), strings.Join(items, ", "), run.Outcome, run.TookMS, dry)
}

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
			var daemons []daemon
			if onlyOrchestration || !onlyWorkers {
				daemons = append(daemons, orchestrator)
			}
			if onlyWorkers || !onlyOrchestration {
				daemons = append(daemons, worker)
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
	sick := func(c client.HealthCheck) bool { return c.Status == "unhealthy" }
	return h.Status == "unhealthy" || h.NotReady != "" || slices.ContainsFunc(slices.Collect(maps.Values(h.Checks)), sick)
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
			checks.row(d, name, stateCell(c.Status), c.DurationMS, c.Message)
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
	ready := cellOf(s.Ready)
	if ready.style = red; s.Ready {
		ready.style = green
	}
	t.row(d, name, s.Mode, ready, listener, lag, poller, s.Reason)
}
