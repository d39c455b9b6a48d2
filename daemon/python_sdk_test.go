package daemon

import (
	"bytes"
	"context"
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
	run := exec.CommandContext(context.WithoutCancel(p.ctx), interpreter, "testdata/remote_worker.py", "http://"+p.worker.Addr().String()) // #nosec G204 -- our own
	run.Env = append(os.Environ(), path, "PYTHONDONTWRITEBYTECODE=1")
	run.Stdout, run.Stderr = &out, &out
	require.NoError(t, run.Start())
	t.Cleanup(func() { _ = run.Process.Kill() }) // unless the test has ended it
	return run, &out
}

// needsPython skips a test where there is no Python; CI has to have it.
func needsPython(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("there is no python3")
	}
}

// results waits for a task, and returns what its steps returned by their names.
func (p *pair) results(t *testing.T, task string) map[string]string {
	t.Helper()
	p.ended(t, task, "complete")
	c := client.New(client.Config{BaseURL: p.rest})
	steps, err := c.Steps(p.ctx, task)
	require.NoError(t, err)
	results := make(map[string]string, len(steps))
	for i := range steps {
		step, err := c.Step(p.ctx, task, steps[i].StepUUID)
		require.NoError(t, err)
		var stored struct{ Result json.RawMessage }
		require.NoError(t, json.Unmarshal(step.Results, &stored))
		results[step.Name] = string(stored.Result)
	}
	return results
}

const (
	pythonApproval = `{name: py_approval, namespace_name: none, version: 1.0.0, steps: [
  {name: validate_request, handler: {callable: py_validate}, retry: {retryable: false, max_attempts: 1}},
  {name: routing_decision, type: decision, dependencies: [validate_request], handler: {callable: py_route}},
  {name: auto_approve, dependencies: [routing_decision], handler: {callable: py_approve}},
  {name: manager_approval, dependencies: [routing_decision], handler: {callable: py_approve}},
  {name: finance_review, dependencies: [routing_decision], handler: {callable: py_approve}},
  {name: finalize_approval, type: deferred_convergence, dependencies: [auto_approve, manager_approval, finance_review], handler: {callable: py_finalize}}]}`
	pythonBatches = `{name: py_batches, namespace_name: none, version: 1.0.0, steps: [
  {name: analyze_dataset, type: batchable, handler: {callable: py_analyze, initialization: {worker_template_name: process_batch}},
   batch_config: {batch_size: 1000, parallelism: 10, cursor_field: id, worker_template: process_batch, failure_strategy: fail_fast}},
  {name: process_batch, type: batch_worker, dependencies: [analyze_dataset], handler: {callable: py_process}},
  {name: aggregate_results, type: deferred_convergence, dependencies: [process_batch], handler: {callable: py_aggregate}}]}`
)

// TestPythonDecisionsAndBatches: the steps that outcomes of Python handlers create.
func TestPythonDecisionsAndBatches(t *testing.T) {
	t.Parallel()
	needsPython(t)
	p := remotePair(t)
	c := client.New(client.Config{BaseURL: p.rest})
	for _, source := range []string{pythonApproval, pythonBatches} {
		_, err := c.RegisterTemplate(p.ctx, client.TemplateSource{Source: source, Reason: "test", Actor: "test"})
		require.NoError(t, err)
	}
	process, out := p.python(t)
	t.Cleanup(func() { // after the parallel tests below
		require.NoError(t, process.Process.Signal(syscall.SIGTERM))
		require.NoError(t, process.Wait(), "%s", out)
	})
	for _, row := range []struct {
		name, context string
		steps         int
		last, result  string
	}{
		{"py_approval", `{"amount":500}`, 4, "finalize_approval", `{"approvals":["auto_approve"]}`},
		{"py_approval", `{"amount":1000}`, 4, "finalize_approval", `{"approvals":["manager_approval"]}`},
		{"py_approval", `{"amount":7500}`, 5, "finalize_approval", `{"approvals":["finance_review","manager_approval"]}`},
		{"py_batches", `{"dataset_size":5000}`, 7, "aggregate_results", `{"total":5000,"batches":5}`},
		{"py_batches", `{"dataset_size":20500}`, 12, "aggregate_results", `{"total":20500,"batches":10}`},
		{"py_batches", `{"dataset_size":0}`, 3, "aggregate_results", `{"total":0,"batches":1}`},
	} {
		t.Run(row.name+row.context, func(t *testing.T) {
			t.Parallel()
			task, err := c.CreateTask(p.ctx, client.TaskRequest{Name: row.name, Namespace: "none", Version: "1.0.0", Context: json.RawMessage(row.context),
				Initiator: "test", SourceSystem: "test", Reason: "test"})
			require.NoError(t, err)
			results := p.results(t, task.TaskUUID)
			require.Len(t, results, row.steps)
			require.JSONEq(t, row.result, results[row.last])
		})
	}
}

// TestPythonHandlers runs workflows whose handlers are in Python, in processes that are
// killed and stopped.
func TestPythonHandlers(t *testing.T) {
	t.Parallel()
	needsPython(t)
	p := remotePair(t)
	frail := p.workflow("py_frail", "py_dies")
	dead, _ := p.python(t)
	require.Error(t, dead.Wait(), "it kills itself after a checkpoint")

	alive, out := p.python(t)
	require.JSONEq(t, `{"resumed_from":50,"sum":7,"attempt":2}`, p.results(t, frail)["py_dies_step"])
	linear := p.results(t, p.workflow("py_linear", "py_square", "py_async", "py_object"))
	require.JSONEq(t, `{"value":7}`, linear["py_square_step"])
	require.JSONEq(t, `{"value":49,"of":"py_async"}`, linear["py_async_step"])
	require.JSONEq(t, `{"value":56,"attempt":1}`, linear["py_object_step"])
	require.JSONEq(t, `{"cursor":3,"attempt":1}`, p.results(t, p.workflow("py_long", "py_yields"))["py_yields_step"])

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

// TestPythonWithoutADaemon runs the tests of the package itself.
func TestPythonWithoutADaemon(t *testing.T) {
	t.Parallel()
	needsPython(t)
	run := exec.CommandContext(t.Context(), "python3", "-m", "unittest", "discover", "-s", "../sdk/python/tests")
	run.Env = append(os.Environ(), "PYTHONPATH=../sdk/python/src", "PYTHONDONTWRITEBYTECODE=1")
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "OK")
}
