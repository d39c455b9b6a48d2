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

// TestFrozenSession: a session that is open and says nothing any more, as over
// a network that has forgotten it, is given up by all once one has noticed.
func TestFrozenSession(t *testing.T) {
	t.Parallel()
	for name, newSource := range over {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Private(t, nil).New(t) // its processes are ours to freeze
			source, transport := newSource(t, db, db.Pool(t))
			s := mux.New(source, mux.Config{BufferLimit: signal.DefaultBufferLimit, ProofShare: -1}) // a probe of a moment ago proves nothing here
			x, y := newProber(t, s, "x"), newProber(t, s, "y")
			x.roundTrip(t)
			y.roundTrip(t)
			pid := db.QueryInt(t, `select pid `+sessions)
			require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // the server could not stop otherwise
			x.probe(t)
			_ = x.Close(bounded(t)) // it does not say good-bye
			_, err := y.Receive(bounded(t))
			require.ErrorIs(t, err, mux.ErrSuspect)
			_ = y.Close(bounded(t))
			x, y = newProber(t, s, "x"), newProber(t, s, "y")
			x.roundTrip(t)
			y.roundTrip(t)
			require.NoError(t, transport.Send(bounded(t), []signal.Signal{{Topic: x.topic, Payload: "heard again"}}))
			require.Equal(t, "heard again", receive(t, x).Payload)
			closeAll(t, x, y)
		})
	}
}
