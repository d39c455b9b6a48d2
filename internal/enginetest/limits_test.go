package enginetest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

const limitedFlow = `
name: flow
namespace_name: limits
version: 1.0.0
steps:
  - name: before
    handler: {callable: before}
  - name: call
    handler: {callable: call}
    dependencies: [before]
    retry: {retryable: true, max_attempts: 3, backoff: fixed, backoff_base_ms: 10}
`

// TestLimitsInEachMode: steps of a limited callable run in every mode, never more than the limit of their key at
// once, in chains after steps without a limit, and with retries; a limit that is set while tasks run counts at
// once, and without it all of them run.
func TestLimitsInEachMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []deploymode.Mode{deploymode.EventDrivenOnly, deploymode.PollingOnly, deploymode.Hybrid} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var e *enginetest.Engine
			running, most, failed := map[string]int{}, map[string]int{}, map[uuid.UUID]bool{}
			call := func(ctx *worker.StepContext) (any, error) {
				var in struct{ Tenant string }
				if err := json.Unmarshal(ctx.Input(), &in); err != nil {
					return nil, err
				}
				mu.Lock()
				running[in.Tenant]++
				most[in.Tenant] = max(most[in.Tenant], running[in.Tenant])
				first := !failed[ctx.TaskUUID()]
				failed[ctx.TaskUUID()] = true
				mu.Unlock()
				defer func() {
					mu.Lock()
					running[in.Tenant]--
					mu.Unlock()
				}()
				if n := e.DB.QueryInt(t, `select coalesce(max(n), 0) from (select count(*) as n from tasker.board where state = 3 and limit_line is not null group by limit_line) k`); n > 2 {
					t.Errorf("%d steps of a key run", n)
				}
				if first && ctx.TaskUUID()[15]%4 == 0 {
					return nil, worker.Retryable(errors.New("try again"), -1)
				}
				return 1, nil
			}
			e = enginetest.Start(t, func(w *worker.Worker) error {
				if err := enginetest.RegisterTemplates(w, limitedFlow); err != nil {
					return err
				}
				if err := w.Register("before", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })); err != nil {
					return err
				}
				return w.Register("call", worker.HandlerFunc(call))
			}, func(o *orchestration.Config, w *worker.Config) {
				o.Orchestration.Mode, o.Readiness.Mode, w.Events.Mode = mode, mode, mode
			})
			signals, err := e.Store.SetLimit(t.Context(), store.Limit{Namespace: "limits", Handler: workflow.HandlerReference{Callable: "call"},
				Rule: limitrule.Rule{KeyPath: []string{"tenant"}, MaxRunning: new(2)}}, "test", "why")
			require.NoError(t, err)
			for _, s := range signals {
				e.Bus.Publish(s)
			}
			e.Bus.Publish(signal.Signal{Topic: signal.TopicControl})
			var all []uuid.UUID
			for i := range 60 {
				all = append(all, e.Submit("limits", "flow", fmt.Sprintf(`{"tenant":"t%d","i":%d}`, i%3, i)))
			}
			for _, id := range all {
				require.Equal(t, workflow.TaskComplete, e.Await(id).State)
			}
			mu.Lock()
			defer mu.Unlock()
			for tenant, n := range most {
				require.LessOrEqual(t, n, 2, tenant)
			}
			require.Positive(t, e.DB.QueryInt(t, `select count(*) from tasker.limit_keys where key <> ''`))
		})
	}
}
