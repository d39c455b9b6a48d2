package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
)

// waitRoutes deliver events and decisions.
type waitRoutes struct{ *orchestratorAPI }

func (r *waitRoutes) add() {
	const approvals = "/v1/approvals"
	op := operation{tag: "waits"}
	addBody(r.api, op.at(http.MethodPost, "/v1/external-events", "send-event", "Deliver an event to the steps that wait for it"), r.send)
	add(r.api, op.at(http.MethodGet, approvals, "list-approvals", "List steps that wait for a decision"), r.list)
	add(r.api, op.at(http.MethodGet, approvals+"/{token}", "get-approval", "Show a waiting approval, without deciding"), r.get)
	addBody(r.api, op.at(http.MethodPost, approvals+"/{token}", "decide-approval", "Approve or reject, once"), r.decide)
}

func (r *waitRoutes) send(ctx context.Context, _ *struct{}, body *request[client.ExternalEvent]) (*client.EventReceipt, error) {
	b := &body.body
	body.need("name")
	if err := body.err(); err != nil {
		return nil, err
	}
	e := orchestration.Event{Namespace: b.Namespace, Name: b.Name, Key: b.Key, Payload: b.Payload, ID: b.ID}
	if err := r.withinSend(ctx, b); err != nil {
		return nil, err
	}
	if body.has("task_uuid") {
		var err error
		if e.TaskUUID, err = optionalUUID("task_uuid", &b.TaskUUID); err != nil {
			return nil, err
		}
	}
	d, err := r.engine.ReceiveEvent(ctx, e)
	switch {
	case errors.Is(err, store.ErrTaskEnded):
		return nil, &failure{status: http.StatusConflict, code: codeConflict, message: "The task has ended", taskUUID: e.TaskUUID.String(), cause: err}
	case err != nil && e.TaskUUID != nil:
		return nil, ofTask(*e.TaskUUID, err)
	case err != nil:
		return nil, missing(err, "Namespace not found: %s", b.Namespace)
	}
	return &client.EventReceipt{EventUUID: d.UUID.String(), Delivered: d.Steps, Duplicate: d.Duplicate, ExpiresAt: client.Time{Time: d.ExpiresAt}}, nil
}

// withinSend refuses an event for a namespace, or for a task of one, that the principal may not
// act in.
func (r *waitRoutes) withinSend(ctx context.Context, e *client.ExternalEvent) error {
	if e.TaskUUID != "" {
		return r.withinTask(ctx, e.TaskUUID)
	}
	return within(ctx, e.Namespace)
}

// approvalsInput selects approvals.
type approvalsInput struct {
	TaskUUID  string `query:"task_uuid" doc:"Of this task"`
	Namespace string `query:"namespace" doc:"Of this namespace"`
	Limit     number `query:"limit" format:"int64" default:"100" within:"0,1000,100" doc:"1 to 1000"`
	Cursor    string `query:"cursor" doc:"next_cursor of an answer: what follows it"`
}

func (r *waitRoutes) list(ctx context.Context, in *approvalsInput) (*wire.Approvals, error) {
	f := store.ApprovalFilter{Namespace: in.Namespace, Limit: cmp.Or(int(in.Limit), 100)}
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
	if in.Cursor != "" {
		var ok bool
		if f.After, ok = approvalPlace(in.Cursor); !ok {
			return nil, badRequest("cursor must be next_cursor of an answer")
		}
	}
	page, err := r.engine.Approvals(ctx, f)
	answer := &wire.Approvals{Approvals: each(page.Approvals, approvalOf), Unreadable: each(page.Unreadable, (*uuid.UUID).String)}
	if page.Next != nil {
		answer.NextCursor = placeText(page.Next)
	}
	return answer, err
}

// placeText is the cursor of a place in the list of approvals.
func placeText(p *store.ApprovalPlace) string {
	return fmt.Sprintf("%d.%d.%s", p.Since.UnixMicro(), p.Slot, p.TaskUUID)
}

func approvalPlace(cursor string) (p store.ApprovalPlace, ok bool) {
	parts := strings.Split(cursor, ".")
	if len(parts) != 3 {
		return p, false
	}
	since, ok := placeTime(parts[0])
	slot, errSlot := strconv.ParseInt(parts[1], 10, 16)
	task, errTask := uuid.Parse(parts[2])
	if errors.Join(errSlot, errTask) != nil || !ok {
		return p, false
	}
	return store.ApprovalPlace{Since: since, TaskUUID: task, Slot: int16(slot)}, true
}

// placeTime reads the time of a cursor, in microseconds.
func placeTime(text string) (at time.Time, ok bool) {
	micros, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMicro(micros).UTC(), err == nil && micros >= 0 && micros <= lastPlace
}

// lastPlace is the end of the year 9999 in microseconds, which PostgreSQL has, too.
const lastPlace = 253_402_300_799_000_000

// tokenInput names an approval.
type tokenInput struct {
	Token string `path:"token" doc:"Token of the approval"`
}

// parse answers as for a used token: it reveals nothing else.
func (in *tokenInput) parse() (string, error) {
	id, err := uuid.Parse(in.Token)
	if err != nil {
		return "", notFound(unknownApproval)
	}
	return id.String(), nil
}

const unknownApproval = "The approval does not exist, or has been decided"

func (r *waitRoutes) get(ctx context.Context, in *tokenInput) (*client.Approval, error) {
	token, err := in.parse()
	if err != nil {
		return nil, err
	}
	a, err := r.engine.Approval(ctx, token)
	return ofApproval(a, err)
}

func (r *waitRoutes) decide(ctx context.Context, in *tokenInput, body *request[client.Verdict]) (*client.Approval, error) {
	token, err := in.parse()
	if err != nil {
		return nil, err
	}
	b := &body.body
	body.need("approved")
	v := orchestration.Verdict{Approved: b.Approved, Actor: body.acting("actor", b.Actor), Comment: b.Comment, Data: b.Data}
	if err := body.err(); err != nil {
		return nil, err
	}
	a, err := r.engine.Decide(ctx, token, v)
	return ofApproval(a, err)
}

func ofApproval(a store.Approval, err error) (*client.Approval, error) {
	if err != nil {
		return nil, missing(err, unknownApproval)
	}
	return new(approvalOf(&a)), nil
}

func approvalOf(a *store.Approval) client.Approval {
	return client.Approval{Token: a.Token, TaskUUID: a.TaskUUID.String(), StepUUID: a.StepUUID.String(), Namespace: a.Namespace, TaskName: a.Task,
		StepName: a.Step, Prompt: a.Prompt, Since: client.Time{Time: a.Since}, Until: instant(a.Until)}
}

// waitingOf is what a step waits for; nil if it does not wait.
func waitingOf(s *store.Step) *client.Waiting {
	if s.Waiting == nil {
		return nil
	}
	return &client.Waiting{Kind: s.Waiting.Kind, Event: s.Waiting.Event, Key: s.Waiting.Key, Prompt: s.Waiting.Prompt, Until: instant(s.Waiting.Until),
		TaskUUID: textOf(s.Waiting.TaskUUID)}
}
