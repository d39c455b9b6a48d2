package orchestration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/workflow"
)

// Preview is the effect an action would have on a task.
type Preview struct {
	// Steps are the changed steps, in the order of their numbers.
	Steps []StepPreview
	// Ended is the state in which the task would end; 0: it would not end.
	Ended workflow.TaskState
	// ContextBefore and ContextAfter are nil where the context is unchanged.
	ContextBefore, ContextAfter json.RawMessage
}

// StepPreview is the effect an action would have on a step.
type StepPreview struct {
	Step int
	// Gone: a step that was created at run time is forgotten. It may or may not be
	// created again.
	Gone  bool
	State workflow.StepState // unless it is gone
	// Batch is the name of a batch that would be made, and Run distinguishes it from
	// earlier ones with its number, see store.BatchUUID.
	Batch string
	Run   int
}

// Preview returns the effect of an action on a task in its present state: it takes the
// task, runs the same rules, and commits nothing. The errors are those of Act. Actions
// that change no step and no context cannot be previewed.
func (o *Orchestrator) Preview(ctx context.Context, task uuid.UUID, a Action) (Preview, error) {
	if err := a.check(); err != nil {
		return Preview{}, err
	}
	if a.Kind == ActionReleaseLease || a.Kind == ActionReprioritise {
		return Preview{}, invalid("there is no preview of %s", a.Kind)
	}
	taken, err := o.store.TakeTasks(ctx, []uuid.UUID{task}, a.taking())
	if err != nil {
		return Preview{}, fmt.Errorf("preview %s: %w", a.Kind, err)
	}
	defer taken.Release()
	if len(taken.Tasks) == 0 {
		taken.Release() // what follows wants a connection too
		return Preview{}, fmt.Errorf("preview %s: %w", a.Kind, o.store.WhyNotAlive(ctx, task))
	}
	t := &taken.Tasks[0]
	c, err := o.actOne(ctx, t, &a)
	if err != nil {
		return Preview{}, err
	}
	p := Preview{Steps: changedSteps(t.Progress, c.Progress, c.Effects), ContextBefore: c.Action.ContextBefore, ContextAfter: c.Action.Context}
	if c.Effects.Finished {
		p.Ended = c.Effects.State
	}
	if err := p.nameNew(ctx, taken, c.Effects.Batches); err != nil {
		return Preview{}, fmt.Errorf("preview %s: %w", a.Kind, err)
	}
	return p, nil
}

// nameNew names the batches that would be made.
func (p *Preview) nameNew(ctx context.Context, taken *store.Taken, batches []workflow.NewBatch) error {
	if len(batches) == 0 {
		return nil
	}
	runs, err := taken.NextRuns(ctx, taken.Tasks[0].UUID)
	if err != nil {
		return err
	}
	names := make(map[int]string, len(batches))
	for i := range batches {
		names[batches[i].Step] = batches[i].Name
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if name, made := names[s.Step]; made {
			s.Batch, s.Run = name, runs[s.Step]
		}
	}
	return nil
}

// PreviewReplay returns the context with which a replay would create a task, after the
// same checks. The errors are those of Replay, except for a duplicate.
func (o *Orchestrator) PreviewReplay(ctx context.Context, task uuid.UUID, r Replay) (Preview, error) {
	if err := checkActor(r.Actor, r.Reason); err != nil {
		return Preview{}, err
	}
	old, err := o.store.Task(ctx, task)
	if err != nil {
		return Preview{}, fmt.Errorf("preview replay: %w", err)
	}
	request, err := replayed(old, r, "")
	if err != nil {
		return Preview{}, err
	}
	request.Schema, request.Checks, request.Bounds = o.schema.Quiet(), o.checker, o.cfg.Documents
	if _, err := submission.Prepare(ctx, o.store, &request); err != nil {
		return Preview{}, err
	}
	var p Preview
	if changes, _, err := submission.ContextChanges(old.Context, request.Context, 1); err != nil || len(changes) > 0 {
		p.ContextBefore, p.ContextAfter = old.Context, request.Context
	}
	return p, nil
}

// changedSteps compares a task before and after an action. It includes steps that are
// enqueued again in the same state.
func changedSteps(before, after *workflow.Progress, e *workflow.Effects) (list []StepPreview) {
	again := map[int]bool{}
	for _, p := range e.Put {
		again[p.Step] = true
	}
	for no := range max(len(before.Steps), len(after.Steps)) {
		was, is := statusOf(before, no), statusOf(after, no)
		if was == is && !again[no] && !slices.Contains(e.Remove, no) {
			continue
		}
		list = append(list, StepPreview{Step: no, Gone: is == workflow.StatusNotCreated, State: stateAfter(is)})
	}
	return list
}

func statusOf(p *workflow.Progress, no int) workflow.Status {
	if no >= len(p.Steps) {
		return workflow.StatusNotCreated
	}
	return p.Steps[no].Status
}

// stateAfter is the state that the API would show right after the action.
func stateAfter(s workflow.Status) workflow.StepState {
	if s == workflow.StatusOnBoard {
		return workflow.StepEnqueued
	}
	return store.EndedState(s)
}
