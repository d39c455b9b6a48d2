package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
)

// Namesake is a worker, alive or dead, with the worker_id that another one requests.
type Namesake struct {
	UUID         uuid.UUID
	Hostname     string
	HeartbeatAt  time.Time     // by the database's clock
	HeartbeatAge time.Duration // by the database's clock
}

// TakenWorkerID is the result of a request for a worker_id.
type TakenWorkerID struct {
	// Others have the worker_id. If there are any nothing has changed.
	Others []Namesake
	// Released is the number of claims of dead ones; their leases have ended.
	Released int
	Signals  []signal.Signal // to publish, unless the store sends them itself
}

const (
	// maxNamesakes bounds the namesakes returned at once.
	maxNamesakes = 100
	// maxInherited bounds the leases that end at once; the liveness sweep ends the
	// others.
	maxInherited = 10_000
)

// Requests for a worker_id are serialized.
const workerIDTurn = `select pg_advisory_xact_lock(hashtextextended('tasker.worker_id ' || $1, 0))`

// namesakes have worker_id $1, and neither signed off nor are dead. Their rows are
// locked: a heartbeat precedes the decision or is rejected after it.
const namesakes = `
select worker_uuid, hostname, heartbeat_at, (extract(epoch from clock_timestamp() - heartbeat_at) * 1000)::bigint
from tasker.workers
where worker_id = $1 and worker_uuid <> $2 and status < 3 and stopped_at is null
order by worker_uuid limit $3 for update`

// succeedWorkers marks namesakes $7 as dead and registers their successor, whose first
// heartbeat adds the rest.
// Index: the primary key.
const succeedWorkers = `
with dead as (
    update tasker.workers set status = 3, status_since = clock_timestamp() where worker_uuid = any ((select $7::uuid[])::uuid[])
)
insert into tasker.workers (worker_uuid, worker_id, hostname, version, mode, namespaces)
values ($1, $2, $3, $4, $5, $6) on conflict (worker_uuid) do nothing`

// TakeWorkerID registers a worker under its ID if no other one has that. Workers in dead
// whose last heartbeat is silence old by the database's clock count as dead: their leases
// end. The caller has watched those in dead long enough for a living one to send a
// heartbeat.
func (s *Store) TakeWorkerID(ctx context.Context, d Daemon, dead []uuid.UUID, silence time.Duration) (TakenWorkerID, error) {
	var taken TakenWorkerID
	given := make(map[uuid.UUID]bool, len(dead))
	for _, id := range dead {
		given[id] = true
	}
	err := s.call(ctx, "take_worker_id", "take the worker_id", func(ctx context.Context, db *conn) error {
		taken = TakenWorkerID{}
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) (_ []signal.Signal, err error) {
			if _, err = tx.Exec(ctx, workerIDTurn, d.ID); err != nil {
				return nil, err
			}
			found, err := readNamesakes(ctx, tx, d)
			if err != nil {
				return nil, err
			}
			gone := make(uuids, 0, len(found))
			for _, n := range found {
				if !given[n.UUID] || n.HeartbeatAge < silence {
					taken.Others = found
					return nil, nil
				}
				gone = append(gone, n.UUID)
			}
			if _, err = tx.Exec(ctx, succeedWorkers, d.UUID, d.ID, d.Hostname, d.Version, d.Mode, nonNil(d.Namespaces), gone); err != nil || len(gone) == 0 {
				return nil, err
			}
			tag, err := tx.Exec(ctx, endLeasesOfDead, maxInherited, gone)
			if err != nil {
				return nil, err
			}
			if taken.Released = int(tag.RowsAffected()); taken.Released > 0 {
				taken.Signals = []signal.Signal{{Topic: signal.TopicDue}} // the timers must know
			}
			return taken.Signals, nil
		})
	})
	return taken, err
}

func readNamesakes(ctx context.Context, tx pgx.Tx, d Daemon) ([]Namesake, error) {
	rows, err := tx.Query(ctx, namesakes, d.ID, d.UUID, maxNamesakes)
	if err != nil {
		return nil, fmt.Errorf("look for workers of the same worker_id: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (n Namesake, err error) {
		var age int64
		err = row.Scan((*[16]byte)(&n.UUID), &n.Hostname, &n.HeartbeatAt, &age)
		n.HeartbeatAge = time.Duration(age) * time.Millisecond
		return n, err
	})
}
