package engine

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
)

// patience is the backoff for statements that the database did not answer.
func patience() deploymode.Backoff {
	return deploymode.Backoff{Base: 100 * time.Millisecond, Max: 5 * time.Second, Multiplier: 2, Jitter: 0.5}
}

// pause waits before retry n (0 for the first), at least least, or returns the cause of
// ctx's end.
func pause(ctx context.Context, n int, least time.Duration) error {
	return lifecycle.Pause(ctx, max(patience().Delay(n, rand.Float64()), least))
}
