package orchestration

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// Event is something that has happened outside and that steps may wait for.
type Event struct {
	Namespace string     // of the steps; empty where it is sent to a task
	Name      string     // of the event
	Key       string     // empty: it is sent to TaskUUID
	TaskUUID  *uuid.UUID // nil: it has a Key
	Payload   json.RawMessage
	// ID is the sender's own: the second event with it in a namespace changes
	// nothing. Empty: none.
	ID string
}

func (e *Event) check() error {
	var c submission.Checker
	c.Text("id", e.ID, MaxTextLength, false)
	if err := workflow.CheckEventName(e.Name); err != nil {
		c.Add("name: %s", err)
	}
	if err := workflow.CheckEventKey(e.Key); err != nil {
		c.Add("key: %s", err)
	}
	switch {
	case e.Key == "" && e.TaskUUID == nil:
		c.Add("key or task_uuid is needed: it says who waits for the event")
	case e.Key != "" && e.TaskUUID != nil:
		c.Add("give key or task_uuid, not both")
	case e.TaskUUID == nil:
		c.Text("namespace", e.Namespace, MaxNameLength, true)
	case e.Namespace != "":
		c.Add("namespace is that of the task; leave it out")
	}
	if len(e.Payload) > 0 {
		if err := submission.CheckValue("payload", e.Payload); err != nil {
			c.Add("%s", err)
		}
	}
	return c.Err()
}

// ReceiveEvent delivers an event to all steps that wait for it, or keeps it for
// the first one that will. The error is an *InvalidError; it wraps
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

// What became of events: the values of a metric's label.
const (
	eventDelivered = "delivered"
	eventKept      = "kept"
	eventDuplicate = "duplicate"
)

// reported has reports looked at that were made here.
func (o *Orchestrator) reported(signals []signal.Signal) {
	o.publish(signals)
	o.apply.Wake(coordinator.ReasonSignal, signal.TopicOrchestration)
}

// maxComment bounds what is said with a decision, in characters.
const maxComment = 1000

// Verdict is what somebody decides about an approval.
type Verdict struct {
	Approved bool
	Actor    string
	Comment  string
	Data     json.RawMessage // for the steps behind it; nil: none
}

// Decide decides about the approval with a token. It does so once: later the
// error wraps store.ErrNotFound, as it does for a token that never was. It is an
// *InvalidError where the verdict is malformed.
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
	a, signals, err := o.store.Decide(ctx, token, workflow.Decision{Approved: v.Approved, Actor: v.Actor, Comment: v.Comment, Data: v.Data})
	if err != nil {
		return a, err
	}
	o.reported(signals)
	return a, nil
}

// Approvals lists steps that wait for a decision, the oldest first.
func (o *Orchestrator) Approvals(ctx context.Context, f store.ApprovalFilter) ([]store.Approval, error) {
	return o.store.Approvals(ctx, f)
}

// Approval reads the one with a token, and decides nothing.
func (o *Orchestrator) Approval(ctx context.Context, token string) (store.Approval, error) {
	return o.store.Approval(ctx, token)
}
