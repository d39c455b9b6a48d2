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
	// From is that of the source which the fleet moves away from; nil unless it moves.
	From *Health `json:"moving_from,omitempty"`
}

// Health returns the present state. While the fleet moves, it is that of the subscription to
// the source that it moves to; a loop of the other one takes the place of its own if that one
// does not run.
func (s *Subscription) Health() Health {
	h := s.health()
	if s.from != nil {
		from := s.from.health()
		if h.From = &from; from.Loop.Dead() {
			h.Loop = from.Loop
		}
	}
	return h
}

func (s *Subscription) health() Health {
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
