package backpressure

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// measured is one measurement; it is immutable.
type measured struct {
	at     time.Time
	rate   float64 // steps per second, 0: nothing drains or the rate is unknown
	worst  Tier
	queues map[string]queue // by namespace; nil: counting failed
}

type queue struct {
	depth   int
	tier    Tier
	refused float64 // share of new tasks
	retry   time.Duration
}

// run measures on request, at most once per interval.
func (a *Admission) run(ctx context.Context) error {
	timer := time.NewTimer(a.cfg.Interval)
	defer timer.Stop()
	a.asked.Store(false) // a run that died may have left it set
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.ask:
		}
		a.measure(ctx)
		timer.Reset(a.cfg.Interval)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		a.asked.Store(false)
	}
}

func (a *Admission) measure(ctx context.Context) {
	a.warnOfChannels()
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	depths := a.cfg.Depth(ctx)
	total, read := a.cfg.Drained(ctx)
	now := time.Now()
	if read {
		a.drain.read(total, now)
	}
	overflow := a.cfg.Overflow()
	m := judge(depths, overflow, a.drain.rate())
	m.at = now
	a.latest.Store(m)
	a.cfg.Metrics.DrainRate.Set(m.rate)
	if depths != nil { // after a failed count the previous state remains
		a.report(m, overflow)
	}
}

// judge gives each queue its tier, refused share and retry time.
func judge(depths map[string]int, overflow int, rate float64) *measured {
	m := &measured{rate: rate}
	if depths == nil {
		return m
	}
	m.queues = make(map[string]queue, len(depths))
	for namespace, depth := range depths {
		q := queue{depth: depth, tier: TierOf(depth, overflow), refused: refusedShare(depth, overflow)}
		if q.tier >= Critical {
			q.retry = retryAfter(depth, overflow, rate)
		}
		m.worst = max(m.worst, q.tier)
		m.queues[namespace] = q
	}
	return m
}

// report exports the tiers, and logs those that have changed.
func (a *Admission) report(m *measured, overflow int) {
	last := a.lastReported
	a.lastReported = m.queues
	for namespace := range last {
		if _, still := m.queues[namespace]; !still {
			a.cfg.Metrics.BackpressureTier.DeleteLabelValues(namespace)
		}
	}
	for namespace, q := range m.queues {
		if a.cfg.Metrics.Named("namespace", namespace) == namespace {
			a.cfg.Metrics.BackpressureTier.WithLabelValues(namespace).Set(float64(q.tier))
		}
		was := last[namespace].tier
		if was == q.tier {
			continue
		}
		log := a.cfg.Logger.Warn
		switch q.tier {
		case Overflow:
			log = a.cfg.Logger.Error
		case Normal:
			log = a.cfg.Logger.Info
		}
		log("the queue of a namespace is in another tier", zap.String("namespace", namespace), zap.Stringer("from", was),
			zap.Stringer("to", q.tier), zap.Int("depth", q.depth), zap.Int("overflow_threshold", overflow),
			zap.Float64("steps_per_second", m.rate))
	}
}

// warnOfChannels logs a channel once each time it fills up.
func (a *Admission) warnOfChannels() {
	for _, c := range a.cfg.Channels {
		saturation := c.Saturation()
		full := saturation >= a.cfg.ChannelWarning
		if full && !a.full[c.Name] {
			a.cfg.Logger.Warn("a bounded channel is filling up", zap.String("channel", c.Name), zap.Float64("saturation", saturation))
		}
		a.full[c.Name] = full
	}
}
