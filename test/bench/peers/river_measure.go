package peers

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
)

// riverProgress is the progress of Finished on a connection.
type riverProgress struct {
	db *pgx.Conn
	// through is an id up to which every job is complete, finished the number of these
	// jobs. Complete jobs stay so, and ids are committed in order as only one process
	// submits at a time: none of these is read again.
	through, finished int64
}

// progressChunk is how many jobs Finished reads per query. River claims in the order of
// ids, apart from those that its workers hold, so a chunk without a complete job ends the
// search.
const progressChunk = 5000

// riverChunk reads the chunk after an id by primary key: its number of jobs, how many are
// complete, how many of those precede the first that is not, the id before that one, and
// the last id.
const riverChunk = `
	with chunk as materialized (
		select id, state = 'completed' as done from river_job where id > $1 order by id limit $2
	), open as (select min(id) as id from chunk where not done)
	select count(*), count(*) filter (where done),
	       count(*) filter (where open.id is null or chunk.id < open.id),
	       coalesce(min(open.id) - 1, max(chunk.id), $1), coalesce(max(chunk.id), $1)
	from chunk cross join open`

// Finished implements Peer.
func (r *riverQueue) Finished(ctx context.Context, db *pgx.Conn) (int64, error) {
	if r.progress.db != db {
		r.progress = riverProgress{db: db}
	}
	var (
		p      = &r.progress
		beyond int64 // complete jobs after an incomplete one
		moving = true
	)
	for after := p.through; ; {
		var rows, done, head, headEnd, last int64
		if err := db.QueryRow(ctx, riverChunk, after, progressChunk).Scan(&rows, &done, &head, &headEnd, &last); err != nil {
			return 0, fmt.Errorf("count River's finished jobs: %w", err)
		}
		if moving {
			p.through, p.finished = headEnd, p.finished+head
			beyond -= head
			moving = headEnd == last
		}
		beyond += done
		if rows < progressChunk || done == 0 {
			return p.finished + beyond, nil
		}
		after = last
	}
}

// Took implements Peer. The end of a job is the worker's clock when its handler returned;
// it is written later, with the batch.
func (*riverQueue) Took(ctx context.Context, db *pgx.Conn) (time.Duration, error) {
	var seconds *float64
	const query = `select extract(epoch from max(finalized_at) - min(attempted_at))::float8 from river_job`
	if err := db.QueryRow(ctx, query).Scan(&seconds); err != nil {
		return 0, fmt.Errorf("read how long River took: %w", err)
	}
	if seconds == nil {
		return 0, fmt.Errorf("read how long River took: no job has run")
	}
	return time.Duration(*seconds * float64(time.Second)), nil
}

const (
	// latencyWarmUp jobs precede those that Latency counts.
	latencyWarmUp = 20
	// latencyPoll is how often Latency looks whether a job has ended.
	latencyPoll = 5 * time.Millisecond
	// latencyTimeout bounds one job of Latency.
	latencyTimeout = 30 * time.Second
)

// Latency implements Peer. The queue is idle when the last job is complete and
// the pause between two fetches is over, which would delay the next.
func (r *riverQueue) Latency(ctx context.Context, dsn string, n int) (latencies []time.Duration, err error) {
	db, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("connect to look at River's jobs: %w", err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	err = r.inserting(ctx, dsn, func(client *river.Client[pgx.Tx]) error {
		for i := range latencyWarmUp + n {
			latency, err := r.one(ctx, client, db)
			if err != nil {
				return err
			}
			if i >= latencyWarmUp {
				latencies = append(latencies, latency)
			}
		}
		return nil
	})
	return latencies, err
}

// one runs one job and waits until the queue is idle again.
func (r *riverQueue) one(ctx context.Context, client *river.Client[pgx.Tx], db *pgx.Conn) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, latencyTimeout)
	defer cancel()
	inserted, err := client.Insert(ctx, number{N: 2}, nil)
	if err != nil {
		return 0, fmt.Errorf("insert a River job: %w", err)
	}
	rest := time.NewTimer(2 * r.knobs.config().WithDefaults().FetchCooldown)
	defer rest.Stop()
	ticker := time.NewTicker(latencyPoll)
	defer ticker.Stop()
	const query = `select state = 'completed', coalesce(extract(epoch from attempted_at - created_at), 0)::float8 from river_job where id = $1`
	var (
		done    bool
		seconds float64
	)
	for !done {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for River job %d: %w", inserted.Job.ID, ctx.Err())
		case <-ticker.C:
		}
		if err := db.QueryRow(ctx, query, inserted.Job.ID).Scan(&done, &seconds); err != nil {
			return 0, fmt.Errorf("look at River job %d: %w", inserted.Job.ID, err)
		}
	}
	select {
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for River to be idle: %w", ctx.Err())
	case <-rest.C:
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
