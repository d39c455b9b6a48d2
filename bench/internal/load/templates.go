package load

import (
	"fmt"

	"github.com/tasker-go/tasker/workflow"
)

// Namespace is the queue of the benchmark's own workflows.
const Namespace = "bench"

// StampHandler returns the time at which it began, in microseconds since 1970.
const StampHandler = "bench.stamp"

// A Workflow that can be submitted; Steps is how many steps a task of it runs.
type Workflow struct {
	Name, Namespace string
	Steps           int
}

// The workflows. OneStep does what the handlers of the other queues do,
// multiply a number; Stamp tells when its handler began.
var (
	OneStep = Workflow{"one_step", Namespace, 1}
	Stamp   = Workflow{"stamp", Namespace, 1}
	Linear  = Workflow{"mathematical_sequence", "examples", 4}
	Diamond = Workflow{"diamond", "examples", 4}
	Graph   = Workflow{"mixed_dag", "examples", 7}
	Tree    = Workflow{"tree", "examples", 8}
)

// Mixes of workflows, given out in turn.
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

// Templates are the benchmark's own workflows in a namespace.
func Templates(namespace string) ([]*workflow.Template, error) {
	var templates []*workflow.Template
	for name, handler := range map[string]string{OneStep.Name: "sequence.square_input", Stamp.Name: StampHandler} {
		text := fmt.Sprintf("name: %s\nnamespace_name: %s\nversion: 1.0.0\nsteps:\n  - name: only\n    handler: {callable: %s}\n", name, namespace, handler)
		t, _, err := workflow.ParseTemplate(name+".yaml", []byte(text))
		if err != nil {
			return nil, fmt.Errorf("parse template %s: %w", name, err)
		}
		templates = append(templates, t)
	}
	return templates, nil
}
