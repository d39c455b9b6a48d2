package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/redisdial"
	"github.com/tasker-go/tasker/signal"
)

// Transport publishes signals. It is safe for concurrent use, connects when it sends, and as
// a lifecycle.Service ends its connections.
type Transport struct {
	cfg    Config
	client *redis.Client
}

var (
	_ signal.Transport  = (*Transport)(nil)
	_ lifecycle.Service = (*Transport)(nil)
)

// NewTransport opens no connection.
func NewTransport(cfg Config) (*Transport, error) {
	options, err := redisdial.Options(cfg.URL, cfg.ClientName, cfg.Timeout)
	if err != nil {
		return nil, err
	}
	options.PoolSize = 2 // a sender and a probe
	return &Transport{cfg: cfg, client: redis.NewClient(options)}, nil
}

// Name implements lifecycle.Service.
func (*Transport) Name() string { return "connections to Redis" }

// Start implements lifecycle.Service.
func (*Transport) Start(context.Context) error { return nil }

// Stop implements lifecycle.Service.
func (t *Transport) Stop(context.Context) error { return t.client.Close() }

// ErrUnavailable is wrapped by errors of Send if Redis could not be reached or did not
// answer within the timeout.
var ErrUnavailable = errors.New("not reached")

// Send implements signal.Transport: one round trip, whatever the size of the batch. If one
// signal is malformed, none is sent and the error wraps signal.ErrMalformed. The deadline of
// ctx bounds it, and the timeout of the configuration where ctx is cancelled.
func (t *Transport) Send(ctx context.Context, batch []signal.Signal) error {
	for _, s := range batch {
		if err := s.Validate(); err != nil {
			return err
		}
	}
	if len(batch) == 0 {
		return nil
	}
	_, err := t.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, s := range batch {
			p.Publish(ctx, t.cfg.channel(s.Topic), s.Payload)
		}
		return nil
	})
	var answer redis.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("publish to Redis: %w: %w", ctx.Err(), err)
	case errors.As(err, &answer):
		return fmt.Errorf("publish to Redis: %w", err)
	}
	return fmt.Errorf("publish to Redis: %w: %w", ErrUnavailable, err)
}
