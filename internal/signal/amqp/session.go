package amqp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/internal/telemetry"
)

// ErrUnavailable is wrapped by the errors of a broker that cannot be reached, refuses, or
// blocks its publishers.
var ErrUnavailable = errors.New("broker unavailable")

var (
	errBlocked = fmt.Errorf("%w: it blocks publishers", ErrUnavailable)
	errNoQueue = fmt.Errorf("%w: no queue takes dead letters", ErrUnavailable)
)

// Reason classifies an error of the broker, as telemetry.Metrics.Broker does.
func Reason(err error) string {
	var said *amqp091.Error
	code := 0
	if errors.As(err, &said) {
		code = said.Code
	}
	switch {
	case errors.Is(err, errBlocked):
		return telemetry.BrokerBlocked
	case code == amqp091.AccessRefused, code == amqp091.NotAllowed:
		return telemetry.BrokerRefused
	case code == amqp091.NotFound, code == amqp091.ResourceLocked, code == amqp091.PreconditionFailed, errors.Is(err, errNoQueue):
		return telemetry.BrokerTopology
	}
	return telemetry.BrokerUnreachable
}

// closeTimeout bounds the end of a session.
const closeTimeout = 2 * time.Second

// keepAlive finds a lost peer where there is no heartbeat.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// session is one connection with one channel. The client library bounds no wait: so each call
// is made within bounded, which cuts the connection when its context ends first. A session
// that was cut, or lost its channel, cannot be used again.
type session struct {
	raw  net.Conn
	conn *amqp091.Connection
	ch   *amqp091.Channel

	lost    chan *amqp091.Error // why the channel ended; closed without an error by close
	flow    flow
	watcher conc.WaitGroup
}

// dial connects and declares the topology. ctx bounds only that.
func (b *broker) dial(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.ConnectTimeout)
	defer cancel()
	s, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.declare(ctx, b.cfg.Topology.Objects()...); err != nil {
		s.close()
		return nil, fmt.Errorf("prepare the broker: %w: %w", ErrUnavailable, err)
	}
	return s, nil
}

// open connects.
func (b *broker) open(ctx context.Context) (_ *session, err error) {
	s := &session{flow: flow{stopped: make(chan struct{})}}
	if s.raw, err = (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", b.address); err != nil {
		return nil, fmt.Errorf("connect to the broker: %w: %w", ErrUnavailable, err)
	}
	if err := s.bounded(ctx, func() error { return s.handshake(b) }); err != nil {
		s.close()
		return nil, fmt.Errorf("connect to the broker at %s: %w: %w", b.address, ErrUnavailable, err)
	}
	return s, nil
}

func (s *session) handshake(b *broker) (err error) {
	properties := amqp091.NewConnectionProperties()
	properties.SetClientConnectionName(b.cfg.ConnectionName)
	cfg := amqp091.Config{Heartbeat: max(b.cfg.Heartbeat, 1), Properties: properties, // 0 would be a default of the library's
		Dial: func(string, string) (net.Conn, error) { return s.raw, nil }}
	if b.tls != nil {
		cfg.TLSClientConfig = b.tls.Clone()
	}
	if s.conn, err = amqp091.DialConfig(b.cfg.URL, cfg); err != nil {
		s.conn = nil
		return err
	}
	blocked := s.conn.NotifyBlocked(make(chan amqp091.Blocking, 1))
	s.watcher.Go(func() {
		for change := range blocked {
			b.cfg.Metrics.BrokerBlocked.Add(s.flow.set(change))
		}
		b.cfg.Metrics.BrokerBlocked.Add(s.flow.set(amqp091.Blocking{})) // the connection is gone
	})
	if s.ch, err = s.conn.Channel(); err != nil {
		return err
	}
	s.lost = s.ch.NotifyClose(make(chan *amqp091.Error, 1))
	return nil
}

// bounded runs a call of the client library; the end of ctx ends the connection, and so the
// call.
func (s *session) bounded(ctx context.Context, call func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.raw.Close() })
	err := call()
	if stop() || err == nil {
		return err
	}
	return errors.Join(ctx.Err(), err)
}

// failure returns why a session ended.
func (s *session) failure() error {
	select {
	case cause, ok := <-s.lost:
		if ok {
			return cause
		}
	default:
	}
	return errors.New("the broker ended the subscription")
}

// alive reports whether calls may succeed.
func (s *session) alive() bool { return !s.conn.IsClosed() && !s.ch.IsClosed() }

// close ends the session within closeTimeout.
func (s *session) close() {
	if s.conn != nil {
		_ = s.conn.CloseDeadline(time.Now().Add(closeTimeout)) // the broker notices the end either way
	}
	_ = s.raw.Close()
	s.watcher.Wait()
}

// flow records whether the broker accepts messages.
type flow struct {
	mu      sync.Mutex
	reason  string        // of its refusal; empty: it takes them
	stopped chan struct{} // closed while it does not
}

// set returns the change of the number of blocked connections.
func (f *flow) set(b amqp091.Blocking) (change float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case b.Active && f.reason == "":
		f.reason = "no reason given"
		if b.Reason != "" {
			f.reason = b.Reason
		}
		close(f.stopped)
		return 1
	case !b.Active && f.reason != "":
		f.reason, f.stopped = "", make(chan struct{})
		return -1
	}
	return 0
}

// state returns a channel that is closed once the broker blocks, and an error if it does now.
func (f *flow) state() (<-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reason != "" {
		return f.stopped, fmt.Errorf("%w: %s", errBlocked, f.reason)
	}
	return f.stopped, nil
}
