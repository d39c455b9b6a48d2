package corpus_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/batch"
	"github.com/tasker-go/tasker/worker/decision"
	"github.com/tasker-go/tasker/workflow"
)

type batchSettings struct {
	BatchSize  int64  `json:"batch_size"`
	MaxWorkers int    `json:"max_workers"`
	Worker     string `json:"worker_template_name"`
}

// analyzeDataset splits dataset_size items, if there are enough for a batch.
func analyzeDataset(ctx *worker.StepContext) (any, error) {
	s, err := worker.ConfigAs[batchSettings](ctx)
	if err != nil {
		return nil, err
	}
	size, err := worker.FieldOr[int64](ctx, "dataset_size", 100)
	if err != nil {
		return nil, err
	}
	if size < s.BatchSize {
		return batch.None(), nil
	}
	return batch.Create(s.Worker, batch.Split(size, s.BatchSize, s.MaxWorkers), size), nil
}

type processed struct {
	From, To int64
	NoOp     bool
}

func processRange(ctx *worker.StepContext) (any, error) {
	if b, ok := ctx.Batch(); !ok {
		return nil, worker.Permanent(errors.New("the step is not a batch"))
	} else if b.NoOp {
		return processed{NoOp: true}, nil
	}
	from, to, err := worker.RangeOf(ctx)
	return processed{From: from, To: to}, err
}

// sumRanges requires contiguous parts.
func sumRanges(workerStep string) worker.HandlerFunc {
	return func(ctx *worker.StepContext) (any, error) {
		results, missing, err := batch.Results[processed](ctx, workerStep)
		if err != nil {
			return nil, err
		}
		next := int64(0)
		for _, r := range results {
			if r.Value.From != next {
				return nil, worker.Permanent(fmt.Errorf("%s begins at %d, not at %d", r.StepName, r.Value.From, next))
			}
			next = r.Value.To
		}
		return map[string]int64{"total_processed": next, "workers": int64(len(results)), "missing": int64(missing)}, nil
	}
}

func datasets() handlers {
	return handlers{"DatasetAnalyzerHandler": analyzeDataset, "BatchWorkerHandler": processRange, "ResultsAggregatorHandler": sumRanges("process_batch")}
}

type total struct {
	Processed int64 `json:"total_processed"`
	Workers   int64 `json:"workers"`
}

// Rows 49 to 51: as many batches as there is work for, at most ten; a placeholder if
// there is none.
func TestDatasetInBatches(t *testing.T) {
	t.Parallel()
	e, template := start(t, "batch_processing_example.yaml", datasets(), nil)
	for size, workers := range map[int64]int64{5000: 5, 1000: 1, 10_001: 10, 1_000_000: 10} {
		task := run(e, template, `{"dataset_size":%d}`, size)
		requireComplete(t, task)
		require.Len(t, task.Steps, int(workers)+2)
		for i := range workers {
			step(t, task, fmt.Sprintf("process_batch_%03d", i+1))
		}
		join := step(t, task, "aggregate_results")
		require.Equal(t, total{size, workers}, decode[total](t, join.Result))
		require.Equal(t, int(workers), join.Parents)
		require.Equal(t, 1, join.Attempts)
	}
	for _, size := range []int{500, 50} {
		task := run(e, template, `{"dataset_size":%d}`, size)
		requireComplete(t, task)
		require.Equal(t, []string{"aggregate_results", "analyze_dataset", "process_batch_000"}, names(task))
		require.Equal(t, total{}, decode[total](t, step(t, task, "aggregate_results").Result))
	}
}

// Many batches, more than are on the board at once and more than one transaction takes.
func TestManyBatches(t *testing.T) {
	t.Parallel()
	e, template := start(t, "batch_processing_example.yaml", datasets(), func(w *workflow.Template) {
		for i := range w.Steps {
			switch s := &w.Steps[i]; s.Kind {
			case workflow.KindBatchable:
				s.Handler.Initialization = map[string]any{"batch_size": 1, "max_workers": 5000, "worker_template_name": "process_batch"}
			case workflow.KindBatchWorker:
				s.Batch.Parallelism = 1000
			}
		}
	})
	for _, workers := range []int64{720, 5000} {
		task := run(e, template, `{"dataset_size":%d}`, workers)
		requireComplete(t, task)
		require.Len(t, task.Steps, int(workers)+2)
		require.Equal(t, total{workers, workers}, decode[total](t, step(t, task, "aggregate_results").Result))
	}
}

// 22 items in batches of 2 for 10 workers: ten batches of two or three.
func TestUnevenBatches(t *testing.T) {
	t.Parallel()
	e, template := start(t, "batch_processing_example.yaml", datasets(), func(w *workflow.Template) {
		w.Steps[0].Handler.Initialization["batch_size"] = 2
	})
	task := run(e, template, `{"dataset_size":22}`)
	requireComplete(t, task)
	require.Equal(t, total{22, 10}, decode[total](t, step(t, task, "aggregate_results").Result))
}

// Row 53: without work, a template that does not name the worker step gets no
// placeholder.
func TestNoBatchesOfNobody(t *testing.T) {
	t.Parallel()
	e, template := start(t, "batch_processing_example.yaml", datasets(), func(w *workflow.Template) {
		delete(w.Steps[0].Handler.Initialization, "worker_template_name")
	})
	task := run(e, template, `{"dataset_size":0}`)
	requireComplete(t, task)
	require.Equal(t, []string{"analyze_dataset"}, names(task))
}

// Row 59: a batchable step must return an outcome.
func TestBatchableWithoutAnOutcome(t *testing.T) {
	t.Parallel()
	h := datasets()
	h["DatasetAnalyzerHandler"] = func(*worker.StepContext) (any, error) { return map[string]int{"found": 3}, nil }
	e, template := start(t, "batch_processing_example.yaml", h, nil)
	task := run(e, template, `{"dataset_size":1}`)
	require.Equal(t, workflow.TaskError, task.State)
	require.Contains(t, *step(t, task, "analyze_dataset").Reason, "no batch_processing_outcome")
}

// Invalid outcomes of a batchable step.
func TestOutcomesOfBatchables(t *testing.T) {
	t.Parallel()
	h := datasets()
	h["DatasetAnalyzerHandler"] = func(ctx *worker.StepContext) (any, error) { return ctx.Input(), nil }
	e, template := start(t, "batch_processing_example.yaml", h, nil)
	for outcome, problem := range map[string]string{
		`"worker_template_name":"process_batch","worker_count":2,"cursor_configs":[{"batch_id":"001","start_cursor":0,"end_cursor":5,"batch_size":5}]`:                                 "worker_count is 2",
		`"worker_template_name":"aggregate_results","worker_count":1,"cursor_configs":[{"batch_id":"001","start_cursor":0,"end_cursor":5}]`:                                            "is not a batch_worker",
		`"worker_template_name":"process_batch","worker_count":0,"cursor_configs":[]`:                                                                                                  "no cursor_configs",
		`"worker_count":1,"cursor_configs":[{"batch_id":"001","start_cursor":0,"end_cursor":5}]`:                                                                                       "worker_template_name is missing",
		`"worker_template_name":"process_batch","worker_count":1,"cursor_configs":[{"batch_id":"001","start_cursor":9,"end_cursor":5}]`:                                                "begins at 9, behind its end",
		`"worker_template_name":"process_batch","worker_count":2,"cursor_configs":[{"batch_id":"a","start_cursor":0,"end_cursor":5},{"batch_id":"a","start_cursor":5,"end_cursor":6}]`: "two batches",
	} {
		task := run(e, template, `{"batch_processing_outcome":{"type":"create_batches","total_items":5,%s}}`, outcome)
		require.Equal(t, workflow.TaskError, task.State, outcome)
		require.Contains(t, *step(t, task, "analyze_dataset").Reason, problem)
		require.Len(t, task.Steps, 1)
	}
}

// Rows 54 to 56: a decision chooses which analyzer creates batches; no step of the other
// branch is created.
func TestDiamondDecisionBatch(t *testing.T) {
	t.Parallel()
	parity := func(odd int64) worker.HandlerFunc {
		return func(ctx *worker.StepContext) (any, error) {
			numbers, err := worker.Field[[]int64](ctx, "numbers")
			found := []int64{}
			for _, n := range numbers {
				if n%2 == odd {
					found = append(found, n)
				}
			}
			return found, err
		}
	}
	analyze := func(from string) worker.HandlerFunc {
		return func(ctx *worker.StepContext) (any, error) {
			s, err := worker.ConfigAs[batchSettings](ctx)
			if err != nil {
				return nil, err
			}
			numbers, err := worker.ResultOf[[]int64](ctx, from)
			if err != nil {
				return nil, err
			}
			n := int64(len(numbers))
			return batch.Create(s.Worker, batch.Split(n, s.BatchSize, s.MaxWorkers), n).With("numbers", numbers), nil
		}
	}
	sum := func(from string) worker.HandlerFunc {
		return func(ctx *worker.StepContext) (any, error) {
			begin, end, err := worker.RangeOf(ctx)
			if err != nil {
				return nil, err
			}
			numbers, err := worker.ResultOf[[]int64](ctx, from)
			if err != nil {
				return nil, err
			}
			s := int64(0)
			for _, n := range numbers[begin:end] {
				s += n
			}
			return s, nil
		}
	}
	join := func(from string) worker.HandlerFunc {
		return func(ctx *worker.StepContext) (any, error) {
			results, _, err := batch.Results[int64](ctx, from)
			s := int64(0)
			for _, r := range results {
				s += r.Value
			}
			return s, err
		}
	}
	e, template := start(t, "diamond_decision_batch.yaml", handlers{
		"DiamondStartHandler": func(ctx *worker.StepContext) (any, error) { return worker.Field[[]int64](ctx, "numbers") },
		"BranchEvensHandler":  parity(0), "BranchOddsHandler": parity(1),
		"RoutingDecisionHandler": func(ctx *worker.StepContext) (any, error) {
			evens, err := worker.ResultOf[[]int64](ctx, "branch_evens")
			if err != nil {
				return nil, err
			}
			odds, err := worker.ResultOf[[]int64](ctx, "branch_odds")
			if err != nil {
				return nil, err
			}
			if len(evens) >= len(odds) {
				return decision.Create("even_batch_analyzer"), nil
			}
			return decision.Create("odd_batch_analyzer"), nil
		},
		"EvenBatchAnalyzerHandler": analyze("branch_evens"), "OddBatchAnalyzerHandler": analyze("branch_odds"),
		"ProcessEvenBatchHandler": sum("branch_evens"), "ProcessOddBatchHandler": sum("branch_odds"),
		"AggregateEvenResultsHandler": join("process_even_batch"), "AggregateOddResultsHandler": join("process_odd_batch"),
	}, nil)
	for _, c := range []struct {
		numbers, path string
		sum           int64
	}{
		{"[2,4,6,8,10,12]", "even", 42}, {"[1,3,5,7,9,11,2,4]", "odd", 36}, {"[1,2,3,4,5,6,7,8,9,10]", "even", 30},
	} {
		task := run(e, template, `{"numbers":%s}`, c.numbers)
		requireComplete(t, task)
		require.Equal(t, c.sum, decode[int64](t, step(t, task, "aggregate_"+c.path+"_results").Result))
		require.Len(t, task.Steps, 4+1+3+1, "four, the analyzer, three batches and the join: %v", names(task))
		for i := 1; i <= 3; i++ {
			step(t, task, fmt.Sprintf("process_%s_batch_%03d", c.path, i))
		}
	}
}

// One batch that fails permanently, by the failure strategy of the template.
func TestFailuresOfBatches(t *testing.T) {
	t.Parallel()
	zero, two, most := 0, 2, 0.8
	for _, c := range []struct {
		name     string
		strategy string
		most     *int
		ratio    *float64
		fail     int64 // batches
		state    workflow.TaskState
	}{
		{"fail fast", workflow.FailFast, nil, nil, 1, workflow.TaskError},
		{"continue", workflow.ContinueOnFailure, nil, nil, 1, workflow.TaskError},
		{"continue, two may fail", workflow.ContinueOnFailure, &two, nil, 2, workflow.TaskComplete},
		{"continue, three are too many", workflow.ContinueOnFailure, &two, nil, 3, workflow.TaskError},
		{"continue, most succeed", workflow.ContinueOnFailure, nil, &most, 2, workflow.TaskComplete},
		{"continue, too few succeed", workflow.ContinueOnFailure, nil, &most, 3, workflow.TaskError},
		{"isolate", workflow.IsolateFailed, nil, nil, 3, workflow.TaskComplete},
		{"isolate, none may fail", workflow.IsolateFailed, &zero, nil, 1, workflow.TaskError},
		{"isolate, all fail", workflow.IsolateFailed, nil, nil, 10, workflow.TaskError},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := datasets()
			h["BatchWorkerHandler"] = func(ctx *worker.StepContext) (any, error) {
				from, to, err := worker.RangeOf(ctx)
				if err == nil && from < c.fail*1000 {
					err = worker.Permanent(errors.New("this batch is broken"))
				}
				return processed{From: from, To: to}, err
			}
			h["ResultsAggregatorHandler"] = func(ctx *worker.StepContext) (any, error) {
				results, missing, err := batch.Results[processed](ctx, "process_batch")
				return map[string]int{"workers": len(results), "missing": missing}, err
			}
			e, template := start(t, "batch_processing_example.yaml", h, func(w *workflow.Template) {
				b := w.Steps[1].Batch
				b.FailureStrategy, b.MaxFailedWorkers, b.MinSuccessRatio = c.strategy, c.most, c.ratio
			})
			task := run(e, template, `{"dataset_size":10000}`)
			require.Equal(t, c.state, task.State, describe(task))
			failed := 0
			for i := range task.Steps {
				if task.Steps[i].State == workflow.StepError {
					failed++
				}
			}
			if c.strategy != workflow.FailFast {
				require.EqualValues(t, c.fail, failed)
			}
			if c.state == workflow.TaskComplete {
				require.JSONEq(t, fmt.Sprintf(`{"workers":%d,"missing":%d}`, 10-c.fail, c.fail), string(step(t, task, "aggregate_results").Result))
			}
		})
	}
}

// The outcomes of SDKs for an empty input mean nothing to do, not a failure.
func TestOutcomesOfNothingToDo(t *testing.T) {
	t.Parallel()
	h := datasets()
	h["DatasetAnalyzerHandler"] = func(ctx *worker.StepContext) (any, error) { return ctx.Input(), nil }
	template := load(t, "batch_processing_example.yaml")
	core, lines := observer.New(zap.WarnLevel)
	e := enginetest.Start(t, func(w *worker.Worker) error {
		return errors.Join(w.RegisterTemplate(template), h.register(template)(w))
	}, func(o *orchestration.Config, w *worker.Config) { o.Logger, w.Logger = zap.New(core), zap.New(core) })
	for i, outcome := range []string{
		`{"type":"no_batches"}`,
		`"no_batches"`,
		`{"type":"create_batches","worker_template_name":"process_batch","worker_count":0,"cursor_configs":[],"total_items":0}`,
		`{"type":"create_batches","worker_count":0}`,
		`{"type":"create_batches","worker_template_name":"process_batch","worker_count":0,"cursor_configs":null}`,
	} {
		task := run(e, template, `{"batch_processing_outcome":%s}`, outcome)
		require.Equal(t, workflow.TaskComplete, task.State, outcome)
		if outcome == `"no_batches"` {
			require.Len(t, task.Steps, 1, "a bare no_batches creates nothing")
		} else {
			require.Equal(t, workflow.StepComplete, step(t, task, "process_batch_000").State, "the shape is kept")
			require.Equal(t, workflow.StepComplete, step(t, task, "aggregate_results").State)
		}
		pgtest.Eventually(t, 30*time.Second, func() (bool, string) { // logged after the commit
			logged := lines.FilterMessage("an outcome is read as nothing to do").Len()
			return logged == i, fmt.Sprintf("%s: logged %d times", outcome, logged)
		})
	}
	for _, outcome := range []string{`"no_branches"`, `"create_batches"`, `{"type":"create_batches"}`, `{"type":"create_batches","worker_count":0,"total_items":3}`,
		`{"type":"create_batches","worker_count":1,"cursor_configs":[]}`, `null`, `0`} {
		task := run(e, template, `{"batch_processing_outcome":%s}`, outcome)
		require.Equal(t, workflow.TaskError, task.State, outcome)
		require.Contains(t, *step(t, task, "analyze_dataset").Reason, "batch_processing_outcome", outcome)
	}
}
