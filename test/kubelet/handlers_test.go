//go:build kubelet

package kubelet_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/examples"
	"github.com/tasker-go/tasker/examples/arithmetic"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow/template"
)

// executions is the variable with the file in which handlers note what they begin; this
// program is then a worker.
const executions = "KUBELET_TEST_EXECUTIONS"

// Handlers that take time: one runs on, the other one yields after each slice.
const (
	longRun    = time.Second
	manySlices = 20
	oneSlice   = 200 * time.Millisecond
)

const slowTemplates = `
name: %[1]s
namespace_name: examples
version: 1.0.0
steps:
  - {name: only, handler: {callable: %[1]s}, retry: {max_attempts: 3, backoff: fixed, backoff_base_ms: 100}}
`

func runWorker() int {
	return daemon.Main(daemon.WorkerProgram("worker", func(w *worker.Worker) error {
		handlers := map[string]worker.HandlerFunc{
			"long": func(c *worker.StepContext) (any, error) {
				if err := note(c, 0); err != nil {
					return nil, err
				}
				return "run", lifecycle.Pause(c, longRun)
			},
			"sliced": func(c *worker.StepContext) (any, error) {
				at, err := worker.CheckpointAs[int](c)
				if err != nil {
					return nil, err
				}
				if err := note(c, at); err != nil {
					return nil, err
				}
				if err := lifecycle.Pause(c, oneSlice); err != nil {
					return nil, err
				}
				if at+1 < manySlices {
					return nil, worker.Yield(at+1, 1, nil)
				}
				return at + 1, nil
			},
		}
		templates, err := examples.Templates()
		if err != nil {
			return err
		}
		for _, t := range templates {
			if t.Name != "diamond" {
				continue
			}
			if err := w.RegisterTemplate(t); err != nil {
				return err
			}
		}
		for name, handler := range map[string]worker.HandlerFunc{"square_input": worker.Typed(arithmetic.SquareInput), "square_product": arithmetic.SquareProduct} {
			if err := w.Register("arithmetic."+name, worker.HandlerFunc(func(c *worker.StepContext) (any, error) {
				if err := note(c, 0); err != nil {
					return nil, err
				}
				return handler(c)
			})); err != nil {
				return err
			}
		}
		for name, handler := range handlers {
			parsed, _, err := template.Parse(name+".yaml", []byte(fmt.Sprintf(slowTemplates, name)))
			if err == nil {
				err = w.RegisterTemplate(parsed)
			}
			if err == nil {
				err = w.Register(name, handler)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}), os.Args[1:], os.Stderr)
}

// note appends a line to the file: which pod has begun what.
func note(c *worker.StepContext, slice int) error {
	f, err := os.OpenFile(os.Getenv(executions), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %s %d %d %d %s\n", c.TaskName(), c.TaskUUID(), c.Token(), c.Attempt(), slice, os.Getenv("HOSTNAME"))
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// begun is a line of the file.
type begun struct {
	name, task     string
	token          int64 // of the claim
	attempt, slice int
	pod            string
}

// slowWorker is a folder of programs whose worker is this one, and a manifest that has it
// note what it begins.
func slowWorker(t *testing.T, manifests string) (bin, planted string, noted func() []begun) {
	t.Helper()
	bin = t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	for name, program := range map[string]string{"worker": self, "orchestrator": binDir + "/orchestrator", "tasker-ctl": binDir + "/tasker-ctl"} {
		require.NoError(t, os.Symlink(program, filepath.Join(bin, name)))
	}
	file := filepath.Join(t.TempDir(), "executions")
	namespaces := `            - {name: WORKER_NAMESPACES, value: "default,examples"}`
	require.Contains(t, manifests, namespaces)
	planted = strings.ReplaceAll(manifests, namespaces, namespaces+fmt.Sprintf("\n            - {name: %s, value: %q}", executions, file))
	return bin, planted, func() (list []begun) {
		lines, err := os.ReadFile(file)      // #nosec G304 -- of this test
		if !errors.Is(err, os.ErrNotExist) { // nothing has begun
			require.NoError(t, err)
		}
		for line := range strings.Lines(string(lines)) {
			var b begun
			_, err := fmt.Sscan(line, &b.name, &b.task, &b.token, &b.attempt, &b.slice, &b.pod)
			require.NoError(t, err, line)
			list = append(list, b)
		}
		return list
	}
}
