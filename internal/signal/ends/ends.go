// Package ends creates the two ends of an event source by its name: the transport that sends
// signals, and the source that receives them.
//
// What may not enter: knowledge of a daemon, and which source is used.
package ends

import (
	"fmt"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/internal/signal/pgdial"
	"github.com/tasker-go/tasker/internal/signal/redis"
	"github.com/tasker-go/tasker/internal/signal/relay"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/signal"
)

// Config has what the sources need.
type Config struct {
	Exec   pgdial.Execer // sends over the database
	Notify notify.Config // for relay as well
	WAL    wal.Config
	AMQP   amqp.Config
	Redis  redis.Config
}

// Broker is a transport with a connection of its own, beside the database.
type Broker interface {
	signal.Transport
	lifecycle.Service
}

// Transport returns the transport of a source; that of notify for an unknown name.
// Signals outside of transactions go the same way as those inside: only a relay announces them.
func (c *Config) Transport(source string) (t signal.Transport, err error) {
	switch source {
	case wal.Name, relay.Name:
		return wal.NewTransport(c.Exec), nil
	case amqp.Name:
		t, err = amqp.NewTransport(c.AMQP)
	case redis.Name:
		t, err = redis.NewTransport(c.Redis)
	default:
		return notify.NewTransport(c.Exec), nil
	}
	if err != nil {
		return nil, prepare(source, err)
	}
	return t, nil
}

// Source returns the source of that name; its probes are sent over t.
func (c *Config) Source(source string, t signal.Transport) (s signal.Source, err error) {
	switch source {
	case wal.Name:
		s, err = wal.New(c.WAL, t)
	case relay.Name:
		s, err = relay.NewSource(c.Notify, t)
	case amqp.Name:
		own := c.AMQP
		own.ConnectionName += "-listener"
		s, err = amqp.New(own, t)
	case redis.Name:
		s, err = redis.New(c.Redis, t)
	default:
		s, err = notify.New(c.Notify, t)
	}
	if err != nil {
		return nil, prepare(source, err)
	}
	return s, nil
}

func prepare(source string, err error) error {
	return fmt.Errorf("prepare the event source %s: %w", source, err)
}

// Publishers send signals over several sources at the same time: none waits for another.
type Publishers []signal.Publisher

// Publish implements signal.Publisher.
func (p Publishers) Publish(signals ...signal.Signal) {
	for _, one := range p {
		one.Publish(signals...)
	}
}
