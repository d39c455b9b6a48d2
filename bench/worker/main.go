// Command worker is the worker daemon that is measured: the shipped program
// with the handlers of the examples, one that tells when it began, and those that
// read a file in batches.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/tasker-go/tasker/bench/internal/load"
	"github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/examples"
	"github.com/tasker-go/tasker/worker"
)

func main() {
	os.Exit(daemon.Main(daemon.WorkerProgram("worker", register), os.Args[1:], os.Stderr))
}

func register(w *worker.Worker) error {
	if err := examples.Register(w); err != nil {
		return err
	}
	err := w.Register(load.StampHandler, worker.HandlerFunc(func(*worker.StepContext) (any, error) {
		return time.Now().UnixMicro(), nil
	}))
	if err != nil {
		return err
	}
	if err := registerRows(w); err != nil {
		return err
	}
	templates, err := load.Templates(load.Namespace)
	if err != nil {
		return err
	}
	for _, t := range templates {
		if err := w.RegisterTemplate(t); err != nil {
			return fmt.Errorf("register template %s: %w", t.Name, err)
		}
	}
	return nil
}
