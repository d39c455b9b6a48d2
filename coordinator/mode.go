package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
)

// Mode returns the effective mode; while SetMode is under way still the old one.
func (s *EventSystem) Mode() deploymode.Mode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mode
}

// Settings are the settings that can change while a system runs.
type Settings struct {
	Mode deploymode.Mode
	// PollInterval and RelaxedPollInterval configure the poller.
	PollInterval, RelaxedPollInterval time.Duration
}

// Reload applies changed settings. The mode is changed as by SetMode, and only where
// the effective mode would differ; an error concerns only the mode.
func (s *EventSystem) Reload(ctx context.Context, next Settings) error {
	s.poller.SetIntervals(next.PollInterval, next.RelaxedPollInterval)
	if mode := s.effective(next.Mode); mode != s.Mode() {
		return s.SetMode(ctx, mode)
	}
	return nil
}

// SetMode changes the mode of a running system. A replacement runs before its
// predecessor stops: EventDrivenOnly is entered through Hybrid, and only once the
// listener has received a probe; a listener is stopped only after the poller was
// started. After an error the old mode stays. It is bounded by ctx and by
// ModeChangeTimeout.
func (s *EventSystem) SetMode(ctx context.Context, mode deploymode.Mode) error {
	parsed, ok := deploymode.Parse(string(mode))
	if !ok {
		return fmt.Errorf("invalid deployment mode %q: want PollingOnly, EventDrivenOnly, Hybrid or Disabled", mode)
	}
	mode = parsed
	if mode.Listens() && s.cfg.Listener == nil {
		return fmt.Errorf("run %s in %s: no event source is configured", s.cfg.SystemID, mode)
	}
	s.modeMu.Lock()
	defer s.modeMu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ModeChangeTimeout)
	defer cancel()
	defer context.AfterFunc(s.quit, cancel)()

	s.mu.Lock()
	from, phase := s.mode, s.phase
	s.changing = phase == running
	s.mu.Unlock()
	switch {
	case phase != running:
		return fmt.Errorf("changing %s to %s: %w", s.cfg.SystemID, mode, errNotRunning)
	case from == mode:
		s.changed(mode)
		return nil
	}
	err := s.change(ctx, from, mode)
	if err != nil {
		s.changed(from)
		return fmt.Errorf("%s stays in %s: changing to %s: %w", s.cfg.SystemID, from, mode, err)
	}
	s.changed(mode)
	if from == deploymode.Disabled || mode == deploymode.EventDrivenOnly {
		// Until now the system did not look, or no longer polls: this finds work whose
		// signals did not arrive.
		s.Wake(ReasonCatchUp)
	}
	return nil
}

var errNotRunning = errors.New("the event system is not running")

// change moves the subscription, which reports the change before it joins the connection
// or leaves it; so the poller starts first.
func (s *EventSystem) change(ctx context.Context, from, to deploymode.Mode) error {
	if s.listener == nil {
		s.observe(still(to))
		return nil
	}
	if to == deploymode.EventDrivenOnly {
		s.listen(ctx, deploymode.Hybrid)
		if err := s.listener.WaitHeard(ctx); err != nil {
			s.listen(ctx, from)
			return err
		}
	}
	s.listen(ctx, to)
	return nil
}

// listen changes the mode of the subscription. A change of mode that timed out must not
// leave a connection behind.
func (s *EventSystem) listen(ctx context.Context, mode deploymode.Mode) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ModeChangeTimeout)
	defer cancel()
	if err := s.listener.SetMode(ctx, mode); err != nil {
		s.cfg.Logger.Error("changing the mode of the listener failed", zap.String("system", s.cfg.SystemID), zap.Error(err))
	}
}

// changed ends a change of mode and reports it once.
func (s *EventSystem) changed(mode deploymode.Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = mode
	s.changing = false
	if mode == deploymode.Disabled {
		s.pending = pending{waiters: s.pending.waiters}
		for _, w := range s.pending.waiters {
			w <- result{}
		}
		s.pending, s.due, s.holdUntil = pending{}, time.Time{}, time.Time{}
	}
	s.reportChange()
}

// observe applies a snapshot of the listener's machine.
func (s *EventSystem) observe(snapshot deploymode.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == stopped {
		return
	}
	s.snapshot = snapshot
	s.poller.SetPace(snapshot.Pace)
	if !s.changing {
		s.reportChange()
	}
}

// reportChange counts and logs a change of the mode or the pace, once; it requires the
// lock.
func (s *EventSystem) reportChange() {
	m, system := s.cfg.Metrics, s.cfg.SystemID
	now := reported{s.mode, s.snapshot.Pace}
	before := s.lastReported
	s.lastReported = now
	if before.mode != now.mode {
		m.PollingFallbackActive.DeleteLabelValues(system, before.mode.Label())
	}
	fallback := 0.0
	if s.snapshot.FallbackActive() {
		fallback = 1
	}
	m.PollingFallbackActive.WithLabelValues(system, now.mode.Label()).Set(fallback)
	if before == now {
		return
	}
	s.stats.switches++
	m.ModeSwitches.WithLabelValues(system, now.mode.Label()).Inc()
	s.cfg.Logger.Info("event system switched", zap.String("system", system),
		zap.String("from_mode", string(before.mode)), zap.String("from_pace", string(before.pace)),
		zap.String("mode", string(now.mode)), zap.String("pace", string(now.pace)),
		zap.String("reason", s.snapshot.Reason))
}

func (s *EventSystem) fatal(err error) {
	s.cfg.Logger.Error("listener failed for good; requesting the end of the process",
		zap.String("system", s.cfg.SystemID), zap.Error(err))
	if panicked := lifecycle.Guard(func() error { s.cfg.OnFatal(err); return nil }); panicked != nil {
		s.cfg.Logger.Error("fatal callback panicked", zap.Error(panicked), lifecycle.StackField(panicked))
	}
}
