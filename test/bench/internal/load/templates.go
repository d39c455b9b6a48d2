package load

import (
	"fmt"
	"time"

	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// Namespace is the queue of the benchmark's own workflows.
const Namespace = "bench"

// StampHandler returns the time at which it began, in microseconds since 1970.
const StampHandler = "bench.stamp"

// PauseHandler waits for PauseTime, as a handler does that calls another service.
const (
	PauseHandler = "bench.pause"
	PauseTime    = time.Millisecond
)

// CallablesEnv is the variable that makes the benchmark's worker offer a number of
// further callables, which do the same as StampHandler.
const CallablesEnv = "BENCH_CALLABLES"

// callablesNamespace holds only the workflows of Callables.
const callablesNamespace = "bench_callables"

// OneStepHandler is that of OneStep.
const OneStepHandler = "sequence.square_input"

// The handlers of the workflow that reads a file in batches.
const (
	SplitHandler = "bench.split_rows"
	ReadHandler  = "bench.read_rows"
	SumHandler   = "bench.sum_rows"
)

// Workflow can be submitted; Steps is how many steps a task of it runs.
type Workflow struct {
	Name, Namespace string
	Steps           int
	Fields          string // of the context, beside those that all have
}

// The workflows. OneStep does the work of the other queues' handlers, multiply a number;
// Stamp returns when its handler began, Pausing waits for PauseTime.
var (
	OneStep = Workflow{Name: "one_step", Namespace: Namespace, Steps: 1}
	Stamp   = Workflow{Name: "stamp", Namespace: Namespace, Steps: 1}
	Pausing = Workflow{Name: "pause", Namespace: Namespace, Steps: 1}
	Linear  = Workflow{Name: "mathematical_sequence", Namespace: "examples", Steps: 4}
	Diamond = Workflow{Name: "diamond", Namespace: "examples", Steps: 4}
	Graph   = Workflow{Name: "mixed_dag", Namespace: "examples", Steps: 7}
	Tree    = Workflow{Name: "tree", Namespace: "examples", Steps: 8}
	// Conditional takes the path with two approvals; Batch reads the 1,000 rows of a file
	// with five workers.
	Conditional = Workflow{Name: "expense_approval", Namespace: "examples", Steps: 5, Fields: `"amount":7500,`}
	Batch       = Workflow{Name: "rows", Namespace: Namespace, Steps: 7}
)

// Mixes of workflows, used in turn.
var (
	Plain        = []Workflow{OneStep}
	Orchestrated = []Workflow{Linear, Diamond}
	Mixed        = []Workflow{OneStep, Linear, OneStep, Diamond}
)

// StepsPerTask is the mean number of steps of a mix.
func StepsPerTask(mix []Workflow) float64 {
	sum := 0
	for _, w := range mix {
		sum += w.Steps
	}
	return float64(sum) / float64(len(mix))
}

// Callables are workflows of one step in their own namespace, each with a callable of its
// name.
func Callables(n int) []Workflow {
	all := make([]Workflow, n)
	for i := range all {
		all[i] = Workflow{Name: fmt.Sprintf("callable_%04d", i), Namespace: callablesNamespace, Steps: 1}
	}
	return all
}

// CallableTemplates are the templates of Callables.
func CallableTemplates(n int) ([]*workflow.Template, error) {
	var templates []*workflow.Template
	for _, w := range Callables(n) {
		t, err := oneStep(w.Namespace, w.Name, w.Name)
		if err != nil {
			return nil, err
		}
		templates = append(templates, t)
	}
	return templates, nil
}

// oneStep is a template of a single step.
func oneStep(namespace, name, handler string) (*workflow.Template, error) {
	t, _, err := template.Parse(name+".yaml", []byte(source(namespace, name, handler)))
	if err != nil {
		return nil, fmt.Errorf("parse template %s: %w", name, err)
	}
	return t, nil
}

func source(namespace, name, handler string) string {
	return fmt.Sprintf("name: %s\nnamespace_name: %s\nversion: 1.0.0\nsteps:\n  - name: only\n    handler: {callable: %s}\n", name, namespace, handler)
}

// PlainSource is the template of plain tasks, as text.
func PlainSource() string { return source(Namespace, OneStep.Name, OneStepHandler) }

// Templates are the benchmark's own workflows in a namespace.
func Templates(namespace string) ([]*workflow.Template, error) {
	var templates []*workflow.Template
	for name, handler := range map[string]string{OneStep.Name: OneStepHandler, Stamp.Name: StampHandler, Pausing.Name: PauseHandler, Sleeping.Name: SleepHandler} {
		t, err := oneStep(namespace, name, handler)
		if err != nil {
			return nil, err
		}
		templates = append(templates, t)
	}
	t, _, err := template.Parse(Batch.Name+".yaml", fmt.Appendf(nil, `
name: %s
namespace_name: %s
version: 1.0.0
steps:
  - name: split
    type: batchable
    handler: {callable: %s, initialization: {worker_template_name: read}}
  - name: read
    type: batch_worker
    depends_on: [split]
    handler: {callable: %s}
    batch_config: {batch_size: 200, parallelism: 5, cursor_field: row, worker_template: read, failure_strategy: fail_fast}
  - name: sum
    type: deferred_convergence
    depends_on: [read]
    handler: {callable: %s}
`, Batch.Name, namespace, SplitHandler, ReadHandler, SumHandler))
	if err != nil {
		return nil, fmt.Errorf("parse template %s: %w", Batch.Name, err)
	}
	return append(templates, t), nil
}
