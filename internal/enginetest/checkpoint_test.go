package enginetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

const checkpointYAML = `
name: checkpointed
namespace_name: test
version: 1.0.0
steps:
  - name: work
    handler: {callable: checkpoint.work}
    retry: {retryable: true, max_attempts: 3, backoff: fixed, backoff_base_ms: 20}
  - name: aggregate
    dependencies: [work]
    handler: {callable: checkpoint.aggregate}
`

// order is the input of a task of checkpointed.
type order struct {
	Total         int  `json:"total_items"`
	PerCheckpoint int  `json:"items_per_checkpoint"`
	FailAfter     int  `json:"fail_after_items"` // 0: never
	FailOn        int  `json:"fail_on_attempt"`
	Permanent     bool `json:"permanent_failure"`
	Inline        bool `json:"inline"` // save and continue instead of yielding
}

// tally is what the handler accumulates.
type tally struct {
	Sum         int `json:"sum"`
	Checkpoints int `json:"checkpoints_used"`
	ResumedFrom int `json:"resumed_from"` // the cursor with which the latest attempt began
	Attempt     int `json:"attempt"`
}

type workResult struct {
	Processed int64 `json:"total_processed"`
	tally
}

// ledgerOfItems notes every time that an item of a task is processed.
type ledgerOfItems struct {
	mu    sync.Mutex
	times map[uuid.UUID]map[int]int
}

func (l *ledgerOfItems) note(task uuid.UUID, item int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.times[task] == nil {
		l.times[task] = map[int]int{}
	}
	l.times[task][item]++
}

// repeated lists how many items of a task were processed n times.
func (l *ledgerOfItems) repeated(task uuid.UUID) map[int]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := map[int]int{}
	for _, n := range l.times[task] {
		got[n]++
	}
	return got
}

// work processes items from the cursor on, with a checkpoint after each slice.
func (l *ledgerOfItems) work(ctx *worker.StepContext, in order) (workResult, error) {
	at, err := worker.CheckpointAs[int](ctx)
	if err != nil {
		return workResult{}, err
	}
	acc, err := worker.AccumulatedAs[tally](ctx)
	if err != nil {
		return workResult{}, err
	}
	if acc.Attempt != ctx.Attempt() {
		acc.Attempt, acc.ResumedFrom = ctx.Attempt(), at
	}
	for at < in.Total {
		if in.FailAfter > 0 && at >= in.FailAfter && (in.Permanent || ctx.Attempt() == in.FailOn) {
			if in.Permanent {
				return workResult{}, worker.Permanent(errors.New("it will never work"))
			}
			return workResult{}, errors.New("it failed on the way")
		}
		l.note(ctx.TaskUUID(), at)
		acc.Sum += at
		at++
		if at == in.Total || at%in.PerCheckpoint != 0 {
			continue
		}
		acc.Checkpoints++
		if !in.Inline {
			return workResult{}, worker.Yield(at, int64(at), acc)
		}
		if err := ctx.Checkpoint(at, int64(at), acc); err != nil {
			return workResult{}, err
		}
	}
	return workResult{int64(at), acc}, nil
}

func (l *ledgerOfItems) register(w *worker.Worker) error {
	tmpl, _, err := template.Parse("checkpointed.yaml", []byte(checkpointYAML))
	if err != nil {
		return err
	}
	return errors.Join(w.RegisterTemplate(tmpl), worker.Handle(w, "checkpoint.work", l.work),
		w.Register("checkpoint.aggregate", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			if ctx.HasCheckpoint() {
				return nil, errors.New("the checkpoint of another step")
			}
			return worker.ResultOf[workResult](ctx, "work")
		})))
}

func encoded(t *testing.T, in order) string {
	t.Helper()
	doc, err := json.Marshal(in)
	require.NoError(t, err)
	return string(doc)
}

// ways are the two kinds of workers: one that reports, and one that settles.
func ways() map[string]enginetest.Option {
	return map[string]enginetest.Option{
		"reported": func(_ *orchestration.Config, c *worker.Config) { c.Report.Only = true },
		"settled":  func(*orchestration.Config, *worker.Config) {},
	}
}

// TestCheckpointsCarryThroughFailures has the cases of a data set that is worked
// off in slices.
func TestCheckpointsCarryThroughFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in          order
		fails       bool
		attempts    int
		checkpoints int // used
		resumed     int // the cursor with which the last attempt began
		twice       int // items processed a second time
	}{
		"in slices":                  {in: order{Total: 100, PerCheckpoint: 25}, attempts: 1, checkpoints: 3},
		"many slices":                {in: order{Total: 50, PerCheckpoint: 5}, attempts: 1, checkpoints: 9},
		"a slice is all":             {in: order{Total: 10, PerCheckpoint: 20}, attempts: 1},
		"nothing to do":              {in: order{PerCheckpoint: 25}, attempts: 1},
		"a failure at a checkpoint":  {in: order{Total: 100, PerCheckpoint: 25, FailAfter: 50, FailOn: 1}, attempts: 2, checkpoints: 3, resumed: 50},
		"a failure in between":       {in: order{Total: 100, PerCheckpoint: 20, FailAfter: 50, FailOn: 1}, attempts: 2, checkpoints: 4, resumed: 40, twice: 10},
		"a failure before the first": {in: order{Total: 100, PerCheckpoint: 50, FailAfter: 30, FailOn: 1}, attempts: 2, checkpoints: 1, twice: 30},
		"a failure for good":         {in: order{Total: 100, PerCheckpoint: 25, FailAfter: 30, Permanent: true}, fails: true, attempts: 1},
	} {
		for way, with := range ways() {
			for _, inline := range []bool{false, true} {
				t.Run(fmt.Sprint(name, "/", way, "/", map[bool]string{false: "yield", true: "save"}[inline]), func(t *testing.T) {
					t.Parallel()
					items := &ledgerOfItems{times: map[uuid.UUID]map[int]int{}}
					e := enginetest.Start(t, items.register, with)
					in := c.in // for this way only
					in.Inline = inline
					task := e.Run("test", "checkpointed", encoded(t, in))
					require.Equal(t, c.attempts, task.Steps[0].Attempts, "checkpoints use no attempts")
					claims := e.DB.QueryInt(t, `select count(*) from tasker.step_attempts where step_no = 0`)
					require.Equal(t, c.attempts, claims)
					if c.fails {
						require.Equal(t, workflow.TaskError, task.State)
						require.Contains(t, string(task.Steps[0].Checkpoint), `"cursor": 25`, "it is kept for people")
						require.Equal(t, map[int]int{1: 30}, items.repeated(task.UUID))
						return
					}
					require.Equal(t, workflow.TaskComplete, task.State)
					var got workResult
					require.NoError(t, json.Unmarshal(task.Steps[1].Result, &got))
					require.EqualValues(t, c.in.Total, got.Processed)
					require.Equal(t, c.in.Total*(c.in.Total-1)/2, got.Sum, "repeated work counts once")
					require.Equal(t, c.checkpoints, got.Checkpoints)
					require.Equal(t, c.resumed, got.ResumedFrom)
					want := map[int]int{1: c.in.Total - c.twice, 2: c.twice}
					for times, n := range want {
						if n == 0 {
							delete(want, times)
						}
					}
					require.Equal(t, want, items.repeated(task.UUID), "no item before the last checkpoint is repeated")
					if c.checkpoints > 0 {
						require.Contains(t, string(task.Steps[0].Checkpoint), `"history"`)
					} else {
						require.Nil(t, task.Steps[0].Checkpoint)
					}
					require.Nil(t, task.Steps[1].Checkpoint)
				})
			}
		}
	}
}

// slow is a step that works through a cursor, one turn per token.
type slow struct {
	turns chan struct{} // each lets one execution continue
	begun chan int      // the cursor with which an execution began
	other chan error    // errors of handlers of another worker
}

func newSlow() *slow {
	return &slow{turns: make(chan struct{}), begun: make(chan int, 100), other: make(chan error, 100)}
}

const slowYAML = `
name: slow
namespace_name: test
version: 1.0.0
steps:
  - name: work
    handler: {callable: slow.work}
    retry: {retryable: true, max_attempts: 3, backoff: fixed, backoff_base_ms: 20}
`

// work counts to three, and yields after each.
func (s *slow) work(ctx *worker.StepContext) (any, error) {
	at, err := worker.CheckpointAs[int](ctx)
	if err != nil {
		return nil, err
	}
	s.begun <- at
	select {
	case <-s.turns:
	case <-ctx.Done():
		s.other <- context.Cause(ctx)
		return nil, context.Cause(ctx)
	}
	if at++; at < 3 {
		return nil, worker.Yield(at, int64(at), nil)
	}
	return map[string]int{"attempt": ctx.Attempt()}, nil
}

func (s *slow) register(w *worker.Worker) error {
	tmpl, _, err := template.Parse("slow.yaml", []byte(slowYAML))
	if err != nil {
		return err
	}
	return errors.Join(w.RegisterTemplate(tmpl), w.Register("slow.work", worker.HandlerFunc(s.work)))
}

// another runs a second worker, of the same handlers, until the test ends.
func another(t *testing.T, e *enginetest.Engine, register func(*worker.Worker) error) *worker.Worker {
	t.Helper()
	w, err := worker.New(worker.Config{Store: e.Store, EventSource: e.Bus, Publisher: e.Bus, WorkerID: "another", Environment: "test",
		Lease: 10 * time.Second, HeartbeatInterval: time.Second})
	require.NoError(t, err)
	require.NoError(t, register(w))
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, w.Stop(ctx))
	})
	return w
}

func turn(t *testing.T, s *slow) {
	t.Helper()
	select {
	case s.turns <- struct{}{}:
	case <-time.After(patience):
		t.Fatal("no execution takes a turn")
	}
}

func begun(t *testing.T, s *slow) int {
	t.Helper()
	select {
	case at := <-s.begun:
		return at
	case <-time.After(patience):
		t.Fatal("no execution begins")
		return -1
	}
}

// TestADrainedWorkerHandsProgressOver: yielded steps continue elsewhere, in the same
// attempt.
func TestADrainedWorkerHandsProgressOver(t *testing.T) {
	t.Parallel()
	s := newSlow()
	e := enginetest.Start(t, s.register)
	task := e.Submit("test", "slow", `{}`)
	require.Equal(t, 0, begun(t, s))
	turn(t, s)
	require.Equal(t, 1, begun(t, s))
	stopped := make(chan error, 1)
	go func() { stopped <- e.Worker.Stop(context.Background()) }()
	require.Eventually(t, func() bool { return e.Worker.Health().State == "draining" }, patience, time.Millisecond)
	turn(t, s) // it yields into the drain
	require.NoError(t, <-stopped)
	e.Until(task, func(got *store.Task) bool {
		return got.Steps[0].State == workflow.StepEnqueued && got.Steps[0].Attempts == 0
	})
	another(t, e, s.register)
	require.Equal(t, 2, begun(t, s))
	turn(t, s)
	ended := e.Await(task)
	require.JSONEq(t, `{"attempt": 1}`, string(ended.Steps[0].Result))
}

// TestWhatFollowsAStepOfADrainingWorkerRunsElsewhere: a worker claims what follows its own steps
// with their reports, but not while it drains.
func TestWhatFollowsAStepOfADrainingWorkerRunsElsewhere(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	of := func(name string) func(*worker.Worker) error {
		return func(w *worker.Worker) error {
			tmpl, _, err := template.Parse("two.yaml", []byte(`{name: two, namespace_name: test, version: 1.0.0, steps: [
				{name: first, handler: {callable: two.first}}, {name: second, handler: {callable: two.second}, dependencies: [first]}]}`))
			if err != nil {
				return err
			}
			return errors.Join(w.RegisterTemplate(tmpl), w.Register("two.first", worker.HandlerFunc(func(*worker.StepContext) (any, error) {
				close(begun)
				<-release
				return name, nil
			})), w.Register("two.second", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return name, nil })))
		}
	}
	e := enginetest.Start(t, of("draining"))
	task := e.Submit("test", "two", `{}`)
	<-begun
	stopped := make(chan error, 1)
	go func() { stopped <- e.Worker.Stop(context.Background()) }()
	require.Eventually(t, func() bool { return e.Worker.Health().State == "draining" }, patience, time.Millisecond)
	another(t, e, of("another"))
	close(release)
	require.NoError(t, <-stopped)
	steps := e.Await(task).Steps
	require.JSONEq(t, `"draining"`, string(steps[0].Result))
	require.JSONEq(t, `"another"`, string(steps[1].Result))
	require.Equal(t, 1, steps[1].Attempts)
}

// TestAReleasedLeaseGoesOnFromTheCheckpoint, in the next attempt; the context of the old
// handler ends, and it saves nothing any more.
func TestAReleasedLeaseGoesOnFromTheCheckpoint(t *testing.T) {
	t.Parallel()
	s := newSlow()
	e := enginetest.Start(t, s.register)
	task := e.Submit("test", "slow", `{}`)
	require.Equal(t, 0, begun(t, s))
	turn(t, s)
	require.Equal(t, 1, begun(t, s))
	id := store.StepUUID(task, 0)
	require.NoError(t, e.Orchestrator.Act(t.Context(), task, by(orchestration.ActionReleaseLease, &id)))
	require.Equal(t, 1, begun(t, s), "the second attempt continues")
	require.ErrorIs(t, <-s.other, worker.ErrLeaseLost)
	turn(t, s)
	require.Equal(t, 2, begun(t, s))
	turn(t, s)
	require.JSONEq(t, `{"attempt": 2}`, string(e.Await(task).Steps[0].Result))
}

// TestAKilledWorkerLeavesItsProgress: it dies between saving a checkpoint and the next
// execution. The lease ends, and another worker continues.
func TestAKilledWorkerLeavesItsProgress(t *testing.T) {
	t.Parallel()
	s := newSlow()
	e := enginetest.Start(t, s.register)
	require.NoError(t, e.Worker.Stop(t.Context()))
	task := e.Submit("test", "slow", `{}`)
	plan, err := e.Store.PlanNamed(t.Context(), "test", "slow", "1.0.0")
	require.NoError(t, err)
	dead, _, err := e.Store.Claim(t.Context(), store.ClaimRequest{Worker: uuid.Must(uuid.NewV7()), Callables: plan.Callables, Limit: 1, Lease: 200 * time.Millisecond}, true)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	point := store.Checkpoint{ClaimKey: dead[0].Key(), Cursor: json.RawMessage(`2`), Items: 2}
	saved, err := e.Store.SaveCheckpoints(t.Context(), []store.Checkpoint{point}, 20, 200*time.Millisecond)
	require.NoError(t, err)
	require.True(t, saved[0].Saved)
	another(t, e, s.register)
	require.Equal(t, 2, begun(t, s))
	saved, err = e.Store.SaveCheckpoints(t.Context(), []store.Checkpoint{point}, 20, time.Minute)
	require.NoError(t, err)
	require.False(t, saved[0].Saved, "it was only frozen, and is late")
	turn(t, s)
	ended := e.Await(task)
	require.JSONEq(t, `{"attempt": 2}`, string(ended.Steps[0].Result))
	require.Equal(t, 2, e.DB.QueryInt(t, `select count(*) from tasker.step_attempts where checkpoint ->> 'cursor' = '2'`))
}

// TestResetGoesOnAndRunAgainDoesNot: a reset continues from the checkpoint, run_again
// does not.
func TestResetGoesOnAndRunAgainDoesNot(t *testing.T) {
	t.Parallel()
	var broken sync.Map // by the task, whether the work fails permanently
	var began sync.Map  // by the task, the cursor of the latest beginning
	register := func(w *worker.Worker) error {
		tmpl, _, err := template.Parse("slow.yaml", []byte(slowYAML))
		if err != nil {
			return err
		}
		return errors.Join(w.RegisterTemplate(tmpl), w.Register("slow.work", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			at, err := worker.CheckpointAs[int](ctx)
			if err != nil {
				return nil, err
			}
			began.Store(ctx.TaskUUID(), at)
			if at < 500 {
				return nil, worker.Yield(500, 500, nil)
			}
			if _, bad := broken.Load(ctx.TaskUUID()); !bad {
				broken.Store(ctx.TaskUUID(), true)
				return nil, worker.Permanent(errors.New("a bad row"))
			}
			return at, nil
		})))
	}
	e := enginetest.Start(t, register)
	task := e.Submit("test", "slow", `{}`)
	require.Equal(t, workflow.TaskError, e.Await(task).State)
	id := store.StepUUID(task, 0)
	require.NoError(t, e.Orchestrator.Act(t.Context(), task, by(orchestration.ActionResetForRetry, &id)))
	require.Equal(t, workflow.TaskComplete, e.Await(task).State)
	at, _ := began.Load(task)
	require.Equal(t, 500, at)
	require.Equal(t, 2, e.DB.QueryInt(t, `select count(*) from tasker.step_attempts`), "it was not run from the beginning in between")
	require.NoError(t, e.Orchestrator.Act(t.Context(), task, by(orchestration.ActionRunAgain, &id)))
	require.Equal(t, workflow.TaskComplete, e.Await(task).State)
	require.Equal(t, 3, e.DB.QueryInt(t, `select count(*) from tasker.step_attempts`))
	require.Equal(t, 1, e.DB.QueryInt(t, `select jsonb_array_length(checkpoint -> 'history') + 1 from tasker.step_attempts order by token desc limit 1`), "it began afresh, and yielded once more")
}
