package breaker

import (
	"time"

	"go.uber.org/zap"
)

// trialRetry is the retry time for a call that finds all trials taken.
const trialRetry = time.Second

// seenDelay is the shortest open time although the dependency has answered: the answer may
// be to an earlier call.
const seenDelay = 250 * time.Millisecond

const stateBits = 2

func stateOf(phase uint64) State { return State(phase & (1<<stateBits - 1)) }

// together is the time within which concurrent calls fail together. Hanging calls fail one
// by one, so they still count.
const together = time.Second

// enterTrial is enter for a breaker that is not closed.
func (b *Breaker) enterTrial() (call, error) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ripen(now)
	c := b.newCall()
	switch state := stateOf(c.phase); {
	case state == Closed:
		return c, nil
	case state == HalfOpen && b.trialFree():
		b.trials++
		return c, nil
	}
	b.rejected.Add(1)
	b.metrics.rejected.Inc()
	return call{}, &OpenError{Component: b.name, RetryAfter: b.waitLocked(now)}
}

func (b *Breaker) trialFree() bool { return b.trials+b.successes < b.settings.SuccessThreshold }

// ripen makes the transitions that are due.
func (b *Breaker) ripen(now time.Time) {
	if b.control != Automatic {
		return
	}
	switch stateOf(b.phase.Load()) {
	case Open:
		if !now.Before(b.opensTrials()) {
			b.change(HalfOpen, now)
		}
	case HalfOpen:
		// Hanging trials must not block new ones.
		if now.Sub(b.round) >= b.settings.Timeout {
			b.change(HalfOpen, now)
		}
	}
}

// opensTrials is when an open breaker admits trials.
func (b *Breaker) opensTrials() time.Time {
	if b.seen {
		return b.since.Add(min(b.settings.MinInterval, seenDelay))
	}
	return b.since.Add(max(b.settings.Timeout, b.settings.MinInterval))
}

func (b *Breaker) waitLocked(now time.Time) time.Duration {
	switch state := stateOf(b.phase.Load()); {
	case state == Closed:
		return 0
	case b.control == ForcedOpen:
		return b.settings.Timeout // no release time: the usual retry time
	case state == Open:
		return max(b.opensTrials().Sub(now), 0)
	case b.trialFree():
		return 0
	}
	return min(max(b.round.Add(b.settings.Timeout).Sub(now), 0), trialRetry)
}

// record applies the end of a call to the state.
func (b *Breaker) record(c call, v Verdict, err error) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if v == Failure {
		b.failures.Add(1)
		b.failedAt, b.lastError = now, err.Error()
	}
	if c.phase != b.phase.Load() {
		return
	}
	if stateOf(c.phase) == Closed {
		b.recordClosed(c, v, now)
		return
	}
	b.trials--
	switch v {
	case Failure:
		b.change(Open, now)
	case Success:
		if b.successes++; b.successes >= b.settings.SuccessThreshold {
			b.change(Closed, now)
		}
	}
}

func (b *Breaker) recordClosed(c call, v Verdict, now time.Time) {
	switch {
	case v == Success:
		b.streak.Store(0)
		return
	case v == Ignored, c.streak != b.streak.Load() && now.Sub(b.countedAt) < together:
		return
	}
	b.countedAt = now
	streak := b.streak.Add(1)
	settled := b.since.IsZero() || now.Sub(b.since) >= b.settings.MinInterval
	if streak >= int64(b.settings.FailureThreshold) && settled && b.control == Automatic {
		b.change(Open, now)
	}
}

// change begins a new phase. The caller holds the lock, so metrics and log keep the order
// of changes.
func (b *Breaker) change(to State, now time.Time) {
	phase := b.phase.Load()
	from, streak := stateOf(phase), b.streak.Load()
	b.phase.Store((phase>>stateBits+1)<<stateBits | uint64(to))
	b.streak.Store(0)
	b.round, b.trials, b.successes, b.seen = now, 0, 0, false
	if from == to {
		return
	}
	b.since = now
	b.metrics.state.Set(float64(to))
	b.metrics.transitions.WithLabelValues(to.String()).Inc()
	if to == Open {
		b.opened++
		b.log.Warn("circuit breaker opened", zap.String("component", b.name), zap.Int64("failures_in_a_row", streak),
			zap.Stringer("from", from), zap.Stringer("control", b.control), zap.String("last_error", b.lastError))
		return
	}
	b.log.Info("circuit breaker changed", zap.String("component", b.name), zap.Stringer("from", from), zap.Stringer("to", to))
}
