package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/deploymode"
)

func newSystemCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "system", Short: "Health, fleet, workers, deployment modes, sweeps, breakers and replication slots"}
	cmd.AddCommand(newSystemHealthCommand(a), newSystemFleetCommand(a), newSystemWorkersCommand(a), newSystemModeCommand(a),
		newSystemSweepsCommand(a), newSystemBreakersCommand(a), newSystemDropSlotCommand(a))
	return cmd
}

// healthReport is the answer of `system health`: what each daemon says of
// itself, and why one said nothing.
type healthReport struct {
	Orchestration *client.DetailedHealth `json:"orchestration,omitempty"`
	Worker        *client.DetailedHealth `json:"worker,omitempty"`
	Errors        map[string]string      `json:"errors,omitempty"`
}

func newSystemHealthCommand(a *app) *cobra.Command {
	var onlyOrchestration, onlyWorkers bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask both daemons how they are",
		Long: `Asks both daemons how they are. The exit code is 5 when one does not answer, 1
when one is unhealthy or a check of it is, 0 otherwise (degraded included).`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			daemons := []daemon{orchestrator, worker}
			switch {
			case onlyOrchestration && !onlyWorkers:
				daemons = daemons[:1]
			case onlyWorkers && !onlyOrchestration:
				daemons = daemons[1:]
			}
			return a.health(cmd.Context(), daemons)
		},
	}
	cmd.Flags().BoolVarP(&onlyOrchestration, "orchestration", "o", false, "only the orchestrator")
	cmd.Flags().BoolVarP(&onlyWorkers, "workers", "w", false, "only the worker")
	return cmd
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
			if firstErr == nil {
				firstErr = err
			}
			continue
		}
		if d == worker {
			report.Worker = h
		} else {
			report.Orchestration = h
		}
		if unhealthy(h) {
			sick = append(sick, string(d))
		}
	}
	if err := a.emit(report, func() { a.showHealth(report, daemons) }); err != nil {
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

func (a *app) showHealth(report healthReport, daemons []daemon) {
	checks := a.newTable("DAEMON", "CHECK", "STATUS", "MS", "MESSAGE")
	systems := a.newTable("DAEMON", "EVENT SYSTEM", "MODE", "READY", "LISTENER", "LAG", "POLLER", "REASON")
	var notes []string
	for _, d := range daemons {
		h := report.Orchestration
		if d == worker {
			h = report.Worker
		}
		if h == nil {
			checks.row(d, nil, cell{"unreachable", red}, nil, report.Errors[string(d)])
			continue
		}
		checks.row(d, nil, stateCell(h.Status), nil, h.NotReady)
		for _, name := range slices.Sorted(maps.Keys(h.Checks)) {
			c := h.Checks[name]
			checks.row(d, name, stateCell(c.Status), c.DurationMS, text(c.Message))
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
	listener, lag, poller := any(nil), any(nil), any(nil)
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

func newSystemFleetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "fleet",
		Short: "List the daemons that share the database",
		Long: `Lists the daemons that gave a sign of life within ten minutes, and those that
signed off within the last one. ADDRESS is where the API of a daemon listens; it
has the host's name where the daemon listens on all addresses.`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			fleet, err := c.Fleet(cmd.Context())
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(fleet, func() { a.showFleet(fleet) })
		},
	}
}

func (a *app) showFleet(fleet *client.Fleet) {
	t := a.newTable("ID", "KIND", "HOST", "ADDRESS", "MODE", "NAMESPACES", "VERSION", "HEARTBEAT", "STATE")
	for _, r := range fleet.Replicas {
		state := "lost"
		switch {
		case r.Stopped:
			state = "stopped"
		case r.Live:
			state = "live"
		}
		t.row(firstOf(r.ID, r.UUID), r.Kind, r.Hostname, r.Address, r.Mode, strings.Join(r.Namespaces, ","), r.Version,
			seconds(duration(r.HeartbeatAgeSeconds))+" ago", stateCell(state))
	}
	t.write(a.stdout)
	if fleet.Warning != "" {
		a.printf("\n%s\n", a.screen.paint(yellow, "warning: "+oneLine(fleet.Warning)))
	}
}

func newSystemModeCommand(a *app) *cobra.Command {
	name := string(orchestrator)
	cmd := &cobra.Command{
		Use:   "mode [MODE]",
		Short: "Show or change the deployment mode of a daemon",
		Long: `Shows the deployment mode of a daemon, or changes it at run time: Hybrid,
EventDrivenOnly, PollingOnly or Disabled. It holds for the replica that answers
and until it restarts.`,
		Example: "  tasker-ctl system mode PollingOnly --daemon worker",
		Args:    arguments("[MODE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := daemonNamed(name)
			if err != nil {
				return err
			}
			mode := ""
			if len(args) == 1 {
				parsed, ok := deploymode.Parse(args[0])
				if !ok {
					return usagef("%q is no deployment mode: it must be %s", args[0], strings.Join(modeWords(), ", "))
				}
				mode = string(parsed)
			}
			return a.mode(cmd.Context(), d, mode)
		},
		ValidArgsFunction: oneOfWords(modeWords()...),
	}
	daemonFlag(cmd, &name)
	return cmd
}

// daemonFlag adds --daemon, which says whom a command asks.
func daemonFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "daemon", *name, "orchestrator or worker")
	completeFlag(cmd, "daemon", oneOfWords(string(orchestrator), string(worker)))
}

func daemonNamed(name string) (daemon, error) {
	switch daemon(name) {
	case orchestrator, "orchestration": // as its part of the configuration is called
		return orchestrator, nil
	case worker:
		return worker, nil
	}
	return "", usagef("--daemon must be orchestrator or worker, not %q", name)
}

// mode sets a deployment mode, or asks for it when none is given.
func (a *app) mode(ctx context.Context, d daemon, mode string) error {
	c, err := a.client(d)
	if err != nil {
		return err
	}
	if mode == "" {
		mode, err = c.Mode(ctx)
	} else {
		mode, err = c.SetMode(ctx, mode)
	}
	if err != nil {
		return unreachable(d, err)
	}
	return a.emit(client.DeploymentMode{Mode: mode}, func() { a.printf("%s: %s\n", d, mode) })
}
