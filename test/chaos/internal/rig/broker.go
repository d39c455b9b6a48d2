package rig

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
	"github.com/tasker-go/tasker/test/fleet"
)

// carrier is the process of a broker.
type carrier interface {
	// address is where it listens, host and port.
	address() string
	// config has a daemon use the broker at an address, and an orchestrator take its jobs.
	config(kind fleet.Kind, address string) string
	// post gives it a job as another program does, and returns once it has it for good.
	post(ctx context.Context, job workload.Job) error
	// forget deletes what it holds while connections stay.
	forget(ctx context.Context) error

	kill() error
	signal(s syscall.Signal) error
	start(ctx context.Context) error // after kill
	clear(ctx context.Context) error // kills it and starts it empty
	starve(ctx context.Context, short bool) error
	fill(ctx context.Context, full bool) error
	close() error
}

// newCarrier starts the broker of an event source; nil where PostgreSQL carries signals.
func newCarrier(ctx context.Context, source string) (carrier, error) {
	switch source {
	case "amqp":
		return newRabbit(ctx)
	case "redis":
		return newRedis(ctx)
	}
	return nil, nil //nolint:nilnil // most sources need none
}

// Broker is the server that carries signals where PostgreSQL does not, and holds the jobs of
// another program. Its methods are safe for concurrent use.
type Broker struct {
	carrier

	rig     *Rig
	busy    chan struct{} // holds one token while a fault has the broker
	posting sync.RWMutex  // held for writing while it is wiped
	mu      sync.Mutex
	posted  []string // ids of jobs that it has confirmed and that are not known to be tasks
}

// Take reserves the broker for one fault; the returned function releases it.
func (b *Broker) Take(ctx context.Context) (release func(), err error) {
	return take(ctx, b.busy, "the broker")
}

// startTries is how often a broker is started that does not come up.
const startTries = 3

// Kill ends the broker without a chance to save anything, and starts it again after a while.
func (b *Broker) Kill(ctx context.Context, d time.Duration) error {
	err := errors.Join(b.kill(), lifecycle.Pause(ctx, d))
	var last error
	for range startTries {
		if last = b.start(context.WithoutCancel(ctx)); last == nil {
			break
		}
		last = errors.Join(last, b.kill())
	}
	return errors.Join(err, last)
}

// Freeze stops its process for a while.
func (b *Broker) Freeze(ctx context.Context, d time.Duration) error {
	return errors.Join(b.signal(syscall.SIGSTOP), lifecycle.Pause(ctx, d), b.signal(syscall.SIGCONT))
}

// Starve leaves it no memory for a while.
func (b *Broker) Starve(ctx context.Context, d time.Duration) error {
	return alarm(ctx, d, b.starve)
}

// Fill leaves it no disk for a while.
func (b *Broker) Fill(ctx context.Context, d time.Duration) error {
	return alarm(ctx, d, b.fill)
}

func alarm(ctx context.Context, d time.Duration, set func(context.Context, bool) error) error {
	err := set(ctx, true)
	if err == nil {
		err = lifecycle.Pause(ctx, d)
	}
	return errors.Join(err, set(context.WithoutCancel(ctx), false))
}

// Wipe makes the broker forget everything: with its connections, or while they stay. What a
// wiped broker has confirmed is gone, so the jobs before are tasks first.
func (b *Broker) Wipe(ctx context.Context, whole bool) error {
	b.posting.Lock()
	defer b.posting.Unlock()
	if err := b.settle(ctx); err != nil {
		return err
	}
	if whole {
		return b.clear(context.WithoutCancel(ctx))
	}
	return b.forget(ctx)
}

// Post gives the broker a job, and returns once it has confirmed it.
func (b *Broker) Post(ctx context.Context, job workload.Job) error {
	b.posting.RLock()
	defer b.posting.RUnlock()
	if err := b.post(ctx, job); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.posted = append(b.posted, job.ID)
	return nil
}

// settle waits until all jobs that the broker has confirmed are tasks.
func (b *Broker) settle(ctx context.Context) error {
	for {
		b.mu.Lock()
		posted := b.posted
		b.mu.Unlock()
		err := b.rig.Do(ctx, func(db *pgx.Conn) error {
			rows, err := db.Query(ctx, `select id from unnest($1::text[]) id where id not in (select idempotency_key from tasker.tasks where idempotency_key is not null)`, posted)
			if err == nil {
				posted, err = pgx.CollectRows(rows, pgx.RowTo[string])
			}
			return err
		})
		if err == nil {
			b.mu.Lock()
			b.posted = posted // only Post adds to them, which waits
			b.mu.Unlock()
			if len(posted) == 0 {
				return nil
			}
		}
		if late := lifecycle.Pause(ctx, 100*time.Millisecond); late != nil {
			return fmt.Errorf("wait until %d jobs are tasks: %w", len(posted), errors.Join(late, err))
		}
	}
}
