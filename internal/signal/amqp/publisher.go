package amqp

import (
	"context"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Publisher publishes messages to an exchange of other programs, with one connection at a time.
// It is for one goroutine.
type Publisher struct {
	broker   *broker
	exchange Object // without a kind it is not declared
	most     int    // messages of one Publish
	s        *session
	open     []*amqp091.DeferredConfirmation // of the last Publish, if not all are confirmed
	returned chan amqp091.Return             // has room for those of one Publish
}

// NewPublisher returns a publisher that is not connected, for at most so many messages at once.
// It declares the exchange if kind is not empty.
func NewPublisher(cfg Config, exchange, kind string, most int) (*Publisher, error) {
	b, err := newBroker(cfg)
	if err != nil {
		return nil, err
	}
	return &Publisher{broker: b, exchange: Object{Kind: kind, Name: exchange}, most: most}, nil
}

// Ready connects, unless there is a connection, and waits until the broker has answered the
// messages that an earlier Publish has left: so at most those of one Publish are on their way
// while the broker blocks its publishers. It fails at once while the broker does. It closes a
// connection on which confirmations do not arrive.
func (p *Publisher) Ready(ctx context.Context) error {
	if p.s != nil && !p.s.alive() {
		p.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, p.broker.cfg.ConnectTimeout)
	defer cancel()
	if p.s == nil {
		if err := p.connect(ctx); err != nil {
			return err
		}
	}
	if _, err := p.s.flow.state(); err != nil {
		return err
	}
	for _, c := range p.open {
		select {
		case <-c.Done():
		case <-ctx.Done(): // what has not come by now may never come here
			p.Close()
			return errUnconfirmed
		}
	}
	p.open = nil
	p.takeReturned(nil)
	return nil
}

// connect makes a connection without the topology of the fleet, on which its user may have no
// rights.
func (p *Publisher) connect(ctx context.Context) error {
	s, err := p.broker.open(ctx)
	if err != nil {
		return err
	}
	err = s.bounded(ctx, func() error { return s.ch.Confirm(false) })
	if err == nil && p.exchange.Kind != "" {
		err = s.declare(ctx, p.exchange)
	}
	if err != nil {
		s.close()
		return fmt.Errorf("prepare the exchange: %w: %w", ErrUnavailable, err)
	}
	p.s, p.open, p.returned = s, nil, s.ch.NotifyReturn(make(chan amqp091.Return, p.most))
	return nil
}

// RoutingKey is a text as a routing key: one that is too long is cut.
func RoutingKey(text string) string { return cut(text, maxName) }

// Outgoing is a message to publish; Key is its routing key, of at most 255 bytes as all texts.
type Outgoing struct {
	Key, ID, Type, CorrelationID string
	At                           time.Time
	Headers                      map[string]any
	Body                         []byte // JSON
}

// Fate is the known outcome of a message.
type Fate uint8

// The fates of messages. An unconfirmed one may arrive, even later.
const (
	Unconfirmed Fate = iota
	Confirmed        // the queues have it
	Unroutable       // no queue wants it
)

// Publish publishes messages in their order, with different ids, and waits for the broker's
// confirmations. It needs Ready before. The error says why some are unconfirmed.
func (p *Publisher) Publish(ctx context.Context, list []Outgoing) (fates []Fate, err error) {
	messages, place := make([]message, len(list)), make(map[string]int, len(list))
	for i, m := range list {
		place[m.ID] = i
		messages[i] = message{p.exchange.Name, m.Key, amqp091.Publishing{Headers: m.Headers, ContentType: "application/json", DeliveryMode: amqp091.Persistent,
			CorrelationId: m.CorrelationID, MessageId: m.ID, Timestamp: m.At, Type: m.Type, AppId: "tasker", Body: m.Body}}
	}
	if p.open, err = p.s.send(ctx, messages); err == nil {
		err = p.s.confirmed(ctx, p.open)
	}
	fates = make([]Fate, len(list))
	for i, c := range p.open {
		if c.Acked() {
			fates[i] = Confirmed
		}
	}
	p.takeReturned(func(id string) { // the broker has returned it before it confirmed it
		if i, ok := place[id]; ok && fates[i] == Confirmed {
			fates[i] = Unroutable
		}
	})
	return fates, err
}

// takeReturned takes the messages that the broker has returned so far.
func (p *Publisher) takeReturned(note func(id string)) {
	for {
		select {
		case back, ok := <-p.returned:
			if !ok { // the connection has ended
				return
			}
			if note != nil {
				note(back.MessageId)
			}
		default:
			return
		}
	}
}

// Close ends the connection; Ready makes another one.
func (p *Publisher) Close() {
	if p.s != nil {
		p.s.close()
		p.s = nil
	}
}

// Beyond bounds each wait for the broker other than Publish.
func (p *Publisher) Beyond() time.Duration { return p.broker.cfg.ConnectTimeout + closeTimeout }
