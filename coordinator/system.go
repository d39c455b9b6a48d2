package coordinator

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/poller"
	"github.com/tasker-go/tasker/signal"
)

// EventSystem looks for work in one of the deployment modes. It implements
// lifecycle.Service and is safe for concurrent use.
type EventSystem struct {
	cfg    Config
	work   Work
	poller *poller.Poller
	// listener is the subscription; nil without a listener.
	listener *listener.Subscription
	loop     *lifecycle.Loop
	wakeup   chan struct{} // holds one: pending, due or holdUntil has changed

	quit       context.Context // ends when Stop is called
	quitNow    context.CancelFunc
	hard       context.Context // ends when Stop runs out of time
	hardCancel context.CancelFunc

	modeMu sync.Mutex // held by Start, Stop and SetMode; never by hooks

	mu           sync.Mutex
	phase        phase
	mode         deploymode.Mode
	snapshot     deploymode.Snapshot
	changing     bool     // SetMode is under way
	lastReported reported // counted and logged

	pending   pending
	inFlight  *pending  // the wake of the running look
	due       time.Time // of the timer; zero without one
	holdUntil time.Time // no look before this, after errors
	idle      int       // looks in a row that found nothing and asked for another soon
	stats     stats
	failures  failures
}

type phase uint8

const (
	idle phase = iota
	running
	stopped
)

// reported is the mode and pace that were reported last.
type reported struct {
	mode deploymode.Mode
	pace deploymode.Pace
}

var _ lifecycle.Service = (*EventSystem)(nil)

// New returns a system that is not running yet.
func New(cfg Config, work Work) *EventSystem {
	cfg = cfg.withDefaults()
	s := &EventSystem{cfg: cfg, work: work, wakeup: make(chan struct{}, 1), failures: failures{limit: cfg.MaxErrorsPerMinute}}
	s.quit, s.quitNow = context.WithCancel(context.Background())
	s.hard, s.hardCancel = context.WithCancel(context.Background())
	s.mode = s.effective(cfg.Mode)
	s.snapshot = still(s.mode)
	s.poller = poller.New(cfg.pollerConfig(), s.poll)
	if cfg.Listener != nil {
		s.listener = cfg.Listener.Subscribe(cfg.subscription(s.mode), listener.Hooks{
			OnSignal: s.signalled, OnConnected: func() { s.Wake(ReasonCatchUp) }, OnChange: s.observe, OnFatal: s.fatal,
		})
	}
	s.loop = lifecycle.NewLoop(lifecycle.LoopConfig{
		Name:       cfg.SystemID + "-looker",
		Run:        s.run,
		MaxSilence: cfg.maxSilence(),
		OnRestart:  cfg.Metrics.Restarted,
		Logger:     cfg.Logger,
	})
	return s
}

// effective returns the mode that the configured one becomes.
func (s *EventSystem) effective(mode deploymode.Mode) deploymode.Mode {
	source := ""
	if s.cfg.Listener != nil {
		source = s.cfg.Listener.Source()
	}
	effective, why := deploymode.EffectiveMode(mode, source)
	if effective != mode {
		s.cfg.Logger.Warn("deployment mode is not the configured one", zap.String("system", s.cfg.SystemID),
			zap.String("configured", string(mode)), zap.String("effective", string(effective)), zap.String("why", why))
	}
	return effective
}

// still is the snapshot of a mode before the start or without a listener.
func still(mode deploymode.Mode) deploymode.Snapshot {
	return deploymode.NewMachine(deploymode.Config{Mode: mode}).Snapshot()
}

// Name implements lifecycle.Service.
func (s *EventSystem) Name() string { return s.cfg.SystemID }

// Start implements lifecycle.Service. It does not wait for a connection; see Ready.
// In the polling modes it looks at once.
func (s *EventSystem) Start(ctx context.Context) error {
	s.modeMu.Lock()
	defer s.modeMu.Unlock()
	s.mu.Lock()
	phase, mode := s.phase, s.mode
	s.mu.Unlock()
	switch phase {
	case stopped:
		return lifecycle.ErrStopped
	case running:
		return nil
	}
	if err := s.cfg.Check(); err != nil {
		return err
	}
	if err := s.loop.Start(ctx); err != nil {
		return err
	}
	if err := s.poller.Start(ctx); err != nil {
		return errors.Join(err, s.loop.Stop(ctx))
	}
	s.mu.Lock()
	s.phase = running
	s.lastReported = reported{mode, s.snapshot.Pace}
	s.mu.Unlock()
	s.observe(still(mode))
	if s.listener != nil {
		if err := s.listener.Start(ctx); err != nil {
			s.mu.Lock()
			s.phase = stopped
			s.mu.Unlock()
			return errors.Join(err, s.poller.Stop(ctx), s.loop.Stop(ctx))
		}
	}
	s.cfg.Logger.Info("event system started", zap.String("system", s.cfg.SystemID), zap.String("mode", string(mode)))
	if mode.Polls() {
		s.Wake(ReasonCatchUp)
	}
	return nil
}

// Stop implements lifecycle.Service: it ignores further wakes and waits for a running
// look; when ctx ends first it cancels the look's context. Pending wakes are dropped:
// the rows are still there.
func (s *EventSystem) Stop(ctx context.Context) error {
	s.quitNow() // ends a waiting SetMode
	s.modeMu.Lock()
	defer s.modeMu.Unlock()
	s.mu.Lock()
	s.phase = stopped
	s.pending = pending{}
	s.due = time.Time{}
	s.mu.Unlock()

	var failed []error
	if s.listener != nil {
		failed = append(failed, s.listener.Stop(ctx))
	}
	failed = append(failed, s.poller.Stop(ctx), s.loop.Stop(ctx))
	s.hardCancel()
	s.cfg.Metrics.PollingFallbackActive.DeleteLabelValues(s.cfg.SystemID, s.Mode().Label())
	return errors.Join(failed...)
}

// Wake makes the system look soon, at everything if no topics are named. It never
// blocks and does nothing while the mode is Disabled.
func (s *EventSystem) Wake(reason Reason, topics ...signal.Topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asleep() {
		return
	}
	s.pending.add(reason, topics...)
	if reason == ReasonCatchUp {
		// A connection was made: the cause of failed looks may be gone.
		s.holdUntil = time.Time{}
	}
	s.poke()
}

// Recovered makes the system look at everything, since the database was away. The listener
// connects anew if its source uses the database. It never blocks.
func (s *EventSystem) Recovered() {
	if s.cfg.Listener != nil {
		s.cfg.Listener.Reconnect()
	}
	s.Wake(ReasonCatchUp)
}

// WakeIn makes the system look at everything after d; of several calls the earliest
// counts until its time has come.
func (s *EventSystem) WakeIn(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeIn(d)
}

// wakeIn requires the lock.
func (s *EventSystem) wakeIn(d time.Duration) {
	if s.asleep() {
		return
	}
	at := time.Now().Add(max(d, 0))
	if s.due.IsZero() || at.Before(s.due) {
		s.due = at
		s.poke()
	}
}

// SetTopics replaces the subscribed topics; see listener.Subscription. All of them are
// looked at once they are subscribed to.
func (s *EventSystem) SetTopics(ctx context.Context, topics []signal.Topic) error {
	if !s.Mode().Listens() {
		s.Wake(ReasonCatchUp)
	}
	if s.listener == nil {
		return nil
	}
	return s.listener.SetTopics(ctx, topics)
}

// signalled is the listener's hook.
func (s *EventSystem) signalled(sig signal.Signal) {
	if s.cfg.Take != nil && s.cfg.Take(sig) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asleep() {
		return
	}
	s.pending.add(ReasonSignal, sig.Topic)
	s.pending.addPayload(sig.Payload, s.cfg.MaxPayloads)
	if s.pending.signalAt.IsZero() {
		s.pending.signalAt = time.Now()
	}
	s.poke()
}

// poll is the poller's work: it asks for a look and waits for it. It reports as found
// only work that nothing but the poll had asked for.
func (s *EventSystem) poll(ctx context.Context) (found int, err error) {
	done := make(chan result, 1)
	s.mu.Lock()
	if s.asleep() {
		s.mu.Unlock()
		return 0, nil
	}
	s.pending.add(ReasonPoll)
	s.pending.waiters = append(s.pending.waiters, done)
	s.holdUntil = time.Time{} // the poller has a delay of its own after errors
	s.poke()
	s.mu.Unlock()
	select {
	case r := <-done:
		if r.reason == ReasonPoll {
			found = r.found
		}
		return found, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// asleep requires the lock.
func (s *EventSystem) asleep() bool {
	return s.phase == stopped || (s.mode == deploymode.Disabled && !s.changing)
}

// poke wakes the loop after a change; it never blocks.
func (s *EventSystem) poke() {
	lifecycle.Nudge(s.wakeup)
}
