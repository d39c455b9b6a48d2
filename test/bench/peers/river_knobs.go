package peers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
)

// riverKnobs are the parts of River's configuration that change its speed. Zero values
// mean River's own defaults.
type riverKnobs struct {
	// clients in the process, each with its own pool, fetcher and batch completer; at
	// least 1.
	clients int
	// maxWorkers bounds the concurrent jobs of a client, and so the jobs of one fetch.
	maxWorkers int
	// conns bounds the pool of a client.
	conns int32
	// cooldown is the least time between two fetches of a client and between two
	// notifications of an inserting one; poll is the time between fetches without a
	// trigger.
	cooldown, poll time.Duration
	// lean omits what no-op jobs do not need: the watch over each job's time limit, which
	// costs a timer and a goroutine per job, and the leader's services (cleaner, rescuer,
	// scheduler, reindexer).
	lean bool
	// takes is how long a job waits.
	takes time.Duration
}

// defaultRiver is the configuration of River's introduction.
func defaultRiver() riverKnobs { return riverKnobs{clients: 1, maxWorkers: 100} }

// tunedRiver is among the best of BenchmarkRiverDrain. Its fetches and batches of
// completions overlap with two clients; more clients, and more workers each, gained
// nothing on two cores.
func tunedRiver() riverKnobs {
	return riverKnobs{clients: 2, maxWorkers: 2000, conns: 10, cooldown: river.FetchCooldownMin,
		poll: 20 * time.Millisecond, lean: true}
}

// at divides the permits of a pace among the clients.
func (k riverKnobs) at(pace Pace) riverKnobs {
	k.takes = pace.Takes
	if pace.Permits > 0 {
		k.maxWorkers = pace.Permits / k.clients
	}
	return k
}

// config is River's configuration with these knobs, for a client that works.
func (k riverKnobs) config() *river.Config {
	workers := river.NewWorkers()
	river.AddWorker(workers, &square{takes: k.takes})
	c := &river.Config{
		Logger:            quiet(),
		Workers:           workers,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: k.maxWorkers}},
		FetchCooldown:     k.cooldown,
		FetchPollInterval: k.poll,
	}
	if k.lean {
		c.JobTimeout = -1
		c.LeaderElectionDisabled = true
	}
	return c
}

func (k riverKnobs) pool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("read the connection string for River: %w", err)
	}
	if k.conns > 0 {
		config.MaxConns = k.conns
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open a pool for River: %w", err)
	}
	return pool, nil
}

// String implements fmt.Stringer.
func (k riverKnobs) String() string {
	parts := []string{fmt.Sprintf("%d client(s)", k.clients), fmt.Sprintf("MaxWorkers %d", k.maxWorkers)}
	add := func(set bool, format string, args ...any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(k.conns > 0, "pool of %d", k.conns)
	add(k.cooldown > 0, "FetchCooldown %s", k.cooldown)
	add(k.poll > 0, "FetchPollInterval %s", k.poll)
	add(k.lean, "JobTimeout off, no leader (cleaner, rescuer, scheduler, reindexer)")
	parts = append(parts, fmt.Sprintf("InsertManyFast (COPY) of %d", riverBatch), "logs warnings", "all else default")
	return strings.Join(parts, ", ")
}
