package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

// loses is a settler whose first answer is lost.
type loses struct {
	engine.Settler
	lost atomic.Bool
}

func (l *loses) Settle(ctx context.Context, taker store.ClaimRequest, list []settle.Success) (settle.Result, error) {
	r, err := l.Settler.Settle(ctx, taker, list)
	if err == nil && len(r.Next) > 0 && l.lost.CompareAndSwap(false, true) {
		return settle.Result{Accepted: make([]bool, len(list)), Unknown: true}, errors.New("the answer was lost")
	}
	return r, err
}

// TestASettlementWhoseAnswerIsLost: it was committed, and the steps claimed with it are
// handed back. No step waits for the end of a lease, and no attempt is used.
func TestASettlementWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, yaml := range map[string]string{"chain": `
name: pair
namespace_name: pairs
version: 1.0.0
steps:
  - {name: a, handler: {callable: do}}
  - {name: b, dependencies: [a], handler: {callable: do}}
`, "fork": `
name: pair
namespace_name: pairs
version: 1.0.0
steps:
  - {name: a, handler: {callable: do}}
  - {name: b, dependencies: [a], handler: {callable: do}}
  - {name: c, dependencies: [a], handler: {callable: do}}
`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, tmpl := newBench(t, "notify"), templateOf(t, yaml)
			w := b.worker(t, Config{Events: quick(), Lease: 10 * time.Minute}, tmpl)
			var l *loses
			w.around = func(s engine.Settler) engine.Settler {
				l = &loses{Settler: s}
				return l
			}
			require.NoError(t, w.Register("do", says("done")))
			start(t, w)
			// Which tasks are settled with a claim is random: a look may be due.
			for !l.lost.Load() {
				ids := b.create(t, tmpl, 1)
				b.finish(t, ids, workflow.TaskComplete)
			}
			require.Zero(t, b.db.QueryInt(t, `select count(*) from tasker.step_attempts where attempt > 1`))
			require.EqualValues(t, 1, w.Health().Stale, "a settled step could not be reported")
		})
	}
}
