package worker_test

import (
	"context"
	"fmt"

	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/events"
)

// A subscriber receives the fast events whose names match one of its patterns, from the
// workers of the namespace.
func ExampleWorker_Subscribe() {
	w, err := worker.New(worker.Config{DatabaseURL: "postgres://localhost/tasker", Namespaces: []string{"shop"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(w.Subscribe(events.Subscriber{Name: "ledger", Patterns: []string{"payment.*"},
		Handle: func(_ context.Context, e events.Event) error {
			fmt.Println(e.Name, string(e.Payload))
			return nil
		}}))
	// Output:
	// <nil>
}
