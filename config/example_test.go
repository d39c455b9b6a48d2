package config_test

import (
	"errors"
	"fmt"

	"github.com/tasker-go/tasker/config"
)

// A daemon loads its part once and hands typed values on.
func ExampleLoad() {
	loaded, err := config.Load(config.Options{
		Context:     config.ContextWorker,
		Environment: "production",
		LookupEnv: func(name string) (string, bool) {
			if name == "DATABASE_URL" {
				return "postgresql://tasker:secret@db/tasker", true
			}
			return "", false
		},
	})
	if err != nil {
		var invalid *config.ValidationError
		if errors.As(err, &invalid) {
			for _, problem := range invalid.Problems {
				fmt.Println(problem)
			}
		}
		return
	}
	fmt.Println(loaded.Common.Database.URL)
	fmt.Println(loaded.Worker.MPSCChannels.HandlerDispatch.HandlerTimeout, loaded.Worker.Lease)
	fmt.Println(loaded.Worker.EventSystems.Worker.DeploymentMode)
	// Output:
	// postgresql://tasker:****@db/tasker
	// 1m0s 10s
	// Hybrid
}

func ExampleExplain() {
	text, err := config.Explain("worker.heartbeat_interval_ms")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(text)
	// Output:
	// worker.heartbeat_interval_ms
	//   How often leases are extended.
	//   type:     integer
	//   rule:     100–3600000
	//   default:  3000
	//   impact:   One statement per worker each time; at most a third of the lease.
	//   status:   active
}

func ExampleLoaded_Setting() {
	loaded, err := config.Load(config.Options{
		Environment: "test",
		LookupEnv:   func(string) (string, bool) { return "", false },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	setting, _ := loaded.Setting("common.backoff.max_backoff_seconds")
	fmt.Println(setting.Value, "from", setting.Origin)
	// Output: 10 from default of test
}
