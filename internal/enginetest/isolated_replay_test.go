package enginetest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/batch"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// ranged is a template with one or two workers of batches, and handlers that
// isolate every item of a range.
func ranged(yaml string, part worker.Handler) func(w *worker.Worker) error {
	return func(w *worker.Worker) error {
		tmpl, _, err := template.Parse("ranged.yaml", []byte("name: ranged\nnamespace_name: test\nversion: 1.0.0\nsteps:\n"+yaml))
		if err != nil {
			return err
		}
		return errors.Join(w.RegisterTemplate(tmpl), w.Register("r.part", part),
			w.Register("r.ok", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) { return ctx.StepName(), nil })),
			w.Register("r.fails", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return nil, worker.Permanent(errors.New("broken")) })),
			w.Register("r.split", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
				return batch.Create(strings.Replace(ctx.StepName(), "split", "part", 1), batch.Split(4, 2, 0), 4), nil
			})))
	}
}

// isolates isolates everything, as numbers, until it gets a batch with items.
func isolates(ctx *worker.StepContext) (any, error) {
	if items, listed, err := worker.ItemsOf[int64](ctx); listed || err != nil {
		return items, err
	}
	from, to, err := worker.RangeOf(ctx)
	for n := from; n < to && err == nil; n++ {
		err = ctx.Isolate(n, errors.New("not now"))
	}
	return "isolated", err
}

const partOf = "type: batch_worker, handler: {callable: r.part}, batch_config: {batch_size: 3, parallelism: 2, cursor_field: id, worker_template: %s, failure_strategy: isolate}}\n"

func part(name, split string) string {
	return fmt.Sprintf("  - {name: %s, depends_on: [%s], "+partOf, name, split, name)
}

// TestIsolatedInATransaction: the handler's writes and its isolated items are committed
// together or not at all.
func TestIsolatedInATransaction(t *testing.T) {
	t.Parallel()
	work := worker.InTx(func(ctx *worker.StepContext, tx pgx.Tx) (any, error) {
		from, to, err := worker.RangeOf(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := tx.Exec(ctx, `insert into done select generate_series($1::bigint, $2::bigint - 1)`, from, to); err != nil {
			return nil, err
		}
		if err := ctx.Isolate(from, errors.New("not this one")); err != nil {
			return nil, err
		}
		if from == 2 && ctx.Attempt() == 1 {
			return nil, errors.New("rolled back")
		}
		return "done", nil
	})
	e := enginetest.Start(t, ranged("  - {name: split, type: batchable, handler: {callable: r.split}}\n"+part("part", "split"), work))
	e.DB.Exec(t, `create table done (n bigint primary key)`)
	task := e.Run("test", "ranged", `{}`)
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Equal(t, 4, e.DB.QueryInt(t, `select count(*) from done`))
	list := isolatedOf(t, e, task.UUID)
	require.Len(t, list, 2)
	require.Equal(t, []string{"0", "2"}, []string{string(list[0].Item), string(list[1].Item)})
}

// TestReplaysOfTwoWorkers: each is replayed separately, in batches of its template's
// size, and no step of the other runs.
func TestReplaysOfTwoWorkers(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, ranged(`  - {name: first, handler: {callable: r.ok}}
  - {name: split_a, type: batchable, depends_on: [first], handler: {callable: r.split}}
  - {name: split_b, type: batchable, depends_on: [first], handler: {callable: r.split}}
`+part("part_a", "split_a")+part("part_b", "split_b")+"  - {name: join, type: deferred_convergence, depends_on: [part_a, part_b], handler: {callable: r.ok}}\n", worker.HandlerFunc(isolates)))
	old := e.Run("test", "ranged", `{}`)
	require.Len(t, isolatedOf(t, e, old.UUID), 8)
	var invalid *orchestration.InvalidError
	_, err := e.Orchestrator.ReplayIsolated(t.Context(), old.UUID, replay())
	require.ErrorAs(t, err, &invalid)
	require.ErrorContains(t, err, "name one")
	r := replay()
	r.Worker = "part_b"
	done, err := e.Orchestrator.ReplayIsolated(t.Context(), old.UUID, r)
	require.NoError(t, err)
	require.Equal(t, 4, done.Items)
	require.Equal(t, 2, done.Batches)
	again := e.Await(done.Task)
	require.Equal(t, workflow.TaskComplete, again.State)
	results := enginetest.Results(again)
	require.Equal(t, map[string]string{"first": `"first"`, "part_b_001": "[0, 1, 2]", "part_b_002": "[3]", "join": `"join"`, "split_b": results["split_b"]}, results)
	left, err := e.Store.Isolated(t.Context(), old.UUID, store.IsolatedFilter{Replayed: new(bool)}, 0, 0, 100)
	require.NoError(t, err)
	require.Len(t, left, 4)
	require.Equal(t, "part_a_001", left[0].Batch)
	r.Limit, r.Again = 1, true
	done, err = e.Orchestrator.ReplayIsolated(t.Context(), old.UUID, r)
	require.NoError(t, err)
	require.Equal(t, 1, done.Items)
	require.True(t, done.More)
	e.Await(done.Task)
}

// TestWhatCannotBeReplayed is rejected, without a new task.
func TestWhatCannotBeReplayed(t *testing.T) {
	t.Parallel()
	split := "  - {name: split, type: batchable, depends_on: [first], handler: {callable: r.split}}\n" + part("part", "split")
	for name, c := range map[string]struct{ yaml, want string }{
		"a compensation": {"  - {name: first, handler: {callable: r.ok}, compensation: undo}\n  - {name: undo, type: compensation, handler: {callable: r.ok}}\n" + split,
			"step first has a compensation"},
		"a failure beside it": {"  - {name: first, handler: {callable: r.ok}}\n  - {name: beside, handler: {callable: r.fails}}\n" + split, "step beside is error"},
		"no batches":          {"  - {name: first, handler: {callable: r.ok}}\n", "has no batches"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := enginetest.Start(t, ranged(c.yaml, worker.HandlerFunc(isolates)))
			old := e.Run("test", "ranged", `{}`)
			for _, dry := range []bool{true, false} {
				r := replay()
				r.DryRun = dry
				_, err := e.Orchestrator.ReplayIsolated(t.Context(), old.UUID, r)
				var invalid *orchestration.InvalidError
				require.ErrorAs(t, err, &invalid)
				require.ErrorContains(t, err, c.want)
			}
			require.Equal(t, 1, e.DB.QueryInt(t, `select count(*) from tasker.tasks`))
		})
	}
	e := enginetest.Start(t, ranged("  - {name: first, handler: {callable: r.ok}}\n", worker.HandlerFunc(isolates)))
	_, err := e.Orchestrator.ReplayIsolated(t.Context(), uuid.New(), replay())
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = e.Orchestrator.ReplayIsolated(t.Context(), uuid.New(), orchestration.ReplayIsolated{})
	require.ErrorContains(t, err, "actor")
}
