package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

// breakerWords are what a circuit breaker can be told, as the API has it and
// in short.
var breakerWords = []string{client.BreakerForcedOpen, client.BreakerForcedClosed, client.BreakerAutomatic}

func newSystemBreakersCommand(a *app) *cobra.Command {
	name := string(orchestrator)
	cmd := &cobra.Command{
		Use:   "breakers [COMMAND]",
		Short: "List the circuit breakers of a daemon, or force one",
		Args:  refuseUnknown,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := daemonNamed(name)
			if err != nil {
				return err
			}
			c, err := a.client(d)
			if err != nil {
				return err
			}
			list, err := c.Breakers(cmd.Context())
			if err != nil {
				return unreachable(d, err)
			}
			return a.emit(list, func() { a.showBreakers(list.Breakers) })
		},
	}
	daemonFlag(cmd, &name)
	cmd.AddCommand(newSystemBreakerCommand(a))
	return cmd
}

func newSystemBreakerCommand(a *app) *cobra.Command {
	name := string(orchestrator)
	cmd := &cobra.Command{
		Use:   "force BREAKER STATE",
		Short: "Hold a circuit breaker open or closed, or let it decide again",
		Long: `Holds a circuit breaker in a state: forced_open (nothing is asked of what is
behind it), forced_closed (everything is), or automatic, where the outcomes of
calls decide again. It holds for the replica that answers and until it restarts.`,
		Example: "  tasker-ctl system breakers force messaging forced_open --daemon worker",
		Args:    arguments("BREAKER", "STATE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := daemonNamed(name)
			if err != nil {
				return err
			}
			state, err := breakerState(args[1])
			if err != nil {
				return err
			}
			c, err := a.client(d)
			if err != nil {
				return err
			}
			b, err := c.ForceBreaker(cmd.Context(), args[0], state)
			if err != nil {
				return unreachable(d, err)
			}
			return a.emit(b, func() { a.printf("%s %s: %s (%s)\n", d, oneLine(b.Name), b.State, b.Control) })
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return breakerWords, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
	}
	daemonFlag(cmd, &name)
	return cmd
}

// breakerState also reads the short forms open, closed and auto.
func breakerState(text string) (string, error) {
	switch strings.ToLower(text) {
	case "open":
		text = client.BreakerForcedOpen
	case "closed":
		text = client.BreakerForcedClosed
	case "auto":
		text = client.BreakerAutomatic
	}
	for _, word := range breakerWords {
		if strings.EqualFold(strings.ReplaceAll(text, "-", "_"), word) {
			return word, nil
		}
	}
	return "", usagef("%q is no state of a breaker: it must be %s", text, strings.Join(breakerWords, ", "))
}

func (a *app) showBreakers(breakers []client.Breaker) {
	t := a.newTable("BREAKER", "STATE", "CONTROL", "SINCE", "IN A ROW", "FAILURES", "CALLS", "REJECTED", "OPENED", "TRIES AGAIN")
	for i := range breakers {
		b := &breakers[i]
		state, again := cell{b.State, green}, any(nil)
		switch b.State {
		case "open":
			state.style = red
		case "half_open":
			state.style = yellow
		}
		if b.RetryAfterSeconds > 0 {
			again = "in " + seconds(duration(b.RetryAfterSeconds))
		}
		t.row(b.Name, state, b.Control, instant(b.Since), b.FailuresInARow, b.Failures, b.Calls, b.Rejected, b.Opened, again)
	}
	t.write(a.stdout)
}
