//go:build unix

package listener_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/signal"
)

// TestFrozenSession: an open session that is silent, as over a network that has forgotten
// it, is given up for all subscriptions, although one of them is patient.
func TestFrozenSession(t *testing.T) {
	t.Parallel()
	for name, newSource := range sources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Private(t, nil).New(t) // a private server, because the test freezes a process
			source, transport := newSource(t, db, db.Pool(t))
			shared, ctx := over(source), contextFor(t, 2*patience)
			quick, patient := brisk("quick"), brisk("patient")
			quick.FallbackActivationThreshold, patient.FallbackActivationThreshold = 2*time.Second, time.Hour
			quick.ConnectTimeout = 5 * time.Second
			ox, oy := &owner{}, &owner{}
			x, y := shared.Subscribe(quick, ox.hooks()), shared.Subscribe(patient, oy.hooks())
			for _, s := range []*listener.Subscription{x, y} {
				require.NoError(t, s.Start(ctx))
			}
			proven(t, x, y)
			pid := db.QueryInt(t, `select pid `+sessions)
			require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // otherwise the server could not stop
			pgtest.Eventually(t, patience, func() (bool, string) {
				return x.Snapshot().Reconnects > 0 && y.Snapshot().Reconnects > 0, "the frozen session is still used"
			})
			proven(t, x, y)
			require.NoError(t, transport.Send(ctx, []signal.Signal{{Topic: "numbers", Payload: "received again"}}))
			ox.waitFor(t, "received again")
			oy.waitFor(t, "received again")
			require.NoError(t, x.Stop(ctx))
			require.NoError(t, y.Stop(ctx))
		})
	}
}
