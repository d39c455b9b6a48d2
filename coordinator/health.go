package coordinator

import (
	"fmt"
	"maps"
	"time"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/poller"
)

// Health is the state of an event system.
type Health struct {
	SystemID string `json:"system_id"`
	// Mode is the effective mode, ConfiguredMode what it was started with.
	Mode           deploymode.Mode `json:"deployment_mode"`
	ConfiguredMode deploymode.Mode `json:"configured_mode"`
	// Pace of the poller; FallbackActive while it stands in for a listener.
	Pace           deploymode.Pace  `json:"pace"`
	FallbackActive bool             `json:"fallback_active"`
	Status         deploymode.Level `json:"status"`
	Ready          bool             `json:"ready"`
	Reason         string           `json:"reason,omitempty"`
	// Listener is nil in the modes without one.
	Listener *listener.Health `json:"listener,omitempty"`
	// Unheard are the sources over which signals are not known to arrive.
	Unheard []string      `json:"unheard,omitempty"`
	Poller  poller.Health `json:"poller"`
	// Loop is the loop that looks.
	Loop lifecycle.LoopHealth `json:"loop"`
	// Found counts work by what found it: listener, poller, timer, catch_up,
	// continue.
	Found map[string]uint64 `json:"found"`
	// Missed counts work that only a poll found, long after it was ready and with a
	// healthy listener: its signal was lost, which is a defect.
	Missed            uint64        `json:"missed"`
	Looks             uint64        `json:"looks"`
	EmptyLooks        uint64        `json:"empty_looks"`
	Errors            uint64        `json:"errors"`
	ConsecutiveErrors int           `json:"consecutive_errors"`
	LastError         string        `json:"last_error,omitempty"`
	LastLook          time.Time     `json:"last_look,omitzero"` // its begin
	LastLookTook      time.Duration `json:"last_look_took_ns"`
	CatchUpScans      uint64        `json:"catch_up_scans"`
	ModeSwitches      uint64        `json:"mode_switches"`
	// DeadLoops names the loops that should run and do not.
	DeadLoops []string `json:"dead_loops,omitempty"`
}

// Health returns the present state.
func (s *EventSystem) Health() Health {
	h := Health{SystemID: s.cfg.SystemID, ConfiguredMode: s.cfg.Mode, Poller: s.poller.Health()}
	if h.Poller.Loop.Dead() {
		h.DeadLoops = append(h.DeadLoops, h.Poller.Loop.Name)
	}
	if s.Mode().Listens() {
		l := s.listener.Health()
		h.Listener = &l
		if l.Loop.Dead() {
			h.DeadLoops = append(h.DeadLoops, l.Loop.Name)
		}
		for at := &l; at != nil; at = at.From {
			if !at.Proven {
				h.Unheard = append(h.Unheard, at.Source)
			}
		}
	}
	h.Loop = s.loop.Health()
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Loop.Dead() || s.overdue() {
		h.DeadLoops = append(h.DeadLoops, h.Loop.Name)
	}
	h.Mode, h.Pace, h.FallbackActive = s.mode, s.snapshot.Pace, s.snapshot.FallbackActive()
	h.Found = maps.Clone(s.stats.found)
	h.Missed = s.stats.missed
	h.Looks, h.EmptyLooks, h.Errors = s.stats.looks, s.stats.empty, s.stats.errors
	h.ConsecutiveErrors, h.LastError = s.stats.consecutiveErrors, s.stats.lastError
	h.LastLook, h.LastLookTook = s.stats.lastLook, s.stats.lastTook
	h.CatchUpScans, h.ModeSwitches = s.stats.catchUps, s.stats.switches
	h.Ready, h.Reason = s.readiness(h.DeadLoops)
	h.Status = s.level(h)
	return h
}

// Ready reports whether the system can be relied on to find work; reason says why
// not, or what is wrong although it can.
func (s *EventSystem) Ready() (ready bool, reason string) {
	h := s.Health()
	return h.Ready, h.Reason
}

// overdue reports whether a look is running long after its deadline; the caller holds
// the lock. The deadline counts twice, because a look may have waited for its turn in
// the processor.
func (s *EventSystem) overdue() bool {
	since := s.stats.lookingSince
	return !since.IsZero() && time.Since(since) > 2*s.cfg.LookTimeout
}

// readiness requires the lock.
func (s *EventSystem) readiness(dead []string) (ready bool, reason string) {
	switch {
	case s.phase == idle:
		return false, "not started"
	case s.phase == stopped:
		return false, "stopped"
	case s.mode == deploymode.Disabled:
		return true, "disabled"
	case !s.snapshot.Ready:
		return false, s.snapshot.Reason
	case len(dead) > 0:
		return false, fmt.Sprintf("not running: %v", dead)
	case !s.cfg.IgnoreErrors && s.stats.consecutiveErrors >= s.cfg.MaxConsecutiveErrors:
		return false, fmt.Sprintf("%d looks in a row failed: %s", s.stats.consecutiveErrors, s.stats.lastError)
	}
	return true, s.snapshot.Reason
}

// level requires the lock.
func (s *EventSystem) level(h Health) deploymode.Level {
	level := s.snapshot.Level()
	switch {
	case s.phase != running:
		return deploymode.Unknown
	case len(h.DeadLoops) > 0:
		return deploymode.Unhealthy
	case s.cfg.IgnoreErrors:
		return level
	case h.ConsecutiveErrors >= s.cfg.MaxConsecutiveErrors || s.failures.tooMany(time.Now()):
		return deploymode.Unhealthy
	case h.ConsecutiveErrors > 0:
		return deploymode.Worst(level, deploymode.Degraded)
	}
	return level
}
