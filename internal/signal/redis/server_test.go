//go:build unix

package redis_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/redisdial"
	"github.com/tasker-go/tasker/internal/redistest"
	"github.com/tasker-go/tasker/internal/signal/redis"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
)

const patience = 20 * time.Second

// within bounds a call.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

var control = signal.Signal{Topic: signal.TopicControl}

// listening returns a connection that has control, closed at the end of the test.
func listening(t *testing.T, b broker) signal.Connection {
	t.Helper()
	c, err := b.Connect(within(t, patience), []signal.Topic{control.Topic})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.WithoutCancel(t.Context()))) })
	return c
}

// requireWorks sends a signal and receives it.
func requireWorks(t *testing.T, b broker, c signal.Connection) {
	t.Helper()
	require.NoError(t, b.Send(within(t, patience), []signal.Signal{control}))
	got, err := c.Receive(within(t, patience))
	require.NoError(t, err)
	require.Equal(t, control, got)
}

// TestSignalsNeedNoMemoryAndNoDisk: a server that refuses every write carries signals.
func TestSignalsNeedNoMemoryAndNoDisk(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(data, 0o700))
	for refusal, s := range map[string]*redistest.Server{
		"OOM":     redistest.Start(t, "--maxmemory", "1"),
		"MISCONF": redistest.Start(t, "--dir", data, "--save", "3600 1"),
	} {
		client := s.Client(t)
		if refusal == "MISCONF" {
			require.NoError(t, client.Set(t.Context(), "key", "value", 0).Err())
			require.NoError(t, os.Remove(data))
			require.NoError(t, client.BgSave(t.Context()).Err())
		}
		pgtest.Eventually(t, patience, func() (bool, string) {
			err := client.Set(t.Context(), "key", "value", 0).Err()
			return err != nil && strings.HasPrefix(err.Error(), refusal), fmt.Sprint("it refuses with ", err)
		})
		b := brokerAt(t, s.URL)
		requireWorks(t, b, listening(t, b))
	}
}

// TestServersThatWouldSplitTheFleet: a replica accepts signals and keeps them to itself; it
// is refused for both directions, as is a node of a cluster.
func TestServersThatWouldSplitTheFleet(t *testing.T) {
	t.Parallel()
	for want, server := range map[string]*redistest.Server{
		"role replica: want the primary": redistest.Start(t, "--replicaof", "127.0.0.1", "1"),
		"mode cluster: want standalone":  clusterNode(t),
	} {
		b := brokerAt(t, server.URL)
		require.ErrorContains(t, b.Send(within(t, patience), []signal.Signal{control}), want)
		_, err := b.Connect(within(t, patience), []signal.Topic{control.Topic})
		require.ErrorContains(t, err, want)
		require.Equal(t, telemetry.BrokerRefused, redisdial.Reason(err))
	}
}

// clusterNode runs a node of a cluster, which must listen on two ports. Where another program takes one
// before it does, others are chosen.
func clusterNode(t *testing.T) *redistest.Server {
	t.Helper()
	for {
		settings := []string{"--bind", "127.0.0.1", "--cluster-enabled", "yes"}
		for _, name := range []string{"--port", "--cluster-port"} {
			port, err := pgcluster.FreePort(t.Context())
			require.NoError(t, err)
			settings = append(settings, name, strconv.Itoa(port))
		}
		s, err := redistest.Open(t.Context(), settings...)
		if err == nil {
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		}
		require.ErrorContains(t, err, "in use")
	}
}

// TestRightsOnChannels: the refusals of a server are errors with its words, and never with a
// password.
func TestRightsOnChannels(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	require.NoError(t, s.Client(t).ACLSetUser(t.Context(), "fleet", "on", ">right", "resetchannels", "&"+t.Name()+":*",
		"-@all", "+hello", "+client", "+publish", "+subscribe", "+unsubscribe").Err())
	as := func(login string) string { return strings.Replace(s.URL, "unix://", "unix://"+login+"@", 1) }
	b := brokerAt(t, as("fleet:right"))
	requireWorks(t, b, listening(t, b))
	for want, cfg := range map[string]redis.Config{
		"NOPERM":    {URL: as("fleet:right"), Prefix: "other"},
		"WRONGPASS": {URL: as("fleet:secret"), Prefix: t.Name()},
	} {
		cfg.Timeout = patience
		b := with(t, cfg)
		_, listen := b.Connect(within(t, patience), []signal.Topic{control.Topic})
		send := b.Send(within(t, patience), []signal.Signal{control})
		for _, err := range []error{listen, send} {
			require.ErrorContains(t, err, want)
			require.Equal(t, telemetry.BrokerRefused, redisdial.Reason(err))
			require.NotContains(t, err.Error(), "secret")
		}
	}
}

// TestInvalidURLs: without the password that they hold.
func TestInvalidURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"http://u:secret@h", "redis://u:secret@h:port", "redis://u:secret@h/one", "redis://u:secret@h?colour=red",
		"redis://u:secret@h?cacert=/nowhere", "rediss://u:secret@h?cacert=/nowhere", "rediss://u:secret@h?cacert=/dev/null"} {
		_, err := redis.NewTransport(redis.Config{URL: url})
		require.Error(t, err, url)
		require.NotContains(t, err.Error(), "secret", url)
	}
}

// TestFrozenServer: calls end with their deadline, or with the timeout of the configuration,
// and the same connection works again once the server does.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := brokerAt(t, s.URL)
	c := listening(t, b)
	requireWorks(t, b, c)
	s.Freeze(t)
	for _, call := range []func(ctx context.Context) error{
		func(ctx context.Context) error { return b.Send(ctx, []signal.Signal{control}) },
		func(ctx context.Context) error { return c.Probe(ctx, control) },
		func(ctx context.Context) error {
			return c.Subscribe(ctx, []signal.Topic{control.Topic, signal.TopicTasks})
		},
		func(ctx context.Context) error {
			_, err := b.Connect(ctx, []signal.Topic{control.Topic})
			return err
		},
	} {
		began := time.Now()
		require.Error(t, call(within(t, 100*time.Millisecond)))
		require.Less(t, time.Since(began), 3*time.Second)
	}
	s.Thaw(t)
	requireWorks(t, b, c)
	require.NoError(t, b.Send(within(t, patience), []signal.Signal{{Topic: signal.TopicTasks}}))
	pgtest.Eventually(t, patience, func() (bool, string) {
		got, err := c.Receive(within(t, patience))
		require.NoError(t, err)
		return got.Topic == signal.TopicTasks, "a topic whose Subscribe gave up has no signal"
	})
}

// TestRestartedServer: sending works again by itself; a connection that listens has failed,
// and stays so.
func TestRestartedServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := brokerAt(t, s.URL)
	old := listening(t, b)
	requireWorks(t, b, old)
	s.Kill(t)
	require.Equal(t, telemetry.BrokerUnreachable, redisdial.Reason(b.Send(within(t, patience), []signal.Signal{control})))
	_, err := old.Receive(within(t, patience))
	require.Error(t, err)
	s.Restart(t)
	pgtest.Eventually(t, patience, func() (bool, string) {
		err := b.Send(within(t, patience), []signal.Signal{control})
		return err == nil, fmt.Sprint("sending: ", err)
	})
	requireWorks(t, b, listening(t, b))
	_, again := old.Receive(within(t, patience))
	require.Equal(t, err, again, "the old connection is not revived")
}

// TestASlowListenerLearnsThatItLost: Redis bounds what waits for a subscriber and ends the
// connection of one that does not read; that is an error, not a gap.
func TestASlowListenerLearnsThatItLost(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--client-output-buffer-limit", "pubsub 256kb 0 0")
	closed, open := make(chan struct{}), make(chan struct{})
	close(open)
	var gate atomic.Pointer[chan struct{}]
	gate.Store(&open)
	slow, direct := brokerAt(t, lineTo(t, s, nil, func() { <-*gate.Load() })), brokerAt(t, s.URL)
	c := listening(t, slow)
	requireWorks(t, direct, c)
	batch := make([]signal.Signal, 2000)
	for i := range batch {
		batch[i] = signal.Signal{Topic: control.Topic, Payload: fmt.Sprint(i, strings.Repeat(".", signal.MaxPayloadBytes-10))}
	}
	gate.Store(&closed)
	require.NoError(t, direct.Send(within(t, patience), batch))
	close(closed)
	for {
		if _, err := c.Receive(within(t, patience)); err != nil {
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			return
		}
	}
}

// TestOneRoundTripPerBatch: over a line of 30 ms a batch of two thousand takes no minute.
func TestOneRoundTripPerBatch(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := brokerAt(t, lineTo(t, s, nil, func() { <-time.After(30 * time.Millisecond) })) // takes time: the line's latency
	batch := make([]signal.Signal, 2000)
	for i := range batch {
		batch[i] = signal.Signal{Topic: control.Topic, Payload: fmt.Sprint(i)}
	}
	require.NoError(t, b.Send(within(t, 10*time.Second), batch))
}

// TestTLS: over rediss with the certificates of the operator, and never with one that is not
// trusted.
func TestTLS(t *testing.T) {
	t.Parallel()
	certificate, file := selfSigned(t)
	url := lineTo(t, redistest.Start(t), &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}, nil)
	stranger := brokerAt(t, url)
	require.ErrorContains(t, stranger.Send(within(t, patience), []signal.Signal{control}), "certificate")
	_, err := stranger.Connect(within(t, patience), []signal.Topic{control.Topic})
	require.ErrorContains(t, err, "certificate")
	b := brokerAt(t, url+"?cacert="+file)
	requireWorks(t, b, listening(t, b))
}

// lineTo is the URL of a proxy to a server, with TLS where that is given. hold, which may be
// nil, is called before each piece of an answer is passed on.
func lineTo(t *testing.T, s *redistest.Server, secure *tls.Config, hold func()) string {
	t.Helper()
	var l net.Listener
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := "redis://" + l.Addr().String()
	if secure != nil {
		l, url = tls.NewListener(l, secure), strings.Replace(url, "redis", "rediss", 1)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", strings.TrimPrefix(s.URL, "unix://"))
			if err != nil {
				_ = near.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(far, near)
				_ = far.Close()
			}()
			go func() {
				_, _ = io.Copy(held{near, hold}, far)
				_ = near.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		<-done
	})
	return url
}

type held struct {
	net.Conn
	hold func()
}

// Write implements io.Writer.
func (h held) Write(b []byte) (int, error) {
	if h.hold != nil {
		h.hold()
	}
	return h.Conn.Write(b)
}

// selfSigned is a certificate for 127.0.0.1, also as a file in PEM.
func selfSigned(t *testing.T) (certificate tls.Certificate, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
