package workflow

import (
	"fmt"
	"slices"
)

// The numbers of forgotten batches are reused, so that a step that makes batches can run any
// number of times: with first fit, a task of n workers with at most c batches each needs no
// more than (2n-1)c numbers after those of its plan, however often they run. The records
// show by other means which batch had a number when, see store.
//
// The entries of forgotten batches stay in the progress, empty. A program that only appends
// takes the next number after them, which was never used either.

// place chooses the numbers of a group: the first free consecutive ones after those of the
// plan. The error is for the author of the handler.
func (a *advancing) place(g *Group) (first int, err error) {
	taken := slices.Concat(a.progress.Groups, a.forgotten)
	if len(a.progress.Groups) == maxGroups {
		return 0, fmt.Errorf("the task has batches of %d steps; there cannot be more", maxGroups)
	}
	if a.rules.BatchesAt != nil {
		return a.placed(g, taken)
	}
	slices.SortFunc(taken, func(x, y Group) int { return x.First - y.First })
	first = len(a.plan.Steps)
	for i := range taken {
		if taken[i].First-first >= g.Count {
			break
		}
		first = max(first, taken[i].First+taken[i].Count)
	}
	if first+g.Count > MaxStepNumber {
		return 0, fmt.Errorf("%d batches are asked for; the task has no room for so many among its %d numbers", g.Count, MaxStepNumber)
	}
	return first, nil
}

// placed returns where a group was placed at the time.
func (a *advancing) placed(g *Group, taken []Group) (int, error) {
	first, err := a.rules.BatchesAt(g.Template, g.Count)
	if err != nil {
		return 0, err
	}
	for i := range taken {
		if x := &taken[i]; first < x.First+x.Count && x.First < first+g.Count {
			return 0, fmt.Errorf("batches were numbered %d to %d, among them the %d to %d of others", first, first+g.Count-1, x.First, x.First+x.Count-1)
		}
	}
	if first < len(a.plan.Steps) || first+g.Count > MaxStepNumber {
		return 0, fmt.Errorf("batches were numbered %d to %d: want %d to %d", first, first+g.Count-1, len(a.plan.Steps), MaxStepNumber-1)
	}
	return first, nil
}

// occupy gives the members of a group their entries.
func (g *Progress) occupy(group *Group, entry StepProgress) {
	end := group.First + group.Count
	if more := end - len(g.Steps); more > 0 {
		g.Steps = append(g.Steps, make([]StepProgress, more)...)
	}
	for no := group.First; no < end; no++ {
		g.Steps[no] = entry
	}
}
