package main

import (
	"context"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

func newScheduleCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schedule",
		Aliases: []string{"schedules"},
		Short:   "Create tasks again and again, by cron expressions and time zones",
		Long: `A schedule creates a task each time that a cron expression names, in a time zone.
The fleet makes each run once, whatever the number of orchestrators.

A schedule is named by its UUID or as NAMESPACE/NAME.`,
	}
	cmd.AddCommand(newScheduleCreateCommand(a), newScheduleListCommand(a), newScheduleShowCommand(a), newScheduleUpdateCommand(a),
		newSchedulePauseCommand(a), newScheduleResumeCommand(a), newScheduleDeleteCommand(a), newScheduleRunCommand(a), newScheduleNextCommand(a))
	return cmd
}

// withSchedule finds a schedule by its reference and does something with its
// UUID.
func (a *app) withSchedule(ctx context.Context, ref string, do func(c *client.Client, id string) error) error {
	id, err := uuid.Parse(ref)
	namespace, name, named := strings.Cut(ref, "/")
	if err != nil && (!named || namespace == "" || name == "") {
		return usagef("%q is neither the UUID of a schedule nor NAMESPACE/NAME", ref)
	}
	c, clientErr := a.client(orchestrator)
	if clientErr != nil {
		return clientErr
	}
	if err == nil {
		return unreachable(orchestrator, do(c, id.String()))
	}
	found, err := c.Schedules(ctx, client.ScheduleListOptions{Namespace: namespace, Name: name})
	if err != nil {
		return unreachable(orchestrator, err)
	}
	if len(found.Schedules) != 1 {
		return hinted{coded{usagef("there is no schedule %s", oneLine(ref)), exitNotFound}, "tasker-ctl schedule list shows what there is"}
	}
	return unreachable(orchestrator, do(c, found.Schedules[0].ScheduleID))
}

// scheduleCommand is a command about one schedule.
func (a *app) scheduleCommand(name, short string, do func(ctx context.Context, c *client.Client, id string) error) *cobra.Command {
	return &cobra.Command{
		Use:   name + " SCHEDULE",
		Short: short,
		Args:  arguments("SCHEDULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSchedule(cmd.Context(), args[0], func(c *client.Client, id string) error { return do(cmd.Context(), c, id) })
		},
		ValidArgsFunction: a.completeSchedules,
	}
}

func newScheduleListCommand(a *app) *cobra.Command {
	var o client.ScheduleListOptions
	var paused bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List schedules by namespace and name",
		Args:  arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.PerPage < 1 || o.PerPage > client.MaxSchedulesPerPage {
				return hinted{usagef("--limit must be between 1 and %d", client.MaxSchedulesPerPage), "see more with --page"}
			}
			if o.Page < 1 {
				return usagef("--page must be 1 or more")
			}
			if cmd.Flags().Changed("paused") {
				o.Paused = &paused
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			list, err := c.Schedules(cmd.Context(), o)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(list, func() { a.showSchedules(list) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.Namespace, "namespace", "n", "", "only schedules of this namespace")
	f.StringVar(&o.Template, "template", "", "only schedules of this template")
	f.BoolVar(&paused, "paused", false, "only those that are paused; --paused=false for the others")
	f.IntVarP(&o.PerPage, "limit", "l", 25, "how many, up to 100")
	f.IntVar(&o.Page, "page", 1, "which page, from 1")
	completeFlag(cmd, "namespace", a.completeNamespaces)
	completeFlag(cmd, "template", a.completeNames)
	return cmd
}

func (a *app) showSchedules(list *client.ScheduleList) {
	t := a.newTable("SCHEDULE", "TEMPLATE", "CRON", "TIME ZONE", "STATE", "NEXT RUN", "LAST RUN", "LAST ERROR")
	for i := range list.Schedules {
		s := &list.Schedules[i]
		next := any(nil)
		if !s.Paused {
			next = instant(&s.NextRunAt)
		}
		t.row(s.Namespace+"/"+s.Name, s.Template+":"+s.Version, s.Cron, s.TimeZone, scheduleState(s), next, instant(s.LastRunAt), clip(text(s.LastError), 40))
	}
	t.write(a.stdout)
	if p := list.Pagination; p.HasNext {
		a.printf("page %d of %d; %d schedules\n", p.Page, p.TotalPages, p.TotalCount)
	}
}

func scheduleState(s *client.Schedule) cell {
	if s.Paused {
		return cell{"paused", yellow}
	}
	return cell{"running", green}
}

func newScheduleShowCommand(a *app) *cobra.Command {
	cmd := a.scheduleCommand("show", "Show a schedule and its next runs", func(ctx context.Context, c *client.Client, id string) error {
		s, err := c.Schedule(ctx, id)
		if err != nil {
			return err
		}
		return a.emit(s, func() { a.showSchedule(s) })
	})
	cmd.Aliases = []string{"get"}
	return cmd
}

func (a *app) showSchedule(s *client.Schedule) {
	t := a.newPairs()
	t.row("schedule", s.Namespace+"/"+s.Name)
	t.row("id", s.ScheduleID)
	t.row("template", s.Template+":"+s.Version)
	t.row("cron", s.Cron)
	t.row("time zone", s.TimeZone)
	t.row("state", scheduleState(s))
	if s.Paused {
		t.row("paused", instant(s.PausedAt))
		t.row("paused by", text(s.PausedBy))
		t.row("reason", text(s.PauseReason))
	}
	catchUp := s.CatchUp
	if catchUp == client.CatchUpAll {
		catchUp = "all, up to " + counted(s.MaxCatchUp, "run")
	}
	t.row("catch up", catchUp)
	t.row("overlap", s.Overlap)
	t.row("jitter", seconds(duration(float64(s.JitterSeconds))))
	t.row("priority", s.Priority)
	if s.MaxAttempts > 0 {
		t.row("attempts", s.MaxAttempts)
	}
	if len(s.RetryDelays) > 0 {
		t.row("retries", strings.Join(s.RetryDelays, ","))
	}
	t.row("tags", strings.Join(s.Tags, ","))
	t.row("context", clip(shownJSON(s.Context), 200))
	t.row("last run", instant(s.LastRunAt))
	t.row("last task", text(s.LastTaskUUID))
	t.row("last error", text(s.LastError))
	t.row("created", instant(&s.CreatedAt))
	t.row("changed", instant(&s.UpdatedAt))
	t.write(a.stdout)
	a.showNextRuns("\nnext runs", s.Paused, s.NextRuns)
}

// showNextRuns lists runs to come as clocks in the time zone and in UTC show
// them.
func (a *app) showNextRuns(heading string, paused bool, runs []client.NextRun) {
	if paused {
		heading += " (none before it is resumed)"
	}
	a.printf("%s:\n", heading)
	t := a.newPairs()
	for i := range runs {
		t.row("  "+runs[i].Local, instant(&runs[i].At), "in "+seconds(max(runs[i].At.Sub(a.now()), 0)))
	}
	t.write(a.stdout)
}

func newScheduleNextCommand(a *app) *cobra.Command {
	var count int
	cmd := a.scheduleCommand("next", "Tell when a schedule runs next", func(ctx context.Context, c *client.Client, id string) error {
		if count < 1 || count > client.MaxNextRuns {
			return usagef("--count must be between 1 and %d", client.MaxNextRuns)
		}
		n, err := c.NextRuns(ctx, id, count)
		if err != nil {
			return err
		}
		return a.emit(n, func() { a.showNextRuns("next runs in "+n.TimeZone, n.Paused, n.Runs) })
	})
	cmd.Flags().IntVar(&count, "count", client.DefaultNextRuns, "how many, up to 100")
	return cmd
}

// completeSchedules offers the schedules that the server knows.
func (a *app) completeSchedules(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeFirst(cmd, args, func(ctx context.Context, c *client.Client) (words []string, err error) {
		list, err := c.Schedules(ctx, client.ScheduleListOptions{PerPage: client.MaxSchedulesPerPage})
		if err != nil {
			return nil, err
		}
		for i := range list.Schedules {
			words = append(words, list.Schedules[i].Namespace+"/"+list.Schedules[i].Name)
		}
		return words, nil
	})
}
