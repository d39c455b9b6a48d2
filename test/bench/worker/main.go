// Command worker is the measured worker daemon: the shipped program with the handlers of
// the examples, some that return when they began, one that waits, and those that read a
// file in batches.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/examples"
	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/worker"
)

func main() {
	os.Exit(daemon.Main(daemon.WorkerProgram("worker", register), os.Args[1:], os.Stderr))
}

func register(w *worker.Worker) error {
	if err := examples.Register(w); err != nil {
		return err
	}
	if err := registerStamps(w); err != nil {
		return err
	}
	err := w.Register(load.PauseHandler, worker.HandlerFunc(func(*worker.StepContext) (any, error) { return nil, load.Pause(load.PauseTime) }))
	if err != nil {
		return err
	}
	if err := w.Register(load.SleepHandler, worker.HandlerFunc(sleep)); err != nil {
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

func sleep(ctx *worker.StepContext) (any, error) {
	ms, err := worker.Field[int64](ctx, "ms")
	if err != nil {
		return nil, worker.Permanent(err)
	}
	return nil, load.Pause(time.Duration(ms) * time.Millisecond)
}

// registerStamps registers the handlers that return when they began: one, and as many
// others as the environment says.
func registerStamps(w *worker.Worker) error {
	names := []string{load.StampHandler}
	if text := os.Getenv(load.CallablesEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("read %s: %w", load.CallablesEnv, err)
		}
		for _, c := range load.Callables(n) {
			names = append(names, c.Name)
		}
	}
	for _, name := range names {
		err := w.Register(name, worker.HandlerFunc(func(*worker.StepContext) (any, error) { return time.Now().UnixMicro(), nil }))
		if err != nil {
			return err
		}
	}
	return nil
}
