package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tasker-go/tasker/client"
)

// scheduleOptions are the flags that say what a schedule does.
type scheduleOptions struct {
	template, version string
	cron, timeZone    string
	input             string
	priority          int
	tags              []string
	catchUp, overlap  string
	maxCatchUp        int
	jitter            time.Duration
	maxAttempts       int
	retryDelays       []string
	dryRun            bool
	why               whyFlags
}

func (o *scheduleOptions) flags(a *app, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.template, "template", "", "name of the template")
	f.StringVarP(&o.version, "version", "v", "1.0.0", "version of the template")
	f.StringVar(&o.cron, "cron", "", "five fields, @hourly, @daily, @weekly, @monthly, @yearly, or @every with a duration")
	f.StringVarP(&o.timeZone, "time-zone", "z", "UTC", "IANA name of the time zone, such as Europe/Berlin")
	f.StringVarP(&o.input, "input", "i", "{}", "context of every task as a JSON object, @file, or - for stdin")
	f.IntVarP(&o.priority, "priority", "p", 0, "priority of the tasks, -100 to 100; higher goes first; 0 for the template's")
	f.StringArrayVar(&o.tags, "tag", nil, "tag of the tasks; may be repeated")
	f.StringVar(&o.catchUp, "catch-up", client.CatchUpSkip, "runs that were missed: skip them, make one for all, or all")
	f.IntVar(&o.maxCatchUp, "max-catch-up", client.DefaultMaxCatchUp, "how many missed runs are made up for with --catch-up all, up to 1000")
	f.StringVar(&o.overlap, "overlap", client.OverlapAllow, "while the task before is alive: allow a run, or skip it")
	f.DurationVar(&o.jitter, "jitter", 0, "let tasks begin up to so much later, at most 1h")
	f.IntVar(&o.maxAttempts, "max-attempts", 0, "executions of each retryable step of the tasks; 0 for the template's")
	f.StringSliceVar(&o.retryDelays, "retry-delays", nil, "exact delays before each further execution, such as 10s,5m; in place of the template's")
	f.BoolVar(&o.dryRun, "dry-run", false, "only check it, and show when it would run")
	o.why.flags(cmd, "actor", false)
	completeFlag(cmd, "template", a.completeNames)
	completeFlag(cmd, "version", a.completeTemplates(func(t client.TemplateSummary) string { return t.Version }))
	completeFlag(cmd, "catch-up", oneOfWords(client.CatchUpSkip, client.CatchUpOne, client.CatchUpAll))
	completeFlag(cmd, "overlap", oneOfWords(client.OverlapAllow, client.OverlapSkip))
}

// check finds what the server need not be asked about.
func (o *scheduleOptions) check() error {
	if o.jitter < 0 || o.jitter > client.MaxJitterSeconds*time.Second || o.jitter%time.Second != 0 {
		return usagef("--jitter must be whole seconds, at most 1h")
	}
	if o.maxCatchUp < 1 || o.maxCatchUp > client.MaxCatchUp {
		return usagef("--max-catch-up must be between 1 and %d", client.MaxCatchUp)
	}
	return checkPriority(o.priority)
}

func newScheduleCreateCommand(a *app) *cobra.Command {
	var o scheduleOptions
	var namespace string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create tasks again and again from a template",
		Long: `Creates a schedule and shows when it runs next; with --dry-run it is only checked
and shown. A time that clocks jump over runs at the first moment after the gap, a
time that they show twice runs the first time.`,
		Example: "  tasker-ctl schedule create nightly --cron '30 2 * * *' -z Europe/Berlin -n payments --template settle\n" +
			"  tasker-ctl schedule create poll --cron '@every 5m' -n feeds --template fetch -i '{\"feed\": 7}' --overlap skip\n" +
			"  tasker-ctl schedule create month --cron '0 6 1 * *' -n reports --template month --catch-up one --dry-run",
		Args: arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			context, err := a.readObject(o.input)
			if err != nil {
				return err
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			s, err := c.CreateSchedule(cmd.Context(), client.ScheduleRequest{
				Name: args[0], Namespace: namespace, Template: o.template, Version: o.version, Cron: o.cron, TimeZone: o.timeZone, Context: context,
				Priority: o.priority, Tags: o.tags, CatchUp: o.catchUp, MaxCatchUp: o.maxCatchUp, Overlap: o.overlap,
				JitterSeconds: int(o.jitter / time.Second), MaxAttempts: o.maxAttempts, RetryDelays: o.retryDelays, Actor: o.why.actor, Reason: o.why.reason, DryRun: o.dryRun})
			if err != nil {
				return unreachable(orchestrator, explainSchedule(err))
			}
			return a.emit(s, func() { a.showChanged("created", s, o.dryRun) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the schedule and its template")
	completeFlag(cmd, "namespace", a.completeNamespaces)
	o.flags(a, cmd)
	required(cmd, "cron", "template")
	return cmd
}

// explainSchedule adds what can be done about a schedule that was refused.
func explainSchedule(err error) error {
	switch {
	case client.IsNotFound(err):
		return hinted{err, "tasker-ctl template list shows what there is"}
	case client.IsConflict(err):
		return hinted{err, "tasker-ctl schedule update changes what it says"}
	}
	return err
}

// showChanged tells what a schedule has become and when it runs next.
func (a *app) showChanged(what string, s *client.Schedule, dry bool) {
	id := s.ScheduleID
	if dry {
		what, id = "would be "+what, "nothing was done"
	}
	a.printf("schedule %s %s (%s)\n", oneLine(s.Namespace+"/"+s.Name), what, id)
	a.showNextRuns("next runs in "+s.TimeZone, s.Paused, s.NextRuns)
}

func newScheduleUpdateCommand(a *app) *cobra.Command {
	var o scheduleOptions
	cmd := &cobra.Command{
		Use:   "update SCHEDULE",
		Short: "Change what a schedule says; what is not named stays",
		Long: `Changes what a schedule says; what is not named stays. With another expression or
time zone its next run is counted from now.`,
		Args: arguments("SCHEDULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			u, err := o.update(a, cmd.Flags())
			if err != nil {
				return err
			}
			return a.withSchedule(cmd.Context(), args[0], func(c *client.Client, id string) error {
				s, err := c.UpdateSchedule(cmd.Context(), id, u)
				if err != nil {
					return err
				}
				return a.emit(s, func() { a.showChanged("changed", s, o.dryRun) })
			})
		},
		ValidArgsFunction: a.completeSchedules,
	}
	o.flags(a, cmd)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "actor" {
			f.DefValue = "" // what is not named stays
		}
	})
	return cmd
}

// update is what the flags that were given change.
func (o *scheduleOptions) update(a *app, f *pflag.FlagSet) (u client.ScheduleUpdate, err error) {
	some := false
	given := func(flag string) bool {
		some = some || f.Changed(flag)
		return f.Changed(flag)
	}
	for _, t := range []struct {
		flag  string
		value *string
		to    **string
	}{{"template", &o.template, &u.Template}, {"version", &o.version, &u.Version}, {"cron", &o.cron, &u.Cron}, {"time-zone", &o.timeZone, &u.TimeZone},
		{"catch-up", &o.catchUp, &u.CatchUp}, {"overlap", &o.overlap, &u.Overlap}} {
		if given(t.flag) {
			*t.to = t.value
		}
	}
	if given("priority") {
		u.Priority = &o.priority
	}
	if given("max-catch-up") {
		u.MaxCatchUp = &o.maxCatchUp
	}
	if given("jitter") {
		seconds := int(o.jitter / time.Second)
		u.JitterSeconds = &seconds
	}
	if given("tag") {
		u.Tags = &o.tags
	}
	if given("max-attempts") {
		u.MaxAttempts = &o.maxAttempts
	}
	if given("retry-delays") {
		u.RetryDelays = &o.retryDelays
	}
	if given("input") {
		if u.Context, err = a.readObject(o.input); err != nil {
			return u, err
		}
	}
	if !some {
		return u, usagef("schedule update needs something to change, such as --cron or --input")
	}
	u.Actor, u.Reason, u.DryRun = o.why.actor, o.why.reason, o.dryRun
	return u, nil
}

func newSchedulePauseCommand(a *app) *cobra.Command {
	var why whyFlags
	cmd := a.scheduleCommand("pause", "Keep a schedule from running", func(ctx context.Context, c *client.Client, id string) error {
		s, err := c.PauseSchedule(ctx, id, client.Why{Reason: why.reason, Actor: why.actor})
		if err != nil {
			return err
		}
		return a.emit(s, func() { a.printf("schedule %s: paused\n", oneLine(s.Namespace+"/"+s.Name)) })
	})
	why.flags(cmd, "actor", true)
	return cmd
}

func newScheduleResumeCommand(a *app) *cobra.Command {
	var why whyFlags
	cmd := a.scheduleCommand("resume", "Let a schedule run again", func(ctx context.Context, c *client.Client, id string) error {
		s, err := c.ResumeSchedule(ctx, id, client.Why{Reason: why.reason, Actor: why.actor})
		if err != nil {
			return err
		}
		return a.emit(s, func() { a.showChanged("resumed", s, false) })
	})
	cmd.Long = `Lets a schedule run again. Runs that it would have made meanwhile were missed:
its catch-up policy says whether they are made up for.`
	why.flags(cmd, "actor", false)
	return cmd
}

func newScheduleDeleteCommand(a *app) *cobra.Command {
	var why whyFlags
	var yes bool
	cmd := a.scheduleCommand("delete", "Forget a schedule; its tasks stay", func(ctx context.Context, c *client.Client, id string) error {
		s, err := c.DeleteSchedule(ctx, id, client.Why{Reason: why.reason, Actor: why.actor})
		if err != nil {
			return err
		}
		return a.emit(s, func() { a.printf("schedule %s: deleted\n", oneLine(s.Namespace+"/"+s.Name)) })
	})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !yes {
			return hinted{usagef("schedule delete forgets the schedule"), "confirm with --yes, or see schedule pause"}
		}
		return run(cmd, args)
	}
	why.flags(cmd, "actor", false)
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, do it")
	return cmd
}

func newScheduleRunCommand(a *app) *cobra.Command {
	var why whyFlags
	cmd := a.scheduleCommand("run", "Make a run now, beside those that are due", func(ctx context.Context, c *client.Client, id string) error {
		run, err := c.RunSchedule(ctx, id, client.Why{Reason: why.reason, Actor: why.actor})
		if err != nil {
			return err
		}
		return a.emit(run, func() { a.printf("created task %s\n", run.TaskUUID) })
	})
	cmd.Long = `Makes a run now, beside those that are due, and also while the schedule is paused.
One with --overlap skip refuses it while the task of its last run is alive.`
	why.flags(cmd, "actor", false)
	return cmd
}
