//go:build unix

package mux_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/mux"
)

// TestFrozenSession: an open session that is silent, as over a network that has
// forgotten it, is given up by all members once one has noticed.
func TestFrozenSession(t *testing.T) {
	t.Parallel()
	for name, newSource := range over {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Private(t, nil).New(t) // a private server, because the test freezes a process
			source, transport := newSource(t, db, db.Pool(t))
			s := mux.New(source, mux.Config{BufferLimit: signal.DefaultBufferLimit, ProofShare: -1}) // a recent probe proves nothing here
			x, y := newProber(t, s, "x"), newProber(t, s, "y")
			x.roundTrip(t)
			y.roundTrip(t)
			pid := db.QueryInt(t, `select pid `+sessions)
			require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // otherwise the server could not stop
			x.probe(t)
			_ = x.Close(bounded(t)) // the session does not answer
			_, err := y.Receive(bounded(t))
			require.ErrorIs(t, err, mux.ErrSuspect)
			_ = y.Close(bounded(t))
			x, y = newProber(t, s, "x"), newProber(t, s, "y")
			x.roundTrip(t)
			y.roundTrip(t)
			require.NoError(t, transport.Send(bounded(t), []signal.Signal{{Topic: x.topic, Payload: "received again"}}))
			require.Equal(t, "received again", receive(t, x).Payload)
			closeAll(t, x, y)
		})
	}
}
