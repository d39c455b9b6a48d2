package rest

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// scheduleBody decodes a client.ScheduleRequest and a client.ScheduleUpdate; nil pointers
// are missing fields.
type scheduleBody struct {
	Name          *string         `json:"name"`
	Namespace     *string         `json:"namespace"`
	Template      *string         `json:"template"`
	Version       *string         `json:"version"`
	Cron          *string         `json:"cron"`
	TimeZone      *string         `json:"time_zone"`
	Context       json.RawMessage `json:"context"`
	Priority      *int            `json:"priority"`
	Tags          *[]string       `json:"tags"`
	CatchUp       *string         `json:"catch_up"`
	MaxCatchUp    *int            `json:"max_catch_up"`
	Overlap       *string         `json:"overlap"`
	JitterSeconds *int            `json:"jitter_seconds"`
	MaxAttempts   *int            `json:"max_attempts"`
	RetryDelays   *[]string       `json:"retry_delays"`
	Actor         string          `json:"actor"`
	Reason        string          `json:"reason"`
	DryRun        bool            `json:"dry_run"`
}

// definition reads a new schedule. It checks that each part can be stored; the engine
// checks the rest.
func (b *scheduleBody) definition(s *store.Schedule) error {
	var c checked
	s.Name = c.required("name", b.Name, orchestration.MaxNameLength)
	s.Namespace = c.required("namespace", b.Namespace, orchestration.MaxNameLength)
	for _, f := range []struct {
		name  string
		value *string
	}{{"template", b.Template}, {"version", b.Version}, {"cron", b.Cron}} {
		if f.value == nil {
			c.missing = append(c.missing, f.name)
		}
	}
	b.apply(&c, s)
	b.checkWhy(&c)
	return c.err()
}

// change reads the change of a schedule.
func (b *scheduleBody) change() (func(s *store.Schedule), error) {
	var c checked
	if b.Name != nil || b.Namespace != nil {
		c.add("name and namespace cannot be changed")
	}
	var tried store.Schedule
	if !b.apply(&c, &tried) {
		c.add("want at least one of template, version, cron, time_zone, context, priority, tags, catch_up, max_catch_up, overlap, jitter_seconds, max_attempts, retry_delays")
	}
	b.checkWhy(&c)
	return func(s *store.Schedule) { b.apply(&checked{}, s) }, c.err()
}

func (b *scheduleBody) checkWhy(c *checked) {
	c.text("reason", b.Reason, orchestration.MaxReasonLength)
	c.text("actor", b.Actor, orchestration.MaxTextLength)
}

// apply sets the given fields and reports whether there are any.
func (b *scheduleBody) apply(c *checked, s *store.Schedule) (some bool) {
	text := func(name string, value *string, limit int, to *string) {
		if value != nil {
			some, *to = true, c.required(name, value, limit)
		}
	}
	text("template", b.Template, orchestration.MaxNameLength, &s.Template)
	text("version", b.Version, orchestration.MaxVersionLength, &s.Version)
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
	some = b.applyRetries(c, s) || some
	return b.applyPolicy(c, s) || some
}

// applyRetries sets the retries of the tasks; 0 and an empty list mean the template's.
func (b *scheduleBody) applyRetries(c *checked, s *store.Schedule) (some bool) {
	if b.MaxAttempts != nil {
		some, s.MaxAttempts = true, c.within("max_attempts", b.MaxAttempts, 0, workflow.MaxMaxAttempts, 0)
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

func (b *scheduleBody) applyPolicy(c *checked, s *store.Schedule) (some bool) {
	if b.CatchUp != nil {
		policy, known := schedule.ParseCatchUp(*b.CatchUp)
		if !known {
			c.add("catch_up must be one of %s", strings.Join(schedule.CatchUpNames(), ", "))
		}
		some, s.CatchUp = true, policy
	}
	if b.MaxCatchUp != nil {
		some, s.MaxCatchUp = true, c.within("max_catch_up", b.MaxCatchUp, 1, schedule.MaxCatchUp, 0)
	}
	if b.Overlap != nil {
		policy, known := schedule.ParseOverlap(*b.Overlap)
		if !known {
			c.add("overlap must be one of %s", strings.Join(schedule.OverlapNames(), ", "))
		}
		some, s.Overlap = true, policy
	}
	if b.JitterSeconds != nil {
		seconds := c.within("jitter_seconds", b.JitterSeconds, 0, int(orchestration.MaxJitter/time.Second), 0)
		some, s.Jitter = true, time.Duration(seconds)*time.Second
	}
	return some
}

// why returns actor and reason, by default over the API.
func (b *scheduleBody) why(actor, reason string) orchestration.Why {
	w := orchestration.Why{Actor: actor, Reason: reason, DryRun: b.DryRun}
	if strings.TrimSpace(b.Actor) != "" {
		w.Actor = b.Actor
	}
	if strings.TrimSpace(b.Reason) != "" {
		w.Reason = b.Reason
	}
	return w
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
		id := s.LastTask.String()
		w.LastTaskUUID = &id
	}
	return w
}
