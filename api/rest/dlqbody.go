package rest

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
)

const (
	// maxNotes bounds the notes of an investigation.
	maxNotes = 2000
	// maxPurgeAge keeps an age inside of time.Duration.
	maxPurgeAge = 10 * 366 * 24 * time.Hour
)

// dlqUpdateBody decodes a client.DLQUpdate.
type dlqUpdateBody struct {
	ResolutionStatus *string         `json:"resolution_status"`
	ResolutionNotes  *string         `json:"resolution_notes"`
	ResolvedBy       *string         `json:"resolved_by"`
	Metadata         json.RawMessage `json:"metadata"`
}

func (b *dlqUpdateBody) update() (u store.DeadLetterUpdate, err error) {
	if b.ResolutionStatus != nil {
		if u.Resolution, err = resolutionNamed(*b.ResolutionStatus); err != nil {
			return u, unprocessable("resolution_status: " + err.Error())
		}
		if u.Resolution == nil {
			return u, unprocessable("resolution_status must not be empty")
		}
	}
	var c checked
	if u.Notes = b.ResolutionNotes; u.Notes != nil {
		c.text("resolution_notes", *u.Notes, maxNotes)
	}
	if u.By = b.ResolvedBy; u.By != nil {
		c.text("resolved_by", *u.By, orchestration.MaxTextLength)
	}
	u.Metadata = c.object("metadata", b.Metadata)
	return u, c.err()
}

// dlqAddBody decodes a client.DLQAdd.
type dlqAddBody struct {
	TaskUUID *string         `json:"task_uuid"`
	Reason   *string         `json:"reason"`
	Actor    *string         `json:"actor"`
	Metadata json.RawMessage `json:"metadata"`
}

// dlqPurgeBody decodes a client.DLQPurge.
type dlqPurgeBody struct {
	OlderThanSeconds *int64  `json:"older_than_seconds"`
	Limit            *int    `json:"limit"`
	Reason           *string `json:"reason"`
	Actor            *string `json:"actor"`
	DryRun           *bool   `json:"dry_run"`
}

// purging is a purge that may be done.
type purging struct {
	olderThan     time.Duration
	limit         int
	dry           bool
	reason, actor string
}

func (b *dlqPurgeBody) purge() (p purging, err error) {
	var c checked
	switch age := b.OlderThanSeconds; {
	case age == nil:
		c.missing = append(c.missing, "older_than_seconds")
	case *age < 0 || *age > int64(maxPurgeAge/time.Second):
		c.add("older_than_seconds must be between 0 and %d", int64(maxPurgeAge/time.Second))
	default:
		p.olderThan = time.Duration(*age) * time.Second
	}
	p.limit = c.within("limit", b.Limit, 1, client.MaxPurgeLimit, client.DefaultPurgeLimit)
	p.reason, p.actor = c.why(b.Reason, b.Actor)
	p.dry = b.DryRun == nil || *b.DryRun
	return p, c.err()
}

// dlqReplayBody decodes a client.DLQReplay.
type dlqReplayBody struct {
	EntryUUID *string         `json:"dlq_entry_uuid"`
	Filter    json.RawMessage `json:"filter"`
	Reason    *string         `json:"reason"`
	Actor     *string         `json:"actor"`
	Context   json.RawMessage `json:"context"`
	PerSecond *float64        `json:"per_second"`
	Limit     *int            `json:"limit"`
	DryRun    *bool           `json:"dry_run"`
}

// one reads the replay of one entry, carried out unless dry is set.
func (b *dlqReplayBody) one() (entry uuid.UUID, r orchestration.Replay, dry bool, err error) {
	var c checked
	entry = c.id("dlq_entry_uuid", b.EntryUUID)
	r.Reason, r.Actor = c.why(b.Reason, b.Actor)
	if context := c.object("context", b.Context); context != nil {
		r.Edit = &orchestration.ContextEdit{Context: context}
	}
	if !absent(b.Filter) || b.PerSecond != nil || b.Limit != nil {
		c.add("filter, per_second and limit are for many entries; give them or dlq_entry_uuid")
	}
	return entry, r, b.DryRun != nil && *b.DryRun, c.err()
}

// many reads the replay of the entries that match a filter; it must end within room.
func (b *dlqReplayBody) many(room time.Duration) (r orchestration.ReplayMany, err error) {
	if absent(b.Filter) {
		return r, unprocessable("missing field: dlq_entry_uuid or filter")
	}
	r.DryRun = b.DryRun == nil || *b.DryRun
	var c checked
	r.Reason, r.Actor = c.why(b.Reason, b.Actor)
	c.only("context", len(b.Context) > 0, "", "dlq_entry_uuid")
	r.Limit = c.within("limit", b.Limit, 1, client.MaxReplayLimit, client.DefaultReplayLimit)
	r.PerSecond = client.DefaultReplayRate
	if b.PerSecond != nil {
		r.PerSecond = *b.PerSecond
	}
	switch needs := float64(r.Limit) / r.PerSecond; {
	case !(r.PerSecond > 0 && r.PerSecond <= client.MaxReplayRate):
		c.add("per_second must be above 0 and at most %g", client.MaxReplayRate)
	case !r.DryRun && needs > room.Seconds():
		c.add("%d tasks at %g per second take %.0f s, and a request may take %.0f s; replay them in parts", r.Limit, r.PerSecond, needs, room.Seconds())
	}
	if r.Filter, err = b.filter(&c); err != nil {
		return r, err
	}
	r.Filter.Limit = r.Limit
	return r, c.err()
}

func (b *dlqReplayBody) filter(c *checked) (f store.DeadLetterFilter, err error) {
	if err := knownKeys("filter", b.Filter, "resolution_status", "dlq_reason", "namespace", "task_name", "since", "until"); err != nil {
		return f, err
	}
	var w client.DLQFilter
	if err := decode(b.Filter, &w); err != nil {
		return f, err
	}
	if w == (client.DLQFilter{}) {
		c.add("filter must have a condition: resolution_status (Pending), dlq_reason, namespace, task_name, since or until")
	}
	if w.ResolutionStatus != "" && w.ResolutionStatus != client.ResolutionPending && w.ResolutionStatus != snake(client.ResolutionPending) {
		c.add("filter.resolution_status can only be Pending: closed entries are replayed one by one")
	}
	pending := store.ResolutionPending
	f.Resolution = &pending
	if f.Reason, err = reasonNamed(w.DLQReason); err != nil {
		return f, unprocessable("filter.dlq_reason: " + err.Error())
	}
	f.Namespace = c.text("filter.namespace", w.Namespace, orchestration.MaxNameLength)
	f.Name = c.text("filter.task_name", w.TaskName, orchestration.MaxNameLength)
	if w.Since != nil {
		f.Since = &w.Since.Time
	}
	if w.Until != nil {
		f.Until = &w.Until.Time
	}
	return f, nil
}
