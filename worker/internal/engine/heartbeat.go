package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/store"
)

// Heartbeat reports that the worker is alive and extends its leases. It gives up a claim
// at once if the database says it is lost, and after a grace if the lease has ended by
// the local clock because heartbeats fail: most likely the database is unavailable for
// all workers, and then no lease ends there either.
type Heartbeat struct {
	HeartbeatConfig
	e     *Engine
	soon  chan struct{} // capacity 1: an early heartbeat is requested
	alone bool          // no WorkerID to take; used by one goroutine at a time

	mu       sync.Mutex
	last     time.Time // when the latest successful one was sent
	failures int       // in a row
	warned   bool      // many outcomes are pending; used only by Run
	lastErr  error
}

// HeartbeatConfig describes a [Heartbeat].
type HeartbeatConfig struct {
	Interval time.Duration
	Describe func() store.Daemon
	OnBeat   func() // called after each success; nil: not
	// Take secures the WorkerID for a worker that registers under a new UUID; nil for
	// workers that are not exclusive.
	Take func(ctx context.Context) error
}

// NewHeartbeat returns the heartbeat of an engine, before its first look. The WorkerID is
// taken already.
func NewHeartbeat(e *Engine, cfg HeartbeatConfig) *Heartbeat {
	h := &Heartbeat{HeartbeatConfig: cfg, e: e, soon: make(chan struct{}, 1), alone: true}
	e.beat = h.Soon
	return h
}

// Run sends heartbeats until ctx ends.
func (h *Heartbeat) Run(ctx context.Context) error {
	timer := time.NewTimer(h.Interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-h.soon:
		}
		err := h.Beat(ctx)
		h.warnOfPending()
		h.e.follow(h.e.slots.resume()) // in case a due look does not come
		next := h.Interval
		if err != nil {
			next = max(h.Interval/5, 50*time.Millisecond)
		}
		if left := h.expire(); left >= 0 {
			next = min(next, max(left, time.Millisecond))
		}
		timer.Reset(next)
	}
}

// warnOfPending warns once when many outcomes are pending, again only after there were
// fewer.
func (h *Heartbeat) warnOfPending() {
	c := h.e.cfg.Report
	waiting := h.e.slots.usage().Reporting
	many := c.WarnFrom > 0 && float64(waiting) >= c.WarnFrom*float64(c.MaxPending)
	if many && !h.warned {
		h.e.log.Warn("many outcomes wait to be reported", zap.Int("waiting", waiting), zap.Int("max_pending", c.MaxPending))
	}
	h.warned = many
}

// Soon requests a heartbeat now: the worker learns from it that an operator called
// off a step.
func (h *Heartbeat) Soon() {
	select {
	case h.soon <- struct{}{}:
	default:
	}
}

// Beat sends one heartbeat.
func (h *Heartbeat) Beat(ctx context.Context) error {
	// A longer heartbeat would let leases end while it hangs.
	ctx, cancel := context.WithTimeout(ctx, min(max(h.Interval, time.Second), h.e.cfg.Lease/3))
	defer cancel()
	if err := h.takeID(ctx); err != nil {
		return err
	}
	held := h.e.slots.held()
	sent := time.Now()
	lost, err := h.e.board.WorkerHeartbeat(ctx, h.Describe(), held, h.e.cfg.Lease)
	h.note(sent, err)
	if errors.Is(err, store.ErrWorkerDead) {
		return h.reborn(held)
	}
	if err != nil {
		return err
	}
	h.e.slots.extended(held, sent.Add(h.e.cfg.Lease))
	h.e.lose(h.e.slots.lose(lost), "the step was called off, or its lease had ended")
	if h.OnBeat != nil {
		h.OnBeat()
	}
	return nil
}

// takeID runs before the first heartbeat under a new UUID.
func (h *Heartbeat) takeID(ctx context.Context) error {
	if h.alone || h.Take == nil {
		return nil
	}
	err := h.Take(ctx)
	h.alone = err == nil
	return err
}

// reborn handles that the fleet considers the worker dead: other workers run its steps,
// so it gives up all claims and registers under a new UUID.
func (h *Heartbeat) reborn(held []store.ClaimKey) error {
	tokens := make([]int64, len(held))
	for i, k := range held {
		tokens[i] = k.Token
	}
	before := h.e.id.Get()
	if err := h.e.id.renew(); err != nil {
		return fmt.Errorf("register again: %w", err)
	}
	h.alone = false
	h.e.lose(h.e.slots.lose(tokens), "the fleet considered this worker dead")
	h.e.log.Warn("the fleet considered this worker dead; it registers again",
		zap.Stringer("worker_uuid", before), zap.Stringer("as", h.e.id.Get()))
	h.Soon()
	return nil
}

// expire gives up claims that must be presumed lost and returns the time to the next
// check.
func (h *Heartbeat) expire() time.Duration {
	lost, next := h.e.slots.expire(time.Now(), h.e.cfg.LeaseGrace)
	h.e.lose(lost, "no heartbeat succeeded in time")
	return next
}

func (h *Heartbeat) note(sent time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		if h.failures > 0 {
			h.e.log.Info("heartbeats succeed again", zap.Int("failures", h.failures))
		}
		h.last, h.failures, h.lastErr = sent, 0, nil
		return
	}
	if h.failures++; h.failures == 1 {
		h.e.log.Warn("heartbeat failed and will be repeated", zap.Error(err))
	}
	h.lastErr = err
}

// State returns the age of the latest success, the number of failures in a row since, and
// the last of them.
func (h *Heartbeat) State() (age time.Duration, failures int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.last.IsZero() {
		age = time.Since(h.last)
	}
	return age, h.failures, h.lastErr
}

// lose counts and logs claims that were given up; their handlers' contexts have ended.
func (e *Engine) lose(lost []*Execution, why string) {
	if len(lost) == 0 {
		return
	}
	e.unknown.giveUp() // one of these cannot be distinguished from claims that have not begun
	e.count.leasesLost.Add(uint64(len(lost)))
	e.metrics.LeasesLost.Add(float64(len(lost)))
	for _, x := range lost {
		e.log.Warn("lease lost", zap.Stringer("task_uuid", x.Key.TaskUUID), zap.Int("step_no", x.Key.Step),
			zap.Int("attempt", x.Claim.Attempt), zap.String("why", why))
	}
	e.follow(e.slots.pay())
}
