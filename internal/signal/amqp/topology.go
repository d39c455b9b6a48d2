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

func (t Topology) direct() string  { return t.Namespace + ".direct" }
func (t Topology) delays() string  { return t.Namespace + ".delay" }
func (t Topology) dead() string    { return t.Namespace + ".dlx" }
func (t Topology) letters() string { return t.Namespace + ".dlq" }

func routingKey(topic signal.Topic) string { return signalKey + string(topic) }

// Object is a durable exchange or queue.
type Object struct {
	Kind  string `json:"kind"` // of an exchange (direct, fanout, headers), or queue
	Name  string `json:"name"`
	Bound string `json:"bound,omitempty"` // the exchange that a queue is bound to
	Key   string `json:"key,omitempty"`   // with this routing key

	Found *Found `json:"found,omitempty"` // by Inspect; nil where the broker has none

	args, match amqp091.Table // of the queue, and of its binding
}

// Found is what a broker has of an object; an exchange holds nothing.
type Found struct {
	Messages  int `json:"messages"`
	Consumers int `json:"consumers"`
}

// KindQueue is the kind of queues.
const KindQueue = "queue"

// Objects are those of a topology, exchanges first. Queues of delays come with their use, and
// those of listeners go with them.
func (t Topology) Objects() []Object {
	dead := t.dead()
	list := []Object{
		{Kind: amqp091.ExchangeDirect, Name: t.direct()}, {Kind: amqp091.ExchangeFanout, Name: dead}, {Kind: amqp091.ExchangeHeaders, Name: t.delays()},
		{Kind: KindQueue, Name: t.letters(), Bound: dead, args: amqp091.Table{"x-queue-type": t.QueueType}},
	}
	for _, q := range t.Queues {
		list = append(list,
			Object{Kind: KindQueue, Name: q.Name, Bound: t.direct(), Key: q.Key, args: amqp091.Table{"x-queue-type": t.QueueType, "x-dead-letter-exchange": dead}},
			Object{Kind: KindQueue, Name: q.Retry,
				args: amqp091.Table{"x-queue-type": t.QueueType, "x-dead-letter-exchange": t.direct(), "x-dead-letter-routing-key": q.Key}})
	}
	return list
}

// declare makes what is missing. An object that is there with other properties stays as it is,
// and the broker's error says which one it is, and how it differs.
func (s *session) declare(ctx context.Context, objects ...Object) error {
	for _, o := range objects {
		err := s.bounded(ctx, func() error {
			if o.Kind != KindQueue {
				return s.ch.ExchangeDeclare(o.Name, o.Kind, true, false, false, false, nil)
			}
			if _, err := s.ch.QueueDeclare(o.Name, true, false, false, false, o.args); err != nil || o.Bound == "" {
				return err
			}
			return s.ch.QueueBind(o.Name, o.Key, o.Bound, false, o.match)
		})
		if err != nil {
			return fmt.Errorf("declare %q: %w", o.Name, err)
		}
	}
	return nil
}

// Declare makes the objects that the broker lacks.
func Declare(ctx context.Context, cfg Config) error {
	b, err := newBroker(cfg)
	if err != nil {
		return err
	}
	s, err := b.dial(ctx)
	if err == nil {
		s.close()
	}
	return err
}

// Inspect returns the objects, and what the broker has of them.
func Inspect(ctx context.Context, cfg Config) ([]Object, error) {
	b, err := newBroker(cfg)
	if err != nil {
		return nil, err
	}
	objects := b.cfg.Topology.Objects()
	s, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	for i := range objects {
		if err := s.bounded(ctx, func() error { return s.inspect(&objects[i]) }); err != nil {
			return nil, fmt.Errorf("look at %q: %w: %w", objects[i].Name, ErrUnavailable, err)
		}
	}
	return objects, nil
}

// inspect uses a channel of its own: the broker ends one that looks at what is missing.
func (s *session) inspect(o *Object) error {
	ch, err := s.conn.Channel()
	if err != nil {
		return err
	}
	defer func() { _ = ch.Close() }()
	var q amqp091.Queue
	if o.Kind == KindQueue {
		q, err = ch.QueueDeclarePassive(o.Name, true, false, false, false, nil)
	} else {
		err = ch.ExchangeDeclarePassive(o.Name, o.Kind, true, false, false, false, nil)
	}
	var missing *amqp091.Error
	if errors.As(err, &missing) && missing.Code == amqp091.NotFound {
		return nil
	}
	if err == nil {
		o.Found = &Found{q.Messages, q.Consumers}
	}
	return err
}
