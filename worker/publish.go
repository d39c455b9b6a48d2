package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/sourcegraph/conc"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/domainevent"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/worker/internal/bus"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

// DomainEventConfig configures how a worker publishes domain events
// (worker.domain_events, and of worker.mpsc_channels domain_events and
// in_process_events).
type DomainEventConfig struct {
	// MaxPayloadBytes bounds the JSON of a payload, also of the default one, the result.
	MaxPayloadBytes int
	// MaxOwn bounds the events that a step publishes beside the declared ones. Their
	// payloads together have at most MaxPayloadBytes.
	MaxOwn int
	// PublisherTimeout limits a publisher's work on one event. The end of the step is
	// reported after it.
	PublisherTimeout time.Duration
	// Buffer is the number of ended steps with fast events that may wait for the
	// subscribers. Beyond it events are lost.
	Buffer int
	// QuietDrops suppresses the log of events lost to a full buffer.
	QuietDrops bool
	// DrainTimeout bounds the delivery of buffered events when the worker stops.
	DrainTimeout time.Duration
	// RememberedIDs is the number of ids of other workers' events that are remembered, so
	// that no event is delivered twice; negative for none.
	RememberedIDs int
	// UnknownPublisher is the policy for an event whose publisher the worker does not have
	// (worker.domain_events.unknown_publisher). "default" publishes it with the default
	// payload, as events without a publisher; "nothing" does not, which is logged and
	// counted; "error" is "nothing" for templates of other workers, and a worker whose own
	// templates name an unknown publisher does not start.
	UnknownPublisher string
	// SubscriberBuffer is how many events a slow subscriber may lag behind,
	// SubscriberTimeout the limit for one event. QuietSubscribers keeps their failures out
	// of the log.
	SubscriberBuffer  int
	SubscriberTimeout time.Duration
	QuietSubscribers  bool
}

// Values of DomainEventConfig.UnknownPublisher.
const (
	publishPlain   = "default"
	publishNothing = "nothing"
	publishError   = "error"
)

// maxEventMetadata bounds the metadata that a publisher adds, in bytes.
const maxEventMetadata = 16 << 10

// The values of the label reason of the metric DomainEventsFailed.
const (
	eventSchema           = "schema"            // the payload does not fit the declared schema
	eventTooLarge         = "too_large"         // the payload is too long
	eventNotStorable      = "not_storable"      // the payload or the metadata have no storable JSON form
	eventUnknownPublisher = "unknown_publisher" // this worker does not have it
	eventPublisherError   = "publisher_error"
	eventPublisherPanic   = "publisher_panic"
	eventPublisherTimeout = "publisher_timeout"
	eventBusy             = "busy" // all permits of publishers were taken all the time

	eventVetoed = "vetoed" // by its publisher; not a failure
)

// publishing makes and routes the events of steps that declare some: it makes them before
// the end of a step is reported and routes them when the report has been accepted. It is
// safe for concurrent use.
type publishing struct {
	cfg        DomainEventConfig
	checker    *schema.Checker // of payloads
	publishers *publishers
	bus        *bus.Bus
	replicas   *replicas
	log        *zap.Logger
	metrics    *telemetry.Metrics
	base       context.Context
	permits    chan struct{} // of the publishers that run
	missed     sync.Map      // names of missing publishers, already logged
	running    conc.WaitGroup

	mu      sync.Mutex
	started bool
	closed  bool
	queue   chan []publishable
	group   conc.WaitGroup // the goroutine that dispatches

	count routed
}

// routed counts events of steps whose reports were accepted.
type routed struct {
	durable, fast, broadcast, undelivered, failed atomic.Uint64
}

// publishable is one event to publish.
type publishable struct {
	declared  *workflow.Event
	publisher *Publisher
	about     *StepEvent
	event     events.Event // where it is fast
}

func newPublishing(base context.Context, w *Worker, r *replicas) *publishing {
	c := &w.cfg
	return &publishing{cfg: c.DomainEvents, checker: c.checker, publishers: &w.publishers, bus: w.bus, replicas: r, log: c.Logger, metrics: c.Metrics, base: base,
		permits: make(chan struct{}, max(c.MaxConcurrent, 1)), queue: make(chan []publishable, c.DomainEvents.Buffer)}
}

// prepare makes the events of an execution that is about to be reported: outcome holds
// the report and takes along what the orchestrator needs. The caller has the right to
// report. own are the events of the handler, f is the failure, nil for a success. With
// plain no publisher is called: the engine itself has made this failure.
func (p *publishing) prepare(c *StepContext, own []store.MadeEvent, f *engine.Failure, plain bool) {
	x, r := &c.x, &c.x.Report
	_, step := x.Plan()
	c.published = nil
	outcome := step.Outcome(x.Claim.Attempt, workflow.AttemptsOf(step.StepTemplate, x.Claim.MaxAttempts), r.Success, r.Retryable)
	made := store.MadeEvents{}
	for no := range step.Events {
		d := &step.Events[no]
		if !d.Follows(outcome) {
			continue
		}
		about := c.about(d, outcome, f)
		m, who, err := p.make(c, about, d, plain)
		if err != nil {
			p.failed(about, d, who, m.Skip, err)
		}
		if d.Durable() && (m.Skip != "" || d.Publisher != "") {
			made[no] = m
		}
		if m.Skip == "" {
			c.published = append(c.published, publishable{declared: d, publisher: who, about: about, event: eventOf(about, d, step, m)})
		}
	}
	for i, m := range own {
		d := &workflow.Event{EventPublication: &workflow.EventPublication{Name: m.Name, DeliveryMode: "durable"}}
		about := c.about(d, outcome, f)
		c.published = append(c.published, publishable{declared: d, about: about, event: eventOf(about, d, step, m)})
		made[store.OwnEvent(i)] = m
	}
	r.Publishes = len(own) > 0
	doc, err := made.Encode()
	if err != nil { // all of its content is JSON
		p.log.Error("the events of a step are lost", zap.Inline(x), zap.Error(err))
	}
	r.Events = doc
}

// about makes the StepEvent of an event for its publisher.
func (c *StepContext) about(d *workflow.Event, outcome workflow.AttemptOutcome, f *engine.Failure) *StepEvent {
	x := &c.x
	plan, _ := x.Plan()
	t := plan.Template
	e := &StepEvent{Name: d.Name, Condition: d.Condition, DeliveryMode: d.DeliveryMode,
		TaskUUID: x.Key.TaskUUID, StepUUID: x.Claim.StepUUID(), CorrelationID: x.Claim.CorrelationID,
		Namespace: t.Namespace, TaskName: t.Name, TaskVersion: t.Version, StepName: x.StepName(), Attempt: x.Claim.Attempt,
		Context: x.Claim.Context, Outcome: outcome}
	if f == nil {
		e.Result = x.Report.Result
		e.Payload = e.Result
		return e
	}
	e.Failure = &workflow.EventFailure{Message: f.Message, Type: f.Type, Code: f.Code, Retryable: f.Retryable, Context: f.Context}
	e.Payload = failurePayload(*e.Failure)
	return e
}

// fields identify an event in the log, before others.
func (e *StepEvent) fields(others ...zap.Field) []zap.Field {
	return append([]zap.Field{zap.Stringer("correlation_id", e.CorrelationID), zap.Stringer("task_uuid", e.TaskUUID), zap.String("namespace", e.Namespace),
		zap.String("template", e.TaskName), zap.String("step_name", e.StepName), zap.String("event_name", e.Name)}, others...)
}

// eventOf makes the event that subscribers receive.
func eventOf(about *StepEvent, d *workflow.Event, step *workflow.PlanStep, m store.MadeEvent) events.Event {
	e := events.Event{ID: uuid.Must(uuid.NewV7()).String(), Name: d.Name, Version: domainevent.Version, Payload: about.Payload,
		Metadata: events.Metadata{TaskUUID: about.TaskUUID.String(), StepUUID: about.StepUUID.String(), StepName: about.StepName,
			Namespace: about.Namespace, CorrelationID: about.CorrelationID.String(), FiredAt: time.Now().UTC(),
			FiredBy: d.FiredBy(step.StepTemplate), Success: about.Success(), Attempt: about.Attempt, Added: m.Metadata}}
	if m.Payload != nil {
		e.Payload = m.Payload
	}
	return e
}

// make makes one event. Skip is the reason for not publishing it; the error is the
// failure.
func (p *publishing) make(c *StepContext, about *StepEvent, d *workflow.Event, plain bool) (m store.MadeEvent, who *Publisher, err error) {
	if d.Publisher != "" && !plain {
		var known bool
		made, foreign := c.foreign.of(d.Name)
		switch who, known = p.publishers.get(d.Publisher); {
		case foreign:
			if m, err = made.event(); err != nil || m.Skip != "" {
				return m, nil, err
			}
		case known:
			if m, err = p.ask(who, about); err != nil || m.Skip != "" {
				return m, who, err
			}
		case p.cfg.UnknownPublisher != publishPlain:
			return store.MadeEvent{Skip: eventUnknownPublisher}, nil, fmt.Errorf("publisher %q is not registered in this worker", d.Publisher)
		default:
			p.warnOfPlain(about, d)
			plain = true
		}
	}
	if d.Publisher != "" && plain {
		m.Payload = about.Payload // without the publisher's payload subscribers would miss the event
	}
	payload := m.Payload
	if payload == nil {
		payload = about.Payload
	}
	if len(payload) > p.cfg.MaxPayloadBytes {
		return store.MadeEvent{Skip: eventTooLarge}, who, fmt.Errorf("the payload has %d bytes, more than %d", len(payload), p.cfg.MaxPayloadBytes)
	}
	wrong, err := d.Check(&c.x.Ctx, p.checker, payload)
	if err != nil {
		return store.MadeEvent{Skip: eventSchema}, who, fmt.Errorf("the payload cannot be checked against the declared schema: %w", err)
	}
	if len(wrong) > 0 {
		return store.MadeEvent{Skip: eventSchema}, who, fmt.Errorf("the payload does not fit the declared schema: %q %s", wrong[0].Path, wrong[0].Message)
	}
	return m, who, nil
}

// warnOfPlain warns, once per publisher, that events are published without it.
func (p *publishing) warnOfPlain(about *StepEvent, d *workflow.Event) {
	if _, known := p.missed.LoadOrStore(d.Publisher, true); known {
		return
	}
	p.log.Warn("domain events are published with the plain payload, because this worker does not have their publisher",
		about.fields(zap.String("publisher", d.Publisher))...)
}

var (
	errPublishersBusy   = errors.New("no publisher ended in time to let this one run")
	errPublisherTooSlow = errors.New("the publisher did not end in time")
)

// ask calls a publisher to make an event.
func (p *publishing) ask(who *Publisher, about *StepEvent) (store.MadeEvent, error) {
	m, err := bounded(p, func(ctx context.Context) (store.MadeEvent, error) { return who.make(ctx, about) })
	var panicked *lifecycle.PanicError
	var odd *notStorableError
	switch {
	case err == nil:
		return m, nil
	case errors.Is(err, errPublishersBusy):
		m.Skip = eventBusy
	case errors.Is(err, errPublisherTooSlow):
		m.Skip = eventPublisherTimeout
	case errors.As(err, &panicked):
		m.Skip = eventPublisherPanic
	case errors.As(err, &odd):
		m.Skip = eventNotStorable
	default:
		m.Skip = eventPublisherError
	}
	return store.MadeEvent{Skip: m.Skip}, err
}

// make calls the functions of the publisher in order.
func (who *Publisher) make(ctx context.Context, about *StepEvent) (m store.MadeEvent, err error) {
	if who.Before != nil {
		if err := who.Before(ctx, about); err != nil {
			return m, err
		}
	}
	if who.ShouldPublish != nil {
		if yes, err := who.ShouldPublish(ctx, about); err != nil || !yes {
			return store.MadeEvent{Skip: eventVetoed}, err
		}
	}
	m.Payload = about.Payload
	if who.Payload != nil {
		value, err := who.Payload(ctx, about)
		if err != nil {
			return m, err
		}
		if m.Payload, err = encodeEvent(value, 0); err != nil {
			return m, err
		}
	}
	if who.Metadata != nil {
		added, err := who.Metadata(ctx, about)
		if err != nil || len(added) == 0 {
			return m, err
		}
		m.Metadata, err = encodeEvent(added, maxEventMetadata)
		return m, err
	}
	return m, nil
}

// notStorableError is for output of a publisher that cannot be stored.
type notStorableError struct{ error }

func encodeEvent(value any, limit int) (json.RawMessage, error) {
	doc, err := engine.Encode(value, limit)
	if err != nil {
		return nil, &notStorableError{fmt.Errorf("the publisher's output cannot be stored: %w", err)}
	}
	return doc, nil
}

// bounded calls a function of a publisher and waits for it until its time limit. A
// function that continues keeps its permit until it returns, which bounds their number.
func bounded[T any](p *publishing, f func(ctx context.Context) (T, error)) (none T, err error) {
	ctx, cancel := context.WithTimeout(p.base, p.cfg.PublisherTimeout)
	defer cancel()
	select {
	case p.permits <- struct{}{}:
	case <-ctx.Done():
		return none, errPublishersBusy
	}
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	p.running.Go(func() {
		defer func() { <-p.permits }()
		var a answer
		err := lifecycle.Guard(func() (err error) { a.value, err = f(ctx); return err })
		done <- answer{a.value, err}
	})
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return none, errPublisherTooSlow
	}
}

// failed logs and counts an event that is not published.
func (p *publishing) failed(about *StepEvent, d *workflow.Event, who *Publisher, reason string, err error) {
	if d.Durable() {
		p.count.failed.Add(1)
	}
	p.metrics.DomainEventsFailed.WithLabelValues(p.metrics.Named("event_name", d.Name), p.metrics.Named("namespace", about.Namespace), reason).Inc()
	p.log.Warn("a domain event is not published", about.fields(zap.String("reason", reason), zap.Error(err), lifecycle.StackField(err))...)
	if who == nil || who.Failed == nil {
		return
	}
	_, hook := bounded(p, func(ctx context.Context) (struct{}, error) { who.Failed(ctx, about, err); return struct{}{}, nil })
	if hook != nil {
		p.log.Warn("the publisher failed over the failure", zap.String("publisher", who.Name), zap.Error(hook), lifecycle.StackField(hook))
	}
}

// accepted routes the events of an execution whose report was accepted. It never blocks.
func (p *publishing) accepted(c *StepContext) {
	list := c.published
	c.published = nil
	waits, fast := false, uint64(0)
	for i := range list {
		e := &list[i]
		switch {
		case e.declared.Durable() && e.declared.Fast():
			p.count.broadcast.Add(1)
		case e.declared.Durable():
			p.count.durable.Add(1)
		default:
			p.count.fast.Add(1)
		}
		if e.declared.Fast() {
			fast++
		}
		waits = waits || e.declared.Fast() || e.publisher != nil && e.publisher.After != nil
	}
	if !waits || p.enqueue(list) {
		return
	}
	p.count.undelivered.Add(fast)
	p.metrics.DomainEventsDropped.WithLabelValues("").Add(float64(fast))
	if !p.cfg.QuietDrops {
		p.log.Warn("fast domain events are lost: the buffer is full", zap.Inline(&c.x), zap.Uint64("events", fast))
	}
}

func (p *publishing) enqueue(list []publishable) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	select {
	case p.queue <- list:
		return true
	default:
		return false
	}
}

// start begins to dispatch enqueued events.
func (p *publishing) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started || p.closed {
		return
	}
	p.started = true
	p.group.Go(func() {
		for list := range p.queue {
			for i := range list {
				p.dispatch(&list[i])
			}
		}
	})
}

func (p *publishing) dispatch(e *publishable) {
	if e.declared.Fast() {
		p.bus.Publish(e.event)
		p.replicas.send(e.event)
		if !e.declared.Durable() { // durable ones are counted on commit
			p.metrics.DomainEventsPublished.WithLabelValues(p.metrics.Named("event_name", e.declared.Name), p.metrics.Named("namespace", e.about.Namespace)).Inc()
		}
		p.log.Debug("Domain event published", zap.Stringer("correlation_id", e.about.CorrelationID), zap.Stringer("task_uuid", e.about.TaskUUID),
			zap.String("namespace", e.about.Namespace), zap.String("event_id", e.event.ID), zap.String("event_name", e.event.Name),
			zap.String("delivery_mode", e.declared.DeliveryMode))
	}
	if e.publisher == nil || e.publisher.After == nil {
		return
	}
	_, err := bounded(p, func(ctx context.Context) (struct{}, error) { e.publisher.After(ctx, e.about); return struct{}{}, nil })
	if err != nil {
		p.log.Warn("the publisher failed after its event was published", zap.String("publisher", e.publisher.Name), zap.Error(err), lifecycle.StackField(err))
	}
}

// stop delivers the buffered events and stops the bus, within the drain time.
func (p *publishing) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DrainTimeout)
	defer cancel()
	p.start() // buffered events are still to be delivered
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.queue)
	}
	p.mu.Unlock()
	var owner conc.WaitGroup
	through := make(chan struct{})
	owner.Go(func() {
		p.group.Wait()
		p.running.Wait()
		close(through)
	})
	select {
	case <-through:
	case <-ctx.Done():
		return errors.Join(errors.New("publishers of domain events still run"), p.bus.Stop(ctx))
	}
	return p.bus.Stop(ctx)
}

// failurePayload is the default payload for a failure: the failure under "error", and its code and
// message at the top too, where the schemas of templates expect them. Without a code the
// type of the error is used.
func failurePayload(f workflow.EventFailure) json.RawMessage {
	doc, err := json.Marshal(struct {
		Error   workflow.EventFailure `json:"error"`
		Code    string                `json:"error_code"`
		Message string                `json:"error_message"`
	}{f, cmp.Or(f.Code, f.Type), f.Message})
	if err != nil { // the context is not JSON
		f.Context = nil
		return failurePayload(f)
	}
	return doc
}
