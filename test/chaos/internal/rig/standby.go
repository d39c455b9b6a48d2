package rig

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/internal/pgtest"
)

// follow gives the server a synchronous standby.
func (r *Rig) follow(ctx context.Context) error {
	primary := r.Server()
	// How soon it reconnects after a restart of the server, which commits nothing in the
	// meantime; 5 s by default, and not under test.
	settings := map[string]string{"wal_retrieve_retry_interval": "100ms"}
	var standby *pgtest.Standby
	_, err := r.serve(ctx, settings, func(o pgcluster.Options) (_ *pgcluster.Cluster, err error) {
		if standby, err = pgtest.StartStandby(ctx, primary, o); err != nil {
			return nil, err
		}
		return standby.Cluster, nil
	})
	if err != nil {
		return fmt.Errorf("start a standby: %w", err)
	}
	if err := pgtest.SetSynchronous(ctx, primary, standby); err != nil {
		return errors.Join(err, standby.Stop(context.WithoutCancel(ctx)), r.dropVolume(standby.Cluster))
	}
	r.mu.Lock()
	r.standby = standby
	r.mu.Unlock()
	return nil
}

// Promote kills the server, promotes its standby and leads every link there. The new
// server gets a standby of its own concurrently; the next promotion waits for that.
func (r *Rig) Promote(ctx context.Context) error {
	standby, err := r.awaitStandby(ctx)
	if err != nil {
		return err
	}
	dead := r.Server()
	if err := errors.Join(dead.Kill(ctx), standby.Promote(ctx)); err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	r.mu.Lock()
	r.cluster, r.standby = standby.Cluster, nil
	r.mu.Unlock()
	upstream := "127.0.0.1:" + strconv.Itoa(standby.Port())
	errs := []error{dead.Stop(ctx), r.dropVolume(dead)}
	for _, d := range r.Daemons {
		if d.Kind == Executor {
			continue
		}
		errs = append(errs, d.Pool.Lead(upstream))
		if r.Broker == nil {
			errs = append(errs, d.Ears.Lead(upstream))
		}
	}
	r.guarding.Go(func() { r.followAgain(r.guarded) })
	return errors.Join(errs...)
}

// followAgain retries until there is a standby: copying fails if a fault strikes the
// server.
func (r *Rig) followAgain(ctx context.Context) {
	for r.follow(ctx) != nil {
		if lifecycle.Pause(ctx, time.Second) != nil {
			return
		}
	}
}

func (r *Rig) awaitStandby(ctx context.Context) (*pgtest.Standby, error) {
	for {
		r.mu.Lock()
		standby := r.standby
		r.mu.Unlock()
		if standby != nil {
			return standby, nil
		}
		if err := lifecycle.Pause(ctx, 100*time.Millisecond); err != nil {
			return nil, fmt.Errorf("wait for a standby: %w", err)
		}
	}
}
