package worker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/worker/internal/engine"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
)

// TestAStepIsLeftToOthersOnlyWhereThereAreSome: without other workers the failure must be
// visible.
func TestAStepIsLeftToOthersOnlyWhereThereAreSome(t *testing.T) {
	t.Parallel()
	broken := fakeResolver{name: "broken", priority: 1, err: errors.New("the registry is down")}
	for name, others := range map[string]bool{"others": true, "no others": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{MaxConcurrent: 1}, says("never called"))
				require.NoError(t, r.AddResolver(broken))
				r.board.others = others
				r.start(t)
				offered := r.offered()
				require.Contains(t, offered, int32(stepOnly+1))
				r.offer(1, stepOnly)
				if !others {
					require.Equal(t, engine.TypeResolution, decodeFailure(t, r.board.reported()[0]).Type)
					r.stop(t)
					return
				}
				require.Empty(t, r.board.reported())
				require.NotEmpty(t, r.board.handed)
				time.Sleep(100 * time.Millisecond) // the least time between two heartbeats
				synctest.Wait()
				require.NotContains(t, r.offered(), int32(stepOnly+1), "it is not offered for a while")
				r.board.set(func(b *fakeBoard) { b.claimable = nil }) // claimed by another worker
				time.Sleep(11 * time.Second)
				_, err := r.parts.engine.Look(t.Context(), coordinator.Wake{})
				require.NoError(t, err)
				require.Equal(t, offered, r.offered())
				require.Zero(t, r.Health().Running)
				r.stop(t)
			})
		})
	}
}

// offered returns the callables that the latest heartbeat has reported.
func (r *rig) offered() []int32 {
	synctest.Wait()
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	return r.board.daemons[len(r.board.daemons)-1].Callables
}

// TestAWorkerThatCanRunItGetsTheStep: a resolver of one of two workers fails, and no
// attempt is used for that.
func TestAWorkerThatCanRunItGetsTheStep(t *testing.T) {
	t.Parallel()
	b := newBench(t, "notify")
	tmpl := templateOf(t, "name: called\nnamespace_name: services\nversion: 1.0.0\nsteps:\n  - {name: only, handler: {callable: service://pay}, retry: {retryable: false}}\n")
	for _, err := range []error{errors.New("the registry is down"), nil} {
		w := b.worker(t, Config{Events: quick(), MaxConcurrent: 4}, tmpl)
		require.NoError(t, w.AddResolver(fakeResolver{name: "service", priority: 1, prefix: "service://", err: err}))
		start(t, w)
	}
	ids := b.create(t, tmpl, 20)
	b.finish(t, ids, workflow.TaskComplete)
	for _, id := range ids {
		task, err := b.Task(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, 1, task.Steps[0].Attempts)
	}
}
