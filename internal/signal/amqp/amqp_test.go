package amqp_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/signal/contract"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(brokertest.With(m)) }

const patience = 60 * time.Second

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}

// transport returns one that is closed at the end of the test.
func transport(t *testing.T, cfg amqp.Config) *amqp.Transport {
	t.Helper()
	tr, err := amqp.NewTransport(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := tr.Stop(bounded(t)); err != nil {
			t.Error(err)
		}
	})
	return tr
}

func connect(t *testing.T, cfg amqp.Config, tr signal.Transport, topics ...signal.Topic) signal.Connection {
	t.Helper()
	s, err := amqp.New(cfg, tr)
	require.NoError(t, err)
	c, err := s.Connect(bounded(t), topics)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := c.Close(bounded(t)); err != nil {
			t.Error(err)
		}
	})
	return c
}

func receive(t *testing.T, c signal.Connection) signal.Signal {
	t.Helper()
	s, err := c.Receive(bounded(t))
	require.NoError(t, err)
	return s
}

func TestContract(t *testing.T) {
	contract.Run(t, func(t *testing.T) contract.Setup {
		host := brokertest.New(t)
		cfg := amqp.Config{URL: host.URL, Metrics: telemetry.Discard()}
		tr := transport(t, cfg)
		source, err := amqp.New(cfg, tr)
		require.NoError(t, err)
		return contract.Setup{Source: source, Transport: tr, Kill: func(t *testing.T) { host.CloseConnections(t, 1) }}
	})
}
