package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"

	"github.com/tasker-go/tasker/internal/store"
)

// heartbeat reports that the worker is alive and extends its leases. It gives up a claim
// at once if the database says it is lost, and after a grace if the lease has ended by
// the local clock because heartbeats fail: most likely the database is unavailable for
// all workers, and then no lease ends there either.
type heartbeat struct {
	e     *Engine
	soon  chan struct{} // capacity 1: an early heartbeat is requested
	alone bool          // no other worker has the WorkerID; used by one goroutine at a time

	mu       sync.Mutex
	last     time.Time // when the latest successful one was sent
	failures int       // in a row
	warned   bool      // many outcomes are pending; used only by run
	lastErr  error
}

// beatPause is the least time between two heartbeats that were requested: one tells of everything
// that a storm of signals is about.
const beatPause = 100 * time.Millisecond

// run sends heartbeats until ctx ends.
func (h *heartbeat) run(ctx context.Context) error {
	interval := h.e.cfg.HeartbeatInterval
	timer := time.NewTimer(interval)
	defer timer.Stop()
	var begun time.Time // the latest heartbeat
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-h.soon:
			if err := lifecycle.Pause(ctx, min(beatPause, interval)-time.Since(begun)); err != nil {
				return err
			}
		}
		begun = time.Now()
		err := h.beat(ctx)
		h.warnOfPending()
		h.e.follow(h.e.slots.resume()) // in case a due look does not come
		next := interval
		if err != nil {
			next = max(interval/5, 50*time.Millisecond)
		}
		if left := h.expire(); left >= 0 {
			next = min(next, max(left, time.Millisecond))
		}
		timer.Reset(next)
	}
}

// warnOfPending warns once when many outcomes are pending, again only after there were
// fewer.
func (h *heartbeat) warnOfPending() {
	c := h.e.cfg.Report
	waiting := h.e.slots.usage().Reporting
	many := c.WarnFrom > 0 && float64(waiting) >= c.WarnFrom*float64(c.MaxPending)
	if many && !h.warned {
		h.e.log.Warn("many outcomes wait to be reported", zap.Int("waiting", waiting), zap.Int("max_pending", c.MaxPending))
	}
	h.warned = many
}

// beatSoon requests a heartbeat now: the worker learns from it that an operator called
// off a step.
func (h *heartbeat) beatSoon() {
	lifecycle.Nudge(h.soon)
}

// beat sends one heartbeat.
func (h *heartbeat) beat(ctx context.Context) error {
	// A longer heartbeat would let leases end while it hangs.
	within, cancel := context.WithTimeout(ctx, min(max(h.e.cfg.HeartbeatInterval, time.Second), h.e.cfg.Lease/3))
	defer cancel()
	if err := h.takeID(within); err != nil {
		return err
	}
	held := slices.DeleteFunc(h.e.slots.held(), func(k store.ClaimKey) bool { return h.e.rejected.beats.Holds(k.Token) })
	sent := time.Now()
	lost, err := h.e.board.WorkerHeartbeat(within, h.e.describe(), held, h.e.cfg.Lease)
	if store.Rejected(err) && !errors.Is(err, store.ErrWorkerDead) {
		lost, held, err = h.extend(within, held, err)
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // the worker stops: no failure of a heartbeat
	}
	h.note(sent, err)
	if errors.Is(err, store.ErrWorkerDead) {
		return h.reborn(held)
	}
	if err != nil {
		return err
	}
	gone := h.e.slots.lose(lost) // first: an extended step could begin
	h.e.slots.extended(held, sent.Add(h.e.cfg.Lease))
	h.e.lose(gone, "the step was called off, or its lease had ended")
	if h.e.cfg.OnBeat != nil {
		h.e.cfg.OnBeat()
	}
	h.e.keepRates(ctx)
	return nil
}

// keepRates writes what was counted since the last heartbeat. What cannot be written waits for the next.
func (e *Engine) keepRates(ctx context.Context) {
	dropped, err := e.board.KeepRates(ctx, e.cfg.HeartbeatInterval)
	e.metrics.RatesDropped.Add(float64(dropped))
	if err != nil {
		e.log.Warn("the rates of the last heartbeat's interval were not written", zap.Error(err))
	}
}

// takeID runs before the first heartbeat under a new UUID. A worker ends if another one
// has taken its WorkerID.
func (h *heartbeat) takeID(ctx context.Context) error {
	if h.alone || !h.e.cfg.Exclusive {
		return nil
	}
	err := h.e.takeWorkerID(ctx, 0)
	h.alone = err == nil
	if errors.Is(err, ErrWorkerIDInUse) {
		h.e.cfg.Fatal(err)
	}
	return err
}

// describe returns what the fleet is to know of the worker.
func (e *Engine) describe() store.Daemon {
	d := e.cfg.Describe()
	d.UUID, d.ID, d.Namespaces, d.Tags, d.Callables = e.id(), e.cfg.WorkerID, e.queues.wanted(), e.cfg.Tags, e.queues.callables()
	d.Load = e.slots.load()
	d.Load.Samples = e.samples.take()
	return d
}

// reborn handles that the fleet considers the worker dead: other workers run its steps,
// so it gives up all claims and registers under a new UUID.
func (h *heartbeat) reborn(held []store.ClaimKey) error {
	tokens := make([]int64, len(held))
	for i, k := range held {
		tokens[i] = k.Token
	}
	before := h.e.id()
	now, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("register again: %w", err)
	}
	h.e.cfg.ID.Store(&now)
	h.alone = false
	h.e.lose(h.e.slots.lose(tokens), "the fleet considered this worker dead")
	h.e.log.Warn("the fleet considered this worker dead; it registers again",
		zap.Stringer("worker_uuid", before), zap.Stringer("as", now))
	h.beatSoon()
	return nil
}

// expire gives up claims that must be presumed lost and returns the time to the next
// check.
func (h *heartbeat) expire() time.Duration {
	lost, next := h.e.slots.expire(time.Now(), h.e.cfg.LeaseGrace)
	h.e.lose(lost, "no heartbeat succeeded in time")
	return next
}

func (h *heartbeat) note(sent time.Time, err error) {
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

// state returns the age of the latest success, the number of failures in a row since, and
// the last of them.
func (h *heartbeat) state() (age time.Duration, failures int, err error) {
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
		e.log.Warn("lease lost", zap.Inline(x), zap.String("why", why))
	}
	e.follow(e.slots.done()) // there is room again
}

// ErrWorkerIDInUse says that another worker runs under the WorkerID, which is Exclusive.
var ErrWorkerIDInUse = errors.New("worker_id is in use")

// sighting is when another worker with the WorkerID was first seen, and its last
// heartbeat at that time.
type sighting struct {
	at, heartbeat time.Time
}

// takeWorkerID returns when no other worker runs under the WorkerID. It detects a dead
// one after one and a half heartbeats and releases its claims at once instead of at the
// end of their leases, except for those that may be adopted: their handlers can go on. A living one sends within one interval: while the database is
// unavailable it retries five times as often, so a heartbeat that is old because none
// could be sent proves nothing before half an interval has been watched.
func (e *Engine) takeWorkerID(ctx context.Context, watch time.Duration) error {
	d, interval := e.describe(), e.cfg.HeartbeatInterval
	seen := map[uuid.UUID]sighting{}
	for {
		var silent []uuid.UUID
		for id, s := range seen {
			if time.Since(s.at) >= watch {
				silent = append(silent, id)
			}
		}
		taken, err := e.board.TakeWorkerID(ctx, d, store.Succession{Dead: silent, Silence: interval + interval/2, Own: e.own, Grace: e.cfg.ReclaimGrace})
		if err != nil {
			return err
		}
		if len(taken.Others) == 0 {
			if len(silent) > 0 {
				e.log.Info("took over from a dead worker with the same worker_id", zap.String("worker_id", d.ID),
					zap.Stringers("worker_uuids", silent), zap.Int("released", taken.Released), zap.Int("reclaimable", taken.Reclaimable))
			}
			e.publisher.Publish(taken.Signals...)
			return nil
		}
		for _, o := range taken.Others {
			s, known := seen[o.UUID]
			if !known {
				seen[o.UUID] = sighting{at: time.Now(), heartbeat: o.HeartbeatAt}
			}
			if known && (o.HeartbeatAt.After(s.heartbeat) || watch == 0) {
				return fmt.Errorf("%w: %q belongs to worker %s on %s, whose last heartbeat was %v ago; set another worker.worker_id, or none",
					ErrWorkerIDInUse, d.ID, o.UUID, o.Hostname, o.HeartbeatAge.Round(time.Millisecond))
			}
		}
		if err := lifecycle.Pause(ctx, interval/10); err != nil {
			return err
		}
	}
}
