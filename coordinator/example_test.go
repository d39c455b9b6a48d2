package coordinator_test

import (
	"context"
	"fmt"
	"time"

	settings "github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
)

// A polling system that is also woken from inside its process.
func Example() {
	looked := make(chan coordinator.Reason, 10)
	defaults, err := settings.Defaults()
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg := coordinator.Configure(defaults.Orchestration.EventSystems.Orchestration)
	cfg.Mode, cfg.Poller.Interval = deploymode.PollingOnly, time.Hour
	system := coordinator.New(cfg, lookFunc(func(_ context.Context, w coordinator.Wake) (coordinator.Outcome, error) {
		looked <- w.Reason
		return coordinator.Outcome{NextDue: coordinator.NoDue}, nil
	}))

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := system.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-looked) // work from before the start
	system.Wake(coordinator.ReasonSignal, "tasker_orchestration")
	fmt.Println(<-looked)
	ready, _ := system.Ready()
	fmt.Println(ready)
	fmt.Println(system.Stop(ctx))
	// Output:
	// catch_up
	// signal
	// true
	// <nil>
}
