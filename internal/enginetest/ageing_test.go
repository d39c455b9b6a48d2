package enginetest_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/sweep"
	"github.com/tasker-go/tasker/worker"
)

// onceYAML has steps that are never claimed ahead, since they have no second attempt.
const onceYAML = lane + `    retry: {retryable: false, max_attempts: 1}
`

// TestNothingWaitsForeverBehindHigherPriorities: each urgent step puts the next one in line
// before it ends, of its own callable or of another one of the worker. A step of a low
// priority never gets its turn among them; with the bound of ageing it does in time.
func TestNothingWaitsForeverBehindHigherPriorities(t *testing.T) {
	t.Parallel()
	for _, mode := range []deploymode.Mode{deploymode.PollingOnly, deploymode.EventDrivenOnly, deploymode.Hybrid} {
		for _, urgent := range []string{"low", "high"} {
			t.Run(fmt.Sprintf("%s, behind %s", mode, urgent), func(t *testing.T) {
				t.Parallel()
				starve(t, mode, urgent)
			})
		}
	}
}

func starve(t *testing.T, mode deploymode.Mode, urgent string) {
	t.Helper()
	var e *enginetest.Engine
	var served atomic.Int64
	var over atomic.Bool
	low := make(chan struct{})
	started := make(chan struct{})
	put := func(ctx context.Context, namespace string, priority int) (uuid.UUID, error) {
		created, err := e.Orchestrator.Create(ctx, orchestration.Request{Namespace: namespace, Name: "lane", Version: "1.0.0",
			Context: fmt.Appendf(nil, `{"n":"%s"}`, uuid.New()), Initiator: "test", Priority: &priority})
		return created.UUID, err
	}
	e = enginetest.Start(t, func(w *worker.Worker) error {
		handler := worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			<-started
			if ctx.Priority() < 0 {
				close(low)
				return 1, nil
			}
			if served.Add(1); over.Load() {
				return 1, nil
			}
			_, err := put(ctx, urgent, 10)
			return 1, err
		})
		return errors.Join(enginetest.RegisterTemplates(w, fmt.Sprintf(onceYAML, "low", "age.low"), fmt.Sprintf(onceYAML, "high", "age.high")),
			w.Register("age.low", handler), w.Register("age.high", handler))
	}, func(o *orchestration.Config, w *worker.Config) {
		w.MaxConcurrent, w.Mode, o.Orchestration.Mode, o.Readiness.Mode = 1, mode, mode, mode
	})
	for range 30 { // more than a worker claims at once
		_, err := put(t.Context(), urgent, 10)
		require.NoError(t, err)
	}
	id, err := put(t.Context(), "low", -10)
	require.NoError(t, err)
	close(started)

	const bound = time.Second
	waited := func() time.Duration {
		const since = `select (extract(epoch from clock_timestamp() - enqueued_at) * 1000)::int from tasker.board where state = 2 and task_uuid = '`
		return time.Duration(e.DB.QueryInt(t, since+id.String()+`'`)) * time.Millisecond
	}
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		return served.Load() > 100 && waited() > bound+bound/2, fmt.Sprint(served.Load(), " urgent ones were served")
	})
	select {
	case <-low:
		require.Fail(t, "without a bound the step does not starve")
	default:
	}

	defaults, err := config.Defaults()
	require.NoError(t, err)
	settings := defaults.Orchestration // a copy: all tests share the defaults
	settings.Sweeps.Ageing.Bound = bound
	r, err := sweep.New(sweep.Config{Store: e.Store, Tasks: e.Orchestrator, Publisher: e.Bus, Holder: uuid.New(), Settings: settings})
	require.NoError(t, err)
	begun := time.Now()
	require.NoError(t, r.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, r.Stop(context.WithoutCancel(t.Context()))) })
	select {
	case <-low: // the first round within the interval of a second, a full scan within two more
		require.Less(t, time.Since(begun), 15*time.Second)
	case <-time.After(30 * time.Second):
		require.Fail(t, "the step has not been brought forward")
	}
	over.Store(true)
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		return e.DB.QueryInt(t, `select count(*) from tasker.board`) == 0, "steps are left"
	})
}
