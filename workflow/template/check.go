package template

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tasker-go/tasker/internal/wording"
	"github.com/tasker-go/tasker/workflow"
)

// checkSteps checks the steps together: their names, their dependencies and whether every
// awaited step can exist.
func (r *reader) checkSteps(t *workflow.Template, sources []stepSource) {
	g := r.stepGraph(t.Steps, sources)
	for i := range t.Steps {
		step := &t.Steps[i]
		r.checkParents(step, sources[i])
		r.checkWorkerTemplate(step, sources[i], g)
	}
	r.checkCycles(g)
	r.checkOrphans(g)
	r.checkBatchWorkers(g)
	r.checkBranches(g)
	r.checkCompensations(g)
}

// stepGraph is the dependency graph by index. Of duplicate names the first step counts;
// references to the step itself and to unknown steps are left out.
type stepGraph struct {
	steps    []workflow.StepTemplate
	sources  []stepSource
	index    map[string]int
	parents  [][]int
	via      [][]position // where the parent of the same index is named
	children []int        // how many steps depend on the step
	broken   bool         // a reference leads nowhere
}

func (r *reader) stepGraph(steps []workflow.StepTemplate, sources []stepSource) *stepGraph {
	g := &stepGraph{
		steps: steps, sources: sources, index: make(map[string]int, len(steps)),
		parents: make([][]int, len(steps)), via: make([][]position, len(steps)), children: make([]int, len(steps)),
	}
	names := make([]string, 0, len(steps))
	for i := range steps {
		name := steps[i].Name
		if name == "" {
			continue // reported when it was read
		}
		if first, twice := g.index[name]; twice {
			r.errorf(sources[i].at, codeDuplicateStepName, sources[i].path+".name",
				"there are two steps named %.64q; the first is in line %d", name, sources[first].at.line)
			continue
		}
		g.index[name] = i
		names = append(names, name)
		if name == workflow.OverrideAll {
			r.warnf(sources[i].at, codeFormat, sources[i].path+".name", "in the overrides of an environment the name %s means every step", workflow.OverrideAll)
		}
	}
	for i := range steps {
		r.linkParents(g, i, names)
	}
	return g
}

func (r *reader) linkParents(g *stepGraph, i int, names []string) {
	step, source := &g.steps[i], g.sources[i]
	for d, parent := range step.Dependencies {
		at := source.dependencies[d]
		p, exists := g.index[parent]
		switch {
		case parent == step.Name:
			r.errorf(at, codeSelfDependency, source.path+".dependencies", "step %.64q depends on itself", step.Name)
		case !exists:
			g.broken = true
			hint := ""
			if len(names) <= 200 { // comparing with thousands of names would be slow and unhelpful
				hint = suggestion(parent, names)
			}
			r.errorf(at, codeMissingDependency, source.path+".dependencies",
				"step %.64q depends on %.64q, which does not exist%s", step.Name, parent, hint)
		default:
			g.parents[i] = append(g.parents[i], p)
			g.via[i] = append(g.via[i], at)
			g.children[p]++
		}
	}
}

func (r *reader) checkParents(step *workflow.StepTemplate, source stepSource) {
	if len(step.Dependencies) > 0 {
		return
	}
	switch step.Kind {
	case workflow.KindDecision:
		r.errorf(source.kind, codeDecisionWithoutParent, source.path+".dependencies",
			"step %.64q is a decision and needs at least one dependency to decide on", step.Name)
	case workflow.KindDeferredConvergence:
		r.errorf(source.kind, codeConvergenceWithoutParent, source.path+".dependencies",
			"step %.64q is a deferred_convergence and needs at least one dependency to join", step.Name)
	}
}

// checkWorkerTemplate checks the two places that name a batch worker: the batch_config of
// the worker, and the initialization of a batchable step, which is only a hint to its
// handler and so is not an error.
func (r *reader) checkWorkerTemplate(step *workflow.StepTemplate, source stepSource, g *stepGraph) {
	if step.Batch != nil && step.Batch.WorkerTemplate != "" {
		path := source.path + ".batch_config.worker_template"
		if i, ok := g.index[step.Batch.WorkerTemplate]; !ok {
			r.errorf(source.worker, codeMissingWorkerTemplate, path, "the worker_template %.64q is not a step of this template", step.Batch.WorkerTemplate)
		} else if g.steps[i].Kind != workflow.KindBatchWorker {
			r.warnf(source.worker, codeMissingWorkerTemplate, path, "the worker_template %.64q is not a step of type batch_worker", step.Batch.WorkerTemplate)
		}
	}
	if step.Kind != workflow.KindBatchable {
		return
	}
	name, ok := step.Handler.Initialization["worker_template_name"].(string)
	if !ok {
		return
	}
	if i, ok := g.index[name]; !ok || g.steps[i].Kind != workflow.KindBatchWorker {
		r.warnf(source.placeholder, codeMissingWorkerTemplate, source.path+".handler.initialization.worker_template_name",
			"%.64q is not a step of type batch_worker of this template", name)
	}
}

// checkOrphans reports unconnected steps, except compensations, which have checks of their
// own. After a misspelt dependency it is silent, as that step would look like an orphan.
func (r *reader) checkOrphans(g *stepGraph) {
	if len(g.steps) < 2 || g.broken {
		return
	}
	for i := range g.steps {
		if len(g.steps[i].Dependencies) == 0 && g.children[i] == 0 && g.steps[i].Kind != workflow.KindCompensation {
			r.warnf(g.sources[i].at, codeOrphanStep, g.sources[i].path, "step %.64q depends on no step and no step depends on it", g.steps[i].Name)
		}
	}
}

// checkBatchWorkers reports workers without a batchable step: they would never be
// instantiated.
func (r *reader) checkBatchWorkers(g *stepGraph) {
	for i := range g.steps {
		if g.steps[i].Kind == workflow.KindBatchWorker && !slices.ContainsFunc(g.parents[i], func(p int) bool { return g.steps[p].Kind == workflow.KindBatchable }) {
			r.warnf(g.sources[i].kind, codeBatchWorkerUnreachable, g.sources[i].path,
				"step %.64q is a batch_worker but depends on no batchable step: it will never run", g.steps[i].Name)
		}
	}
}

// checkCompensations checks the assignment of compensations: each step of type compensation
// undoes one other step and has no dependencies.
func (r *reader) checkCompensations(g *stepGraph) {
	undoes := make(map[int]int, len(g.steps))
	for i := range g.steps {
		name := g.steps[i].Compensation
		if name == "" {
			continue
		}
		c, known := g.index[name]
		var problem string
		switch earlier, taken := undoes[c]; {
		case !known:
			problem = "which does not exist"
		case g.steps[c].Kind != workflow.KindCompensation:
			problem = "which is not of type compensation"
		case g.steps[i].Kind == workflow.KindCompensation || g.steps[i].Kind == workflow.KindBatchWorker:
			problem = "but a step of type " + g.steps[i].Kind.String() + " cannot be undone"
		case taken:
			problem = "which undoes " + strconv.Quote(g.steps[earlier].Name) + " already"
		default:
			undoes[c] = i
			continue
		}
		r.errorf(g.sources[i].compensation, codeCompensation, g.sources[i].path+".compensation",
			"step %.64q is to be undone by %.64q, %s", g.steps[i].Name, name, problem)
	}
	for i := range g.steps {
		if g.steps[i].Kind != workflow.KindCompensation {
			continue
		}
		at, path, name := g.sources[i].kind, g.sources[i].path, wording.Clip(g.steps[i].Name, 64)
		if _, used := undoes[i]; !used {
			r.warnf(at, codeCompensation, path, "step %q undoes no step: it will never run", name)
		}
		if len(g.steps[i].Dependencies) > 0 {
			r.errorf(at, codeCompensation, path+".dependencies", "step %q undoes another step and cannot depend on any", name)
		}
		if g.children[i] > 0 {
			r.errorf(at, codeCompensation, path, "other steps depend on %q, which runs only when the task fails or is cancelled", name)
		}
	}
}

// maxBranchesChecked bounds the branches of one decision that are distinguished.
const maxBranchesChecked = 64

// checkBranches examines the steps after each decision: whether there are any, and whether a
// plain step waits for branches of which one may not be taken.
func (r *reader) checkBranches(g *stepGraph) {
	below := make([][]int, len(g.steps))
	for i, parents := range g.parents {
		for _, p := range parents {
			below[p] = append(below[p], i)
		}
	}
	for i := range g.steps {
		if g.steps[i].Kind != workflow.KindDecision {
			continue
		}
		name := wording.Clip(g.steps[i].Name, 64)
		if len(below[i]) == 0 && !g.broken {
			r.warnf(g.sources[i].kind, codeDecisionLeadsNowhere, g.sources[i].path, "no step depends on the decision %q: it has nothing to decide", name)
		}
		if len(below[i]) <= maxBranchesChecked {
			r.checkJoinsOf(g, i, below)
		}
	}
}

// checkJoinsOf reports plain steps that wait for two branches of a decision.
func (r *reader) checkJoinsOf(g *stepGraph, decision int, below [][]int) {
	// The branches that lead to each step, one bit each. The sets only grow, so this ends
	// even with a cycle.
	branches := make([]uint64, len(g.steps))
	queue := make([]int, 0, len(below[decision]))
	for bit, child := range below[decision] {
		branches[child] |= 1 << bit
		queue = append(queue, child)
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, child := range below[i] {
			if all := branches[child] | branches[i]; all != branches[child] {
				branches[child] = all
				queue = append(queue, child)
			}
		}
	}
	for i := range g.steps {
		s := &g.steps[i]
		if s.Join == workflow.JoinExisting || s.Kind == workflow.KindDeferredConvergence {
			continue
		}
		if a, b, found := apart(g.parents[i], branches, decision); found {
			r.warnf(g.sources[i].at, codeJoinOfBranches, g.sources[i].path+".join",
				"step %.64q waits for %.64q and %.64q, of which the decision %.64q may create one alone; with join: existing it waits for what exists",
				s.Name, g.steps[a].Name, g.steps[b].Name, g.steps[decision].Name)
		}
	}
}

// apart finds two parents that no common branch leads to. A step that depends on the
// decision itself is chosen by it, and does not count.
func apart(parents []int, branches []uint64, decision int) (a, b int, found bool) {
	for x, p := range parents {
		if p == decision {
			return 0, 0, false
		}
		for _, q := range parents[:x] {
			if branches[p] != 0 && branches[q] != 0 && branches[p]&branches[q] == 0 {
				a, b, found = q, p, true
			}
		}
	}
	return a, b, found
}

// maxCycleShown bounds the names in the message about one cycle.
const maxCycleShown = 20

// checkCycles reports every knot of steps that wait for each other once, with the shortest
// cycle through the step that is first in the file. The targets of a decision are its
// declared descendants, so the dependencies are enough.
func (r *reader) checkCycles(g *stepGraph) {
	for _, knot := range g.knots() {
		start := slices.Min(knot)
		cycle, at := g.cycleThrough(start, knot)
		r.errorf(at, codeCycle, g.sources[start].path+".dependencies",
			"the steps %s wait for each other (a → b: a depends on b)", g.cyclePath(cycle))
	}
}

func (g *stepGraph) cyclePath(cycle []int) string {
	names := make([]string, 0, len(cycle)+1)
	for _, i := range cycle {
		names = append(names, wording.Clip(g.steps[i].Name, 64))
	}
	if len(names) > maxCycleShown {
		names = append(names[:maxCycleShown-1], fmt.Sprintf("… (%d steps)", len(cycle)))
	}
	names = append(names, wording.Clip(g.steps[cycle[0]].Name, 64))
	return strings.Join(names, " → ")
}

// cycleThrough is the shortest cycle from start within a knot, and the place of its first
// edge in the file.
func (g *stepGraph) cycleThrough(start int, knot []int) ([]int, position) {
	inside := make(map[int]bool, len(knot))
	for _, i := range knot {
		inside[i] = true
	}
	from := map[int]int{}
	for queue := []int{start}; len(queue) > 0; {
		i := queue[0]
		queue = queue[1:]
		for _, p := range g.parents[i] {
			if p == start {
				return g.unwind(start, i, from)
			}
			if _, seen := from[p]; !seen && inside[p] {
				from[p] = i
				queue = append(queue, p)
			}
		}
	}
	return []int{start}, g.sources[start].at // not reached: start is in a knot
}

// unwind follows the search back from the last step of the cycle.
func (g *stepGraph) unwind(start, last int, from map[int]int) ([]int, position) {
	cycle := []int{}
	for i := last; i != start; i = from[i] {
		cycle = append(cycle, i)
	}
	cycle = append(cycle, start)
	slices.Reverse(cycle)
	next := cycle[1%len(cycle)]
	return cycle, g.via[start][slices.Index(g.parents[start], next)]
}

// knots are the strongly connected components of more than one step, by Tarjan's algorithm,
// in the order of the file. The recursion is as deep as the longest chain of steps.
func (g *stepGraph) knots() (found [][]int) {
	n, visits, stack := len(g.steps), 0, []int(nil)
	order, low, onStack := make([]int, n), make([]int, n), make([]bool, n) // order is the number of the visit, from 1
	var visit func(i int)
	visit = func(i int) {
		visits++
		order[i], low[i], onStack[i] = visits, visits, true
		stack = append(stack, i)
		for _, p := range g.parents[i] {
			if order[p] == 0 {
				visit(p)
				low[i] = min(low[i], low[p])
			} else if onStack[p] {
				low[i] = min(low[i], order[p])
			}
		}
		if low[i] < order[i] {
			return
		}
		at := slices.Index(stack, i)
		knot := slices.Clone(stack[at:])
		stack = stack[:at]
		for _, k := range knot {
			onStack[k] = false
		}
		if len(knot) > 1 {
			found = append(found, knot)
		}
	}
	for i := range n {
		if order[i] == 0 {
			visit(i)
		}
	}
	slices.SortFunc(found, func(a, b []int) int { return slices.Min(a) - slices.Min(b) })
	return found
}
