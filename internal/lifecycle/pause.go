package lifecycle

import (
	"context"
	"time"
)

// Pause waits d, or returns the cause of the end of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Nudge puts a token into a channel of capacity 1 whose reader looks for something to do; one that
// is there already is enough. It never blocks.
func Nudge(tokens chan<- struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}
