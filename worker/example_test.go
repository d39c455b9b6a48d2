package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tasker-go/tasker/worker"
)

type order struct {
	ID     string `json:"id"`
	Amount int64  `json:"amount"` // in cents
}

type receipt struct {
	Number string `json:"number"`
}

var errDeclined = errors.New("the card was declined")

// charge is a typed handler: the order is decoded from the task's context, the receipt
// becomes the step's result.
func charge(ctx *worker.StepContext, o order) (receipt, error) {
	if o.Amount <= 0 {
		return receipt{}, worker.WithCode(worker.Permanent(fmt.Errorf("amount %d is not positive", o.Amount)), "BAD_AMOUNT")
	}
	// The same for every attempt, so that a repeated step charges once.
	number, err := pay(ctx, o, ctx.IdempotencyKey())
	switch {
	case errors.Is(err, errDeclined):
		return receipt{}, worker.Permanent(err)
	case err != nil:
		return receipt{}, worker.Retryable(err, 30*time.Second)
	}
	return receipt{Number: number}, nil
}

// pay stands for a call to another service; it watches its context.
func pay(ctx context.Context, _ order, key string) (string, error) {
	return "R-" + key, ctx.Err()
}

// notify uses the result of an earlier step and its own configuration.
func notify(ctx *worker.StepContext) (any, error) {
	r, err := worker.ResultOf[receipt](ctx, "charge")
	if err != nil {
		return nil, err
	}
	config, err := worker.ConfigAs[struct {
		Subject string `json:"subject"`
	}](ctx)
	if err != nil {
		return nil, worker.Permanent(err)
	}
	ctx.Progress(0.5, "writing the mail")
	ctx.Logger().Info("mail sent")
	return map[string]string{"subject": config.Subject + " " + r.Number}, nil
}

// A complete worker: configuration, handlers, templates, health and shutdown.
func Example() {
	w, err := worker.New(worker.Config{
		DatabaseURL:   os.Getenv("DATABASE_URL"),
		MaxConcurrent: 20,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	// Start also returns the errors of these calls.
	err = errors.Join(
		worker.Handle(w, "payments.charge", charge, worker.Strict()),
		w.Register("payments.notify", worker.HandlerFunc(notify)),
		w.RegisterMethods("payments.audit", map[string]worker.HandlerFunc{
			"call":   func(*worker.StepContext) (any, error) { return "recorded", nil },
			"verify": func(*worker.StepContext) (any, error) { return "verified", nil },
		}),
		w.LoadTemplates("templates"),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	http.HandleFunc("/health/ready", func(rw http.ResponseWriter, _ *http.Request) {
		if ready, reason := w.Ready(); !ready {
			http.Error(rw, reason, http.StatusServiceUnavailable)
		}
	})
	// The first signal drains: the worker waits for handlers and hands the rest back.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := w.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
