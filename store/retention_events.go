package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// eventDays are the days of domain events that have been over for longer than
// $1 ms, the oldest first.
const eventDays = `
select right(c.relname, 8) from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'tasker.domain_events'::regclass and c.relname ~ '_[0-9]{8}$'
  and (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC' < now() - $1::bigint * interval '1 ms'
order by 1 limit $2`

// Events for whose day there was no partition.
// Index: the primary key.
const (
	oldEvents = `
select event_uuid from tasker.domain_events_default
where event_uuid < tasker.uuid_floor(now() - $1::bigint * interval '1 ms') order by event_uuid limit $2`
	deleteEvents = `
with old as materialized (` + oldEvents + ` for update skip locked)
delete from tasker.domain_events_default where event_uuid = any (array(select event_uuid from old))`
	countEvents = `select count(*)::int from (` + oldEvents + `) old`
)

// events drops expired days of domain events, even unread ones: an abandoned consumer
// would keep them for ever.
func (r *retaining) events(ctx context.Context) (err error) {
	if r.limits.EventTTL <= 0 {
		return nil
	}
	ttl := max(r.limits.EventTTL, day) // an older day is not created again
	var days []string
	err = r.store.repeatable(ctx, "retain_event_days", "list the days of domain events", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, eventDays, ttl.Milliseconds(), retainSteps+1)
		if err == nil {
			days, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(days) > retainSteps {
		days, r.done.More = days[:retainSteps], true
	}
	for _, name := range days {
		if err := r.dropEvents(ctx, name); err != nil {
			return err
		}
	}
	r.done.Events, err = r.rows(ctx, "events", deleteEvents, countEvents, r.limits.EventTTL.Milliseconds(), r.limits.Batch)
	return err
}

// dropEvents drops a day's partition; see drop.
func (r *retaining) dropEvents(ctx context.Context, name string) error {
	if r.dry {
		r.done.EventDays = append(r.done.EventDays, name)
		return nil
	}
	err := r.store.call(ctx, "retain_drop", "drop a day of domain events", func(ctx context.Context, db *conn) error {
		_, err := db.Exec(ctx, `select tasker.drop_event_day($1, $2)`, name, dropLockTimeout)
		return err
	})
	switch {
	case LockTimeout(err):
		r.done.Busy++ // the next call tries again
		return nil
	case err != nil:
		return err
	}
	r.done.EventDays = append(r.done.EventDays, name)
	return nil
}
