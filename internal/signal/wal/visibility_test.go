package wal

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestSnapshotSees(t *testing.T) {
	s := snapshot{xmax: 1<<32 + 5, running: []uint32{3}}
	require.True(t, s.sees(4))
	require.False(t, s.sees(3), "still running")
	require.False(t, s.sees(5), "not finished")
	require.True(t, s.sees(1<<32-1), "before the ids wrapped around")
	require.False(t, s.sees(6))
}

// scripted returns a list of snapshots in order.
type scripted struct {
	answers []snapshot
	asked   atomic.Int64
}

func (s *scripted) QueryRow(context.Context, string, ...any) pgx.Row {
	n := int(s.asked.Add(1)) - 1
	if n >= len(s.answers) {
		return row{err: errors.New("gone")}
	}
	return row{s: s.answers[n]}
}

type row struct {
	s   snapshot
	err error
}

func (r row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	xmax, ok := dest[0].(*int64)
	running, also := dest[1].(*[]int64)
	if !ok || !also {
		return errors.New("unexpected destination")
	}
	*xmax = r.s.xmax
	for _, x := range r.s.running {
		*running = append(*running, int64(x))
	}
	return nil
}

func TestSignalsWaitUntilTheirTransactionIsVisible(t *testing.T) {
	server := &scripted{answers: []snapshot{{xmax: 10}, {xmax: 12, running: []uint32{11}}, {xmax: 12}}}
	v := visibility{server: server}
	v.wait(t.Context())
	require.Zero(t, server.asked.Load(), "nothing has arrived")
	v.arrived(11)
	v.arrived(11)
	v.wait(t.Context())
	require.EqualValues(t, 3, server.asked.Load())
	v.wait(t.Context())
	require.EqualValues(t, 3, server.asked.Load(), "what was seen once is seen")

	v.arrived(20)
	v.wait(t.Context()) // without the server signals are not held back
	var none visibility
	none.arrived(1)
	none.wait(t.Context())
	for xid := range uint32(maxUnseen + 10) {
		v.arrived(xid + 1)
	}
	require.LessOrEqual(t, len(v.take()), maxUnseen)
}
