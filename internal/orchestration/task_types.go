package orchestration

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// UnknownTypeError says that there is no such task type.
type UnknownTypeError struct{ Namespace, Type string }

// Error implements error.
func (e *UnknownTypeError) Error() string {
	if e.Namespace == "" {
		return fmt.Sprintf("Unknown task type: %s", e.Type)
	}
	return fmt.Sprintf("Unknown task type: %s in the queue %s", e.Type, e.Namespace)
}

// RegisterTaskType makes a template with one step a task type; its highest version
// that is not deprecated is enqueued. Existing tasks keep their plan. The error wraps
// store.ErrNoTaskType where the name belongs to another template,
// store.ErrVersionUsed where tasks have used the version with other content.
func (o *Orchestrator) RegisterTaskType(ctx context.Context, template *workflow.Template, why Why) (store.TaskType, error) {
	if err := checkActor(why.Actor, why.Reason); err != nil {
		return store.TaskType{}, err
	}
	if n := len(template.Steps); n != 1 {
		return store.TaskType{}, invalid("a task type has one step, not %d", n)
	}
	if len(template.Version) > MaxVersionLength {
		return store.TaskType{}, invalid("version must have at most %d characters", MaxVersionLength)
	}
	t, signals, err := o.store.PutTaskType(ctx, template, store.Registrant{ID: why.Actor, Immutable: o.cfg.Immutable}, why.action("register_task_type"))
	if err == nil {
		o.publish(signals)
	}
	return t, err
}

// DeleteTaskType deletes a task type and returns it: no more tasks of it are created,
// existing ones continue. The error wraps store.ErrNotFound where there is none.
func (o *Orchestrator) DeleteTaskType(ctx context.Context, namespace, name string, why Why) (store.TaskType, error) {
	if err := checkActor(why.Actor, why.Reason); err != nil {
		return store.TaskType{}, err
	}
	t, signals, err := o.store.DeleteTaskType(ctx, namespace, name, why.action("delete_task_type"))
	if err == nil {
		o.publish(signals)
	}
	return t, err
}

// TaskType reads a task type; the error wraps store.ErrNotFound.
func (o *Orchestrator) TaskType(ctx context.Context, namespace, name string) (store.TaskType, error) {
	return o.store.TaskType(ctx, namespace, name)
}

// TaskTypes lists the task types of a namespace, or of all, by namespace and
// name.
func (o *Orchestrator) TaskTypes(ctx context.Context, namespace string, limit, offset int) ([]store.TaskType, error) {
	return o.store.TaskTypes(ctx, namespace, limit, offset)
}

// PlanOfType returns the plan for new tasks of a type. With an empty queue exactly one
// queue must have the type. The error is an *UnknownTypeError or *InvalidError for a
// fault of the sender.
func (o *Orchestrator) PlanOfType(ctx context.Context, queue, name string) (*store.Plan, error) {
	if strings.ContainsRune(name, 0) { // no text of the database has it, and the statement would fail every time
		return nil, &UnknownTypeError{Namespace: queue, Type: name}
	}
	plan, err := o.store.PlanOfType(ctx, queue, name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, &UnknownTypeError{Namespace: queue, Type: name}
	case errors.Is(err, store.ErrTaskTypeAmbiguous):
		return nil, AmbiguousType(name)
	}
	return plan, err
}

// AmbiguousType says that several queues have a task type.
func AmbiguousType(name string) error {
	return invalid("several queues have the task type %s; send queue", name)
}
