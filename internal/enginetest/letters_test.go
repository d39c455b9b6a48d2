package enginetest_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// TestADeadLetterSaysWhatHappened: the failure, the state of the task, and the handler's
// error.
func TestADeadLetterSaysWhatHappened(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, func(w *worker.Worker) error {
		for name, yaml := range map[string]string{
			"permanent": `{name: permanent, namespace_name: letters, version: 1.0.0, steps: [{name: charge, handler: {callable: permanent},
				retry: {retryable: true, max_attempts: 3, backoff: none}}]}`,
			"exhausted": `{name: exhausted, namespace_name: letters, version: 1.0.0, steps: [{name: charge, handler: {callable: exhausted},
				retry: {retryable: true, max_attempts: 2, backoff: none}}]}`,
			"second": `{name: second, namespace_name: letters, version: 1.0.0, steps: [{name: first, handler: {callable: fine}},
				{name: charge, dependencies: [first], handler: {callable: permanent}, retry: {retryable: true, max_attempts: 3, backoff: none}}]}`,
		} {
			template, _, err := template.Parse(name+".yaml", []byte(yaml))
			if err != nil {
				return err
			}
			if err := w.RegisterTemplate(template); err != nil {
				return err
			}
		}
		return errors.Join(
			w.Register("fine", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return 1, nil })),
			w.Register("permanent", worker.HandlerFunc(func(*worker.StepContext) (any, error) {
				return nil, worker.Permanent(errors.New("the card was declined"))
			})),
			w.Register("exhausted", worker.HandlerFunc(func(*worker.StepContext) (any, error) {
				return nil, errors.New("no answer")
			})))
	}, func(c *orchestration.Config, _ *worker.Config) { c.DeadLetters = true })
	for name, want := range map[string]struct {
		detail, message string
		attempts        int
		state           workflow.TaskState
	}{
		"permanent": {workflow.ReasonPermanent, "the card was declined", 1, workflow.TaskStepsInProcess},
		"exhausted": {workflow.ReasonExhausted, "no answer", 2, workflow.TaskStepsInProcess},
		"second":    {workflow.ReasonPermanent, "the card was declined", 1, workflow.TaskStepsInProcess},
	} {
		task := e.Submit("letters", name, `{}`)
		var letter store.DeadLetter
		pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
			var err error
			letter, err = e.Store.DeadLetterOfTask(t.Context(), task)
			return err == nil, name
		})
		var snapshot struct {
			State    string `json:"current_state"`
			Step     string `json:"step"`
			Attempts int    `json:"attempts"`
			Error    struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		require.NoError(t, json.Unmarshal(letter.Snapshot, &snapshot))
		require.Equal(t, want.message, snapshot.Error.Message, "%s: %s", name, letter.Snapshot)
		require.Equal(t, want.attempts, snapshot.Attempts, name)
		require.Equal(t, "charge", snapshot.Step, name)
		require.Equal(t, want.detail, letter.Detail, name)
		require.Equal(t, want.state, letter.OriginalState, "%s: %v", name, letter.OriginalState)
		require.Equal(t, want.state.String(), snapshot.State, name)
	}
}
