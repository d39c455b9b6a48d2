package workflow

import "slices"

// checkSteps checks the steps together: their names, their dependencies and whether every
// awaited step can exist.
func (r *templateReader) checkSteps(t *Template, sources []stepSource) {
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
	steps    []StepTemplate
	sources  []stepSource
	index    map[string]int
	parents  [][]int
	via      [][]position // where the parent of the same index is named
	children []int        // how many steps depend on the step
	broken   bool         // a reference leads nowhere
}

func (r *templateReader) stepGraph(steps []StepTemplate, sources []stepSource) *stepGraph {
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
			r.errorf(sources[i].at, CodeDuplicateStepName, sources[i].path+".name",
				"there are two steps named %q; the first is in line %d", clip(name, 64), sources[first].at.line)
			continue
		}
		g.index[name] = i
		names = append(names, name)
		if name == overrideEverything {
			r.warnf(sources[i].at, CodeFormat, sources[i].path+".name", "in the overrides of an environment the name %s means every step", overrideEverything)
		}
	}
	for i := range steps {
		r.linkParents(g, i, names)
	}
	return g
}

func (r *templateReader) linkParents(g *stepGraph, i int, names []string) {
	step, source := &g.steps[i], g.sources[i]
	for d, parent := range step.Dependencies {
		at := source.dependencies[d]
		p, exists := g.index[parent]
		switch {
		case parent == step.Name:
			r.errorf(at, CodeSelfDependency, source.path+".dependencies", "step %q depends on itself", clip(step.Name, 64))
		case !exists:
			g.broken = true
			hint := ""
			if len(names) <= 200 { // comparing with thousands of names would be slow and unhelpful
				hint = suggestion(parent, names)
			}
			r.errorf(at, CodeMissingDependency, source.path+".dependencies",
				"step %q depends on %q, which does not exist%s", clip(step.Name, 64), clip(parent, 64), hint)
		default:
			g.parents[i] = append(g.parents[i], p)
			g.via[i] = append(g.via[i], at)
			g.children[p]++
		}
	}
}

func (r *templateReader) checkParents(step *StepTemplate, source stepSource) {
	if len(step.Dependencies) > 0 {
		return
	}
	switch step.Kind {
	case KindDecision:
		r.errorf(source.kind, CodeDecisionWithoutParent, source.path+".dependencies",
			"step %q is a decision and needs at least one dependency to decide on", clip(step.Name, 64))
	case KindDeferredConvergence:
		r.errorf(source.kind, CodeConvergenceWithoutParent, source.path+".dependencies",
			"step %q is a deferred_convergence and needs at least one dependency to join", clip(step.Name, 64))
	}
}

// checkWorkerTemplate checks the two places that name a batch worker: the batch_config of
// the worker, and the initialization of a batchable step, which is only a hint to its
// handler and so is not an error.
func (r *templateReader) checkWorkerTemplate(step *StepTemplate, source stepSource, g *stepGraph) {
	if step.Batch != nil && step.Batch.WorkerTemplate != "" {
		path := source.path + ".batch_config.worker_template"
		if i, ok := g.index[step.Batch.WorkerTemplate]; !ok {
			r.errorf(source.worker, CodeMissingWorkerTemplate, path, "the worker_template %q is not a step of this template", clip(step.Batch.WorkerTemplate, 64))
		} else if g.steps[i].Kind != KindBatchWorker {
			r.warnf(source.worker, CodeMissingWorkerTemplate, path, "the worker_template %q is not a step of type batch_worker", clip(step.Batch.WorkerTemplate, 64))
		}
	}
	if step.Kind != KindBatchable {
		return
	}
	name, ok := step.Handler.Initialization["worker_template_name"].(string)
	if !ok {
		return
	}
	if i, ok := g.index[name]; !ok || g.steps[i].Kind != KindBatchWorker {
		r.warnf(source.placeholder, CodeMissingWorkerTemplate, source.path+".handler.initialization.worker_template_name",
			"%q is not a step of type batch_worker of this template", clip(name, 64))
	}
}

// checkOrphans reports unconnected steps, except compensations, which have checks of their
// own. After a misspelt dependency it is silent, as that step would look like an orphan.
func (r *templateReader) checkOrphans(g *stepGraph) {
	if len(g.steps) < 2 || g.broken {
		return
	}
	for i := range g.steps {
		if len(g.steps[i].Dependencies) == 0 && g.children[i] == 0 && g.steps[i].Kind != KindCompensation {
			r.warnf(g.sources[i].at, CodeOrphanStep, g.sources[i].path, "step %q depends on no step and no step depends on it", clip(g.steps[i].Name, 64))
		}
	}
}

// checkBatchWorkers reports workers without a batchable step: they would never be
// instantiated.
func (r *templateReader) checkBatchWorkers(g *stepGraph) {
	for i := range g.steps {
		if g.steps[i].Kind == KindBatchWorker && !slices.ContainsFunc(g.parents[i], func(p int) bool { return g.steps[p].Kind == KindBatchable }) {
			r.warnf(g.sources[i].kind, CodeBatchWorkerUnreachable, g.sources[i].path,
				"step %q is a batch_worker but depends on no batchable step: it will never run", clip(g.steps[i].Name, 64))
		}
	}
}
