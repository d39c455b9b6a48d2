package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store/internal/stmt"
)

// fadingWorkers are those whose status does not match the age of their heartbeat. Workers that signed off are excluded.
// Index: workers_alive.
const fadingWorkers = `
select w.ctid as at, w.worker_uuid, w.worker_id, w.hostname, a.age as heartbeat_age, b.becomes
from tasker.workers w
cross join lateral (select (extract(epoch from clock_timestamp() - w.heartbeat_at) * 1000)::bigint as age offset 0) a
cross join lateral (select case when a.age >= @dead_ms::bigint then {worker_dead} when a.age >= @stale_ms::bigint then {worker_stale} else {worker_active} end as becomes offset 0) b
where w.status < {worker_dead} and w.stopped_at is null and w.status <> b.becomes
limit @limit`

// judgeWorkers updates the status of workers. A locked one is sending a heartbeat.
const judgeWorkers = `
with found as materialized (` + fadingWorkers + ` for update of w skip locked)
update tasker.workers w set status = f.becomes, status_since = clock_timestamp()
from found f where w.ctid = f.at and w.ctid = any (array(select at from found))
returning f.worker_uuid, f.worker_id, f.hostname, f.heartbeat_age, f.becomes`

const previewWorkers = `select worker_uuid, worker_id, hostname, heartbeat_age, becomes from (` + fadingWorkers + `) found`

// anyDead checks for workers that died recently and may hold claims.
// Index: workers_dead.
const anyDead = `exists (select from tasker.workers where status = {worker_dead} and status_since > (select clock_timestamp() - interval '1 hour'))`

// claimsOfDead are the claims of workers that died recently. Their leases end by
// themselves; this is for leases longer than the time after which a worker counts as
// dead.
// Index: workers_dead, board_lease.
const claimsOfDead = `
select s.ctid as at from tasker.board s
where s.state = {in_progress} and s.lease_until > (select clock_timestamp())
  and s.worker = any (array(select worker_uuid from tasker.workers where status = {worker_dead} and status_since > (select clock_timestamp() - interval '1 hour')
                            union all select unnest(@dead::uuid[])))
order by s.lease_until limit @limit`

// endLeasesOfDead ends the leases of dead workers, which then are handled as lost leases.
// A report before that is still accepted.
var endLeasesOfDead = compile(`
with lost as materialized (` + claimsOfDead + ` for update of s skip locked)
update tasker.board s set lease_until = clock_timestamp() where s.ctid = any (array(select at from lost))`)

var countClaimsOfDead = compile(`select count(*) from (` + claimsOfDead + `) c`)

// The sweep of liveness, and its preview. Most of the time no worker is dead: then this is
// all.
var (
	sweepWorkers = compile(`with judged as (` + judgeWorkers + `)` + judged)
	viewWorkers  = compile(`with judged as (` + previewWorkers + `)` + judged)
)

const judged = ` select *, false as holding from judged union all select null, '', '', 0, 0, true where ` + anyDead

// LivenessLimits are the ages at which workers are stale or dead.
type LivenessLimits struct {
	Stale, Dead time.Duration // since the last heartbeat
	Batch       int           // workers, and claims, at once; at least 1
}

// WorkerRef names a worker whose status changed.
type WorkerRef struct {
	UUID         uuid.UUID `sql:"worker_uuid,omitzero"`
	ID           string    `sql:"worker_id"`
	Hostname     string
	HeartbeatAge time.Duration
}

// Liveness is the result of SweepLiveness.
type Liveness struct {
	// Recovered workers send heartbeats again. A heartbeat sets its status itself, so
	// these are only workers of versions that do not.
	Stale, Recovered, Dead []WorkerRef
	Released               int             // claims of dead workers whose leases were ended
	More                   bool            // a batch was full: there may be more to do at once
	Signals                []signal.Signal // to publish, unless the store sends them itself
}

// SweepLiveness updates the status of workers by the age of their heartbeat and the
// database's clock, and ends the leases of dead ones. A dry run only reports.
func (s *Store) SweepLiveness(ctx context.Context, l LivenessLimits, dry bool) (Liveness, error) {
	var found Liveness
	err := s.call(ctx, "liveness", "check the liveness of workers", func(ctx context.Context, db *conn) error {
		found = Liveness{}
		statement := sweepWorkers
		if dry {
			statement = viewWorkers
		}
		holding, err := found.read(ctx, db, statement.With(args{"stale_ms": l.Stale.Milliseconds(), "dead_ms": l.Dead.Milliseconds(), "limit": l.Batch}))
		if err != nil {
			return err
		}
		found.More = len(found.Stale)+len(found.Recovered)+len(found.Dead) >= l.Batch
		dead := make(uuids, 0, len(found.Dead))
		for _, w := range found.Dead {
			dead = append(dead, w.UUID)
		}
		if dry {
			found.Released, err = stmt.One[int](ctx, db, countClaimsOfDead.With(args{"limit": l.Batch, "dead": dead}))
			return err
		}
		if len(dead) == 0 && !holding {
			return nil
		}
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			if found.Released, err = run(ctx, tx, endLeasesOfDead.With(args{"limit": l.Batch, "dead": dead})); err != nil {
				return nil, err
			}
			if found.Released > 0 {
				found.Signals = []signal.Signal{{Topic: signal.TopicDue}} // the timers must know
			}
			found.More = found.More || found.Released >= l.Batch
			return found.Signals, nil
		})
	})
	return found, err
}

// read reads the workers; holding says that workers that died earlier may hold claims.
func (f *Liveness) read(ctx context.Context, db *conn, c stmt.Call) (holding bool, err error) {
	type row struct {
		WorkerRef
		Becomes WorkerStatus
		Holding bool
	}
	err = stmt.Each(ctx, db, c, func(r *row) error {
		switch {
		case r.Holding:
			holding = true
		case r.Becomes == WorkerStale:
			f.Stale = append(f.Stale, r.WorkerRef)
		case r.Becomes == WorkerDead:
			f.Dead = append(f.Dead, r.WorkerRef)
		default:
			f.Recovered = append(f.Recovered, r.WorkerRef)
		}
		return nil
	})
	return holding, err
}

// WorkerFilter selects workers; zero values select everything.
type WorkerFilter struct {
	Status    WorkerStatus
	Namespace string // which they serve
	Running   bool   // only those that have not signed off
	Limit     int    // default and most: 1,000
}

// WorkerState is a worker in the registry.
type WorkerState struct {
	Daemon
	Status       WorkerStatus
	StatusSince  time.Time
	StartedAt    time.Time
	HeartbeatAge time.Duration `sql:",seconds"` // by the database's clock
	StoppedAt    *time.Time    // when it signed off
}

var listWorkers = compile(`
select worker_uuid as uuid, worker_id as id, hostname, address, version, mode, namespaces, tags, refused_templates as refused, status, status_since,
       started_at, greatest(extract(epoch from clock_timestamp() - heartbeat_at), 0)::float8 as heartbeat_age, stopped_at
from tasker.workers
where (@status::smallint = 0 or status = @status::smallint) and (@namespace = '' or @namespace = any (namespaces)) and (not @running or stopped_at is null)
order by heartbeat_at desc limit @limit`)

// Workers lists workers, latest heartbeat first.
func (s *Store) Workers(ctx context.Context, f WorkerFilter) ([]WorkerState, error) {
	limit := f.Limit
	if limit <= 0 || limit > 1000 {
		limit = 1000
	}
	return readAll[WorkerState](ctx, s, "workers", "list the workers", listWorkers.With(args{
		"status": int16(f.Status), "namespace": f.Namespace, "running": f.Running, "limit": limit}))
}
