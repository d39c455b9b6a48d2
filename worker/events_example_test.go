package worker_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/worker/events"
)

// A subscriber receives the events whose names match one of its patterns.
func Example_events() {
	bus, err := events.NewBus(events.Config{Buffer: 100, Timeout: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = bus.Subscribe(events.Subscriber{Name: "ledger", Patterns: []string{"payment.*"},
		Handle: func(_ context.Context, e events.Event) error {
			fmt.Println(e.Name, string(e.Payload))
			return nil
		}})
	if err != nil {
		fmt.Println(err)
		return
	}
	bus.Start()
	bus.Publish(events.Event{Name: "payment.charged", Payload: []byte(`{"cents": 1200}`)})
	bus.Publish(events.Event{Name: "order.booked"})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(bus.Stop(ctx)) // after what waits was delivered
	// Output:
	// payment.charged {"cents": 1200}
	// <nil>
}
