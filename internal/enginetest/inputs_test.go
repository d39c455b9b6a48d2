package enginetest_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// noise is a text that does not compress.
func noise(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + rand.IntN(26)) // #nosec G404 -- no secret
	}
	return string(b)
}

// startJoin runs an engine whose handlers return size bytes each; the join counts what it gets.
func startJoin(t *testing.T, parts, size int, settle bool, limit worker.InputConfig) (*enginetest.Engine, *telemetry.Metrics) {
	m := telemetry.Discard()
	e := enginetest.Start(t, func(w *worker.Worker) error {
		return errors.Join(
			w.Register("test.part", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return noise(size), nil })),
			w.Register("test.join", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
				total := 0
				for i := range parts {
					text, err := worker.ResultOf[string](ctx, fmt.Sprintf("p%d", i))
					if err != nil {
						return nil, err
					}
					total += len(text)
				}
				return total, nil
			})),
			enginetest.RegisterTemplates(w, enginetest.JoinTemplate("test", "join", parts, "test.part", "test.join")))
	}, func(_ *orchestration.Config, w *worker.Config) {
		w.Metrics, w.Inputs, w.Report.Only = m, limit, !settle
	})
	return e, m
}

// TestLargeInputsAreReadBesideTheClaim: whoever claims the step, with a look or a settlement.
func TestLargeInputsAreReadBesideTheClaim(t *testing.T) {
	t.Parallel()
	for _, settle := range []bool{true, false} {
		for size, large := range map[int]bool{100: false, 50_000: true} {
			t.Run(fmt.Sprintf("settle=%v, %d bytes", settle, size), func(t *testing.T) {
				t.Parallel()
				e, m := startJoin(t, 5, size, settle, worker.InputConfig{MaxBytes: 1 << 20, TotalBytes: 1 << 20})
				for range 3 {
					task := e.Await(e.Submit("test", "join", fmt.Sprintf(`{"x": %q}`, noise(10))))
					require.Equal(t, workflow.TaskComplete, task.State)
					require.JSONEq(t, fmt.Sprint(5*size), string(task.Steps[5].Result))
				}
				require.Equal(t, large, testutil.ToFloat64(m.InputsRead) > 0)
			})
		}
	}
}

// TestALargeContextIsReadBesideTheClaim, too.
func TestALargeContextIsReadBesideTheClaim(t *testing.T) {
	t.Parallel()
	e, m := startJoin(t, 2, 10, true, worker.InputConfig{MaxBytes: 1 << 20, TotalBytes: 1 << 20})
	task := e.Await(e.Submit("test", "join", fmt.Sprintf(`{"x": %q}`, noise(200_000))))
	require.Equal(t, workflow.TaskComplete, task.State)
	require.Greater(t, testutil.ToFloat64(m.InputsRead), 600_000.0, "each of three steps has it")
}

// TestTooLargeInputsFailTheirStep for good, and name the sum.
func TestTooLargeInputsFailTheirStep(t *testing.T) {
	t.Parallel()
	e, _ := startJoin(t, 4, 50_000, true, worker.InputConfig{MaxBytes: 150_000, TotalBytes: 150_000})
	task := e.Await(e.Submit("test", "join", `{}`))
	require.Equal(t, workflow.TaskError, task.State)
	failure := e.DB.QueryString(t, `select error::text from tasker.step_attempts where outcome = 3`)
	require.Contains(t, failure, "InputsTooLarge")
	require.Regexp(t, `have 2\d{5} bytes: want at most 150000 \(worker.inputs.max_bytes\)`, failure)
	require.Equal(t, 1, task.Steps[4].Attempts)
}
