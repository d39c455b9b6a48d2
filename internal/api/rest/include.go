package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/execution"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// included are the optional parts of an answer.
type included struct {
	context bool
	results bool // of the last steps
	all     bool // of all of them
}

// parseInclude reads a list such as "results,context" of allowed words.
func parseInclude(text string, allowed ...string) (in included, err error) {
	if text == "" {
		return in, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		if !slices.Contains(allowed, word) {
			return in, badRequest(fmt.Sprintf("include can be %s, not %q", strings.Join(allowed, " or "), clip(word, 64)))
		}
		in.context = in.context || word == client.IncludeContext
		in.all = in.all || word == client.IncludeAllResults
		in.results = in.results || word == client.IncludeResults || in.all
	}
	return in, nil
}

// display is how to show a task: after waiting for its end, and its parts.
type display struct {
	wait    time.Duration
	include included
}

func (t *taskRoutes) parseShown(q *shownQuery) (how display, err error) {
	if how.wait, err = t.parseWait(q.Wait); err != nil {
		return how, err
	}
	how.include, err = parseInclude(q.Include, client.IncludeResults, client.IncludeAllResults)
	how.include.results = how.include.results || how.wait > 0 // who waits for the end wants what came of it
	return how, err
}

// show reads a task, after waiting for its end.
func (t *taskRoutes) show(ctx context.Context, id uuid.UUID, how display) (*client.Task, error) {
	if err := t.await(ctx, id, how.wait); err != nil {
		return nil, err
	}
	read := t.store.TaskWithoutResults
	if how.include.results {
		read = t.store.Task
	}
	task, err := read(ctx, id)
	if err != nil {
		return nil, ofTask(id, err)
	}
	w := taskFor(ctx, task, true)
	if err := t.addUnserved(ctx, task, w); err != nil {
		return nil, err
	}
	if how.include.results {
		w.Results, w.Errors = outcomesOf(task, how.include.all)
	}
	return w, nil
}

// addUnserved adds the waiting steps that no live worker can run.
func (t *taskRoutes) addUnserved(ctx context.Context, task *store.Task, w *client.Task) error {
	counts := task.Counts()
	if counts.Ready == 0 {
		return nil
	}
	unserved, err := t.store.UnservedSteps(ctx, task.UUID, FleetLive)
	if err != nil {
		return err
	}
	for i := range task.Steps {
		if u, ok := unserved[task.Steps[i].No]; ok && task.Steps[i].Ready {
			counts.Unserved++
			w.Steps[i].Waiting = &client.Waiting{Kind: client.WaitingForWorker, Reason: u.String()}
		}
	}
	if counts.Unserved > 0 {
		condition := execution.Derive(counts)
		w.ExecutionStatus, w.RecommendedAction = condition.Status, condition.RecommendedAction
	}
	return nil
}

// outcomesOf returns results by step name: of the last steps, or of all, and the failures
// of steps without a result.
func outcomesOf(t *store.Task, all bool) (results map[string]json.RawMessage, failures map[string]client.StepError) {
	results, failures = map[string]json.RawMessage{}, map[string]client.StepError{}
	for i := range t.Steps {
		s := &t.Steps[i]
		switch {
		case s.State == workflow.StepComplete && (all || isLast(t, s.No)):
			results[s.Name] = rawOr(s.Result, "null")
		case s.State == workflow.StepError || s.State == workflow.StepWaitingForRetry:
			if r := resultOf(t, s); r != nil && r.Error != nil {
				failures[s.Name] = *r.Error
			}
		}
	}
	return results, failures
}

// isLast reports whether no step of the task follows a step. If the following step is a
// template of batches, its batches count.
func isLast(t *store.Task, no int) bool {
	step := t.Plan.Step(t.Progress, no)
	return step != nil && !slices.ContainsFunc(step.Children, func(child int) bool {
		return t.Progress.Steps[child].Status != workflow.StatusNotCreated ||
			slices.ContainsFunc(t.Progress.Groups, func(g workflow.Group) bool { return g.Template == child })
	})
}
