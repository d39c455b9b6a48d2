package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// work flushes batches until nothing is pending. The two slices are reused for
// all of them.
func (b *Batcher[T, R]) work() {
	var batch []*entry[T, R]
	var items []T
	for {
		batch = b.take(batch[:0])
		if len(batch) == 0 {
			return
		}
		items = items[:0]
		for _, e := range batch {
			items = append(items, e.item)
		}
		results, err := b.flushOnce(items)
		b.deliver(batch, results, err)
		clear(batch)
		clear(items)
	}
}

// take moves pending items into batch; an empty batch means that this worker
// has ended.
func (b *Batcher[T, R]) take(batch []*entry[T, R]) []*entry[T, R] {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(batch) < b.cfg.MaxBatch {
		e, ok := b.pending.pop()
		if !ok {
			break
		}
		<-b.places
		if e.state.CompareAndSwap(entryWaiting, entryTaken) {
			batch = append(batch, e)
		}
	}
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

// deliver hands each item its result or error. After done was sent an entry
// belongs to its caller again.
func (b *Batcher[T, R]) deliver(batch []*entry[T, R], results []R, err error) {
	var some *BatchError
	partial := errors.As(err, &some) && len(some.Errs) == len(batch)
	if (err == nil && len(results) != len(batch)) || (partial && results != nil && len(results) != len(batch)) {
		err = fmt.Errorf("%s: %w (%d for %d)", b.cfg.Name, ErrBatchShape, len(results), len(batch))
		partial, results = false, nil
		b.cfg.Logger.Error("flush is broken", zap.String("batch", b.cfg.Name), zap.Error(err))
	}
	for i, e := range batch {
		e.err = err
		if partial {
			e.err = some.Errs[i]
		}
		if e.err == nil && i < len(results) {
			e.result = results[i]
		}
		if !e.async {
			e.done <- struct{}{}
			continue
		}
		if err := lifecycle.Guard(func() error { b.onDone(e.item, e.result, e.err); return nil }); err != nil {
			b.cfg.Logger.Error("callback of a batch panicked",
				zap.String("batch", b.cfg.Name), zap.Error(err), lifecycle.StackField(err))
		}
		b.recycle(e)
	}
}
