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

// Why a checkpoint was refused, as in the label of the metric.
const (
	refusedLeaseLost  = "lease_lost"
	refusedTooLarge   = "too_large"
	refusedUnstorable = "not_storable"
)

// saving is a checkpoint on its way to the database.
type saving struct {
	x          *execution
	checkpoint store.Checkpoint
	yielded    time.Time // when the handler returned; zero: it waits for the answer
}

// kept is the answer to a saving.
type kept struct {
	store.SavedCheckpoint
	leaseEnd time.Time // by our clock
}

// saver hands checkpoints over: those that handlers wait for and those with
// which they have ended. Both go the same way, in order, and never take more
// than one connection: the heartbeat shall find one, however many handlers save
// at once. While the database is away they are repeated like outcomes.
type saver struct {
	e     *engine
	batch *command.Batcher[*saving, kept]
}

func newSaver(e *engine) *saver {
	s := &saver{e: e}
	handlers := e.cfg.MaxConcurrent + e.cfg.Prefetch
	s.batch = command.NewAsyncBatcher(command.BatcherConfig{
		Name:     "worker-checkpoint",
		MaxBatch: e.cfg.Report.MaxBatch,
		// Room for every yield, and for what handlers have given up waiting for
		// during one flush: bringing a yield once more never waits for a place.
		MaxPending:   (4 + int(reportPatience/max(e.cfg.Checkpoint.SaveTimeout, time.Second))) * max(handlers, 1),
		FlushTimeout: reportPatience,
		Logger:       e.log,
		Metrics:      e.metrics,
	}, s.flush, s.answered)
	return s
}

// checkpoint saves for a handler that goes on, and waits for the answer. Calls
// of one handler are made one after the other.
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
	if why := x.life.why(); why != nil && !errors.Is(why, ErrShutdown) {
		return fmt.Errorf("save a checkpoint: %w", why)
	}
	ctx, cancel := context.WithTimeout(s.e.base, s.e.cfg.Checkpoint.SaveTimeout)
	defer cancel()
	defer context.AfterFunc(&x.life, func() {
		if !errors.Is(x.life.why(), ErrShutdown) { // then it is the last that can be done
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

// notSaved is what a handler is told of a checkpoint without an answer.
func (s *saver) notSaved(x *execution, err error) error {
	why := x.life.why()
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

// savePoint is what an execution has ended with: a checkpoint to go on from.
type savePoint struct{ store.Checkpoint }

// Error implements error.
func (p *savePoint) Error() string { return fmt.Sprintf("it yields after %d items", p.Items) }

// yields takes over an execution whose handler has yielded.
func (s *saver) yields(x *execution, p *savePoint) {
	s.e.metrics.StepYields.WithLabelValues(x.job.plan.Template.Namespace).Inc()
	s.bring(&saving{x: x, checkpoint: p.Checkpoint, yielded: time.Now()})
}

func (s *saver) bring(v *saving) {
	if err := s.batch.Add(s.e.base, v); err != nil {
		// Only after Stop; the claim is among those that are handed back.
		s.e.log.Warn("the checkpoint of a step was not saved", zap.Stringer("task_uuid", v.x.key.TaskUUID), zap.Int("step_no", v.x.key.Step), zap.Error(err))
	}
}

// answered is told of the fate of yields that shared a flush.
func (s *saver) answered(list []command.Answer[*saving, kept]) {
	for _, a := range list {
		x := a.Item.x
		switch {
		case a.Err == nil && a.Result.Saved:
			s.goOn(a.Item, a.Result)
		case a.Err == nil:
			s.lost(s.e.slots.giveUp(x))
		case refused(a.Err):
			if s.e.slots.failYield(x) {
				err := &CheckpointError{Part: "content", err: a.Err}
				s.refused(err)
				s.e.reporter.failed(x, Permanent(err))
			}
		default:
			s.bring(a.Item)
		}
	}
}

// goOn has a step that has yielded run again, behind the others that wait for a
// permit.
func (s *saver) goOn(v *saving, answer kept) {
	s.saved(v)
	claim := v.x.claim
	progress, err := json.Marshal(checkpoint{Cursor: v.checkpoint.Cursor, Items: v.checkpoint.Items, Timestamp: answer.At,
		Accumulated: v.checkpoint.Accumulated, Isolated: listOf(v.checkpoint.Isolated)})
	if err != nil { // what is in it has been JSON before
		s.e.log.Error("the checkpoint of a step has no JSON form", zap.Error(err))
		progress = nil
	}
	claim.Checkpoint, claim.Ahead = progress, false // its beginning has been announced
	next := newExecution(claim, answer.leaseEnd)
	next.job = v.x.job
	begin := s.e.slots.goOn(v.x, next)
	for _, x := range begin {
		s.e.start(x)
	}
	if len(begin) == 0 {
		s.e.wake() // to hand it back should it wait for long
	}
	s.e.metrics.CheckpointRedispatch.Observe(time.Since(v.yielded).Seconds())
}

// saved counts and logs a checkpoint.
func (s *saver) saved(v *saving) {
	s.e.metrics.CheckpointsSaved.WithLabelValues(v.x.job.plan.Template.Namespace).Inc()
	v.x.context.Logger().Debug("checkpoint saved", zap.String("cursor", clip(string(v.checkpoint.Cursor), maxProgress)),
		zap.Int64("items_processed", v.checkpoint.Items), zap.Bool("yielded", !v.yielded.IsZero()))
}

// lost gives up claims whose checkpoints were refused.
func (s *saver) lost(list []*execution) {
	s.e.metrics.CheckpointsRefused.WithLabelValues(refusedLeaseLost).Inc()
	s.e.lose(list, "a checkpoint was refused: the claim is no longer ours")
}

// refused counts a checkpoint that cannot be kept.
func (s *saver) refused(err error) {
	reason := refusedUnstorable
	var what *CheckpointError
	if errors.As(err, &what) && what.Size > 0 {
		reason = refusedTooLarge
	}
	s.e.metrics.CheckpointsRefused.WithLabelValues(reason).Inc()
}

// flush saves a batch.
func (s *saver) flush(ctx context.Context, items []*saving) ([]kept, error) {
	answers, errs := make([]kept, len(items)), make([]error, len(items))
	for from := 0; from < len(items); {
		to := from + fitting(items[from:], func(v *saving) int {
			return len(v.checkpoint.Cursor) + len(v.checkpoint.Accumulated) + len(v.checkpoint.Isolated)
		})
		inHalves(items[from:to], answers[from:to], errs[from:to],
			func(items []*saving) ([]kept, error) { return s.deliver(ctx, items) },
			func(_ *saving, err error) (kept, error) { return kept{}, err })
		from = to
	}
	return answers, batchError(errs)
}

// deliver repeats one statement until it gets an answer, the database refuses
// its content, or ctx ends.
func (s *saver) deliver(ctx context.Context, items []*saving) ([]kept, error) {
	list := make([]store.Checkpoint, len(items))
	for i, v := range items {
		list[i] = v.checkpoint
	}
	return insist(ctx, s.e, "checkpoints", len(items), func(ctx context.Context) ([]kept, error) {
		sent := time.Now()
		saved, err := s.e.board.SaveCheckpoints(ctx, list, s.e.cfg.Checkpoint.MaxHistory, s.e.cfg.Lease)
		answers := make([]kept, len(saved))
		for i := range saved {
			answers[i] = kept{saved[i], sent.Add(saved[i].Lease)}
		}
		return answers, err
	})
}

// stop waits for the yields under way and ends the saving.
func (s *saver) stop(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, time.Until(deadline)/3) // the rest is for reports and leases
	defer cancel()
	err := s.e.slots.waitFor(ctx, func(u usage) bool { return u.yielding == 0 })
	if err != nil {
		err = fmt.Errorf("%d checkpoints not saved: %w", s.e.slots.usage().yielding, err)
	}
	return errors.Join(err, s.batch.Stop(ctx))
}
