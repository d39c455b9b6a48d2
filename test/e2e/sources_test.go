package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/redistest"
	"github.com/tasker-go/tasker/test/fleet"
)

// sources are the event sources that a test goes over: all, or the one that a whole run is for
// (make test-sources).
func sources(all ...string) []string {
	if one := os.Getenv(fleet.EnvSource); one != "" {
		return []string{one}
	}
	return all
}

// overSource runs the tests with the broker of that one source, if it needs any: all fleets share
// it, and their daemons inherit its address.
func overSource(run func() int) int {
	end, err := startBroker(context.Background(), os.Getenv(fleet.EnvSource))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = end() }() // the tests are over
	return run()
}

func startBroker(ctx context.Context, source string) (end func() error, err error) {
	switch source {
	case "amqp":
		host, err := brokertest.Open(ctx)
		if err != nil {
			return nil, fmt.Errorf("start RabbitMQ: %w", err)
		}
		return host.Close, os.Setenv("RABBITMQ_URL", host.URL)
	case "redis":
		server, err := redistest.Open(ctx)
		if err != nil {
			return nil, fmt.Errorf("start Redis: %w", err)
		}
		return server.Close, os.Setenv("REDIS_URL", server.URL)
	case "", "notify", "wal", "relay":
		return func() error { return nil }, nil
	}
	return nil, errors.New("invalid " + fleet.EnvSource + ": want notify, wal, relay, amqp or redis")
}
