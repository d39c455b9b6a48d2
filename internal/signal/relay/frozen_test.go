package relay_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/relay"
	"github.com/tasker-go/tasker/signal"
)

// stallingLine is a connection to the server that can be stalled: it stays open and
// carries nothing, not even its end. To the server it looks like a frozen process.
type stallingLine struct {
	dsn     string
	stalled chan struct{}
}

func newStallingLine(t *testing.T, dsn string) *stallingLine {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	server := u.Host
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u.Host = l.Addr().String()
	line := &stallingLine{dsn: u.String(), stalled: make(chan struct{})}
	over, end := context.WithCancel(context.WithoutCancel(t.Context()))
	var group sync.WaitGroup
	t.Cleanup(func() {
		end()
		_ = l.Close()
		group.Wait()
	})
	group.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() { line.join(over, near, server) })
		}
	})
	return line
}

func (l *stallingLine) join(over context.Context, near net.Conn, server string) {
	defer func() { _ = near.Close() }()
	far, err := (&net.Dialer{}).DialContext(over, "tcp", server)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	var group sync.WaitGroup
	defer group.Wait()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		group.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			ended <- struct{}{}
		})
	}
	select {
	case <-ended:
	case <-over.Done():
	case <-l.stalled:
		_ = near.SetReadDeadline(time.Unix(1, 0)) // stops both copies, and ends neither connection
		_ = far.SetReadDeadline(time.Unix(1, 0))
		<-over.Done()
	}
	_, _ = near.Close(), far.Close()
}

// TestAFrozenLeaderIsReplaced: the server ends the session of a silent leader, and with
// it the lock.
func TestAFrozenLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFleetOn(t, pgtest.New(t))
	line := newStallingLine(t, f.db.TCPDSN)
	frozen, _ := f.candidate(func(c *relay.Config) { c.WAL.DSN = line.dsn })
	f.leader(nil, frozen)
	f.receiveAll(takeOver()...)
	next, _ := f.candidate(nil)
	close(line.stalled)
	pgtest.Eventually(t, patience, func() (bool, string) { return next.Health().Leader, "the lock stays with the frozen leader" })
	f.receiveAll(takeOver()...)
	f.emit(signalOf(signal.WorkerTopic("a"), "received"))
	f.receiveAll(signalOf(signal.WorkerTopic("a"), "received"))
}
