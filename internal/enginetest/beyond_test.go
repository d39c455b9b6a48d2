package enginetest_test

import (
	"errors"
	"fmt"
	"sync/atomic"
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

const beyondFlow = `
name: beyond
namespace_name: limits
version: 1.0.0
steps:
  - name: call
    handler: {callable: call}
  - name: after
    handler: {callable: after}
    dependencies: [call]
`

const droppedSteps = `select count(*) from tasker.step_attempts where outcome = 1 and result = '{"dropped": true}' and claimed_at is null and worker is null`

// limitCalls lets one call run at once.
func limitCalls(t *testing.T, e *enginetest.Engine, beyond limitrule.Beyond) {
	t.Helper()
	signals, err := e.Store.SetLimit(t.Context(), store.Limit{Namespace: "limits", Handler: workflow.HandlerReference{Callable: "call"},
		Rule: limitrule.Rule{MaxRunning: new(1), Beyond: beyond}}, "test", "why")
	require.NoError(t, err)
	for _, s := range append(signals, signal.Signal{Topic: signal.TopicControl}) {
		e.Bus.Publish(s)
	}
}

// TestBeyondALimit: one worker with one permit, whose step holds the only place of a key. Of the
// steps that come then, or of those that run, the tasks are cancelled, or the steps are dropped
// and the workflow goes on.
func TestBeyondALimit(t *testing.T) {
	t.Parallel()
	type outcome struct{ first, second, third workflow.TaskState }
	for beyond, want := range map[limitrule.Beyond]outcome{
		limitrule.CancelNewest:  {workflow.TaskComplete, workflow.TaskCancelled, workflow.TaskCancelled},
		limitrule.CancelRunning: {workflow.TaskCancelled, workflow.TaskCancelled, workflow.TaskComplete},
		limitrule.Drop:          {workflow.TaskComplete, workflow.TaskComplete, workflow.TaskComplete},
	} {
		t.Run(string(beyond), func(t *testing.T) {
			t.Parallel()
			begun, release := make(chan uuid.UUID, 10), make(chan struct{})
			e := enginetest.Start(t, func(w *worker.Worker) error {
				if err := enginetest.RegisterTemplates(w, beyondFlow); err != nil {
					return err
				}
				if err := w.Register("after", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })); err != nil {
					return err
				}
				return w.Register("call", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
					begun <- ctx.TaskUUID()
					select {
					case <-release:
					case <-ctx.Done():
					}
					return "ran", ctx.Err()
				}))
			}, func(_ *orchestration.Config, w *worker.Config) { w.MaxConcurrent = 1 })
			limitCalls(t, e, beyond)
			submit := func(n int) uuid.UUID { return e.Submit("limits", "beyond", fmt.Sprintf(`{"n":%d}`, n)) }
			first := submit(1)
			require.Equal(t, first, <-begun)
			second, third := submit(2), submit(3)
			switch beyond {
			case limitrule.CancelRunning:
				began := <-begun
				if began == second { // before the third was there
					began = <-begun
				}
				require.Equal(t, third, began, "the newest")
			case limitrule.Drop:
				pgtest.Eventually(t, time.Minute, func() (bool, string) { return e.DB.QueryInt(t, droppedSteps) == 2, "not dropped" })
			default:
				require.Equal(t, want.second, e.Await(second).State)
				require.Equal(t, want.third, e.Await(third).State)
			}
			close(release)
			for _, x := range []struct {
				id   uuid.UUID
				want workflow.TaskState
			}{{first, want.first}, {second, want.second}, {third, want.third}} {
				require.Equal(t, x.want, e.Await(x.id).State)
			}
			dropped := e.DB.QueryInt(t, droppedSteps)
			cancelled := e.DB.QueryInt(t, `select count(*) from tasker.step_attempts where task_reason = 'beyond_limit'`)
			if beyond == limitrule.Drop {
				require.Equal(t, []int{2, 0}, []int{dropped, cancelled})
			} else {
				require.Equal(t, []int{0, 2}, []int{dropped, cancelled})
			}
			require.Zero(t, e.DB.QueryInt(t, `select count(*) from tasker.task_messages`))
		})
	}
}

// TestWhatIsSupersededIsCancelled: a task whose step has run, and waits to run again, is cancelled by one of
// its key that begins; its step does not run again, however short its wait and the step of the other.
func TestWhatIsSupersededIsCancelled(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(e *enginetest.Engine, first uuid.UUID, end chan<- error){
		"waits long for its retry": func(_ *enginetest.Engine, _ uuid.UUID, end chan<- error) {
			end <- worker.Retryable(errors.New("no"), time.Hour)
		},
		"waits short for its retry": func(_ *enginetest.Engine, _ uuid.UUID, end chan<- error) {
			end <- worker.Retryable(errors.New("no"), 300*time.Millisecond)
		},
		"released": func(e *enginetest.Engine, first uuid.UUID, _ chan<- error) {
			var call *uuid.UUID
			for steps := e.Read(first).Steps; call == nil; steps = steps[1:] {
				if steps[0].Name == "call" {
					call = &steps[0].UUID
				}
			}
			require.NoError(t, e.Orchestrator.Act(t.Context(), first, orchestration.Action{Kind: orchestration.ActionReleaseLease, Step: call, Actor: "ana", Reason: "by hand"}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, end := make(chan uuid.UUID, 10), make(chan error, 1)
			var first atomic.Pointer[uuid.UUID]
			e := enginetest.Start(t, func(w *worker.Worker) error {
				if err := enginetest.RegisterTemplates(w, beyondFlow); err != nil {
					return err
				}
				if err := w.Register("after", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })); err != nil {
					return err
				}
				return w.Register("call", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
					begun <- ctx.TaskUUID()
					if was := first.Load(); was != nil && *was != ctx.TaskUUID() {
						return "ran", nil
					}
					select {
					case err := <-end:
						return nil, err
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}))
			})
			limitCalls(t, e, limitrule.CancelRunning)
			id := e.Submit("limits", "beyond", `{"n":1}`)
			first.Store(&id)
			require.Equal(t, id, <-begun)
			leave(e, id, end)
			// It waits again only once its failure is applied; before, nothing supersedes it.
			pgtest.Eventually(t, time.Minute, func() (bool, string) {
				return e.DB.QueryInt(t, `select count(*) from tasker.board where task_uuid = $1 and slot = 0 and (state not in (1, 2) or attempt < 1)`, id) == 0, "it holds its place"
			})
			second := e.Submit("limits", "beyond", `{"n":2}`)
			require.Equal(t, workflow.TaskComplete, e.Await(second).State)
			require.Equal(t, workflow.TaskCancelled, e.Await(id).State)
			require.Equal(t, 1, e.DB.QueryInt(t, `select count(*) from tasker.step_attempts where task_uuid = $1 and task_reason = 'beyond_limit'`, id))
			for last := id; len(begun) > 0; {
				require.False(t, last == second && len(begun) > 0, "one begins after the second")
				last = <-begun
			}
		})
	}
}

const undoneFlow = `
name: undone
namespace_name: limits
version: 1.0.0
steps:
  - name: book
    handler: {callable: book}
    compensation: unbook
  - name: unbook
    type: compensation
    handler: {callable: call}
  - name: pay
    handler: {callable: pay}
    dependencies: [book]
`

// TestACompensationIsNotBeyondALimit: it waits for its place, whatever the limit says.
func TestACompensationIsNotBeyondALimit(t *testing.T) {
	t.Parallel()
	for _, beyond := range []limitrule.Beyond{limitrule.CancelNewest, limitrule.CancelRunning, limitrule.Drop} {
		t.Run(string(beyond), func(t *testing.T) {
			t.Parallel()
			begun, release, undone := make(chan struct{}, 10), make(chan struct{}), make(chan uuid.UUID, 10)
			e := enginetest.Start(t, func(w *worker.Worker) error {
				if err := enginetest.RegisterTemplates(w, undoneFlow); err != nil {
					return err
				}
				for name, handle := range map[string]worker.HandlerFunc{
					"book": func(*worker.StepContext) (any, error) { return "booked", nil },
					"pay":  func(*worker.StepContext) (any, error) { return nil, worker.Permanent(errors.New("refused")) },
					"call": func(ctx *worker.StepContext) (any, error) {
						begun <- struct{}{}
						select {
						case <-release:
							undone <- ctx.TaskUUID()
						case <-ctx.Done():
						}
						return "ran", ctx.Err()
					},
				} {
					if err := w.Register(name, handle); err != nil {
						return err
					}
				}
				return nil
			})
			limitCalls(t, e, beyond)
			first := e.Submit("limits", "undone", `{"n":1}`)
			<-begun
			second := e.Submit("limits", "undone", `{"n":2}`)
			pgtest.Eventually(t, time.Minute, func() (bool, string) {
				return e.DB.QueryInt(t, `select count(*) from tasker.board where task_uuid = $1 and state = 2 and callable < 0`, second) == 1, "no compensation waits for its key"
			})
			callable := int32(e.DB.QueryInt(t, `select callable_id from tasker.limits`)) // #nosec G115 -- it is one
			for range 3 {                                                                // every look leaves both alone
				done, err := e.Store.ActBeyond(t.Context(), []int32{callable})
				require.NoError(t, err)
				require.Equal(t, store.Beyond{}, done)
			}
			close(release)
			require.ElementsMatch(t, []uuid.UUID{first, second}, []uuid.UUID{<-undone, <-undone})
			require.Equal(t, workflow.TaskError, e.Await(first).State)
			require.Equal(t, workflow.TaskError, e.Await(second).State)
			require.Zero(t, e.DB.QueryInt(t, droppedSteps))
		})
	}
}
