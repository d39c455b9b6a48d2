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

// observeSenders returns a loop that adds the senders' counts to the metrics.
func observeSenders(senders []*sourceSender, m *telemetry.Metrics, log *zap.Logger) *lifecycle.Loop {
	last := make([]pending.SenderStats, len(senders))
	add := func() {
		for i, s := range senders {
			now := s.Stats()
			m.SignalsSent.Add(float64(now.Sent - last[i].Sent))
			m.SignalsCoalesced.Add(float64(now.Coalesced - last[i].Coalesced))
			m.SignalsDropped.Add(float64(now.Dropped - last[i].Dropped))
			m.SignalsFailed.Add(float64(now.Failed - last[i].Failed))
			last[i] = now
		}
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
