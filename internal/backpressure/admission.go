package backpressure

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// The saturation from which a channel rejects work.
const (
	channelCritical = 0.90
	channelOverflow = 0.95

	channelCriticalRetry = 15 * time.Second
	channelOverflowRetry = 30 * time.Second
)

// staleAfter is the age from which a measurement rejects no more tasks.
const staleAfter = 10 * time.Second

// Channel is a bounded channel of new work.
type Channel struct {
	Name string
	// Saturation is its fill level, 0 to 1. It is called for every request.
	Saturation func() float64
}

// Config describes an [Admission]. Zero values take the defaults named at the fields; the
// other fields are optional, and without them nothing is rejected for that reason.
type Config struct {
	// Depth counts the claimable steps of each namespace; nil means that counting failed,
	// and then no task is rejected for depth. It is called at most once per Interval and
	// must honour the deadline of ctx.
	Depth func(ctx context.Context) map[string]int
	// Overflow is the depth to which the tiers are relative. It may change; it is called like
	// Depth, and after it.
	Overflow func() int
	// ShowOnly turns off rejections for depth.
	ShowOnly bool
	// Drained is a counter of the step executions begun by the whole fleet; ok is false
	// where it could not be read. It is called like Depth.
	Drained func(ctx context.Context) (total uint64, ok bool)
	// Channels are the channels of new work.
	Channels []Channel
	// ChannelWarning is the saturation from which a channel is logged, 0 to 1.
	ChannelWarning float64
	// Blocked is how long the dependency of new work will reject calls; 0: it accepts
	// them. It is called for every request.
	Blocked func() time.Duration

	Interval time.Duration      // between two measurements; default 1 s
	Timeout  time.Duration      // of one; default 5 s
	Window   time.Duration      // of the drain rate; default 30 s
	Chance   func() float64     // 0 to below 1; default random
	Logger   *zap.Logger        // default none
	Metrics  *telemetry.Metrics // default none
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Interval, time.Second)
	def(&c.Timeout, 5*time.Second)
	def(&c.Window, 30*time.Second)
	if c.Depth == nil {
		c.Depth = func(context.Context) map[string]int { return nil }
	}
	if c.Overflow == nil {
		c.Overflow = func() int { return 0 }
	}
	if c.Drained == nil {
		c.Drained = func(context.Context) (uint64, bool) { return 0, false }
	}
	if c.Blocked == nil {
		c.Blocked = func() time.Duration { return 0 }
	}
	if c.Chance == nil {
		c.Chance = rand.Float64
	}
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	c.Metrics = c.Metrics.OrDiscard()
	return c
}

// Reason is why work is rejected; the label of the metric.
type Reason string

// The reasons.
const (
	BreakerOpen Reason = "circuit_breaker"
	ChannelFull Reason = "channel_saturation"
	QueueDepth  Reason = "queue_depth"
)

// Refusal is the answer to rejected work.
type Refusal struct {
	Reason     Reason
	RetryAfter time.Duration // at least a second
	Where      string        // the channel or the namespace
}

// Message is the reason for the caller. It names nothing that callers do not know or must
// not know.
func (r Refusal) Message() string {
	switch r.Reason {
	case BreakerOpen:
		return "The database is not answering at the moment"
	case ChannelFull:
		return "The command channel is nearly full"
	}
	return fmt.Sprintf("Too many steps are waiting in namespace %s", r.Where)
}

// Admission admits or rejects new work. It implements lifecycle.Service and is safe for
// concurrent use; before Start it knows no depths. A nil Admission admits everything.
type Admission struct {
	*lifecycle.Loop // measures

	cfg          Config
	latest       atomic.Pointer[measured] // nil: nothing was measured yet
	asked        atomic.Bool              // a measurement is requested or was just made
	ask          chan struct{}            // of capacity 1
	refused      map[Reason]prometheus.Counter
	drain        meter            // the loop's
	full         map[string]bool  // the loop's: full channels that were logged
	lastReported map[string]queue // the loop's: as logged and shown in metrics
}

var _ lifecycle.Service = (*Admission)(nil)

// New returns an admission that measures nothing before Start.
func New(cfg Config) *Admission {
	cfg = cfg.withDefaults()
	a := &Admission{cfg: cfg, ask: make(chan struct{}, 1), drain: meter{window: cfg.Window},
		refused: map[Reason]prometheus.Counter{}, full: map[string]bool{}}
	for _, r := range []Reason{BreakerOpen, ChannelFull, QueueDepth} {
		a.refused[r] = cfg.Metrics.BackpressureRefusals.WithLabelValues(string(r))
	}
	a.Loop = lifecycle.NewLoop(lifecycle.LoopConfig{
		Name: "admission", Run: a.run, Logger: cfg.Logger,
		OnRestart: cfg.Metrics.Restarted,
	})
	return a
}

// AdmitRequest decides about a request for new work before its body is read; with ok
// false the caller gets r.
func (a *Admission) AdmitRequest() (r Refusal, ok bool) {
	if a == nil {
		return Refusal{}, true
	}
	a.want()
	if wait := a.cfg.Blocked(); wait > 0 {
		return a.refuse(Refusal{Reason: BreakerOpen, RetryAfter: max(wait, minRetry)})
	}
	for i := range a.cfg.Channels {
		c := &a.cfg.Channels[i]
		switch full := c.Saturation(); {
		case full >= channelOverflow:
			return a.refuse(Refusal{Reason: ChannelFull, RetryAfter: channelOverflowRetry, Where: c.Name})
		case full >= channelCritical:
			return a.refuse(Refusal{Reason: ChannelFull, RetryAfter: channelCriticalRetry, Where: c.Name})
		}
	}
	return Refusal{}, true
}

// AdmitTask decides about a task of the namespace, in a request that AdmitRequest has
// admitted.
func (a *Admission) AdmitTask(namespace string) (r Refusal, ok bool) {
	if a == nil || a.cfg.ShowOnly {
		return Refusal{}, true
	}
	m := a.latest.Load() // loaded before this task requests a measurement: its own request never decides about it
	a.want()
	if m == nil || m.worst < Critical {
		return Refusal{}, true
	}
	q := m.queues[namespace]
	if q.refused <= 0 || time.Since(m.at) > staleAfter || a.cfg.Chance() >= q.refused {
		return Refusal{}, true
	}
	return a.refuse(Refusal{Reason: QueueDepth, RetryAfter: q.retry, Where: namespace})
}

func (a *Admission) refuse(r Refusal) (Refusal, bool) {
	a.refused[r.Reason].Inc()
	return r, false
}

// want requests a measurement, unless one was made within the interval.
func (a *Admission) want() {
	if a.asked.Load() || !a.asked.CompareAndSwap(false, true) {
		return
	}
	lifecycle.Nudge(a.ask)
}
