package orchestration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
)

// Bounds of a schedule, beside those of the requests that its runs make.
const (
	// maxScheduleContext is in bytes: one transaction carries many runs.
	maxScheduleContext = 64 << 10
	// maxJitter bounds the delay of a run.
	maxJitter = limits.MaxJitterSeconds * time.Second
	// defaultTimeZone applies to schedules that name no time zone.
	defaultTimeZone = "UTC"
	// scheduleTags are what a run adds to the tags of its task.
	scheduleTags = 1
)

const (
	// scheduleInitiator is the prefix of a schedule's name in the initiator of its
	// tasks.
	scheduleInitiator = "schedule:"
	// scheduledForTag is the prefix of a run's time in a tag of its task, in RFC 3339
	// and UTC.
	scheduledForTag = "scheduled_for:"

	scheduleSource = "tasker-schedule"
)

// repeatWindow is how long the identity of a run is kept, should its schedule ever
// reach that run again.
const repeatWindow = 31 * 24 * time.Hour

// scheduleName matches valid names of schedules: a name is part of references,
// initiators and command lines.
var scheduleName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// ScheduleBusyError says that a schedule must not run while the task of its last run
// is alive.
type ScheduleBusyError struct{ Task uuid.UUID }

// Error implements error.
func (e *ScheduleBusyError) Error() string {
	return fmt.Sprintf("the task of the run before, %s, is still alive", e.Task)
}

// complete fills in the defaults of a schedule.
func complete(s *store.Schedule) {
	s.Cron = strings.TrimSpace(s.Cron)
	if s.TimeZone == "" {
		s.TimeZone = defaultTimeZone
	}
	if len(s.Context) == 0 {
		s.Context = json.RawMessage(`{}`)
	}
	if s.CatchUp == 0 {
		s.CatchUp = schedule.CatchUpSkip
	}
	if s.MaxCatchUp == 0 {
		s.MaxCatchUp = limits.DefaultMaxCatchUp
	}
	if s.Overlap == 0 {
		s.Overlap = schedule.OverlapAllow
	}
}

// checkSchedule validates a schedule, and that a run of it would be accepted now.
func (o *Orchestrator) checkSchedule(ctx context.Context, s *store.Schedule) (*schedule.Spec, error) {
	spec, err := readSchedule(s, o.cfg.Documents)
	if err != nil {
		return nil, err
	}
	r := runOf(s, time.Unix(0, 0), "check", "")
	plan, err := submission.Template(ctx, o.store, &r)
	if err != nil {
		return nil, err
	}
	r.Schema, r.Checks = o.schema.Quiet(), o.checker
	_, err = submission.Task(ctx, &r, plan)
	return spec, err
}

// readSchedule checks what needs no template.
func readSchedule(s *store.Schedule, bounds submission.Bounds) (*schedule.Spec, error) {
	var c submission.Checker
	c.Text("name", s.Name, MaxNameLength, true)
	if s.Name != "" && !scheduleName.MatchString(s.Name) {
		c.Add("name must consist of letters, digits, dots, hyphens and underscores, and begin with a letter or digit")
	}
	c.Text("namespace", s.Namespace, MaxNameLength, true)
	c.Text("template", s.Template, MaxNameLength, true)
	c.Text("version", s.Version, MaxVersionLength, false)
	spec, err := schedule.Parse(s.Cron, s.TimeZone)
	if err != nil {
		c.Add("%s", strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", "?"), "?"))
	}
	if len(s.Tags) > submission.MaxTags-scheduleTags {
		c.Add("tags must have at most %d entries; each run adds one", submission.MaxTags-scheduleTags)
	}
	if len(s.Context) > maxScheduleContext {
		c.Add("context must have at most %d bytes", maxScheduleContext)
	}
	if s.MaxCatchUp < 1 || s.MaxCatchUp > schedule.MaxCatchUp {
		c.Add("max_catch_up must be between 1 and %d", schedule.MaxCatchUp)
	}
	if s.Jitter < 0 || s.Jitter > maxJitter || s.Jitter%time.Second != 0 {
		c.Add("jitter_seconds must be between 0 and %d", limits.MaxJitterSeconds)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	r := runOf(s, time.Unix(0, 0), "check", "")
	r.Bounds = bounds
	return spec, r.Check()
}

// runOf is the request of a run. A repetition has the same key.
func runOf(s *store.Schedule, at time.Time, key, reason string) Request {
	scheduled := at.UTC().Format(time.RFC3339)
	r := Request{
		Namespace: s.Namespace, Name: s.Template, Version: s.Version, Context: s.Context, MaxAttempts: s.MaxAttempts, RetryDelays: s.RetryDelays,
		Initiator: scheduleInitiator + s.Name, SourceSystem: scheduleSource, Reason: reason,
		Tags:                append(append(make([]string, 0, len(s.Tags)+scheduleTags), s.Tags...), scheduledForTag+scheduled),
		ParentCorrelationID: &s.UUID, IdempotencyKey: "schedule/" + s.UUID.String() + "/" + key,
	}
	if s.Priority != 0 {
		r.Priority = &s.Priority
	}
	return r
}

// dueRun is the request of a run at its time.
func dueRun(s *store.Schedule, spec *schedule.Spec, at time.Time) Request {
	reason := "scheduled for " + at.In(spec.Zone()).Format(time.RFC3339) + " (" + s.TimeZone + ")"
	r := runOf(s, at, at.UTC().Format(time.RFC3339), reason)
	r.StartIn = schedule.Spread(s.UUID, at, s.Jitter)
	return r
}

// taskOf makes the task of a run as for requests of clients.
func taskOf(ctx context.Context, due *store.DueSchedule, r *Request) (store.NewTask, error) {
	if err := r.Check(); err != nil {
		return store.NewTask{}, err
	}
	switch {
	case due.Broken != nil:
		return store.NewTask{}, unreadable(due)
	case due.Plan == nil:
		return store.NewTask{}, &UnknownTemplateError{Namespace: r.Namespace, Name: r.Name, Version: r.Version}
	}
	task, err := submission.Task(ctx, r, due.Plan)
	task.IdentityEnd = dedup.IdentityEnd{After: repeatWindow}
	return task, err
}

// unreadable says that the plan of a schedule cannot be used here.
func unreadable(due *store.DueSchedule) error {
	return fmt.Errorf("the template cannot be read: %w", due.Broken)
}

// NextRuns lists the next n runs of a schedule after it was read, paused or not.
func NextRuns(s *store.Schedule, n int) ([]time.Time, error) {
	spec, err := schedule.Parse(s.Cron, s.TimeZone)
	if err != nil {
		return nil, invalidSpec(err)
	}
	return spec.Runs(s.NextRunAt, s.ReadAt, n), nil
}

// invalidSpec reports faults of a specification as an *InvalidError.
func invalidSpec(err error) error {
	var wrong *schedule.ParseError
	if errors.As(err, &wrong) {
		return invalid("%s", wrong)
	}
	return err
}
