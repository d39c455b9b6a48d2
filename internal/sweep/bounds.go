package sweep

import (
	"context"
	"time"
)

// maxBatches bounds the batches of one run in addition to its time.
const maxBatches = 10_000

// bounds end a run after a number of batches or a time, whichever comes first. They do
// not interrupt a batch; only the end of the lease does.
type bounds struct {
	batches int
	time    time.Duration
}

// boundsOf leaves half of the lease to the last batch.
func boundsOf(lease time.Duration) bounds {
	return bounds{batches: maxBatches, time: lease / 2}
}

// repeat calls batch while it has more to do and the bounds allow. It reports whether
// work was left.
func (b bounds) repeat(ctx context.Context, batch func() (more bool, err error)) (left bool, err error) {
	begin := time.Now()
	for n := 1; ; n++ {
		more, err := batch()
		if err != nil || !more {
			return more, err
		}
		if n >= b.batches || time.Since(begin) >= b.time {
			return true, nil
		}
		if err := ctx.Err(); err != nil {
			return true, err
		}
	}
}
