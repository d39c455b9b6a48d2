package client

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
)

// ExternalEvent is the body of POST /v1/external-events: an event from outside that steps
// of type wait_for_event may wait for. It has a namespace and a key, or a task.
type ExternalEvent struct {
	Name      string          `json:"name" doc:"Name of the event, as in templates" maxLength:"255"`
	Namespace string          `json:"namespace,omitempty" doc:"Of the steps that may wait for it; with key" maxLength:"64"`
	Key       string          `json:"key,omitempty" doc:"Distinguishes events of one name, such as an order number" maxLength:"512"`
	TaskUUID  string          `json:"task_uuid,omitempty" doc:"The task that it is sent to, instead of namespace and key" format:"uuid"`
	Payload   json.RawMessage `json:"payload,omitempty" doc:"Any JSON; part of the result of the steps that waited"`
	// ID is the sender's own: a repetition with it has no effect.
	ID string `json:"id,omitempty" doc:"The sender's own id: a second event with it in a namespace has no effect" maxLength:"255"`
}

// EventReceipt is the outcome of an ExternalEvent.
type EventReceipt struct {
	EventUUID string `json:"event_uuid"`
	Delivered int    `json:"delivered" doc:"Steps that received it; with 0 it is kept for the first step that waits for it"`
	Duplicate bool   `json:"duplicate" doc:"An event with this id was received before; no effect"`
	ExpiresAt Time   `json:"expires_at" format:"date-time" doc:"Until when it is kept"`
}

// Approval is a step that waits for a decision.
type Approval struct {
	Token     string `json:"token" doc:"Allows one decision"`
	TaskUUID  string `json:"task_uuid"`
	StepUUID  string `json:"step_uuid"`
	Namespace string `json:"namespace"`
	TaskName  string `json:"task_name"`
	StepName  string `json:"step_name"`
	Prompt    string `json:"prompt"`
	Since     Time   `json:"since" format:"date-time"`
	Until     *Time  `json:"until" format:"date-time" doc:"When its time is over; null: never"`
}

// Verdict is the body of POST /v1/approvals/{token}.
type Verdict struct {
	Approved bool            `json:"approved"`
	Actor    string          `json:"actor" doc:"Who decides" maxLength:"255"`
	Comment  string          `json:"comment,omitempty" maxLength:"1000"`
	Data     json.RawMessage `json:"data,omitempty" doc:"Any JSON, for the steps behind it"`
}

// ApprovalListOptions select approvals; zero values select all.
type ApprovalListOptions struct {
	TaskUUID, Namespace string
	Limit               int // 0: the server's default
}

// Waiting is what a step waits for.
type Waiting struct {
	Kind     string  `json:"kind" doc:"sleep, wait_for_event, approval or task; tasks: dependencies of its task; worker: a worker that can run it"`
	Event    string  `json:"event,omitempty"`
	Key      string  `json:"key,omitempty"`
	Prompt   string  `json:"prompt,omitempty"`
	TaskUUID *string `json:"task_uuid,omitempty" doc:"The task that the step is"`
	Until    *Time   `json:"until,omitempty" format:"date-time"`
	Reason   string  `json:"reason,omitempty" doc:"Why no live worker can run it; absent in lists"`
}

// WaitingForWorker is the kind of waiting of a step that no live worker can run.
const WaitingForWorker = "worker"

// SendEvent delivers an event to the steps that wait for it. It is retried after a lost
// answer only with an ID.
func (c *Client) SendEvent(ctx context.Context, e ExternalEvent) (*EventReceipt, error) {
	return send[EventReceipt](ctx, c, http.MethodPost, retryIf(e.ID != ""), e, "v1", "external-events")
}

// Approvals lists steps that wait for a decision, the oldest first. Those of a namespace among many
// of others take several requests.
func (c *Client) Approvals(ctx context.Context, o ApprovalListOptions) (list []Approval, err error) {
	type page struct {
		Approvals  []Approval `json:"approvals"`
		NextCursor string     `json:"next_cursor,omitempty"`
	}
	most := cmp.Or(o.Limit, defaultApprovals)
	for q := (parameters{"task_uuid": o.TaskUUID, "namespace": o.Namespace, "limit": o.Limit}); ; q["limit"] = most - len(list) {
		p, err := get[page](ctx, c, q, "v1", "approvals")
		if err != nil {
			return nil, err
		}
		if list = append(list, p.Approvals...); p.NextCursor == "" || len(list) >= most {
			return list, nil
		}
		q["cursor"] = p.NextCursor
	}
}

// defaultApprovals is how many approvals the server lists without a limit.
const defaultApprovals = 100

// Approval returns the approval with a token; it decides nothing.
func (c *Client) Approval(ctx context.Context, token string) (*Approval, error) {
	return get[Approval](ctx, c, nil, "v1", "approvals", token)
}

// Decide decides about the approval with a token, once: a decided one is not found (see
// [IsNotFound]).
func (c *Client) Decide(ctx context.Context, token string, v Verdict) (*Approval, error) {
	return send[Approval](ctx, c, http.MethodPost, retryUnsent, v, "v1", "approvals", token)
}
