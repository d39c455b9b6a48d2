package rest

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/internal/store"
)

// newSchedule is a client.ScheduleRequest in the form of the change that it makes to an
// empty schedule, so that both are checked alike.
type newSchedule struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	client.ScheduleUpdate
}

// scheduleOfRequest reads a new schedule. It checks that each part can be stored; the
// engine checks the rest.
func scheduleOfRequest(r *request[newSchedule]) (s store.Schedule) {
	s.Name = r.required("name", r.body.Name, orchestration.MaxNameLength)
	s.Namespace = r.required("namespace", r.body.Namespace, orchestration.MaxNameLength)
	r.need("template", "cron")
	r.schedule(&r.body.ScheduleUpdate, &s)
	return s
}

// changeOfSchedule reads the change of a schedule.
func changeOfSchedule(r *request[newSchedule]) func(s *store.Schedule) {
	if r.has("name") || r.has("namespace") {
		r.add("name and namespace cannot be changed")
	}
	var tried store.Schedule
	if !r.schedule(&r.body.ScheduleUpdate, &tried) {
		r.add("want at least one of template, version, cron, time_zone, context, priority, tags, catch_up, max_catch_up, overlap, jitter_seconds, max_attempts, retry_delays")
	}
	return func(s *store.Schedule) { (&checked{}).schedule(&r.body.ScheduleUpdate, s) }
}

// whyOfSchedule returns actor and reason, by default the given ones.
func (c *checked) whyOfSchedule(b *client.ScheduleUpdate, actor, reason string) orchestration.Why {
	why := c.whyOr(b.Reason, b.Actor, actor, reason)
	why.DryRun = b.DryRun
	return why
}

// schedule sets the given fields and reports whether there are any.
func (c *checked) schedule(b *client.ScheduleUpdate, s *store.Schedule) (some bool) {
	text := func(name string, value *string, limit int, to *string) {
		if value != nil {
			some, *to = true, c.filled(name, *value, limit)
		}
	}
	text("template", b.Template, orchestration.MaxNameLength, &s.Template)
	if b.Version != nil { // empty: each run has the highest that is not deprecated
		some, s.Version = true, c.text("version", *b.Version, orchestration.MaxVersionLength)
	}
	text("cron", b.Cron, schedule.MaxExpression, &s.Cron)
	text("time_zone", b.TimeZone, schedule.MaxZone, &s.TimeZone)
	if context := c.object("context", b.Context); context != nil {
		some, s.Context = true, context
	}
	if b.Priority != nil {
		some, s.Priority = true, *b.Priority
	}
	if b.Tags != nil {
		some, s.Tags = true, *b.Tags
	}
	some = c.scheduleRetries(b, s) || some
	return c.schedulePolicy(b, s) || some
}

// scheduleRetries sets the retries of the tasks; 0 and an empty list mean the template's.
func (c *checked) scheduleRetries(b *client.ScheduleUpdate, s *store.Schedule) (some bool) {
	if b.MaxAttempts != nil {
		some, s.MaxAttempts = true, c.bounded("max_attempts", *b.MaxAttempts, 0, limits.MaxAttempts)
	}
	if b.RetryDelays != nil {
		var r orchestration.Request
		if err := r.Retries(nil, *b.RetryDelays); err != nil {
			c.add("%s", err)
		}
		some, s.RetryDelays = true, r.RetryDelays
	}
	return some
}

func (c *checked) schedulePolicy(b *client.ScheduleUpdate, s *store.Schedule) (some bool) {
	if b.CatchUp != nil {
		policy, known := schedule.ParseCatchUp(*b.CatchUp)
		if !known {
			c.add("catch_up must be one of %s", strings.Join(schedule.CatchUpNames(), ", "))
		}
		some, s.CatchUp = true, policy
	}
	if b.MaxCatchUp != nil {
		some, s.MaxCatchUp = true, c.bounded("max_catch_up", *b.MaxCatchUp, 1, schedule.MaxCatchUp)
	}
	if b.Overlap != nil {
		policy, known := schedule.ParseOverlap(*b.Overlap)
		if !known {
			c.add("overlap must be one of %s", strings.Join(schedule.OverlapNames(), ", "))
		}
		some, s.Overlap = true, policy
	}
	if b.JitterSeconds != nil {
		seconds := c.bounded("jitter_seconds", *b.JitterSeconds, 0, int((limits.MaxJitterSeconds*time.Second)/time.Second))
		some, s.Jitter = true, time.Duration(seconds)*time.Second
	}
	return some
}

// scheduleOf is a schedule for the API.
func scheduleOf(s *store.Schedule) client.Schedule {
	w := client.Schedule{
		ScheduleID: s.UUID.String(), Namespace: s.Namespace, Name: s.Name, Template: s.Template, Version: s.Version, Cron: s.Cron, TimeZone: s.TimeZone,
		Context: rawOr(s.Context, "{}"), Priority: s.Priority, Tags: append([]string{}, s.Tags...), CatchUp: s.CatchUp.String(), MaxCatchUp: s.MaxCatchUp,
		Overlap: s.Overlap.String(), JitterSeconds: int(s.Jitter / time.Second), Paused: s.PausedAt != nil, PausedAt: instant(s.PausedAt),
		PausedBy: s.PausedBy, PauseReason: s.PauseReason, NextRunAt: client.Time{Time: s.NextRunAt}, LastRunAt: instant(s.LastRunAt),
		MaxAttempts: s.MaxAttempts, RetryDelays: durationsOf(s.RetryDelays), LastError: s.LastError, CreatedAt: client.Time{Time: s.CreatedAt}, UpdatedAt: client.Time{Time: s.UpdatedAt},
	}
	if s.LastTask != nil && *s.LastTask != uuid.Nil {
		w.LastTaskUUID = new(s.LastTask.String())
	}
	return w
}
