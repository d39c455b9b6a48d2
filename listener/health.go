package listener

import (
	"time"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
)

// Health is the state of a listener, as one subscription sees it.
type Health struct {
	deploymode.Snapshot
	Source string `json:"source"`
	// Topics it is subscribed to, or will be, without the probe topic.
	Topics int `json:"topics"`
	// LagMS is the round trip of the latest probe in milliseconds, LagAt the time of its
	// return; both zero before the first.
	LagMS       float64   `json:"lag_ms"`
	LagAt       time.Time `json:"lag_at,omitzero"`
	ConnectedAt time.Time `json:"connected_at,omitzero"`
	LastError   string    `json:"last_error,omitempty"`
	// Loop is the one that delivers to the subscription, or the connection's if that is
	// dead.
	Loop lifecycle.LoopHealth `json:"loop"`
}

// Health returns the present state.
func (s *Subscription) Health() Health {
	l, loop := s.listener, s.loop.Health()
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.connector != nil {
		if c := s.connector.loop.Health(); c.Dead() {
			loop = c
		}
	}
	h := Health{
		Snapshot:  s.machine.Snapshot(),
		Source:    l.Source(),
		Topics:    len(s.topics),
		LagAt:     s.lagAt,
		LastError: s.lastError,
		Loop:      loop,
	}
	h.LagMS = milliseconds(h.RoundTrip)
	if h.State == deploymode.Listening {
		h.ConnectedAt = l.begin.Add(h.Since)
	}
	return h
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
