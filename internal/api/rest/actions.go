package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// actionRoutes let operators act on tasks and steps.
type actionRoutes struct{ *taskRoutes }

func (r *actionRoutes) add() {
	op := operation{tag: tasksTag}
	addBody(r.api, operation{tag: stepsTag}.at(http.MethodPatch, "/v1/tasks/{uuid}/workflow_steps/{step_uuid}", "act-on-step",
		"Reset, resolve or complete a step by hand"), r.actOnStep)
	addBody(r.api, op.at(http.MethodPost, "/v1/tasks/{uuid}/actions", "act-on-task", "Act on a task by hand; a replay answers with the new task"), r.actOnTask)
	addBody(r.api, op.at(http.MethodPost, "/v1/tasks/{uuid}/actions/preview", "preview-action", "Preview an action on a task"), r.preview)
	addBody(r.api, op.at(http.MethodPost, "/v1/tasks/actions", "act-on-tasks", "Act on many tasks, or preview it"), r.actOnMany)
}

// actOnStep answers PATCH of a step.
func (r *actionRoutes) actOnStep(ctx context.Context, in *stepPath, body *request[client.StepAction]) (*client.Step, error) {
	taskID, stepID, err := in.ids()
	if err != nil {
		return nil, err
	}
	action, err := stepAction(body)
	if err != nil {
		return nil, err
	}
	if err := r.checkStep(ctx, taskID, stepID); err != nil {
		return nil, err
	}
	action.Step = &stepID
	if err := r.engine.Act(ctx, taskID, action); err != nil {
		return nil, refusedStep(action.Kind, err)
	}
	task, err := r.store.Task(ctx, taskID)
	if err != nil {
		return nil, butActed(taskID, err)
	}
	step, err := stepIn(task, stepID)
	if err != nil {
		return nil, err
	}
	shown, err := stepOf(task, step)
	return &shown, err
}

// checkStep returns an error if the task has no such step.
func (r *actionRoutes) checkStep(ctx context.Context, taskID, stepID uuid.UUID) error {
	task, err := r.store.Task(ctx, taskID)
	if err != nil {
		return err
	}
	_, err = stepIn(task, stepID)
	return err
}

// refusedStep gives a transition that is not allowed the words of Tasker.
func refusedStep(kind orchestration.ActionKind, err error) error {
	var refused *orchestration.TransitionError
	switch {
	case errors.As(err, &refused):
		return badRequest(fmt.Sprintf("Cannot manually resolve step: invalid transition from %s to %s", refused.From, pascal(string(kind))))
	case errors.Is(err, store.ErrTaskEnded):
		return badRequest("Cannot manually resolve step: the task has ended")
	}
	return err
}

// pascal makes ResetForRetry of reset_for_retry.
func pascal(snake string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(snake, "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// actOnTask answers POST /v1/tasks/{uuid}/actions.
func (r *actionRoutes) actOnTask(ctx context.Context, in *taskInput, body *request[client.TaskAction]) (*client.Task, error) {
	id := in.UUID
	action, err := r.taskAction(ctx, id, body, false)
	if err != nil {
		return nil, err
	}
	shown := id
	switch body.body.Action {
	case client.ActionReplay:
		created, replayErr := r.engine.Replay(ctx, id, replayOf(&action))
		shown, err = created.UUID, replayErr
	case client.ActionDeadLetter:
		_, _, err = r.store.OpenDeadLetter(ctx, id, workflow.DeadLetterManual, action.Reason, action.Actor, nil)
	default:
		err = r.engine.Act(ctx, id, action)
	}
	if err != nil {
		return nil, r.refusedTask(ctx, id, body.body.Action, err)
	}
	task, err := r.show(ctx, shown, display{})
	if err != nil {
		return nil, butActed(shown, err)
	}
	return task, nil
}

// taskAction checks an action on a task, and looks for its step; dry: it is not carried out.
func (r *actionRoutes) taskAction(ctx context.Context, task uuid.UUID, body *request[client.TaskAction], dry bool) (orchestration.Action, error) {
	action, err := actionOnTask(body, dry)
	if err == nil && action.Step != nil {
		err = ofTask(task, r.checkStep(ctx, task, *action.Step))
	}
	return action, err
}

// replayOf is an action that is a replay.
func replayOf(a *orchestration.Action) orchestration.Replay {
	return orchestration.Replay{Actor: a.Actor, Reason: a.Reason, Edit: a.Edit}
}

// ofTask adds the task to a not-found error.
func ofTask(id uuid.UUID, err error) error { return missing(err, "Task not found: %s", id) }

// refusedTask explains why an action was rejected.
func (r *actionRoutes) refusedTask(ctx context.Context, id uuid.UUID, action string, err error) error {
	switch {
	case action == client.ActionCancel:
		err = r.notCancelled(ctx, id, err)
	case errors.Is(err, store.ErrTaskEnded):
		return badRequest("A task that has ended does not allow " + action)
	}
	return ofTask(id, err)
}

// butActed says that an action was carried out although showing the outcome failed.
func butActed(id uuid.UUID, err error) error {
	f := &failure{status: http.StatusServiceUnavailable, code: codeUnavailable, taskUUID: id.String(),
		message: fmt.Sprintf("The action was carried out, but task %s could not be read back", id)}
	return fmt.Errorf("show the task after the action: %w", errors.Join(f, err))
}

// actOnMany answers POST /v1/tasks/actions.
func (r *actionRoutes) actOnMany(ctx context.Context, _ *struct{}, body *request[client.BulkAction]) (*client.BulkResult, error) {
	bulk, err := bulkAction(body)
	if err != nil {
		return nil, err
	}
	if err := within(ctx, bulk.Select.Namespace); err != nil {
		return nil, err
	}
	done, err := r.engine.ActOnMany(ctx, bulk)
	if err != nil {
		return nil, partly(ctx, done, err)
	}
	return bulkResultOf(done), nil
}

// partly adds the progress of a bulk action to its error.
func partly(ctx context.Context, done orchestration.BulkResult, err error) error {
	if done.Changed == 0 {
		return err
	}
	f := *classify(ctx, err)
	f.message = fmt.Sprintf("%s. %d of %d were done; repeating the request continues from there", f.message, done.Changed, done.Matched)
	return fmt.Errorf("%d of %d were done: %w", done.Changed, done.Matched, errors.Join(&f, err))
}

func bulkResultOf(r orchestration.BulkResult) *client.BulkResult {
	w := &client.BulkResult{Matched: r.Matched, Changed: r.Changed, Skipped: r.Skipped, DryRun: r.DryRun, Tasks: []string{}}
	for _, id := range r.Tasks[:min(len(r.Tasks), limits.MaxBulkTasks)] {
		w.Tasks = append(w.Tasks, id.String())
	}
	return w
}

// statesOf reads the states of a filter.
func statesOf(c *checked, names []string) []workflow.TaskState {
	if len(names) > len(workflow.TaskStates()) {
		c.add("filter.states must have at most %d entries", len(workflow.TaskStates()))
		return nil
	}
	states := make([]workflow.TaskState, 0, len(names))
	for _, name := range names {
		state, ok := workflow.ParseTaskState(name)
		if !ok {
			c.add("%q is not a task state", clip(name, 64))
			continue
		}
		states = append(states, state)
	}
	return states
}
