package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
)

// Waits are waiting steps for the API; *orchestration.Orchestrator implements it.
type Waits interface {
	ReceiveEvent(ctx context.Context, e orchestration.Event) (store.Delivered, error)
	Approvals(ctx context.Context, f store.ApprovalFilter) ([]store.Approval, error)
	Approval(ctx context.Context, token string) (store.Approval, error)
	Decide(ctx context.Context, token string, v orchestration.Verdict) (store.Approval, error)
}

const (
	shownApprovals = 100
	maxApprovals   = 1000
)

// waitRoutes deliver events and decisions.
type waitRoutes struct {
	*api
	waits Waits
}

func (r *waitRoutes) add() {
	const approvals = "/v1/approvals"
	add(r.api, operation{method: http.MethodPost, path: "/v1/external-events", id: "send-event", tag: "waits",
		summary: "Deliver an event to the steps that wait for it", body: client.ExternalEvent{}}, r.send)
	add(r.api, operation{method: http.MethodGet, path: approvals, id: "list-approvals", tag: "waits", summary: "List steps that wait for a decision"}, r.list)
	add(r.api, operation{method: http.MethodGet, path: approvals + "/{token}", id: "get-approval", tag: "waits",
		summary: "Show a waiting approval, without deciding"}, r.get)
	add(r.api, operation{method: http.MethodPost, path: approvals + "/{token}", id: "decide-approval", tag: "waits",
		summary: "Approve or reject, once", body: client.Verdict{}}, r.decide)
}

func (r *waitRoutes) send(ctx context.Context, _ *struct{}) (*client.EventReceipt, error) {
	var body struct {
		Name      *string         `json:"name"`
		Namespace string          `json:"namespace"`
		Key       string          `json:"key"`
		TaskUUID  *string         `json:"task_uuid"`
		Payload   json.RawMessage `json:"payload"`
		ID        string          `json:"id"`
	}
	if err := readBody(ctx, &body); err != nil {
		return nil, err
	}
	if body.Name == nil {
		return nil, unprocessable("missing field: name")
	}
	task, err := optionalUUID("task_uuid", body.TaskUUID)
	if err != nil {
		return nil, err
	}
	d, err := r.waits.ReceiveEvent(ctx, orchestration.Event{Namespace: body.Namespace, Name: *body.Name, Key: body.Key, TaskUUID: task,
		Payload: body.Payload, ID: body.ID})
	switch {
	case errors.Is(err, store.ErrTaskEnded):
		return nil, &failure{status: http.StatusConflict, code: codeConflict, message: "The task has ended", taskUUID: task.String()}
	case errors.Is(err, store.ErrNotFound) && task != nil:
		return nil, notFound("Task not found: " + task.String())
	case errors.Is(err, store.ErrNotFound):
		return nil, notFound("Namespace not found: " + body.Namespace)
	case err != nil:
		return nil, err
	}
	return &client.EventReceipt{EventUUID: d.UUID.String(), Delivered: d.Steps, Duplicate: d.Duplicate, ExpiresAt: client.Time{Time: d.ExpiresAt}}, nil
}

// approvalsInput selects approvals.
type approvalsInput struct {
	TaskUUID  string `query:"task_uuid" doc:"Of this task"`
	Namespace string `query:"namespace" doc:"Of this namespace"`
	Limit     int    `query:"limit" default:"100" doc:"1 to 1000"`
}

func (r *waitRoutes) list(ctx context.Context, in *approvalsInput) (*client.Approvals, error) {
	f := store.ApprovalFilter{Namespace: in.Namespace, Limit: in.Limit}
	if f.Limit == 0 {
		f.Limit = shownApprovals
	}
	if f.Limit < 1 || f.Limit > maxApprovals {
		return nil, badRequest("limit must be between 1 and 1000")
	}
	if in.TaskUUID != "" {
		id, err := uuid.Parse(in.TaskUUID)
		if err != nil {
			return nil, badRequest("task_uuid must be a UUID")
		}
		f.TaskUUID = &id
	}
	var c checked
	c.text("namespace", f.Namespace, orchestration.MaxNameLength)
	if err := c.err(); err != nil {
		return nil, err
	}
	list, err := r.waits.Approvals(ctx, f)
	if err != nil {
		return nil, err
	}
	shown := &client.Approvals{Approvals: make([]client.Approval, len(list))}
	for i := range list {
		shown.Approvals[i] = *approvalOf(&list[i])
	}
	return shown, nil
}

// tokenInput names an approval.
type tokenInput struct {
	Token string `path:"token" doc:"Token of the approval"`
}

// parse answers as for a used token: it reveals nothing else.
func (in *tokenInput) parse() (string, error) {
	id, err := uuid.Parse(in.Token)
	if err != nil {
		return "", noApproval()
	}
	return id.String(), nil
}

func noApproval() *failure {
	return notFound("The approval does not exist, or has been decided")
}

func (r *waitRoutes) get(ctx context.Context, in *tokenInput) (*client.Approval, error) {
	token, err := in.parse()
	if err != nil {
		return nil, err
	}
	a, err := r.waits.Approval(ctx, token)
	return ofApproval(a, err)
}

func (r *waitRoutes) decide(ctx context.Context, in *tokenInput) (*client.Approval, error) {
	token, err := in.parse()
	if err != nil {
		return nil, err
	}
	var body struct {
		Approved *bool           `json:"approved"`
		Actor    *string         `json:"actor"`
		Comment  string          `json:"comment"`
		Data     json.RawMessage `json:"data"`
	}
	if err := readBody(ctx, &body); err != nil {
		return nil, err
	}
	var c checked
	if body.Approved == nil {
		c.missing = append(c.missing, "approved")
	}
	actor := c.required("actor", body.Actor, orchestration.MaxTextLength)
	if err := c.err(); err != nil {
		return nil, err
	}
	a, err := r.waits.Decide(ctx, token, orchestration.Verdict{Approved: *body.Approved, Actor: actor, Comment: body.Comment, Data: body.Data})
	return ofApproval(a, err)
}

func ofApproval(a store.Approval, err error) (*client.Approval, error) {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, noApproval()
	case err != nil:
		return nil, err
	}
	return approvalOf(&a), nil
}

func approvalOf(a *store.Approval) *client.Approval {
	return &client.Approval{Token: a.Token, TaskUUID: a.TaskUUID.String(), StepUUID: a.StepUUID.String(), Namespace: a.Namespace, TaskName: a.Task,
		StepName: a.Step, Prompt: a.Prompt, Since: client.Time{Time: a.Since}, Until: instant(a.Until)}
}

// waitingOf is what a step waits for; nil if it does not wait.
func waitingOf(s *store.Step) *client.Waiting {
	if s.Waiting == nil {
		return nil
	}
	w := &client.Waiting{Kind: s.Waiting.Kind, Event: s.Waiting.Event, Key: s.Waiting.Key, Prompt: s.Waiting.Prompt, Until: instant(s.Waiting.Until)}
	if s.Waiting.TaskUUID != nil {
		id := s.Waiting.TaskUUID.String()
		w.TaskUUID = &id
	}
	return w
}
