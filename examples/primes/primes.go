// Package primes has the handlers of the batch example: splitting work into
// batches, doing one, and bringing the results together.
package primes

import (
	"errors"

	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/batch"
)

// Request is the context of the task.
type Request struct {
	Below int64 `json:"below"` // not included
}

// Counted is the result of one batch.
type Counted struct {
	From   int64 `json:"from"`
	To     int64 `json:"to"` // not included
	Primes int64 `json:"primes"`
}

// Total is the result of the join.
type Total struct {
	Numbers int64 `json:"numbers"`
	Primes  int64 `json:"primes"`
	Batches int   `json:"batches"`
}

// Register gives a worker the three handlers.
func Register(w *worker.Worker) error {
	return errors.Join(
		worker.Handle(w, "primes.split", Split),
		worker.Handle(w, "primes.count", Count),
		worker.Handle(w, "primes.total", Sum),
	)
}

// Split creates as many batches as its settings say; none below 1.
func Split(ctx *worker.StepContext, r Request) (batch.Outcome, error) {
	settings, err := worker.ConfigAs[struct {
		BatchSize  int64 `json:"batch_size"`
		MaxWorkers int   `json:"max_workers"`
	}](ctx)
	if err != nil {
		return batch.None(), worker.Permanent(err)
	}
	return batch.Create("count", batch.Split(r.Below, settings.BatchSize, settings.MaxWorkers), r.Below), nil
}

// Count counts the primes of one batch.
func Count(ctx *worker.StepContext, _ Request) (Counted, error) {
	if b, _ := ctx.Batch(); b.NoOp {
		return Counted{}, nil
	}
	from, to, err := worker.RangeOf(ctx)
	if err != nil {
		return Counted{}, worker.Permanent(err)
	}
	c := Counted{From: from, To: to}
	for n := from; n < to; n++ {
		if n%1000 == 0 && ctx.Err() != nil {
			return c, ctx.Err() // called off, or timed out
		}
		if prime(n) {
			c.Primes++
		}
	}
	return c, nil
}

func prime(n int64) bool {
	if n < 2 {
		return false
	}
	for d := int64(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}

// Sum adds up the counts of the batches.
func Sum(ctx *worker.StepContext, _ Request) (Total, error) {
	results, _, err := batch.Results[Counted](ctx, "count")
	if err != nil {
		return Total{}, err
	}
	t := Total{Batches: len(results)}
	for _, r := range results {
		t.Numbers, t.Primes = t.Numbers+r.Value.To-r.Value.From, t.Primes+r.Value.Primes
	}
	return t, nil
}
