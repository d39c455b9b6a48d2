package listener

import (
	"time"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
)

// Health is the state of a listener.
type Health struct {
	deploymode.Snapshot
	Source string `json:"source"`
	// Topics it is subscribed to, or will be, without its probe topic.
	Topics int `json:"topics"`
	// LagMS is the round trip of the latest probe in milliseconds, LagAt the time of its
	// return; both zero before the first.
	LagMS       float64              `json:"lag_ms"`
	LagAt       time.Time            `json:"lag_at,omitzero"`
	ConnectedAt time.Time            `json:"connected_at,omitzero"`
	LastError   string               `json:"last_error,omitempty"`
	Loop        lifecycle.LoopHealth `json:"loop"`
}

// Health returns the present state.
func (l *Listener) Health() Health {
	loop := l.loop.Health()
	l.mu.Lock()
	defer l.mu.Unlock()
	h := Health{
		Snapshot:    l.machine.Snapshot(),
		Topics:      len(l.topics) - 1,
		LagMS:       milliseconds(l.lag.RoundTrip),
		LagAt:       l.lag.At,
		ConnectedAt: l.connectedAt,
		LastError:   l.lastError,
		Loop:        loop,
	}
	if l.cfg.Source != nil {
		h.Source = l.cfg.Source.Name()
	}
	return h
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
