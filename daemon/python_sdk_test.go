package daemon

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
)

// python starts a worker of testdata/remote_worker.py.
func (p *pair) python(t *testing.T) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	interpreter, path := "python3", "PYTHONPATH=../sdk/python/src"
	if installed := os.Getenv("TASKER_TEST_PYTHON"); installed != "" { // where the wheel is, see scripts/python-sdk
		interpreter, path = installed, "PYTHONPATH="
	}
	run := exec.CommandContext(p.ctx, interpreter, "testdata/remote_worker.py", "http://"+p.worker.Addr().String()) // #nosec G204 -- our own
	run.Env = append(os.Environ(), path, "PYTHONDONTWRITEBYTECODE=1")
	run.Stdout, run.Stderr = &out, &out
	require.NoError(t, run.Start())
	return run, &out
}

// results waits for a task, and returns what its steps returned.
func (p *pair) results(t *testing.T, task string) []string {
	t.Helper()
	p.ended(t, task, "complete")
	c := client.New(client.Config{BaseURL: p.rest})
	steps, err := c.Steps(p.ctx, task)
	require.NoError(t, err)
	list := make([]string, len(steps))
	for i := range steps {
		step, err := c.Step(p.ctx, task, steps[i].StepUUID)
		require.NoError(t, err)
		var stored struct{ Result json.RawMessage }
		require.NoError(t, json.Unmarshal(step.Results, &stored))
		list[i] = string(stored.Result)
	}
	return list
}

// TestPythonHandlers runs workflows whose handlers are in Python, in processes that are
// killed and stopped.
func TestPythonHandlers(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("there is no python3")
	}
	p := remotePair(t)
	frail := p.workflow("py_frail", "py_dies")
	dead, _ := p.python(t)
	require.Error(t, dead.Wait(), "it kills itself after a checkpoint")

	alive, out := p.python(t)
	require.JSONEq(t, `{"resumed_from":50,"sum":7,"attempt":2}`, p.results(t, frail)[0])
	linear := p.results(t, p.workflow("py_linear", "py_square", "py_async", "py_object"))
	require.JSONEq(t, `{"value":7}`, linear[0])
	require.JSONEq(t, `{"value":49,"of":"py_async"}`, linear[1])
	require.JSONEq(t, `{"value":56,"attempt":1}`, linear[2])
	require.JSONEq(t, `{"cursor":3,"attempt":1}`, p.results(t, p.workflow("py_long", "py_yields"))[0])

	failed, err := json.Marshal(p.ended(t, p.workflow("py_failing", "py_fails"), "error"))
	require.NoError(t, err)
	require.Contains(t, string(failed), "no more stock")
	require.Contains(t, string(failed), `"S1"`)
	failed, err = json.Marshal(p.ended(t, p.workflow("py_set", "py_unencodable"), "error"))
	require.NoError(t, err)
	require.Contains(t, string(failed), "ResultNotEncodable")

	require.NoError(t, alive.Process.Signal(syscall.SIGTERM))
	require.NoError(t, alive.Wait(), "%s", out)
	require.Contains(t, out.String(), "stopped")
}
