package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// work flushes batches until nothing is pending. The slices are reused for all
// of them.
func (b *Batcher[T, R]) work() {
	var batch []brought[T, R]
	var items []T
	var answers []Answer[T, R]
	for {
		batch = b.take(batch[:0])
		if len(batch) == 0 {
			return
		}
		items = items[:0]
		for i := range batch {
			items = append(items, batch[i].item)
		}
		results, err := b.flushOnce(items)
		answers = b.deliver(batch, results, err, answers[:0])
		if len(answers) > 0 {
			b.tell(answers)
		}
		clear(batch)
		clear(items)
		clear(answers)
	}
}

// take moves pending items into batch; an empty batch means that this worker
// has ended.
func (b *Batcher[T, R]) take(batch []brought[T, R]) []brought[T, R] {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := 0
	for len(batch) < b.cfg.MaxBatch {
		item, ok := b.pending.pop()
		if !ok {
			break
		}
		taken++
		if item.caller == nil || item.caller.state.CompareAndSwap(entryWaiting, entryTaken) {
			batch = append(batch, item)
		}
	}
	b.places.free(taken)
	b.saturation.Set(float64(b.pending.len()) / float64(b.cfg.MaxPending))
	if len(batch) == 0 {
		b.inFlight--
		b.closeIfIdle()
	}
	return batch
}

func (b *Batcher[T, R]) flushOnce(items []T) (results []R, err error) {
	ctx, cancel := context.WithTimeout(b.hard, b.cfg.FlushTimeout)
	defer cancel()
	b.sizes.Observe(float64(len(items)))
	begin := time.Now()
	err = lifecycle.Guard(func() error {
		results, err = b.flush(ctx, items)
		return err
	})
	record(b.cfg.Metrics, b.cfg.Logger, b.cfg.Name, time.Since(begin), err)
	return results, err
}

// deliver hands each caller its result or error, and gathers the answers to
// those who do not wait. After done was sent an entry belongs to its caller
// again.
func (b *Batcher[T, R]) deliver(batch []brought[T, R], results []R, err error, answers []Answer[T, R]) []Answer[T, R] {
	var some *BatchError
	partial := errors.As(err, &some) && len(some.Errs) == len(batch)
	if (err == nil && len(results) != len(batch)) || (partial && results != nil && len(results) != len(batch)) {
		err = fmt.Errorf("%s: %w (%d for %d)", b.cfg.Name, ErrBatchShape, len(results), len(batch))
		partial, results = false, nil
		b.cfg.Logger.Error("flush is broken", zap.String("batch", b.cfg.Name), zap.Error(err))
	}
	for i := range batch {
		a := Answer[T, R]{Item: batch[i].item, Err: err}
		if partial {
			a.Err = some.Errs[i]
		}
		if a.Err == nil && i < len(results) {
			a.Result = results[i]
		}
		if e := batch[i].caller; e != nil {
			e.result, e.err = a.Result, a.Err
			e.done <- struct{}{}
		} else {
			answers = append(answers, a)
		}
	}
	return answers
}

func (b *Batcher[T, R]) tell(answers []Answer[T, R]) {
	err := lifecycle.Guard(func() error { b.onDone(answers); return nil })
	if err != nil {
		b.cfg.Logger.Error("callback of a batch panicked",
			zap.String("batch", b.cfg.Name), zap.Error(err), lifecycle.StackField(err))
	}
}
