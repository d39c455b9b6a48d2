package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
)

// WorkerStatus is the fleet's judgement of a worker. The numbers are stored.
type WorkerStatus int16

// The statuses. A dead worker stays dead: its process registers again under a new UUID.
const (
	WorkerActive WorkerStatus = iota + 1
	WorkerStale
	WorkerDead
)

var workerStatusNames = [...]string{WorkerActive: "active", WorkerStale: "stale", WorkerDead: "dead"}

// String is the name used in JSON and metrics.
func (s WorkerStatus) String() string {
	if s <= 0 || int(s) >= len(workerStatusNames) {
		return fmt.Sprintf("unknown worker status %d", int(s))
	}
	return workerStatusNames[s]
}

// fadingWorkers are those whose status does not match the age of their heartbeat; $1 and
// $2 are the ages in ms of stale and dead ones. Workers that signed off are excluded.
// Index: workers_alive.
const fadingWorkers = `
select w.ctid as at, w.worker_uuid, w.worker_id, w.hostname, a.age, b.becomes
from tasker.workers w
cross join lateral (select (extract(epoch from clock_timestamp() - w.heartbeat_at) * 1000)::bigint as age offset 0) a
cross join lateral (select case when a.age >= $2::bigint then 3 when a.age >= $1::bigint then 2 else 1 end as becomes offset 0) b
where w.status < 3 and w.stopped_at is null and w.status <> b.becomes
limit $3`

// judgeWorkers updates the status of workers. A locked one is sending a heartbeat.
const judgeWorkers = `
with found as materialized (` + fadingWorkers + ` for update of w skip locked)
update tasker.workers w set status = f.becomes, status_since = clock_timestamp()
from found f where w.ctid = f.at and w.ctid = any (array(select at from found))
returning f.worker_uuid, f.worker_id, f.hostname, f.age, f.becomes`

const previewWorkers = `select worker_uuid, worker_id, hostname, age, becomes from (` + fadingWorkers + `) found`

// anyDead checks for workers that died recently and may hold claims.
// Index: workers_dead.
const anyDead = `exists (select from tasker.workers where status = 3 and status_since > (select clock_timestamp() - interval '1 hour'))`

// claimsOfDead are the claims of workers that died recently. Their leases end by
// themselves; this is for leases longer than the time after which a worker counts as
// dead.
// Index: workers_dead, board_lease.
const claimsOfDead = `
select s.ctid as at from tasker.board s
where s.state = 3 and s.lease_until > (select clock_timestamp())
  and s.worker = any (array(select worker_uuid from tasker.workers where status = 3 and status_since > (select clock_timestamp() - interval '1 hour')
                            union all select unnest($2::uuid[])))
order by s.lease_until limit $1`

// endLeasesOfDead ends the leases of dead workers, which then are handled as lost leases.
// A report before that is still accepted.
const endLeasesOfDead = `
with lost as materialized (` + claimsOfDead + ` for update of s skip locked)
update tasker.board s set lease_until = clock_timestamp() where s.ctid = any (array(select at from lost))`

// LivenessLimits are the ages at which workers are stale or dead.
type LivenessLimits struct {
	Stale, Dead time.Duration // since the last heartbeat
	Batch       int           // workers, and claims, at once; at least 1
}

// WorkerRef names a worker whose status changed.
type WorkerRef struct {
	UUID         uuid.UUID
	ID, Hostname string
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
		query := `with judged as (` + judgeWorkers + `)`
		if dry {
			query = `with judged as (` + previewWorkers + `)`
		}
		// Most of the time no worker is dead: then this is all.
		query += ` select *, false from judged union all select null, '', '', 0, 0, true where ` + anyDead
		rows, err := db.Query(ctx, query, l.Stale.Milliseconds(), l.Dead.Milliseconds(), l.Batch)
		if err != nil {
			return err
		}
		holding, err := found.collect(rows)
		if err != nil {
			return err
		}
		found.More = len(found.Stale)+len(found.Recovered)+len(found.Dead) >= l.Batch
		dead := make(uuids, 0, len(found.Dead))
		for _, w := range found.Dead {
			dead = append(dead, w.UUID)
		}
		if dry {
			return db.QueryRow(ctx, `select count(*) from (`+claimsOfDead+`) c`, l.Batch, dead).Scan(&found.Released)
		}
		if len(dead) == 0 && !holding {
			return nil
		}
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			tag, err := tx.Exec(ctx, endLeasesOfDead, l.Batch, dead)
			if err != nil {
				return nil, err
			}
			if found.Released = int(tag.RowsAffected()); found.Released > 0 {
				found.Signals = []signal.Signal{{Topic: signal.TopicDue}} // the timers must know
			}
			found.More = found.More || found.Released >= l.Batch
			return found.Signals, nil
		})
	})
	return found, err
}

// collect reads the workers; holding says that workers that died earlier may hold claims.
func (f *Liveness) collect(rows pgx.Rows) (holding bool, err error) {
	var w WorkerRef
	var id *uuid.UUID
	var age int64
	var becomes WorkerStatus
	_, err = pgx.ForEachRow(rows, []any{&id, &w.ID, &w.Hostname, &age, &becomes, &holding}, func() error {
		if id == nil {
			return nil
		}
		w.UUID = *id
		w.HeartbeatAge = time.Duration(age) * time.Millisecond
		switch becomes {
		case WorkerStale:
			f.Stale = append(f.Stale, w)
		case WorkerDead:
			f.Dead = append(f.Dead, w)
		default:
			f.Recovered = append(f.Recovered, w)
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
	HeartbeatAge time.Duration // by the database's clock
	StoppedAt    *time.Time    // when it signed off
}

// Workers lists workers, latest heartbeat first.
func (s *Store) Workers(ctx context.Context, f WorkerFilter) (list []WorkerState, err error) {
	limit := f.Limit
	if limit <= 0 || limit > 1000 {
		limit = 1000
	}
	err = s.repeatable(ctx, "workers", "list the workers", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, `
			select worker_uuid, worker_id, hostname, address, version, mode, namespaces, tags, refused_templates, status, status_since, started_at,
			       extract(epoch from clock_timestamp() - heartbeat_at)::float8, stopped_at
			from tasker.workers
			where ($1::smallint = 0 or status = $1::smallint) and ($2 = '' or $2 = any (namespaces)) and (not $3 or stopped_at is null)
			order by heartbeat_at desc limit $4`, int16(f.Status), f.Namespace, f.Running, limit)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (w WorkerState, err error) {
			var age float64
			err = row.Scan(&w.UUID, &w.ID, &w.Hostname, &w.Address, &w.Version, &w.Mode, &w.Namespaces, &w.Tags, &w.Refused, &w.Status, &w.StatusSince,
				&w.StartedAt, &age, &w.StoppedAt)
			w.HeartbeatAge = time.Duration(max(age, 0) * float64(time.Second))
			return w, err
		})
		return err
	})
	return list, err
}
