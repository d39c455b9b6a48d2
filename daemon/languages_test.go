package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/worker"
)

// language starts workers of the same handlers, whose callables begin with its prefix.
type language struct {
	prefix  string
	program string // in testdata, without its extension
	start   func(program, address string) *exec.Cmd
}

// inPython runs testdata/remote_worker.py from the sources, or with the interpreter that has
// the wheel installed (scripts/python-sdk).
func inPython(t *testing.T) language {
	t.Helper()
	needs.Tool(t, needs.Python)
	return language{"py", "remote_worker", func(program, address string) *exec.Cmd {
		interpreter, path := "python3", "PYTHONPATH=../sdk/python/src"
		if installed := os.Getenv("TASKER_TEST_PYTHON"); installed != "" {
			interpreter, path = installed, "PYTHONPATH="
		}
		run := exec.CommandContext(context.Background(), interpreter, "testdata/"+program+".py", address) // #nosec G204 -- our own
		run.Env = append(os.Environ(), path, "PYTHONDONTWRITEBYTECODE=1")
		return run
	}}
}

// inTypeScript runs testdata/remote_worker.mjs with sdk/typescript, or with the directory where
// its npm tarball is installed (scripts/typescript-sdk).
func inTypeScript(t *testing.T) language {
	t.Helper()
	dist := typeScriptPackage(t)
	return language{"ts", "remote_worker", func(program, address string) *exec.Cmd {
		return exec.CommandContext(context.Background(), "node", "testdata/"+program+".mjs", filepath.Join(dist, "index.js"), address) // #nosec G204 -- our own
	}}
}

// typeScriptPackage returns the directory of the compiled or installed package.
func typeScriptPackage(t *testing.T) string {
	t.Helper()
	needs.Tool(t, needs.Node)
	if installed := os.Getenv("TASKER_TEST_TYPESCRIPT"); installed != "" {
		return installed
	}
	return compiled(t)
}

// compiled returns the directory of the compiled sdk/typescript.
func compiled(t *testing.T) string {
	t.Helper()
	compiler, dist := needs.Path(t, needs.TypeScript), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dist, "package.json"), []byte(`{"type": "module"}`), 0o600))
	out, err := exec.CommandContext(t.Context(), "node", compiler, "-p", "../sdk/typescript", "--outDir", dist).CombinedOutput() // #nosec G204 -- our own
	require.NoError(t, err, "%s", out)
	return dist
}

// workerOf starts a worker process, which is killed at the end unless the test has ended it.
func (p *pair) workerOf(t *testing.T, l language) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	run := l.start(l.program, "http://"+p.worker.Addr().String())
	run.Stdout, run.Stderr = &out, &out
	require.NoError(t, run.Start())
	t.Cleanup(func() { _ = run.Process.Kill() })
	return run, &out
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

func TestPythonHandlers(t *testing.T) {
	t.Parallel()
	handlersOf(t, inPython(t))
}

func TestTypeScriptHandlers(t *testing.T) {
	t.Parallel()
	handlersOf(t, inTypeScript(t))
}

// handlersOf runs workflows of one language, in processes that are killed and stopped.
func handlersOf(t *testing.T, l language) {
	t.Helper()
	p, of := remotePair(t, shortGrace), func(name string) string { return l.prefix + "_" + name }
	frail := p.workflow(of("frail"), of("dies"))
	dead, _ := p.workerOf(t, l)
	require.Error(t, dead.Wait(), "it kills itself after a checkpoint")

	alive, out := p.workerOf(t, l)
	require.JSONEq(t, `{"resumed_from":50,"sum":7,"attempt":1}`, p.results(t, frail)[of("dies_step")])
	linear := p.results(t, p.workflow(of("linear"), of("square"), of("async"), of("object")))
	require.JSONEq(t, `{"value":7}`, linear[of("square_step")])
	require.JSONEq(t, `{"value":49,"of":"`+of("async")+`"}`, linear[of("async_step")])
	require.JSONEq(t, `{"value":56,"attempt":1}`, linear[of("object_step")])
	require.JSONEq(t, `{"cursor":3,"attempt":1}`, p.results(t, p.workflow(of("long"), of("yields")))[of("yields_step")])

	first := p.workflow(of("hops"), of("continues"))
	require.JSONEq(t, `{"hop":0}`, p.results(t, first)[of("continues_step")])
	chain, err := client.New(client.Config{BaseURL: p.rest}).Chain(p.ctx, first, 10)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(chain.Tasks), 2, "created with the end of the step")
	next := chain.Tasks[1].TaskUUID
	require.JSONEq(t, `{"hop":1}`, p.results(t, next)[of("continues_step")])

	failed, err := json.Marshal(p.ended(t, p.workflow(of("failing"), of("fails")), "error"))
	require.NoError(t, err)
	require.Contains(t, string(failed), "no more stock")
	require.Contains(t, string(failed), `"S1"`)
	failed, err = json.Marshal(p.ended(t, p.workflow(of("odd"), of("unencodable")), "error"))
	require.NoError(t, err)
	require.Contains(t, string(failed), "ResultNotEncodable")

	require.NoError(t, alive.Process.Signal(syscall.SIGTERM))
	require.NoError(t, alive.Wait(), "%s", out)
	require.Contains(t, out.String(), "stopped")
}

func TestPythonResultSchema(t *testing.T) {
	t.Parallel()
	resultSchemaOf(t, inPython(t))
}

func TestTypeScriptResultSchema(t *testing.T) {
	t.Parallel()
	resultSchemaOf(t, inTypeScript(t))
}

// resultSchemaOf: the daemon holds results of other languages against the schemas of their steps.
func resultSchemaOf(t *testing.T, l language) {
	t.Helper()
	p := newPair(t, "", func(c *config.Loaded) {
		c.Worker.Sessions.ReclaimGrace, c.Worker.StepResults.Schema = longGrace, "enforce"
	})
	c := client.New(client.Config{BaseURL: p.rest})
	for name, kind := range map[string]string{"fits": "integer", "breaks": "string"} {
		_, err := c.RegisterTemplate(p.ctx, client.TemplateSource{Reason: "test", Actor: "test", Source: fmt.Sprintf(
			`{name: %s, namespace_name: none, version: 1.0.0, steps: [{name: square, handler: {callable: %s_square}, result_schema: {type: object, properties: {value: {type: %s}}}}]}`,
			name, l.prefix, kind)})
		require.NoError(t, err)
	}
	for _, source := range []string{
		strings.ReplaceAll(remoteApproval, "xx_route}", "xx_route}, result_schema: {additionalProperties: false, properties: {route: {type: array}}}"),
		strings.ReplaceAll(remoteBatches, "xx_process}", "xx_process}, result_schema: {type: object, required: [processed]}"),
	} {
		_, err := c.RegisterTemplate(p.ctx, client.TemplateSource{Source: strings.ReplaceAll(source, "xx_", l.prefix+"_"), Reason: "test", Actor: "test"})
		require.NoError(t, err)
	}
	create := func(name, context string) string {
		task, err := c.CreateTask(p.ctx, client.TaskRequest{Name: l.prefix + name, Namespace: "none", Version: "1.0.0", Context: json.RawMessage(context),
			Initiator: "test", SourceSystem: "test", Reason: "test"})
		require.NoError(t, err)
		return task.TaskUUID
	}
	p.workerOf(t, l)
	require.Contains(t, p.results(t, create("_approval", `{"amount":500}`))["routing_decision"], "create_steps", "the outcome is the engine's, and stored")
	for size, want := range map[int]string{0: `{"total":0,"batches":1}`, 2000: `{"total":2000,"batches":2}`} { // one without work has no result to check
		require.JSONEq(t, want, p.results(t, create("_batches", fmt.Sprintf(`{"dataset_size":%d}`, size)))["aggregate_results"])
	}
	require.JSONEq(t, `{"value":7}`, p.results(t, p.create("fits", 1).GetTaskUuid())["square"])
	step := p.ended(t, p.create("breaks", 1).GetTaskUuid(), "error")
	require.Equal(t, 1, step.Attempts)
	for _, want := range []string{"ResultMismatch", "RESULT_SCHEMA", `"/value"`, "must be a string"} {
		require.Contains(t, string(step.Results), want)
	}
}

// TestBytesOfEveryLanguage: bytes go through handlers in Python, Go and TypeScript, from a
// context to a result.
func TestBytesOfEveryLanguage(t *testing.T) {
	t.Parallel()
	inPython, inTypeScript := inPython(t), inTypeScript(t)
	p := remotePair(t, longGrace)
	p.template("bytes", "py_bytes", "go_bytes", "ts_bytes")
	picture := worker.Bytes{ContentType: "image/png", Data: make([]byte, 512)}
	for i := range picture.Data {
		picture.Data[i] = byte(i) // #nosec G115 -- each byte twice
	}
	doc, err := json.Marshal(map[string]any{"picture": picture})
	require.NoError(t, err)
	task, err := client.New(client.Config{BaseURL: p.rest}).CreateTask(p.ctx, client.TaskRequest{Name: "bytes", Namespace: "none", Version: "1.0.0", Context: doc,
		Initiator: "test", SourceSystem: "test", Reason: "test"})
	require.NoError(t, err)
	p.workerOf(t, inPython)
	p.workerOf(t, inTypeScript)
	results := p.results(t, task.TaskUUID)

	want := worker.Bytes{ContentType: "image/png", Data: append([]byte("\x89PY"), picture.Data...)}
	require.Equal(t, want, bytesOf(t, results["py_bytes_step"]))
	slices.Reverse(want.Data)
	want.ContentType = "application/x-go"
	require.Equal(t, want, bytesOf(t, results["go_bytes_step"]))
	var last struct {
		Size     int
		Of       string
		Inverted worker.Bytes
	}
	require.NoError(t, json.Unmarshal([]byte(results["ts_bytes_step"]), &last))
	require.Equal(t, len(want.Data), last.Size)
	require.Equal(t, "image/png", last.Of)
	for i := range want.Data {
		want.Data[i] ^= 0xff
	}
	want.ContentType = "application/x-go; inverted=yes"
	require.Equal(t, want, last.Inverted)
}

func bytesOf(t *testing.T, result string) (b worker.Bytes) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(result), &b))
	return b
}

const (
	remoteApproval = `{name: xx_approval, namespace_name: none, version: 1.0.0, steps: [
  {name: validate_request, handler: {callable: xx_validate}, retry: {retryable: false, max_attempts: 1}},
  {name: routing_decision, type: decision, dependencies: [validate_request], handler: {callable: xx_route}},
  {name: auto_approve, dependencies: [routing_decision], handler: {callable: xx_approve}},
  {name: manager_approval, dependencies: [routing_decision], handler: {callable: xx_approve}},
  {name: finance_review, dependencies: [routing_decision], handler: {callable: xx_approve}},
  {name: finalize_approval, type: deferred_convergence, dependencies: [auto_approve, manager_approval, finance_review], handler: {callable: xx_finalize}}]}`
	remoteBatches = `{name: xx_batches, namespace_name: none, version: 1.0.0, steps: [
  {name: analyze_dataset, type: batchable, handler: {callable: xx_analyze, initialization: {worker_template_name: process_batch}},
   batch_config: {batch_size: 1000, parallelism: 10, cursor_field: id, worker_template: process_batch, failure_strategy: fail_fast}},
  {name: process_batch, type: batch_worker, dependencies: [analyze_dataset], handler: {callable: xx_process}},
  {name: aggregate_results, type: deferred_convergence, dependencies: [process_batch], handler: {callable: xx_aggregate}}]}`
)

func TestPythonDecisionsAndBatches(t *testing.T) {
	t.Parallel()
	outcomesOf(t, inPython(t))
}

func TestTypeScriptDecisionsAndBatches(t *testing.T) {
	t.Parallel()
	outcomesOf(t, inTypeScript(t))
}

// outcomesOf: the steps that outcomes of the handlers of one language create.
func outcomesOf(t *testing.T, l language) {
	t.Helper()
	p := remotePair(t, shortGrace)
	c := client.New(client.Config{BaseURL: p.rest})
	for _, source := range []string{remoteApproval, remoteBatches} {
		_, err := c.RegisterTemplate(p.ctx, client.TemplateSource{Source: strings.ReplaceAll(source, "xx_", l.prefix+"_"), Reason: "test", Actor: "test"})
		require.NoError(t, err)
	}
	process, out := p.workerOf(t, l)
	for _, row := range []struct {
		name, context string
		steps         int
		last, result  string
	}{
		{"_approval", `{"amount":500}`, 4, "finalize_approval", `{"approvals":["auto_approve"]}`},
		{"_approval", `{"amount":1000}`, 4, "finalize_approval", `{"approvals":["manager_approval"]}`},
		{"_approval", `{"amount":7500}`, 5, "finalize_approval", `{"approvals":["finance_review","manager_approval"]}`},
		{"_batches", `{"dataset_size":5000}`, 7, "aggregate_results", `{"total":5000,"batches":5}`},
		{"_batches", `{"dataset_size":20500}`, 12, "aggregate_results", `{"total":20500,"batches":10}`},
		{"_batches", `{"dataset_size":0}`, 3, "aggregate_results", `{"total":0,"batches":1}`},
	} {
		task, err := c.CreateTask(p.ctx, client.TaskRequest{Name: l.prefix + row.name, Namespace: "none", Version: "1.0.0", Context: json.RawMessage(row.context),
			Initiator: "test", SourceSystem: "test", Reason: "test"})
		require.NoError(t, err)
		results := p.results(t, task.TaskUUID)
		require.Len(t, results, row.steps, row.context)
		require.JSONEq(t, row.result, results[row.last], row.context)
	}
	require.NoError(t, process.Process.Signal(syscall.SIGTERM))
	require.NoError(t, process.Wait(), "%s", out)
}

func TestPythonClient(t *testing.T) {
	t.Parallel()
	clientOf(t, inPython(t))
}

func TestTypeScriptClient(t *testing.T) {
	t.Parallel()
	clientOf(t, inTypeScript(t))
}

// clientOf walks the client of one language, whose program has the worker of its tasks too.
func clientOf(t *testing.T, l language) {
	t.Helper()
	p := remotePair(t, longGrace)
	name := l.prefix + "_client"
	_, err := client.New(client.Config{BaseURL: p.rest}).RegisterTemplate(p.ctx, client.TemplateSource{Actor: "test", Reason: "test", Source: fmt.Sprintf(
		`{name: %[1]s, namespace_name: none, version: 1.0.0, identity_strategy: ALWAYS_UNIQUE, steps: [{name: double, handler: {callable: %[1]s}}]}`, name)})
	require.NoError(t, err)
	run := l.start("client", p.rest)
	run.Args = append(run.Args, "http://"+p.worker.Addr().String())
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "all as it should be")
}

func TestPythonKit(t *testing.T) {
	t.Parallel()
	kitOf(t, inPython(t), "kit")
}

func TestTypeScriptKit(t *testing.T) {
	t.Parallel()
	kitOf(t, inTypeScript(t), "kit")
}

// TestPythonCompat runs an application that was written for tasker_core.
func TestPythonCompat(t *testing.T) {
	t.Parallel()
	kitOf(t, inPython(t), "compat")
}

// kitOf runs a program that tests workflows in one language, which has nothing but tasker-ctl
// and a PostgreSQL that is installed.
func kitOf(t *testing.T, l language, program string) {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "../cmd/tasker-ctl").CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := l.start(program, dir)
	if run.Env == nil {
		run.Env = os.Environ()
	}
	run.Env = append(run.Env, "TASKER_CTL="+filepath.Join(dir, "tasker-ctl"))
	out, err = run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "all as it should be")
}

// TestTypeScriptSession: a handler that computes for longer than the grace runs once; publishers,
// subscribers, resolvers and metadata of a process.
func TestTypeScriptSession(t *testing.T) {
	t.Parallel()
	l := inTypeScript(t)
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "../cmd/tasker-ctl").CombinedOutput() // #nosec G204 -- our own
	require.NoError(t, err, "%s", out)
	run := l.start("session", dir)
	run.Env = append(os.Environ(), "TASKER_CTL="+filepath.Join(dir, "tasker-ctl"))
	out, err = run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "all as it should be")
}

// TestPythonWithoutADaemon runs the tests of the package itself.
func TestPythonWithoutADaemon(t *testing.T) {
	t.Parallel()
	needs.Tool(t, needs.Python)
	run := exec.CommandContext(t.Context(), "python3", "-m", "unittest", "discover", "-s", "../sdk/python/tests")
	run.Env = append(os.Environ(), "PYTHONPATH=../sdk/python/src", "PYTHONDONTWRITEBYTECODE=1")
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "OK")
}

// consumer makes a folder in which the TypeScript package is installed, with copies of some files. It
// returns the folder.
func consumer(t *testing.T, files ...string) string {
	t.Helper()
	dist, err := filepath.Abs(typeScriptPackage(t))
	require.NoError(t, err)
	dir := t.TempDir()
	installed := filepath.Join(dir, "node_modules", "@tasker-go", "tasker")
	require.NoError(t, os.MkdirAll(installed, 0o700))
	require.NoError(t, os.Symlink(dist, filepath.Join(installed, "dist")))
	for from, to := range map[string]string{"../sdk/typescript/package.json": filepath.Join(installed, "package.json"), "testdata/compat/tsconfig.json": filepath.Join(dir, "tsconfig.json"),
		"testdata/compat/node.d.ts": filepath.Join(dir, "node.d.ts")} {
		copied(t, from, to)
	}
	for _, file := range files {
		copied(t, file, filepath.Join(dir, filepath.Base(file)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type": "module"}`), 0o600))
	out, err := exec.CommandContext(t.Context(), "node", needs.Path(t, needs.TypeScript), "-p", dir).CombinedOutput() // #nosec G204 -- our own
	require.NoError(t, err, "%s", out)
	return dir
}

func copied(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from) // #nosec G304 -- our own
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, text, 0o600))
}

// TestTypeScriptTypes compiles a program against the types of the package, with all checks.
func TestTypeScriptTypes(t *testing.T) {
	t.Parallel()
	needs.Tool(t, needs.Node)
	consumer(t, "../sdk/typescript/tests/types.ts")
}

// TestTypeScriptCompat runs handlers in the style of Tasker's package, in a test and as a program of
// their own.
func TestTypeScriptCompat(t *testing.T) {
	t.Parallel()
	needs.Tool(t, needs.Node)
	dir := consumer(t, "testdata/compat/handlers.ts", "testdata/compat/app.ts", "testdata/compat/server.ts")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "../cmd/tasker-ctl").CombinedOutput() // #nosec G204 -- our own
	require.NoError(t, err, "%s", out)
	run := exec.CommandContext(t.Context(), "node", filepath.Join(dir, "app.js")) // #nosec G204 -- our own
	run.Env = append(os.Environ(), "TASKER_CTL="+filepath.Join(dir, "tasker-ctl"))
	out, err = run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "all as it should be")
}

// TestTypeScriptWithoutADaemon runs the tests of the package itself.
func TestTypeScriptWithoutADaemon(t *testing.T) {
	t.Parallel()
	tests, err := filepath.Glob("../sdk/typescript/tests/*.test.mjs")
	require.NoError(t, err)
	require.NotEmpty(t, tests)
	run := exec.CommandContext(t.Context(), "node", append([]string{"--test", "--test-reporter=tap"}, tests...)...) // #nosec G204 -- our own
	run.Env = append(os.Environ(), "TASKER_DIST="+typeScriptPackage(t))
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "# fail 0")
}
