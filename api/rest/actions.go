package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// Actions are the actions of operators on tasks; *orchestration.Orchestrator implements
// it. It records each with the actor and the reason.
type Actions interface {
	// Act acts on one task; the error may be an *orchestration.InvalidError or
	// *orchestration.TransitionError, or wrap store.ErrNotFound or store.ErrTaskEnded.
	Act(ctx context.Context, task uuid.UUID, a orchestration.Action) error
	// ActOnMany does the same to many.
	ActOnMany(ctx context.Context, b orchestration.Bulk) (orchestration.BulkResult, error)
	// Preview computes the effect of Act; its errors are those of Act.
	Preview(ctx context.Context, task uuid.UUID, a orchestration.Action) (orchestration.Preview, error)
	// PreviewReplay computes the context with which Replay would create a task.
	PreviewReplay(ctx context.Context, task uuid.UUID, r orchestration.Replay) (orchestration.Preview, error)
	// Replay creates a task that does the same again.
	Replay(ctx context.Context, task uuid.UUID, r orchestration.Replay) (orchestration.Created, error)
	// ReplayDeadLetters replays many. Like ActOnMany, it returns the partial result with
	// an error.
	ReplayDeadLetters(ctx context.Context, r orchestration.ReplayMany) (orchestration.BulkResult, error)
	// Pause and Resume act on a namespace, or a callable of it; the error wraps
	// store.ErrNotFound if it does not exist.
	Pause(ctx context.Context, p store.Pause) error
	Resume(ctx context.Context, p store.Pause) error
	// DeprecateTemplate marks a template version as deprecated, or removes the mark; the
	// error wraps store.ErrNotFound if the version does not exist.
	DeprecateTemplate(ctx context.Context, namespace, name, version string, deprecated bool, why orchestration.Why) error
}

// actionRoutes let operators act on tasks and steps.
type actionRoutes struct {
	*api
	tasks   *taskRoutes
	actions Actions
	letters DeadLetters // nil: no entry can be opened by hand
}

func (r *actionRoutes) add() {
	add(r.api, operation{method: http.MethodPatch, path: "/v1/tasks/{uuid}/workflow_steps/{step_uuid}", id: "act-on-step", tag: "steps",
		summary: "Reset, resolve or complete a step by hand", body: client.StepAction{}}, r.actOnStep)
	add(r.api, operation{method: http.MethodPost, path: "/v1/tasks/{uuid}/actions", id: "act-on-task", tag: tasksTag,
		summary: "Act on a task by hand; a replay answers with the new task", body: client.TaskAction{}}, r.actOnTask)
	add(r.api, operation{method: http.MethodPost, path: "/v1/tasks/{uuid}/actions/preview", id: "preview-action", tag: tasksTag,
		summary: "Preview an action on a task", body: client.TaskAction{}}, r.preview)
	add(r.api, operation{method: http.MethodPost, path: "/v1/tasks/actions", id: "act-on-tasks", tag: tasksTag,
		summary: "Act on many tasks, or preview it", body: client.BulkAction{}}, r.actOnMany)
}

// actOnStep answers PATCH of a step.
func (r *actionRoutes) actOnStep(ctx context.Context, in *stepPath) (*client.Step, error) {
	taskID, stepID, err := in.ids()
	if err != nil {
		return nil, err
	}
	var body stepActionBody
	if err := readBody(ctx, &body); err != nil {
		return nil, err
	}
	action, err := body.action()
	if err != nil {
		return nil, err
	}
	if err := r.checkStep(ctx, taskID, stepID); err != nil {
		return nil, err
	}
	action.Step = &stepID
	if err := r.actions.Act(ctx, taskID, action); err != nil {
		return nil, refusedStep(action.Kind, err)
	}
	task, err := r.tasks.store.Task(ctx, taskID)
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
	task, err := r.tasks.store.Task(ctx, taskID)
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
func (r *actionRoutes) actOnTask(ctx context.Context, in *taskInput) (*client.Task, error) {
	id, body, action, err := r.taskAction(ctx, in)
	if err != nil {
		return nil, err
	}
	shown := id
	switch *body.Action {
	case client.ActionReplay:
		created, replayErr := r.actions.Replay(ctx, id, replayOf(&action))
		shown, err = created.UUID, replayErr
	case client.ActionDeadLetter:
		_, err = openLetter(ctx, r.letters, id, action.Reason, action.Actor, nil)
	default:
		err = r.actions.Act(ctx, id, action)
	}
	if err != nil {
		return nil, r.refusedTask(ctx, id, *body.Action, err)
	}
	task, err := r.tasks.show(ctx, shown, display{})
	if err != nil {
		return nil, butActed(shown, err)
	}
	return task, nil
}

// taskAction reads an action on a task, and looks for its step.
func (r *actionRoutes) taskAction(ctx context.Context, in *taskInput) (id uuid.UUID, body taskActionBody, action orchestration.Action, err error) {
	if id, err = parseTask(in.UUID); err != nil {
		return id, body, action, err
	}
	if err = readBody(ctx, &body); err != nil {
		return id, body, action, err
	}
	if action, err = body.action(); err == nil && action.Step != nil {
		err = ofTask(id, r.checkStep(ctx, id, *action.Step))
	}
	return id, body, action, err
}

// replayOf is an action that is a replay.
func replayOf(a *orchestration.Action) orchestration.Replay {
	return orchestration.Replay{Actor: a.Actor, Reason: a.Reason, Edit: a.Edit}
}

// ofTask adds the task to a not-found error.
func ofTask(id uuid.UUID, err error) error {
	var known *failure
	if errors.Is(err, store.ErrNotFound) && !errors.As(err, &known) {
		return notFound(fmt.Sprintf("Task not found: %s", id))
	}
	return err
}

// refusedTask explains why an action was rejected.
func (r *actionRoutes) refusedTask(ctx context.Context, id uuid.UUID, action string, err error) error {
	switch {
	case action == client.ActionCancel:
		err = r.tasks.notCancelled(ctx, id, err)
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
func (r *actionRoutes) actOnMany(ctx context.Context, _ *struct{}) (*client.BulkResult, error) {
	var body bulkBody
	if err := readBody(ctx, &body); err != nil {
		return nil, err
	}
	bulk, err := body.bulk()
	if err != nil {
		return nil, err
	}
	done, err := r.actions.ActOnMany(ctx, bulk)
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
	f.message = fmt.Sprintf("%s. %d of %d were done before that; repeating the request continues from there", f.message, done.Changed, done.Matched)
	return fmt.Errorf("%d of %d were done: %w", done.Changed, done.Matched, errors.Join(&f, err))
}

func bulkResultOf(r orchestration.BulkResult) *client.BulkResult {
	w := &client.BulkResult{Matched: r.Matched, Changed: r.Changed, Skipped: r.Skipped, DryRun: r.DryRun, Tasks: []string{}}
	for _, id := range r.Tasks[:min(len(r.Tasks), client.MaxBulkTasks)] {
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
