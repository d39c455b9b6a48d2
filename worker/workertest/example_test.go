package workertest_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/workertest"
)

// tb stands for the *testing.T of a test.
type tb struct{}

func (tb) Helper()                           {}
func (tb) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }

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
