package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/logroom"
	"github.com/tasker-go/tasker/internal/wire"
	"github.com/tasker-go/tasker/internal/wording"
)

func (a *app) system() command {
	return command{
		use: "system", short: "Health, fleet, workers, deployment modes, sweeps, breakers and replication slots",
		commands: []command{a.systemHealth(), a.systemInfo(), a.systemFleet(), a.workerList("workers"), a.systemMode(), a.systemLogLevel(),
			a.systemSweeps(), a.systemBreakers(), a.systemDropSlot()},
	}
}

func (a *app) systemFleet() command {
	return command{
		use: "fleet", lists: true, short: "List the daemons that share the database",
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

func replicaState(r *client.Replica) cell {
	switch {
	case r.Stopped:
		return stateCell("stopped")
	case r.Live:
		return stateCell("live")
	}
	return stateCell("lost")
}

func replicaFacts(r *client.Replica) facts {
	return facts{{"ID", cmp.Or(r.ID, r.UUID)}, {"KIND", r.Kind}, {"HOST", r.Hostname},
		{"ADDRESS", r.Address}, {"MODE", r.Mode}, {"NAMESPACES", r.Namespaces},
		{"VERSION", r.Version}, {"HEARTBEAT", ago(r.HeartbeatAgeSeconds)},
		{"STATE", replicaState(r)}}
}

// ago is the age of a heartbeat.
func ago(age float64) string { return seconds(duration(age)) + " ago" }

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
		run: ask(a, func(ctx context.Context, c *api, args []string) (m wire.DeploymentMode, err error) {
			if len(args) == 0 {
				m.Mode, err = c.Mode(ctx)
			} else {
				m.Mode, err = c.SetMode(ctx, args[0])
			}
			return m, err
		}, func(m wire.DeploymentMode) { a.printf("%s: %s\n", d, m.Mode) }),
	}
}

func (a *app) systemLogLevel() command {
	var d daemon
	return command{
		use: "log-level [LEVEL…]", short: "Show or change the levels of logging of a daemon",
		long: `Shows the levels of logging of a daemon, or changes them at run time: debug,
info, warn or error for all, or room=level for one of ` + strings.Join(logroom.Names[:6], ", ") + `,
` + strings.Join(logroom.Names[6:], ", ") + `; room= returns it to the level of all. It holds for the replica that
answers, until it restarts or reads its configuration again.`,
		example: "  tasker-ctl system log-level worker=debug --daemon worker",
		flags:   daemonFlag(&d),
		daemon:  &d,
		run: ask(a, func(ctx context.Context, c *api, args []string) (l wire.LogLevels, err error) {
			var change map[string]string
			for _, text := range args {
				if change == nil {
					change = map[string]string{}
				}
				room, level, _ := strings.Cut(text, "=")
				change[room] = level
			}
			l.Levels, err = c.LogLevels(ctx, change)
			return l, err
		}, func(l wire.LogLevels) {
			for _, room := range slices.Sorted(maps.Keys(l.Levels)) {
				a.printf("%s %s: %s\n", d, oneLine(room), oneLine(l.Levels[room]))
			}
		}),
	}
}

// parseLogLevel completes a level of all rooms to a setting.
func parseLogLevel(text string) (string, error) {
	room, level, ofRoom := strings.Cut(text, "=")
	var err error
	switch {
	case !ofRoom || room == "all":
		room, level = "all", text[strings.IndexByte(text, '=')+1:]
		err = logroom.CheckLevel(level)
	case level == "":
		err = logroom.Check(room, logroom.Levels[0])
	default:
		err = logroom.Check(room, level)
	}
	if err != nil {
		return "", usageError{err}
	}
	return room + "=" + level, nil
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
		use: "breakers [COMMAND]", lists: true, short: "List the circuit breakers of a daemon, or force one",
		flags: daemonFlag(&d), daemon: &d,
		run: askList(a, plainly((*api).Breakers), "breakers", listing(a, breakerFacts)),
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
		use: "sweeps [COMMAND]", lists: true, short: "List the sweeps and their last runs, or run one",
		long: `Lists the jobs that the orchestrators take turns in, such as looking for dead
workers, and what each did the last time.`,
		run: askList(a, plainly((*api).Sweeps), "sweeps", listing(a, sweepFacts)),
		commands: []command{{
			use: "run SWEEP", short: "Run a sweep now, whenever it is due",
			flags: opt(&r.DryRun, dryRun, "only show what it would do"),
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
