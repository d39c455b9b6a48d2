package config

import (
	"testing"

	"github.com/tasker-go/tasker/internal/perfguard"
)

func BenchmarkConfig(b *testing.B)  { perfguard.Benchmark(b, cases()) }
func TestConfigAllocs(t *testing.T) { perfguard.Allocations(t, cases()) }

// cases are what a daemon does once and the command line often, but for the embedded documents,
// which a process decodes once; the budgets keep them from growing with each new key.
func cases() []perfguard.Case {
	load := func(name string, allocs float64, context Context) perfguard.Case {
		return perfguard.Case{Name: "load/" + name, Allocs: allocs, Prepare: func(testing.TB) func() error {
			lookup := func(name string) (string, bool) {
				if name == "DATABASE_URL" {
					return "postgresql://tasker@localhost/tasker", true
				}
				return "", false
			}
			return func() error {
				_, err := Load(Options{Context: context, Environment: "test", LookupEnv: lookup})
				return err
			}
		}}
	}
	explain := func(name string, allocs float64, path string) perfguard.Case {
		return perfguard.Case{Name: "explain/" + name, Allocs: allocs, Prepare: func(testing.TB) func() error {
			return func() error {
				_, err := Explain(path)
				return err
			}
		}}
	}
	return []perfguard.Case{
		load("worker", 3_000, ContextWorker),
		load("orchestration", 3_600, ContextOrchestration),
		load("complete", 5_000, ContextComplete),
		explain("key", 50, "worker.heartbeat_interval_ms"),
		explain("table", 600, "worker"),
	}
}
