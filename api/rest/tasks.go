package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
)

const tasksTag = "tasks"

// taskRoutes create, show, await and cancel tasks.
type taskRoutes struct {
	*api
	engine Engine
	store  Store
	verify func(ctx context.Context, task uuid.UUID) (problems []string, err error)
	actor  string
}

func (t *taskRoutes) add() {
	add(t.api, operation{method: http.MethodPost, path: "/v1/tasks", id: "create-task", tag: tasksTag,
		summary: "Create a task", body: client.TaskRequest{}}, t.create)
	add(t.api, operation{method: http.MethodGet, path: "/v1/tasks", id: "list-tasks", tag: tasksTag,
		summary: "List tasks, newest first"}, t.list)
	add(t.api, operation{method: http.MethodGet, path: "/v1/tasks/{uuid}", id: "get-task", tag: tasksTag,
		summary: "Show a task with its steps, or wait for its end"}, t.get)
	add(t.api, operation{method: http.MethodDelete, path: "/v1/tasks/{uuid}", id: "cancel-task", tag: tasksTag,
		summary: "Cancel a task"}, t.cancel)
	add(t.api, operation{method: http.MethodGet, path: "/v1/tasks/{uuid}/timeline", id: "get-timeline", tag: tasksTag,
		summary: "Show the history of a task"}, t.timeline)
	if t.verify != nil {
		add(t.api, operation{method: http.MethodGet, path: "/v1/tasks/{uuid}/verify", id: "verify-task", tag: tasksTag,
			summary: "Check the records of a task for contradictions"}, t.check)
	}
}

// createInput is what a creation takes beside its body.
type createInput struct {
	Wait string `query:"wait" doc:"Answer when the task has ended, or after this time (30s) with its present state"`
}

// showInput selects a task, and perhaps waits for its end.
type showInput struct {
	UUID string `path:"uuid" format:"uuid"`
	Wait string `query:"wait" doc:"Answer when the task has ended, or after this time (30s) with its present state"`
}

// createBody is what is read of a client.TaskRequest; pointers tell what is
// missing. Other keys are ignored, requested_at and options among them.
type createBody struct {
	Name                *string         `json:"name"`
	Namespace           *string         `json:"namespace"`
	Version             *string         `json:"version"`
	Context             json.RawMessage `json:"context"`
	Initiator           *string         `json:"initiator"`
	SourceSystem        *string         `json:"source_system"`
	Reason              *string         `json:"reason"`
	Tags                []string        `json:"tags"`
	Priority            *int            `json:"priority"`
	CorrelationID       *string         `json:"correlation_id"`
	ParentCorrelationID *string         `json:"parent_correlation_id"`
	IdempotencyKey      string          `json:"idempotency_key"`
	StartAt             *client.Time    `json:"start_at"`
	DelaySeconds        *float64        `json:"delay_seconds"`
}

// missing reports the required fields that are absent or null.
func (b *createBody) missing() error {
	var names []string
	for _, f := range []struct {
		name  string
		value *string
	}{{"name", b.Name}, {"namespace", b.Namespace}, {"version", b.Version},
		{"initiator", b.Initiator}, {"source_system", b.SourceSystem}, {"reason", b.Reason}} {
		if f.value == nil {
			names = append(names, f.name)
		}
	}
	if len(b.Context) == 0 || string(b.Context) == "null" {
		names = append(names, "context")
	}
	if names == nil {
		return nil
	}
	return unprocessable("missing field: " + strings.Join(names, ", "))
}

// request turns the body into what the engine takes. correlation is the
// header's, used when the body has none.
func (b *createBody) request(correlation string, now time.Time) (orchestration.Request, error) {
	r := orchestration.Request{}
	if err := b.missing(); err != nil {
		return r, err
	}
	r = orchestration.Request{
		Name: *b.Name, Namespace: *b.Namespace, Version: *b.Version, Context: b.Context,
		Initiator: *b.Initiator, SourceSystem: *b.SourceSystem, Reason: *b.Reason,
		Tags: b.Tags, Priority: b.Priority, IdempotencyKey: b.IdempotencyKey,
	}
	var err error
	if r.CorrelationID, err = optionalUUID("correlation_id", b.CorrelationID); err != nil {
		return r, err
	}
	if r.ParentCorrelationID, err = optionalUUID("parent_correlation_id", b.ParentCorrelationID); err != nil {
		return r, err
	}
	if r.CorrelationID == nil {
		// The header is other software's as well: what is no UUID is not ours.
		if id, err := uuid.Parse(correlation); err == nil {
			r.CorrelationID = &id
		}
	}
	r.StartIn, err = b.startIn(now)
	return r, err
}

func optionalUUID(field string, text *string) (*uuid.UUID, error) {
	if text == nil {
		return nil, nil
	}
	id, err := uuid.Parse(*text)
	if err != nil {
		return nil, unprocessable(field + " must be a UUID")
	}
	return &id, nil
}

// maxDelaySeconds keeps a delay inside of time.Duration; the engine's own
// bound is far below.
const maxDelaySeconds = 1e9

func (b *createBody) startIn(now time.Time) (time.Duration, error) {
	switch {
	case b.StartAt != nil && b.DelaySeconds != nil:
		return 0, badRequest("give start_at or delay_seconds, not both")
	case b.StartAt != nil:
		return max(b.StartAt.Sub(now), 0), nil
	case b.DelaySeconds != nil && *b.DelaySeconds < 0:
		return 0, badRequest("delay_seconds must not be negative")
	case b.DelaySeconds != nil:
		return time.Duration(min(*b.DelaySeconds, maxDelaySeconds) * float64(time.Second)), nil
	}
	return 0, nil
}

func (t *taskRoutes) create(ctx context.Context, in *createInput) (*client.Task, error) {
	if err := backpressure(t.engine.Saturation()); err != nil {
		return nil, err
	}
	wait, err := t.parseWait(in.Wait)
	if err != nil {
		return nil, err
	}
	var body createBody
	if err := readBody(ctx, &body); err != nil {
		return nil, err
	}
	request, err := body.request(exchangeOf(ctx).request.Header.Get("X-Correlation-Id"), time.Now())
	if err != nil {
		return nil, err
	}
	created, err := t.engine.Create(ctx, request)
	if err != nil {
		return nil, err
	}
	task, err := t.showCreated(ctx, &request, created, wait)
	if err != nil {
		return nil, butCreated(created.UUID, err)
	}
	return task, nil
}

// showCreated shows a new task. Without waiting nothing is read: what a task
// begins with follows from its plan and the request.
func (t *taskRoutes) showCreated(ctx context.Context, r *orchestration.Request, created orchestration.Created, wait time.Duration) (*client.Task, error) {
	if wait > 0 {
		return t.show(ctx, created.UUID, wait)
	}
	fresh := store.NewTask{
		UUID: created.UUID, Plan: created.Plan, Context: r.Context, CorrelationID: created.CorrelationID, ParentCorrelationID: r.ParentCorrelationID,
		Initiator: r.Initiator, SourceSystem: r.SourceSystem, Reason: r.Reason, Tags: r.Tags, StartIn: r.StartIn,
	}
	if r.Priority != nil {
		fresh.Priority = *r.Priority
	}
	task, err := fresh.AsCreated(created.RequestedAt)
	if err != nil {
		return nil, err
	}
	return taskOf(task, true), nil
}

// backpressure turns new tasks away while the command channel is nearly full.
func backpressure(saturation float64) error {
	retry := 15 * time.Second
	switch {
	case saturation < 0.90:
		return nil
	case saturation >= 0.95:
		retry = 30 * time.Second
	}
	return &failure{status: http.StatusServiceUnavailable, code: codeBackpressure, retryAfter: retry,
		message: "The command channel is nearly full"}
}

// butCreated keeps the news that the task exists when only showing it failed, so
// that nobody takes the failure for that of the creation.
func butCreated(id uuid.UUID, err error) error {
	f := &failure{status: http.StatusServiceUnavailable, code: codeUnavailable, taskUUID: id.String(),
		message: fmt.Sprintf("The task was created as %s, but could not be read back", id)}
	return fmt.Errorf("show the new task: %w", errors.Join(f, err))
}

func (t *taskRoutes) get(ctx context.Context, in *showInput) (*client.Task, error) {
	id, err := parseTask(in.UUID)
	if err != nil {
		return nil, err
	}
	wait, err := t.parseWait(in.Wait)
	if err != nil {
		return nil, err
	}
	return t.show(ctx, id, wait)
}

// show reads a task, after waiting for its end.
func (t *taskRoutes) show(ctx context.Context, id uuid.UUID, wait time.Duration) (*client.Task, error) {
	if err := t.await(ctx, id, wait); err != nil {
		return nil, err
	}
	task, err := readTask(ctx, t.store, id)
	if err != nil {
		return nil, err
	}
	return taskOf(task, true), nil
}

// await returns when the task has ended, the time is over, the server stops,
// or too many wait already.
func (t *taskRoutes) await(ctx context.Context, id uuid.UUID, wait time.Duration) error {
	if wait <= 0 || t.stopping.Err() != nil {
		return nil
	}
	defer t.waiting.Add(-1)
	if t.waiting.Add(1) > int64(t.cfg.MaxWaiting) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(t.stopping, cancel)()
	_, err := t.engine.Wait(ctx, id)
	if err != nil && ctx.Err() != nil {
		return nil // the time is over; what became of the task is read anyway
	}
	return err
}

func (t *taskRoutes) cancel(ctx context.Context, in *taskInput) (*client.Task, error) {
	id, err := parseTask(in.UUID)
	if err != nil {
		return nil, err
	}
	err = t.engine.Cancel(ctx, id, t.actor, "cancelled over the API")
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(fmt.Sprintf("Task not found: %s", id))
	}
	if err != nil {
		return nil, err
	}
	return t.show(ctx, id, 0)
}

func (t *taskRoutes) timeline(ctx context.Context, in *taskInput) (*client.Timeline, error) {
	id, err := parseTask(in.UUID)
	if err != nil {
		return nil, err
	}
	task, err := readTask(ctx, t.store, id)
	if err != nil {
		return nil, err
	}
	history, err := t.store.Timeline(ctx, id)
	if err != nil {
		return nil, err
	}
	return timelineOf(task, history), nil
}

// readTask reads a task; its error says which one does not exist.
func readTask(ctx context.Context, s Store, id uuid.UUID) (*store.Task, error) {
	task, err := s.Task(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(fmt.Sprintf("Task not found: %s", id))
	}
	return task, err
}

func (t *taskRoutes) check(ctx context.Context, in *taskInput) (*client.Verification, error) {
	id, err := parseTask(in.UUID)
	if err != nil {
		return nil, err
	}
	problems, err := t.verify(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(fmt.Sprintf("Task not found: %s", id))
	}
	if err != nil {
		return nil, err
	}
	return &client.Verification{TaskUUID: id.String(), OK: len(problems) == 0, Problems: append([]string{}, problems...)}, nil
}
