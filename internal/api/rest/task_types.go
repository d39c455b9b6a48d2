package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/execution"
	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/priorities"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/wire"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// typeRoutes register task types and enqueue tasks of them.
type typeRoutes struct {
	*taskRoutes
	metrics *telemetry.Metrics
}

func (r *typeRoutes) add() {
	const one, queue = "/v1/task-types/{name}", "/v1/enqueue"
	op := operation{tag: "task types"}
	add(r.api, op.at(http.MethodGet, "/v1/task-types", "list-task-types", "List task types by namespace and name"), r.list)
	addBody(r.api, op.at(http.MethodPut, one, "put-task-type", "Register a task type, or change it"), r.put)
	add(r.api, op.at(http.MethodGet, one, "get-task-type", "Show a task type"), r.get)
	add(r.api, op.at(http.MethodDelete, one, "delete-task-type", "Delete a task type; its tasks continue"), r.remove)
	enqueue := op.at(http.MethodPost, queue, "enqueue", "Create a task of a type")
	enqueue.status, enqueue.also = http.StatusCreated, "The existing task with the idempotency key"
	addOwn[struct{}, client.EnqueueRequest, client.Enqueued](r.api, enqueue, r.counted(r.enqueue))
	add(r.api, op.at(http.MethodGet, queue+"/{uuid}", "get-enqueued", "Show the state of a task of one step, or wait for its end"), r.showEnqueued)
}

// typeInput selects a task type.
type typeInput struct {
	Name      string `path:"name"`
	Namespace string `query:"namespace" doc:"default when absent"`
}

// key checks the name and the namespace of a type.
func (in *typeInput) key() (namespace, name string, err error) {
	var c checked
	namespace = cmp.Or(in.Namespace, limits.DefaultTypeNamespace)
	c.text("namespace", namespace, orchestration.MaxNameLength)
	name = c.filled("name", in.Name, orchestration.MaxNameLength)
	return namespace, name, c.err()
}

func (r *typeRoutes) list(ctx context.Context, in *struct {
	Namespace string `query:"namespace" doc:"Only of this namespace"`
	Limit     number `query:"limit" within:"1,1000,1000" doc:"1 to 1000; default 1000"`
	Offset    number `query:"offset" within:"0,100000,0" doc:"From the how-many-th on; default 0"`
}) (*wire.TaskTypeList, error) {
	if err := filterText("namespace", in.Namespace); err != nil {
		return nil, err
	}
	types, err := r.engine.TaskTypes(ctx, in.Namespace, int(in.Limit), int(in.Offset))
	return &wire.TaskTypeList{TaskTypes: each(types, typeOf)}, err
}

func (r *typeRoutes) put(ctx context.Context, in *struct {
	Name string `path:"name"`
}, body *request[client.TaskTypeRequest]) (*client.TaskType, error) {
	body.filled("name", in.Name, orchestration.MaxNameLength)
	why := body.whyOr(body.body.Reason, body.body.Actor, r.actor, "registered over the API")
	if err := body.err(); err != nil {
		return nil, err
	}
	template, err := templateOf(in.Name, &body.body)
	if err != nil {
		return nil, err
	}
	if err := within(ctx, template.Namespace); err != nil {
		return nil, err
	}
	t, err := r.engine.RegisterTaskType(ctx, template, why)
	if err != nil {
		return nil, err
	}
	return new(typeOf(&t)), nil
}

func (r *typeRoutes) get(ctx context.Context, in *typeInput) (*client.TaskType, error) {
	namespace, name, err := in.key()
	if err != nil {
		return nil, err
	}
	t, err := r.engine.TaskType(ctx, namespace, name)
	if err != nil {
		return nil, ofType(namespace, name, err)
	}
	return new(typeOf(&t)), nil
}

func (r *typeRoutes) remove(ctx context.Context, in *struct {
	typeInput
	whyQuery
}) (*client.TaskType, error) {
	namespace, name, err := in.key()
	if err != nil {
		return nil, err
	}
	why, err := r.optionalWhy(ctx, in.whyQuery, "deleted over the API")
	if err != nil {
		return nil, err
	}
	t, err := r.engine.DeleteTaskType(ctx, namespace, name, why)
	if err != nil {
		return nil, ofType(namespace, name, err)
	}
	return new(typeOf(&t)), nil
}

func ofType(namespace, name string, err error) error {
	return missing(err, "Task type not found: %s/%s", clip(namespace, 64), clip(name, 64))
}

// showEnqueued answers for tasks of one step, whether of a type or of another template.
func (r *typeRoutes) showEnqueued(ctx context.Context, in *showInput) (*client.EnqueuedTask, error) {
	wait, err := r.parseWait(in.Wait)
	if err != nil {
		return nil, err
	}
	if err := r.await(ctx, in.UUID, wait); err != nil {
		return nil, err
	}
	t, err := r.store.Task(ctx, in.UUID)
	if err != nil {
		return nil, ofTask(in.UUID, err)
	}
	if len(t.Plan.Steps) != 1 || len(t.Steps) != 1 {
		return nil, notFound(fmt.Sprintf("Task %s has several steps; it is shown at /v1/tasks/%s", in.UUID, in.UUID))
	}
	return enqueuedOf(ctx, t), nil
}

func enqueuedOf(ctx context.Context, t *store.Task) *client.EnqueuedTask {
	step := &t.Steps[0]
	w := &client.EnqueuedTask{
		ID: t.UUID.String(), Type: t.Plan.Template.Name, Queue: t.Plan.Template.Namespace,
		Status: execution.VisibleState(t.State, t.Counts()).String(), Attempts: step.Attempts, MaxAttempts: retryPolicy(t, step).MaxAttempts,
		Payload: shownInput(ctx, rawOr(t.Context, "{}")), Result: step.Result, CreatedAt: client.Time{Time: t.RequestedAt},
		NextRetryAt: instant(nextRetry(step)), CompletedAt: instant(t.CompletedAt),
	}
	if step.Result == nil {
		w.Error = step.Error
	}
	return w
}

// typeOf is a task type for the API.
func typeOf(t *store.TaskType) client.TaskType {
	template := t.Plan.Template
	step, priority := &template.Steps[0], 0
	if template.Priority != nil {
		priority = *template.Priority
	}
	retry := step.Retry
	w := client.TaskType{
		Name: template.Name, Namespace: template.Namespace, Version: template.Version, Description: template.Description,
		Handler: step.Handler.Callable, PayloadSchema: template.InputSchema, Priority: priority, PriorityLevel: priorities.LevelOf(priority),
		Retry: client.TypeRetry{Retryable: &retry.Retryable, MaxAttempts: &retry.MaxAttempts, Backoff: string(cmp.Or(retry.Backoff, workflow.BackoffExponential)),
			BackoffBaseMS: &retry.BaseMS, MaxBackoffMS: &retry.MaxMS, BackoffDelaysMS: retry.DelaysMS},
		TimeoutSeconds: step.TimeoutSeconds, Tags: step.Tags,
		CreatedAt: client.Time{Time: t.CreatedAt}, CreatedBy: t.CreatedBy, UpdatedAt: client.Time{Time: t.UpdatedAt}, UpdatedBy: t.UpdatedBy,
	}
	if step.Limit != nil {
		w.Limit, _ = json.Marshal(step.Limit) // it was read from JSON
	}
	w.Identity.Strategy = string(dedup.StrategyOf(template.Identity))
	if p := template.Identity; p != nil {
		w.Identity.Window, w.Identity.Calendar, w.Identity.TimeZone, w.Identity.KeyLifetime = p.Window, string(p.Calendar), p.TimeZone, p.KeyLifetime
	}
	return w
}

// templateOf makes a template of a type with the reader of template files: types follow
// the rules of templates.
func templateOf(name string, r *client.TaskTypeRequest) (*workflow.Template, error) {
	retry := client.TypeRetry{}
	if r.Retry != nil {
		retry = *r.Retry
	}
	if r.MaxAttempts != nil {
		if retry.MaxAttempts != nil && *retry.MaxAttempts != *r.MaxAttempts {
			return nil, badRequest("max_attempts and retry.max_attempts contradict each other; give one of them")
		}
		retry.MaxAttempts = r.MaxAttempts
	}
	identity := client.TypeIdentity{}
	if r.Identity != nil {
		identity = *r.Identity
	}
	identity.Strategy = cmp.Or(identity.Strategy, string(workflow.IdentityAlwaysUnique))
	step := map[string]any{"name": name, "handler": map[string]any{"callable": cmp.Or(r.Handler, name)}, "retry": retry}
	if r.TimeoutSeconds != 0 {
		step["timeout_seconds"] = r.TimeoutSeconds
	}
	if len(r.Tags) > 0 {
		step["tags"] = r.Tags
	}
	if !absent(r.Limit) {
		step["limit"] = r.Limit
	}
	document := map[string]any{
		"name": name, "namespace_name": cmp.Or(r.Namespace, limits.DefaultTypeNamespace), "version": cmp.Or(r.Version, limits.DefaultTypeVersion),
		"description": r.Description, "identity": identity, "steps": []any{step},
	}
	if !absent(r.PayloadSchema) {
		if err := jsonscan.CheckStorable(r.PayloadSchema); err != nil {
			return nil, badRequest("payload_schema cannot be stored: " + err.Error())
		}
		document["input_schema"] = r.PayloadSchema
	}
	if r.Priority != nil {
		document["priority"] = *r.Priority
	}
	if r.PriorityLevel != nil {
		document["priority_level"] = *r.PriorityLevel
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, badRequest("the task type cannot be read")
	}
	parsed, problems, err := template.Parse("task type", text)
	if err != nil {
		return nil, badRequest(wordsOf(problems, func(p template.Problem) string { return typeWords.Replace(p.Message) }))
	}
	return parsed, nil
}

// typeWords translates the keys of a template to those of a type.
var typeWords = strings.NewReplacer("steps[0].handler.callable", "handler", "steps[0].retry", "retry", "steps[0].", "",
	"input_schema", "payload_schema", "namespace_name", "namespace")

// wordsOf lists the errors of a template, up to ten.
func wordsOf(problems template.Problems, word func(template.Problem) string) string {
	var words []string
	for _, p := range problems.Errors() {
		if len(words) < 10 {
			words = append(words, clip(word(p), 300))
		}
	}
	return strings.Join(words, "; ")
}
