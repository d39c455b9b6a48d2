package orchestration

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/domainevent"
	"github.com/tasker-go/tasker/internal/enginestep"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/signal"
)

// Event is an external event that steps may wait for.
type Event struct {
	Namespace string     // of the steps; empty where it is sent to a task
	Name      string     // of the event
	Key       string     // empty: it is sent to TaskUUID
	TaskUUID  *uuid.UUID // nil: it has a Key
	Payload   json.RawMessage
	// ID is chosen by the sender: a second event with it in a namespace is ignored.
	// Empty: none.
	ID string
}

func (e *Event) check() error {
	var c submission.Checker
	c.Text("id", e.ID, MaxTextLength, false)
	if err := domainevent.CheckName(e.Name); err != nil {
		c.Add("name: %s", err)
	}
	if err := domainevent.CheckKey(e.Key); err != nil {
		c.Add("key: %s", err)
	}
	switch {
	case e.Key == "" && e.TaskUUID == nil:
		c.Add("invalid event: want key or task_uuid")
	case e.Key != "" && e.TaskUUID != nil:
		c.Add("invalid event: want key or task_uuid, not both")
	case e.TaskUUID == nil:
		c.Text("namespace", e.Namespace, MaxNameLength, true)
	case e.Namespace != "":
		c.Add("invalid event: want no namespace with task_uuid")
	}
	if len(e.Payload) > 0 {
		if err := submission.CheckValue("payload", e.Payload); err != nil {
			c.Add("%s", err)
		}
	}
	return c.Err()
}

// ReceiveEvent delivers an event to all steps that wait for it, or keeps it for the
// first step that will. The error is an *InvalidError; it wraps
// store.ErrNotFound where there is no such namespace or task, store.ErrTaskEnded,
// or store.ErrUnavailable when the database is away.
func (o *Orchestrator) ReceiveEvent(ctx context.Context, e Event) (store.Delivered, error) {
	if err := e.check(); err != nil {
		return store.Delivered{}, err
	}
	if len(e.Payload) == 0 {
		e.Payload = nil
	}
	d, err := o.store.ReceiveEvent(ctx, store.ReceivedEvent{Namespace: e.Namespace, Name: e.Name, Key: e.Key, TaskUUID: e.TaskUUID,
		Payload: e.Payload, SenderID: e.ID, KeepFor: o.cfg.EventTTL})
	if err != nil {
		return d, err
	}
	outcome := eventKept
	switch {
	case d.Duplicate:
		outcome = eventDuplicate
	case d.Steps > 0:
		outcome = eventDelivered
		o.reported(d.Signals)
	}
	o.metrics.EventsReceived.WithLabelValues(outcome).Inc()
	return d, nil
}

// Outcomes of events: the values of a metric's label.
const (
	eventDelivered = "delivered"
	eventKept      = "kept"
	eventDuplicate = "duplicate"
)

// reported wakes the apply system for reports that were made here.
func (o *Orchestrator) reported(signals []signal.Signal) {
	o.publish(signals)
	o.apply.Wake(coordinator.ReasonSignal, signal.TopicOrchestration)
}

// maxComment bounds the comment on a decision, in characters.
const maxComment = 1000

// Verdict is the decision on an approval.
type Verdict struct {
	Approved bool
	Actor    string
	Comment  string
	Data     json.RawMessage // for the steps that follow; nil: none
}

// Decide records the decision on the approval with a token. Only the first decision
// counts: later ones, like unknown tokens, get an error that wraps store.ErrNotFound.
// The error is an *InvalidError where the verdict is malformed.
func (o *Orchestrator) Decide(ctx context.Context, token string, v Verdict) (store.Approval, error) {
	var c submission.Checker
	c.Text("actor", v.Actor, MaxTextLength, true)
	c.Text("comment", v.Comment, maxComment, false)
	if len(v.Data) > 0 {
		if err := submission.CheckValue("data", v.Data); err != nil {
			c.Add("%s", err)
		}
	} else {
		v.Data = nil
	}
	if err := c.Err(); err != nil {
		return store.Approval{}, err
	}
	a, signals, err := o.store.Decide(ctx, token, enginestep.Decision{Approved: v.Approved, Actor: v.Actor, Comment: v.Comment, Data: v.Data})
	if err != nil {
		return a, err
	}
	o.reported(signals)
	return a, nil
}

// Approvals lists steps that wait for a decision, oldest first, and where the list goes on; nil: it
// does not.
func (o *Orchestrator) Approvals(ctx context.Context, f store.ApprovalFilter) (store.ApprovalPage, error) {
	return o.store.Approvals(ctx, f)
}

// Approval reads the approval with a token without deciding it.
func (o *Orchestrator) Approval(ctx context.Context, token string) (store.Approval, error) {
	return o.store.Approval(ctx, token)
}
