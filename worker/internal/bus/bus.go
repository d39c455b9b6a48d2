// Package bus delivers fast domain events to the subscribers of a process. Each has a
// buffer and a goroutine of its own, so one that is slow, fails, panics or hangs does not
// affect the others. A full buffer drops its oldest event, which is counted; nothing is
// kept.
//
// What may not enter: when an event is published and its content (worker).
package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/domainevent"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker/events"
)

// maxSubscribers bounds the subscribers of one bus.
const maxSubscribers = 100

// Config bounds a bus.
type Config struct {
	// Buffer is how many events a slow subscriber may lag behind. Required.
	Buffer int
	// Timeout limits the handling of one event by one subscriber. Required.
	Timeout time.Duration
	// QuietErrors keeps failures of subscribers out of the log.
	QuietErrors bool

	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

// Bus delivers fast events to the subscribers of its process. It is safe for concurrent
// use.
type Bus struct {
	cfg Config

	mu      sync.Mutex
	queues  []*queue
	started bool
	stopped bool
	group   conc.WaitGroup // a goroutine for each queue

	dispatched, delivered, failed, dropped atomic.Uint64
}

// queue holds the waiting events of one subscriber. The bus's lock guards its input, so
// that the oldest event is the one dropped.
type queue struct {
	events.Subscriber
	waiting chan events.Event
}

// Stats count since New.
type Stats struct {
	Dispatched  uint64 // published events
	Delivered   uint64 // handled without an error
	Failed      uint64 // calls that failed, panicked or took too long
	Dropped     uint64 // dropped from full buffers
	Subscribers int
	Patterns    int
}

// New returns a bus without subscribers. It returns an error when a required value is
// missing: the defaults are in package config.
func New(cfg Config) (*Bus, error) {
	if err := errors.Join(settings.Positive("Buffer", cfg.Buffer), settings.Positive("Timeout", cfg.Timeout)); err != nil {
		return nil, fmt.Errorf("configure the bus of events: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	cfg.Metrics = cfg.Metrics.OrDiscard()
	return &Bus{cfg: cfg}, nil
}

// Subscribe adds a subscriber for events from now on. The error says what is wrong with
// it; its name must be unique.
func (b *Bus) Subscribe(s events.Subscriber) error {
	if err := check(&s); err != nil {
		return err
	}
	s.Patterns = slices.Clone(s.Patterns)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.stopped:
		return fmt.Errorf("subscribe %q: the bus is stopped", s.Name)
	case slices.ContainsFunc(b.queues, func(q *queue) bool { return q.Name == s.Name }):
		return fmt.Errorf("subscribe %q: the name is taken", s.Name)
	case len(b.queues) >= maxSubscribers:
		return fmt.Errorf("subscribe %q: want at most %d subscribers", s.Name, maxSubscribers)
	}
	q := &queue{Subscriber: s, waiting: make(chan events.Event, b.cfg.Buffer)}
	b.queues = append(b.queues, q)
	if b.started {
		b.group.Go(func() { b.serve(q) })
	}
	return nil
}

// Subscribed reports whether there are subscribers.
func (b *Bus) Subscribed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queues) > 0
}

// Start starts serving the subscribers; until then their events wait. A second call does
// nothing.
func (b *Bus) Start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.started || b.stopped {
		return
	}
	b.started = true
	for _, q := range b.queues {
		b.group.Go(func() { b.serve(q) })
	}
}

// Publish queues an event for every matching subscriber. It never waits: a full buffer
// drops its oldest event. After Stop it does nothing.
func (b *Bus) Publish(e events.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return
	}
	b.dispatched.Add(1)
	for _, q := range b.queues {
		if !wants(&q.Subscriber, e.Name) {
			continue
		}
		for full := true; full; {
			select {
			case q.waiting <- e:
				full = false
			default:
				b.pushOut(q)
			}
		}
	}
}

// pushOut makes room in a full buffer. The subscriber may just have done so.
func (b *Bus) pushOut(q *queue) {
	select {
	case <-q.waiting:
		b.dropped.Add(1)
		b.cfg.Metrics.DomainEventsDropped.WithLabelValues(q.Name).Inc()
	default:
	}
}

// serve handles the events of one subscriber until the bus is stopped and its buffer is
// empty.
func (b *Bus) serve(q *queue) {
	for e := range q.waiting {
		err := b.handle(q, e)
		if err == nil {
			b.delivered.Add(1)
			continue
		}
		b.failed.Add(1)
		b.cfg.Metrics.DomainEventSubscriberErrors.WithLabelValues(q.Name).Inc()
		if !b.cfg.QuietErrors {
			b.cfg.Logger.Warn("a subscriber failed over a domain event", zap.String("correlation_id", e.Metadata.CorrelationID),
				zap.String("subscriber", q.Name), zap.String("event_id", e.ID), zap.String("event_name", e.Name), zap.Error(err), lifecycle.StackField(err))
		}
	}
}

// errSlow says that a subscriber ignored the end of its context.
var errSlow = errors.New("it took longer than its time limit")

func (b *Bus) handle(q *queue, e events.Event) error {
	ctx, cancel := context.WithTimeout(context.Background(), b.cfg.Timeout)
	defer cancel()
	err := lifecycle.Guard(func() error { return handle(ctx, &q.Subscriber, e) })
	if err == nil && ctx.Err() != nil {
		err = errSlow
	}
	if err == nil || q.Failed == nil {
		return err
	}
	failCtx, done := context.WithTimeout(context.Background(), b.cfg.Timeout)
	defer done()
	return errors.Join(err, lifecycle.Guard(func() error { q.Failed(failCtx, e, err); return nil }))
}

// Stop rejects further events and waits until the subscribers have handled the waiting
// ones, or ctx ends; then the rest is lost. A second call waits too. If the bus was not
// started, all events are lost.
func (b *Bus) Stop(ctx context.Context) error {
	b.mu.Lock()
	if !b.stopped {
		b.stopped = true
		for _, q := range b.queues {
			close(q.waiting)
		}
	}
	b.mu.Unlock()
	idle := make(chan struct{})
	go func() { // ends with the subscribers, which the bus cannot end
		defer close(idle)
		b.group.Wait()
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d events not delivered: %w", b.waiting(), ctx.Err())
	}
}

// waiting is the number of buffered events.
func (b *Bus) waiting() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues {
		n += len(q.waiting)
	}
	return n
}

// Stats reports what the bus has done.
func (b *Bus) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Stats{Dispatched: b.dispatched.Load(), Delivered: b.delivered.Load(), Failed: b.failed.Load(), Dropped: b.dropped.Load(), Subscribers: len(b.queues)}
	for _, q := range b.queues {
		s.Patterns += len(q.Patterns)
	}
	return s
}

// check reports missing or invalid fields.
func check(s *events.Subscriber) error {
	var wrong []error
	if s.Name == "" {
		wrong = append(wrong, errors.New("it has no name"))
	}
	if s.Handle == nil {
		wrong = append(wrong, errors.New("it has no Handle"))
	}
	if len(s.Patterns) == 0 || len(s.Patterns) > domainevent.MaxPatterns {
		wrong = append(wrong, fmt.Errorf("it must have 1 to %d patterns; * is for every event", domainevent.MaxPatterns))
	}
	for _, p := range s.Patterns {
		if err := domainevent.CheckPattern(p); err != nil {
			wrong = append(wrong, err)
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("subscribe %q: %w", s.Name, err)
	}
	return nil
}

func wants(s *events.Subscriber, name string) bool {
	return slices.ContainsFunc(s.Patterns, func(p string) bool { return domainevent.Matches(p, name) })
}

// handle calls the functions of a subscriber.
func handle(ctx context.Context, s *events.Subscriber, e events.Event) error {
	if s.Before != nil {
		if err := s.Before(ctx, e); err != nil {
			return err
		}
	}
	if err := s.Handle(ctx, e); err != nil {
		return err
	}
	if s.After != nil {
		s.After(ctx, e)
	}
	return nil
}

// EventStats counts the domain events of a worker since it was created.
type EventStats struct {
	Durable, Fast, Broadcast uint64 // routed after the reports of their steps were accepted
	FastFailed               uint64 // lost before they reached the bus
	DurableFailed            uint64 // not published because of a failure
	Bus                      Stats
}
