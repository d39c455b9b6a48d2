package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
)

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
		listing(a, heads{"STEP", "ATTEMPT", "OUTCOME", "WAITED", "RAN", axis}, func(s *client.StepAttempt) row {
			return row{s.StepName, s.Attempt, stateCell(s.Outcome), elapsed(s.Enqueued, s.Claimed), elapsed(s.Claimed, s.Reported), bar(*s, span)}
		})(line.Attempts)
		a.printf("\n░ waiting  █ running  ▒ being applied\n")
	}
	if len(line.Events) == 0 {
		return
	}
	a.printf("\n")
	listing(a, heads{"AT", "FROM", "TO", "ACTOR", "REASON"}, func(e *client.TimelineEvent) row {
		return row{fmt.Sprintf("%.3fs", e.Seconds), e.From, stateCell(e.To), e.Actor, e.Reason}
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
