package load

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Paced has clients create tasks one by one, so many per second in all, for a time, and
// returns their ids. A client that falls behind catches up as fast as it can.
func (c *Creator) Paced(ctx context.Context, clients int, rate float64, lasting time.Duration) ([]string, error) {
	ids, errs := make([][]string, clients), make([]error, clients)
	gap := time.Duration(float64(time.Second) / rate)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			ids[i], errs[i] = c.paced(ctx, time.Duration(i)*gap, time.Duration(clients)*gap, lasting)
		})
	}
	wg.Wait()
	var all []string
	for _, made := range ids {
		all = append(all, made...)
	}
	return all, errors.Join(errs...)
}

// paced creates a task every gap.
func (c *Creator) paced(ctx context.Context, at, gap, lasting time.Duration) (ids []string, err error) {
	wire, err := Dial(ctx, c.server)
	if err != nil {
		return nil, err
	}
	defer wire.Close()
	for begin := time.Now(); at < lasting && ctx.Err() == nil; at += gap {
		if early := at - time.Since(begin); early > 0 {
			if err := Pause(early); err != nil {
				return ids, err
			}
		}
		id, err := c.One(wire)
		if err != nil {
			return ids, err
		}
		ids = append(ids, id)
	}
	return ids, ctx.Err()
}
