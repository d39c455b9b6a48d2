package pgtest

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/sourcegraph/conc"
)

// Line is a TCP connection to a server that can be made to carry nothing. Connections that it
// has then stay open and never carry anything again, as behind a firewall that has forgotten
// them: those who wait on one get neither an answer nor an error. Its methods are safe for
// concurrent use.
type Line struct {
	upstream string
	address  string
	group    conc.WaitGroup
	ended    context.Context

	mu       sync.Mutex
	listener net.Listener    // nil while it refuses
	cut      context.Context // ends when the line dies: what it carries then is lost
	cutNow   context.CancelFunc
	silent   int // connections that carry nothing any more
}

// NewLine returns a line to the server of a DSN with a TCP address. It ends with the test.
func NewLine(t testing.TB, tcpDSN string) *Line {
	t.Helper()
	server, err := pgconn.ParseConfig(tcpDSN)
	if err != nil {
		t.Fatalf("read the DSN of a line: %v", err)
	}
	_, upstream := pgconn.NetworkAddress(server.Host, server.Port)
	ended, end := context.WithCancel(context.Background())
	l := &Line{upstream: upstream, address: "127.0.0.1:0", ended: ended}
	l.cut, l.cutNow = context.WithCancel(ended)
	l.Accept(t)
	t.Cleanup(func() {
		end()
		l.Refuse()
		l.group.Wait()
	})
	return l
}

// Address is where it listens: host and port.
func (l *Line) Address() string { return l.address }

// Refuse makes it refuse new connections, like a machine whose server is not running.
func (l *Line) Refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil {
		_ = l.listener.Close() // that ends accept
		l.listener = nil
	}
}

// Accept makes it accept connections again.
func (l *Line) Accept(t testing.TB) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", l.address)
	if err != nil {
		t.Fatalf("listen for a line: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listener, l.address = listener, listener.Addr().String()
	l.group.Go(func() { l.accept(listener) })
}

// Die makes it carry nothing: neither the connections that it has nor new ones, which it
// accepts like a server that does not answer.
func (l *Line) Die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutNow()
}

// Revive makes it carry new connections. Those from before stay dead.
func (l *Line) Revive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.cutNow = context.WithCancel(l.ended)
}

// Silent returns how many connections it holds that carry nothing any more.
func (l *Line) Silent() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent
}

func (l *Line) count(silent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent += silent
}

func (l *Line) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // closed
		}
		l.mu.Lock()
		cut := l.cut
		l.mu.Unlock()
		l.group.Go(func() { l.carry(cut, client) })
	}
}

// carry passes bytes on until an end closes its connection or the line dies; then it holds
// the connection without a word until the client closes it.
func (l *Line) carry(cut context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	defer context.AfterFunc(l.ended, func() { _ = client.Close() })()
	server, err := new(net.Dialer).DialContext(cut, "tcp", l.upstream)
	if err == nil {
		defer context.AfterFunc(cut, func() { _ = server.Close() })()
		defer func() { _ = server.Close() }()
		var both conc.WaitGroup
		both.Go(func() {
			_, _ = io.Copy(whole{server, cut}, client)
			_ = server.Close()
		})
		both.Go(func() {
			_, _ = io.Copy(whole{client, cut}, server)
			if cut.Err() == nil {
				_ = client.Close()
			}
		})
		both.Wait()
	}
	if cut.Err() != nil {
		l.count(1)
		defer l.count(-1)
		_, _ = io.Copy(io.Discard, client)
	}
}

// whole writes while the line lives.
type whole struct {
	io.Writer
	cut context.Context
}

// Write implements io.Writer.
func (w whole) Write(b []byte) (int, error) {
	if err := w.cut.Err(); err != nil {
		return 0, err
	}
	return w.Writer.Write(b)
}
