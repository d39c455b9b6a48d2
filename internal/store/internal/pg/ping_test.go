package pg

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestPingWaitsForNoConnectionOfThePool: requests that take all of them up must
// not make the database look ill.
func TestPingWaitsForNoConnectionOfThePool(t *testing.T) {
	t.Parallel()
	flows := make(chan string, 16)
	s, err := Open(t.Context(), Options{URL: pgtest.New(t).DSN, MaxConns: 1, Observe: func(flow string, _ time.Duration, err error) {
		if err == nil {
			flows <- flow
		}
	}})
	require.NoError(t, err)
	defer s.close()
	require.Equal(t, "ping", <-flows)
	held, err := s.Pool.Acquire(t.Context())
	require.NoError(t, err)
	defer held.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, s.Server().Ping(ctx))
	require.Equal(t, "ping", <-flows, "a sign of life for the circuit breakers")
}
