package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/store"
)

// heartbeat says that the worker lives and keeps its leases. A claim that the
// database says is gone is given up at once, and one whose lease has ended by this
// machine's clock because no heartbeat got through after a grace: most likely the
// database is away for everybody, and then no lease ends there either.
type heartbeat struct {
	e        *engine
	interval time.Duration
	describe func() store.Daemon
	onBeat   func()        // after each that got through; for what is done as rarely
	soon     chan struct{} // with one place: a heartbeat is wanted before its time
	// take sees to it that a worker which came back as another one has its WorkerID
	// for itself, and fatal ends one that has not; take is nil where it does not matter.
	take  func(ctx context.Context) error
	fatal func(error)
	alone bool // nothing is to be taken; used by one goroutine at a time

	mu       sync.Mutex
	last     time.Time // when the latest that got through was sent
	failures int       // in a row
	warned   bool      // that many outcomes wait; used by run alone
	lastErr  error
}

// run beats until ctx ends.
func (h *heartbeat) run(ctx context.Context) error {
	timer := time.NewTimer(h.interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-h.soon:
		}
		err := h.beat(ctx)
		h.warnOfPending()
		h.e.resume() // should a look that was due not come
		next := h.interval
		if err != nil {
			next = max(h.interval/5, 50*time.Millisecond)
		}
		if left := h.expire(); left >= 0 {
			next = min(next, max(left, time.Millisecond))
		}
		timer.Reset(next)
	}
}

// warnOfPending tells when many outcomes wait to be reported, once until they
// are fewer again.
func (h *heartbeat) warnOfPending() {
	c := h.e.cfg.Report
	waiting := h.e.slots.usage().reporting
	many := c.WarnFrom > 0 && float64(waiting) >= c.WarnFrom*float64(c.MaxPending)
	if many && !h.warned {
		h.e.log.Warn("many outcomes wait to be reported", zap.Int("waiting", waiting), zap.Int("max_pending", c.MaxPending))
	}
	h.warned = many
}

// beatSoon asks for a heartbeat now. Whoever called off a step wants its worker
// to learn of it.
func (h *heartbeat) beatSoon() {
	select {
	case h.soon <- struct{}{}:
	default:
	}
}

// beat sends one heartbeat.
func (h *heartbeat) beat(ctx context.Context) error {
	// Longer than this it must not take, or leases end while it hangs.
	ctx, cancel := context.WithTimeout(ctx, min(max(h.interval, time.Second), h.e.cfg.Lease/3))
	defer cancel()
	if err := h.takeID(ctx); err != nil {
		return err
	}
	held := h.e.slots.held()
	sent := time.Now()
	lost, err := h.e.board.WorkerHeartbeat(ctx, h.describe(), held, h.e.cfg.Lease)
	h.note(sent, err)
	if errors.Is(err, store.ErrWorkerDead) {
		return h.reborn(held)
	}
	if err != nil {
		return err
	}
	h.e.slots.extended(held, sent.Add(h.e.cfg.Lease))
	h.e.lose(h.e.slots.lose(lost), "the step was called off, or its lease had ended")
	if h.onBeat != nil {
		h.onBeat()
	}
	return nil
}

// takeID comes before the first heartbeat under a new UUID.
func (h *heartbeat) takeID(ctx context.Context) error {
	if h.alone || h.take == nil {
		return nil
	}
	err := h.take(ctx)
	h.alone = err == nil
	if errors.Is(err, ErrWorkerIDInUse) {
		h.fatal(err)
	}
	return err
}

// reborn follows that the fleet has taken the worker for dead: others run its
// steps, so it gives up everything and comes back as another one.
func (h *heartbeat) reborn(held []store.ClaimKey) error {
	tokens := make([]int64, len(held))
	for i, k := range held {
		tokens[i] = k.Token
	}
	before := h.e.id.get()
	if err := h.e.id.renew(); err != nil {
		return fmt.Errorf("register again: %w", err)
	}
	h.alone = false
	h.e.lose(h.e.slots.lose(tokens), "the fleet has taken this worker for dead")
	h.e.log.Warn("the fleet has taken this worker for dead; it registers again",
		zap.Stringer("worker_uuid", before), zap.Stringer("as", h.e.id.get()))
	h.beatSoon()
	return nil
}

// expire gives up what must be presumed lost, and says when to come back.
func (h *heartbeat) expire() time.Duration {
	lost, next := h.e.slots.expire(time.Now(), h.e.cfg.LeaseGrace)
	h.e.lose(lost, "no heartbeat got through in time")
	return next
}

func (h *heartbeat) note(sent time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		if h.failures > 0 {
			h.e.log.Info("heartbeats get through again", zap.Int("failures", h.failures))
		}
		h.last, h.failures, h.lastErr = sent, 0, nil
		return
	}
	if h.failures++; h.failures == 1 {
		h.e.log.Warn("heartbeat failed and will be repeated", zap.Error(err))
	}
	h.lastErr = err
}

func (h *heartbeat) state() (age time.Duration, failures int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.last.IsZero() {
		age = time.Since(h.last)
	}
	return age, h.failures, h.lastErr
}

// lose counts and logs claims that were given up; their handlers have been told.
func (e *engine) lose(lost []*execution, why string) {
	if len(lost) == 0 {
		return
	}
	e.unknown.giveUp() // one of these could not be told from what has not begun
	e.count.leasesLost.Add(uint64(len(lost)))
	e.metrics.LeasesLost.Add(float64(len(lost)))
	for _, x := range lost {
		e.log.Warn("lease lost", zap.Stringer("task_uuid", x.key.TaskUUID), zap.Int("step_no", x.key.Step),
			zap.Int("attempt", x.claim.Attempt), zap.String("why", why))
	}
	if e.slots.payNow() {
		e.wake()
	}
}
