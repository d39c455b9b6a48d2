package amqp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/signal"
)

// signalKey begins the routing keys of signals; the topic follows.
const signalKey = "signal."

// Topology is what the broker has for a fleet.
type Topology struct {
	// Namespace begins the names of exchanges, and of queues unless they have names of Tasker.
	Namespace string
	// Queues are the durable queues.
	Queues []Queue
	// QueueType is that of the durable queues: classic or quorum.
	QueueType string
}

// Queue is a durable queue with the queue of its retries.
type Queue struct {
	Key   string // routing key
	Name  string
	Retry string
}

// topologyOf names the queues: <namespace>.<key>, or as Tasker does.
func topologyOf(c config.Common) Topology {
	q, r := c.Queues, c.Queues.RabbitMQ
	t := Topology{Namespace: r.Namespace, QueueType: r.QueueType}
	if r.Naming != "tasker" {
		for _, key := range r.Queues {
			t.add(key, t.Namespace+"."+key)
		}
		return t
	}
	o := q.OrchestrationQueues
	for _, name := range []string{o.TaskRequests, o.TaskFinalizations, o.StepResults} {
		t.add(name, name)
	}
	for _, key := range r.Queues {
		name := strings.NewReplacer("{namespace}", q.WorkerNamespace, "{name}", key).Replace(q.NamingPattern)
		t.add(name, name)
	}
	return t
}

func (t *Topology) add(key, name string) {
	t.Queues = append(t.Queues, Queue{Key: key, Name: name, Retry: t.Namespace + ".retry." + key})
}

// maxName is the longest name of AMQP.
const maxName = 255

func (t Topology) check() error {
	var wrong []error
	for _, q := range t.Queues {
		if strings.HasPrefix(q.Key, signalKey) || len(q.Retry) > maxName || len(q.Name) > maxName {
			wrong = append(wrong, fmt.Errorf("invalid queue key %q: want one of at most %d bytes in its names that does not begin with %q", q.Key, maxName, signalKey))
		}
	}
	return errors.Join(wrong...)
}

func (t Topology) direct() string      { return t.Namespace + ".direct" }
func (t Topology) deadLetters() string { return t.Namespace + ".dlx" }
func (t Topology) delays() string      { return t.Namespace + ".delay" }

func routingKey(topic signal.Topic) string { return signalKey + string(topic) }

// declare makes what is missing. An object that is there with other properties stays as it is,
// and the broker's error says which one it is, and how it differs.
func (s *session) declare(ctx context.Context, t Topology) error {
	for _, x := range []struct{ name, kind string }{{t.direct(), amqp091.ExchangeDirect}, {t.deadLetters(), amqp091.ExchangeFanout}, {t.delays(), amqp091.ExchangeHeaders}} {
		err := s.bounded(ctx, func() error { return s.ch.ExchangeDeclare(x.name, x.kind, true, false, false, false, nil) })
		if err != nil {
			return fmt.Errorf("declare the exchange %q: %w", x.name, err)
		}
	}
	if err := s.queue(ctx, t.Namespace+".dlq", t.durable(nil), t.deadLetters(), "", nil); err != nil {
		return err
	}
	for _, q := range t.Queues {
		if err := errors.Join(
			s.queue(ctx, q.Name, t.durable(amqp091.Table{"x-dead-letter-exchange": t.deadLetters()}), t.direct(), q.Key, nil),
			s.queue(ctx, q.Retry, t.durable(amqp091.Table{"x-dead-letter-exchange": t.direct(), "x-dead-letter-routing-key": q.Key}), "", "", nil),
		); err != nil {
			return err
		}
	}
	return nil
}

func (t Topology) durable(args amqp091.Table) amqp091.Table {
	if args == nil {
		args = amqp091.Table{}
	}
	args["x-queue-type"] = t.QueueType
	return args
}

// queue declares a durable queue and binds it, if it is to be bound.
func (s *session) queue(ctx context.Context, name string, args amqp091.Table, exchange, key string, match amqp091.Table) error {
	err := s.bounded(ctx, func() error {
		_, err := s.ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
	if err != nil {
		return fmt.Errorf("declare the queue %q: %w", name, err)
	}
	if exchange == "" {
		return nil
	}
	if err := s.bounded(ctx, func() error { return s.ch.QueueBind(name, key, exchange, false, match) }); err != nil {
		return fmt.Errorf("bind the queue %q to %q: %w", name, exchange, err)
	}
	return nil
}
