package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/tasker-go/tasker/internal/domainevent"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker/internal/engine"
)

// ownEvents are the events that a handler has published itself, in order.
type ownEvents struct {
	mu      sync.Mutex
	list    []store.MadeEvent
	bytes   int   // of the payloads
	refused error // of the first that cannot be published; the step must not succeed
}

// Publish publishes a durable domain event with the success of the step, beside those
// that the template declares: it exists exactly if the success is recorded. An attempt
// that fails publishes none, and a step that has published cannot yield. payload is of any
// type with a JSON form.
//
// The error is permanent, and the step should end with it: the name is not valid, or of an
// event that the template declares for the step; the payload has no JSON form; or a bound
// of DomainEventConfig is exceeded. A step that ignores the error fails at its end,
// because the event would be lost.
func (c *StepContext) Publish(name string, payload any) error {
	own := &c.own
	own.mu.Lock()
	defer own.mu.Unlock()
	doc, err := c.publishable(name, payload)
	if err != nil {
		err = Permanent(engine.WithType(fmt.Errorf("publish the event %.64q: %w", name, err), engine.TypeNotPublished))
		if own.refused == nil {
			own.refused = err
		}
		return err
	}
	own.list, own.bytes = append(own.list, store.MadeEvent{Name: name, Payload: doc}), own.bytes+len(doc)
	return nil
}

// publishable encodes a payload and checks the bounds.
func (c *StepContext) publishable(name string, payload any) (json.RawMessage, error) {
	if err := domainevent.CheckName(name); err != nil {
		return nil, fmt.Errorf("its name is not valid: %w", err)
	}
	for i := range c.step.Events {
		if c.step.Events[i].Name == name {
			return nil, errors.New("the template declares it, so the end of the step publishes it")
		}
	}
	limits := &c.run.cfg.DomainEvents
	if len(c.own.list) >= limits.MaxOwn {
		return nil, fmt.Errorf("there are %d already, and no more may be (worker.domain_events.max_own)", len(c.own.list))
	}
	doc, err := engine.Encode(payload, 0)
	if err != nil {
		return nil, fmt.Errorf("its payload cannot be stored: %w", err)
	}
	if size := c.own.bytes + len(doc); size > limits.MaxPayloadBytes {
		return nil, fmt.Errorf("with it the payloads have %d bytes, more than %d (worker.domain_events.max_payload_bytes)", size, limits.MaxPayloadBytes)
	}
	return doc, nil
}

// made returns the events, or why the step must not succeed.
func (o *ownEvents) made() ([]store.MadeEvent, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.list, o.refused
}

// errPublishedEarly: the events would be lost, or published again by what follows.
var errPublishedEarly = Permanent(engine.Errorf(engine.TypeNotPublished, "a step that has published events cannot yield: want them from its last part"))
