package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Errors of event consumers.
var (
	// ErrConsumerExists: a consumer of this name exists.
	ErrConsumerExists = errors.New("an event consumer of this name exists")
	// ErrTooManyConsumers: the limit is reached.
	ErrTooManyConsumers = errors.New("the limit of event consumers is reached")
	// ErrConsumerBusy: another holder has claimed events of the consumer.
	ErrConsumerBusy = errors.New("another holder has claimed events of this consumer")
	// ErrConsumerLost: the events were handed to another holder.
	ErrConsumerLost = errors.New("the events were handed to another holder")
)

// EventConsumer reads the events of a namespace from its own position.
type EventConsumer struct {
	UUID      uuid.UUID
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

// consumerColumns are those of EventConsumer, of c and its namespace n. An ended lease
// counts as none.
const consumerColumns = `c.consumer_uuid, c.name, n.name, c.patterns, c.position,
       case when c.lease_until > clock_timestamp() then c.holder end, case when c.lease_until > clock_timestamp() then c.lease_until end,
       u.unread, u.oldest, c.created_at, c.updated_at, c.claimed_at, c.acked_at`

// Index: the primary keys, the unique name, domain_events_by_namespace.
const (
	readConsumer  = `select ` + consumerColumns + consumersWith + ` where c.name = $1`
	readConsumers = `select ` + consumerColumns + consumersWith + ` order by c.name limit $1`
)

const consumersWith = `
from tasker.event_consumers c join tasker.namespaces n using (namespace_id)
cross join lateral (
    select count(*)::int as unread, min(e.fired_at) as oldest
    from (select name, fired_at from tasker.domain_events where namespace_id = c.namespace_id and position > c.position order by position limit 1000) e
    where tasker.event_matches(e.name, c.patterns)) u`

func scanConsumer(row pgx.CollectableRow) (c EventConsumer, err error) {
	err = row.Scan(&c.UUID, &c.Name, &c.Namespace, &c.Patterns, &c.Position, &c.Holder, &c.LeaseUntil, &c.Unread, &c.OldestUnread,
		&c.CreatedAt, &c.UpdatedAt, &c.LastClaimedAt, &c.LastAckedAt)
	return c, err
}

func oneConsumer(ctx context.Context, db querier, name string) (EventConsumer, error) {
	rows, err := db.Query(ctx, readConsumer, name)
	if err != nil {
		return EventConsumer{}, err
	}
	c, err := pgx.CollectExactlyOneRow(rows, scanConsumer)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, ErrNotFound
	}
	return c, err
}

// EventConsumer reads one; the error wraps ErrNotFound if it does not exist.
func (s *Store) EventConsumer(ctx context.Context, name string) (c EventConsumer, err error) {
	err = s.repeatable(ctx, "event_consumer", "read the event consumer", func(ctx context.Context, db *conn) error {
		c, err = oneConsumer(ctx, db, name)
		return err
	})
	return c, err
}

// EventConsumers lists them by name, at most as many as there may be.
func (s *Store) EventConsumers(ctx context.Context, limit int) (list []EventConsumer, err error) {
	err = s.repeatable(ctx, "event_consumers", "list the event consumers", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, readConsumers, limit)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanConsumer)
		return err
	})
	return list, err
}

// EventPlace is a place among the events of a namespace.
type EventPlace struct {
	Now      bool  // after all events
	Position int64 // after this one; 0: before all
}

// startPlace is the position of an EventPlace for a namespace.
// Index: domain_events_by_namespace.
const startPlace = `case when $2 then coalesce((select position from tasker.domain_events e where e.namespace_id = n.namespace_id order by position desc limit 1), 0) else $3::bigint end`

// CreateEventConsumer stores a new consumer and records the operator. most bounds their
// number. The error wraps ErrConsumerExists, ErrTooManyConsumers, or ErrNotFound if the
// namespace does not exist.
func (s *Store) CreateEventConsumer(ctx context.Context, def EventConsumer, from EventPlace, most int, by OperatorAction) (c EventConsumer, err error) {
	err = s.changeConsumer(ctx, "create_event_consumer", "create the event consumer", &by, def.Name, func(tx pgx.Tx) error {
		var known, taken bool
		var n int
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtext('tasker.event_consumers'))`); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `select exists (select from tasker.namespaces where name = $1), exists (select from tasker.event_consumers where name = $2),
			(select count(*)::int from tasker.event_consumers)`, def.Namespace, def.Name).Scan(&known, &taken, &n); err != nil {
			return err
		}
		switch {
		case !known:
			return ErrNotFound
		case taken:
			return ErrConsumerExists
		case n >= most:
			return fmt.Errorf("%w: %d", ErrTooManyConsumers, most)
		}
		_, err := tx.Exec(ctx, `insert into tasker.event_consumers (namespace_id, name, patterns, position)
			select n.namespace_id, $4, $5, `+startPlace+` from tasker.namespaces n where n.name = $1`, def.Namespace, from.Now, from.Position, def.Name, nonNil(def.Patterns))
		if err == nil {
			c, err = oneConsumer(ctx, tx, def.Name)
		}
		return err
	})
	return c, err
}

// ResetEventConsumer moves a consumer to another position and revokes its claimed events.
// The error wraps ErrNotFound if it does not exist.
func (s *Store) ResetEventConsumer(ctx context.Context, name string, to EventPlace, by OperatorAction) (c EventConsumer, err error) {
	err = s.changeConsumer(ctx, "reset_event_consumer", "reset the event consumer", &by, name, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `update tasker.event_consumers c set token = null, lease_until = null, handed_last = null, handed_until = null, holder = null,
			updated_at = clock_timestamp(), position = `+startPlace+` from tasker.namespaces n where n.namespace_id = c.namespace_id and c.name = $1`,
			name, to.Now, to.Position); err != nil {
			return err
		}
		c, err = oneConsumer(ctx, tx, name)
		return err
	})
	return c, err
}

// DeleteEventConsumer deletes a consumer and returns it; events stay.
func (s *Store) DeleteEventConsumer(ctx context.Context, name string, by OperatorAction) (c EventConsumer, err error) {
	err = s.changeConsumer(ctx, "delete_event_consumer", "delete the event consumer", &by, name, func(tx pgx.Tx) error {
		if c, err = oneConsumer(ctx, tx, name); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `delete from tasker.event_consumers where name = $1`, name)
		return err
	})
	return c, err
}

// changeConsumer makes a change of one consumer together with its record.
func (s *Store) changeConsumer(ctx context.Context, flow, doing string, by *OperatorAction, name string, change func(tx pgx.Tx) error) error {
	return s.call(ctx, flow, doing, func(ctx context.Context, db *conn) error {
		return s.inTx(ctx, db, func(tx pgx.Tx) error {
			if err := change(tx); err != nil {
				return err
			}
			by.Target, by.Matched, by.Changed = map[string]any{"event_consumer": name}, 1, 1
			return insertAction(ctx, tx, *by)
		})
	})
}

// ClaimedEvents are events claimed by a holder.
type ClaimedEvents struct {
	Token  int64 // for AckEvents
	Events []Event
}

// Bounds of one claim of events.
const (
	MaxClaimedEvents = 1000
	MaxEventLease    = 24 * time.Hour
)

// claimEvents hands out events, with the columns that the function does not return.
// Index: domain_events_by_namespace, then the primary key.
const claimEvents = `
select e.token, ` + eventFields + `
from (select c.*, (select run from tasker.domain_events d where d.event_uuid = c.event_uuid) as run
      from tasker.claim_events($1, $2, $3, $4::bigint * interval '1 ms') c) e
order by e.position`

// ClaimEvents hands the next events of a consumer to holder for the time of the lease, in
// the order of their positions; possibly none. The error wraps ErrConsumerBusy while
// another holder has some, ErrNotFound if the consumer does not exist.
func (s *Store) ClaimEvents(ctx context.Context, consumer, holder string, limit int, lease time.Duration) (c ClaimedEvents, err error) {
	err = s.call(ctx, "claim_events", "claim domain events", func(ctx context.Context, db *conn) error {
		c = ClaimedEvents{Events: []Event{}}
		rows, err := db.Query(ctx, claimEvents, consumer, holder, limit, millis(lease))
		if err == nil {
			var e eventRow
			_, err = pgx.ForEachRow(rows, append([]any{&c.Token}, e.fields()...), func() error {
				c.Events = append(c.Events, e.event())
				e = eventRow{}
				return nil
			})
		}
		var pg *pgconn.PgError
		switch {
		case errors.As(err, &pg) && pg.Code == "55006": // object_in_use
			return fmt.Errorf("%w: %s", ErrConsumerBusy, pg.Message)
		case errors.As(err, &pg) && pg.Code == "P0002": // no_data_found
			return ErrNotFound
		}
		return err
	})
	return c, err
}

// AckEvents acknowledges everything up to a position. With release the other claimed events
// may be claimed again at once. The error wraps ErrConsumerLost, or ErrNotFound if the
// consumer does not exist.
func (s *Store) AckEvents(ctx context.Context, consumer string, token, position int64, release bool) error {
	return s.call(ctx, "ack_events", "acknowledge domain events", func(ctx context.Context, db *conn) error {
		var held, known bool
		err := db.QueryRow(ctx, `select tasker.ack_events($1, $2, $3, $4), exists (select from tasker.event_consumers where name = $1)`,
			consumer, token, position, release).Scan(&held, &known)
		switch {
		case err != nil:
			return err
		case !known:
			return ErrNotFound
		case !held:
			return ErrConsumerLost
		}
		return nil
	})
}
