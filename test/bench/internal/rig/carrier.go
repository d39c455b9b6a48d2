package rig

import (
	"context"
	"fmt"

	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/redistest"
)

// Carrier is a server beside the database that carries signals.
type Carrier struct {
	URL string
	// Config makes daemons use it, as TOML.
	Config string
	// PID is that of the running server. Kill ends it at once, Restart runs it again and
	// waits until it answers, Close ends it and removes its files.
	PID     func() int
	Kill    func() error
	Restart func(ctx context.Context) error
	Close   func() error
}

// Carrier starts the server that an event source needs; nil where that is PostgreSQL. The
// caller closes it.
func (r *Rig) Carrier(ctx context.Context, source string) (*Carrier, error) {
	switch source {
	case "amqp":
		h, err := brokertest.Open(ctx)
		if err != nil {
			return nil, fmt.Errorf("start RabbitMQ: %w", err)
		}
		return &Carrier{URL: h.URL, Config: fmt.Sprintf("[common.queues.rabbitmq]\nurl = %q\n", h.URL),
			PID: h.PID, Kill: func() error { h.Kill(); return nil }, Restart: h.Restart, Close: h.Close}, nil
	case "redis":
		s, err := redistest.Open(ctx)
		if err != nil {
			return nil, fmt.Errorf("start Redis: %w", err)
		}
		return &Carrier{URL: s.URL, Config: fmt.Sprintf("[common.signals.redis]\nurl = %q\n", s.URL),
			PID: s.PID, Kill: s.End, Restart: s.Run, Close: s.Close}, nil
	default:
		return nil, nil //nolint:nilnil // most sources need none
	}
}
