package workflow

import (
	"fmt"
	"slices"
	"strings"
)

// maxCycleShown bounds the names in the message about one cycle.
const maxCycleShown = 20

// checkCycles reports every knot of steps that wait for each other once, with the shortest
// cycle through the step that is first in the file. The targets of a decision are its
// declared descendants, so the dependencies are enough.
func (r *templateReader) checkCycles(g *stepGraph) {
	for _, knot := range g.knots() {
		start := slices.Min(knot)
		cycle, at := g.cycleThrough(start, knot)
		r.errorf(at, CodeCycle, g.sources[start].path+".dependencies",
			"the steps %s wait for each other (a → b: a depends on b)", g.cyclePath(cycle))
	}
}

func (g *stepGraph) cyclePath(cycle []int) string {
	names := make([]string, 0, len(cycle)+1)
	for _, i := range cycle {
		names = append(names, clip(g.steps[i].Name, 64))
	}
	if len(names) > maxCycleShown {
		names = append(names[:maxCycleShown-1], fmt.Sprintf("… (%d steps)", len(cycle)))
	}
	names = append(names, clip(g.steps[cycle[0]].Name, 64))
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

// knots are the strongly connected components of more than one step, by
// Tarjan's algorithm with its own stack, in the order of the file.
func (g *stepGraph) knots() [][]int {
	n := len(g.steps)
	s := knotSearch{g: g, order: make([]int, n), low: make([]int, n), onStack: make([]bool, n)}
	for i := range n {
		if s.order[i] == 0 {
			s.visit(i)
		}
	}
	slices.SortFunc(s.found, func(a, b []int) int { return slices.Min(a) - slices.Min(b) })
	return s.found
}

type knotSearch struct {
	g       *stepGraph
	order   []int // number of the visit, from 1; 0: not visited
	low     []int // smallest visit number that can be reached
	onStack []bool
	stack   []int
	visits  int
	found   [][]int
}

func (s *knotSearch) visit(root int) {
	type call struct{ step, next int }
	s.enter(root)
	for calls := []call{{step: root}}; len(calls) > 0; {
		c := &calls[len(calls)-1]
		if c.next < len(s.g.parents[c.step]) {
			p := s.g.parents[c.step][c.next]
			c.next++
			if s.order[p] == 0 {
				s.enter(p)
				calls = append(calls, call{step: p})
			} else if s.onStack[p] {
				s.low[c.step] = min(s.low[c.step], s.order[p])
			}
			continue
		}
		done := c.step
		calls = calls[:len(calls)-1]
		if len(calls) > 0 {
			caller := calls[len(calls)-1].step
			s.low[caller] = min(s.low[caller], s.low[done])
		}
		s.leave(done)
	}
}

func (s *knotSearch) enter(i int) {
	s.visits++
	s.order[i], s.low[i] = s.visits, s.visits
	s.stack = append(s.stack, i)
	s.onStack[i] = true
}

func (s *knotSearch) leave(i int) {
	if s.low[i] != s.order[i] {
		return
	}
	at := slices.Index(s.stack, i)
	knot := slices.Clone(s.stack[at:])
	s.stack = s.stack[:at]
	for _, k := range knot {
		s.onStack[k] = false
	}
	if len(knot) > 1 {
		s.found = append(s.found, knot)
	}
}
