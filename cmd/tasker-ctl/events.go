package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

func newEventsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "events",
		Aliases: []string{"event"},
		Short:   "Show durable domain events and who reads them",
		Long: `Steps publish domain events, as their templates declare. Durable ones are kept for
consumers, which have a place among them; these commands show both.`,
	}
	cmd.AddCommand(newEventsListCommand(a), newEventsTailCommand(a), newConsumersCommand(a))
	return cmd
}

// eventFlags select events.
type eventFlags struct{ client.EventListOptions }

func (o *eventFlags) flags(a *app, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.Namespace, "namespace", "n", "", "only events of this namespace")
	f.StringVar(&o.Name, "name", "", "only events of this name; * stands for any characters, as in 'payment.*'")
	f.StringVar(&o.TaskUUID, "task", "", "only events of this task")
	f.Int64Var(&o.After, "after", 0, "only events behind this position")
	completeFlag(cmd, "namespace", a.completeNamespaces)
}

func newEventsListCommand(a *app) *cobra.Command {
	var o eventFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List events by position",
		Args:  arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Limit < 1 || o.Limit > client.MaxEventsPerPage {
				return hinted{usagef("--limit must be between 1 and %d", client.MaxEventsPerPage), "see more with --after"}
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			list, err := c.Events(cmd.Context(), o.EventListOptions)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(list, func() { a.showEvents(list) })
		},
	}
	o.flags(a, cmd)
	cmd.Flags().IntVarP(&o.Limit, "limit", "l", 25, "how many, up to 1000")
	return cmd
}

func (a *app) showEvents(list *client.EventList) {
	t := a.newTable("POSITION", "AT", "NAMESPACE", "EVENT", "TASK", "STEP", "PAYLOAD")
	for i := range list.Events {
		e := &list.Events[i]
		t.row(e.Position, instant(&e.Metadata.FiredAt), e.Metadata.Namespace, e.Name, e.Metadata.TaskUUID, e.Metadata.StepName, clip(string(e.Payload), 60))
	}
	t.write(a.stdout)
	if list.More {
		a.printf("there may be more behind position %d\n", list.Next)
	}
}

func newEventsTailCommand(a *app) *cobra.Command {
	var o eventFlags
	var fromBeginning bool
	var count int
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow events as they are published",
		Long: `Follows events as they are published, those from now on unless --after or
--from-beginning says otherwise, until it is interrupted or --count of them have
come. With -o json each event is one line. It asks again every second, and moves
no consumer.`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 0 {
				return usagef("--count must not be negative")
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			o.Limit, o.FromNow = client.MaxEventsPerPage, !fromBeginning && !cmd.Flags().Changed("after")
			return unreachable(orchestrator, a.tail(cmd.Context(), c, o.EventListOptions, count))
		},
	}
	o.flags(a, cmd)
	cmd.Flags().BoolVar(&fromBeginning, "from-beginning", false, "begin with the oldest that is kept")
	cmd.Flags().IntVar(&count, "count", 0, "end after so many; 0: never")
	return cmd
}

// tailPause is the time between two questions while nothing comes.
const tailPause = time.Second

func (a *app) tail(ctx context.Context, c *client.Client, o client.EventListOptions, count int) error {
	for left := count; ; {
		list, err := c.Events(ctx, o)
		if err != nil {
			return err
		}
		o.After, o.FromNow = list.Next, false
		for i := range list.Events {
			if err := a.showEvent(&list.Events[i]); err != nil {
				return err
			}
			if left--; left == 0 {
				return nil
			}
		}
		if list.More {
			continue
		}
		timer := time.NewTimer(tailPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// showEvent writes one event as a line, or as a document.
func (a *app) showEvent(e *client.Event) error {
	switch a.global.output {
	case formatTable:
		a.printf("%d  %s  %s  %s  %s  %s\n", e.Position, oneLine(fmt.Sprint(instant(&e.Metadata.FiredAt))), oneLine(e.Metadata.Namespace), oneLine(e.Name),
			e.Metadata.TaskUUID, oneLine(clip(string(e.Payload), 200)))
		return nil
	case formatJSON:
		line, err := json.Marshal(e)
		if err == nil {
			a.printf("%s\n", line)
		}
		return err
	}
	return a.emit(e, func() {})
}
