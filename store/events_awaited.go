package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
)

// Brought is the result of BringEvents.
type Brought struct {
	Events  int
	Steps   int             // that have received them
	Signals []signal.Signal // to publish, unless the store sends them itself
}

// The statements that deliver domain events to the steps that wait for them. Of several
// with the same key the first is delivered, which ends the wait, and the others are kept.
// Index: the primary keys, board_awaits.
const (
	eventsToBring = `
select d.event_uuid, 'e' || n.name || E'\x1f' || e.name || E'\x1f=' || e.key
from (select event_uuid from tasker.event_deliveries order by event_uuid limit $1 for update skip locked) d
left join tasker.domain_events e on e.event_uuid = any (array[d.event_uuid])
left join tasker.namespaces n on n.namespace_id = e.namespace_id
order by e.position`
	bringEvents = `
with e as (
    insert into tasker.received_events (event_uuid, received_at, namespace_id, name, key, awaits, payload, expires_at)
    select d.event_uuid, d.fired_at, d.namespace_id, d.name, d.key, b.awaits, d.payload, clock_timestamp() + $3::bigint * interval '1 ms'
    from unnest($1::uuid[], $2::text[]) b(event_uuid, awaits)
    join tasker.domain_events d on d.event_uuid = any (array[b.event_uuid])
    on conflict (event_uuid) do nothing
    returning *
), first as materialized (
    select distinct on (awaits) * from e order by awaits, event_uuid
), reached as (
    update tasker.board s
    set state = 4, seq = nextval('tasker.step_seq'), due_at = null, reported_at = clock_timestamp(), awaits = null, outcome = 1,
        result = ` + eventResult + `
    from first e where s.awaits = any (array[e.awaits])
    returning s.task_uuid, e.event_uuid
)
select event_uuid, count(*)::int, (array_agg(task_uuid))[1] from reached group by event_uuid`
	markBrought = `
update tasker.received_events r set delivered = b.steps, taken_by = b.task_uuid
from unnest($1::uuid[], $2::int[], $3::uuid[]) b(event_uuid, steps, task_uuid) where r.event_uuid = any (array[b.event_uuid])`
	dropBrought = `delete from tasker.event_deliveries where event_uuid = any ($1::uuid[])`
)

// BringEvents delivers up to limit domain events to the steps that wait for them, or
// keeps them for the first that will, as ReceiveEvent does.
func (s *Store) BringEvents(ctx context.Context, limit int, keepFor time.Duration) (b Brought, err error) {
	err = s.call(ctx, "bring_events", "bring domain events to those who wait", func(ctx context.Context, db *conn) error {
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			b = Brought{}
			var ids, all uuids // an event whose day was dropped is only forgotten
			var awaits []string
			rows, err := tx.Query(ctx, eventsToBring, limit)
			if err != nil {
				return nil, err
			}
			var id uuid.UUID
			var key *string
			if _, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &key}, func() error {
				if all = append(all, id); key != nil {
					ids, awaits = append(ids, id), append(awaits, *key)
				}
				return nil
			}); err != nil || len(all) == 0 {
				return nil, err
			}
			b.Events = len(all)
			if _, err := tx.Exec(ctx, lockEventKeys, awaits); err != nil {
				return nil, err
			}
			if b.Steps, err = deliver(ctx, tx, ids, awaits, keepFor); err != nil {
				return nil, err
			}
			if b.Steps > 0 {
				b.Signals = ReportSignals()
			}
			_, err = tx.Exec(ctx, dropBrought, all)
			return b.Signals, err
		})
	})
	return b, err
}

func deliver(ctx context.Context, tx pgx.Tx, ids uuids, awaits []string, keepFor time.Duration) (total int, err error) {
	rows, err := tx.Query(ctx, bringEvents, ids, awaits, millis(keepFor))
	if err != nil {
		return 0, err
	}
	var reached, takers uuids
	var steps []int32
	var id, task uuid.UUID
	var n int32
	if _, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &n, (*[16]byte)(&task)}, func() error {
		reached, steps, takers, total = append(reached, id), append(steps, n), append(takers, task), total+int(n)
		return nil
	}); err != nil || reached == nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, markBrought, reached, steps, takers)
	return total, err
}
