// Command lanes is a worker that takes jobs of three lanes; README.md explains it to users of
// a queue with a list per priority.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tasker-go/tasker/worker"
)

// Job is the payload.
type Job struct {
	To    string `json:"to"`
	Fails bool   `json:"fails"`
}

// email shows the order in which jobs are taken.
func email(ctx *worker.StepContext, j Job) (string, error) {
	if j.Fails {
		return "", errors.New("no such address: " + j.To)
	}
	fmt.Fprintf(os.Stdout, "priority %d: %s\n", ctx.Priority(), j.To)
	return "sent", nil
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	w, err := worker.New(worker.Config{DatabaseURL: os.Getenv("DATABASE_URL"), Namespaces: []string{"jobs"}, MaxConcurrent: 1})
	if err != nil {
		return err
	}
	if err := worker.Handle(w, "EMAIL", email); err != nil {
		return err
	}
	return w.Run(ctx) // until ctx ends, then in order
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
