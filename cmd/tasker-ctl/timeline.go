package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
)

// barWidth is the width of the time axis, in characters.
const barWidth = 40

// timeline draws the history of a task: a bar for every attempt, then the
// transitions of the task.
func (a *app) timeline(ctx context.Context, c *client.Client, id string) error {
	line, err := c.Timeline(ctx, id)
	if err != nil {
		return err
	}
	return a.emit(line, func() { a.showTimeline(line) })
}

func (a *app) showTimeline(line *client.Timeline) {
	took := "still going"
	if line.Seconds != nil {
		took = "took " + seconds(duration(*line.Seconds))
	}
	a.printf("%s  requested %s, %s\n", line.TaskUUID, instant(&line.Start), took)
	span := spanOf(line)
	if len(line.Attempts) > 0 {
		a.printf("\n")
		t := a.newTable("STEP", "ATTEMPT", "OUTCOME", "WAITED", "RAN", "0 "+strings.Repeat("·", barWidth-len(seconds(span))-3)+" "+seconds(span))
		for _, attempt := range line.Attempts {
			t.row(attempt.StepName, attempt.Attempt, cell{attempt.Outcome, outcomeStyle(attempt.Outcome)},
				between(attempt.Enqueued, attempt.Claimed), between(attempt.Claimed, attempt.Reported), bar(attempt, span))
		}
		t.write(a.stdout)
		a.printf("\n░ waiting  █ running  ▒ being applied\n")
	}
	if len(line.Events) == 0 {
		return
	}
	a.printf("\n")
	t := a.newTable("AT", "FROM", "TO", "ACTOR", "REASON")
	for _, e := range line.Events {
		t.row(fmt.Sprintf("%.3fs", e.Seconds), e.From, stateCell(e.To), e.Actor, e.Reason)
	}
	t.write(a.stdout)
	for _, e := range line.Events {
		if e.ContextEdited {
			a.printf("\nthe input was edited at %.3fs by %s\n", e.Seconds, oneLine(e.Actor))
			if len(e.ContextChanges) > 0 {
				a.showContextChanges(e.ContextChanges, e.MoreContextChanges)
			}
		}
	}
}

func outcomeStyle(outcome string) style {
	switch outcome {
	case "success":
		return green
	case "failed", "lease_lost":
		return yellow
	case "error":
		return red
	}
	return dim
}

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

func between(from, to *float64) any {
	if from == nil || to == nil {
		return nil
	}
	return seconds(duration(max(*to-*from, 0)))
}

// bar draws one attempt on the axis: waiting, running, being applied. Each
// part that took place has at least one character.
func bar(a client.StepAttempt, span time.Duration) string {
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
	draw(a.Enqueued, a.Claimed, '░')
	draw(a.Reported, a.Applied, '▒')
	draw(a.Claimed, a.Reported, '█')
	return strings.TrimRight(string(row), " ")
}
