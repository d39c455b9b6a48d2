// Command worker is the worker daemon with the handlers of the chaos suite.
package main

import (
	"os"

	"github.com/tasker-go/tasker/chaos/internal/workload"
	"github.com/tasker-go/tasker/daemon"
)

func main() {
	os.Exit(daemon.Main(daemon.WorkerProgram("worker", workload.Register), os.Args[1:], os.Stderr))
}
