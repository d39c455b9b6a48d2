package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/workflow"
)

// EventFilter selects domain events; zero values select everything.
type EventFilter struct {
	Namespace string
	Pattern   string // of the name, see workflow.CheckEventPattern
	Task      uuid.UUID
	After     int64 // the position to continue after
	Limit     int   // 1–1,000
}

// EventPage is a piece of a list of events, in the order of their positions.
type EventPage struct {
	Events []Event
	// Next is the position to continue after. It may lie behind the last event, if others
	// were skipped, or be After if there are none yet.
	Next int64
	More bool // there are more, though perhaps no matching ones
}

// eventScan is how many events one call passes over at most.
const eventScan = 1000

// eventFields are those of Event, of e.
const eventFields = `e.event_uuid, e.position, e.namespace_name, e.name, e.version, e.payload, e.metadata, e.task_uuid, e.step_no, e.step_name, e.attempt,
       e.outcome, e.correlation_id, e.fired_at, e.fired_by, e.run`

// listEvents reads events from a position on, namespace by namespace, and selects those
// with a matching name. It returns how far it came even without a match.
// Index: domain_events_by_namespace.
const listEvents = `
with w as materialized (
    select x.*, n.name as namespace_name from tasker.namespaces n
    cross join lateral (select * from tasker.domain_events where namespace_id = n.namespace_id and position > $2 order by position limit $4) x
    where $1 = '' or n.name = $1
    order by x.position limit $4
)
select s.upto, s.seen, ` + eventFields + `
from (select coalesce(max(position), $2) as upto, count(*)::int as seen from w) s
left join lateral (select * from w where tasker.event_matches(w.name, $3) order by position limit $5) e on true
order by e.position`

// listTaskEvents is the same for the events of one task.
// Index: domain_events_by_task.
const listTaskEvents = `
with w as materialized (
    select x.*, n.name as namespace_name from tasker.domain_events x
    cross join lateral (select name from tasker.namespaces where namespace_id = any (array[x.namespace_id]) limit 1) n
    where x.task_uuid = $6 and x.position > $2 and ($1 = '' or n.name = $1) order by x.position limit $4
)
select s.upto, s.seen, ` + eventFields + `
from (select coalesce(max(position), $2) as upto, count(*)::int as seen from w) s
left join lateral (select * from w where tasker.event_matches(w.name, $3) order by position limit $5) e on true
order by e.position`

// Events lists domain events from a position on.
func (s *Store) Events(ctx context.Context, f EventFilter) (page EventPage, err error) {
	var patterns []string
	if f.Pattern != "" && f.Pattern != "*" {
		patterns = []string{f.Pattern}
	}
	scan := f.Limit
	if patterns != nil {
		scan = max(f.Limit, eventScan)
	}
	sql, args := listEvents, []any{f.Namespace, f.After, nonNil(patterns), scan, f.Limit}
	if f.Task != uuid.Nil {
		sql, args = listTaskEvents, append(args, f.Task)
	}
	err = s.repeatable(ctx, "events", "list the domain events", func(ctx context.Context, db *conn) error {
		page = EventPage{Events: []Event{}}
		rows, err := db.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		var seen int
		var e eventRow
		_, err = pgx.ForEachRow(rows, append([]any{&page.Next, &seen}, e.fields()...), func() error {
			if e.UUID != nil {
				page.Events = append(page.Events, e.event())
			}
			e = eventRow{}
			return nil
		})
		page.More = seen >= scan
		if n := len(page.Events); n == f.Limit {
			page.Next, page.More = page.Events[n-1].Position, true
		}
		return err
	})
	return page, err
}

// LastEvent returns the position of the newest event of a namespace, or of all if it is
// ""; 0: none.
func (s *Store) LastEvent(ctx context.Context, namespace string) (position int64, err error) {
	err = s.repeatable(ctx, "last_event", "look for the newest domain event", func(ctx context.Context, db *conn) error {
		return db.QueryRow(ctx, lastEvent, namespace).Scan(&position)
	})
	return position, err
}

// Index: domain_events_by_namespace.
const lastEvent = `
select coalesce(max(e.position), 0) from tasker.namespaces n
cross join lateral (select position from tasker.domain_events where namespace_id = n.namespace_id order by position desc limit 1) e
where $1 = '' or n.name = $1`

// eventRow is a row of eventFields; all of it may be null.
type eventRow struct {
	UUID                              *[16]byte
	Position                          *int64
	Namespace, Name, Version, FiredBy *string
	Payload, Metadata                 []byte
	Task, Correlation                 *[16]byte
	Step, Attempt, Outcome            *int16
	Run                               *int
	StepName                          *string
	FiredAt                           *time.Time
}

func (r *eventRow) fields() []any {
	return []any{&r.UUID, &r.Position, &r.Namespace, &r.Name, &r.Version, &r.Payload, &r.Metadata, &r.Task, &r.Step, &r.StepName, &r.Attempt,
		&r.Outcome, &r.Correlation, &r.FiredAt, &r.FiredBy, &r.Run}
}

// event is the row; its UUID must not be null.
func (r *eventRow) event() Event {
	e := Event{UUID: *r.UUID, Position: *r.Position, Namespace: *r.Namespace, Name: *r.Name, Version: *r.Version, Payload: append([]byte(nil), r.Payload...),
		Task: *r.Task, Step: int(*r.Step), Run: *r.Run, Attempt: int(*r.Attempt), Outcome: workflow.AttemptOutcome(*r.Outcome), CorrelationID: *r.Correlation,
		FiredAt: *r.FiredAt, FiredBy: *r.FiredBy}
	if r.Metadata != nil {
		e.Metadata = append([]byte(nil), r.Metadata...)
	}
	if r.StepName != nil {
		e.StepName = *r.StepName
	}
	return e
}
