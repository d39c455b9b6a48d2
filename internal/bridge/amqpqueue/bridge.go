package amqpqueue

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/bridge"
	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/signal"
)

// Tasks finds tasks; *store.Store is one.
type Tasks interface {
	NamedTasks(ctx context.Context, tasks []uuid.UUID, identities []dedup.Identity) (namespaces map[[16]byte]string, err error)
}

// Config describes a Bridge. Its settings are those of orchestration.bridge.rabbitmq_queue and
// common.queues.rabbitmq.
type Config struct {
	Broker    amqp.Config
	Keys      []string // of the queues; empty: all
	BatchSize int      // messages that become tasks at once
	bridge.Door
	Tasks     Tasks
	Publisher signal.Publisher
	Logger    *zap.Logger
}

// Bridge is a lifecycle.Service that takes messages while it runs. Several may share a queue.
type Bridge struct {
	*lifecycle.Loop
	cfg      Config
	receiver *amqp.Receiver // owned by the loop
}

// New opens no connection.
func New(cfg Config) (*Bridge, error) {
	receiver, err := amqp.NewReceiver(cfg.Broker, cfg.Keys)
	if err != nil {
		return nil, err
	}
	b := &Bridge{cfg: cfg, receiver: receiver}
	b.Loop = lifecycle.NewLoop(lifecycle.LoopConfig{Name: "rabbitmq-queue-bridge", Run: b.run, MaxSilence: time.Minute + receiver.Beyond(),
		OnRestart: cfg.Metrics.Restarted, Logger: cfg.Logger})
	return b, nil
}

// run connects again and again.
func (b *Bridge) run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; {
		b.Beat()
		moved, err := b.connected(ctx, failures)
		if ctx.Err() != nil {
			break
		}
		b.cfg.Metrics.Broker(connection, err, amqp.Reason)
		if moved {
			failures = 0
		}
		if failures++; failures == 1 { // the first error of a series
			b.cfg.Logger.Warn("messages in RabbitMQ wait", zap.Error(err))
		}
		b.Rest()
		if err := lifecycle.Pause(ctx, bridge.Pause(failures)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// connected moves messages over one connection, after failures in a row, and returns why it
// ended.
func (b *Bridge) connected(ctx context.Context, failures int) (moved bool, err error) {
	if err := b.receiver.Connect(ctx); err != nil {
		return false, err
	}
	defer b.receiver.Close()
	defer b.cfg.Waiting(name, 0, false) // the broker has them again
	b.cfg.Metrics.Broker(connection, nil, amqp.Reason)
	for looked := (time.Time{}); ; {
		if time.Since(looked) > lookInterval {
			n, err := b.receiver.DeadLetters(ctx)
			if err != nil {
				return moved, err
			}
			b.cfg.Metrics.BridgeDeadLetters.WithLabelValues(name).Set(float64(n))
			looked = time.Now()
		}
		held, err := b.take(ctx)
		for tries := 1; err == nil && len(held) > 0; tries++ {
			var wait error
			b.Beat()
			held, wait, err = b.move(ctx, held)
			b.cfg.Waiting(name, len(held), len(held) > 0)
			if len(held) > 0 && err == nil {
				if tries == 1 {
					b.cfg.Logger.Warn("messages of RabbitMQ cannot become tasks yet", zap.Error(wait))
				}
				err = b.hold(ctx, bridge.Pause(tries))
			} else if tries > 1 && err == nil {
				b.cfg.Logger.Info("messages of RabbitMQ become tasks again", zap.Int("failures", tries-1))
			}
		}
		if err != nil {
			return moved, err
		}
		if !moved && failures > 0 {
			b.cfg.Logger.Info("messages in RabbitMQ are taken again", zap.Int("failures", failures))
		}
		moved = true
	}
}

// hold waits while the connection is open.
func (b *Bridge) hold(ctx context.Context, d time.Duration) error {
	b.Rest()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-b.receiver.Lost():
		return b.receiver.Failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take waits for a message, and returns it with those that have arrived too; with none when the
// next look at the dead letters is due.
func (b *Bridge) take(ctx context.Context) (batch []amqp.Message, err error) {
	b.Rest()
	look := time.NewTimer(lookInterval)
	defer look.Stop()
	select {
	case m := <-b.receiver.Arrived():
		batch = append(batch, m)
	case <-look.C:
		return nil, nil
	case <-b.receiver.Lost():
		return nil, b.receiver.Failure()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	late := time.NewTimer(lateness)
	defer late.Stop()
	for len(batch) < b.cfg.BatchSize {
		select {
		case m := <-b.receiver.Arrived():
			batch = append(batch, m)
		case <-late.C:
			return batch, nil
		}
	}
	return batch, nil
}

// lookInterval is the time between two looks at how many dead letters there are.
const lookInterval = 5 * time.Second

// lateness bounds how long a batch waits for further messages, which arrive one by one.
const lateness = 2 * time.Millisecond

// note is the content of a message.
type note struct {
	amqp.Message
	id, kind string
	payload  json.RawMessage // nil: it is about a task that is there
}

// said parses a message. The error is a *submission.InvalidError.
func said(m amqp.Message) (note, error) {
	var s struct {
		ID, Type string
		Payload  json.RawMessage
	}
	if err := json.Unmarshal(m.Body, &s); err != nil || !utf8.Valid(m.Body) || s.ID == "" || s.Type == "" {
		return note{}, &submission.InvalidError{Problems: []string{"want a JSON object in UTF-8 with texts as id and type"}}
	}
	if string(s.Payload) == "null" {
		s.Payload = nil
	}
	return note{m, s.ID, s.Type, s.Payload}, nil
}

// round is the outcome of one try for a batch of messages.
type round struct {
	done  []amqp.Message
	dead  []amqp.Letter
	apart []amqp.Parked
	kept  []amqp.Message
	wait  error // the first reason to keep one
}

// end settles one message.
func (r *round) end(m amqp.Message, err error) {
	switch {
	case err == nil:
		r.done = append(r.done, m)
	case bridge.Final(err) || bridge.Rejected(err) && m.Rejections()+1 >= bridge.MaxRejections:
		r.dead = append(r.dead, amqp.Letter{Message: m, Reason: err.Error()})
	case bridge.Rejected(err):
		r.apart = append(r.apart, amqp.Parked{Message: m, Rejections: m.Rejections() + 1})
	case bridge.Parked(err):
		r.apart = append(r.apart, amqp.Parked{Message: m, Rejections: m.Rejections()})
	default:
		if r.kept = append(r.kept, m); r.wait == nil {
			r.wait = err
		}
	}
}

// move creates tasks and signals from messages, and returns those that must wait, with the first
// reason. After any other error the connection must be closed.
func (b *Bridge) move(ctx context.Context, messages []amqp.Message) (kept []amqp.Message, wait, err error) {
	r := &round{}
	var requests []orchestration.Request
	var asked []amqp.Message
	var about []note
	for _, m := range messages {
		n, err := said(m)
		if err == nil && n.payload == nil {
			about = append(about, n)
			continue
		}
		var request orchestration.Request
		if err == nil {
			request, err = b.request(ctx, n)
		}
		if err != nil {
			r.end(m, err)
			continue
		}
		requests, asked = append(requests, request), append(asked, m)
	}
	for i, created := range b.cfg.CreateMany(ctx, requests) {
		if created.Err == nil {
			b.count(bridge.Outcome(created), 1)
		} else if bridge.Rejected(created.Err) {
			b.cfg.Logger.Error("the database rejects the task of a message", zap.String("queue", asked[i].Queue),
				zap.Int("rejections", asked[i].Rejections()+1), zap.Error(created.Err))
		}
		r.end(asked[i], created.Err)
	}
	b.signal(ctx, r, about)
	err = b.receiver.Acknowledge(ctx, r.done...)
	if err == nil && len(r.apart) > 0 {
		if err = b.receiver.Park(ctx, b.cfg.Parking(), r.apart...); err == nil {
			b.count("parked", len(r.apart))
		}
	}
	if err == nil && len(r.dead) > 0 {
		if err = b.receiver.Bury(ctx, r.dead...); err == nil {
			b.count("refused", len(r.dead))
		}
	}
	return r.kept, r.wait, err
}

func (b *Bridge) count(outcome string, n int) { b.cfg.Count(name, outcome, n) }

// The values of the labels bridge and connection.
const (
	name       = "rabbitmq"
	connection = "rabbitmq_queue"
)

func (b *Bridge) request(ctx context.Context, n note) (orchestration.Request, error) {
	if !b.cfg.Admitted("") {
		return orchestration.Request{}, bridge.ErrRefused
	}
	request, err := b.cfg.Request(ctx, n.id, n.kind, n.payload)
	request.Initiator, request.SourceSystem, request.Reason = "rabbitmq-queue-bridge", b.cfg.Broker.Topology.Namespace, "a message of the queue "+n.Queue
	return request, err
}

// signal publishes the signals of messages about tasks: each is named by its id, or by its
// idempotency key, which counts as long as the type remembers it.
func (b *Bridge) signal(ctx context.Context, r *round, about []note) {
	type names struct {
		task      uuid.UUID // Nil: the id is none
		identity  dedup.Identity
		namespace string // of the type; empty: there is none
		unknown   error
	}
	named := make([]names, len(about))
	var tasks []uuid.UUID
	var identities []dedup.Identity
	for i, n := range about {
		s := &named[i]
		if id, err := uuid.Parse(n.id); err == nil {
			s.task, tasks = id, append(tasks, id)
		}
		plan, err := b.cfg.PlanOfType(ctx, b.cfg.Namespace, n.kind)
		if err != nil {
			s.unknown = err
			continue
		}
		s.namespace, s.identity = plan.Template.Namespace, dedup.KeyIdentity(plan.Template.Namespace, plan.Template.Name, n.id)
		identities = append(identities, s.identity)
	}
	if len(about) == 0 {
		return
	}
	found, err := b.cfg.Tasks.NamedTasks(ctx, tasks, identities)
	signals := []signal.Signal{{Topic: signal.TopicOrchestration}}
	for i, n := range about {
		s := named[i]
		namespace, ok := found[s.task]
		if _, known := found[s.identity]; !ok && known {
			namespace, ok = s.namespace, true
		}
		switch {
		case ok:
			signals = append(signals, signal.Signal{Topic: signal.WorkerTopic(namespace)})
			b.count("signalled", 1)
			r.end(n.Message, nil)
		case err != nil:
			r.end(n.Message, err)
		case s.unknown != nil:
			r.end(n.Message, s.unknown)
		default:
			r.end(n.Message, &submission.InvalidError{Problems: []string{fmt.Sprintf("there is no task of the type %s with the id or idempotency key %q, and without a payload there is none to create", n.kind, n.id)}})
		}
	}
	if len(signals) > 1 {
		b.cfg.Publisher.Publish(signals...)
	}
}
