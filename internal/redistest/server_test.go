//go:build unix

package redistest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAServerIsKilledFrozenAndWiped: what tests do to a server is what they believe.
func TestAServerIsKilledFrozenAndWiped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	ctx := t.Context()
	set := func() { require.NoError(t, client.Set(ctx, "key", "value", 0).Err()) }
	keys := func() int64 {
		n, err := client.DBSize(ctx).Result()
		require.NoError(t, err)
		return n
	}

	set()
	s.Wipe(t)
	require.Zero(t, keys())

	set()
	s.Freeze(t)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, client.Ping(short).Err(), "i/o timeout")
	s.Thaw(t)
	require.EqualValues(t, 1, keys(), "a frozen server forgets nothing")

	s.Kill(t)
	require.Error(t, client.Ping(ctx).Err())
	s.Restart(t)
	require.Zero(t, keys(), "nothing persists")
}

// TestAServerEndsWithItsTest: nothing answers afterwards, frozen or not.
func TestAServerEndsWithItsTest(t *testing.T) {
	t.Parallel()
	var socket string
	t.Run("frozen", func(t *testing.T) {
		s := redistest.Start(t)
		socket = strings.TrimPrefix(s.URL, "unix://")
		require.FileExists(t, socket)
		s.Freeze(t)
	})
	require.NoFileExists(t, socket)
}

// TestConnectionsAreKilledByName: those with another name stay.
func TestConnectionsAreKilledByName(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	mine, other := s.Client(t).Conn(), s.Client(t).Conn()
	require.NoError(t, mine.ClientSetName(t.Context(), "mine").Err())
	require.NoError(t, other.ClientSetName(t.Context(), "other").Err())
	s.KillClients(t, "mine")
	require.Error(t, mine.Ping(t.Context()).Err())
	require.NoError(t, other.Ping(t.Context()).Err())
	require.NoError(t, mine.Close())
	require.NoError(t, other.Close())
}
