package corpus_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/worker"
)

// seen counts how often each item was processed.
type seen struct {
	mu    sync.Mutex
	items map[int64]int
}

func (s *seen) add(item int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.items == nil {
		s.items = map[int64]int{}
	}
	s.items[item]++
}

// Row 57: a batch that fails after a checkpoint continues from it, and no item is
// processed twice.
func TestABatchGoesOnFromItsCheckpoint(t *testing.T) {
	t.Parallel()
	var worked seen
	h := datasets()
	h["CheckpointAndFailHandler"] = func(ctx *worker.StepContext) (any, error) {
		s, err := worker.ConfigAs[struct {
			FailAfter  int64 `json:"fail_after_items"`
			FailOn     int   `json:"fail_on_attempt"`
			Checkpoint int64 `json:"items_per_checkpoint"`
		}](ctx)
		if err != nil {
			return nil, err
		}
		from, to, err := worker.RangeOf(ctx)
		if err != nil {
			return nil, err
		}
		next := from
		if ctx.HasCheckpoint() {
			if next, err = worker.CheckpointAs[int64](ctx); err != nil {
				return nil, err
			}
		}
		begin := next
		for next < to {
			if ctx.Attempt() == s.FailOn && next-from >= s.FailAfter {
				return nil, worker.Retryable(errors.New("a planned failure"), 0)
			}
			worked.add(next)
			next++
			if done := next - from; done%s.Checkpoint == 0 {
				if err := ctx.Checkpoint(next, done, nil); err != nil {
					return nil, err
				}
			}
		}
		return map[string]int64{"resumed_from": begin, "processed": next - from}, nil
	}
	e, template := start(t, "batch_resumption_test.yaml", h, nil)
	task := run(e, template, `{"dataset_size":100}`)
	requireComplete(t, task)
	batch := step(t, task, "checkpoint_fail_batch_001")
	require.Equal(t, 2, batch.Attempts)
	require.JSONEq(t, `{"resumed_from":50,"processed":100}`, string(batch.Result))
	require.Len(t, worked.items, 100)
	for item, times := range worked.items {
		require.Equal(t, 1, times, "item %d", item)
	}
}

// A thousand products in five batches, each of which fails in the middle, by a failure or
// a panic: the counts are in the checkpoint, and every row counts once.
func TestProductsAreCountedOnceWhateverBreaks(t *testing.T) {
	t.Parallel()
	type counted struct {
		Sums inventory `json:"sums"`
	}
	h := csvHandlers(func(*worker.StepContext, int64) {})
	h["CsvBatchProcessorHandler"] = func(ctx *worker.StepContext) (any, error) {
		from, to, err := worker.RangeOf(ctx)
		if err != nil {
			return nil, err
		}
		path, err := worker.Field[string](ctx, "csv_file_path")
		if err != nil {
			return nil, err
		}
		next, sums := from, counted{}
		if ctx.HasCheckpoint() {
			if next, err = worker.CheckpointAs[int64](ctx); err != nil {
				return nil, err
			}
			if sums, err = worker.AccumulatedAs[counted](ctx); err != nil {
				return nil, err
			}
		}
		end := min(next+40, to)
		if err := eachRow(path, next, end, sums.Sums.add); err != nil {
			return nil, err
		}
		switch {
		case end == to:
			return sums.Sums, nil
		case ctx.Attempt() == 1 && end-from >= 120 && from%400 == 0:
			panic("in the middle")
		case ctx.Attempt() == 1 && end-from >= 120:
			return nil, errors.New("in the middle")
		}
		return nil, worker.Yield(end, end-from, sums)
	}
	e, template := start(t, "batch_processing_products_csv.yaml", h, nil)
	path, err := filepath.Abs(filepath.Join(folder, "products.csv"))
	require.NoError(t, err)
	task := run(e, template, `{"csv_file_path":%q}`, path)
	requireComplete(t, task)
	for i := 1; i <= 5; i++ {
		require.Equal(t, 2, step(t, task, fmt.Sprintf("process_csv_batch_%03d", i)).Attempts, "yields do not count")
	}
	all := decode[inventory](t, step(t, task, "aggregate_csv_results").Result)
	require.EqualValues(t, 1000, all.Processed)
	require.EqualValues(t, 3558804700, all.ValueCents)
	require.Len(t, all.Categories, 11)
}
