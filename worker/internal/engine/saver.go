package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/store"
)

// saving is a checkpoint under way to the database.
type saving struct {
	x          *Execution
	checkpoint store.Checkpoint
	yielded    time.Time // when the handler returned; zero: it waits for the answer
}

// kept is the answer to a saving.
type kept struct {
	store.SavedCheckpoint
	leaseEnd time.Time // by the local clock
}

func (v *saving) of() *Execution { return v.x }

// saver delivers checkpoints: those that handlers wait for and those of yields. Both go
// the same way, in order, over at most one connection, so that the heartbeat finds a free
// one however many handlers save at once.
type saver struct {
	delivery[*saving, kept]
}

func newSaver(e *Engine) *saver {
	s := &saver{delivery[*saving, kept]{e: e, what: "checkpoints"}}
	s.size = func(v *saving) int {
		return len(v.checkpoint.Cursor) + len(v.checkpoint.Accumulated) + len(v.checkpoint.Isolated)
	}
	s.send = s.save
	s.content = func(context.Context, *parcel[*saving, kept]) bool { return true } // it fails with the rejection
	s.dropped = func(v *saving, why error) {
		e.log.Error("stopping: a checkpoint is lost, because the database rejects it", zap.Inline(v.x), zap.Error(why))
		e.slots.endYield(v.x, phaseLost)
	}
	// Room for a yield of each permit, and for checkpoints that handlers stopped waiting for
	// during one flush.
	flushes := 4 + int(reportPatience/max(e.cfg.SaveTimeout, time.Second))
	s.open("worker-checkpoint", "checkpoints", flushes*max(e.cfg.MaxConcurrent+e.cfg.Prefetch, 1), 0, s.answered) // an older one must not overtake
	return s
}

// Save saves a checkpoint of a handler that continues, and waits for the answer. at is
// when it was saved, by the clock of the database. The error wraps ErrLeaseLost,
// ErrTimeout or ErrShutdown, store.ErrUnavailable without an answer in time, or is the
// rejection of the content (store.OfContent).
func (x *Execution) Save(point *store.Checkpoint) (at time.Time, err error) {
	s := x.engine.saver
	if why := x.Why(); why != nil && !errors.Is(why, ErrShutdown) {
		return at, why
	}
	ctx, cancel := context.WithTimeout(s.e.base, s.e.cfg.SaveTimeout)
	defer cancel()
	defer context.AfterFunc(&x.Ctx, func() {
		if !errors.Is(x.Why(), ErrShutdown) { // then this is the last checkpoint
			cancel()
		}
	})()
	v := &saving{x: x, checkpoint: *point}
	answer, err := s.batch.Do(ctx, v)
	if err != nil {
		return at, x.notSaved(err)
	}
	if !answer.Saved {
		s.lost(s.e.slots.lose([]int64{x.Key.Token}))
		return at, ErrLeaseLost
	}
	if answer.Lease > 0 {
		s.e.slots.extended([]store.ClaimKey{x.Key}, answer.leaseEnd)
	}
	x.saved.Store(true)
	s.saved(v)
	return answer.At, nil
}

// notSaved is the error for a checkpoint without an answer.
func (x *Execution) notSaved(err error) error {
	why := x.Why()
	switch {
	case store.OfContent(err):
		return err
	case why != nil && !errors.Is(why, ErrShutdown):
		return why
	case errors.Is(err, command.ErrStopped):
		return ErrShutdown
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// yields accepts an execution whose handler has yielded.
func (s *saver) yields(x *Execution, point *store.Checkpoint, next *Execution) {
	s.e.metrics.StepYields.WithLabelValues(s.e.metrics.Named("namespace", x.job.plan.Template.Namespace)).Inc()
	s.submit(&saving{x: x, checkpoint: *point, yielded: time.Now()}, next)
}

// answered handles the answers of yields that shared a flush.
func (s *saver) answered(list []command.Answer[*saving, kept]) {
	for _, a := range list {
		x := a.Item.x
		switch {
		case a.Err == nil && a.Result.Saved:
			s.goOn(a.Item, a.Result)
		case a.Err == nil:
			if s.e.slots.endYield(x, phaseLost) {
				s.lost([]*Execution{x})
			}
		case store.OfContent(a.Err):
			if s.e.slots.endYield(x, phaseReporting) {
				s.e.metrics.CheckpointsRefused.WithLabelValues("not_storable").Inc()
				err := Errorf(TypeCheckpointNotStored, "store the checkpoint's content: %w", a.Err)
				s.e.record(x, Failing(Permanent(err)), nil)
			}
		default:
			s.again(a.Item, a.Err)
		}
	}
}

// goOn runs a step that has yielded again, after the others that wait for a permit.
func (s *saver) goOn(v *saving, answer kept) {
	s.saved(v)
	claim := v.x.Claim
	progress, err := json.Marshal(Checkpoint{Cursor: v.checkpoint.Cursor, Items: v.checkpoint.Items, Timestamp: answer.At,
		Accumulated: v.checkpoint.Accumulated, Isolated: v.checkpoint.Isolated})
	if err != nil { // its content was JSON before
		s.e.log.Error("the checkpoint of a step has no JSON form", zap.Error(err))
		progress = nil
	}
	claim.Checkpoint, claim.Ahead = progress, false // its beginning was announced
	next := s.e.execution(&claim, answer.leaseEnd)
	next.describe(v.x.job)
	next.log.Store(v.x.log.Load())
	after := s.e.slots.goOn(v.x, next)
	s.e.follow(after)
	if len(after.begin) == 0 {
		s.e.cfg.Wake() // hands it back if it waits too long
	}
	s.e.metrics.CheckpointRedispatch.Observe(time.Since(v.yielded).Seconds())
}

// saved counts and logs a checkpoint.
func (s *saver) saved(v *saving) {
	s.e.metrics.CheckpointsSaved.WithLabelValues(s.e.metrics.Named("namespace", v.x.job.plan.Template.Namespace)).Inc()
	s.e.log.Debug("checkpoint saved", zap.Inline(v.x), zap.String("cursor", Clip(string(v.checkpoint.Cursor), MaxProgress)),
		zap.Int64("items_processed", v.checkpoint.Items), zap.Bool("yielded", !v.yielded.IsZero()))
}

// lost gives up claims whose checkpoints were rejected.
func (s *saver) lost(list []*Execution) {
	s.e.metrics.CheckpointsRefused.WithLabelValues("lease_lost").Inc()
	s.e.lose(list, "a checkpoint was rejected: the claim is lost")
}

// save sends one statement.
func (s *saver) save(ctx context.Context, items []*saving) ([]kept, error) {
	list := make([]store.Checkpoint, len(items))
	for i, v := range items {
		list[i] = v.checkpoint
	}
	sent := time.Now()
	saved, err := s.e.board.SaveCheckpoints(ctx, list, s.e.cfg.MaxHistory, s.e.cfg.Lease)
	answers := make([]kept, len(saved))
	for i := range saved {
		answers[i] = kept{saved[i], sent.Add(saved[i].Lease)}
	}
	return answers, err
}

// Checkpoint is progress as read from a claim.
type Checkpoint struct {
	Cursor      json.RawMessage `json:"cursor"`
	Items       int64           `json:"items_processed"`
	Timestamp   time.Time       `json:"timestamp"`
	Accumulated json.RawMessage `json:"accumulated_results,omitempty"`
	// Isolated are the items that a batch had isolated by then.
	Isolated json.RawMessage `json:"isolated_items,omitempty"`
}

// Yielded executions in the slots. A yielded execution frees its permit and keeps its
// claim; after its checkpoint is saved another execution of the same claim is enqueued
// behind all that wait for a permit. Steps on the board come before it too: the look that
// its permit pays for is made first.

// goOn replaces x, which has yielded and whose checkpoint is saved, by next, unless the
// claim was given up in the meantime. Nothing begins while draining.
func (s *slots) goOn(x, next *Execution) (f follows) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.move(x, phaseYielding, phaseGone) {
		return f
	}
	now := time.Now()
	if x.leaseEnd.After(next.leaseEnd) { // extended by a heartbeat after the checkpoint
		next.leaseEnd = x.leaseEnd
	}
	s.holdLocked(next, now)
	if s.lookFirst && !s.draining {
		s.yielded = append(s.yielded, next)
		return f
	}
	s.waiting = append(s.waiting, next)
	return s.followsLocked(now)
}

// endYield ends an execution whose checkpoint was not saved: its claim is lost, or it is
// to be reported as failed. It returns false if the claim was given up in the meantime.
func (s *slots) endYield(x *Execution, to phase) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.move(x, phaseYielding, to)
}

// letOthersFirst keeps yielded steps waiting until the next look has ended.
func (s *slots) letOthersFirst() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookFirst = true
}

// awaited reports whether yielded steps wait for the look that begins now.
func (s *slots) awaited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookFirst
}

// resume enqueues the yielded steps.
func (s *slots) resume() follows {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookFirst = false
	s.waiting = append(s.waiting, s.yielded...)
	s.yielded = nil
	return s.followsLocked(time.Now())
}

// asideLocked returns how many held claims take no room: yielded ones that are being
// saved, at most as many as there are permits.
func (s *slots) asideLocked() int {
	return min(s.in[phaseYielding]+len(s.yielded), s.limit)
}
