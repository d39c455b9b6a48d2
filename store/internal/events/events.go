package events

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/store/internal/pg"
	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// Log is the room of domain events. It is safe for concurrent use.
type Log struct{ db *pg.DB }

// New returns the room.
func New(db *pg.DB) *Log { return &Log{db} }

// Event is a stored durable domain event.
type Event struct {
	UUID          uuid.UUID `sql:"event_uuid"`
	Position      int64
	Namespace     string
	Name, Version string
	Payload       json.RawMessage
	Metadata      json.RawMessage // added by a publisher; nil: none
	Task          uuid.UUID       `sql:"task_uuid"`
	Step          int             `sql:"step_no"`
	Run           int             // see BatchUUID
	StepName      string          `sql:",omitzero"`
	Attempt       int
	Outcome       workflow.AttemptOutcome
	CorrelationID uuid.UUID
	FiredAt       time.Time
	FiredBy       string
}

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
const eventFields = `e.event_uuid, e.position, e.namespace_name as namespace, e.name, e.version, e.payload, e.metadata, e.task_uuid, e.step_no, e.step_name, e.attempt,
       e.outcome, e.correlation_id, e.fired_at, e.fired_by, e.run`

// listEvents reads events from a position on, namespace by namespace, and selects those
// with a matching name. It returns how far it came even without a match.
// Index: domain_events_by_namespace.
var listEvents = pg.Compile(`
with w as materialized (
    select x.*, n.name as namespace_name from tasker.namespaces n
    cross join lateral (select * from tasker.domain_events where namespace_id = n.namespace_id and position > @after order by position limit @scan) x
    where @namespace = '' or n.name = @namespace
    order by x.position limit @scan
)
select s.upto, s.seen, ` + eventFields + `
from (select coalesce(max(position), @after) as upto, count(*)::int as seen from w) s
left join lateral (select * from w where tasker.event_matches(w.name, @patterns) order by position limit @limit) e on true
order by e.position`)

// listTaskEvents is the same for the events of one task.
// Index: domain_events_by_task.
var listTaskEvents = pg.Compile(`
with w as materialized (
    select x.*, n.name as namespace_name from tasker.domain_events x
    cross join lateral (select name from tasker.namespaces where namespace_id = any (array[x.namespace_id]) limit 1) n
    where x.task_uuid = @task and x.position > @after and (@namespace = '' or n.name = @namespace) order by x.position limit @scan
)
select s.upto, s.seen, ` + eventFields + `
from (select coalesce(max(position), @after) as upto, count(*)::int as seen from w) s
left join lateral (select * from w where tasker.event_matches(w.name, @patterns) order by position limit @limit) e on true
order by e.position`)

// Events lists domain events from a position on.
func (s *Log) Events(ctx context.Context, f EventFilter) (page EventPage, err error) {
	var patterns []string
	if f.Pattern != "" && f.Pattern != "*" {
		patterns = []string{f.Pattern}
	}
	scan := f.Limit
	if patterns != nil {
		scan = max(f.Limit, eventScan)
	}
	statement, filter := listEvents, pg.Args{"namespace": f.Namespace, "after": f.After, "patterns": pg.NonNil(patterns), "scan": scan, "limit": f.Limit}
	if f.Task != uuid.Nil {
		statement, filter["task"] = listTaskEvents, f.Task
	}
	err = s.db.Repeatable(ctx, "events", "list the domain events", func(ctx context.Context, db *pg.Conn) error {
		type row struct {
			Upto  int64
			Seen  int
			Event `sql:",omitzero"` // none: a row without an event
		}
		page = EventPage{Events: []Event{}}
		seen := 0
		err := stmt.Each(ctx, db, statement.With(filter), func(r *row) error {
			if page.Next, seen = r.Upto, r.Seen; r.UUID != uuid.Nil {
				page.Events = append(page.Events, r.Event)
			}
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

// Index: domain_events_by_namespace.
var lastEvent = pg.Compile(`
select coalesce(max(e.position), 0) from tasker.namespaces n
cross join lateral (select position from tasker.domain_events where namespace_id = n.namespace_id order by position desc limit 1) e
where @namespace = '' or n.name = @namespace`)

// LastEvent returns the position of the newest event of a namespace, or of all if it is
// ""; 0: none.
func (s *Log) LastEvent(ctx context.Context, namespace string) (int64, error) {
	return pg.ReadOne[int64](ctx, s.db, "last_event", "look for the newest domain event", lastEvent.With(pg.Args{"namespace": namespace}))
}
