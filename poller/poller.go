package poller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// Config describes a [Poller]. Intervals, delays and bounds are required: their defaults
// are in package config.
type Config struct {
	// SystemID is the event system of the poller, in logs and metrics.
	SystemID string
	// Interval is the time between polls at a tight pace.
	Interval time.Duration
	// RelaxedInterval is the time between polls at a relaxed pace, never shorter
	// than Interval.
	RelaxedInterval time.Duration
	// Jitter is the largest random share taken off an interval, 0 to 1, so that replicas
	// do not poll in step.
	Jitter float64
	// Backoff is the time to the next poll after errors, at most deploymode.LongestHold.
	Backoff deploymode.Backoff
	// Timeout bounds one poll.
	Timeout time.Duration
	// Pace to start with; default PaceTight.
	Pace    deploymode.Pace
	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

func (c Config) withDefaults() Config {
	c.RelaxedInterval = max(c.RelaxedInterval, c.Interval)
	c.Jitter = min(max(c.Jitter, 0), 1)
	if c.Pace == "" {
		c.Pace = deploymode.PaceTight
	}
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	c.Metrics = c.Metrics.OrDiscard()
	return c
}

// Check rejects a configuration that lacks a value without a default here.
func (c Config) Check() error {
	if err := errors.Join(settings.Positive("Interval", c.Interval), settings.Positive("RelaxedInterval", c.RelaxedInterval),
		settings.Positive("Backoff.Base", c.Backoff.Base), settings.Positive("Timeout", c.Timeout)); err != nil {
		return fmt.Errorf("configure the poller of %s: %w", c.SystemID, err)
	}
	return nil
}

// Poller calls a function on a schedule, never concurrently. It implements
// lifecycle.Service and is safe for concurrent use.
type Poller struct {
	cfg     Config
	poll    func(ctx context.Context) (found int, err error)
	loop    *lifecycle.Loop
	changed chan struct{} // of capacity 1: the pace or the intervals were changed

	mu       sync.Mutex // guards the intervals in cfg, too
	pace     deploymode.Pace
	failures int // in a row
	health   Health
}

// Health is the state of a poller.
type Health struct {
	Pace              deploymode.Pace      `json:"pace"`
	Cycles            uint64               `json:"cycles"`
	Found             uint64               `json:"found"`
	Errors            uint64               `json:"errors"`
	ConsecutiveErrors int                  `json:"consecutive_errors"`
	LastError         string               `json:"last_error,omitempty"`
	LastPoll          time.Time            `json:"last_poll,omitzero"` // its begin
	Loop              lifecycle.LoopHealth `json:"loop"`
}

// New returns a poller that calls poll, which returns the number of items found. The
// first poll comes one interval after Start, which returns the error of Check.
func New(cfg Config, poll func(ctx context.Context) (found int, err error)) *Poller {
	cfg = cfg.withDefaults()
	p := &Poller{cfg: cfg, poll: poll, pace: cfg.Pace, changed: make(chan struct{}, 1)}
	p.loop = lifecycle.NewLoop(lifecycle.LoopConfig{
		Name: cfg.SystemID + "-poller",
		Run:  p.run,
		// A poll ends with its deadline, whatever the database does.
		MaxSilence: 2*cfg.Timeout + time.Minute,
		OnRestart:  cfg.Metrics.Restarted,
		Logger:     cfg.Logger,
	})
	return p
}

// Name implements lifecycle.Service.
func (p *Poller) Name() string { return p.loop.Name() }

// Start implements lifecycle.Service.
func (p *Poller) Start(ctx context.Context) error {
	if err := p.cfg.Check(); err != nil {
		return err
	}
	return p.loop.Start(ctx)
}

// Stop implements lifecycle.Service; it cancels a running poll.
func (p *Poller) Stop(ctx context.Context) error { return p.loop.Stop(ctx) }

// SetPace changes the pace from now on; it never blocks.
//
// Turning tight polls within one interval, at a random point: when the database of a
// large fleet comes back, its replicas must not all poll at once.
func (p *Poller) SetPace(pace deploymode.Pace) {
	p.mu.Lock()
	same := p.pace == pace
	p.pace = pace
	p.mu.Unlock()
	if !same {
		p.rearm()
	}
}

// SetIntervals changes the intervals of the tight and the relaxed pace from now on; it
// never blocks. A value that is not positive changes nothing.
func (p *Poller) SetIntervals(interval, relaxed time.Duration) {
	p.mu.Lock()
	interval = cmp.Or(max(interval, 0), p.cfg.Interval)
	relaxed = max(cmp.Or(max(relaxed, 0), p.cfg.RelaxedInterval), interval)
	same := p.cfg.Interval == interval && p.cfg.RelaxedInterval == relaxed
	p.cfg.Interval, p.cfg.RelaxedInterval = interval, relaxed
	p.mu.Unlock()
	if !same {
		p.rearm()
	}
}

func (p *Poller) rearm() {
	lifecycle.Nudge(p.changed)
}

// Health returns the present state.
func (p *Poller) Health() Health {
	p.mu.Lock()
	h := p.health
	h.Pace = p.pace
	h.ConsecutiveErrors = p.failures
	p.mu.Unlock()
	h.Loop = p.loop.Health()
	return h
}

func (p *Poller) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	timer.Stop()
	var due time.Time // zero: not armed
	arm := func(delay time.Duration, armed bool) {
		if !armed {
			due = time.Time{}
			timer.Stop()
			return
		}
		due = time.Now().Add(delay)
		timer.Reset(delay)
	}
	arm(p.next())
	for {
		p.loop.Rest()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.changed:
			p.loop.Beat()
			arm(p.afterChange(due))
		case <-timer.C:
			p.loop.Beat()
			p.once(ctx)
			arm(p.next())
		}
	}
}

// next returns the time from the end of one poll to the next.
func (p *Poller) next() (delay time.Duration, armed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	interval := p.interval()
	if interval == 0 {
		return 0, false
	}
	if p.failures > 0 {
		return min(p.cfg.Backoff.Delay(p.failures-1, rand.Float64()), deploymode.LongestHold), true
	}
	return jittered(interval, p.cfg.Jitter), true
}

// afterChange returns the time from a change of the pace or the intervals to the next
// poll, which was due at due.
func (p *Poller) afterChange(due time.Time) (delay time.Duration, armed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	interval := p.interval()
	if interval == 0 {
		return 0, false
	}
	remaining := time.Until(due)
	if p.failures > 0 && !due.IsZero() {
		return remaining, true // the backoff after an error applies at any pace
	}
	if p.pace == deploymode.PaceRelaxed {
		return jittered(interval, p.cfg.Jitter), true
	}
	delay = jittered(interval, 1)
	if !due.IsZero() {
		delay = min(delay, remaining)
	}
	return max(delay, 0), true
}

// interval requires the lock; 0 means off.
func (p *Poller) interval() time.Duration {
	switch p.pace {
	case deploymode.PaceTight:
		return p.cfg.Interval
	case deploymode.PaceRelaxed:
		return p.cfg.RelaxedInterval
	default:
		return 0
	}
}

func jittered(d time.Duration, jitter float64) time.Duration {
	return time.Duration(float64(d) * (1 - jitter*rand.Float64()))
}

func (p *Poller) once(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	begin := time.Now()
	found := 0
	err := lifecycle.Guard(func() (err error) {
		found, err = p.poll(ctx)
		return err
	})
	p.record(begin, found, err)
}

func (p *Poller) record(begin time.Time, found int, err error) {
	m, system := p.cfg.Metrics, p.cfg.SystemID
	m.PollingCycles.WithLabelValues(system).Inc()
	m.PollingDuration.WithLabelValues(system).Observe(time.Since(begin).Seconds())
	m.PollingMessagesFound.WithLabelValues(system).Add(float64(max(found, 0)))
	if err != nil {
		m.PollingErrors.WithLabelValues(system).Inc()
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.health.LastPoll = begin
	p.health.Cycles++
	p.health.Found += uint64(max(found, 0))
	if err == nil {
		if p.failures > 0 {
			p.cfg.Logger.Info("polling works again", zap.String("system", system), zap.Int("errors", p.failures))
		}
		p.failures = 0
		p.health.LastError = ""
		return
	}
	p.failures++
	p.health.Errors++
	p.health.LastError = fmt.Sprintf("polling %s: %v", system, err)
	if p.failures == 1 { // the others are counted; log lines would only repeat it
		p.cfg.Logger.Warn("poll failed", zap.String("system", system), zap.Error(err), lifecycle.StackField(err))
	}
}
