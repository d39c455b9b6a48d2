package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/places"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
	"github.com/tasker-go/tasker/workflow"
)

const tasksTag = "tasks"

// taskRoutes create, show, await and cancel tasks.
type taskRoutes struct {
	*orchestratorAPI
	// admission decides about new tasks; nil: the command channel does.
	admission Admission
	verify    func(ctx context.Context, task uuid.UUID) (problems []string, err error)
	bulk      *places.Places // one place per batch being read and created
}

func (t *taskRoutes) add() {
	op := operation{tag: tasksTag}
	addOwn[shownQuery, client.TaskRequest, client.Task](t.api, op.at(http.MethodPost, "/v1/tasks", "create-task", "Create a task"), t.create)
	addOwn[struct{}, wire.TaskBatchRequest, client.TaskBatch](t.api, op.at(http.MethodPost, "/v1/tasks/batch", "create-tasks", "Create many tasks, each separately"), t.createMany)
	add(t.api, op.at(http.MethodGet, "/v1/tasks", "list-tasks", "List tasks, newest first"), t.list)
	add(t.api, op.at(http.MethodGet, "/v1/tasks/by-key", "find-task", "Show the task that has an idempotency key"), t.find)
	add(t.api, op.at(http.MethodGet, "/v1/tasks/{uuid}", "get-task", "Show a task with its steps, or wait for its end"), t.get)
	add(t.api, op.at(http.MethodDelete, "/v1/tasks/{uuid}", "cancel-task", "Cancel a task"), t.cancel)
	add(t.api, op.at(http.MethodGet, "/v1/tasks/{uuid}/timeline", "get-timeline", "Show the history of a task"), t.timeline)
	add(t.api, op.at(http.MethodGet, "/v1/tasks/{uuid}/batches", "get-batches", "Show the progress of a task's batches"), t.batches)
	add(t.api, op.at(http.MethodGet, "/v1/tasks/{uuid}/chain", "get-chain", "Show the tasks that a task continues, and those that continue it"), t.chain)
	if t.verify != nil {
		add(t.api, op.at(http.MethodGet, "/v1/tasks/{uuid}/verify", "verify-task", "Check the records of a task for contradictions"), t.check)
	}
}

// shownQuery is how a task is shown, perhaps after a wait for its end.
type shownQuery struct {
	Wait    string `query:"wait" doc:"Answer when the task has ended, or after this time (30s) with its present state; with the results, as include=results has them"`
	Include string `query:"include" enum:"results,all_results" doc:"results: results of the last steps and all failures, by step; all_results: of every step"`
}

// showInput selects a task to show.
type showInput struct {
	taskInput
	shownQuery
}

// findInput selects a task by its idempotency key. Keys are free text, so they are in the
// query; the path cannot be confused with a task, whose identifiers are UUIDs.
type findInput struct {
	Namespace string `query:"namespace" required:"true" doc:"Namespace of the template"`
	Name      string `query:"name" required:"true" doc:"Name of the template; the version does not matter"`
	Key       string `query:"idempotency_key" required:"true" doc:"As in the creation of the task"`
	shownQuery
}

func (t *taskRoutes) get(ctx context.Context, in *showInput) (*client.Task, error) {
	how, err := t.parseShown(&in.shownQuery)
	if err != nil {
		return nil, err
	}
	return t.show(ctx, in.UUID, how)
}

func (t *taskRoutes) find(ctx context.Context, in *findInput) (*client.Task, error) {
	if in.Namespace == "" || in.Name == "" || in.Key == "" {
		return nil, badRequest("namespace, name and idempotency_key are required")
	}
	how, err := t.parseShown(&in.shownQuery)
	if err != nil {
		return nil, err
	}
	id, err := t.store.TaskOfIdentity(ctx, dedup.KeyIdentity(in.Namespace, in.Name, in.Key))
	if err != nil {
		return nil, missing(err, "No task of %s/%s has this idempotency key", printable(in.Namespace), printable(in.Name))
	}
	return t.show(ctx, id, how)
}

// await returns when the task has ended, the wait is over, the server stops, or too many
// requests wait already.
func (t *taskRoutes) await(ctx context.Context, id uuid.UUID, wait time.Duration) error {
	if wait <= 0 || t.stopping.Err() != nil {
		return nil
	}
	place, err := t.waiting.TryTake(exchangeOf(ctx).holder(), 1)
	if err != nil {
		if own := (*places.ShareError)(nil); errors.As(err, &own) {
			t.cfg.Telemetry.SharesRefused.WithLabelValues(own.Label()).Inc()
		}
		return nil // it is answered at once
	}
	defer place.Leave()
	return breaker.Outside(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		defer context.AfterFunc(t.stopping, cancel)()
		_, err := t.engine.Wait(ctx, id)
		if err != nil && ctx.Err() != nil {
			return nil // the wait is over; the task is read anyway
		}
		return err
	})
}

func (t *taskRoutes) cancel(ctx context.Context, in *struct {
	taskInput
	whyQuery
}) (*client.Task, error) {
	why, err := t.optionalWhy(ctx, in.whyQuery, "cancelled over the API")
	if err != nil {
		return nil, err
	}
	if err := t.engine.Cancel(ctx, in.UUID, why.Actor, why.Reason); err != nil {
		return nil, t.notCancelled(ctx, in.UUID, ofTask(in.UUID, err))
	}
	task, err := t.show(ctx, in.UUID, display{})
	if err != nil {
		return nil, butActed(in.UUID, err)
	}
	return task, nil
}

// notCancelled explains why a task was not cancelled, by its state.
func (t *taskRoutes) notCancelled(ctx context.Context, id uuid.UUID, err error) error {
	if !errors.Is(err, store.ErrTaskEnded) {
		return err
	}
	if task, unread := t.store.Task(ctx, id); unread == nil && task.State == workflow.TaskCancelled {
		return badRequest("Cannot cancel a cancelled task")
	}
	return err
}

func (t *taskRoutes) timeline(ctx context.Context, in *taskInput) (*client.Timeline, error) {
	task, err := t.readTask(ctx, in.UUID)
	if err != nil {
		return nil, err
	}
	history, err := t.store.Timeline(ctx, in.UUID)
	if err != nil {
		return nil, err
	}
	return timelineOf(task, history, exchangeOf(ctx).showsInputs()), nil
}

// readTask reads a task without its results; its error names the missing task.
func (o *orchestratorAPI) readTask(ctx context.Context, id uuid.UUID) (*store.Task, error) {
	task, err := o.store.TaskWithoutResults(ctx, id)
	return task, ofTask(id, err)
}

func (t *taskRoutes) check(ctx context.Context, in *taskInput) (*client.Verification, error) {
	problems, err := t.verify(ctx, in.UUID)
	if err != nil {
		return nil, ofTask(in.UUID, err)
	}
	return &client.Verification{TaskUUID: in.UUID.String(), OK: len(problems) == 0, Problems: append([]string{}, problems...)}, nil
}
