package rest

import (
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
)

// maxNotes bounds the notes of an investigation.
const maxNotes = 2000

// investigation converts the change of an entry.
func investigation(r *request[client.DLQUpdate]) (u store.DeadLetterUpdate, err error) {
	b := &r.body
	if b.ResolutionStatus != nil {
		if u.Resolution, err = valueOf(resolutions, *b.ResolutionStatus); err != nil {
			return u, unprocessable("resolution_status: " + err.Error())
		}
		if u.Resolution == nil {
			return u, unprocessable("resolution_status must not be empty")
		}
	}
	if u.Notes = b.ResolutionNotes; u.Notes != nil {
		r.text("resolution_notes", *u.Notes, maxNotes)
	}
	if u.By = b.ResolvedBy; u.By != nil {
		u.By = new(r.signed(r.text("resolved_by", *u.By, orchestration.MaxTextLength)))
	}
	u.Metadata = r.object("metadata", b.Metadata)
	return u, r.err()
}

// replayOfOne converts the replay of one entry, carried out unless dry is set.
func replayOfOne(r *request[client.DLQReplay]) (entry uuid.UUID, again orchestration.Replay, dry bool, err error) {
	b := &r.body
	entry = r.id("dlq_entry_uuid", b.DLQEntryUUID)
	dry = b.DryRun != nil && *b.DryRun
	again.Reason, again.Actor = r.whyUnless(dry, b.Reason, b.Actor)
	if context := r.object("context", b.Context); context != nil {
		again.Edit = &orchestration.ContextEdit{Context: context}
	}
	if b.Filter != nil || r.has("per_second") || r.has("limit") {
		r.add("filter, per_second and limit are for many entries; give them or dlq_entry_uuid")
	}
	return entry, again, dry, r.err()
}

// replayOfMany converts the replay of the entries that match a filter; it must end within
// room.
func replayOfMany(r *request[client.DLQReplay], room time.Duration) (m orchestration.ReplayMany, err error) {
	b := &r.body
	if b.Filter == nil {
		return m, unprocessable("missing field: dlq_entry_uuid or filter")
	}
	m.DryRun = b.DryRun == nil || *b.DryRun
	m.Reason, m.Actor = r.whyUnless(m.DryRun, b.Reason, b.Actor)
	r.only("context", len(b.Context) > 0, "", "dlq_entry_uuid")
	m.Limit = r.within("limit", b.Limit, 1, limits.MaxReplayLimit, limits.DefaultReplayLimit)
	if m.PerSecond = b.PerSecond; !r.has("per_second") {
		m.PerSecond = limits.DefaultReplayRate
	}
	switch needs := float64(m.Limit) / m.PerSecond; {
	case !(m.PerSecond > 0 && m.PerSecond <= limits.MaxReplayRate):
		r.add("per_second must be above 0 and at most %g", limits.MaxReplayRate)
	case !m.DryRun && needs > room.Seconds():
		r.add("%d tasks at %g per second take %.0f s, and a request may take %.0f s; replay them in parts", m.Limit, m.PerSecond, needs, room.Seconds())
	}
	if m.Filter, err = r.letterFilter(b.Filter); err != nil {
		return m, err
	}
	m.Filter.Limit = m.Limit
	return m, r.err()
}

func (c *checked) letterFilter(w *client.DLQFilter) (f store.DeadLetterFilter, err error) {
	if *w == (client.DLQFilter{}) {
		c.add("filter must have a condition: resolution_status (Pending), dlq_reason, namespace, task_name, since or until")
	}
	if w.ResolutionStatus != "" && w.ResolutionStatus != client.ResolutionPending && w.ResolutionStatus != snake(client.ResolutionPending) {
		c.add("filter.resolution_status can only be Pending: closed entries are replayed one by one")
	}
	pending := store.ResolutionPending
	f.Resolution = &pending
	if f.Reason, err = valueOf(letterReasons, w.DLQReason); err != nil {
		return f, unprocessable("filter.dlq_reason: " + err.Error())
	}
	f.Namespace = c.text("filter.namespace", w.Namespace, orchestration.MaxNameLength)
	f.Name = c.text("filter.task_name", w.TaskName, orchestration.MaxNameLength)
	f.Since, f.Until = timeOf(w.Since), timeOf(w.Until)
	return f, nil
}
