//go:build unix

package redis_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/internal/redistest"
	"github.com/tasker-go/tasker/internal/signal/contract"
	"github.com/tasker-go/tasker/internal/signal/redis"
	"github.com/tasker-go/tasker/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker is a source with its transport.
type broker struct {
	signal.Source
	*redis.Transport
}

// brokerAt connects to url with a prefix and a client name of the test.
func brokerAt(t *testing.T, url string) broker {
	t.Helper()
	name := strings.NewReplacer("/", "-").Replace(t.Name())
	return with(t, redis.Config{URL: url, Prefix: name, ClientName: name, Timeout: 5 * time.Second})
}

func with(t *testing.T, cfg redis.Config) broker {
	t.Helper()
	transport, err := redis.NewTransport(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, transport.Stop(context.WithoutCancel(t.Context()))) })
	source, err := redis.New(cfg, transport)
	require.NoError(t, err)
	return broker{source, transport}
}

func TestContract(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	contract.Run(t, func(t *testing.T) contract.Setup {
		b := brokerAt(t, s.URL)
		return contract.Setup{Source: b.Source, Transport: b.Transport, Kill: func(t *testing.T) {
			t.Helper()
			s.KillClients(t, strings.ReplaceAll(t.Name(), "/", "-")+"-listener")
		}}
	})
}
