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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker connects to url with a prefix and a client name of the test.
func broker(t *testing.T, url string) *redis.Broker {
	t.Helper()
	name := strings.NewReplacer("/", "-").Replace(t.Name())
	b, err := redis.New(redis.Config{URL: url, Prefix: name, ClientName: name, Timeout: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Stop(context.WithoutCancel(t.Context()))) })
	return b
}

func TestContract(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	contract.Run(t, func(t *testing.T) contract.Setup {
		b := broker(t, s.URL)
		return contract.Setup{Source: b, Transport: b, Kill: func(t *testing.T) {
			t.Helper()
			s.KillClients(t, strings.ReplaceAll(t.Name(), "/", "-")+"-listener")
		}}
	})
}
