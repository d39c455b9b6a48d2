package workertest_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/workertest"
	"github.com/tasker-go/tasker/workflow/template"
)

// tb stands for the *testing.T of a test.
type tb struct{}

func (tb) Helper()                           {}
func (tb) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

type order struct {
	Cents int `json:"cents"`
}

func charge(ctx *worker.StepContext, in order) (string, error) {
	customer, err := worker.ResultOf[string](ctx, "find_customer")
	switch {
	case err != nil:
		return "", err
	case in.Cents <= 0:
		return "", worker.WithCode(worker.Permanent(errors.New("nothing to charge")), "NOTHING")
	case ctx.Attempt() == 1:
		return "", worker.Retryable(errors.New("the provider is busy"), time.Minute)
	}
	return fmt.Sprintf("%s pays %d", customer, in.Cents), nil
}

func ExampleRun() {
	t, customer := tb{}, map[string]any{"find_customer": "ann"}
	busy := workertest.Run(t, worker.Typed(charge), workertest.Step{Input: order{Cents: 1200}, Results: customer})
	fmt.Println(busy.Failure.Retryable, busy.Failure.RetryAfter)
	paid := workertest.Run(t, worker.Typed(charge), workertest.Step{Input: order{Cents: 1200}, Results: customer, Attempt: 2})
	fmt.Println(paid)
	refused := workertest.Run(t, worker.Typed(charge), workertest.Step{Input: order{}, Results: customer})
	fmt.Println(refused.Failure.Code, refused.Failure.Final)
	// Output:
	// true 1m0s
	// "ann pays 1200"
	// NOTHING true
}

func ExamplePlay() {
	register := func(w *worker.Worker) error {
		source, _, err := template.Parse("reminder.yaml", []byte(`
name: reminder
namespace_name: shop
version: 1.0.0
steps:
  - {name: remind, handler: {callable: shop.remind}, retry: {max_attempts: 3, backoff: exponential, backoff_base_ms: 1000}}
  - {name: patience, type: sleep, depends_on: [remind], wait: {for: 30d}}
  - {name: paid, type: wait_for_event, depends_on: [patience], wait: {event: payment, key: $.context.order, timeout: 2d}}
`))
		return errors.Join(err, w.RegisterTemplate(source), worker.Handle(w, "shop.remind", func(ctx *worker.StepContext, _ map[string]string) (string, error) {
			if ctx.Attempt() == 1 {
				return "", errors.New("the mail server is busy")
			}
			return "sent", nil
		}))
	}
	o := workertest.Play(tb{}, register, workertest.Task{Context: map[string]string{"order": "o-1"},
		Events: []workertest.Event{{Name: "payment", Key: "o-1", Payload: 1200, After: 31 * 24 * time.Hour}}})
	fmt.Println(o.State, o.Took)
	for _, a := range o.Attempts {
		fmt.Println(a)
	}
	// Output:
	// complete 744h0m0s
	// remind#1 failed after 0s
	// remind#2 success after 1s
	// patience#1 success after 720h0m1s
	// paid#1 success after 744h0m0s
}
