package rig

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// echo is a server that sends back what it receives.
func echo(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn) // it ends with the connection
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, l *Link) (net.Conn, error) {
	t.Helper()
	dialer := net.Dialer{Timeout: 5 * time.Second}
	conn, err := dialer.DialContext(t.Context(), "tcp", l.address)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// answers reports whether a connection answers within a time.
func answers(t *testing.T, conn net.Conn, within time.Duration) bool {
	t.Helper()
	require.NoError(t, conn.SetDeadline(time.Now().Add(within)))
	if _, err := conn.Write([]byte("x")); err != nil {
		return false
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err == nil
}

const soon, briefly = 5 * time.Second, 200 * time.Millisecond

func newTestLink(t *testing.T) *Link {
	t.Helper()
	l, err := newLink(t.Context(), "test", echo(t))
	require.NoError(t, err)
	t.Cleanup(l.close)
	return l
}

func TestCutLinksRefuse(t *testing.T) {
	l := newTestLink(t)
	conn, err := dial(t, l)
	require.NoError(t, err)
	require.True(t, answers(t, conn, soon))
	l.Cut()
	require.False(t, answers(t, conn, soon), "it is closed")
	_, err = dial(t, l)
	require.Error(t, err)
	require.NoError(t, l.Heal(t.Context()))
	conn, err = dial(t, l)
	require.NoError(t, err, "the address is the same")
	require.True(t, answers(t, conn, soon))
}

func TestHalfOpenLinksAreSilent(t *testing.T) {
	l := newTestLink(t)
	old, err := dial(t, l)
	require.NoError(t, err)
	require.True(t, answers(t, old, soon))
	require.NoError(t, l.HalfOpen())
	require.False(t, answers(t, old, briefly))
	fresh, err := dial(t, l)
	require.NoError(t, err, "it takes connections")
	require.False(t, answers(t, fresh, briefly), "and answers nothing")
	require.NoError(t, l.Heal(t.Context()))
	conn, err := dial(t, l)
	require.NoError(t, err)
	require.True(t, answers(t, conn, soon))
}

func TestSlowLinksAreLate(t *testing.T) {
	l := newTestLink(t)
	conn, err := dial(t, l)
	require.NoError(t, err)
	require.NoError(t, l.Slow(100*time.Millisecond))
	begin := time.Now()
	require.True(t, answers(t, conn, soon))
	require.Greater(t, time.Since(begin), 100*time.Millisecond, "both ways, less the jitter")
	require.NoError(t, l.Heal(t.Context()))
	require.True(t, answers(t, conn, soon), "the connection continues")
}

func TestLinksLeadElsewhere(t *testing.T) {
	l := newTestLink(t)
	old, err := dial(t, l)
	require.NoError(t, err)
	require.True(t, answers(t, old, soon))
	require.NoError(t, l.Lead(echo(t)))
	require.False(t, answers(t, old, soon), "it is closed")
	conn, err := dial(t, l)
	require.NoError(t, err)
	require.True(t, answers(t, conn, soon))
}

func TestHealingALinkToOneWhoDoesNotRead(t *testing.T) {
	l := newTestLink(t)
	conn, err := dial(t, l)
	require.NoError(t, err)
	require.NoError(t, l.Slow(time.Millisecond))
	require.NoError(t, conn.SetWriteDeadline(time.Now().Add(time.Second)))
	for { // until the buffers are full: the echo is not read
		if _, err := conn.Write(make([]byte, 64<<10)); err != nil {
			break
		}
	}
	begin := time.Now()
	require.NoError(t, l.Heal(t.Context()))
	require.Less(t, time.Since(begin), 2*patience)
	conn, err = dial(t, l)
	require.NoError(t, err)
	require.True(t, answers(t, conn, soon))
}
