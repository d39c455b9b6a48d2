package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// takeSweep takes the lease of a sweep that is due, or requested now, and not running.
// The lease is in a row, so it works through a pooler in transaction mode and expires
// with its holder.
// Index: the primary key.
var takeSweep = compile(`
insert into tasker.sweeps as w (name, holder, next_at, lease_until, started_at, runs)
values (@name, @holder, clock_timestamp() + @interval_ms::bigint * interval '1 ms', clock_timestamp() + @lease_ms::bigint * interval '1 ms', clock_timestamp(), 1)
on conflict (name) do update
set holder = excluded.holder, next_at = excluded.next_at, lease_until = excluded.lease_until, started_at = excluded.started_at,
    finished_at = null, runs = w.runs + 1
where (w.next_at <= clock_timestamp() or @now) and coalesce(w.lease_until <= clock_timestamp(), true)
returning true`)

// TakeSweep tries to become the holder of a sweep in the fleet. It succeeds if interval
// has passed since the last run began, or with now at once, unless another holder runs
// it; for at most lease, within which EndSweep should end it. The database's clock
// decides.
func (s *Store) TakeSweep(ctx context.Context, name string, holder uuid.UUID, interval, lease time.Duration, now bool) (taken bool, err error) {
	err = s.call(ctx, "take_sweep", "take the sweep", func(ctx context.Context, db *conn) error {
		n, err := run(ctx, db, takeSweep.With(args{"name": name, "holder": holder, "interval_ms": interval.Milliseconds(),
			"lease_ms": lease.Milliseconds(), "now": now}))
		taken = n > 0
		return err
	})
	return taken, err
}

var endSweep = compile(`
update tasker.sweeps set lease_until = null, finished_at = clock_timestamp(), result = @result
where name = @name and holder = @holder and lease_until is not null`)

// EndSweep ends a sweep with its result, as JSON. It does nothing if another holder has
// the lease.
func (s *Store) EndSweep(ctx context.Context, name string, holder uuid.UUID, result any) error {
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode the result of the sweep: %w", err)
	}
	_, err = execute(ctx, s, "end_sweep", "end the sweep", endSweep.With(args{"name": name, "holder": holder, "result": string(text)}))
	return err
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

var listSweeps = compile(`
select name, coalesce(lease_until > clock_timestamp(), false) as running, holder, next_at, started_at, finished_at, runs, result
from tasker.sweeps order by name limit 1000`)

// Sweeps lists all sweeps that ever ran, by name.
func (s *Store) Sweeps(ctx context.Context) ([]SweepState, error) {
	return readAll[SweepState](ctx, s, "sweeps", "list the sweeps", listSweeps.With(nil))
}

// RecordAction records an operator's action.
func (s *Store) RecordAction(ctx context.Context, a OperatorAction) error {
	return s.call(ctx, "record_action", "record the operator's action", func(ctx context.Context, db *conn) error {
		return insertAction(ctx, db, a)
	})
}
