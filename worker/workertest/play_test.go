package workertest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/examples"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/workertest"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// registering registers templates given as YAML, and handlers by callable.
func registering(handlers map[string]worker.HandlerFunc, sources ...string) func(*worker.Worker) error {
	return func(w *worker.Worker) error {
		for _, source := range sources {
			t, _, err := template.Parse("test.yaml", []byte(source))
			if err == nil {
				err = w.RegisterTemplate(t)
			}
			if err != nil {
				return err
			}
		}
		for name, h := range handlers {
			if err := w.Register(name, h); err != nil {
				return err
			}
		}
		return nil
	}
}

func attempts(o *workertest.Outcome) (list []string) {
	for _, a := range o.Attempts {
		list = append(list, a.String())
	}
	return list
}

func TestRetriesAndSleepsTakeNoTime(t *testing.T) {
	t.Parallel()
	register := registering(map[string]worker.HandlerFunc{"flaky": func(ctx *worker.StepContext) (any, error) {
		if ctx.Attempt() < 3 {
			return nil, errors.New("not yet")
		}
		if !ctx.HasCheckpoint() {
			return nil, worker.Yield(1, 1, nil)
		}
		return "done", nil
	}, "after": func(ctx *worker.StepContext) (any, error) {
		return worker.ResultOf[string](ctx, "flaky") // an ancestor, not a parent
	}}, `
name: slow
namespace_name: tests
version: 1.0.0
steps:
  - {name: flaky, handler: {callable: flaky}, retry: {max_attempts: 3, backoff: exponential, backoff_base_ms: 1000}}
  - {name: rest, type: sleep, depends_on: [flaky], wait: {for: 30d}}
  - {name: after, depends_on: [rest], handler: {callable: after}}
`)
	o := workertest.Play(t, register, workertest.Task{StartIn: time.Minute})
	require.Equal(t, workflow.TaskComplete, o.State)
	require.Equal(t, 30*24*time.Hour+time.Minute+3*time.Second, o.Took)
	require.Equal(t, []string{"flaky#1 failed after 1m0s", "flaky#2 failed after 1m1s", "flaky#3 success after 1m3s",
		"rest#1 success after 720h1m3s", "after#1 success after 720h1m3s"}, attempts(&o))
	require.Equal(t, 2, o.Attempts[2].Executions)
	require.Equal(t, `"done"`, o.Results()["after"])
	require.Equal(t, `{"until":"2030-01-31T00:01:03+00:00"}`, o.Results()["rest"])
}

const waitsYAML = `
name: waits
namespace_name: tests
version: 1.0.0
steps:
  - {name: paid, type: wait_for_event, wait: {event: payment, key: $.context.order, timeout: 2d}, retry: {retryable: false}}
  - {name: approve, type: approval, depends_on: [paid], wait: {timeout: 48h, on_timeout: continue}}
`

func TestWaits(t *testing.T) {
	t.Parallel()
	register, task := registering(nil, waitsYAML), workertest.Task{Context: map[string]string{"order": "o-1"}}
	waiting := workertest.Play(t, register, task)
	require.Equal(t, workflow.TaskError, waiting.State)
	paid, _ := waiting.Step("paid")
	require.Equal(t, "WaitTimeout", paid.Failure.Type)
	require.Equal(t, 48*time.Hour, waiting.Took)

	task.Events = []workertest.Event{{Name: "payment", Key: "o-2"}, {Name: "payment", Key: "o-1", Payload: 7, After: time.Hour}}
	unapproved := workertest.Play(t, register, task)
	require.Equal(t, workflow.TaskComplete, unapproved.State)
	require.Equal(t, 49*time.Hour, unapproved.Took)
	require.JSONEq(t, `{"event":"payment","key":"o-1","payload":7,"received_at":"2030-01-01T01:00:00Z"}`, unapproved.Results()["paid"])

	task.Verdicts = []workertest.Verdict{{Step: "approve", Comment: "no", After: time.Minute}}
	rejected := workertest.Play(t, register, task)
	require.Equal(t, workflow.TaskError, rejected.State)
	approve, _ := rejected.Step("approve")
	require.Equal(t, "rejected by workertest: no", approve.Failure.Message)
	require.True(t, approve.Failure.Final)

	endless := workertest.Play(t, registering(nil, "{name: w, namespace_name: n, version: 1.0.0, steps: [{name: ok, type: approval}]}"), workertest.Task{})
	require.Equal(t, []string{"ok"}, endless.Waiting)
	require.False(t, endless.State.Terminal())
}

func TestExamplesInMemory(t *testing.T) {
	t.Parallel()
	play := func(name, context string) workertest.Outcome {
		return workertest.Play(t, examples.Register, workertest.Task{Name: name, Context: json.RawMessage(context)})
	}
	diamond := play("diamond", `{"even_number":6}`)
	require.Equal(t, map[string]string{"start": "36", "branch_left": "1296", "branch_right": "1296", "end": "2821109907456"}, diamond.Results())
	approval := play("expense_approval", `{"amount":5000}`)
	require.Equal(t, workflow.TaskComplete, approval.State)
	require.Len(t, approval.Steps, 5)
	primes := play("count_primes", `{"below":100000}`)
	require.JSONEq(t, `{"numbers":100000,"primes":9592,"batches":5}`, primes.Results()["total"])
	none := play("count_primes", `{"below":0}`)
	require.JSONEq(t, `{"numbers":0,"primes":0,"batches":0}`, none.Results()["total"])
	trip := play("book_trip", `{"traveller":"a","fails_at":"pay"}`)
	require.Equal(t, workflow.TaskError, trip.State)
	var order []string
	for _, a := range trip.Attempts {
		order = append(order, a.Step)
	}
	require.Equal(t, []string{"cancel_car", "cancel_hotel", "cancel_flight"}, order[len(order)-3:])
	vacation := workertest.Play(t, examples.Register, workertest.Task{Name: "vacation", Context: map[string]string{"traveller": "a", "order": "o-1"},
		Events: []workertest.Event{{Name: "payment.received", Key: "o-1"}}, Verdicts: []workertest.Verdict{{Step: "approve", Approved: true, After: 24 * time.Hour}}})
	require.Equal(t, workflow.TaskComplete, vacation.State)
	require.Equal(t, 24*time.Hour+time.Second, vacation.Took)
	booked, _ := vacation.Step("trip")
	require.Equal(t, workflow.TaskComplete, booked.Task.State)
	require.Contains(t, string(booked.Result), `"status":"complete"`)
}

func TestWhatIsNotPlayedFailsTheTest(t *testing.T) {
	t.Parallel()
	head := "{name: %s, namespace_name: n, version: 1.0.0, "
	plain := fmt.Sprintf(head, "a") + "steps: [{name: s, handler: {callable: c}}]}"
	inTx := map[string]worker.HandlerFunc{"c": worker.InTx(func(*worker.StepContext, worker.Tx) (any, error) { return nil, nil })}
	for want, c := range map[string]struct {
		register func(*worker.Worker) error
		task     workertest.Task
	}{
		"without PostgreSQL":         {registering(inTx, plain), workertest.Task{}},
		"0 registered templates fit": {registering(nil, plain), workertest.Task{Name: "b"}},
		`invalid step "s"`:           {registering(nil, plain), workertest.Task{Verdicts: []workertest.Verdict{{Step: "s"}}}},
		"auto_fail_on_timeout": {registering(nil, fmt.Sprintf(head, "a")+
			"lifecycle: {max_duration_minutes: 1, auto_fail_on_timeout: true}, steps: [{name: s, handler: {callable: c}}]}"), workertest.Task{}},
		"is not registered": {registering(nil, fmt.Sprintf(head, "a")+"steps: [{name: s, type: task, task: {name: b, version: 1.0.0}}]}"), workertest.Task{}},
		"which is not played": {registering(nil, fmt.Sprintf(head, "a")+
			"steps: [{name: s, handler: {callable: c}, publishes_events: [{name: e.e, key: k}]}, {name: w, type: wait_for_event, wait: {event: e.e, key: x}}]}"), workertest.Task{}},
		"events of steps that the engine runs": {registering(nil, fmt.Sprintf(head, "a")+
			"steps: [{name: s, type: sleep, wait: {for: 1s}, publishes_events: [{name: e.e}]}]}"), workertest.Task{}},
		"context": {registering(nil, plain), workertest.Task{Context: []int{1}}},
	} {
		var f failing
		require.Panics(t, func() { workertest.Play(panicking{&f}, c.register, c.task) }, want)
		require.Contains(t, f.message, want)
	}
}

// panicking ends the test as Fatalf of testing.T does.
type panicking struct{ *failing }

func (p panicking) Fatalf(format string, args ...any) {
	p.failing.Fatalf(format, args...)
	panic(p.message)
}
