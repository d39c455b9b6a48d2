package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
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
	Pattern   string // of the name, see domainevent.CheckPattern
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
		err := stmt.Each(ctx, db, statement.With(filter), func(r *row) {
			if page.Next, seen = r.Upto, r.Seen; r.UUID != uuid.Nil {
				page.Events = append(page.Events, r.Event)
			}
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

// Errors of event consumers.
var (
	// ErrConsumerExists: a consumer of this name exists.
	ErrConsumerExists = errors.New("an event consumer of this name exists")
	// ErrTooManyConsumers: the limit is reached.
	ErrTooManyConsumers = errors.New("the limit of event consumers is reached")
	// ErrNamespaceConsumers: that of the namespace is.
	ErrNamespaceConsumers = errors.New("the limit of event consumers of a namespace is reached")
	// ErrConsumerBusy: another holder has claimed events of the consumer.
	ErrConsumerBusy = errors.New("another holder has claimed events of this consumer")
	// ErrConsumerLost: the events were handed to another holder.
	ErrConsumerLost = errors.New("the events were handed to another holder")
)

// EventConsumer reads the events of a namespace from its own position.
type EventConsumer struct {
	UUID      uuid.UUID `sql:"consumer_uuid"`
	Name      string
	Namespace string
	Patterns  []string // of names; none: every event
	Position  int64    // everything up to it is done
	// While events are claimed.
	Holder     *string
	LeaseUntil *time.Time
	// Unread counts events that fit, among the next 1,000 of the namespace.
	Unread                     int
	OldestUnread               *time.Time // when the first of them was published
	CreatedAt, UpdatedAt       time.Time
	LastClaimedAt, LastAckedAt *time.Time
}

// consumers selects the columns of EventConsumer. An ended lease counts as none.
const consumers = `
select c.consumer_uuid, c.name, n.name as namespace, c.patterns, c.position,
       case when c.lease_until > clock_timestamp() then c.holder end as holder,
       case when c.lease_until > clock_timestamp() then c.lease_until end as lease_until,
       u.unread, u.oldest as oldest_unread, c.created_at, c.updated_at, c.claimed_at as last_claimed_at, c.acked_at as last_acked_at
from tasker.event_consumers c join tasker.namespaces n using (namespace_id)
cross join lateral (
    select count(*)::int as unread, min(e.fired_at) as oldest
    from (select name, fired_at from tasker.domain_events where namespace_id = c.namespace_id and position > c.position order by position limit 1000) e
    where tasker.event_matches(e.name, c.patterns)) u`

// Index: the primary keys, the unique name, domain_events_by_namespace.
var (
	readConsumer = pg.Compile(consumers + ` where c.name = @name`)
	// consumerIn reads the one that a name means in some namespaces: under the name, or under one of the
	// keys that names have with their namespaces.
	consumerIn    = pg.Compile(consumers + ` where c.name = any (@keys) and n.name = any (@namespaces) order by c.name = @name desc, n.name limit 1`)
	readConsumers = pg.Compile(consumers + ` order by c.name limit @limit`)
)

// EventConsumer reads one; the error wraps ErrNotFound if it does not exist.
func (s *Log) EventConsumer(ctx context.Context, name string) (EventConsumer, error) {
	return pg.ReadOne[EventConsumer](ctx, s.db, "event_consumer", "read the event consumer", readConsumer.With(pg.Args{"name": name}))
}

// EventConsumerIn reads the one that a name means in some namespaces; its Name is the one by which
// EventConsumer finds it. The error wraps ErrNotFound if none of them has it.
func (s *Log) EventConsumerIn(ctx context.Context, name string, namespaces []string) (EventConsumer, error) {
	keys := []string{name}
	for _, namespace := range namespaces {
		keys = append(keys, consumerKey(namespace, name))
	}
	return pg.ReadOne[EventConsumer](ctx, s.db, "event_consumer", "read the event consumer",
		consumerIn.With(pg.Args{"name": name, "keys": keys, "namespaces": pg.NonNil(namespaces)}))
}

// consumerKey is the name under which a consumer is kept whose own name another namespace has.
func consumerKey(namespace, name string) string { return namespace + "/" + name }

// EventConsumers lists them by name, at most as many as there may be.
func (s *Log) EventConsumers(ctx context.Context, limit int) ([]EventConsumer, error) {
	return pg.ReadAll[EventConsumer](ctx, s.db, "event_consumers", "list the event consumers", readConsumers.With(pg.Args{"limit": limit}))
}

// EventPlace is a place among the events of a namespace.
type EventPlace struct {
	Now      bool  // after all events
	Position int64 // after this one; 0: before all
}

// startPlace is the position of an EventPlace for a namespace.
// Index: domain_events_by_namespace.
const startPlace = `case when @now then coalesce((
    select position from tasker.domain_events e where e.namespace_id = n.namespace_id order by position desc limit 1), 0) else @position::bigint end`

var (
	lookForConsumers = pg.Compile(`
select exists (select from tasker.namespaces where name = @namespace) as known,
       exists (select from tasker.event_consumers where name = @name) as elsewhere,
       exists (select from tasker.event_consumers c join tasker.namespaces n using (namespace_id) where c.name in (@name, @key) and n.name = @namespace) as taken,
       (select count(*)::int from tasker.event_consumers) as count,
       (select count(*)::int from tasker.event_consumers c join tasker.namespaces n using (namespace_id) where n.name = @namespace) as here`)
	insertConsumer = pg.Compile(`
insert into tasker.event_consumers (namespace_id, name, patterns, position)
select n.namespace_id, @name, @patterns, ` + startPlace + ` from tasker.namespaces n where n.name = @namespace`)
	resetConsumer = pg.Compile(`
update tasker.event_consumers c set token = null, lease_until = null, handed_last = null, handed_until = null, holder = null,
       updated_at = clock_timestamp(), position = ` + startPlace + ` from tasker.namespaces n where n.namespace_id = c.namespace_id and c.name = @name`)
	deleteConsumer = pg.Compile(`delete from tasker.event_consumers where name = @name`)
)

// ConsumerBounds are how many consumers there may be: in all, and in the namespace of a new one.
type ConsumerBounds struct{ All, Namespace int }

// CreateEventConsumer stores a new consumer and records the operator. Another namespace may have one
// of the same name: then it is kept with its namespace. most bounds their number. The error wraps
// ErrConsumerExists, ErrTooManyConsumers, ErrNamespaceConsumers, or ErrNotFound if the namespace does not exist.
func (s *Log) CreateEventConsumer(ctx context.Context, def EventConsumer, from EventPlace, most ConsumerBounds, by pg.OperatorAction) (EventConsumer, error) {
	return s.changeConsumer(ctx, "create_event_consumer", "create the event consumer", by, def.Name, func(tx pgx.Tx) (c EventConsumer, err error) {
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtext('tasker.event_consumers'))`); err != nil {
			return c, err
		}
		type consumers struct {
			Known, Elsewhere, Taken bool
			Count, Here             int
		}
		found, err := stmt.One[consumers](ctx, tx, lookForConsumers.With(pg.Args{"namespace": def.Namespace, "name": def.Name,
			"key": consumerKey(def.Namespace, def.Name)}))
		switch {
		case err != nil:
			return c, err
		case !found.Known:
			return c, pg.ErrNotFound
		case found.Taken:
			return c, ErrConsumerExists
		case found.Count >= most.All:
			return c, fmt.Errorf("%w: %d", ErrTooManyConsumers, most.All)
		case found.Here >= most.Namespace:
			return c, fmt.Errorf("%w: %d", ErrNamespaceConsumers, most.Namespace)
		}
		name := def.Name
		if found.Elsewhere {
			name = consumerKey(def.Namespace, name)
		}
		_, err = pg.Run(ctx, tx, insertConsumer.With(pg.Args{"namespace": def.Namespace, "name": name, "patterns": pg.NonNil(def.Patterns),
			"now": from.Now, "position": from.Position}))
		if err != nil {
			return c, err
		}
		return consumerNamed(ctx, tx, name)
	})
}

// ResetEventConsumer moves a consumer to another position and revokes its claimed events.
// The error wraps ErrNotFound if it does not exist.
func (s *Log) ResetEventConsumer(ctx context.Context, name string, to EventPlace, by pg.OperatorAction) (EventConsumer, error) {
	return s.changeConsumer(ctx, "reset_event_consumer", "reset the event consumer", by, name, func(tx pgx.Tx) (c EventConsumer, err error) {
		if _, err := pg.Run(ctx, tx, resetConsumer.With(pg.Args{"name": name, "now": to.Now, "position": to.Position})); err != nil {
			return c, err
		}
		return consumerNamed(ctx, tx, name)
	})
}

// DeleteEventConsumer deletes a consumer and returns it; events stay.
func (s *Log) DeleteEventConsumer(ctx context.Context, name string, by pg.OperatorAction) (EventConsumer, error) {
	return s.changeConsumer(ctx, "delete_event_consumer", "delete the event consumer", by, name, func(tx pgx.Tx) (EventConsumer, error) {
		c, err := consumerNamed(ctx, tx, name)
		if err == nil {
			_, err = pg.Run(ctx, tx, deleteConsumer.With(pg.Args{"name": name}))
		}
		return c, err
	})
}

func consumerNamed(ctx context.Context, tx pgx.Tx, name string) (EventConsumer, error) {
	return pg.OneOf[EventConsumer](ctx, tx, readConsumer.With(pg.Args{"name": name}))
}

// changeConsumer makes a change of one consumer together with its record, and returns the
// changed one.
func (s *Log) changeConsumer(ctx context.Context, flow, doing string, by pg.OperatorAction, name string, change func(tx pgx.Tx) (EventConsumer, error)) (EventConsumer, error) {
	c, _, err := pg.Recorded(ctx, s.db, flow, doing, by, "", func(_ context.Context, tx pgx.Tx) (EventConsumer, map[string]any, error) {
		c, err := change(tx)
		return c, map[string]any{"event_consumer": name, "namespace": c.Namespace}, err
	})
	return c, err
}

// Results are published by a trigger, which looks at the namespace only where one wants them.
var (
	resultsTurn = pg.Compile(`select pg_advisory_xact_lock(hashtext('tasker.results'))`)
	wantResults = pg.Compile(`update tasker.namespaces set results = @wanted where name = @namespace and results <> @wanted`)
	markResults = pg.Compile(`
select (setval('tasker.results', case when exists (select from tasker.namespaces where results) then 2 else 1 end)) > 0
       and exists (select from tasker.namespaces where name = @namespace) as known`)
)

// WantResults has the ends of tasks of a namespace published as durable events, or not any
// more. It counts for transactions that begin later. The error wraps ErrNotFound if the
// namespace does not exist.
func (s *Log) WantResults(ctx context.Context, namespace string, wanted bool) error {
	return s.db.Call(ctx, "want_results", "decide about results", func(ctx context.Context, db *pg.Conn) error {
		var known bool
		err := s.db.Transact(ctx, db, nil, func(b *pgx.Batch) {
			resultsTurn.With(nil).Queue(b)
			wantResults.With(pg.Args{"namespace": namespace, "wanted": wanted}).Queue(b)
			markResults.With(pg.Args{"namespace": namespace}).Queue(b).Query(stmt.Row(&known))
		})
		if err == nil && !known {
			return pg.ErrNotFound
		}
		return err
	})
}

// ClaimedEvents are events claimed by a holder.
type ClaimedEvents struct {
	Token  int64 // for AckEvents
	Events []Event
}

// claimEvents hands out events, with the run, which the function does not return. The function
// sees what was committed after this statement began, such as while it waited for the
// consumer; the statement does not: the run is -1 then, and runsOfEvents has it.
// Index: domain_events_by_namespace, then the primary key.
var (
	claimEvents = pg.Compile(`
select e.token, ` + eventFields + `
from (select c.*, coalesce((select run from tasker.domain_events d where d.event_uuid = c.event_uuid), -1) as run
      from tasker.claim_events(@consumer, @holder, @limit, @lease_ms::bigint * interval '1 ms') c) e
order by e.position`)
	runsOfEvents = pg.Compile(`select event_uuid, run from tasker.domain_events where event_uuid = any(@events::uuid[])`)
)

// ClaimEvents hands the next events of a consumer to holder for the time of the lease, in
// the order of their positions; possibly none. The error wraps ErrConsumerBusy while
// another holder has some, ErrNotFound if the consumer does not exist.
func (s *Log) ClaimEvents(ctx context.Context, consumer, holder string, limit int, lease time.Duration) (c ClaimedEvents, err error) {
	err = s.db.Call(ctx, "claim_events", "claim domain events", func(ctx context.Context, db *pg.Conn) error {
		c = ClaimedEvents{Events: []Event{}}
		type row struct {
			Token int64
			Event
		}
		var late []uuid.UUID // committed after the statement began
		claim := claimEvents.With(pg.Args{"consumer": consumer, "holder": holder, "limit": limit, "lease_ms": stmt.Millis(lease)})
		err := stmt.Each(ctx, db, claim, func(r *row) {
			c.Token, c.Events = r.Token, append(c.Events, r.Event)
			if r.Run < 0 {
				late = append(late, r.UUID)
			}
		})
		switch pg.ServerCode(err) {
		case "55006": // object_in_use
			return fmt.Errorf("%w: %s", ErrConsumerBusy, pg.ServerError(err).Message)
		case "P0002": // no_data_found
			return pg.ErrNotFound
		}
		if err == nil && len(late) > 0 {
			err = readRuns(ctx, db, late, c.Events)
		}
		return err
	})
	return c, err
}

// readRuns completes those of the claimed events that are late.
func readRuns(ctx context.Context, db *pg.Conn, late []uuid.UUID, claimed []Event) error {
	type row struct {
		UUID uuid.UUID `sql:"event_uuid"`
		Run  int
	}
	return stmt.Each(ctx, db, runsOfEvents.With(pg.Args{"events": late}), func(r *row) {
		if i := slices.IndexFunc(claimed, func(e Event) bool { return e.UUID == r.UUID }); i >= 0 {
			claimed[i].Run = r.Run
		}
	})
}

var ackEvents = pg.Compile(`
select tasker.ack_events(@consumer, @token, @position, @release) as held, exists (select from tasker.event_consumers where name = @consumer) as known`)

// AckEvents acknowledges everything up to a position. With release the other claimed events
// may be claimed again at once. The error wraps ErrConsumerLost, or ErrNotFound if the
// consumer does not exist.
func (s *Log) AckEvents(ctx context.Context, consumer string, token, position int64, release bool) error {
	return s.db.Call(ctx, "ack_events", "acknowledge domain events", func(ctx context.Context, db *pg.Conn) error {
		type outcome struct{ Held, Known bool }
		done, err := stmt.One[outcome](ctx, db, ackEvents.With(pg.Args{"consumer": consumer, "token": token, "position": position, "release": release}))
		switch {
		case err != nil:
			return err
		case !done.Known:
			return pg.ErrNotFound
		case !done.Held:
			return ErrConsumerLost
		}
		return nil
	})
}
