package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/workflow"
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
		rows.row(cell{arrow + cmp.Or(marks[n.state], "·") + " " + n.name, stateStyle(n.state)}, stateCell(n.state),
			share(n.attempts, n.maximum), p.duration(n), after(n.parents))
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

// marks are the signs of states, for screens without colours.
var marks = map[string]string{
	"complete": "✓", "resolved_manually": "✓", "error": "✗", "cancelled": "⊘", "in_progress": "●",
	"enqueued_for_orchestration": "●", "enqueued_as_error_for_orchestration": "●", "waiting_for_retry": "↻", "enqueued": "○",
}

// mostInteresting chooses the nodes to show where not all fit, in their order,
// and sums up the rest.
func mostInteresting(nodes []node, room int) (shown []node, rest string) {
	rank := map[string]int{
		"error": 0, "in_progress": 1, "enqueued_as_error_for_orchestration": 1, "enqueued_for_orchestration": 2,
		"waiting_for_retry": 2, "enqueued": 3, "pending": 4, "cancelled": 5, "resolved_manually": 5, "complete": 6, notCreated: 7,
	}
	byRank := slices.Clone(nodes)
	slices.SortStableFunc(byRank, func(a, b node) int { return rank[a.state] - rank[b.state] })
	hidden := map[string]bool{}
	for _, n := range byRank[min(room, len(byRank)):] {
		hidden[n.name] = true
	}
	counts := map[string]int{}
	var states []string
	for _, n := range nodes {
		if !hidden[n.name] {
			shown = append(shown, n)
			continue
		}
		if counts[n.state]++; counts[n.state] == 1 {
			states = append(states, n.state)
		}
	}
	for i, s := range states {
		states[i] = fmt.Sprintf("%d %s", counts[s], s)
	}
	return shown, fmt.Sprintf("… and %d more: %s", len(hidden), strings.Join(states, ", "))
}

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
			nodes = append(nodes, node{name: s.Name})
			if i := patternOf(nodes[:declared], s.Name); i >= 0 { // such as worker_003
				nodes[at].parents = nodes[i].parents
			}
		}
		n := &nodes[at]
		n.state, n.attempts, n.maximum, n.step = s.CurrentState, s.Attempts, s.MaxAttempts, s
	}
	nodes = withoutUsedPatterns(nodes, declared)
	setLevels(nodes)
	slices.SortStableFunc(nodes, func(a, b node) int { return cmp.Compare(a.level, b.level) })
	return nodes
}

// patternOf finds the declared step that an instance is made from: one whose name
// begins its own.
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

// barWidth is the width of the time axis, in characters.
const barWidth = 40

// showTimeline draws the history of a task: a bar for every attempt, then the
// transitions of the task.
func (a *app) showTimeline(line *client.Timeline) {
	took := "still going"
	if line.Seconds != nil {
		took = "took " + seconds(duration(*line.Seconds))
	}
	a.printf("%s  requested %s, %s\n", line.TaskUUID, instant(&line.Start), took)
	span := spanOf(line)
	if len(line.Attempts) > 0 {
		a.printf("\n")
		axis := "0 " + strings.Repeat("·", barWidth-len(seconds(span))-3) + " " + seconds(span)
		retried := backoffs(line.Attempts)
		listing(a, func(s *client.StepAttempt) facts {
			from := retried[attemptOf{s.StepUUID, s.Attempt}]
			ran, of := elapsed(s.Claimed, s.Reported), s.WaitsFor
			if of != "" {
				ran, of = "", elapsed(s.Claimed, s.Reported)+" for "+waitedFor[of]
			}
			return facts{{"STEP", s.StepName}, {"ATTEMPT", s.Attempt},
				{"OUTCOME", stateCell(s.Outcome)}, {"BACKED OFF", elapsed(from, s.Enqueued)},
				{"WAITED", cmp.Or(of, elapsed(s.Enqueued, s.Claimed))}, {"RAN", ran}, {axis, bar(*s, from, span)}}
		})(line.Attempts)
		a.printf("\n· backing off  ░ in line  █ running  ─ waiting for a decision or the like  ▒ being applied\n")
	}
	if len(line.Events) == 0 {
		return
	}
	a.printf("\n")
	listing(a, func(e *client.TimelineEvent) facts {
		return facts{{"AT", fmt.Sprintf("%.3fs", e.Seconds)}, {"FROM", e.From},
			{"TO", stateCell(e.To)}, {"ACTOR", e.Actor}, {"REASON", e.Reason}}
	})(line.Events)
	for _, e := range line.Events {
		if e.ContextEdited {
			a.printf("\nthe input was edited at %.3fs by %s\n", e.Seconds, oneLine(e.Actor))
			if len(e.ContextChanges) > 0 {
				a.showContextChanges(e.ContextChanges, e.MoreContextChanges)
			}
		}
	}
}

// taskTimeline shows the history of a task, and which of its steps back off now.
func (a *app) taskTimeline(ctx context.Context, c *api, args []string) error {
	line, err := c.Timeline(ctx, args[0])
	if err != nil {
		return err
	}
	return a.emit(line, func() {
		a.showTimeline(line)
		if line.Seconds == nil {
			a.showBackingOff(ctx, c, args[0])
		}
	})
}

// showBackingOff names the steps that wait for another attempt. The history does without
// when the server does not tell.
func (a *app) showBackingOff(ctx context.Context, c *api, id string) {
	task, err := c.Task(ctx, id, 0)
	if err != nil {
		a.logf(1, "which steps back off is not known: %v", err)
		return
	}
	for i := range task.Steps {
		if s := &task.Steps[i]; s.NextRetryAt != nil {
			a.printf("\n%s backs off until %s\n", oneLine(s.Name), cellOf(s.NextRetryAt).text)
		}
	}
}

// attemptOf names one execution of a step.
type attemptOf struct {
	step    string
	attempt int
}

// backoffs is when the attempt before each one was applied: from then until it was put in
// line the step backed off.
func backoffs(attempts []client.StepAttempt) map[attemptOf]*float64 {
	from := map[attemptOf]*float64{}
	for i := range attempts {
		from[attemptOf{attempts[i].StepUUID, attempts[i].Attempt + 1}] = attempts[i].Applied
	}
	return from
}

// waitedFor says what steps that the engine runs wait for.
var waitedFor = map[string]string{"sleep": "its time", "wait_for_event": "an event", "approval": "a decision", "task": "its task"}

// spanOf is the length of the time axis: to the latest thing that is known.
func spanOf(line *client.Timeline) time.Duration {
	last := 0.001
	if line.Seconds != nil {
		last = max(last, *line.Seconds)
	}
	for _, e := range line.Events {
		last = max(last, e.Seconds)
	}
	for _, attempt := range line.Attempts {
		for _, at := range []*float64{attempt.Enqueued, attempt.Claimed, attempt.Reported, attempt.Applied} {
			if at != nil {
				last = max(last, *at)
			}
		}
	}
	return duration(last)
}

func elapsed(from, to *float64) string {
	if from == nil || to == nil {
		return ""
	}
	return seconds(duration(max(*to-*from, 0)))
}

// bar draws one attempt on the axis: backing off since the one before, in line, running or
// waiting for something, being applied. Each part that took place has at least one character.
func bar(a client.StepAttempt, retried *float64, span time.Duration) string {
	row := []rune(strings.Repeat(" ", barWidth))
	column := func(s float64) int {
		return min(max(int(math.Floor(s/span.Seconds()*barWidth)), 0), barWidth-1)
	}
	draw := func(from, to *float64, sign rune) {
		if from == nil || to == nil {
			return
		}
		last := column(*to)
		for i := column(*from); i <= last; i++ {
			row[i] = sign
		}
	}
	// Later parts are drawn first where they are short, so that running, the
	// part that matters, is on top.
	draw(retried, a.Enqueued, '·')
	draw(a.Enqueued, a.Claimed, '░')
	draw(a.Reported, a.Applied, '▒')
	if a.WaitsFor != "" {
		draw(a.Claimed, a.Reported, '─') // nothing ran
	} else {
		draw(a.Claimed, a.Reported, '█')
	}
	return strings.TrimRight(string(row), " ")
}
