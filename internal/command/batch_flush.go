package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// round is one batch in flight. Its slices are reused.
type round[T, R any] struct {
	batch    []brought[T, R]
	items    []T
	answers  []Answer[T, R] // for items brought with Add
	answered int            // items of the batch that have their result or error

	// The fields below are guarded by the lock of the batcher.
	begun time.Time // zero: not under way
	late  bool      // counted in late
	watch *time.Timer
}

// work flushes batches until none is pending. It survives any failure of a batch:
// otherwise later items would never be flushed.
func (b *Batcher[T, R]) work() {
	r := &round[T, R]{}
	for {
		if b.take(r); len(r.batch) == 0 {
			return
		}
		r.items, r.answers, r.answered = r.items[:0], r.answers[:0], 0
		for i := range r.batch {
			r.items = append(r.items, r.batch[i].item)
		}
		died := lifecycle.Guard(func() error {
			results, err := b.flushOnce(r.items)
			b.deliver(r, results, err)
			return nil
		})
		if died != nil {
			b.salvage(r, died)
		}
		if len(r.answers) > 0 {
			b.tell(r.answers)
		}
		clear(r.batch)
		clear(r.items)
		clear(r.answers)
	}
}

// salvage answers the callers that a panic left without an answer.
func (b *Batcher[T, R]) salvage(r *round[T, R], died error) {
	b.cfg.Logger.Error("delivering a batch panicked", zap.String("batch", b.cfg.Name), zap.Error(died), lifecycle.StackField(died))
	b.cfg.Metrics.Commands.WithLabelValues(b.cfg.Name, telemetry.OutcomePanic).Inc()
	died = fmt.Errorf("%s: delivering the result: %w", b.cfg.Name, died)
	for r.answered < len(r.batch) {
		var none R
		r.answer(none, died)
	}
}

// take ends a round and moves pending items into the next one; an empty batch means that this worker
// has ended.
func (b *Batcher[T, R]) take(r *round[T, R]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.begun = (time.Time{}); r.late {
		r.late = false
		b.late--
	}
	taken, batch, bytes := 0, r.batch[:0], 0
	for len(batch) < b.cfg.MaxBatch && b.inFlight <= b.allowed() {
		item, ok := b.next(b.cfg.MaxBatch-len(batch), &bytes)
		if !ok {
			break
		}
		taken++
		if item.caller == nil || item.caller.state.CompareAndSwap(entryWaiting, entryTaken) {
			batch = append(batch, item)
		}
	}
	b.places.free(taken)
	b.saturation.Set(float64(b.waiting()) / float64(b.cfg.MaxPending))
	if r.batch = batch; len(batch) == 0 {
		b.inFlight--
		b.closeIfIdle()
		if r.watch != nil {
			r.watch.Stop()
		}
		return
	}
	b.watch(r)
}

// next requires the lock. It takes the next item of a flush that has room for some more, and bytes of large ones; the last
// place is for a large one, if any waits.
func (b *Batcher[T, R]) next(room int, bytes *int) (item brought[T, R], ok bool) {
	if room > 1 || *bytes > 0 || b.large.len() == 0 {
		if item, ok = b.pending.pop(); ok {
			return item, true
		}
	}
	first := b.large.first()
	if first == nil {
		return item, false
	}
	size := b.size(first.item)
	if *bytes > 0 && *bytes+size > b.most {
		return item, false
	}
	*bytes += size
	return b.large.pop()
}

// watch requires the lock. It lets another flush begin once this one has taken longer than Patience.
func (b *Batcher[T, R]) watch(r *round[T, R]) {
	if b.cfg.Patience <= 0 {
		return
	}
	r.begun = time.Now()
	if r.watch != nil {
		r.watch.Reset(b.cfg.Patience)
		return
	}
	r.watch = time.AfterFunc(b.cfg.Patience, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if r.begun.IsZero() || r.late || time.Since(r.begun) < b.cfg.Patience { // of an earlier round
			return
		}
		if b.cfg.Silent != nil && !b.cfg.Silent() {
			r.watch.Reset(b.cfg.Patience)
			return
		}
		r.late = true
		b.late++
		b.spawn()
	})
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

// deliver hands each caller its result or error, and collects the answers to items
// brought with Add.
func (b *Batcher[T, R]) deliver(r *round[T, R], results []R, err error) {
	var some *BatchError
	partial := errors.As(err, &some) && len(some.Errs) == len(r.batch)
	if (err == nil && len(results) != len(r.batch)) || (partial && results != nil && len(results) != len(r.batch)) {
		err = fmt.Errorf("%s: %w (%d for %d)", b.cfg.Name, ErrBatchShape, len(results), len(r.batch))
		partial, results = false, nil
		b.cfg.Logger.Error("flush returned a wrong number of results", zap.String("batch", b.cfg.Name), zap.Error(err))
	}
	for i := range r.batch {
		var result R
		failed := err
		if partial {
			failed = some.Errs[i]
		}
		if failed == nil && i < len(results) {
			result = results[i]
		}
		r.answer(result, failed)
	}
}

// answer gives the next item of the batch its result or error. Once done was sent, the
// entry belongs to its caller again.
func (r *round[T, R]) answer(result R, err error) {
	at := &r.batch[r.answered]
	r.answered++
	if at.caller == nil {
		r.answers = append(r.answers, Answer[T, R]{Item: at.item, Result: result, Err: err})
		return
	}
	at.caller.result, at.caller.err = result, err
	at.caller.done <- struct{}{}
}

func (b *Batcher[T, R]) tell(answers []Answer[T, R]) {
	err := lifecycle.Guard(func() error { b.onDone(answers); return nil })
	if err != nil {
		b.cfg.Logger.Error("callback of a batch panicked",
			zap.String("batch", b.cfg.Name), zap.Error(err), lifecycle.StackField(err))
	}
}
