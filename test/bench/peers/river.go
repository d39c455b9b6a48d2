package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/tasker-go/tasker/test/bench/internal/load"
)

const (
	// riverBatch is the number of jobs of one COPY.
	riverBatch = 5000
	// batchTimeout bounds one COPY, migrateTimeout all migrations and
	// stopTimeout the end of the workers.
	batchTimeout   = time.Minute
	migrateTimeout = time.Minute
	stopTimeout    = time.Minute
)

// riverQueue is River (github.com/riverqueue/river).
type riverQueue struct {
	name     string
	knobs    riverKnobs
	progress riverProgress
}

func newRiver(name string, knobs riverKnobs) *riverQueue {
	return &riverQueue{name: name, knobs: knobs}
}

// Name implements Peer.
func (r *riverQueue) Name() string { return r.name }

// Version implements Peer.
func (*riverQueue) Version() string { return moduleVersion("github.com/riverqueue/river") }

// Settings implements Peer.
func (r *riverQueue) Settings() string { return r.knobs.String() }

// number is the smallest job there can be.
type number struct {
	N int `json:"n"`
}

// Kind implements river.JobArgs.
func (number) Kind() string { return "square" }

// square is the handler. River's handlers return only an error, so there is no result to
// store.
type square struct {
	river.WorkerDefaults[number]
	takes time.Duration
}

// Work implements river.Worker.
func (s *square) Work(_ context.Context, job *river.Job[number]) error {
	if s.takes > 0 {
		if err := load.Pause(s.takes); err != nil {
			return err
		}
	}
	if n := job.Args.N; n*n < 0 {
		return fmt.Errorf("the square of %d is too large", n)
	}
	return nil
}

// Prepare implements Peer.
func (r *riverQueue) Prepare(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return fmt.Errorf("open a pool for River: %w", err)
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return fmt.Errorf("load River's migrations: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate to River's tables: %w", err)
	}
	return nil
}

// Submit implements Peer. It uses COPY, River's fastest way.
func (r *riverQueue) Submit(ctx context.Context, dsn string, n int) error {
	return r.inserting(ctx, dsn, func(client *river.Client[pgx.Tx]) error {
		batch := make([]river.InsertManyParams, min(n, riverBatch))
		for i := range batch {
			batch[i].Args = number{N: i}
		}
		for left := n; left > 0; {
			size := min(left, len(batch))
			if err := insertBatch(ctx, client, batch[:size]); err != nil {
				return err
			}
			left -= size
		}
		return nil
	})
}

func insertBatch(ctx context.Context, client *river.Client[pgx.Tx], batch []river.InsertManyParams) error {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	if _, err := client.InsertManyFast(ctx, batch); err != nil {
		return fmt.Errorf("insert %d River jobs: %w", len(batch), err)
	}
	return nil
}

// inserting calls f with a client that only inserts. It has the same knobs as the
// workers: one of them bounds the notifications of inserts.
func (r *riverQueue) inserting(ctx context.Context, dsn string, f func(*river.Client[pgx.Tx]) error) error {
	pool, err := r.knobs.pool(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	config := r.knobs.config()
	config.Queues = nil
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return fmt.Errorf("make a River client that inserts: %w", err)
	}
	return f(client)
}

// Work implements Peer.
func (r *riverQueue) Work(ctx context.Context, dsn string, pace Pace) (err error) {
	knobs := r.knobs.at(pace)
	for range knobs.clients {
		stop, startErr := knobs.start(ctx, dsn)
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, stop()) }() // few, and all run until the end
	}
	<-ctx.Done()
	return nil
}

// start runs a client. It outlives ctx: it is stopped, not cancelled, so that it finishes
// its claimed jobs.
func (k riverKnobs) start(ctx context.Context, dsn string) (stop func() error, err error) {
	pool, err := k.pool(ctx, dsn)
	if err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), k.config())
	if err == nil {
		err = client.Start(context.WithoutCancel(ctx))
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("start River: %w", err)
	}
	return func() error {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := client.Stop(stopCtx); err != nil {
			// Closing the pool would wait for everything that still runs.
			return fmt.Errorf("stop River: %w", err)
		}
		pool.Close()
		return nil
	}, nil
}

// quiet keeps output out of the measurement.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// moduleVersion is the version of a module in this program.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, dep := range info.Deps {
			if dep.Path == path {
				return dep.Version
			}
		}
	}
	return "unknown"
}
