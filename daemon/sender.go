package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// senderStatistics is how often the counts of the sender become metrics.
const senderStatistics = 5 * time.Second

// observeSender returns a loop that adds the sender's counts to the metrics.
func observeSender(s *pending.Sender, m *telemetry.Metrics, log *zap.Logger) *lifecycle.Loop {
	var last pending.SenderStats
	add := func() {
		now := s.Stats()
		m.SignalsSent.Add(float64(now.Sent - last.Sent))
		m.SignalsCoalesced.Add(float64(now.Coalesced - last.Coalesced))
		m.SignalsDropped.Add(float64(now.Dropped - last.Dropped))
		m.SignalsFailed.Add(float64(now.Failed - last.Failed))
		last = now
	}
	return lifecycle.NewLoop(lifecycle.LoopConfig{Name: "signal-statistics", Logger: log, OnRestart: m.Restarted, Run: func(ctx context.Context) error {
		ticker := time.NewTicker(senderStatistics)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				add()
				return nil
			case <-ticker.C:
				add()
			}
		}
	}})
}
