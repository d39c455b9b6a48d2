package rest

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/workflow"
)

// enqueueBody decodes a client.EnqueueRequest: a creation that names a type instead of a
// template.
type enqueueBody struct {
	createBody
	Type    *string         `json:"type"`
	Payload json.RawMessage `json:"payload"`
	Queue   string          `json:"queue"`
}

// check checks what does not depend on the type.
func (b *enqueueBody) check() error {
	var c checked
	c.required("type", b.Type, orchestration.MaxNameLength)
	c.text("queue", b.Queue, orchestration.MaxNameLength)
	if absent(b.Payload) {
		c.missing = append(c.missing, "payload")
	}
	return c.err()
}

// fill completes the creation from the type. The initiator is optional here.
func (b *enqueueBody) fill(template *workflow.Template) {
	b.Name, b.Namespace, b.Version, b.Context = &template.Name, &template.Namespace, &template.Version, b.Payload
	for _, text := range []**string{&b.Initiator, &b.SourceSystem, &b.Reason} {
		if *text == nil {
			*text = new(string)
		}
	}
	if b.IdempotencyKey != "" && b.ConflictPolicy == "" {
		b.ConflictPolicy = client.ConflictUseExisting
	}
}

// enqueue answers POST /v1/enqueue: 201 for a new task, 200 for the existing one with the
// key.
func (r *typeRoutes) enqueue(x *exchange) error {
	if err := r.tasks.admitRequest(); err != nil {
		return err
	}
	raw, err := readRaw(x, r.cfg.MaxBodyBytes)
	if err != nil {
		return err
	}
	var body enqueueBody
	if err := decode(raw, &body); err != nil {
		return err
	}
	if err := body.check(); err != nil {
		return err
	}
	ctx := x.request.Context()
	plan, err := r.types.PlanOfType(ctx, body.Queue, *body.Type)
	if err != nil {
		return err
	}
	if err := r.tasks.admitTask(plan.Template.Namespace); err != nil {
		return err
	}
	body.fill(plan.Template)
	request, err := body.request(x.request.Header.Get("X-Correlation-Id"), time.Now())
	if err != nil {
		return inPayload(err)
	}
	created, err := r.tasks.engine.Create(ctx, request)
	if err != nil {
		return inPayload(err)
	}
	answer := client.Enqueued{ID: created.UUID.String(), Status: workflow.TaskPending.String(), Queue: plan.Template.Namespace, Existing: created.Existing}
	if !created.Existing {
		return x.answerWith(http.StatusCreated, answer)
	}
	x.Header().Set(replayedHeader, "true")
	task, err := readTask(ctx, r.tasks.store, created.UUID)
	if err != nil {
		return err
	}
	answer.Status = workflow.VisibleTaskState(task.State, task.Counts()).String()
	return x.answer(answer)
}

// inPayload turns problems of a context into problems of the payload.
func inPayload(err error) error {
	var invalid *submission.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	words := make([]string, len(invalid.Problems))
	for i, problem := range invalid.Problems {
		if rest, ok := strings.CutPrefix(problem, "context"); ok {
			problem = "payload" + rest
		}
		words[i] = problem
	}
	return &submission.InvalidError{Problems: words}
}
