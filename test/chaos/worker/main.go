// Command worker is the worker daemon with the handlers of the chaos suite.
package main

import (
	"errors"
	"os"

	"github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/internal/operators"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
	"github.com/tasker-go/tasker/worker"
)

func main() {
	register := func(w *worker.Worker) error { return errors.Join(workload.Register(w), operators.Register(w)) }
	os.Exit(daemon.Main(daemon.WorkerProgram("worker", register), os.Args[1:], os.Stderr))
}
