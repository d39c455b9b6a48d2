package corpus_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/execution"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// failNTimes fails as often as the step's initialization says.
func failNTimes(ctx *worker.StepContext) (any, error) {
	c, err := worker.ConfigAs[struct {
		FailCount int `json:"fail_count"`
	}](ctx)
	if err != nil {
		return nil, worker.Permanent(err)
	}
	if ctx.Attempt() <= c.FailCount {
		return nil, worker.Retryable(fmt.Errorf("attempt %d of %d that fail", ctx.Attempt(), c.FailCount), 0)
	}
	return map[string]int{"attempts_before_success": ctx.Attempt()}, nil
}

// Row 26: two failures, and the third attempt succeeds.
func TestRetryMechanics(t *testing.T) {
	t.Parallel()
	e, template := start(t, "retry_mechanics_test.yaml", handlers{"FailNTimesHandler": failNTimes}, nil)
	task := run(e, template, `{"test_id":"r26"}`)
	requireComplete(t, task)
	require.Len(t, task.Steps, 1)
	s := step(t, task, "fail_twice_then_succeed")
	require.Equal(t, 3, s.Attempts)
	require.JSONEq(t, `{"attempts_before_success":3}`, string(s.Result))
}

// Row 27: there are three attempts.
func TestRetryExhaustion(t *testing.T) {
	t.Parallel()
	e, template := start(t, "retry_exhaustion_test.yaml", handlers{"FailNTimesHandler": failNTimes}, nil)
	task := run(e, template, `{"test_id":"r27"}`)
	require.Equal(t, workflow.TaskError, task.State)
	s := step(t, task, "always_fail")
	require.Equal(t, workflow.StepError, s.State)
	require.Equal(t, 3, s.Attempts)
	require.Equal(t, workflow.ReasonExhausted, *s.Reason)
}

// misfits are handlers that succeed, that fail for good, and that fail.
func misfits() handlers {
	return handlers{
		"errors.success":   func(*worker.StepContext) (any, error) { return "done", nil },
		"errors.permanent": func(*worker.StepContext) (any, error) { return nil, worker.Permanent(errors.New("for good")) },
		"errors.retryable": func(*worker.StepContext) (any, error) { return nil, errors.New("for now") },
	}
}

// Rows 28 to 30 and 32, whose templates the corpus lacks: the first attempt always runs,
// a permanent failure is not retried, and a retryable one is, after a delay.
func TestOutcomesOfErrors(t *testing.T) {
	t.Parallel()
	template := own(t, "errors.yaml")
	e := engine(t, misfits().register(template), template)
	task := run(e, template, `{"run":1}`)
	require.Equal(t, workflow.TaskError, task.State)

	success := step(t, task, "success_only")
	require.Equal(t, workflow.StepComplete, success.State)
	require.Equal(t, 1, success.Attempts)

	permanent := step(t, task, "permanent_error_only")
	require.Equal(t, workflow.StepError, permanent.State)
	require.Equal(t, 1, permanent.Attempts)
	require.False(t, decode[failure](t, permanent.Error).Retry)

	retryable := step(t, task, "retryable_error_only")
	require.Equal(t, workflow.StepError, retryable.State)
	require.Equal(t, 2, retryable.Attempts)
	require.True(t, decode[failure](t, retryable.Error).Retry)
	waited := e.DB.QueryInt(t, `select extract(milliseconds from max(claimed_at) - min(reported_at))::int
		from tasker.step_attempts where task_uuid = $1 and step_no = $2`, task.UUID, retryable.No)
	require.GreaterOrEqual(t, waited, 100, "milliseconds between the attempts")
}

// Row 31: a failure blocks no independent step. In the other engine the task stays
// blocked_by_failures; here a template requests that with on_failure: block.
func TestFailuresHoldNobodyUp(t *testing.T) {
	t.Parallel()
	template := own(t, "errors.yaml")
	template.OnFailure = workflow.OnFailureBlock
	e := engine(t, misfits().register(template), template)
	id := e.SubmitVersion(template.Namespace, template.Name, template.Version, `{"run":2}`)
	require.Eventually(t, func() bool { return e.Read(id).State == workflow.TaskBlockedByFailures }, 30*time.Second, 10*time.Millisecond)
	task := e.Read(id)
	counts := task.Counts()
	require.Equal(t, 1, counts.Complete)
	require.Equal(t, 2, counts.Failed)
	require.Equal(t, "blocked_by_failures", execution.Derive(counts).Status)
}

// Rows 33 to 37, with a handler that always fails retryably: the number of executions,
// the first one in any case, and a step that is not retryable has only that one.
func TestBoundariesOfAttempts(t *testing.T) {
	t.Parallel()
	for file, attempts := range map[string]int{
		"boundary_max_attempts_zero.yaml":     1,
		"boundary_max_attempts_one.yaml":      1,
		"boundary_max_attempts_three.yaml":    3,
		"boundary_non_retryable_first.yaml":   1,
		"boundary_non_retryable_retries.yaml": 1,
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			h := handlers{"NoOpHandler": func(ctx *worker.StepContext) (any, error) {
				if works, err := worker.FieldOr(ctx, "works_on", 0); err != nil || ctx.Attempt() == works {
					return nil, err
				}
				return nil, errors.New("for now")
			}}
			e, template := start(t, file, h, quickly)
			task := run(e, template, `{"run":1}`)
			require.Equal(t, workflow.TaskError, task.State)
			s := step(t, task, "boundary_test_step")
			require.Equal(t, workflow.StepError, s.State)
			require.Equal(t, attempts, s.Attempts)
			require.Equal(t, attempts, e.DB.QueryInt(t, `select count(*) from tasker.step_attempts`))
			// The last of them is as good as the first.
			saved := run(e, template, `{"works_on":%d}`, attempts)
			requireComplete(t, saved)
			require.Equal(t, attempts, saved.Steps[0].Attempts)
		})
	}
}
