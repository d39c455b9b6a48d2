package codegen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/internal/wording"
	"github.com/tasker-go/tasker/workflow"
)

// model is what is known of a template: the data of the texts.
type model struct {
	Template  string // its name
	Namespace string
	Language  *language
	Package   string
	Module    string // of the types
	Handled   string // the module of the handlers
	Context   *decl  // nil without a schema
	Results   []schemaTypes
	Handlers  []*handler
	types     []schemaTypes
	taken     names
}

// handler is the function for a method of a callable, which several steps may share.
type handler struct {
	Callable, Method string
	Name             string // of the function
	ParentsName      string // of the type of its parents' results
	Steps            []string
	About            string
	Kind             workflow.StepKind
	Result           *decl // nil: not known, or that of a decision or of batches
	Parents          []parent
}

// parent is a step whose result a handler gets.
type parent struct {
	Step    string
	Name    string // of the variable
	Result  *decl  // nil: not known
	Absent  bool   // it may have no result
	Batches bool   // it stands for a list of results
}

// Several reports whether steps with different parents share the handler.
func (h *handler) Several() bool { return len(h.Steps) > 1 }

// Outcome is what the result must have besides its own fields.
func (h *handler) Outcome() string {
	return map[workflow.StepKind]string{
		workflow.KindDecision:  `{"decision_point_outcome": {"type": "create_steps", "step_names": [...]}} or {"decision_point_outcome": {"type": "no_branches"}}`,
		workflow.KindBatchable: `{"batch_processing_outcome": {"type": "create_batches", "worker_template_name": ..., "worker_count": ..., "cursor_configs": [...], "total_items": ...}} or {"batch_processing_outcome": {"type": "no_batches"}}`,
	}[h.Kind]
}

// Title says which steps the handler runs.
func (h *handler) Title() string {
	steps := wording.Line(strings.Join(h.Steps, ", "))
	if h.Several() {
		return "steps " + steps
	}
	return "step " + steps
}

// build reads all schemas and finds the handlers; then a step, where one is named, keeps
// what it needs. Names are the same with a step and without.
func (l *language) build(t *workflow.Template, step string) (*model, error) {
	m := &model{Template: t.Name, Namespace: t.Namespace, Language: l, Module: snake(t.Name) + "_types", Package: packageName(t.Name), taken: names{}}
	if err := m.readTypes(t); err != nil {
		return nil, err
	}
	for _, u := range units(t) {
		m.Handlers = append(m.Handlers, m.handler(t, u))
	}
	if step == "" {
		return m, nil
	}
	m.Handlers = slices.DeleteFunc(m.Handlers, func(h *handler) bool { return !slices.Contains(h.Steps, step) })
	if len(m.Handlers) == 0 {
		return nil, fmt.Errorf("invalid step %q: want one that has a handler: %s", step, strings.Join(handled(t), ", "))
	}
	m.types = slices.DeleteFunc(m.types, func(s schemaTypes) bool {
		needed := func(p parent) bool { return p.Step == s.step }
		return s.step != "" && !slices.Contains(m.Handlers[0].Steps, s.step) && !slices.ContainsFunc(m.Handlers[0].Parents, needed)
	})
	return m, nil
}

// readTypes takes the names of the roots before those of their parts.
func (m *model) readTypes(t *workflow.Template) error {
	roots := []string{m.taken.pick(m.Language.typeName(t.Name) + "Context")}
	for i := range t.Steps {
		roots = append(roots, m.taken.pick(m.Language.typeName(t.Steps[i].Name)+"Result"))
	}
	context, err := m.Language.read(t.InputSchema, roots[0], "the context of the tasks of "+t.Name, m.taken)
	if err != nil {
		return fmt.Errorf("read the input_schema: %w", err)
	}
	m.Context, m.types = context.root, append(m.types, context)
	for i := range t.Steps {
		s := &t.Steps[i]
		result, err := m.Language.read(s.ResultSchema, roots[i+1], "the result of step "+s.Name, m.taken)
		if err != nil {
			return fmt.Errorf("read the result_schema of step %s: %w", s.Name, err)
		}
		result.step = s.Name
		m.types = append(m.types, result)
	}
	return nil
}

// Types are the types of the file, each after those that it needs.
func (m *model) Types() (all []*decl) {
	for _, s := range m.types {
		all = append(all, s.decls...)
	}
	return all
}

// Roots are the types of whole schemas.
func (m *model) Roots() (roots []*decl) {
	for _, s := range m.types {
		if s.root != nil {
			roots = append(roots, s.root)
		}
	}
	return roots
}

// Imports are the names of the types that the handlers use.
func (m *model) Imports() (used []string) {
	add := func(d *decl) {
		if d != nil && !slices.Contains(used, d.Name) {
			used = append(used, d.Name)
		}
	}
	for _, h := range m.Handlers {
		add(m.Context)
		add(h.Result)
		for _, p := range h.Parents {
			add(p.Result)
		}
	}
	slices.Sort(used)
	return used
}

func (m *model) result(step string) *decl {
	at := slices.IndexFunc(m.types, func(s schemaTypes) bool { return s.step == step && step != "" })
	if at < 0 {
		return nil
	}
	return m.types[at].root
}

func handled(t *workflow.Template) (steps []string) {
	for _, u := range units(t) {
		for _, s := range u {
			steps = append(steps, s.Name)
		}
	}
	return steps
}

// units are the steps of each method of each callable, in the order of the template.
func units(t *workflow.Template) (all [][]*workflow.StepTemplate) {
	for i := range t.Steps {
		s := &t.Steps[i]
		if s.Handler.Callable == "" {
			continue // the engine runs it
		}
		at := slices.IndexFunc(all, func(u []*workflow.StepTemplate) bool {
			return u[0].Handler.Callable == s.Handler.Callable && methodOf(u[0]) == methodOf(s)
		})
		if at < 0 {
			all = append(all, []*workflow.StepTemplate{s})
		} else {
			all[at] = append(all[at], s)
		}
	}
	return all
}

// usualMethod is that of a handler without a method.
const usualMethod = "call"

func methodOf(s *workflow.StepTemplate) string { return cmp.Or(s.Handler.Method, usualMethod) }

func (m *model) handler(t *workflow.Template, steps []*workflow.StepTemplate) *handler {
	first := steps[0]
	h := &handler{Callable: first.Handler.Callable, Method: methodOf(first), Kind: first.Kind, Result: m.result(first.Name)}
	for _, s := range steps {
		if h.Steps = append(h.Steps, s.Name); s.Kind != h.Kind {
			h.Kind = workflow.KindStandard
		}
	}
	name := first.Name
	if h.Several() {
		name, h.Result = h.Callable+" "+first.Handler.Method, nil
	} else {
		h.About = strings.TrimSuffix(wording.Line(strings.Join(strings.Fields(first.Description), " ")), ".")
		h.Parents = m.parents(t, first)
	}
	if h.Kind == workflow.KindDecision || h.Kind == workflow.KindBatchable {
		h.Result = nil
	}
	h.Name = m.taken.pick(escaped(m.Language.function(name)))
	h.ParentsName = m.taken.pick(pascal(h.Name) + "Parents")
	return h
}

func (m *model) parents(t *workflow.Template, s *workflow.StepTemplate) (parents []parent) {
	variables := names{}
	optional := s.Kind == workflow.KindDeferredConvergence || s.Join == workflow.JoinExisting
	for i := range t.Steps {
		p := &t.Steps[i]
		undone := p.Compensation == s.Name && s.Kind == workflow.KindCompensation
		if slices.Contains(s.Dependencies, p.Name) || undone {
			parents = append(parents, parent{Step: p.Name, Name: variables.pick(camel(p.Name + "_result")), Result: m.result(p.Name),
				Absent: optional, Batches: p.Kind == workflow.KindBatchWorker})
		}
	}
	return parents
}
