package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/worker/internal/bus"
)

// The values of the label outcome of DomainEventsSent and DomainEventsReceived.
const (
	fastSent        = "sent"
	fastTooLarge    = "too_large"
	fastNotSendable = "not_sendable" // its topic or its text does not fit a signal

	fastDelivered = "delivered"
	fastDuplicate = "duplicate"
	fastMalformed = "malformed"
	fastLost      = "lost"
)

// replicas carries fast events between the workers of a namespace, in the payloads of
// signals. Sent events have already reached the subscribers of this process, so an event
// that cannot be sent is only counted. It is safe for concurrent use.
type replicas struct {
	origin    string // of sent events; constant for the worker's life
	bus       *bus.Bus
	recent    recentIDs
	publisher signal.Publisher
	listens   func() bool // whether the mode has a listener; without it events stay local
	log       *zap.Logger
	metrics   *telemetry.Metrics
	warned    sync.Once // about malformed signals
}

// fastSignal is the payload of a signal on a FastTopic. Fields may be added to it:
// workers of different versions must understand each other.
type fastSignal struct {
	Origin string       `json:"origin"`
	Event  events.Event `json:"event"`
}

func newReplicas(w *Worker, p signal.Publisher) *replicas {
	return &replicas{origin: w.ownUUID().String(), bus: w.bus, recent: recentIDs{limit: w.cfg.DomainEvents.RememberedIDs}, publisher: p,
		listens: func() bool { return false }, log: w.cfg.Logger, metrics: w.cfg.Metrics}
}

// send sends an event to the other workers. It never blocks.
func (r *replicas) send(e events.Event) {
	if !r.listens() {
		return
	}
	outcome := r.hand(e)
	r.metrics.DomainEventsSent.WithLabelValues(outcome).Inc()
	if outcome != fastSent {
		r.log.Debug("a fast domain event stays in this worker", zap.String("event_id", e.ID), zap.String("event_name", e.Name), zap.String("reason", outcome))
	}
}

func (r *replicas) hand(e events.Event) (outcome string) {
	if len(e.Payload) > signal.MaxPayloadBytes {
		return fastTooLarge // checked before encoding makes it longer
	}
	doc, err := json.Marshal(fastSignal{Origin: r.origin, Event: e})
	if err == nil && len(doc) > signal.MaxPayloadBytes {
		return fastTooLarge
	}
	s := signal.Signal{Topic: signal.FastTopic(e.Metadata.Namespace), Payload: string(doc)}
	if err != nil || s.Validate() != nil {
		return fastNotSendable
	}
	r.publisher.Publish(s)
	return fastSent
}

// take handles signals with fast events and reports whether s is one. It never blocks.
func (r *replicas) take(s signal.Signal) (taken bool) {
	namespace, ok := topicset.FastNamespace(s.Topic)
	if !ok {
		return false
	}
	if outcome := r.receive(namespace, s.Payload); outcome != "" {
		r.metrics.DomainEventsReceived.WithLabelValues(outcome).Inc()
	}
	return true
}

// receive delivers an event of another worker; no outcome for an event of its own.
func (r *replicas) receive(namespace, payload string) (outcome string) {
	if payload == "" { // payloads were dropped because there were too many
		return fastLost
	}
	var in fastSignal
	id, err := in.decode(namespace, payload)
	switch {
	case err != nil:
		r.warned.Do(func() {
			r.log.Warn("a signal holds no fast domain event; further ones are only counted", zap.String("namespace", namespace),
				zap.Int("bytes", len(payload)), zap.Error(err))
		})
		return fastMalformed
	case in.Origin == r.origin:
		return ""
	case !r.recent.add(id):
		return fastDuplicate
	}
	r.bus.Publish(in.Event)
	return fastDelivered
}

// decode reads and checks a payload, which any client of the database can send.
func (s *fastSignal) decode(namespace, payload string) (id uuid.UUID, err error) {
	if err = json.Unmarshal([]byte(payload), s); err != nil {
		return id, fmt.Errorf("decode the event: %w", err)
	}
	switch {
	case s.Origin == "":
		return id, errors.New("no origin")
	case s.Event.Name == "" || s.Event.Payload == nil:
		return id, errors.New("no event name or no payload")
	case s.Event.Metadata.Namespace != namespace:
		return id, errors.New("the event and its topic have different namespaces")
	}
	if id, err = uuid.Parse(s.Event.ID); err != nil {
		return id, fmt.Errorf("the event's id: %w", err)
	}
	return id, nil
}

// recentIDs remembers the latest ids, up to a limit; none if it is not positive. It is safe for concurrent use.
type recentIDs struct {
	limit int

	mu    sync.Mutex
	known map[uuid.UUID]struct{}
	ring  []uuid.UUID // in order of arrival
	next  int         // index of the oldest, once the ring is full
}

// add remembers an id, replacing the oldest beyond the limit, and reports whether it was
// new.
func (r *recentIDs) add(id uuid.UUID) (isNew bool) {
	if r.limit <= 0 {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.known[id]; known {
		return false
	}
	if r.known == nil {
		r.known = map[uuid.UUID]struct{}{}
	}
	r.known[id] = struct{}{}
	if len(r.ring) < r.limit {
		r.ring = append(r.ring, id)
		return true
	}
	delete(r.known, r.ring[r.next])
	r.ring[r.next] = id
	r.next = (r.next + 1) % r.limit
	return true
}
