package listener

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
)

// This file moves the machine of a subscription. The connector's goroutines call it.

// catchUp reports that signals may have been missed.
func (s *Subscription) catchUp() {
	s.stepping.Lock()
	defer s.stepping.Unlock()
	if s.own().State != deploymode.Off {
		s.hooks.OnConnected()
	}
}

// warnEvery is the time after which a listener that still does not connect is logged as a warning again.
const warnEvery = time.Minute

// subscribed reports that the connection is subscribed to the topics.
func (s *Subscription) subscribed() {
	if s.own().State == deploymode.Listening {
		s.catchUp()
		return
	}
	s.step(deploymode.Event{Kind: deploymode.Connected})
}

// lost reports the end of the connection or of an attempt, and returns the delay before
// the next attempt; ok is false for a subscription that has left.
func (s *Subscription) lost(err error) (delay time.Duration, ok bool) {
	event := deploymode.Event{Kind: deploymode.ConnectFailed, Jitter: rand.Float64()}
	switch s.own().State {
	case deploymode.Off:
		return 0, false
	case deploymode.Listening, deploymode.Deaf:
		event.Kind = deploymode.ConnectionLost
	}
	l := s.listener
	l.mu.Lock()
	level := zap.DebugLevel // the first error of a series is logged as a warning, and one in a minute after it
	if now := l.now(); s.lastError == "" || now-s.warned >= warnEvery {
		level, s.warned = zap.WarnLevel, now
	}
	s.lastError = err.Error()
	l.mu.Unlock()
	s.cfg.Logger.Log(level, "listener not connected", zap.String("system", s.cfg.SystemID), zap.Error(err))
	for _, e := range s.step(event) {
		if e.Kind == deploymode.Reconnect {
			return e.After, true
		}
	}
	return 0, false
}

// tick moves the machine with the time; probing says that a probe is sent in any case.
// sends says that the subscription waits for the probe with number next, deaf that it
// gave the connection up.
func (s *Subscription) tick(probing bool, next int64) (sends, deaf bool) {
	effects := s.step(deploymode.Event{Kind: deploymode.Tick, Probing: probing})
	if sends = has(effects, deploymode.Probe); sends {
		s.listener.mu.Lock()
		s.probe, s.probeAt = next, time.Now()
		s.listener.mu.Unlock()
	}
	return sends, has(effects, deploymode.Drop)
}

// answered reports the return of a probe. deaf says that it was too late, so that the
// subscription gave the connection up.
func (s *Subscription) answered(number int64, at time.Time) (deaf bool) {
	l := s.listener
	l.mu.Lock()
	waits := s.probe != 0 && s.probe <= number
	roundTrip := at.Sub(s.probeAt)
	if waits {
		s.probe, s.lagAt = 0, at
	}
	l.mu.Unlock()
	if !waits {
		return false
	}
	s.cfg.Metrics.ProbeLag.WithLabelValues(s.cfg.SystemID).Observe(roundTrip.Seconds())
	return has(s.step(deploymode.Event{Kind: deploymode.ProbeReturned, RoundTrip: roundTrip}), deploymode.Drop)
}

// step moves the machine and reports changes to the owner.
func (s *Subscription) step(event deploymode.Event) []deploymode.Effect {
	s.stepping.Lock()
	defer s.stepping.Unlock()
	l := s.listener
	l.mu.Lock()
	before := s.machine.Snapshot()
	next, effects := s.machine.Step(event, l.now())
	after := next.Snapshot()
	s.machine = next
	if after.Proven {
		s.lastError = ""
	}
	if after.State != before.State || after.GoodProbes != before.GoodProbes {
		l.announce()
	}
	cause := s.lastError
	l.mu.Unlock()

	s.measure(before, after)
	if before.State != after.State {
		s.logChange(before, after, cause)
	}
	if differ(before, after) {
		s.hooks.OnChange(after)
	}
	for _, e := range effects {
		switch e.Kind {
		case deploymode.CatchUp:
			s.hooks.OnConnected()
		case deploymode.Fatal:
			s.hooks.OnFatal(fmt.Errorf("the listener of %s failed %d times in a row: %s",
				s.cfg.SystemID, after.Attempts, cause))
		}
	}
	return effects
}

// differ reports whether a change is relevant to the owner.
func differ(before, after deploymode.Snapshot) bool {
	return before.Mode != after.Mode || before.State != after.State || before.Pace != after.Pace ||
		before.Ready != after.Ready || before.Proven != after.Proven || before.Attempts != after.Attempts
}

func (s *Subscription) measure(before, after deploymode.Snapshot) {
	m, system := s.cfg.Metrics, s.cfg.SystemID
	if before.Mode != after.Mode {
		m.ListenerActive.DeleteLabelValues(system, before.Mode.Label())
		m.ListenerLag.DeleteLabelValues(system, before.Mode.Label())
	}
	if !after.Mode.Listens() {
		return
	}
	active := 0.0
	if after.State == deploymode.Listening {
		active = 1
	}
	m.ListenerActive.WithLabelValues(system, after.Mode.Label()).Set(active)
	m.ListenerLag.WithLabelValues(system, after.Mode.Label()).Set(after.RoundTrip.Seconds())
	m.Reconnections.WithLabelValues(system).Add(float64(after.Reconnects - before.Reconnects))
}

func (s *Subscription) logChange(before, after deploymode.Snapshot, cause string) {
	fields := []zap.Field{
		zap.String("system", s.cfg.SystemID), zap.String("source", s.listener.Source()),
		zap.String("from", string(before.State)), zap.String("to", string(after.State)),
	}
	switch after.State {
	case deploymode.Deaf:
		s.cfg.Logger.Warn("listener is deaf: a probe did not come back in time", fields...)
	case deploymode.Reconnecting:
		s.cfg.Logger.Warn("listener lost its connection", append(fields, zap.String("cause", cause))...)
	default:
		s.cfg.Logger.Info("listener changed", fields...)
	}
}

func has(effects []deploymode.Effect, kind deploymode.EffectKind) bool {
	return slices.ContainsFunc(effects, func(e deploymode.Effect) bool { return e.Kind == kind })
}
