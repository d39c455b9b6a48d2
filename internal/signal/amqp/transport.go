package amqp

import (
	"context"
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/signal"
)

// Transport sends signals over one connection, which the first Send makes, and another one
// after a loss. It is safe for concurrent use; batches go one after the other.
type Transport struct {
	broker *broker
	turn   chan struct{} // holds a token while a batch is sent, or the transport is closed
	s      *session      // owned by the holder of the token
	ready  map[string]bool
	counts conc.WaitGroup
}

var (
	_ signal.Transport  = (*Transport)(nil)
	_ lifecycle.Service = (*Transport)(nil)
)

// NewTransport returns a transport that is not connected.
func NewTransport(cfg Config) (*Transport, error) {
	b, err := newBroker(cfg)
	if err != nil {
		return nil, err
	}
	return &Transport{broker: b, turn: make(chan struct{}, 1)}, nil
}

// message is a signal on its way to an exchange.
type message struct {
	exchange, key string
	amqp091.Publishing
}

// Send implements signal.Transport: it returns once the broker has confirmed the batch. If one
// signal is malformed, none is sent and the error wraps signal.ErrMalformed. While the broker
// blocks publishers, it fails at once. Signals without a listener are counted and no error.
func (t *Transport) Send(ctx context.Context, batch []signal.Signal) error {
	return t.sendTo(ctx, batch, t.broker.cfg.Topology.direct(), nil, amqp091.Publishing{})
}

// sendTo publishes a batch to an exchange, after the declaration of its queues.
func (t *Transport) sendTo(ctx context.Context, batch []signal.Signal, exchange string, need func(ctx context.Context, s *session) error, like amqp091.Publishing) error {
	messages := make([]message, len(batch))
	for i, s := range batch {
		if err := s.Validate(); err != nil {
			return err
		}
		messages[i] = message{exchange: exchange, key: routingKey(s.Topic), Publishing: like}
		messages[i].Body = []byte(s.Payload)
	}
	if len(batch) == 0 {
		return nil
	}
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for the connection to the broker: %w", ctx.Err())
	}
	defer func() { <-t.turn }()
	for {
		old, err := t.connect(ctx)
		if err != nil {
			return err
		}
		if need != nil {
			err = need(ctx, t.s)
		}
		if err == nil {
			err = t.s.publish(ctx, messages)
		}
		// The loss of a connection may be detected only now.
		if err == nil || !old || t.s.alive() || ctx.Err() != nil {
			return err
		}
	}
}

// connect makes a session unless there is one; old reports that there was.
func (t *Transport) connect(ctx context.Context) (old bool, err error) {
	if t.s != nil && t.s.alive() {
		return true, nil
	}
	t.disconnect()
	s, err := t.broker.dial(ctx)
	if err != nil {
		return false, err
	}
	if err := s.bounded(ctx, func() error { return s.ch.Confirm(false) }); err != nil {
		s.close()
		return false, fmt.Errorf("ask the broker for confirmations: %w: %w", ErrUnavailable, err)
	}
	returned := s.ch.NotifyReturn(make(chan amqp091.Return, 64))
	t.counts.Go(func() {
		for range returned {
			t.broker.cfg.Metrics.SignalsReturned.Inc()
		}
	})
	t.s, t.ready = s, make(map[string]bool)
	return false, nil
}

func (t *Transport) disconnect() {
	if t.s != nil {
		t.s.close()
		t.counts.Wait()
		t.s = nil
	}
}

// publish sends messages and waits until all are confirmed.
func (s *session) publish(ctx context.Context, messages []message) error {
	sent, err := s.send(ctx, messages)
	if err != nil {
		return err
	}
	return s.confirmed(ctx, sent)
}

// send sends messages, unless the broker blocks publishers. After an error, some may be sent.
func (s *session) send(ctx context.Context, messages []message) (sent []*amqp091.DeferredConfirmation, err error) {
	if _, err := s.flow.state(); err != nil {
		return nil, err
	}
	sent = make([]*amqp091.DeferredConfirmation, 0, len(messages))
	err = s.bounded(ctx, func() error {
		for _, m := range messages {
			c, err := s.ch.PublishWithDeferredConfirm(m.exchange, m.key, true, false, m.Publishing)
			if err != nil {
				return err
			}
			sent = append(sent, c)
		}
		return nil
	})
	if err != nil {
		return sent, fmt.Errorf("publish: %w: %w", ErrUnavailable, err)
	}
	return sent, nil
}

// confirmed waits until messages are confirmed. It does not wait while the broker blocks
// publishers.
func (s *session) confirmed(ctx context.Context, sent []*amqp091.DeferredConfirmation) error {
	blocked, _ := s.flow.state()
	refused := 0
	for _, c := range sent {
		select {
		case <-c.Done():
			if !c.Acked() {
				refused++
			}
		case <-blocked:
			_, err := s.flow.state()
			return errors.Join(err, errUnconfirmed)
		case <-ctx.Done():
			return fmt.Errorf("wait for the broker's confirmation: %w", ctx.Err())
		}
	}
	switch {
	case refused > 0 && !s.alive():
		return fmt.Errorf("publish: %w: %w", ErrUnavailable, s.failure())
	case refused > 0:
		return fmt.Errorf("publish: %w: it refused %d of %d messages", ErrUnavailable, refused, len(sent))
	}
	return nil
}

// errUnconfirmed says that messages may arrive, later.
var errUnconfirmed = fmt.Errorf("%w: messages are not confirmed", ErrUnavailable)

// Name implements lifecycle.Service.
func (t *Transport) Name() string { return "broker" }

// Start implements lifecycle.Service: the first Send connects.
func (t *Transport) Start(context.Context) error { return nil }

// Stop ends the connection; a later Send makes another one.
func (t *Transport) Stop(ctx context.Context) error {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("close the connection to the broker: %w", ctx.Err())
	}
	defer func() { <-t.turn }()
	t.disconnect()
	return nil
}
