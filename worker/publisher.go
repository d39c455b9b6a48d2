package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/workflow"
)

// Publisher makes the published events of a step, for those whose template names it
// (publishes_events[].publisher). Any of its functions may be nil. They are called after
// the handler has ended and before its end is reported, within
// DomainEventConfig.PublisherTimeout, from many goroutines at once. They never change the
// outcome of the step: after an error, a panic or a timeout the event is not published,
// which is logged and counted.
type Publisher struct {
	// Name is the name that templates use.
	Name string
	// Before is called first; after an error the event is not published.
	Before func(ctx context.Context, e *StepEvent) error
	// ShouldPublish returns whether to publish the event; false is not a failure.
	ShouldPublish func(ctx context.Context, e *StepEvent) (bool, error)
	// Payload makes the payload, of any type with a JSON form. Default:
	// StepEvent.Payload.
	Payload func(ctx context.Context, e *StepEvent) (any, error)
	// Metadata is added to the metadata of the event, under its keys.
	Metadata func(ctx context.Context, e *StepEvent) (map[string]any, error)
	// After is called after the report of the step was accepted. A durable event is
	// published then by the transaction that applies the report.
	After func(ctx context.Context, e *StepEvent)
	// Failed is called when the event is not published because of a failure.
	Failed func(ctx context.Context, e *StepEvent, err error)
}

// ForeignEvent is what a publisher in another process has made of a declared event.
type ForeignEvent struct {
	Payload  json.RawMessage // nil: the default
	Metadata json.RawMessage // an object; nil: none
	// Skip says that the event is not published, because the publisher does not want it
	// (SkipVetoed) or has failed.
	Skip string
}

// SkipVetoed is the Skip of an event that its publisher does not want to be published.
const SkipVetoed = eventVetoed

// foreignEvents are those that the process of a handler has made, by their names.
type foreignEvents struct {
	mu   sync.Mutex
	made map[string]ForeignEvent
}

// PublisherEvents returns the declared events of the step that have a publisher: for
// handlers that pass steps on to processes with publishers of their own.
func (c *StepContext) PublisherEvents() (list []workflow.EventPublication) {
	for i := range c.step.Events {
		if e := c.step.Events[i].EventPublication; e.Publisher != "" {
			list = append(list, *e)
		}
	}
	return list
}

// SetForeignEvents sets what publishers in the process of the handler have made of declared
// events, by their names. For these no publisher of the worker is asked.
func (c *StepContext) SetForeignEvents(made map[string]ForeignEvent) {
	c.foreign.mu.Lock()
	defer c.foreign.mu.Unlock()
	c.foreign.made = made
}

func (f *foreignEvents) of(name string) (ForeignEvent, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.made[name]
	return e, ok
}

// errForeignFailed: its process has logged why.
var errForeignFailed = errors.New("the publisher in the process of the handler has failed")

// event is the event as it is stored, or why it is not published.
func (e *ForeignEvent) event() (m store.MadeEvent, err error) {
	switch e.Skip {
	case "":
	case SkipVetoed:
		return store.MadeEvent{Skip: eventVetoed}, nil
	default:
		return store.MadeEvent{Skip: eventPublisherError}, errForeignFailed
	}
	if e.Payload != nil {
		if m.Payload, err = encodeEvent(e.Payload, 0); err != nil {
			return store.MadeEvent{Skip: eventNotStorable}, err
		}
	}
	if e.Metadata != nil {
		if m.Metadata, err = encodeEvent(e.Metadata, maxEventMetadata); err != nil {
			return store.MadeEvent{Skip: eventNotStorable}, err
		}
	}
	return m, nil
}

// StepEvent is the input of a publisher: a declared event and the end of the step that it
// follows. It must not be changed.
type StepEvent struct {
	Name, Condition, DeliveryMode string

	TaskUUID, StepUUID, CorrelationID          uuid.UUID
	Namespace, TaskName, TaskVersion, StepName string
	Attempt                                    int
	Context                                    json.RawMessage // the task's
	Outcome                                    workflow.AttemptOutcome
	Result                                     json.RawMessage        // if successful
	Failure                                    *workflow.EventFailure // if failed
	Payload                                    json.RawMessage        // the default
}

// Success reports whether the handler has returned a result.
func (e *StepEvent) Success() bool { return e.Outcome == workflow.OutcomeSuccess }

// RegisterPublisher registers a publisher by its name. Start returns the error (no name,
// a duplicate name) again.
func (w *Worker) RegisterPublisher(p Publisher) error { return w.remember(w.publishers.add(p)) }

// Subscribe calls a function with the fast events of this worker and, while it listens to
// signals, of the others that serve its namespaces; see events.Subscriber. It may be
// called while the worker runs. Start returns the error again.
func (w *Worker) Subscribe(s events.Subscriber) error { return w.remember(w.bus.Subscribe(s)) }

// publishers holds publishers by name. It is safe for concurrent use.
type publishers struct{ byName sync.Map }

func (r *publishers) add(p Publisher) error {
	if p.Name == "" {
		return errors.New("register a publisher: want a name")
	}
	if _, twice := r.byName.LoadOrStore(p.Name, &p); twice {
		return fmt.Errorf("register publisher %q: the name is already registered", p.Name)
	}
	return nil
}

func (r *publishers) get(name string) (*Publisher, bool) {
	known, _ := r.byName.Load(name)
	p, ok := known.(*Publisher)
	return p, ok
}

// missing lists the publishers that a template names and the worker does not have.
func (r *publishers) missing(t *workflow.Template) []string {
	names := map[string]bool{}
	for i := range t.Steps {
		for _, e := range t.Steps[i].PublishesEvents {
			if _, known := r.get(e.Publisher); e.Publisher != "" && !known {
				names[e.Publisher] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
