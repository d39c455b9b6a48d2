package workflow

import (
	"errors"
	"fmt"
	"slices"
)

// MaxSteps bounds the steps of one plan; it keeps a step number inside the
// smallint of the database with room for steps created at run time.
const MaxSteps = 10_000

// Plan is a template compiled for execution: steps have numbers instead of
// names, and the graph is known in both directions. A plan is immutable and
// safe for concurrent use.
type Plan struct {
	Template *Template
	// Steps are in topological order; the index of a step is its number.
	Steps []PlanStep

	byName map[string]int
}

// PlanStep is one numbered step of a plan.
type PlanStep struct {
	*StepTemplate
	No int
	// Parents and Children hold step numbers in ascending order.
	Parents, Children []int
	// Initial is false for a step that only a decision, a batch or a convergence creates.
	Initial bool
	// Depth is the number of decisions on the way to the step, itself included.
	Depth int
	// Undo is the number of the step that compensates this one; negative: none.
	Undo int
	// Events are the events that the step publishes, in the order of the file.
	Events []Event

	results *resultSchema // nil: the step has none
}

// Compile numbers the steps of a resolved template. The order is stable: steps that could
// run at the same time keep the order of the file. An error means that the template did not
// come through ParseTemplate, which reports the same faults with line and column.
func Compile(t *Template) (*Plan, error) {
	if len(t.Steps) == 0 {
		return nil, fmt.Errorf("template %s/%s:%s has no steps", t.Namespace, t.Name, t.Version)
	}
	if len(t.Steps) > MaxSteps {
		return nil, fmt.Errorf("template %s/%s:%s has %d steps, more than %d", t.Namespace, t.Name, t.Version, len(t.Steps), MaxSteps)
	}
	declared := make(map[string]int, len(t.Steps))
	for i := range t.Steps {
		if _, twice := declared[t.Steps[i].Name]; twice {
			return nil, fmt.Errorf("step %q is declared twice", t.Steps[i].Name)
		}
		declared[t.Steps[i].Name] = i
	}
	parents, err := parentsOf(t.Steps, declared)
	if err != nil {
		return nil, err
	}
	order, err := topological(parents)
	if err != nil {
		return nil, err
	}
	p := &Plan{Template: t, Steps: make([]PlanStep, len(order)), byName: make(map[string]int, len(order))}
	for no, at := range order {
		p.Steps[no] = PlanStep{StepTemplate: &t.Steps[at], No: no, Undo: -1, Events: compileEvents(&t.Steps[at]), results: newResultSchema(&t.Steps[at])}
		p.byName[t.Steps[at].Name] = no
	}
	for no, at := range order {
		p.link(&p.Steps[no], parents[at])
	}
	return p, nil
}

// link makes numbers of parents, which are given by their places in the template, and fills in
// what follows from them. It is called in topological order, so the values of the parents are
// final.
func (p *Plan) link(s *PlanStep, parents []int) {
	s.Initial = s.Kind != KindBatchWorker && s.Kind != KindCompensation
	for i, at := range parents {
		up := &p.Steps[p.byName[p.Template.Steps[at].Name]]
		parents[i] = up.No
		up.Children = append(up.Children, s.No)
		if !up.Initial || up.Kind == KindDecision {
			s.Initial = false
		}
		s.Depth = max(s.Depth, up.Depth)
	}
	if s.Kind == KindDecision {
		s.Depth++
	}
	slices.Sort(parents)
	s.Parents = parents
	if no, ok := p.byName[s.Compensation]; ok && s.Compensation != "" {
		s.Undo = no
	}
}

// parentsOf returns, by their place in the template, the steps that each step comes after,
// each once: its dependencies, or for a compensation the step that it undoes.
func parentsOf(steps []StepTemplate, declared map[string]int) ([][]int, error) {
	undone := map[string]string{}
	for i := range steps {
		if steps[i].Compensation != "" {
			undone[steps[i].Compensation] = steps[i].Name
		}
	}
	parents := make([][]int, len(steps))
	for i := range steps {
		names := steps[i].Dependencies
		if name, ok := undone[steps[i].Name]; ok && steps[i].Kind == KindCompensation {
			names = []string{name}
		}
		for _, name := range names {
			parent, ok := declared[name]
			if !ok {
				return nil, fmt.Errorf("step %q depends on %q, which does not exist", steps[i].Name, name)
			}
			if !slices.Contains(parents[i], parent) {
				parents[i] = append(parents[i], parent)
			}
		}
	}
	return parents, nil
}

// topological returns the places of steps so that parents come first (Kahn),
// preferring the order of the file.
func topological(parents [][]int) ([]int, error) {
	missing, children := make([]int, len(parents)), make([][]int, len(parents))
	order := make([]int, 0, len(parents))
	for i := range parents {
		for _, parent := range parents[i] {
			children[parent] = append(children[parent], i)
		}
		if missing[i] = len(parents[i]); missing[i] == 0 {
			order = append(order, i)
		}
	}
	for next := 0; next < len(order); next++ {
		for _, child := range children[order[next]] { // in the order of the file
			if missing[child]--; missing[child] == 0 {
				order = append(order, child)
			}
		}
	}
	if len(order) != len(parents) {
		return nil, errors.New("the dependencies of the steps form a cycle")
	}
	return order, nil
}

// StepNumber returns the number of the step called name.
func (p *Plan) StepNumber(name string) (int, bool) {
	no, ok := p.byName[name]
	return no, ok
}
