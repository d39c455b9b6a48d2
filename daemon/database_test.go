package daemon

import (
	"io"
	"net"
	"net/url"
	"os"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/internal/telemetry"
)

func TestMain(m *testing.M) { os.Exit(brokertest.With(pgtest.With(pgtest.Waiting(m))).Run()) }

// gap forwards connections to a server, except some in the middle, which it closes at
// once.
func gap(t *testing.T, dsn string, first, last int64) (through string, refused *atomic.Int64) {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	server := u.Host
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u.Host, refused = l.Addr().String(), &atomic.Int64{}
	var running conc.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	running.Go(func() {
		for n := int64(1); ; n++ {
			in, err := l.Accept()
			if err != nil {
				return
			}
			if n >= first && n <= last {
				refused.Add(1)
				_ = in.Close()
				continue
			}
			out, err := net.Dial("tcp", server)
			if err != nil {
				_ = in.Close()
				continue
			}
			both := func() { _ = in.Close(); _ = out.Close() }
			running.Go(func() { defer both(); _, _ = io.Copy(out, in) })
			running.Go(func() { defer both(); _, _ = io.Copy(in, out) })
		}
	})
	return u.String(), refused
}

// A daemon waits for a database that becomes unavailable between the first connection and
// the migration, as for one that is unavailable from the beginning.
func TestADatabaseThatGoesAwayWhileADaemonStarts(t *testing.T) {
	t.Parallel()
	dsn, refused := gap(t, pgtest.New(t).TCPDSN, 2, 2)
	core, logs := observer.New(zap.WarnLevel)
	s, err := openStore(t.Context(), commonFor(t, dsn), "test", nil, nil, nil, nil, zap.New(core), (*telemetry.Metrics)(nil).OrDiscard())
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.CheckSchema(t.Context()))
	require.Positive(t, refused.Load())
	require.Positive(t, logs.FilterMessage("the database does not answer; retrying").Len())
}

// commonFor is the common part of a configuration, migration at start included.
func commonFor(t *testing.T, dsn string) config.Common {
	t.Helper()
	env := map[string]string{"DATABASE_URL": dsn}
	l, err := config.Load(config.Options{LookupEnv: func(key string) (string, bool) { v, ok := env[key]; return v, ok }})
	require.NoError(t, err)
	require.True(t, l.Common.Database.MigrateOnStart)
	l.Common.Database.Pool.MinConnections = 0 // the first connection opens, the second migrates
	return l.Common
}

// TestSlotsAreReported: that a slot is unbounded once, and each that was lost.
func TestSlotsAreReported(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	m := telemetry.Discard()
	hooks := newSlotHooks(zap.New(core), m)
	for range 2 {
		hooks.unbounded("mine")
		hooks.lost("mine", "idle_timeout")
	}
	require.Equal(t, 1, logs.FilterMessage(wal.SlotUnboundedMessage).Len())
	lost := logs.FilterMessage(wal.SlotLostMessage).FilterField(zap.String("slot", "mine")).FilterField(zap.String("reason", "idle_timeout"))
	require.Equal(t, 2, lost.Len())
	require.InDelta(t, 2, testutil.ToFloat64(m.WALSlotsLost), 0)
}
