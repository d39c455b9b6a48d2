package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// takeSweep takes the lease of a sweep that is due, or requested now, and not running.
// The lease is in a row, so it works through a pooler in transaction mode and expires
// with its holder.
// Index: the primary key.
const takeSweep = `
insert into tasker.sweeps as w (name, holder, next_at, lease_until, started_at, runs)
values ($1, $2, clock_timestamp() + $3::bigint * interval '1 ms', clock_timestamp() + $4::bigint * interval '1 ms', clock_timestamp(), 1)
on conflict (name) do update
set holder = excluded.holder, next_at = excluded.next_at, lease_until = excluded.lease_until, started_at = excluded.started_at,
    finished_at = null, runs = w.runs + 1
where (w.next_at <= clock_timestamp() or $5) and coalesce(w.lease_until <= clock_timestamp(), true)
returning true`

// TakeSweep tries to become the holder of a sweep in the fleet. It succeeds if interval
// has passed since the last run began, or with now at once, unless another holder runs
// it; for at most lease, within which EndSweep should end it. The database's clock
// decides.
func (s *Store) TakeSweep(ctx context.Context, name string, holder uuid.UUID, interval, lease time.Duration, now bool) (taken bool, err error) {
	err = s.call(ctx, "take_sweep", "take the sweep", func(ctx context.Context, db *conn) error {
		tag, err := db.Exec(ctx, takeSweep, name, holder, interval.Milliseconds(), lease.Milliseconds(), now)
		taken = tag.RowsAffected() > 0
		return err
	})
	return taken, err
}

// EndSweep ends a sweep with its result, as JSON. It does nothing if another holder has
// the lease.
func (s *Store) EndSweep(ctx context.Context, name string, holder uuid.UUID, result any) error {
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode the result of the sweep: %w", err)
	}
	return s.repeatable(ctx, "end_sweep", "end the sweep", func(ctx context.Context, db *conn) error {
		_, err := db.Exec(ctx, `update tasker.sweeps set lease_until = null, finished_at = clock_timestamp(), result = $3
			where name = $1 and holder = $2 and lease_until is not null`, name, holder, string(text))
		return err
	})
}

// SweepState is the state of a sweep.
type SweepState struct {
	Name       string
	Running    bool // by the database's clock
	Holder     uuid.UUID
	NextAt     time.Time // when it is due
	StartedAt  time.Time
	FinishedAt *time.Time // of the run that began at StartedAt; nil: not ended
	Runs       int64
	Result     json.RawMessage // of the last ended run; nil: none
}

// Sweeps lists all sweeps that ever ran, by name.
func (s *Store) Sweeps(ctx context.Context) (list []SweepState, err error) {
	err = s.repeatable(ctx, "sweeps", "list the sweeps", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, `select name, coalesce(lease_until > clock_timestamp(), false), holder, next_at, started_at, finished_at, runs, result
			from tasker.sweeps order by name limit 1000`)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[SweepState])
		return err
	})
	return list, err
}
