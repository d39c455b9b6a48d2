// Package workload is the work of the fleet under faults: the workflows, their handlers,
// and a client that submits them.
package workload

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// Namespace and Version of the workflows.
const (
	Namespace = "chaos"
	Version   = "1.0.0"
)

// The handlers.
const (
	WorkHandler = "chaos.work"
	gateHandler = "chaos.gate"
	bookHandler = "chaos.book"
	// Of two services that share the namespace; see EnvServes.
	SortHandler = "chaos.sort"
	PackHandler = "chaos.pack"
)

// Workflow is one kind of task.
type Workflow struct {
	Name string
	End  string // the state that its tasks end in
	// Share of the tasks, in twentieths; 0: only on request.
	Share int

	steps []step
	retry string // of all steps; often where it is empty
}

// step of a workflow; the zero values of the other fields fit most.
type step struct {
	name    string
	parents []string
	handler string // default WorkHandler
	work    Work
	// attempts is the least number of executions; default 1, and -1 for none: the task
	// ends before.
	attempts int
}

// Work are the instructions of a handler (handler.initialization).
type Work struct {
	// Millis is how long it works, and up to SpreadMillis longer.
	Millis       int `json:"ms"`
	SpreadMillis int `json:"spread_ms"`
	// Failures is how many attempts fail before one succeeds.
	Failures int `json:"failures"`
	// Hopeless work fails for good.
	Hopeless bool `json:"hopeless"`
	// Deaf work ignores its context: it continues when its claim is lost.
	Deaf bool `json:"deaf"`
}

// The workflows.
var (
	Linear = Workflow{Name: "linear", End: "complete", Share: 4,
		steps: chain(quick, "one", "two", "three", "four")}
	Diamond = Workflow{Name: "diamond", End: "complete", Share: 4, steps: []step{
		{name: "start", work: quick}, {name: "left", parents: []string{"start"}, work: quick},
		{name: "right", parents: []string{"start"}, work: quick}, {name: "end", parents: []string{"left", "right"}, work: quick}}}
	Fanout   = Workflow{Name: "fanout", End: "complete", Share: 1, steps: fan(50)}
	Retrying = Workflow{Name: "retrying", End: "complete", Share: 4, steps: []step{
		{name: "before", work: quick},
		{name: "flaky", parents: []string{"before"}, work: Work{Millis: 5, Failures: 2}, attempts: 3},
		{name: "after", parents: []string{"flaky"}, work: quick}}}
	Slow = Workflow{Name: "slow", End: "complete", Share: 2, steps: []step{
		{name: "before", work: quick},
		{name: "patient", parents: []string{"before"}, work: Work{Millis: 3000, SpreadMillis: 4000}},
		{name: "stubborn", parents: []string{"before"}, work: Work{Millis: 3000, SpreadMillis: 4000, Deaf: true}},
		{name: "after", parents: []string{"patient", "stubborn"}, work: quick}}}
	Doomed = Workflow{Name: "doomed", End: "error", Share: 3, steps: []step{
		{name: "before", work: quick},
		{name: "hopeless", parents: []string{"before"}, work: Work{Millis: 5, Hopeless: true}},
		{name: "aside", parents: []string{"before"}, work: quick},
		{name: "never", parents: []string{"hopeless", "aside"}, work: quick, attempts: -1}}}
	// Booked has a step that writes a row and completes in one transaction.
	Booked = Workflow{Name: "booked", End: "complete", Share: 2, steps: []step{
		{name: "before", work: quick}, {name: "book", parents: []string{"before"}, handler: bookHandler, work: quick},
		{name: "after", parents: []string{"book"}, work: quick}}}
	// Laboured is for scenarios: a diamond that keeps permits busy.
	Laboured = Workflow{Name: "laboured", End: "complete", steps: []step{
		{name: "start", work: labour}, {name: "left", parents: []string{"start"}, work: labour},
		{name: "right", parents: []string{"start"}, work: labour}, {name: "end", parents: []string{"left", "right"}, work: labour}}}
	// Lengthy, Outlasting and Endless are for scenarios: one step of seconds, one that
	// lasts longer than a lease, and one of two minutes that ignores its context.
	Lengthy    = Workflow{Name: "lengthy", End: "complete", steps: []step{{name: "work", work: Work{Millis: 2000, SpreadMillis: 2000}}}}
	Outlasting = Workflow{Name: "outlasting", End: "complete", steps: []step{{name: "work", work: Work{Millis: 18_000}}}}
	Endless    = Workflow{Name: "endless", End: "complete", steps: []step{{name: "work", work: Work{Millis: 120_000, Deaf: true}}}}
	// Brief is for scenarios: one step of a millisecond or two.
	Brief = Workflow{Name: "brief", End: "complete", steps: []step{{name: "work", work: instant}}}
	// Limited are for scenarios: by how often their only step may be executed, and
	// Unrepeatable is never repeated.
	Limited      = map[int]Workflow{1: limited(1), 2: limited(2), 3: limited(3)}
	Unrepeatable = Workflow{Name: "unrepeatable", End: "complete", retry: "{retryable: false, max_attempts: 3}", steps: []step{{name: "work", work: instant}}}
	// Shared is for scenarios: the work of two services in turns.
	Shared = Workflow{Name: "shared", End: "complete", steps: []step{
		{name: "sort", handler: SortHandler, work: quick}, {name: "pack", handler: PackHandler, parents: []string{"sort"}, work: quick},
		{name: "resort", handler: SortHandler, parents: []string{"pack"}, work: quick}, {name: "repack", handler: PackHandler, parents: []string{"resort"}, work: quick}}}
	// Gated is for scenarios: its only step waits for a gate.
	Gated = Workflow{Name: "gated", End: "error", steps: []step{{name: "gate", handler: gateHandler}}}
)

var (
	instant = Work{Millis: 1, SpreadMillis: 1} // much is claimed ahead of it
	quick   = Work{Millis: 5, SpreadMillis: 20}
	labour  = Work{Millis: 40, SpreadMillis: 40}
)

func limited(attempts int) Workflow {
	return Workflow{Name: fmt.Sprintf("limited-%d", attempts), End: "complete", steps: []step{{name: "work", work: instant}},
		retry: fmt.Sprintf("{max_attempts: %d, backoff: fixed, backoff_base_ms: 50}", attempts)}
}

// Workflows lists them all.
func Workflows() []Workflow {
	return []Workflow{Linear, Diamond, Fanout, Retrying, Slow, Doomed, Booked, Laboured, Lengthy, Outlasting, Endless, Brief, Limited[1], Limited[2], Limited[3], Unrepeatable, Shared, Gated}
}

// Books reports whether a step writes a row in the transaction that completes it.
func (w Workflow) Books(name string) bool {
	for _, s := range w.steps {
		if s.name == name {
			return s.handler == bookHandler
		}
	}
	return false
}

// ByName returns a workflow.
func ByName(name string) (Workflow, bool) {
	for _, w := range Workflows() {
		if w.Name == name {
			return w, true
		}
	}
	return Workflow{}, false
}

// Ideal is how many executions a task has without faults.
func (w Workflow) Ideal() int {
	n := 0
	for _, s := range w.steps {
		n += max(s.attempts, 1)
		if s.attempts < 0 {
			n--
		}
	}
	return n
}

// Succeeding is how many steps a task has that are complete at its end.
func (w Workflow) Succeeding() int {
	n := 0
	for _, s := range w.steps {
		if s.attempts >= 0 && !s.work.Hopeless && s.handler != gateHandler {
			n++
		}
	}
	return n
}

// Weight is the share of a step in its task: parallel steps share it, so that the rate of
// work is even for any width.
func (w Workflow) Weight(name string) float64 {
	beside := 0
	for _, s := range w.steps {
		if s.name == name {
			for _, t := range w.steps {
				if strings.Join(s.parents, " ") == strings.Join(t.parents, " ") {
					beside++
				}
			}
		}
	}
	if beside == 0 {
		return 0
	}
	return 1 / float64(beside)
}

// Parents are the names of the steps that a step depends on.
func (w Workflow) Parents(name string) []string {
	for _, s := range w.steps {
		if s.name == name {
			return s.parents
		}
	}
	return nil
}

func chain(work Work, names ...string) []step {
	steps := make([]step, len(names))
	for i, name := range names {
		steps[i] = step{name: name, work: work}
		if i > 0 {
			steps[i].parents = []string{names[i-1]}
		}
	}
	return steps
}

func fan(width int) []step {
	steps := []step{{name: "start", work: quick}}
	var branches []string
	for i := range width {
		name := fmt.Sprintf("branch_%02d", i)
		branches = append(branches, name)
		steps = append(steps, step{name: name, parents: []string{"start"}, work: quick})
	}
	return append(steps, step{name: "end", parents: branches, work: quick})
}

// often: no task may end because of the number of attempts.
const often = "{max_attempts: 1000, backoff: fixed, backoff_base_ms: 50}"

// Template is the workflow as its workers register it.
func (w Workflow) Template() (*workflow.Template, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nnamespace_name: %s\nversion: %s\nsteps:\n", w.Name, Namespace, Version)
	for _, s := range w.steps {
		handler := cmp.Or(s.handler, WorkHandler)
		fmt.Fprintf(&b, "  - name: %s\n    dependencies: [%s]\n    timeout_seconds: 180\n    retry: %s\n", s.name, strings.Join(s.parents, ", "), cmp.Or(w.retry, often))
		fmt.Fprintf(&b, "    handler: {callable: %s, initialization: {ms: %d, spread_ms: %d, failures: %d, hopeless: %t, deaf: %t}}\n",
			handler, s.work.Millis, s.work.SpreadMillis, s.work.Failures, s.work.Hopeless, s.work.Deaf)
	}
	t, _, err := template.Parse(w.Name+".yaml", []byte(b.String()))
	if err != nil {
		return nil, fmt.Errorf("parse template %s: %w", w.Name, err)
	}
	return t, nil
}
