package coordinator

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
)

// A look that finds nothing and asks for another within idleWindow gets it with a
// growing delay: due work may be locked by another replica, and a look may be wrong.
// The delay grows from idleBase to idleWindow.
const (
	idleBase   = 10 * time.Millisecond
	idleWindow = time.Second
)

// missedAfter is how long work that a poll finds must have been ready to count as
// missed: its signal was due long before.
const missedAfter = 250 * time.Millisecond

// stats are the counts behind Health; guarded by mu.
type stats struct {
	looks, empty, errors uint64
	catchUps, switches   uint64
	missed               uint64
	found                map[string]uint64
	consecutiveErrors    int
	lastError            string
	lookingSince         time.Time // zero: not looking
	lastLook             time.Time
	lastTook             time.Duration
}

// run is the loop: one look after the other.
func (s *EventSystem) run(ctx context.Context) error {
	s.mu.Lock()
	if s.inFlight != nil { // the loop died in it
		s.pending.merge(*s.inFlight, s.cfg.MaxPayloads)
		s.inFlight = nil
	}
	s.mu.Unlock()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		work, ok := s.await(ctx, timer)
		if !ok {
			return ctx.Err()
		}
		begin := time.Now()
		outcome, err := s.look(ctx, work.wake())
		if err != nil && ctx.Err() != nil {
			return ctx.Err() // stopping; the rows are still there
		}
		s.finish(work, outcome, err, begin)
	}
}

// await waits until a pending wake may be looked at.
func (s *EventSystem) await(ctx context.Context, timer *time.Timer) (*pending, bool) {
	for ctx.Err() == nil {
		s.loop.Beat()
		work, wait, armed := s.take()
		if work != nil {
			return work, true
		}
		if armed {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		s.loop.Rest()
		select {
		case <-ctx.Done():
		case <-s.wakeup:
		case <-timer.C:
		}
	}
	return nil, false
}

// take returns the wake to look at now, or how long to wait for it where that is
// known.
func (s *EventSystem) take() (work *pending, wait time.Duration, armed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.due.IsZero() && !now.Before(s.due) {
		s.due = time.Time{}
		if !s.asleep() {
			s.pending.add(reasonTimer)
		}
	}
	if s.pending.empty() {
		return nil, s.due.Sub(now), !s.due.IsZero()
	}
	if now.Before(s.holdUntil) {
		return nil, s.holdUntil.Sub(now), true
	}
	taken := s.pending
	s.pending = pending{}
	s.inFlight = &taken
	s.stats.lookingSince = now
	return &taken, 0, false
}

// look runs Work.Look, in the processor where there is one.
func (s *EventSystem) look(ctx context.Context, w Wake) (outcome Outcome, err error) {
	once := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.LookTimeout)
		defer cancel()
		return lifecycle.Guard(func() (err error) {
			outcome, err = s.work.Look(ctx, w)
			return err
		})
	}
	if s.cfg.Processor == nil {
		err = once(s.hard)
		return outcome, err
	}
	turn, err := s.cfg.Processor.Take(ctx, s.cfg.Command())
	if err != nil {
		return Outcome{}, err
	}
	err = turn.Run(s.hard, once)
	return outcome, err
}

// finish counts a look and schedules what its outcome asks for.
func (s *EventSystem) finish(work *pending, outcome Outcome, err error, begin time.Time) {
	now := time.Now()
	reason := work.wake().Reason
	for _, w := range work.waiters {
		w <- result{outcome.Found, reason, err}
	}
	s.measure(work, reason, outcome, err, now)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight = nil
	s.stats.lookingSince = time.Time{}
	s.stats.lastLook, s.stats.lastTook = begin, now.Sub(begin)
	s.stats.looks++
	if err != nil {
		s.failed(work, err, now)
		return
	}
	s.succeeded(reason, outcome)
	s.follow(work, outcome)
}

// failed requires the lock.
func (s *EventSystem) failed(work *pending, err error, now time.Time) {
	s.stats.errors++
	s.stats.consecutiveErrors++
	s.stats.lastError = err.Error()
	s.failures.add(now)
	n := s.stats.consecutiveErrors
	if n == 1 || n == s.cfg.MaxConsecutiveErrors { // the others only repeat
		s.cfg.Logger.Warn("look failed and will be repeated", zap.String("system", s.cfg.SystemID),
			zap.Int("consecutive_errors", n), zap.Error(err), lifecycle.StackField(err))
	}
	if s.asleep() {
		return
	}
	connected := s.pending.has(ReasonCatchUp)
	s.pending.merge(*work, s.cfg.MaxPayloads)
	if connected {
		return // a connection was made meanwhile: try at once
	}
	s.holdUntil = now.Add(min(s.cfg.Retry.Delay(n-1, rand.Float64()), deploymode.LongestHold))
}

// succeeded requires the lock.
func (s *EventSystem) succeeded(reason Reason, outcome Outcome) {
	if n := s.stats.consecutiveErrors; n > 0 {
		s.cfg.Logger.Info("look succeeded again", zap.String("system", s.cfg.SystemID), zap.Int("errors", n))
	}
	s.stats.consecutiveErrors = 0
	s.stats.lastError = ""
	s.holdUntil = time.Time{}
	if outcome.Found == 0 {
		s.stats.empty++
		return
	}
	if s.stats.found == nil {
		s.stats.found = map[string]uint64{}
	}
	s.stats.found[reason.by()] += uint64(max(outcome.Found, 0))
	if reason == ReasonPoll && outcome.Waited > missedAfter && s.snapshot.Pace == deploymode.PaceRelaxed {
		s.stats.missed += uint64(max(outcome.Found, 0))
		s.cfg.Metrics.Missed.WithLabelValues(s.cfg.SystemID).Add(float64(outcome.Found))
		s.cfg.Logger.Warn("a poll found work without a signal, although the listener is healthy", zap.String("system", s.cfg.SystemID),
			zap.Int("found", outcome.Found), zap.Duration("waited", outcome.Waited))
	}
}

// follow schedules the next look that an outcome asks for; it requires the lock.
func (s *EventSystem) follow(work *pending, outcome Outcome) {
	if s.asleep() {
		return
	}
	due := outcome.NextDue >= 0
	soon := outcome.More || (due && outcome.NextDue < idleWindow) ||
		(outcome.RetryIn > 0 && outcome.RetryIn < idleWindow)
	floor := time.Duration(0)
	if outcome.Found > 0 || !soon {
		s.idle = 0
	} else {
		if s.idle > 0 {
			floor = idleBackoff().Delay(s.idle-1, 0)
		}
		s.idle++
	}
	if due {
		s.wakeIn(max(outcome.NextDue, floor))
	}
	if outcome.RetryIn > 0 {
		s.wakeIn(max(outcome.RetryIn, floor))
	}
	if !outcome.More {
		return
	}
	if floor > 0 {
		s.wakeIn(floor)
		return
	}
	again := pending{reasons: map[Reason]struct{}{ReasonContinue: {}}, all: work.all, topics: work.topics, order: work.order}
	s.pending.merge(again, s.cfg.MaxPayloads)
	s.poke()
}

func idleBackoff() deploymode.Backoff {
	return deploymode.Backoff{Base: idleBase, Max: idleWindow, Multiplier: 2}
}

func (s *EventSystem) measure(work *pending, reason Reason, outcome Outcome, err error, now time.Time) {
	m, system := s.cfg.Metrics, s.cfg.SystemID
	if work.has(ReasonCatchUp) && err == nil {
		m.CatchUpScans.WithLabelValues(system).Inc()
		s.mu.Lock()
		s.stats.catchUps++
		s.mu.Unlock()
	}
	if err != nil {
		return
	}
	if outcome.Found > 0 {
		m.Found.WithLabelValues(system, reason.by()).Add(float64(outcome.Found))
	} else {
		m.EmptyWakes.WithLabelValues(system, reason.by()).Inc()
	}
	if outcome.Missing != "" {
		m.LooksRepeated.WithLabelValues(system, string(outcome.Missing)).Inc()
	}
	if !work.signalAt.IsZero() && !s.cfg.Untimed {
		m.EventProcessing.WithLabelValues(system).Observe(now.Sub(work.signalAt).Seconds())
	}
}
