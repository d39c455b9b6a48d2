package sweep

import (
	"context"
	"time"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// maxBatches bounds the batches of one run, should time not do so.
const maxBatches = 10_000

// bounds end a run after so many batches or so long, whichever comes first. A
// batch that has begun is not cut short by them, but by the end of the lease.
type bounds struct {
	batches int
	time    time.Duration
	clock   lifecycle.Clock
}

// boundsOf leaves the last batch half of the lease.
func boundsOf(lease time.Duration, clock lifecycle.Clock) bounds {
	return bounds{batches: maxBatches, time: lease / 2, clock: clock}
}

// repeat calls batch for as long as it has more to do and the bounds allow. It
// reports whether something was left.
func (b bounds) repeat(ctx context.Context, batch func() (more bool, err error)) (left bool, err error) {
	begin := b.clock.Now()
	for n := 1; ; n++ {
		more, err := batch()
		if err != nil || !more {
			return more, err
		}
		if n >= b.batches || b.clock.Now().Sub(begin) >= b.time {
			return true, nil
		}
		if err := ctx.Err(); err != nil {
			return true, err
		}
	}
}
