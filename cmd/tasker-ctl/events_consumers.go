package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

func newConsumersCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "consumers",
		Aliases: []string{"consumer"},
		Short:   "List, make, move and forget those who read events",
		Long: `A consumer has a place among the events of a namespace and patterns for their
names. Whoever reads for it claims events over the API or in SQL and says when
they are done.`,
	}
	cmd.AddCommand(newConsumersListCommand(a), newConsumerCreateCommand(a), newConsumerShowCommand(a), newConsumerResetCommand(a), newConsumerDeleteCommand(a))
	return cmd
}

func newConsumersListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List consumers and how far behind they are",
		Args:  arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			list, err := c.EventConsumers(cmd.Context())
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(list, func() {
				t := a.newTable("CONSUMER", "NAMESPACE", "PATTERNS", "POSITION", "UNREAD", "OLDEST UNREAD", "HOLDER", "LEASE UNTIL")
				for i := range list.Consumers {
					e := &list.Consumers[i]
					t.row(e.Name, e.Namespace, clip(patternsOf(e), 40), e.Position, unread(e), instant(e.OldestUnreadAt), text(e.Holder), instant(e.LeaseUntil))
				}
				t.write(a.stdout)
			})
		},
	}
}

func patternsOf(e *client.EventConsumer) string {
	if len(e.Patterns) == 0 {
		return "*"
	}
	return strings.Join(e.Patterns, ",")
}

// unread is how many events wait; the server counts up to 1,000.
func unread(e *client.EventConsumer) any {
	if e.Unread >= 1000 {
		return "1000+"
	}
	return e.Unread
}

// consumerCommand is a command about one consumer.
func (a *app) consumerCommand(name, short string, do func(ctx context.Context, c *client.Client, consumer string) error) *cobra.Command {
	return &cobra.Command{
		Use:   name + " CONSUMER",
		Short: short,
		Args:  arguments("CONSUMER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			return unreachable(orchestrator, do(cmd.Context(), c, args[0]))
		},
		ValidArgsFunction: a.completeConsumers,
	}
}

func (a *app) showConsumer(e *client.EventConsumer) {
	t := a.newPairs()
	t.row("consumer", e.Name)
	t.row("namespace", e.Namespace)
	t.row("patterns", patternsOf(e))
	t.row("position", e.Position)
	t.row("unread", unread(e))
	t.row("oldest unread", instant(e.OldestUnreadAt))
	t.row("holder", text(e.Holder))
	t.row("lease until", instant(e.LeaseUntil))
	t.row("last claimed", instant(e.LastClaimedAt))
	t.row("last done", instant(e.LastAckedAt))
	t.row("created", instant(&e.CreatedAt))
	t.row("changed", instant(&e.UpdatedAt))
	t.write(a.stdout)
}

func newConsumerShowCommand(a *app) *cobra.Command {
	cmd := a.consumerCommand("show", "Show a consumer", func(ctx context.Context, c *client.Client, name string) error {
		e, err := c.EventConsumer(ctx, name)
		if err != nil {
			return err
		}
		return a.emit(e, func() { a.showConsumer(e) })
	})
	cmd.Aliases = []string{"get"}
	return cmd
}

func newConsumerCreateCommand(a *app) *cobra.Command {
	var r client.EventConsumerRequest
	var why whyFlags
	cmd := a.consumerCommand("create", "Keep a place among the events of a namespace", func(ctx context.Context, c *client.Client, name string) error {
		r.Name, r.Actor, r.Reason = name, why.actor, why.reason
		e, err := c.CreateEventConsumer(ctx, r)
		if err != nil {
			return err
		}
		return a.emit(e, func() { a.printf("event consumer %s created behind position %d\n", oneLine(e.Name), e.Position) })
	})
	cmd.Example = "  tasker-ctl events consumers create mailer -n payments --pattern 'payment.*' --from now"
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	f := cmd.Flags()
	f.StringVarP(&r.Namespace, "namespace", "n", "default", "namespace whose events it reads")
	f.StringArrayVar(&r.Patterns, "pattern", nil, "name of events, in which * stands for any characters; may be repeated; none: every event")
	f.StringVar(&r.From, "from", client.EventsFromBeginning, "beginning, now, or the position behind which it begins")
	why.flags(cmd, "actor", false)
	completeFlag(cmd, "namespace", a.completeNamespaces)
	completeFlag(cmd, "from", oneOfWords(client.EventsFromBeginning, client.EventsFromNow))
	return cmd
}

func newConsumerResetCommand(a *app) *cobra.Command {
	var to string
	var why whyFlags
	cmd := a.consumerCommand("reset", "Put a consumer somewhere else", func(ctx context.Context, c *client.Client, name string) error {
		e, err := c.ResetEventConsumer(ctx, name, client.EventReset{To: to, Reason: why.reason, Actor: why.actor})
		if err != nil {
			return err
		}
		return a.emit(e, func() { a.printf("event consumer %s goes on behind position %d\n", oneLine(e.Name), e.Position) })
	})
	cmd.Long = `Puts a consumer somewhere else, and takes from whoever reads for it what is in
hand. What lies behind its new place is read once more.`
	cmd.Flags().StringVar(&to, "to", "", "beginning, now, or the position behind which it goes on")
	why.flags(cmd, "actor", true)
	completeFlag(cmd, "to", oneOfWords(client.EventsFromBeginning, client.EventsFromNow))
	required(cmd, "to")
	return cmd
}

func newConsumerDeleteCommand(a *app) *cobra.Command {
	var why whyFlags
	var yes bool
	cmd := a.consumerCommand("delete", "Forget a consumer and its place; events stay", func(ctx context.Context, c *client.Client, name string) error {
		if !yes {
			return hinted{usagef("consumers delete forgets the consumer's place"), "confirm with --yes"}
		}
		e, err := c.DeleteEventConsumer(ctx, name, client.Why{Reason: why.reason, Actor: why.actor})
		if err != nil {
			return err
		}
		return a.emit(e, func() { a.printf("event consumer %s: deleted\n", oneLine(e.Name)) })
	})
	why.flags(cmd, "actor", false)
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, do it")
	return cmd
}

// completeConsumers offers the consumers that the server knows.
func (a *app) completeConsumers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeFirst(cmd, args, func(ctx context.Context, c *client.Client) (words []string, err error) {
		list, err := c.EventConsumers(ctx)
		if err != nil {
			return nil, err
		}
		for i := range list.Consumers {
			words = append(words, list.Consumers[i].Name)
		}
		return words, nil
	})
}
