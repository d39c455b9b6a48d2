package enginetest_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// TestATaskThatIsRunAgainIsNotStoppedOnceMore: two orchestrators read that a task is to be
// cancelled with its step. One cancels it, an operator has it run again, and only then does
// the other act on what it has read.
func TestATaskThatIsRunAgainIsNotStoppedOnceMore(t *testing.T) {
	t.Parallel()
	w := startWaiting(t)
	id := w.Submit("waits", "over_blocked", `{}`)
	child := w.child(id, "sub")
	w.Until(child.UUID, func(now *store.Task) bool { return now.Steps[0].State == workflow.StepInProgress })

	read, next := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(read); <-next })
	slow, err := store.Open(t.Context(), store.Options{URL: w.DB.DSN, MaxConns: 10, Observe: func(flow string, _ time.Duration, _ error) {
		if flow == "stop_messages" {
			once()
		}
	}})
	require.NoError(t, err)
	t.Cleanup(slow.Close)
	tx, err := w.DB.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `select from tasker.board where task_uuid = $1 and slot = 0 for update`, child.UUID)
	require.NoError(t, err)
	other := w.AnotherOrchestrator(func(c *orchestration.Config) { c.Store = slow })
	resume := sync.OnceFunc(func() { close(next) })
	t.Cleanup(resume)
	require.NoError(t, w.Orchestrator.Cancel(t.Context(), id, "ana", "because"))
	<-read
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, workflow.TaskCancelled, w.Await(child.UUID).State)
	require.Eventually(t, func() bool { return w.DB.QueryInt(t, `select count(*) from tasker.task_messages`) == 0 }, patience, 2*time.Millisecond)
	step := store.StepUUID(child.UUID, 0)
	require.NoError(t, w.Orchestrator.Act(t.Context(), child.UUID, by(orchestration.ActionRunAgain, &step)))
	looks := other.Health()["task_readiness"].Looks
	resume()
	require.Eventually(t, func() bool { return other.Health()["task_readiness"].Looks > looks }, patience, 2*time.Millisecond)
	w.end()
	require.Equal(t, workflow.TaskComplete, w.Await(child.UUID).State)
}
