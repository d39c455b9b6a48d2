package enginetest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/batch"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// isolatingYAML takes a payment once, then processes items in batches of ten, and adds
// up.
const isolatingYAML = `
name: isolating
namespace_name: test
version: 1.0.0
steps:
  - {name: charge, handler: {callable: isolate.charge}}
  - {name: split, type: batchable, depends_on: [charge], handler: {callable: isolate.split}}
  - name: part
    type: batch_worker
    depends_on: [split]
    handler: {callable: isolate.part}
    retry: {max_attempts: 3, backoff: fixed, backoff_base_ms: 20}
    batch_config: {batch_size: 10, parallelism: 4, cursor_field: id, worker_template: part, failure_strategy: isolate}
  - {name: sum, type: deferred_convergence, depends_on: [part], handler: {callable: isolate.sum}}
`

// isolator processes numbers, of which some fail.
type isolator struct {
	mu      sync.Mutex
	broken  map[int64]bool
	worked  map[int64]int // how often each number has been processed
	charges int
	part    func(ctx *worker.StepContext) (any, error) // nil: its own
}

type partSum struct {
	Sum   int64 `json:"sum"`
	Count int   `json:"count"`
}

// one processes a number, or isolates it.
func (i *isolator) one(ctx *worker.StepContext, n int64, s *partSum) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.broken[n] {
		why := fmt.Errorf("%d cannot be processed", n)
		if n%2 == 0 {
			why = worker.WithCode(worker.Permanent(why), "EVEN")
		}
		return ctx.Isolate(map[string]any{"z": n, "id": n}, why)
	}
	i.worked[n]++
	s.Sum, s.Count = s.Sum+n, s.Count+1
	return nil
}

func (i *isolator) mend() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.broken = nil
}

func (i *isolator) process(ctx *worker.StepContext) (any, error) {
	if i.part != nil {
		return i.part(ctx)
	}
	var s partSum
	items, listed, err := worker.ItemsOf[struct{ ID int64 }](ctx)
	if err != nil {
		return nil, err
	}
	if listed {
		for _, item := range items {
			if err := i.one(ctx, item.ID, &s); err != nil {
				return nil, err
			}
		}
		return s, nil
	}
	from, to, err := worker.RangeOf(ctx)
	for n := from; n < to && err == nil; n++ {
		err = i.one(ctx, n, &s)
	}
	return s, err
}

type total struct {
	Sum      int64 `json:"sum"`
	Count    int   `json:"count"`
	Isolated int   `json:"isolated"`
}

func (i *isolator) register(w *worker.Worker) error {
	tmpl, _, err := template.Parse("isolating.yaml", []byte(isolatingYAML))
	if err != nil {
		return err
	}
	return errors.Join(w.RegisterTemplate(tmpl),
		w.Register("isolate.charge", worker.HandlerFunc(func(*worker.StepContext) (any, error) {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.charges++
			return map[string]string{"receipt": "r-1"}, nil
		})),
		w.Register("isolate.split", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			n, err := worker.Field[int64](ctx, "total")
			return batch.Create("part", batch.Split(n, 10, 0), n).With("table", "numbers").With("total", n), err
		})),
		w.Register("isolate.part", worker.HandlerFunc(i.process)),
		w.Register("isolate.sum", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			var t total
			results, _, err := batch.Results[partSum](ctx, "part")
			if err != nil {
				return nil, err
			}
			for _, r := range results {
				t.Sum, t.Count = t.Sum+r.Value.Sum, t.Count+r.Value.Count
			}
			t.Isolated, err = batch.Isolated(ctx, "part")
			return t, err
		})))
}

func newIsolator(broken ...int64) *isolator {
	i := &isolator{broken: map[int64]bool{}, worked: map[int64]int{}}
	for _, n := range broken {
		i.broken[n] = true
	}
	return i
}

func sumOf(t *testing.T, task *store.Task) (got total) {
	t.Helper()
	require.Equal(t, workflow.TaskComplete, task.State)
	require.NoError(t, json.Unmarshal(task.Steps[2].Result, &got))
	return got
}

func isolatedOf(t *testing.T, e *enginetest.Engine, task uuid.UUID) []store.Isolated {
	t.Helper()
	list, err := e.Store.Isolated(t.Context(), task, store.IsolatedFilter{}, 0, 0, 100)
	require.NoError(t, err)
	return list
}

func replay() orchestration.ReplayIsolated {
	return orchestration.ReplayIsolated{Actor: "ana", Reason: "mended"}
}

// TestIsolatedItemsAreListedAndReplayed: a batch continues without its failed items, the
// join sees them, and a new task processes exactly these, without the steps before the
// batches.
func TestIsolatedItemsAreListedAndReplayed(t *testing.T) {
	t.Parallel()
	i := newIsolator(3, 4, 17, 29)
	e := enginetest.Start(t, i.register)
	old := e.Run("test", "isolating", `{"total":30}`)
	require.Equal(t, total{435 - 53, 26, 4}, sumOf(t, old))

	list := isolatedOf(t, e, old.UUID)
	require.Len(t, list, 4)
	require.Equal(t, "part_001", list[0].Batch)
	require.JSONEq(t, `{"id":3,"z":3}`, string(list[0].Item))
	require.JSONEq(t, `{"message":"3 cannot be processed","error_type":"UnexpectedError","retryable":true}`, string(list[0].Error))
	require.JSONEq(t, `{"message":"4 cannot be processed","error_type":"PermanentError","error_code":"EVEN","retryable":false}`, string(list[1].Error))
	page, err := e.Store.Isolated(t.Context(), old.UUID, store.IsolatedFilter{}, list[0].Step, list[0].No, 2)
	require.NoError(t, err)
	require.Equal(t, list[1:3], page)
	require.Equal(t, 4, e.DB.QueryInt(t, `select count(*) from tasker.v_isolated_items where replayed_as is null`))
	require.Equal(t, []int{2, 1, 1}, []int{old.Batches[4].Isolated, old.Batches[5].Isolated, old.Batches[6].Isolated})

	dry := replay()
	dry.DryRun = true
	found, err := e.Orchestrator.ReplayIsolated(t.Context(), old.UUID, dry)
	require.NoError(t, err)
	require.Equal(t, orchestration.ReplayedIsolated{Items: 4, Batches: 1, DryRun: true}, found)
	final := replay()
	permanent := false
	final.Retryable = &permanent
	first, err := e.Orchestrator.ReplayIsolated(t.Context(), old.UUID, final)
	require.NoError(t, err)
	require.Equal(t, 1, first.Items, "4 alone")
	require.Equal(t, total{0, 0, 1}, sumOf(t, e.Await(first.Task)), "it fails again, and the new task says so")

	i.mend()
	done, err := e.Orchestrator.ReplayIsolated(t.Context(), old.UUID, replay())
	require.NoError(t, err)
	require.Equal(t, 3, done.Items, "one has been replayed")
	again := e.Await(done.Task)
	require.Equal(t, total{49, 3, 0}, sumOf(t, again))
	require.Equal(t, old.CorrelationID, *again.ParentCorrelationID)
	require.JSONEq(t, `{"receipt":"r-1"}`, string(again.Steps[0].Result))
	require.Equal(t, "ana", again.Steps[0].Manual.Actor)
	require.Contains(t, string(again.Steps[1].Result), `"numbers"`, "the other fields of the result remain")
	require.Equal(t, 1, i.charges)
	nothing, err := e.Orchestrator.ReplayIsolated(t.Context(), old.UUID, replay())
	require.NoError(t, err)
	require.Zero(t, nothing)
	once, err := e.Orchestrator.ReplayIsolated(t.Context(), first.Task, replay())
	require.NoError(t, err, "the items of a replay can be replayed")
	require.Equal(t, total{4, 1, 0}, sumOf(t, e.Await(once.Task)))

	for _, item := range isolatedOf(t, e, old.UUID) {
		require.NotNil(t, item.ReplayedAs)
	}
	require.Equal(t, 2, e.DB.QueryInt(t, `select count(*) from tasker.task_events where task_uuid = $1 and metadata ->> 'action' = 'replay_isolated'`, old.UUID))
	for n := range int64(30) {
		require.Equal(t, 1, i.worked[n], n)
	}
}

// TestOneReplayHasAnItem, for any number of concurrent replays.
func TestOneReplayHasAnItem(t *testing.T) {
	t.Parallel()
	i := newIsolator(1, 2, 3)
	e := enginetest.Start(t, i.register)
	old := e.Run("test", "isolating", `{"total":10}`)
	i.mend()
	var group sync.WaitGroup
	answers := make([]orchestration.ReplayedIsolated, 8)
	for n := range answers {
		group.Go(func() { answers[n], _ = e.Orchestrator.ReplayIsolated(t.Context(), old.UUID, replay()) })
	}
	group.Wait()
	items := 0
	for _, a := range answers {
		if items += a.Items; a.Items > 0 {
			require.Equal(t, total{6, 3, 0}, sumOf(t, e.Await(a.Task)))
		}
	}
	require.Equal(t, 3, items)
	require.Equal(t, 2, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
}

// TestIsolatedItemsSurviveFailures: items isolated before a checkpoint are stored with
// it, later ones are isolated again, and none is listed twice. A rerun batch replaces its
// earlier isolated items.
func TestIsolatedItemsSurviveFailures(t *testing.T) {
	t.Parallel()
	i := newIsolator(1, 2, 6, 8)
	i.part = func(ctx *worker.StepContext) (any, error) {
		next, err := worker.CheckpointAs[int64](ctx)
		if err != nil {
			return nil, err
		}
		for ; next < 10; next++ {
			if err := i.one(ctx, next, &partSum{}); err != nil {
				return nil, err
			}
			switch {
			case next == 1 && ctx.Attempt() == 1:
				if err := ctx.Checkpoint(next+1, next+1, nil); err != nil {
					return nil, err
				}
			case next == 4 && ctx.Attempt() == 1:
				return nil, worker.Yield(next+1, next+1, "so far")
			case next == 6 && ctx.Attempt() == 1:
				return nil, errors.New("in between: 6 comes again")
			case next == 7 && ctx.Attempt() == 2:
				panic("once more")
			}
		}
		return partSum{}, nil
	}
	e := enginetest.Start(t, i.register)
	old := e.Run("test", "isolating", `{"total":10}`)
	require.Equal(t, 4, sumOf(t, old).Isolated)
	numbers := func() (list []string) {
		for _, item := range isolatedOf(t, e, old.UUID) {
			list = append(list, string(item.Item))
		}
		return list
	}
	require.Equal(t, []string{`{"z": 1, "id": 1}`, `{"z": 2, "id": 2}`, `{"z": 6, "id": 6}`, `{"z": 8, "id": 8}`}, numbers())
	require.Equal(t, 3, old.Steps[3].Attempts)

	i.mu.Lock()
	delete(i.broken, 2)
	i.broken[9] = true
	i.mu.Unlock()
	id := store.StepUUID(old.UUID, old.Steps[3].No)
	require.NoError(t, e.Orchestrator.Act(t.Context(), old.UUID, by(orchestration.ActionRunAgain, &id)))
	require.Equal(t, 4, sumOf(t, e.Await(old.UUID)).Isolated)
	require.Equal(t, []string{`{"z": 1, "id": 1}`, `{"z": 6, "id": 6}`, `{"z": 8, "id": 8}`, `{"z": 9, "id": 9}`}, numbers())

	i.mu.Lock()
	i.broken = nil
	i.mu.Unlock()
	require.NoError(t, e.Orchestrator.Act(t.Context(), old.UUID, by(orchestration.ActionRunAgain, &id)))
	require.Zero(t, sumOf(t, e.Await(old.UUID)).Isolated)
	require.Empty(t, numbers())
}

// TestWhatCannotBeIsolated fails the batch, even if the handler ignores the error.
func TestWhatCannotBeIsolated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		strategy, want string
		part           worker.HandlerFunc
	}{
		"not that strategy": {workflow.ContinueOnFailure, "template test/isolating:1.0.0 gives step \"part\" the failure_strategy continue_on_failure",
			func(ctx *worker.StepContext) (any, error) { return nil, ctx.Isolate(1, errors.New("x")) }},
		"too many": {workflow.IsolateFailed, "there are 3 already", func(ctx *worker.StepContext) (any, error) {
			for n := range 4 {
				_ = ctx.Isolate(n, errors.New("x"))
			}
			return "well", nil
		}},
		"too much": {workflow.IsolateFailed, "worker.isolated_items.max_total_bytes", func(ctx *worker.StepContext) (any, error) {
			return nil, errors.Join(ctx.Isolate("one", errors.New("1234567890")), ctx.Isolate("two", fmt.Errorf("%0300d", 7)))
		}},
		"too large": {workflow.IsolateFailed, "more than 64", func(ctx *worker.StepContext) (any, error) {
			_ = ctx.Isolate(fmt.Sprintf("%070d", 7), errors.New("x"))
			return "well", nil
		}},
		"too large before a yield": {workflow.IsolateFailed, "more than 64", func(ctx *worker.StepContext) (any, error) {
			if !ctx.HasCheckpoint() {
				_ = ctx.Isolate(fmt.Sprintf("%070d", 7), errors.New("x"))
				return nil, worker.Yield(1, 1, nil)
			}
			return "well", nil
		}},
		"too large before a checkpoint": {workflow.IsolateFailed, "more than 64", func(ctx *worker.StepContext) (any, error) {
			_ = ctx.Isolate(fmt.Sprintf("%070d", 7), errors.New("x"))
			return nil, ctx.Checkpoint(1, 1, nil)
		}},
		"without a reason": {workflow.IsolateFailed, "want a reason", func(ctx *worker.StepContext) (any, error) { return nil, ctx.Isolate(1, nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIsolator()
			i.part = c.part
			tmpl, _, err := template.Parse("isolating.yaml", []byte(isolatingYAML))
			require.NoError(t, err)
			e := enginetest.Start(t, i.register, func(_ *orchestration.Config, w *worker.Config) {
				w.Isolation = worker.IsolationConfig{MaxItems: 3, MaxItemBytes: 64, MaxBytes: 300}
			})
			tmpl.Steps[2].Batch.FailureStrategy = c.strategy
			_, err = e.Store.RegisterTemplates(t.Context(), store.Registrant{Environment: "test"}, []*workflow.Template{tmpl})
			require.NoError(t, err)
			task := e.Run("test", "isolating", `{"total":5}`)
			require.Equal(t, workflow.TaskError, task.State)
			failed := task.Steps[3]
			require.Equal(t, 1, failed.Attempts)
			require.Contains(t, string(failed.Error), quoted(t, c.want))
			require.Empty(t, isolatedOf(t, e, task.UUID))
		})
	}
}

func quoted(t *testing.T, text string) string {
	t.Helper()
	doc, err := json.Marshal(text)
	require.NoError(t, err)
	return string(doc[1 : len(doc)-1])
}

// TestAHandlerThatKnowsNoItems does not process a range of its own.
func TestAHandlerThatKnowsNoItems(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]worker.HandlerFunc{
		"reads a range": func(ctx *worker.StepContext) (any, error) { _, _, err := worker.RangeOf(ctx); return nil, err },
		"reads nothing": func(*worker.StepContext) (any, error) { return "well", nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIsolator(1)
			e := enginetest.Start(t, i.register)
			old := e.Run("test", "isolating", `{"total":5}`)
			i.part = part
			done, err := e.Orchestrator.ReplayIsolated(t.Context(), old.UUID, replay())
			require.NoError(t, err)
			task := e.Await(done.Task)
			require.Equal(t, workflow.TaskError, task.State)
			require.Contains(t, string(task.Steps[3].Error), "ItemsNotRead")
		})
	}
}

// TestIsolatedByAKilledWorker: it dies after its report was accepted, or before, and the
// items are listed once in either case.
func TestIsolatedByAKilledWorker(t *testing.T) {
	t.Parallel()
	for _, reported := range []bool{true, false} {
		t.Run(fmt.Sprint("reported ", reported), func(t *testing.T) {
			t.Parallel()
			i := newIsolator(1, 2)
			stop := make(chan struct{})
			var once sync.Once
			i.part = func(ctx *worker.StepContext) (any, error) {
				once.Do(func() { close(stop) })
				<-ctx.Done()
				return nil, errors.New("cut off")
			}
			e := enginetest.Start(t, i.register)
			id := e.Submit("test", "isolating", `{"total":5}`)
			<-stop
			// The report that the worker would have sent, with the same claim.
			token := int64(e.DB.QueryInt(t, `select token from tasker.board where task_uuid = $1 and step_no = 4`, id))
			report := store.Report{ClaimKey: store.ClaimKey{TaskUUID: id, Slot: 5, Step: 4, Token: token}, Success: true,
				Result: json.RawMessage(`{"sum":7,"count":3}`), RetryAfter: -1,
				Isolated: json.RawMessage(`[{"item":1,"error":{"message":"m","error_type":"t","retryable":true}}]`)}
			i.mu.Lock()
			i.part = nil
			i.mu.Unlock()
			if reported {
				accepted, err := e.Store.Report(t.Context(), []store.Report{report})
				require.NoError(t, err)
				require.Equal(t, []bool{true}, accepted)
			} else {
				step := store.StepUUID(id, 4)
				require.NoError(t, e.Orchestrator.Act(t.Context(), id, by(orchestration.ActionReleaseLease, &step)))
			}
			task := e.Await(id)
			accepted, err := e.Store.Report(t.Context(), []store.Report{report})
			require.NoError(t, err)
			require.Equal(t, []bool{false}, accepted, "once more, or from beyond the grave")
			list := isolatedOf(t, e, id)
			require.Len(t, list, map[bool]int{true: 1, false: 2}[reported])
			require.Equal(t, len(list), sumOf(t, task).Isolated)
		})
	}
}
