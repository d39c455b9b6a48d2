package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
)

// ReceivedEvent is an event from outside; all of it has been validated.
type ReceivedEvent struct {
	Namespace string     // of the steps that may wait for it; empty if sent to a task
	Name      string     // of the event
	Key       string     // distinguishes events of one name; empty if sent to a task
	TaskUUID  *uuid.UUID // the task that it is sent to; nil: all steps that wait for its key
	Payload   json.RawMessage
	SenderID  string        // a second event with it in a namespace is a duplicate; empty: none
	KeepFor   time.Duration // how long an event that no step waits for is kept
}

// Delivered is the outcome of an event.
type Delivered struct {
	UUID      uuid.UUID
	Duplicate bool // it was received before; nothing was done
	Steps     int  // that have received it; of the first one if it is a duplicate
	ExpiresAt time.Time
	Signals   []signal.Signal // to publish, unless the store sends them itself
}

// lockEventKeys serializes events and the steps that begin to wait for them, key by key
// in a global order.
const lockEventKeys = `
select pg_advisory_xact_lock(k) from (select distinct hashtextextended(w, 1952543595) as k from unnest($1::text[]) u(w) order by 1) keys`

// eventResult is an event e as the result of the step that has waited for it.
const eventResult = `jsonb_build_object('event', e.name, 'key', e.key, 'event_uuid', e.event_uuid,
           'received_at', to_char(e.received_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'payload', e.payload)`

// receiveEvent records an event and ends the waits for it.
// Index: received_events_id, board_awaits.
const receiveEvent = `
with e as (
    insert into tasker.received_events (namespace_id, name, key, task_uuid, awaits, sender_id, payload, expires_at)
    values ($1, $2, $3, $4, $5, $6, $7::jsonb, clock_timestamp() + $8::bigint * interval '1 ms')
    on conflict (namespace_id, sender_id) where sender_id is not null do nothing
    returning *
), reached as (
    update tasker.board s
    set state = 4, seq = nextval('tasker.step_seq'), due_at = null, reported_at = clock_timestamp(), awaits = null, outcome = 1,
        result = ` + eventResult + `
    from e where s.awaits = any (array[e.awaits])
    returning s.task_uuid
)
select e.event_uuid, e.expires_at, (select count(*) from reached)::int, (select task_uuid from reached limit 1) from e`

// receivedBefore is the earlier event with the same id.
// Index: received_events_id.
const receivedBefore = `
select event_uuid, expires_at, delivered from tasker.received_events where namespace_id = $1 and sender_id = $2`

// ReceiveEvent delivers an event to all steps that wait for it. If none does, it is kept,
// and the first step that will wait for it gets it at once. The error wraps ErrNotFound
// if the namespace or task does not exist, or ErrTaskEnded.
func (s *Store) ReceiveEvent(ctx context.Context, e ReceivedEvent) (d Delivered, err error) {
	err = s.call(ctx, "receive_event", "deliver the event", func(ctx context.Context, db *conn) error {
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			d = Delivered{}
			queue, namespace, err := s.eventAddress(ctx, tx, &e)
			if err != nil {
				return nil, err
			}
			var task uuid.UUID
			if e.TaskUUID != nil {
				task = *e.TaskUUID
			}
			awaits := eventAwaits(namespace, e.Name, e.Key, task)
			if _, err := tx.Exec(ctx, lockEventKeys, []string{awaits}); err != nil {
				return nil, err
			}
			var first *uuid.UUID
			err = tx.QueryRow(ctx, receiveEvent, queue, e.Name, text(e.Key), e.TaskUUID, awaits, text(e.SenderID), jsonText(e.Payload), millis(e.KeepFor)).
				Scan(&d.UUID, &d.ExpiresAt, &d.Steps, &first)
			switch {
			case errors.Is(err, pgx.ErrNoRows):
				d.Duplicate = true
				return nil, tx.QueryRow(ctx, receivedBefore, queue, e.SenderID).Scan(&d.UUID, &d.ExpiresAt, &d.Steps)
			case err != nil || d.Steps == 0:
				return nil, err
			}
			d.Signals = ReportSignals()
			_, err = tx.Exec(ctx, `update tasker.received_events set delivered = $2, taken_by = $3 where event_uuid = $1`, d.UUID, d.Steps, first)
			return d.Signals, err
		})
	})
	return d, err
}

// Index: the primary keys.
const addressOfTask = `
select n.namespace_id, n.name, exists (select from tasker.board where task_uuid = $1 and slot = 0)
from tasker.tasks t join tasker.namespaces n on n.namespace_id = t.queue where t.task_uuid = $1`

// eventAddress is the namespace that an event is for.
// Index: the primary keys, the unique name of namespaces.
func (s *Store) eventAddress(ctx context.Context, tx pgx.Tx, e *ReceivedEvent) (queue int32, namespace string, err error) {
	if e.TaskUUID == nil {
		err = tx.QueryRow(ctx, `select namespace_id, name from tasker.namespaces where name = $1`, e.Namespace).Scan(&queue, &namespace)
		if errors.Is(err, pgx.ErrNoRows) {
			err = fmt.Errorf("namespace %s: %w", e.Namespace, ErrNotFound)
		}
		return queue, namespace, err
	}
	var alive bool
	err = tx.QueryRow(ctx, addressOfTask, *e.TaskUUID).Scan(&queue, &namespace, &alive)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = fmt.Errorf("task %s: %w", *e.TaskUUID, ErrNotFound)
	case err == nil && !alive:
		err = fmt.Errorf("task %s: %w", *e.TaskUUID, ErrTaskEnded)
	}
	return queue, namespace, err
}
