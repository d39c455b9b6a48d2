// Package trip has the handlers of the saga example: bookings, and their compensations.
package trip

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tasker-go/tasker/worker"
)

// Request is the context of the task.
type Request struct {
	Traveller string `json:"traveller"`
	FailsAt   string `json:"fails_at"` // the step that fails; for trying compensation
}

// Booking is the result of a booking.
type Booking struct {
	What      string `json:"what"`
	Reference string `json:"reference"`
}

// Cancelled is the result of a compensation.
type Cancelled struct {
	Reference string `json:"reference"`
}

// Register gives a worker the three handlers.
func Register(w *worker.Worker) error {
	return errors.Join(
		worker.Handle(w, "trip.book", Book),
		worker.Handle(w, "trip.pay", Pay),
		worker.Handle(w, "trip.cancel", Cancel),
	)
}

// Book books something. The reference is derived from the idempotency key, so a
// repetition books nothing twice.
func Book(ctx *worker.StepContext, r Request) (Booking, error) {
	if r.FailsAt == ctx.StepName() {
		return Booking{}, worker.Permanent(fmt.Errorf("%s: fully booked", ctx.StepName()))
	}
	what, _ := ctx.Config()["what"].(string)
	return Booking{What: what, Reference: what + "-" + ctx.IdempotencyKey()}, nil
}

// Pay pays for everything.
func Pay(ctx *worker.StepContext, r Request) (map[string]int, error) {
	if r.FailsAt == ctx.StepName() {
		return nil, worker.Permanent(errors.New("the card was declined"))
	}
	return map[string]int{"bookings": len(ctx.DependencyResults())}, nil
}

// Cancel compensates the step whose result it gets.
func Cancel(ctx *worker.StepContext, _ Request) (Cancelled, error) {
	for name, raw := range ctx.DependencyResults() {
		var b Booking
		if err := json.Unmarshal(raw, &b); err != nil {
			return Cancelled{}, worker.Permanent(fmt.Errorf("read the booking of %s: %w", name, err))
		}
		return Cancelled{Reference: b.Reference}, nil
	}
	return Cancelled{}, worker.Permanent(errors.New("no booking to cancel"))
}
