package enginetest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

const sagaSteps = 6

// sagaYAML is a sequence of steps, each with a compensation that fails once before it
// succeeds.
func sagaYAML() []byte {
	var b strings.Builder
	b.WriteString("name: saga\nnamespace_name: test\nversion: 1.0.0\nsteps:\n")
	for i := 1; i <= sagaSteps; i++ {
		after := ""
		if i > 1 {
			after = fmt.Sprintf(", depends_on: [do_%d]", i-1)
		}
		fmt.Fprintf(&b, "  - {name: do_%d%s, handler: {callable: do}, compensation: undo_%d}\n", i, after, i)
		fmt.Fprintf(&b, "  - {name: undo_%d, type: compensation, handler: {callable: undo}, retry: {max_attempts: 3, backoff: fixed, backoff_base_ms: 1}}\n", i)
	}
	return []byte(b.String())
}

// A saga that fails at each of its steps: completed steps are compensated in reverse
// order, each once although each compensation fails once; others are not.
func TestASagaThatFailsAtEachStep(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, func(w *worker.Worker) error {
		tmpl, _, err := template.Parse("saga.yaml", sagaYAML())
		if err != nil {
			return err
		}
		type input struct {
			Fail string `json:"fail"`
		}
		return errors.Join(w.RegisterTemplate(tmpl),
			worker.Handle(w, "do", func(c *worker.StepContext, in input) (string, error) {
				if c.StepName() == in.Fail {
					return "", worker.Permanent(errors.New("it cannot be done"))
				}
				return c.StepName(), nil
			}),
			worker.Handle(w, "undo", func(c *worker.StepContext, _ input) (string, error) {
				done, err := c.DependencyResult(strings.Replace(c.StepName(), "undo", "do", 1))
				if err == nil && c.Attempt() == 1 {
					err = errors.New("not yet")
				}
				return "undone " + string(done), err
			}))
	})
	for failing := 1; failing <= sagaSteps; failing++ {
		task := e.Run("test", "saga", fmt.Sprintf(`{"fail":"do_%d"}`, failing))
		require.Equal(t, workflow.TaskError, task.State)
		require.Contains(t, *task.FinalReason, fmt.Sprintf("do_%d", failing))
		steps := map[string]store.Step{}
		for _, s := range task.Steps {
			steps[s.Name] = s
		}
		var undone []string
		var last time.Time
		for i := sagaSteps; i >= 1; i-- {
			name := fmt.Sprintf("undo_%d", i)
			s, exists := steps[name]
			if !exists {
				continue
			}
			undone = append(undone, name)
			require.Equal(t, workflow.StepComplete, s.State)
			require.Equal(t, 2, s.Attempts)
			require.JSONEq(t, fmt.Sprintf(`"undone \"do_%d\""`, i), string(s.Result), "it received the result that it undoes")
			require.False(t, s.StartedAt.Before(last), "later steps are undone first")
			last = *s.CompletedAt
		}
		var want []string
		for i := failing - 1; i >= 1; i-- {
			want = append(want, fmt.Sprintf("undo_%d", i))
		}
		require.True(t, slices.Equal(want, undone), "%v, not %v", undone, want)
	}
	require.Equal(t, workflow.TaskComplete, e.Run("test", "saga", `{"fail":""}`).State)
}
