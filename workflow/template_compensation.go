package workflow

// checkCompensations checks the assignment of compensations: each step of type compensation
// undoes one other step and has no dependencies.
func (r *templateReader) checkCompensations(g *stepGraph) {
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
		case g.steps[c].Kind != KindCompensation:
			problem = "which is not of type compensation"
		case g.steps[i].Kind == KindCompensation || g.steps[i].Kind == KindBatchWorker:
			problem = "but a step of type " + g.steps[i].Kind.String() + " cannot be undone"
		case taken:
			problem = "which undoes " + quoteName(g.steps[earlier].Name) + " already"
		default:
			undoes[c] = i
			continue
		}
		r.errorf(g.sources[i].compensation, CodeCompensation, g.sources[i].path+".compensation",
			"step %q is to be undone by %q, %s", clip(g.steps[i].Name, 64), clip(name, 64), problem)
	}
	for i := range g.steps {
		if g.steps[i].Kind != KindCompensation {
			continue
		}
		at, path, name := g.sources[i].kind, g.sources[i].path, clip(g.steps[i].Name, 64)
		if _, used := undoes[i]; !used {
			r.warnf(at, CodeCompensation, path, "step %q undoes no step: it will never run", name)
		}
		if len(g.steps[i].Dependencies) > 0 {
			r.errorf(at, CodeCompensation, path+".dependencies", "step %q undoes another step and cannot depend on any", name)
		}
		if g.children[i] > 0 {
			r.errorf(at, CodeCompensation, path, "other steps depend on %q, which runs only when the task fails or is cancelled", name)
		}
	}
}
