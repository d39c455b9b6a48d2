package main

import (
	"cmp"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/internal/wording"
)

func (a *app) schedule() command {
	r := a.schedules()
	count := limits.DefaultNextRuns
	return command{
		use: "schedule", aliases: []string{"schedules"}, short: "Create tasks repeatedly, by cron expressions and time zones",
		long: `A schedule creates a task each time that a cron expression names, in a time zone.
The fleet makes each run once, whatever the number of orchestrators.

A schedule is named by its UUID or as NAMESPACE/NAME.`,
		commands: slices.Concat([]command{a.scheduleCreate(), a.scheduleUpdate(), a.scheduleList(), a.scheduleSimulate()}, a.scheduleChanges(), []command{
			{use: "show SCHEDULE", aliases: []string{"get"}, short: "Show a schedule and its next runs",
				run: ask(a, of((*api).Schedule), func(s *client.Schedule) {
					r.show(s)
					a.showNextRuns("\nnext runs", s.Paused, s.NextRuns)
				})},
			{use: "next SCHEDULE", short: "Show the next runs of a schedule",
				flags: limit(&count, limits.MaxNextRuns, "how many", also("count")),
				run: ask(a, ofWith((*api).NextRuns, &count), func(n *client.NextRuns) {
					a.showNextRuns("next runs in "+n.TimeZone, n.Paused, n.Runs)
				})},
		}),
	}
}

func (a *app) schedules() resource[client.Schedule] {
	return resource[client.Schedule]{app: a, noun: "schedule", name: scheduleName, facts: scheduleFacts}
}

// scheduleArgument is a schedule by its UUID or as NAMESPACE/NAME.
var scheduleArgument = argument{parse: parseSchedule, find: findSchedule, offer: offers(
	with((*api).Schedules, &client.ScheduleListOptions{PerPage: limits.MaxSchedulesPerPage}),
	func(l *client.ScheduleList) []client.Schedule { return l.Schedules }, scheduleName)}

// parseSchedule allows the two ways to name a schedule.
func parseSchedule(text string) (string, error) {
	if id, err := uuidOrPrefix("schedule", text); err == nil {
		return id, nil
	}
	if namespace, name, named := strings.Cut(text, "/"); !named || namespace == "" || name == "" {
		return "", invalid("schedule", text, "its UUID or NAMESPACE/NAME")
	}
	return text, nil
}

// findSchedule finds the UUID of a schedule that is named.
func findSchedule(ctx context.Context, c *api, _ []string, text string) (string, error) {
	namespace, name, named := strings.Cut(text, "/")
	if !named {
		return scheduleBegun(ctx, c, nil, text)
	}
	found, err := c.Schedules(ctx, client.ScheduleListOptions{Namespace: namespace, Name: name})
	if err != nil {
		return "", err
	}
	if len(found.Schedules) != 1 {
		missing := coded{usagef("there is no schedule %s", oneLine(text)), exitNotFound}
		return "", hinted{missing, "tasker-ctl schedule list shows what there is"}
	}
	return found.Schedules[0].ScheduleID, nil
}

// scheduleBegun finds a schedule by the beginning of its UUID.
var scheduleBegun = amongListed("schedule", "tasker-ctl schedule list shows what there is",
	func(ctx context.Context, c *api, _ []string) ([]string, error) {
		list, err := allSchedules(ctx, c, client.ScheduleListOptions{}, maxListed)
		if err != nil {
			return nil, err
		}
		return namesOf(list.Schedules, func(s *client.Schedule) string { return s.ScheduleID }), nil
	})

func scheduleName(s *client.Schedule) string { return oneLine(s.Namespace + "/" + s.Name) }

func (a *app) scheduleList() command {
	o, most := client.ScheduleListOptions{Page: 1}, 25
	return command{
		use: "list", lists: true, short: "List schedules by namespace and name",
		flags: all(
			a.namespace(&o.Namespace, "only schedules of this namespace"),
			opt(&o.Template, "template", "only schedules of this template", a.offering(byName)),
			opt(&o.Paused, "paused", "only paused schedules; --paused=false for the others"),
			limit(&most, maxListed, "how many"),
			opt(&o.Page, "page", "which page, from 1", atLeastOne),
		),
		run: ask(a, func(ctx context.Context, c *api, _ []string) (*client.ScheduleList, error) {
			if most > limits.MaxSchedulesPerPage && o.Page > 1 {
				return nil, usagef("give --page with a --limit up to %d", limits.MaxSchedulesPerPage)
			}
			return allSchedules(ctx, c, o, most)
		}, func(list *client.ScheduleList) {
			a.schedules().list(list.Schedules)
			if p := list.Pagination; p.HasNext {
				a.printf("page %d of %d; %d schedules\n", p.Page, p.TotalPages, p.TotalCount)
			}
		}),
	}
}

// allSchedules lists so many schedules, from the page on that the options name.
func allSchedules(ctx context.Context, c *api, o client.ScheduleListOptions, most int) (*client.ScheduleList, error) {
	o.PerPage = min(most, limits.MaxSchedulesPerPage)
	all, err := c.Schedules(ctx, o)
	for err == nil && most > limits.MaxSchedulesPerPage && all.Pagination.HasNext && len(all.Schedules) < most {
		o.Page = all.Pagination.Page + 1
		var next *client.ScheduleList
		if next, err = c.Schedules(ctx, o); err == nil {
			next.Schedules = append(all.Schedules, next.Schedules...)
			all = next
		}
	}
	if err != nil {
		return nil, err
	}
	all.Schedules = all.Schedules[:min(len(all.Schedules), most)]
	return all, nil
}

func scheduleFacts(s *client.Schedule) facts {
	catchUp, attempts, next := s.CatchUp, "", ""
	if catchUp == client.CatchUpAll {
		catchUp = "all, up to " + counted(s.MaxCatchUp, "run")
	}
	if s.MaxAttempts > 0 {
		attempts = strconv.Itoa(s.MaxAttempts)
	}
	if !s.Paused {
		next = instant(&s.NextRunAt)
	}
	return facts{
		{"Schedule", scheduleName(s)},
		{"id", s.ScheduleID},
		{"Template", scheduledTemplate(s)},
		{"Cron", s.Cron},
		{"Time zone", s.TimeZone},
		{"State", pausedCell(s.Paused)},
		{"paused?", s.PausedAt},
		{"paused by?", s.PausedBy},
		{"reason?", s.PauseReason},
		{"catch up", catchUp},
		{"overlap", s.Overlap},
		{"jitter", seconds(duration(float64(s.JitterSeconds)))},
		{"priority", s.Priority},
		{"attempts?", attempts},
		{"retries?", s.RetryDelays},
		{"tags", s.Tags},
		{"context", wording.Clip(shownJSON(s.Context), 200)},
		{"NEXT RUN", next},
		{"Last run", s.LastRunAt},
		{"last task", s.LastTaskUUID},
		{"LAST ERROR", wording.Clip(valueOf(s.LastError), 40)},
		{"last error", s.LastError},
		{"created", s.CreatedAt},
		{"changed", s.UpdatedAt},
	}
}

// showNextRuns lists the next runs in the time zone and in UTC.
func (a *app) showNextRuns(heading string, paused bool, runs []client.NextRun) {
	if paused {
		heading += " (none until it is resumed)"
	}
	a.printf("%s:\n", heading)
	t := a.newPairs()
	for i := range runs {
		t.row("  "+runs[i].Local, runs[i].At, "in "+seconds(max(runs[i].At.Sub(a.now()), 0)))
	}
	t.write(a.stdout)
}

// scheduleFields are what the flags say of a schedule; what is nil is not given
// and has no default.
type scheduleFields struct {
	client.ScheduleUpdate
	jitter time.Duration
}

// flags describes them; the rules are for what a new schedule cannot do without.
func (s *scheduleFields) flags(a *app, rules ...rule) flags {
	return all(
		opt(&s.Template, "template", "name of the template", append(rules, a.offering(byName))...),
		opt(&s.Version, "version", "version of the template; empty: each run has the highest that is not deprecated", a.offering(byVersion), also("v")),
		opt(&s.Cron, "cron", "five fields, @hourly, @daily, @weekly, @monthly, @yearly, or @every with a duration", rules...),
		opt(&s.TimeZone, "time-zone,z", "IANA name of the time zone, such as Europe/Berlin"),
		opt(&s.Context, "input,i", "context of every task as a JSON object, @file, or - for stdin", anObject),
		opt(&s.Priority, "priority", "priority of the tasks, -100 to 100; higher goes first; 0 for the template's", aPriority, also("p")),
		opt(&s.Tags, "tag", "tag of the tasks; may be repeated"),
		opt(&s.CatchUp, "catch-up", "missed runs: skip them, make one for all, or all",
			among(client.CatchUpSkip, client.CatchUpOne, client.CatchUpAll)),
		opt(&s.MaxCatchUp, "max-catch-up", "how many missed runs --catch-up all makes, up to 1000", between(1, schedule.MaxCatchUp)),
		opt(&s.Overlap, "overlap", "while the previous task is unfinished: allow a run, or skip it",
			among(client.OverlapAllow, client.OverlapSkip)),
		opt(&s.jitter, "jitter", "delay the start of tasks by up to this time, at most 1h",
			checked("whole seconds, at most 1h", s.readJitter)),
		opt(&s.MaxAttempts, "max-attempts", "executions of each retryable step of the tasks; 0 for the template's"),
		opt(&s.RetryDelays, "retry-delays", "exact delays before each further execution, such as 10s,5m; in place of the template's",
			withCommas),
		opt(&s.DryRun, dryRun, "only check it, and show when it would run"),
		why(&s.Reason, &s.Actor),
	)
}

func (s *scheduleFields) readJitter(string) bool {
	s.JitterSeconds = new(int(s.jitter / time.Second))
	return s.jitter >= 0 && s.jitter <= limits.MaxJitterSeconds*time.Second && s.jitter%time.Second == 0
}

// request makes a new schedule of the fields.
func (s *scheduleFields) request(namespace, name string) client.ScheduleRequest {
	return client.ScheduleRequest{
		Name: name, Namespace: namespace, Template: *s.Template, Version: valueOf(s.Version), Cron: *s.Cron, TimeZone: *s.TimeZone,
		Context: s.Context, Priority: valueOf(s.Priority), Tags: valueOf(s.Tags), CatchUp: *s.CatchUp, MaxCatchUp: *s.MaxCatchUp,
		Overlap: *s.Overlap, JitterSeconds: valueOf(s.JitterSeconds), MaxAttempts: valueOf(s.MaxAttempts), RetryDelays: valueOf(s.RetryDelays),
		Actor: s.Actor, Reason: s.Reason, DryRun: s.DryRun,
	}
}

func (a *app) scheduleCreate() command {
	s := scheduleFields{ScheduleUpdate: client.ScheduleUpdate{TimeZone: new("UTC"), Context: json.RawMessage("{}"),
		CatchUp: new(client.CatchUpSkip), MaxCatchUp: new(limits.DefaultMaxCatchUp), Overlap: new(client.OverlapAllow)}}
	var r client.ScheduleRequest
	namespace := "default"
	return command{
		use: "create NAME", short: "Create a schedule for a template",
		long: `Creates a schedule and shows when it runs next; with --dry-run it is only checked
and shown. A time that clocks jump over runs at the first moment after the gap, a
time that they show twice runs the first time.`,
		example: "  tasker-ctl schedule create nightly --cron '30 2 * * *' -z Europe/Berlin -n payments --template settle\n" +
			"  tasker-ctl schedule create poll --cron '@every 5m' -n feeds --template fetch -i '{\"feed\": 7}' --overlap skip\n" +
			"  tasker-ctl schedule create month --cron '0 6 1 * *' -n reports --template month --catch-up one --dry-run",
		flags:   all(a.namespace(&namespace, "namespace of the schedule and its template"), s.flags(a, needed)),
		check:   func(args []string) error { r = s.request(namespace, args[0]); return nil },
		explain: explainSchedule,
		run:     ask(a, with((*api).CreateSchedule, &r), func(made *client.Schedule) { a.showChanged("created", made, s.DryRun) }),
	}
}

// scheduledTemplate is the template of the runs.
func scheduledTemplate(s *client.Schedule) string {
	return s.Template + ":" + cmp.Or(s.Version, "(the current version)")
}

// explainSchedule adds what can be done about a schedule that was refused.
func explainSchedule(err error) error {
	switch {
	case client.IsNotFound(err):
		return hinted{err, "tasker-ctl template list shows what there is"}
	case client.IsConflict(err):
		return hinted{err, "tasker-ctl schedule update changes it"}
	}
	return err
}

// showChanged tells what a schedule has become and when it runs next.
func (a *app) showChanged(what string, s *client.Schedule, dry bool) {
	id := s.ScheduleID
	if dry {
		what, id = "would be "+what, "nothing was changed"
	}
	a.printf("schedule %s %s (%s)\n", scheduleName(s), what, id)
	a.showNextRuns("next runs in "+s.TimeZone, s.Paused, s.NextRuns)
}

func (a *app) scheduleUpdate() command {
	var s scheduleFields
	return command{
		use: "update SCHEDULE", short: "Change a schedule; what is not given stays",
		long: `Changes a schedule; what is not given stays. With another expression or time zone
its next run is counted from now.`,
		flags: s.flags(a),
		check: func([]string) error {
			if reflect.DeepEqual(s.ScheduleUpdate, client.ScheduleUpdate{Actor: s.Actor, Reason: s.Reason, DryRun: s.DryRun}) {
				return usagef("schedule update needs something to change, such as --cron or --input")
			}
			return nil
		},
		run: ask(a, ofWith((*api).UpdateSchedule, &s.ScheduleUpdate), func(changed *client.Schedule) {
			a.showChanged("changed", changed, s.DryRun)
		}),
	}
}

// scheduleChanges are the commands that act on a schedule as it is.
func (a *app) scheduleChanges() []command {
	said := a.schedules().said
	pause := command{use: "pause SCHEDULE", short: "Pause a schedule"}
	resume := command{use: "resume SCHEDULE", short: "Resume a schedule",
		long: `Resumes a schedule. Runs that were due while it was paused were missed: its
catch-up policy says whether they are made up for.`}
	remove := command{use: "delete SCHEDULE", short: "Delete a schedule; its tasks stay"}
	run := command{use: "run SCHEDULE", short: "Run a schedule now, in addition to its due runs",
		long: `Runs a schedule now, in addition to its due runs, and also while it is paused.
With --overlap skip the run is refused while the task of the previous run is
unfinished.`}
	return []command{
		change(a, pause, (*api).PauseSchedule, said("paused"), needed),
		change(a, resume, (*api).ResumeSchedule, func(s *client.Schedule) { a.showChanged("resumed", s, false) }),
		change(a, remove, (*api).DeleteSchedule, said("deleted")).
			confirmed("yes, do it", "schedule delete deletes the schedule", "confirm with --yes, or see schedule pause"),
		change(a, run, (*api).RunSchedule, func(run *client.ScheduleRun) { a.printf("created task %s\n", run.TaskUUID) }),
	}
}
