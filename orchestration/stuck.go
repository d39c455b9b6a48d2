package orchestration

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// endStuck ends the sessions of frozen processes that hold locks, unless the last
// search was less than pause ago. Otherwise these locks would stay until the server's
// own time-outs, which do not see all of them; see store.EndStuck.
func (o *Orchestrator) endStuck(ctx context.Context, pause time.Duration) {
	now, last := time.Now().UnixNano(), o.evicted.Load()
	if now-last < pause.Nanoseconds() || !o.evicted.CompareAndSwap(last, now) {
		return
	}
	ended, err := o.store.EndStuck(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		o.log.Warn("searching for sessions of frozen processes failed", zap.Error(err))
	case ended > 0:
		o.metrics.StuckSessionsEnded.Add(float64(ended))
		o.log.Warn("ended the sessions of processes that froze while holding locks", zap.Int("sessions", ended))
	}
}
