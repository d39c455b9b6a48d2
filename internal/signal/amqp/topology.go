package amqp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/signal"
)

// signalKey begins the routing keys of signals; the topic follows.
const signalKey = "signal."

// Topology is the exchanges and queues of a fleet.
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

// topologyOf names the queues: <namespace>.<key>, or by the names of Tasker.
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

// delayQueue is the queue of a delay, see delay.go.
func (t Topology) delayQueue(delay time.Duration) string {
	return t.Namespace + ".retry.signals." + strconv.Itoa(int(delay.Seconds())) + "s"
}

func routingKey(topic signal.Topic) string { return signalKey + string(topic) }

// Object is a durable exchange or queue.
type Object struct {
	Kind  string `json:"kind"` // of an exchange (direct, fanout, headers), or queue
	Name  string `json:"name"`
	Bound string `json:"bound,omitempty"` // the exchange that a queue is bound to
	Key   string `json:"key,omitempty"`   // with this routing key

	Found *Found `json:"found,omitempty"` // by Inspect; nil where the broker has none
	// Differs is the difference that Inspect found, in the broker's words; or why Remove left it.
	Differs string `json:"differs,omitempty"`

	args, match amqp091.Table // of the queue, and of its binding
}

// Found is an object as the broker has it; an exchange holds no messages.
type Found struct {
	Messages  int `json:"messages"`
	Consumers int `json:"consumers"`
}

// KindQueue is the kind of queues.
const KindQueue = "queue"

// Objects are those of a topology, exchanges first. Queues of delays are created on their first
// use, and those of listeners end with their connections.
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
			if err := o.declare(s.ch); err != nil || o.Bound == "" {
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

func (o *Object) declare(ch *amqp091.Channel) error {
	if o.Kind != KindQueue {
		return ch.ExchangeDeclare(o.Name, o.Kind, true, false, false, false, nil)
	}
	_, err := ch.QueueDeclare(o.Name, true, false, false, false, o.args)
	return err
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

// Inspect returns the objects with their state in the broker. It changes nothing. Objects that
// the user may not declare are not compared.
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

// inspect uses a channel of its own: the broker closes it after a look at a missing object.
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
	var refused *amqp091.Error
	if errors.As(err, &refused) && refused.Code == amqp091.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	o.Found = &Found{q.Messages, q.Consumers}
	if err = o.declare(ch); errors.As(err, &refused) {
		if refused.Code != amqp091.AccessRefused {
			o.Differs = refused.Reason
		}
		return nil
	}
	return err
}

// Remove deletes the objects, unless a queue holds messages or has consumers, or something else is
// bound to an exchange. It returns those that it left, with the reason; a queue that is left keeps
// the exchanges too. Delayed signals are deleted with their queues.
func Remove(ctx context.Context, cfg Config) (left []Object, err error) {
	b, err := newBroker(cfg)
	if err != nil {
		return nil, err
	}
	s, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	defer s.close()
	topology := b.cfg.Topology
	objects := topology.Objects()
	for delay := time.Second; delay <= maxDelay; delay *= 2 {
		objects = append(objects, Object{Kind: KindQueue, Name: topology.delayQueue(delay), Bound: topology.delays()})
	}
	slices.Reverse(objects) // queues first
	for _, o := range objects {
		if o.Kind != KindQueue && len(left) > 0 && left[0].Kind == KindQueue {
			break
		}
		var refused *amqp091.Error
		err := s.bounded(ctx, func() error { return s.remove(&o, o.Bound == topology.delays()) })
		switch {
		case errors.As(err, &refused) && refused.Code != amqp091.NotFound:
			o.Differs = refused.Reason
			left = append(left, o)
		case err != nil && refused == nil:
			return left, fmt.Errorf("remove %q: %w: %w", o.Name, ErrUnavailable, err)
		}
	}
	return left, nil
}

// remove deletes an object that is unused and, if it is a queue, empty, or hints alone.
func (s *session) remove(o *Object, hints bool) error {
	ch, err := s.conn.Channel()
	if err != nil {
		return err
	}
	defer func() { _ = ch.Close() }()
	if o.Kind != KindQueue {
		return ch.ExchangeDelete(o.Name, true, false)
	}
	quorum := o.args["x-queue-type"] == "quorum" // then the broker does not know the conditions
	if quorum {
		q, err := ch.QueueDeclarePassive(o.Name, true, false, false, false, nil)
		if err != nil {
			return err
		}
		if q.Messages > 0 || q.Consumers > 0 {
			return &amqp091.Error{Code: amqp091.PreconditionFailed, Reason: fmt.Sprintf("it has %d messages and %d consumers", q.Messages, q.Consumers)}
		}
	}
	_, err = ch.QueueDelete(o.Name, !quorum, !quorum && !hints, false)
	return err
}
