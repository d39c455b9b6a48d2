package orchestration

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// endStuck frees what processes hold that froze, unless that was looked after
// less than pause ago. Without it they would stand in the way until the server's
// own time-outs, which do not see all of them; see store.EndStuck.
func (o *Orchestrator) endStuck(ctx context.Context, pause time.Duration) {
	now, last := time.Now().UnixNano(), o.evicted.Load()
	if now-last < pause.Nanoseconds() || !o.evicted.CompareAndSwap(last, now) {
		return
	}
	ended, err := o.store.EndStuck(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		o.log.Warn("sessions of frozen processes could not be looked for", zap.Error(err))
	case ended > 0:
		o.metrics.StuckSessionsEnded.Add(float64(ended))
		o.log.Warn("ended the sessions of processes that froze while they held locks which others need", zap.Int("sessions", ended))
	}
}
