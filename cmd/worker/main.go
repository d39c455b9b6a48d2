// Command worker is the worker daemon with the handlers of the examples, and
// the model for a worker of your own: replace examples.Register by a function
// that registers your handlers and templates.
package main

import (
	"os"

	"github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/examples"
)

func main() {
	os.Exit(daemon.Main(daemon.WorkerProgram("worker", examples.Register), os.Args[1:], os.Stderr))
}
