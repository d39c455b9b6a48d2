package workflow

// maxBranchesChecked bounds the branches of one decision that are distinguished.
const maxBranchesChecked = 64

// checkBranches examines the steps after each decision: whether there are any, and whether a
// plain step waits for branches of which one may not be taken.
func (r *templateReader) checkBranches(g *stepGraph) {
	below := make([][]int, len(g.steps))
	for i, parents := range g.parents {
		for _, p := range parents {
			below[p] = append(below[p], i)
		}
	}
	for i := range g.steps {
		if g.steps[i].Kind != KindDecision {
			continue
		}
		name := clip(g.steps[i].Name, 64)
		if len(below[i]) == 0 && !g.broken {
			r.warnf(g.sources[i].kind, CodeDecisionLeadsNowhere, g.sources[i].path, "no step depends on the decision %q: it has nothing to decide", name)
		}
		if len(below[i]) <= maxBranchesChecked {
			r.checkJoinsOf(g, i, below)
		}
	}
}

// checkJoinsOf reports plain steps that wait for two branches of a decision.
func (r *templateReader) checkJoinsOf(g *stepGraph, decision int, below [][]int) {
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
		if s.Join == JoinExisting || s.Kind == KindDeferredConvergence {
			continue
		}
		if a, b, found := apart(g.parents[i], branches, decision); found {
			r.warnf(g.sources[i].at, CodeJoinOfBranches, g.sources[i].path+".join",
				"step %q waits for %q and %q, of which the decision %q may create one alone; with join: existing it waits for what exists",
				clip(s.Name, 64), clip(g.steps[a].Name, 64), clip(g.steps[b].Name, 64), clip(g.steps[decision].Name, 64))
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
