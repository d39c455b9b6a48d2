package workflow

import (
	"encoding/binary"
	"fmt"
)

// Group is the batches that one batchable step has made: instances of a batch worker with
// consecutive numbers after the steps of the plan.
type Group struct {
	Batchable int // the step that made it
	Template  int // the step of the plan that its members are instances of
	First     int // the number of the first member
	Count     int // at least 1
	// Settled says that the group completed: every member has ended, and no more have
	// failed than tolerated.
	Settled bool
}

// Has reports whether a step is a member.
func (g *Group) Has(no int) bool { return no >= g.First && no < g.First+g.Count }

// MaxStepNumber bounds the numbers of all steps of a task, those created at run
// time included: a step's row of the board is numbered by a smallint.
const MaxStepNumber = 32_000

func encodeGroups(b []byte, groups []Group) {
	for i := range groups {
		g, e := &groups[i], b[i*progressPerGroup:][:progressPerGroup]
		binary.BigEndian.PutUint16(e, uint16(g.Batchable))    // #nosec G115 -- at most MaxStepNumber, as all of them
		binary.BigEndian.PutUint16(e[2:], uint16(g.Template)) // #nosec G115
		binary.BigEndian.PutUint16(e[4:], uint16(g.First))    // #nosec G115
		binary.BigEndian.PutUint16(e[6:], uint16(g.Count))    // #nosec G115
		var settled uint16
		if g.Settled {
			settled = 1
		}
		binary.BigEndian.PutUint16(e[8:], settled)
	}
}

func decodeGroups(b []byte, count, steps int) ([]Group, error) {
	if count == 0 {
		return nil, nil
	}
	groups := make([]Group, count)
	for i := range groups {
		e := b[i*progressPerGroup:][:progressPerGroup]
		g := Group{
			Batchable: int(binary.BigEndian.Uint16(e)), Template: int(binary.BigEndian.Uint16(e[2:])),
			First: int(binary.BigEndian.Uint16(e[4:])), Count: int(binary.BigEndian.Uint16(e[6:])),
			Settled: binary.BigEndian.Uint16(e[8:]) == 1,
		}
		if g.Count == 0 || g.First+g.Count > steps || e[8] != 0 || e[9] > 1 {
			return nil, fmt.Errorf("progress has a group of steps %d to %d among %d", g.First, g.First+g.Count-1, steps)
		}
		groups[i] = g
	}
	return groups, nil
}

// fits reports whether a progress can belong to a task of the plan.
func (g *Progress) fits(p *Plan) bool {
	if len(g.Steps) < len(p.Steps) {
		return false
	}
	for i := range g.Groups {
		if x := &g.Groups[i]; x.First < len(p.Steps) || x.Template >= len(p.Steps) || x.Batchable >= len(p.Steps) {
			return false
		}
	}
	return true
}

// Group returns the group that a step is a member of.
func (g *Progress) Group(no int) (*Group, bool) {
	for i := range g.Groups {
		if g.Groups[i].Has(no) {
			return &g.Groups[i], true
		}
	}
	return nil, false
}

// groupOf returns the group of instances of a batch worker of the plan.
func (g *Progress) groupOf(template int) *Group {
	for i := range g.Groups {
		if g.Groups[i].Template == template {
			return &g.Groups[i]
		}
	}
	return nil
}

// ParentsOf returns the steps whose results a step gets with its claim: its existing parents
// that are steps of the plan. A batch does not get the result of the step that made it: that
// describes all batches, and would be sent with each. A nil progress is that of a new task.
func (p *Plan) ParentsOf(progress *Progress, no int) []int {
	step := p.Step(progress, no)
	if step.Initial || progress == nil {
		return step.Parents
	}
	parents := make([]int, 0, len(step.Parents))
	for _, parent := range step.Parents {
		if progress.Steps[parent].Status != StatusNotCreated && (step.Kind != KindBatchWorker || p.Steps[parent].Kind != KindBatchable) {
			parents = append(parents, parent)
		}
	}
	return parents
}

// ParentCounts counts the parents of a step that exist, batches each by itself,
// and those of them that are satisfied.
func (p *Plan) ParentCounts(progress *Progress, no int) (parents, satisfied int) {
	count := func(s Status) {
		if s != StatusNotCreated {
			parents++
		}
		if s.Satisfies() {
			satisfied++
		}
	}
	for _, parent := range p.Step(progress, no).Parents {
		count(progress.Steps[parent].Status)
		if g := progress.groupOf(parent); g != nil {
			for _, s := range progress.Steps[g.First : g.First+g.Count] {
				count(s.Status)
			}
		}
	}
	return parents, satisfied
}

// Step returns the plan step of a step of a task: itself, or for a step created at run time
// the one that it is an instance of; nil for an unknown or forgotten number.
func (p *Plan) Step(progress *Progress, no int) *PlanStep {
	if no >= 0 && no < len(p.Steps) {
		return &p.Steps[no]
	}
	if g, ok := progress.Group(no); ok {
		return &p.Steps[g.Template]
	}
	return nil
}
