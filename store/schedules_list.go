package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Index: the primary keys.
const readSchedule = `
select ` + scheduleColumns + ` from tasker.schedules s join tasker.namespaces n using (namespace_id) where s.schedule_uuid = $1`

// Schedule reads one schedule; the error wraps ErrNotFound if it does not exist.
func (s *Store) Schedule(ctx context.Context, id uuid.UUID) (sched Schedule, err error) {
	err = s.repeatable(ctx, "schedule", "read the schedule", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, readSchedule, id)
		if err != nil {
			return err
		}
		sched, err = pgx.CollectExactlyOneRow(rows, scanSchedule)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		return err
	})
	return sched, err
}

// ScheduleFilter selects schedules for a list; zero values select everything.
type ScheduleFilter struct {
	Namespace, Name, Template string
	Paused                    *bool
	Limit                     int // 1–1,000
	Offset                    int
}

// SchedulePage is one page of a list, by namespace and name.
type SchedulePage struct {
	Schedules []Schedule
	Total     int // up to CountLimit
}

// listSchedules is shared by the page and its count.
// Index: the unique name of the namespace, and within it.
const listSchedules = `
from tasker.schedules s join tasker.namespaces n using (namespace_id)
where ($1 = '' or n.name = $1) and ($2 = '' or s.name = $2) and ($3 = '' or s.template = $3) and ($4::boolean is null or (s.paused_at is not null) = $4)`

// Schedules lists schedules by namespace and name.
func (s *Store) Schedules(ctx context.Context, f ScheduleFilter) (page SchedulePage, err error) {
	err = s.repeatable(ctx, "schedules", "list the schedules", func(ctx context.Context, db *conn) error {
		args := []any{f.Namespace, f.Name, f.Template, f.Paused}
		b := &pgx.Batch{}
		b.Queue(planForValues)
		b.Queue(`select `+scheduleColumns+listSchedules+` order by n.name, s.name limit $5 offset $6`, append(args[:4:4], f.Limit, f.Offset)...).
			Query(func(rows pgx.Rows) (err error) {
				page.Schedules, err = pgx.CollectRows(rows, scanSchedule)
				return err
			})
		b.Queue(`select count(*) from (select 1 `+listSchedules+` limit $5) c`, append(args[:4:4], CountLimit)...).
			QueryRow(func(row pgx.Row) error { return row.Scan(&page.Total) })
		return db.SendBatch(ctx, b).Close()
	})
	return page, err
}
