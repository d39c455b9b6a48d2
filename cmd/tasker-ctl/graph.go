package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/workflow"
)

// notCreated is the state shown for a step that the template declares and the
// task does not have: a decision or a batch has not brought it into being.
const notCreated = "not_created"

// node is one step of the picture.
type node struct {
	name              string
	parents           []string
	level             int // longest path from a step without parents
	state             string
	attempts, maximum int
	step              *client.StepReadiness // nil while not created
}

// drawGraph combines what the template declares with the steps that exist, in
// the order they are drawn: by level, then as the template has them. Without a
// template all steps are on one level, in the order of the server.
func drawGraph(template *workflow.Template, steps []client.StepReadiness) []node {
	var nodes []node
	byName := map[string]int{}
	if template != nil {
		for i := range template.Steps {
			s := &template.Steps[i]
			byName[s.Name] = len(nodes)
			nodes = append(nodes, node{name: s.Name, parents: s.Dependencies, state: notCreated, maximum: s.Retry.MaxAttempts})
		}
	}
	declared := len(nodes)
	for i := range steps {
		s := &steps[i]
		at, known := byName[s.Name]
		if !known {
			at = len(nodes)
			byName[s.Name] = at
			nodes = append(nodes, node{name: s.Name, parents: instanceParents(nodes[:declared], s.Name)})
		}
		n := &nodes[at]
		n.state, n.attempts, n.maximum, n.step = s.CurrentState, s.Attempts, s.MaxAttempts, s
	}
	nodes = withoutUsedPatterns(nodes, declared)
	setLevels(nodes)
	slices.SortStableFunc(nodes, func(a, b node) int { return cmp.Compare(a.level, b.level) })
	return nodes
}

// instanceParents gives a step made at run time, such as worker_003, the
// parents of the declared step whose name begins its own.
func instanceParents(declared []node, name string) []string {
	if i := patternOf(declared, name); i >= 0 {
		return declared[i].parents
	}
	return nil
}

// patternOf finds the declared step that an instance is made from.
func patternOf(declared []node, name string) int {
	best := -1
	for i, n := range declared {
		if strings.HasPrefix(name, n.name+"_") && (best < 0 || len(n.name) > len(declared[best].name)) {
			best = i
		}
	}
	return best
}

// withoutUsedPatterns drops declared steps that exist only as instances, and
// lets their dependents depend on the instances.
func withoutUsedPatterns(nodes []node, declared int) []node {
	instances := map[string][]string{}
	for _, n := range nodes[declared:] {
		if i := patternOf(nodes[:declared], n.name); i >= 0 && nodes[i].step == nil {
			instances[nodes[i].name] = append(instances[nodes[i].name], n.name)
		}
	}
	if len(instances) == 0 {
		return nodes
	}
	kept := nodes[:0:0]
	for _, n := range nodes {
		if instances[n.name] != nil {
			continue
		}
		var parents []string
		for _, p := range n.parents {
			if made := instances[p]; made != nil {
				parents = append(parents, made...)
			} else {
				parents = append(parents, p)
			}
		}
		n.parents = parents
		kept = append(kept, n)
	}
	return kept
}

// setLevels works out the levels; a cycle, which no valid template has, ends
// after as many rounds as there are nodes.
func setLevels(nodes []node) {
	byName := make(map[string]int, len(nodes))
	for i, n := range nodes {
		byName[n.name] = i
	}
	for range nodes {
		changed := false
		for i := range nodes {
			for _, p := range nodes[i].parents {
				if at, ok := byName[p]; ok && nodes[i].level <= nodes[at].level && nodes[at].level < len(nodes) {
					nodes[i].level, changed = nodes[at].level+1, true
				}
			}
		}
		if !changed {
			return
		}
	}
}
