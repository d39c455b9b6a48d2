package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
)

// maxIndent keeps a long chain of steps on the screen; maxParentsShown does so
// for a step that waits for a batch.
const (
	maxIndent       = 12
	maxParentsShown = 3
)

// picture is what `task watch` shows of a task.
type picture struct {
	task  *client.Task
	nodes []node
	// durations of the latest decided attempt, by step name.
	durations map[string]time.Duration
	now       time.Time
}

// lines draws the picture with at most height lines, 0 for as many as needed.
func (p picture) lines(screen terminal, height int) []string {
	t := p.task
	lines := []string{
		fmt.Sprintf("%s  %s", t.TaskUUID, screen.paint(bold, templateName(t))),
		fmt.Sprintf("%s  %d/%d steps complete  %s", screen.paint(stateStyle(t.Status), t.Status), t.CompletedSteps, t.TotalSteps, p.elapsed()),
		"",
	}
	nodes, rest := p.nodes, ""
	if height > 0 && len(lines)+len(nodes) > height {
		nodes, rest = mostInteresting(nodes, max(height-len(lines)-1, 1))
	}
	rows := &table{screen: screen}
	for _, n := range nodes {
		arrow := ""
		if n.level > 0 {
			arrow = strings.Repeat("  ", min(n.level-1, maxIndent)) + "└▶ "
		}
		rows.row(cell{arrow + mark(n.state) + " " + n.name, stateStyle(n.state)}, stateCell(n.state),
			attempts(n.attempts, n.maximum), p.duration(n), after(n.parents))
	}
	lines = append(lines, rows.lines()...)
	if rest != "" {
		lines = append(lines, rest)
	}
	return lines
}

func (p picture) elapsed() string {
	end := p.now
	if p.task.CompletedAt != nil {
		end = p.task.CompletedAt.Time
	}
	return seconds(max(end.Sub(p.task.CreatedAt.Time), 0))
}

// duration of a step: how long it has been running, or how long its latest
// attempt took, or when it runs again.
func (p picture) duration(n node) string {
	if n.step == nil {
		return ""
	}
	switch n.state {
	case "pending", "enqueued", notCreated:
		return ""
	case "in_progress":
		if n.step.LastAttemptedAt != nil {
			return seconds(max(p.now.Sub(n.step.LastAttemptedAt.Time), 0))
		}
	case "waiting_for_retry":
		if n.step.NextRetryAt != nil {
			return "in " + seconds(max(n.step.NextRetryAt.Sub(p.now), 0))
		}
	}
	if d, ok := p.durations[n.name]; ok {
		return seconds(d)
	}
	return ""
}

func after(parents []string) string {
	if len(parents) == 0 {
		return " " // nothing to say, rather than nothing known
	}
	if extra := len(parents) - maxParentsShown; extra > 0 {
		return fmt.Sprintf("after %s and %d more", strings.Join(parents[:maxParentsShown], ", "), extra)
	}
	return "after " + strings.Join(parents, ", ")
}

// mark is the sign of a state, so that it can be told without colours.
func mark(state string) string {
	switch state {
	case "complete", "resolved_manually":
		return "✓"
	case "error":
		return "✗"
	case "cancelled":
		return "⊘"
	case "in_progress", "enqueued_for_orchestration", "enqueued_as_error_for_orchestration":
		return "●"
	case "waiting_for_retry":
		return "↻"
	case "enqueued":
		return "○"
	}
	return "·"
}

// mostInteresting chooses the nodes to show where not all fit, in their order,
// and sums up the rest.
func mostInteresting(nodes []node, room int) (shown []node, rest string) {
	rank := map[string]int{
		"error": 0, "in_progress": 1, "enqueued_as_error_for_orchestration": 1, "enqueued_for_orchestration": 2,
		"waiting_for_retry": 2, "enqueued": 3, "pending": 4, "cancelled": 5, "resolved_manually": 5, "complete": 6, notCreated: 7,
	}
	order := make([]int, len(nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return rank[nodes[a].state] - rank[nodes[b].state] })
	keep := make([]bool, len(nodes))
	for _, i := range order[:min(room, len(order))] {
		keep[i] = true
	}
	counts := map[string]int{}
	var states []string
	hidden := 0
	for i, n := range nodes {
		if keep[i] {
			shown = append(shown, n)
			continue
		}
		if counts[n.state] == 0 {
			states = append(states, n.state)
		}
		counts[n.state]++
		hidden++
	}
	for i, s := range states {
		states[i] = fmt.Sprintf("%d %s", counts[s], s)
	}
	return shown, fmt.Sprintf("… and %d more: %s", hidden, strings.Join(states, ", "))
}
