package amqp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/sourcegraph/conc"
)

// Receiver takes messages from durable queues, with one connection at a time. What arrived and
// was neither acknowledged nor buried returns to its queue when the connection ends. It is for
// one goroutine.
type Receiver struct {
	broker  *broker
	queues  []Queue
	s       *session // nil unless connected
	arrived chan Message
	lost    chan struct{}
	end     func() // closes lost
	// returned has dead letters that no queue takes. It is read after a chunk of at most its
	// capacity is confirmed: the broker sends the confirmation later.
	returned chan amqp091.Return
	movers   conc.WaitGroup
}

// Message is one of a durable queue.
type Message struct {
	Queue    string
	Body     []byte
	delivery amqp091.Delivery
}

// NewReceiver returns a receiver of the queues with the given keys, or of all durable queues,
// that is not connected.
func NewReceiver(cfg Config, keys []string) (*Receiver, error) {
	b, err := newBroker(cfg)
	if err != nil {
		return nil, err
	}
	r := &Receiver{broker: b, queues: b.cfg.Topology.Queues}
	if len(keys) > 0 {
		r.queues = nil
	}
	for _, key := range keys {
		i := slices.IndexFunc(b.cfg.Topology.Queues, func(q Queue) bool { return q.Key == key })
		if i < 0 {
			return nil, fmt.Errorf("invalid queue key %q: want one of common.queues.rabbitmq.queues", key)
		}
		r.queues = append(r.queues, b.cfg.Topology.Queues[i])
	}
	if len(r.queues) == 0 {
		return nil, errors.New("no durable queue is declared: want keys in common.queues.rabbitmq.queues")
	}
	return r, nil
}

// Connect connects and begins to consume. Of each queue Prefetch messages arrive before they
// are settled.
func (r *Receiver) Connect(ctx context.Context) error {
	s, err := r.broker.dial(ctx)
	if err != nil {
		return err
	}
	r.s, r.arrived, r.lost, r.returned = s, make(chan Message), make(chan struct{}), s.ch.NotifyReturn(make(chan amqp091.Return, 64))
	r.end = sync.OnceFunc(func() { close(r.lost) })
	closed := s.ch.NotifyClose(make(chan *amqp091.Error, 1))
	r.movers.Go(func() { // a mover that waits for the reader does not see the end
		for range closed { // until the channel ends
		}
		r.end()
	})
	ctx, cancel := context.WithTimeout(ctx, r.broker.cfg.ConnectTimeout)
	defer cancel()
	if err := s.bounded(ctx, r.consume); err != nil {
		r.Close()
		return fmt.Errorf("consume from the broker: %w: %w", ErrUnavailable, err)
	}
	return nil
}

func (r *Receiver) consume() error {
	if err := r.s.ch.Qos(r.broker.cfg.Prefetch, 0, false); err != nil {
		return err
	}
	if err := r.s.ch.Confirm(false); err != nil {
		return err
	}
	for _, q := range r.queues {
		deliveries, err := r.s.ch.Consume(q.Name, q.Name, false, false, false, false, nil)
		if err != nil {
			return err
		}
		r.movers.Go(func() { r.move(q.Name, deliveries) })
	}
	return nil
}

// move ends with the connection, or when the broker ends the consumer, as for a deleted queue.
func (r *Receiver) move(queue string, deliveries <-chan amqp091.Delivery) {
	defer r.end()
	for d := range deliveries {
		select {
		case r.arrived <- Message{queue, d.Body, d}:
		case <-r.lost:
			return
		}
	}
}

// Arrived has the messages, in the order of each queue.
func (r *Receiver) Arrived() <-chan Message { return r.arrived }

// Lost is closed once nothing arrives any more: the receiver must be closed and connected again.
func (r *Receiver) Lost() <-chan struct{} { return r.lost }

// Failure returns why it was lost.
func (r *Receiver) Failure() error { return fmt.Errorf("%w: %w", ErrUnavailable, r.s.failure()) }

// Acknowledge removes messages from their queues.
func (r *Receiver) Acknowledge(ctx context.Context, messages ...Message) error {
	ctx, cancel := r.settling(ctx)
	defer cancel()
	err := r.s.bounded(ctx, func() error {
		for _, m := range messages {
			if err := m.delivery.Ack(false); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("acknowledge messages: %w: %w", ErrUnavailable, err)
	}
	return nil
}

// settling returns a context in which decisions about messages can be sent after the end of ctx.
func (r *Receiver) settling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), r.broker.cfg.ConnectTimeout)
}

// Letter is a message that becomes a dead letter.
type Letter struct {
	Message
	Reason string
}

// ReasonHeader and QueueHeader of a dead letter say why it is one, and the queue it was in.
const (
	ReasonHeader = "x-reason"
	QueueHeader  = "x-queue"
)

// maxReason bounds a reason in bytes: a message's headers must fit into one frame.
const maxReason = 2000

// Bury publishes messages as dead letters, and removes them from their queues once the broker
// has confirmed that.
func (r *Receiver) Bury(ctx context.Context, letters ...Letter) error {
	for chunk := range slices.Chunk(letters, cap(r.returned)) {
		if err := r.bury(ctx, chunk); err != nil {
			return fmt.Errorf("bury messages: %w", err)
		}
	}
	return nil
}

func (r *Receiver) bury(ctx context.Context, letters []Letter) error {
	messages, originals := make([]message, len(letters)), make([]Message, len(letters))
	for i, l := range letters {
		messages[i], originals[i] = message{exchange: r.broker.cfg.Topology.dead(), key: l.delivery.RoutingKey, Publishing: l.publishing()}, l.Message
	}
	return r.replace(ctx, messages, originals)
}

// replace publishes messages, and removes the originals once the broker has confirmed them.
func (r *Receiver) replace(ctx context.Context, messages []message, originals []Message) error {
	sending, cancel := r.settling(ctx)
	defer cancel()
	if err := r.s.publish(sending, messages); err != nil {
		return err
	}
	select {
	case back := <-r.returned:
		return fmt.Errorf("%w: %s", errNoQueue, back.ReplyText)
	default:
	}
	return r.Acknowledge(ctx, originals...)
}

// Parked is a message that waits apart.
type Parked struct {
	Message
	Rejections int // so far
}

// rejectionsHeader of a message counts how often what it asks for was rejected.
const rejectionsHeader = "x-tasker-rejections"

// Rejections is how often what the message asks for was rejected before it was parked.
func (m *Message) Rejections() int {
	n, _ := m.delivery.Headers[rejectionsHeader].(int32)
	return int(max(n, 0))
}

// Park moves messages to the queues of their retries, from which the broker returns them after a
// time to the ends of their queues, and removes them from these once the broker has confirmed that.
// The time must be the same in all calls: a retry queue returns its messages in their order.
func (r *Receiver) Park(ctx context.Context, after time.Duration, parked ...Parked) error {
	for chunk := range slices.Chunk(parked, cap(r.returned)) {
		messages, originals := make([]message, len(chunk)), make([]Message, len(chunk))
		for i, p := range chunk {
			at := slices.IndexFunc(r.queues, func(q Queue) bool { return q.Name == p.Queue })
			letter := Letter{Message: p.Message}
			again := letter.publishing()
			again.Headers = amqp091.Table{rejectionsHeader: int32(p.Rejections)} // #nosec G115 -- a few
			again.Expiration = strconv.FormatInt(after.Milliseconds(), 10)
			messages[i], originals[i] = message{key: r.queues[at].Retry, Publishing: again}, p.Message
		}
		if err := r.replace(ctx, messages, originals); err != nil {
			return fmt.Errorf("park messages: %w", err)
		}
	}
	return nil
}

// DeadLetters counts those in the dead-letter queue, of all connections.
func (r *Receiver) DeadLetters(ctx context.Context) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.broker.cfg.ConnectTimeout)
	defer cancel()
	err = r.s.bounded(ctx, func() error {
		q, err := r.s.ch.QueueDeclarePassive(r.broker.cfg.Topology.letters(), true, false, false, false, nil)
		n = q.Messages
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count dead letters: %w: %w", ErrUnavailable, err)
	}
	return n, nil
}

// cut leaves at most so many bytes of a text.
func cut(text string, most int) string {
	if len(text) > most {
		text = text[:most]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
	}
	return text
}

// publishing omits the properties that the broker acts on (expiry, user, and headers, of which
// CC adds recipients): none of them may lose the letter.
func (l Letter) publishing() amqp091.Publishing {
	d := l.delivery
	return amqp091.Publishing{Headers: amqp091.Table{ReasonHeader: cut(l.Reason, maxReason), QueueHeader: l.Queue}, DeliveryMode: amqp091.Persistent, Body: l.Body,
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo,
		MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId}
}

// Close ends the connection; Connect makes another one.
func (r *Receiver) Close() {
	if r.s == nil {
		return
	}
	r.end()
	r.s.close()
	r.movers.Wait()
	r.s = nil
}

// Beyond bounds each wait for the broker other than that for messages.
func (r *Receiver) Beyond() time.Duration { return 3 * r.broker.cfg.ConnectTimeout }
