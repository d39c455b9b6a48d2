package poller_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/poller"
)

// A poll that fails is repeated after a growing delay; the first that succeeds ends that.
func Example() {
	polled := make(chan string, 3)
	polls := 0
	p := poller.New(poller.Config{
		SystemID:        "example",
		Interval:        time.Millisecond,
		RelaxedInterval: time.Millisecond,
		Backoff:         deploymode.Backoff{Base: time.Millisecond, Max: time.Second, Multiplier: 2},
		Timeout:         time.Minute,
	}, func(context.Context) (found int, err error) {
		if polls++; polls > 3 {
			return 0, nil
		}
		if polls == 1 {
			polled <- "failed"
			return 0, fmt.Errorf("the database restarts")
		}
		polled <- "found a step"
		return 1, nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		fmt.Println(<-polled)
	}
	fmt.Println(p.Stop(ctx))
	// Output:
	// failed
	// found a step
	// found a step
	// <nil>
}
