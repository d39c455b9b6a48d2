package corpus_test

import (
	"encoding/csv"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/batch"
)

type inventory struct {
	Processed  int64            `json:"total_processed"`
	ValueCents int64            `json:"value_cents"`
	Categories map[string]int64 `json:"categories"`
	MaxCents   int64            `json:"max_cents"`
	MaxProduct string           `json:"max_product"`
	Rating     int64            `json:"rating_hundredths"`
	Workers    int              `json:"worker_count"`
}

func (v *inventory) add(row []string) error {
	price, err := hundredths(row[4])
	if err != nil {
		return err
	}
	rating, err := hundredths(row[6])
	if err != nil {
		return err
	}
	stock, err := strconv.ParseInt(row[7], 10, 64)
	if err != nil {
		return err
	}
	if v.Categories == nil {
		v.Categories = map[string]int64{}
	}
	v.Processed, v.ValueCents, v.Rating = v.Processed+1, v.ValueCents+price*stock, v.Rating+rating
	v.Categories[row[3]]++
	if price > v.MaxCents {
		v.MaxCents, v.MaxProduct = price, row[1]
	}
	return nil
}

func hundredths(text string) (int64, error) {
	f, err := strconv.ParseFloat(text, 64)
	return int64(math.Round(f * 100)), err
}

// eachRow reads a file with a header, from row to row (not included).
func eachRow(path string, from, to int64, do func(row []string) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r := csv.NewReader(f)
	if _, err := r.Read(); err != nil {
		return err
	}
	for at := int64(0); at < to; at++ {
		row, err := r.Read()
		if err != nil {
			return err
		}
		if at >= from {
			if err := do(row); err != nil {
				return err
			}
		}
	}
	return nil
}

func countRows(path string) (n int64, err error) {
	err = eachRow(path, 0, math.MaxInt64, func([]string) error { n++; return nil })
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func csvHandlers(read func(ctx *worker.StepContext, row int64)) handlers {
	return handlers{
		"CsvAnalyzerHandler": func(ctx *worker.StepContext) (any, error) {
			s, err := worker.ConfigAs[batchSettings](ctx)
			if err != nil {
				return nil, err
			}
			path, err := worker.Field[string](ctx, "csv_file_path")
			if err != nil {
				return nil, worker.Permanent(err)
			}
			rows, err := countRows(path)
			if err != nil {
				return nil, worker.Permanent(err)
			}
			return batch.Create(s.Worker, batch.Split(rows, s.BatchSize, s.MaxWorkers), rows), nil
		},
		"CsvBatchProcessorHandler": func(ctx *worker.StepContext) (any, error) {
			var v inventory
			if b, _ := ctx.Batch(); b.NoOp {
				return v, nil
			}
			from, to, err := worker.RangeOf(ctx)
			if err != nil {
				return nil, err
			}
			path, err := worker.Field[string](ctx, "csv_file_path")
			if err != nil {
				return nil, err
			}
			at := from
			err = eachRow(path, from, to, func(row []string) error {
				read(ctx, at)
				at++
				return v.add(row)
			})
			return v, err
		},
		"CsvResultsAggregatorHandler": func(ctx *worker.StepContext) (any, error) {
			results, _, err := batch.Results[inventory](ctx, "process_csv_batch")
			if err != nil {
				return nil, err
			}
			all := inventory{Categories: map[string]int64{}, Workers: len(results)}
			for _, r := range results {
				v := r.Value
				all.Processed, all.ValueCents, all.Rating = all.Processed+v.Processed, all.ValueCents+v.ValueCents, all.Rating+v.Rating
				for category, n := range v.Categories {
					all.Categories[category] += n
				}
				if v.MaxCents > all.MaxCents {
					all.MaxCents, all.MaxProduct = v.MaxCents, v.MaxProduct
				}
			}
			return all, nil
		},
	}
}

// Row 52: a thousand products in five batches, each read once.
func TestProductsOfAFile(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[int64]int{}
	e, template := start(t, "batch_processing_products_csv.yaml", csvHandlers(func(_ *worker.StepContext, row int64) {
		mu.Lock()
		defer mu.Unlock()
		seen[row]++
	}), nil)
	path, err := filepath.Abs(filepath.Join(folder, "products.csv"))
	require.NoError(t, err)
	task := run(e, template, `{"csv_file_path":%q,"analysis_mode":"inventory"}`, path)
	requireComplete(t, task)
	require.Len(t, task.Steps, 7)
	all := decode[inventory](t, step(t, task, "aggregate_csv_results").Result)
	require.EqualValues(t, 1000, all.Processed)
	require.Equal(t, 5, all.Workers)
	require.EqualValues(t, 3558804700, all.ValueCents)
	require.EqualValues(t, 1399999, all.MaxCents)
	require.Equal(t, "Rolex Submariner Watch", all.MaxProduct)
	require.InDelta(t, 3.8517, float64(all.Rating)/100/1000, 0.0001)
	require.Len(t, all.Categories, 11)
	require.EqualValues(t, 300, all.Categories["kitchen-accessories"])
	require.EqualValues(t, 270, all.Categories["groceries"])
	require.EqualValues(t, 60, all.Categories["mens-watches"])
	require.Len(t, seen, 1000)
	for row, times := range seen {
		require.Equal(t, 1, times, "row %d", row)
	}
}

// An empty file has no work: a placeholder, and an empty join.
func TestProductsOfAnEmptyFile(t *testing.T) {
	t.Parallel()
	e, template := start(t, "batch_processing_products_csv.yaml", csvHandlers(func(*worker.StepContext, int64) {}), nil)
	path := filepath.Join(t.TempDir(), "empty.csv")
	require.NoError(t, os.WriteFile(path, []byte("id,title\n"), 0o600))
	task := run(e, template, `{"csv_file_path":%q}`, path)
	requireComplete(t, task)
	require.Equal(t, []string{"aggregate_csv_results", "analyze_csv", "process_csv_batch_000"}, names(task))
	require.Zero(t, decode[inventory](t, step(t, task, "aggregate_csv_results").Result).Processed)
}
