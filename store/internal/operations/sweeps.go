package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/store/internal/pg"
)

// Operations is the room of operators and sweeps. It is safe for concurrent use.
type Operations struct {
	db     *pg.DB
	aging  aging // retention's memory of the ledger
	agreed atomic.Pointer[string]
}

// New returns the room.
func New(db *pg.DB) *Operations {
	s := &Operations{db: db}
	db.Remember(func() { s.aging.keep(nil) })
	return s
}

// takeSweep takes the lease of a sweep that is due, or requested now, and not running.
// The lease is in a row, so it works through a pooler in transaction mode and expires
// with its holder.
// Index: the primary key.
var takeSweep = pg.Compile(`
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
func (s *Operations) TakeSweep(ctx context.Context, name string, holder uuid.UUID, interval, lease time.Duration, now bool) (taken bool, err error) {
	err = s.db.Call(ctx, "take_sweep", "take the sweep", func(ctx context.Context, db *pg.Conn) error {
		n, err := pg.Run(ctx, db, takeSweep.With(pg.Args{"name": name, "holder": holder, "interval_ms": interval.Milliseconds(),
			"lease_ms": lease.Milliseconds(), "now": now}))
		taken = n > 0
		return err
	})
	return taken, err
}

var endSweep = pg.Compile(`
update tasker.sweeps set lease_until = null, finished_at = clock_timestamp(), result = @result
where name = @name and holder = @holder and lease_until is not null`)

// EndSweep ends a sweep with its result, as JSON. It does nothing if another holder has
// the lease.
func (s *Operations) EndSweep(ctx context.Context, name string, holder uuid.UUID, result any) error {
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode the result of the sweep: %w", err)
	}
	_, err = pg.Execute(ctx, s.db, "end_sweep", "end the sweep", endSweep.With(pg.Args{"name": name, "holder": holder, "result": string(text)}))
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

var listSweeps = pg.Compile(`
select name, coalesce(lease_until > clock_timestamp(), false) as running, holder, next_at, started_at, finished_at, runs, result
from tasker.sweeps order by name limit 1000`)

// Sweeps lists all sweeps that ever ran, by name.
func (s *Operations) Sweeps(ctx context.Context) ([]SweepState, error) {
	return pg.ReadAll[SweepState](ctx, s.db, "sweeps", "list the sweeps", listSweeps.With(nil))
}

// RecordAction records an operator's action.
func (s *Operations) RecordAction(ctx context.Context, a pg.OperatorAction) error {
	return s.db.Call(ctx, "record_action", "record the operator's action", func(ctx context.Context, db *pg.Conn) error {
		return pg.InsertAction(ctx, db, a)
	})
}

// stuckSessions are those that hold one of the product's advisory locks (apply slots,
// claims and event positions) and wait for their client. The time-out of idle
// transactions ends most of them. It does not cover a client that stopped while it was
// sending a batch or reading rows: such a session is active, waits for the network, and
// only the time-out of the whole transaction applies. An active one gets twice the time:
// a slow statement may just be sending its rows. Sessions of other roles are not touched,
// since ending them may not be allowed.
var stuckSessions = pg.Compile(`
select a.pid, pg_terminate_backend(a.pid)
from (select distinct pid from pg_locks
      where locktype = 'advisory' and classid = @class::int::oid and granted
        and database = (select oid from pg_database where datname = current_database())) l
join pg_stat_activity a on a.pid = l.pid
where a.usename = current_user and a.pid <> pg_backend_pid() and a.wait_event_type = 'Client'
  and a.state_change < clock_timestamp() - @held_ms::bigint * interval '1 ms' * case when a.state = 'active' then 2 else 1 end`)

// EndStuck ends the sessions of frozen processes that hold needed locks, and returns
// their number. It reads the server's locks: call it after a lock wait, or every few
// seconds, not in a loop.
func (s *Operations) EndStuck(ctx context.Context) (ended int, err error) {
	return pg.Execute(ctx, s.db, "end_stuck", "end the sessions of frozen processes",
		stuckSessions.With(pg.Args{"held_ms": s.db.Opts.HoldTimeout.Milliseconds(), "class": int32(pg.TurnLock)}))
}
