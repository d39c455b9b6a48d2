package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

func newNamespaceCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "namespace", Aliases: []string{"namespaces"}, Short: "List, pause and resume namespaces"}
	list := &cobra.Command{
		Use:   "list",
		Short: "List the namespaces and which are paused",
		Args:  arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			all, err := c.Namespaces(cmd.Context())
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(all, func() {
				t := a.newTable("NAMESPACE", "STATE", "SINCE", "BY", "REASON")
				for _, n := range all.Namespaces {
					state := cell{"running", green}
					if n.Paused {
						state = cell{"paused", yellow}
					}
					t.row(n.Name, state, instant(n.PausedAt), text(n.PausedBy), text(n.PauseReason))
					for _, c := range n.PausedCallables {
						t.row("  "+c.Callable, cell{"paused", yellow}, instant(&c.PausedAt), text(c.PausedBy), text(c.PauseReason))
					}
				}
				t.write(a.stdout)
			})
		},
	}
	pause := a.namespaceCommand("pause", "Keep workers from claiming anything of a namespace", true, (*client.Client).PauseCallable)
	pause.Long = `Keeps workers from claiming anything of a namespace, or with --callable the steps
that call something. What runs is finished, and tasks are still created; they wait.`
	cmd.AddCommand(list, pause, a.namespaceCommand("resume", "Let workers claim again", false, (*client.Client).ResumeCallable))
	return cmd
}

func (a *app) namespaceCommand(name, short string, needReason bool,
	do func(c *client.Client, ctx context.Context, namespace, callable string, why client.Why) (*client.Namespace, error)) *cobra.Command {
	var why whyFlags
	var callable string
	cmd := &cobra.Command{
		Use:   name + " NAMESPACE",
		Short: short,
		Args:  arguments("NAMESPACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			n, err := do(c, cmd.Context(), args[0], callable, client.Why{Reason: why.reason, Actor: why.actor})
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(n, func() {
				state := "running"
				if n.Paused {
					state = "paused"
				}
				a.printf("namespace %s: %s\n", oneLine(n.Name), state)
				for _, c := range n.PausedCallables {
					a.printf("callable %s: paused\n", oneLine(c.Callable))
				}
			})
		},
		ValidArgsFunction: a.completeNamespaces,
	}
	cmd.Flags().StringVar(&callable, "callable", "", "only the steps that call this, such as payments.charge; with any method and resolver")
	why.flags(cmd, "actor", needReason)
	return cmd
}
