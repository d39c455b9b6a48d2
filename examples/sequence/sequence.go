// Package sequence has the handlers of the linear example.
package sequence

import (
	"fmt"

	"github.com/tasker-go/tasker/worker"
)

// Input is the context of the task.
type Input struct {
	EvenNumber int64 `json:"even_number"`
}

// Register gives a worker both handlers.
func Register(w *worker.Worker) error {
	if err := worker.Handle(w, "sequence.square_input", SquareInput); err != nil {
		return err
	}
	return w.Register("sequence.square_parent", worker.HandlerFunc(SquareParent))
}

// SquareInput squares the number of the task. An odd one is a permanent failure: a retry
// would not make it even.
func SquareInput(_ *worker.StepContext, in Input) (int64, error) {
	if in.EvenNumber%2 != 0 {
		return 0, worker.WithCode(worker.Permanent(fmt.Errorf("invalid number %d: want an even one", in.EvenNumber)), "VALIDATION_ERROR")
	}
	return in.EvenNumber * in.EvenNumber, nil
}

// SquareParent squares the result of the one step before it.
func SquareParent(ctx *worker.StepContext) (any, error) {
	for name := range ctx.DependencyResults() {
		n, err := worker.ResultOf[int64](ctx, name)
		if err != nil {
			return nil, worker.Permanent(err)
		}
		return n * n, nil
	}
	return nil, worker.Permanent(fmt.Errorf("step %s has no parent", ctx.StepName()))
}
