package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/listener"
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

func (s *EventSystem) change(ctx context.Context, from, to deploymode.Mode) error {
	switch {
	case !to.Listens():
		s.observe(s.nextGeneration(), still(to)) // starts or stops the poller
		s.stopListener(ctx)
		return nil
	case !from.Listens():
		err := s.startListener(ctx, deploymode.Hybrid)
		if err == nil && to == deploymode.EventDrivenOnly {
			err = s.enterEventDriven(ctx)
		}
		if err != nil {
			s.observe(s.nextGeneration(), still(from))
			s.stopListener(ctx)
		}
		return err
	case to == deploymode.EventDrivenOnly:
		return s.enterEventDriven(ctx)
	default:
		return s.currentListener().SetMode(to)
	}
}

func (s *EventSystem) enterEventDriven(ctx context.Context) error {
	l := s.currentListener()
	if err := l.WaitHeard(ctx); err != nil {
		return err
	}
	return l.SetMode(deploymode.EventDrivenOnly)
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

// startListener starts a listener, whose changes count from now on.
func (s *EventSystem) startListener(ctx context.Context, mode deploymode.Mode) error {
	generation := s.nextGeneration()
	s.mu.Lock()
	l := s.cfg.Listener.Subscribe(s.cfg.subscription(mode, s.topics), listener.Hooks{
		OnSignal:    s.signalled,
		OnConnected: func() { s.Wake(ReasonCatchUp) },
		OnChange:    func(snapshot deploymode.Snapshot) { s.observe(generation, snapshot) },
		OnFatal:     s.fatal,
	})
	s.listener = l
	s.mu.Unlock()
	s.observe(generation, l.Snapshot())
	if err := l.Start(ctx); err != nil {
		s.mu.Lock()
		s.listener = nil
		s.mu.Unlock()
		return err
	}
	return nil
}

func (s *EventSystem) stopListener(ctx context.Context) {
	s.mu.Lock()
	l := s.listener
	s.listener = nil
	s.mu.Unlock()
	if l == nil {
		return
	}
	// A mode change that timed out must not leave a listener behind.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ModeChangeTimeout)
	defer cancel()
	if err := l.Stop(ctx); err != nil {
		s.cfg.Logger.Error("stopping the listener failed", zap.String("system", s.cfg.SystemID), zap.Error(err))
	}
}

func (s *EventSystem) currentListener() *listener.Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listener
}

func (s *EventSystem) nextGeneration() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
	return s.generation
}

// observe applies a snapshot of the listener's machine, unless the machine is obsolete.
func (s *EventSystem) observe(generation uint64, snapshot deploymode.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if generation != s.generation || s.phase == stopped {
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
