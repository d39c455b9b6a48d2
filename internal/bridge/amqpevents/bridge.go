package amqpevents

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/bridge"
	"github.com/tasker-go/tasker/internal/domainevent"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// Log has the events; *store.Store is one.
type Log interface {
	CreateEventConsumer(ctx context.Context, def store.EventConsumer, from store.EventPlace, most store.ConsumerBounds, by store.OperatorAction) (store.EventConsumer, error)
	EventConsumer(ctx context.Context, name string) (store.EventConsumer, error)
	ClaimEvents(ctx context.Context, consumer, holder string, limit int, lease time.Duration) (store.ClaimedEvents, error)
	AckEvents(ctx context.Context, consumer string, token, position int64, release bool) error
	WantResults(ctx context.Context, namespace string, wanted bool) error
}

// Config describes a Bridge. Its settings are those of orchestration.bridge.rabbitmq_events and
// common.queues.rabbitmq.
type Config struct {
	Broker       amqp.Config
	Exchange     string
	Type         string // of the exchange; empty: it is not declared
	Namespace    string
	Patterns     []string // of names of events; none: all
	FromNow      bool     // the consumer begins behind all events, if it is not there yet
	MaxConsumers int      // that there may be
	BatchSize    int      // events that are claimed at once
	Lease        time.Duration
	Interval     time.Duration // between two looks without a signal
	Mandatory    bool          // an event waits until a queue takes it
	Results      bool          // the ends of tasks are events, too
	Holder       string        // this orchestrator

	Log       Log
	NewEvents func() <-chan struct{} // see orchestration.Orchestrator
	Metrics   *telemetry.Metrics
	Logger    *zap.Logger
}

// Bridge is a lifecycle.Service that publishes the events of a namespace while it runs. Several
// may publish those of the same one.
type Bridge struct {
	*lifecycle.Loop
	cfg      Config
	consumer string
	out      *amqp.Publisher // owned by the loop, as what follows
	from     store.EventPlace
	busy     bool      // the latest look found the events claimed
	decided  bool      // about results
	measured time.Time // the lag
}

// New opens no connection.
func New(cfg Config) (*Bridge, error) {
	out, err := amqp.NewPublisher(cfg.Broker, cfg.Exchange, cfg.Type, cfg.BatchSize)
	for _, p := range cfg.Patterns {
		err = errors.Join(err, domainevent.CheckPattern(p))
	}
	if err != nil {
		return nil, err
	}
	b := &Bridge{cfg: cfg, consumer: consumerOf(cfg.Namespace), out: out, from: store.EventPlace{Now: cfg.FromNow}}
	b.Loop = lifecycle.NewLoop(lifecycle.LoopConfig{Name: "rabbitmq-events-bridge", Run: b.run, MaxSilence: time.Minute + cfg.Lease + out.Beyond(),
		OnRestart: cfg.Metrics.Restarted, Logger: cfg.Logger})
	return b, nil
}

// consumerOf names the consumer of a namespace. Names of consumers have small letters only.
func consumerOf(namespace string) string {
	name := "rabbitmq-events." + strings.ToLower(namespace)
	if !strings.HasSuffix(name, namespace) {
		sum := sha256.Sum256([]byte(namespace))
		name += fmt.Sprintf(".%x", sum[:4])
	}
	return name
}

// connection is the value of that label.
const connection = "rabbitmq_events"

func (b *Bridge) run(ctx context.Context) error {
	defer b.out.Close()
	for failures := 0; ctx.Err() == nil; {
		b.Beat()
		news, wait := b.cfg.NewEvents(), b.cfg.Interval // before the look
		more, err := b.look(ctx)
		if err == nil && failures > 0 {
			b.cfg.Logger.Info("events for RabbitMQ go on", zap.String("namespace", b.cfg.Namespace), zap.Int("failures", failures))
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && more:
			failures = 0
			continue
		case err == nil:
			if failures = 0; b.busy { // by another orchestrator, or by a claim whose answer was lost
				wait = min(wait, b.cfg.Lease)
			}
		default:
			if failures++; failures == 1 { // the first error of a series
				b.cfg.Logger.Warn("events for RabbitMQ wait", zap.String("namespace", b.cfg.Namespace), zap.Error(err))
			}
			news, wait = nil, bridge.Pause(failures)
		}
		b.rest(ctx, news, wait)
	}
	return ctx.Err()
}

// rest waits until there may be events, or the interval has passed.
func (b *Bridge) rest(ctx context.Context, news <-chan struct{}, wait time.Duration) {
	b.Rest()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-news:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// look publishes a batch; more says that there may be others.
func (b *Bridge) look(ctx context.Context) (more bool, err error) {
	if time.Since(b.measured) >= b.cfg.Interval {
		b.measure(ctx)
	}
	if !b.decided { // events and results count from now on, also while the broker is away
		if err := b.decide(ctx); err != nil {
			return false, b.awaits(err)
		}
		b.decided = true
	}
	err = b.out.Ready(ctx)
	b.cfg.Metrics.Broker(connection, err, amqp.Reason)
	if err != nil {
		return false, err
	}
	begin := time.Now()
	claimed, err := b.cfg.Log.ClaimEvents(ctx, b.consumer, b.cfg.Holder, b.cfg.BatchSize, b.cfg.Lease)
	b.busy = errors.Is(err, store.ErrConsumerBusy)
	switch {
	case b.busy:
		return false, nil
	case errors.Is(err, store.ErrNotFound):
		return b.create(ctx)
	case err != nil || len(claimed.Events) == 0:
		return false, err
	}
	publishing, cancel := context.WithDeadline(ctx, begin.Add(b.cfg.Lease))
	defer cancel()
	done, err := b.publish(publishing, claimed.Events)
	if errors.Is(err, amqp.ErrUnavailable) {
		b.cfg.Metrics.Broker(connection, err, amqp.Reason)
	}
	upto := claimed.Events[0].Position - 1
	if done > 0 {
		upto = claimed.Events[done-1].Position
	}
	// The events are published: release the claim, so that others need not wait for the lease.
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.out.Beyond())
	defer cancel()
	return true, errors.Join(err, b.cfg.Log.AckEvents(settling, b.consumer, claimed.Token, upto, true))
}

// decide says whether results are wanted, and where the bridge begins.
func (b *Bridge) decide(ctx context.Context) error {
	err := b.cfg.Log.WantResults(ctx, b.cfg.Namespace, b.cfg.Results)
	if err == nil {
		_, err = b.create(ctx)
	}
	return err
}

// measure sets the metric for how long the oldest unpublished event has waited, whichever
// orchestrator publishes.
func (b *Bridge) measure(ctx context.Context) {
	c, err := b.cfg.Log.EventConsumer(ctx, b.consumer)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return
	}
	lag := time.Duration(0)
	if c.OldestUnread != nil {
		lag = max(time.Since(*c.OldestUnread), 0)
	}
	b.measured = time.Now()
	b.cfg.Metrics.BridgeEventsLag.WithLabelValues(b.cfg.Namespace).Set(lag.Seconds())
}

// create makes the consumer.
func (b *Bridge) create(ctx context.Context) (created bool, err error) {
	_, err = b.cfg.Log.CreateEventConsumer(ctx, store.EventConsumer{Name: b.consumer, Namespace: b.cfg.Namespace}, b.from, store.ConsumerBounds{All: b.cfg.MaxConsumers, Namespace: b.cfg.MaxConsumers},
		store.OperatorAction{Actor: b.cfg.Holder, Action: "create_event_consumer", Reason: "orchestration.bridge.rabbitmq_events"})
	if errors.Is(err, store.ErrConsumerExists) { // another orchestrator was faster
		return true, nil
	}
	return err == nil, err
}

// awaits records that the namespace does not exist yet: once it does, all its events are new.
func (b *Bridge) awaits(err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	b.from = store.EventPlace{}
	return nil
}

// publish publishes events in rounds: of each task a round has the first event that was not
// confirmed. It returns how many of the events, from the first on, are done.
func (b *Bridge) publish(ctx context.Context, events []store.Event) (done int, err error) {
	settled, open := make([]bool, len(events)), make([]int, 0, len(events))
	for i := range events {
		if settled[i] = !b.wants(events[i].Name); !settled[i] {
			open = append(open, i)
		}
	}
	for len(open) > 0 && err == nil {
		var round, later []int
		tasks := make(map[uuid.UUID]bool, len(open))
		for _, i := range open {
			if task := events[i].Task; tasks[task] {
				later = append(later, i)
			} else {
				tasks[task], round = true, append(round, i)
			}
		}
		open, err = later, b.round(ctx, events, round, settled)
	}
	for done < len(events) && settled[done] {
		done++
	}
	return done, err
}

func (b *Bridge) wants(name string) bool {
	return len(b.cfg.Patterns) == 0 || slices.ContainsFunc(b.cfg.Patterns, func(p string) bool { return domainevent.Matches(p, name) })
}

// round publishes some of the events, and records which are settled.
func (b *Bridge) round(ctx context.Context, events []store.Event, round []int, settled []bool) error {
	messages := make([]amqp.Outgoing, len(round))
	for k, i := range round {
		var err error
		if messages[k], err = outgoing(&events[i]); err != nil {
			return err
		}
	}
	fates, err := b.out.Publish(ctx, messages)
	published, unroutable := 0, 0
	for k, i := range round {
		switch fates[k] {
		case amqp.Confirmed:
			published++
			settled[i] = true
		case amqp.Unroutable:
			unroutable++
			if settled[i] = !b.cfg.Mandatory; !settled[i] && err == nil {
				err = fmt.Errorf("no queue is bound to the exchange %q for %q", b.cfg.Exchange, messages[k].Key)
			}
		}
	}
	b.cfg.Metrics.BridgeEvents.WithLabelValues(b.cfg.Namespace, "published").Add(float64(published))
	b.cfg.Metrics.BridgeEvents.WithLabelValues(b.cfg.Namespace, "unroutable").Add(float64(unroutable))
	return err
}

// outgoing is the message of an event. A routing key that is too long is cut: bindings match its
// beginning, and the type of the message has the whole name.
func outgoing(e *store.Event) (m amqp.Outgoing, err error) {
	shown := rest.ShownEvent(e)
	m = amqp.Outgoing{Key: amqp.RoutingKey(e.Namespace + "." + e.Name), ID: shown.ID, Type: e.Name, CorrelationID: shown.Metadata.CorrelationID, At: e.FiredAt, Headers: map[string]any{
		"namespace": e.Namespace, "task_uuid": shown.Metadata.TaskUUID, "step_uuid": shown.Metadata.StepUUID, "position": e.Position}}
	if m.Body, err = json.Marshal(shown); err != nil {
		err = fmt.Errorf("encode the event %s: %w", m.ID, err)
	}
	return m, err
}
