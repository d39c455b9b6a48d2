// Command orchestrator is the orchestrator daemon.
package main

import (
	"os"

	"github.com/tasker-go/tasker/daemon"
)

func main() {
	os.Exit(daemon.Main(daemon.OrchestratorProgram(), os.Args[1:], os.Stderr))
}
