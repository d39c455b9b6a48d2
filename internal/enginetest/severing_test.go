package enginetest_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// cut is where a connection breaks.
type cut string

// The cuts. A handler requests one with a comment in a statement, as the last thing
// before it ends.
const (
	cutBeforeReport   cut = "before-report"   // the report never arrives
	cutAfterReport    cut = "after-report"    // it arrives, its answer does not
	cutBeforeCommit   cut = "before-commit"   // the commit never arrives
	cutUnderCommit    cut = "under-commit"    // it arrives, and both ends break at once
	cutCommitAnswer   cut = "commit-answer"   // it is answered, and the answer is lost
	cutCommitTravels  cut = "commit-travels"  // it arrives long after the worker has lost the connection
	cutCommitVanishes cut = "commit-vanishes" // the server learns late that it will never arrive
)

var cuts = []cut{cutBeforeReport, cutAfterReport, cutBeforeCommit, cutUnderCommit, cutCommitAnswer, cutCommitTravels, cutCommitVanishes}

// how a report and a commit look on the wire.
var (
	reportBytes = []byte("reported_at = clock_timestamp()")
	commitBytes = []byte("commit\x00")
)

// severing is a path to the database on which connections break on request.
type severing struct {
	t     *testing.T
	group sync.WaitGroup

	mu               sync.Mutex
	network, address string
}

// sever returns a pool of connections like those of another one, which break on request.
func sever(t *testing.T, like *pgxpool.Pool, size int32) *pgxpool.Pool {
	t.Helper()
	s := &severing{t: t}
	cfg := like.Config()
	cfg.MaxConns = size
	cfg.ConnConfig.RuntimeParams = map[string]string{"application_name": "severed"}
	cfg.ConnConfig.DialFunc = s.dial
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		pool.Close()
		s.group.Wait()
	})
	return pool
}

func (s *severing) dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	if network == "pipe" { // a cancel request goes to the same server
		network, address = s.network, s.address
	}
	s.network, s.address = network, address
	s.mu.Unlock()
	server, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	s.group.Go(func() { s.serve(&link{client: far, server: server}) })
	return near, nil
}

// serve carries one connection.
func (s *severing) serve(l *link) {
	back := make(chan struct{})
	go func() {
		defer close(back)
		defer l.sever()
		_, _ = io.Copy(answers{l}, l.server)
	}()
	l.requests()
	l.sever()
	<-back
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	mute           atomic.Bool // answers are lost, and the first ends the connection
}

func (l *link) sever() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// answers are the server's messages.
type answers struct{ *link }

func (a answers) Write(b []byte) (int, error) {
	if a.mute.Load() {
		return 0, io.ErrClosedPipe
	}
	return a.client.Write(b)
}

// requests forwards the client's messages until the requested cut.
func (l *link) requests() {
	buffer := make([]byte, 64<<10)
	var asked cut
	for {
		n, err := l.client.Read(buffer)
		if err != nil {
			return
		}
		b := buffer[:n]
		for _, c := range cuts {
			if bytes.Contains(b, []byte("/*"+c+"*/")) {
				asked = c
			}
		}
		if asked != "" && l.cut(asked, b) {
			return
		}
		if _, err := l.server.Write(b); err != nil {
			return
		}
	}
}

// cut breaks the connection if b contains the cut.
func (l *link) cut(at cut, b []byte) bool {
	report, commit := bytes.Contains(b, reportBytes), bytes.Contains(b, commitBytes)
	switch {
	case at == cutBeforeReport && report, at == cutBeforeCommit && commit:
	case at == cutAfterReport && report, at == cutCommitAnswer && commit:
		l.mute.Store(true)
		_, _ = l.server.Write(b)
		_, _ = l.client.Read(make([]byte, 1)) // until the answer has arrived and broken it
	case at == cutUnderCommit && commit:
		_, _ = l.server.Write(b)
	case at == cutCommitTravels && commit:
		_ = l.client.Close()
		<-time.After(time.Duration(rand.IntN(200)) * time.Millisecond) // takes time: the fault falls at a random moment
		_, _ = l.server.Write(b)
	case at == cutCommitVanishes && commit:
		_ = l.client.Close()
		<-time.After(time.Duration(rand.IntN(200)) * time.Millisecond) // takes time: the fault falls at a random moment
	default:
		return false
	}
	l.sever()
	return true
}
