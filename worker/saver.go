package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/store"
)

// Reasons for rejecting a checkpoint, the label of the metric.
const (
	refusedLeaseLost  = "lease_lost"
	refusedTooLarge   = "too_large"
	refusedUnstorable = "not_storable"
)

// saving is a checkpoint under way to the database.
type saving struct {
	x          *execution
	checkpoint store.Checkpoint
	yielded    time.Time // when the handler returned; zero: it waits for the answer
}

// kept is the answer to a saving.
type kept struct {
	store.SavedCheckpoint
	leaseEnd time.Time // by the local clock
}

func (v *saving) of() *execution { return v.x }

// saver delivers checkpoints: those that handlers wait for and those of yields. Both go
// the same way, in order, over at most one connection, so that the heartbeat finds a free
// one however many handlers save at once.
type saver struct {
	delivery[*saving, kept]
}

func newSaver(e *engine) *saver {
	s := &saver{delivery[*saving, kept]{e: e, what: "checkpoints"}}
	s.size = func(v *saving) int {
		return len(v.checkpoint.Cursor) + len(v.checkpoint.Accumulated) + len(v.checkpoint.Isolated)
	}
	s.send, s.alone = s.save, func(context.Context, *parcel[*saving, kept]) {} // fails with the rejection
	// Room for every yield, and for checkpoints that handlers stopped waiting for during
	// one flush: sending a yield again never waits for room.
	flushes := 4 + int(reportPatience/max(e.cfg.Checkpoint.SaveTimeout, time.Second))
	s.open("worker-checkpoint", flushes*max(e.cfg.MaxConcurrent+e.cfg.Prefetch, 1), s.answered)
	return s
}

// checkpoint saves for a handler that continues, and waits for the answer. Calls of one
// handler are serialized.
func (s *saver) checkpoint(c *StepContext, y *yieldError) error {
	x := c.run
	point, err := y.encode(x.key, s.e.cfg.Checkpoint)
	if err != nil {
		s.refused(err)
		return Permanent(err)
	}
	c.saving.Lock()
	defer c.saving.Unlock()
	point.Isolated = c.isolating.encoded()
	if why := x.ctx.why(); why != nil && !errors.Is(why, ErrShutdown) {
		return fmt.Errorf("save a checkpoint: %w", why)
	}
	ctx, cancel := context.WithTimeout(s.e.base, s.e.cfg.Checkpoint.SaveTimeout)
	defer cancel()
	defer context.AfterFunc(&x.ctx, func() {
		if !errors.Is(x.ctx.why(), ErrShutdown) { // then this is the last checkpoint
			cancel()
		}
	})()
	answer, err := s.batch.Do(ctx, &saving{x: x, checkpoint: point})
	if err != nil {
		return s.notSaved(x, err)
	}
	if !answer.Saved {
		s.lost(s.e.slots.lose([]int64{x.key.Token}))
		return fmt.Errorf("save a checkpoint: %w", ErrLeaseLost)
	}
	if answer.Lease > 0 {
		s.e.slots.extended([]store.ClaimKey{x.key}, answer.leaseEnd)
	}
	c.keep(&checkpoint{Cursor: point.Cursor, Items: point.Items, Timestamp: answer.At, Accumulated: point.Accumulated})
	s.saved(&saving{x: x, checkpoint: point})
	return nil
}

// notSaved is the handler's error for a checkpoint without an answer.
func (s *saver) notSaved(x *execution, err error) error {
	why := x.ctx.why()
	switch {
	case refused(err):
		err = &CheckpointError{Part: "content", err: err}
		s.refused(err)
		return Permanent(err)
	case why != nil && !errors.Is(why, ErrShutdown):
		return fmt.Errorf("save a checkpoint: %w", why)
	case errors.Is(err, command.ErrStopped):
		return fmt.Errorf("save a checkpoint: %w", ErrShutdown)
	}
	return fmt.Errorf("save a checkpoint: %w: %w", store.ErrUnavailable, err)
}

// yields accepts an execution whose handler has yielded.
func (s *saver) yields(x *execution, point *store.Checkpoint) {
	s.e.metrics.StepYields.WithLabelValues(x.job.plan.Template.Namespace).Inc()
	s.submit(&saving{x: x, checkpoint: *point, yielded: time.Now()})
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
				s.lost([]*execution{x})
			}
		case refused(a.Err):
			if s.e.slots.endYield(x, phaseReporting) {
				err := &CheckpointError{Part: "content", err: a.Err}
				s.refused(err)
				s.e.record(x, failing(Permanent(err)))
			}
		default:
			s.submit(a.Item)
		}
	}
}

// goOn reruns a step that has yielded, behind the others that wait for a permit.
func (s *saver) goOn(v *saving, answer kept) {
	s.saved(v)
	claim := v.x.claim
	progress, err := json.Marshal(checkpoint{Cursor: v.checkpoint.Cursor, Items: v.checkpoint.Items, Timestamp: answer.At,
		Accumulated: v.checkpoint.Accumulated, Isolated: listOf(v.checkpoint.Isolated)})
	if err != nil { // its content was JSON before
		s.e.log.Error("the checkpoint of a step has no JSON form", zap.Error(err))
		progress = nil
	}
	claim.Checkpoint, claim.Ahead = progress, false // its beginning was announced
	next := newExecution(claim, answer.leaseEnd)
	next.job = v.x.job
	after := s.e.slots.goOn(v.x, next)
	s.e.follow(after)
	if len(after.begin) == 0 {
		s.e.wake() // hands it back if it waits too long
	}
	s.e.metrics.CheckpointRedispatch.Observe(time.Since(v.yielded).Seconds())
}

// saved counts and logs a checkpoint.
func (s *saver) saved(v *saving) {
	s.e.metrics.CheckpointsSaved.WithLabelValues(v.x.job.plan.Template.Namespace).Inc()
	v.x.context.Logger().Debug("checkpoint saved", zap.String("cursor", clip(string(v.checkpoint.Cursor), maxProgress)),
		zap.Int64("items_processed", v.checkpoint.Items), zap.Bool("yielded", !v.yielded.IsZero()))
}

// lost gives up claims whose checkpoints were rejected.
func (s *saver) lost(list []*execution) {
	s.e.metrics.CheckpointsRefused.WithLabelValues(refusedLeaseLost).Inc()
	s.e.lose(list, "a checkpoint was rejected: the claim is lost")
}

// refused counts a checkpoint that cannot be stored.
func (s *saver) refused(err error) {
	reason := refusedUnstorable
	var what *CheckpointError
	if errors.As(err, &what) && what.Size > 0 {
		reason = refusedTooLarge
	}
	s.e.metrics.CheckpointsRefused.WithLabelValues(reason).Inc()
}

// save sends one statement.
func (s *saver) save(ctx context.Context, items []*saving) ([]kept, error) {
	list := make([]store.Checkpoint, len(items))
	for i, v := range items {
		list[i] = v.checkpoint
	}
	sent := time.Now()
	saved, err := s.e.board.SaveCheckpoints(ctx, list, s.e.cfg.Checkpoint.MaxHistory, s.e.cfg.Lease)
	answers := make([]kept, len(saved))
	for i := range saved {
		answers[i] = kept{saved[i], sent.Add(saved[i].Lease)}
	}
	return answers, err
}
