package enginetest_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

const ruledFlow = `
name: ruled
namespace_name: rules
version: 1.0.0
steps:
  - {name: call, handler: {callable: call}, retry: {retryable: true, max_attempts: 2, backoff: fixed, backoff_base_ms: 1}}
`

var pauseOfRules = store.Pause{Namespace: "rules", Callable: "call", Actor: "ana", Reason: "why"}

// ruled is an engine whose handlers run until they are told what to do.
type ruled struct {
	*enginetest.Engine
	t  *testing.T
	mu sync.Mutex
	// began are the tasks whose handlers have begun, in order; ends tell them what to return.
	began []uuid.UUID
	ends  map[uuid.UUID]chan error
	n     int
}

func rule(t *testing.T) *ruled {
	r := &ruled{t: t, ends: map[uuid.UUID]chan error{}}
	r.Engine = enginetest.Start(t, func(w *worker.Worker) error {
		return errors.Join(enginetest.RegisterTemplates(w, ruledFlow), w.Register("call", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			end := r.end(ctx.TaskUUID())
			r.mu.Lock()
			r.began = append(r.began, ctx.TaskUUID())
			r.mu.Unlock()
			select {
			case err := <-end:
				return 1, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})))
	}, func(o *orchestration.Config, _ *worker.Config) { o.DeadLetters = true })
	return r
}

func (r *ruled) end(task uuid.UUID) chan error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ends[task] == nil {
		r.ends[task] = make(chan error, 2)
	}
	return r.ends[task]
}

func (r *ruled) submit() uuid.UUID {
	r.n++
	return r.Submit("rules", "ruled", fmt.Sprintf(`{"tenant": "a", "n": %d}`, r.n))
}

// limit lets one step run at a time, or keeps order as well.
func (r *ruled) limit(ordered bool) {
	_, err := r.Store.SetLimit(r.t.Context(), store.Limit{Namespace: "rules", Handler: workflow.HandlerReference{Callable: "call"},
		Rule: limitrule.Rule{KeyPath: []string{"tenant"}, MaxRunning: new(1), Ordered: ordered}}, "ana", "why")
	require.NoError(r.t, err)
	r.Bus.Publish(signal.Signal{Topic: signal.TopicControl})
}

func (r *ruled) pause() { require.NoError(r.t, r.Orchestrator.Pause(r.t.Context(), pauseOfRules)) }
func (r *ruled) resume() {
	require.NoError(r.t, r.Orchestrator.Resume(r.t.Context(), pauseOfRules))
}

// pass lets the deadline of a task pass, and has the tasks past theirs cancelled.
func (r *ruled) pass(task uuid.UUID) {
	r.DB.Exec(r.t, `update tasker.board set deadline = clock_timestamp() - interval '1 minute' where task_uuid = $1 and slot = 0`, task)
	late, err := r.Store.PastDeadline(r.t.Context(), 10)
	require.NoError(r.t, err)
	require.Equal(r.t, []uuid.UUID{task}, late)
	changed, err := r.Orchestrator.CancelOverdue(r.t.Context(), late)
	require.NoError(r.t, err)
	require.Equal(r.t, 1, changed)
	require.Equal(r.t, workflow.TaskCancelled, r.Await(task).State)
}

// runs waits until the handlers of these tasks have begun, in this order, and no others.
func (r *ruled) runs(tasks ...uuid.UUID) {
	r.t.Helper()
	pgtest.Eventually(r.t, patience, func() (bool, string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.began) >= len(tasks), fmt.Sprint(r.began)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Equal(r.t, tasks, r.began)
}

// rests says that no worker gets the steps that wait, whichever way it claims.
func (r *ruled) rests() {
	r.t.Helper()
	request := store.ClaimRequest{Worker: uuid.Must(uuid.NewV7()), Limit: 10, Lease: time.Minute,
		Callables: []int32{int32(r.DB.QueryInt(r.t, `select callable_id from tasker.callables where callable = 'call'`))}}
	claimed, _, err := r.Store.Claim(r.t.Context(), request, true)
	require.NoError(r.t, err)
	require.Empty(r.t, claimed)
	claimed, _, _, err = r.Store.ClaimLimited(r.t.Context(), request, true)
	require.NoError(r.t, err)
	require.Empty(r.t, claimed)
}

func (r *ruled) fails(task uuid.UUID) {
	r.end(task) <- worker.Permanent(errors.New("broken"))
	require.Equal(r.t, workflow.TaskError, r.Await(task).State)
}

func (r *ruled) letter(task uuid.UUID) (letter store.DeadLetter) {
	pgtest.Eventually(r.t, patience, func() (bool, string) {
		var err error
		letter, err = r.Store.DeadLetterOfTask(r.t.Context(), task)
		return err == nil, fmt.Sprint(err)
	})
	return letter
}

func (r *ruled) replay(task uuid.UUID) uuid.UUID {
	created, err := r.Orchestrator.Replay(r.t.Context(), task, orchestration.Replay{Actor: "ana", Reason: "mended"})
	require.NoError(r.t, err)
	return created.UUID
}

func (r *ruled) completes(tasks ...uuid.UUID) {
	for _, task := range tasks {
		r.end(task) <- nil
	}
	for _, task := range tasks {
		require.Equal(r.t, workflow.TaskComplete, r.Await(task).State)
	}
}

// TestWhatWins holds the table of docs/use/order.md, cell by cell.
func TestWhatWins(t *testing.T) {
	t.Parallel()
	for cell, holds := range map[string]func(t *testing.T, r *ruled){
		"limit and pause": func(_ *testing.T, r *ruled) {
			r.limit(false)
			r.pause()
			first, second := r.submit(), r.submit()
			r.rests()
			r.resume()
			r.runs(first)
			r.rests() // the limit has outlived the pause
			r.completes(first, second)
		},
		"limit and deadline": func(t *testing.T, r *ruled) {
			r.limit(true)
			first, waits, last := r.submit(), r.submit(), r.submit()
			r.runs(first)
			r.pass(waits)
			require.Equal(t, workflow.DeadLetterStaleness, r.letter(waits).Reason)
			r.completes(first)
			r.runs(first, last)
			r.completes(last)
		},
		"limit and dead letter": func(t *testing.T, r *ruled) {
			r.limit(true)
			first, second := r.submit(), r.submit()
			r.runs(first)
			r.fails(first)
			require.Equal(t, store.ResolutionPending, r.letter(first).Resolution)
			r.runs(first, second)
			r.completes(second)
		},
		"limit and replay": func(_ *testing.T, r *ruled) {
			r.limit(true)
			first, second, third := r.submit(), r.submit(), r.submit()
			r.runs(first)
			r.fails(first)
			r.runs(first, second)
			again := r.replay(first)
			r.rests()
			r.completes(second)
			r.runs(first, second, third)
			r.completes(third)
			r.runs(first, second, third, again)
			r.completes(again)
		},
		"pause and deadline": func(_ *testing.T, r *ruled) {
			r.pause()
			task := r.submit()
			r.pass(task)
			r.resume()
			r.runs()
		},
		"pause and dead letter": func(t *testing.T, r *ruled) {
			task := r.submit()
			r.runs(task)
			r.pause()
			r.fails(task)
			require.Equal(t, store.ResolutionPending, r.letter(task).Resolution)
		},
		"pause and replay": func(t *testing.T, r *ruled) {
			task := r.submit()
			r.runs(task)
			r.fails(task)
			r.letter(task)
			r.pause()
			again := r.replay(task)
			r.rests()
			require.Equal(t, store.ResolutionManuallyResolved, r.letter(task).Resolution)
			r.resume()
			r.runs(task, again)
			r.completes(again)
		},
		"deadline and dead letter": func(t *testing.T, r *ruled) {
			begun := r.submit()
			r.runs(begun)
			r.DB.Exec(t, `update tasker.board set deadline = clock_timestamp() - interval '1 minute' where slot = 0`)
			late, err := r.Store.PastDeadline(t.Context(), 10)
			require.NoError(t, err)
			require.Empty(t, late, "it began in time")
			r.fails(begun)
			require.Equal(t, workflow.DeadLetterExhausted, r.letter(begun).Reason)
			r.pause()
			never := r.submit()
			r.pass(never)
			letter := r.letter(never)
			require.Equal(t, workflow.DeadLetterStaleness, letter.Reason)
			require.Equal(t, store.ResolutionPending, letter.Resolution)
		},
		"deadline and replay": func(t *testing.T, r *ruled) {
			r.pause()
			task := r.submit()
			r.pass(task)
			again := r.replay(task)
			r.resume()
			r.runs(again)
			require.Zero(t, r.DB.QueryInt(t, `select count(*) from tasker.board where deadline is not null`), "the replay has none")
			r.completes(again)
		},
		"dead letter and replay": func(t *testing.T, r *ruled) {
			task := r.submit()
			r.runs(task)
			r.fails(task)
			r.letter(task)
			again := r.replay(task)
			require.Equal(t, store.ResolutionManuallyResolved, r.letter(task).Resolution)
			r.runs(task, again)
			r.fails(again)
			require.Equal(t, store.ResolutionPending, r.letter(again).Resolution)
			require.Equal(t, store.ResolutionManuallyResolved, r.letter(task).Resolution)
		},
	} {
		t.Run(cell, func(t *testing.T) {
			t.Parallel()
			holds(t, rule(t))
		})
	}
}
