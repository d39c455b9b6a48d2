package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// Link is the network between one daemon and PostgreSQL or a broker, for one purpose. It is safe for
// concurrent use; changes of it are serialized.
type Link struct {
	address string // where it listens; never changes
	mu      sync.Mutex
	proxy   *toxiproxy.Proxy
}

// newLink listens on its own port and forwards to upstream.
func newLink(ctx context.Context, name, upstream string) (*Link, error) {
	for try := 1; ; try++ {
		port, err := quietPort(ctx)
		if err != nil {
			return nil, err
		}
		p := toxiproxy.NewProxy(newServer(), name, fmt.Sprintf("127.0.0.1:%d", port), upstream)
		if err = p.Start(); err == nil {
			return &Link{address: p.Listen, proxy: p}, nil
		}
		if try == portTries {
			return nil, fmt.Errorf("start the proxy %s: %w", name, err)
		}
	}
}

const portTries = 20

// quietPort finds a free port below those that the kernel uses for outgoing connections,
// so that it stays free while the link is closed.
func quietPort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	var last error
	for range 10 * portTries {
		port := 20000 + rand.IntN(10000)
		l, err := config.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}

// DSN is a connection string that leads over the link.
func (l *Link) DSN(direct string) (string, error) {
	u, err := url.Parse(direct)
	if err != nil {
		return "", errors.New("read the connection string: it is no URL")
	}
	u.Host = l.address
	return u.String(), nil
}

// Cut closes all connections and refuses new ones.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proxy.Stop()
}

// Slow delays data in both directions.
func (l *Link) Slow(delay time.Duration) error {
	ms := delay.Milliseconds()
	return l.disturb(fmt.Sprintf(`"type": "latency", "attributes": {"latency": %d, "jitter": %d}`, ms, ms/4), toServer, toDaemon)
}

// The directions of a link.
const (
	toServer = "upstream"
	toDaemon = "downstream"
)

// HalfOpen leaves all connections open, accepts new ones, and forwards nothing.
func (l *Link) HalfOpen() error { return l.silence(toServer, toDaemon) }

// Mute is HalfOpen in one direction: the server hears nothing.
func (l *Link) Mute() error { return l.silence(toServer) }

// Deafen is HalfOpen in the other direction: the daemon hears nothing.
func (l *Link) Deafen() error { return l.silence(toDaemon) }

func (l *Link) silence(streams ...string) error {
	return l.disturb(`"type": "timeout", "attributes": {"timeout": 0}`, streams...)
}

func (l *Link) disturb(toxic string, streams ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, stream := range streams {
		if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"stream": %q, %s}`, stream, toxic))); err != nil {
			return fmt.Errorf("disturb %s: %w", l.proxy.Name, err)
		}
	}
	return nil
}

// patience bounds the wait for connections that cannot be restored.
const patience = 3 * time.Second

// Heal makes the link work again. Connections that were half open are closed; so are all
// others if one side reads nothing.
func (l *Link) Heal(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	cleared, toxics := make(chan struct{}), l.proxy.Toxics
	go func() {
		defer close(cleared)
		toxics.ResetToxics(ctx)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-cleared:
	case <-timer.C:
		// It waits for a reader that does not exist, for ever. It stays without
		// connections, and another proxy takes its place.
		l.proxy.Stop()
		l.proxy = toxiproxy.NewProxy(newServer(), l.proxy.Name, l.proxy.Listen, l.proxy.Upstream)
	}
	return l.open(ctx)
}

func newServer() *toxiproxy.ApiServer {
	return toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
}

// open starts the proxy if it does not run.
func (l *Link) open(ctx context.Context) error {
	for try := 1; ; try++ {
		err := l.proxy.Start()
		if err == nil || errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
			return nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || try == portTries {
			return fmt.Errorf("open %s again: %w", l.proxy.Name, err)
		}
		if err := lifecycle.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// Lead makes the link end somewhere else; its connections are closed. One that is cut stays
// so.
func (l *Link) Lead(upstream string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	to := toxiproxy.Proxy{Listen: l.proxy.Listen, Upstream: upstream, Enabled: l.proxy.Enabled}
	if err := l.proxy.Update(&to); err != nil {
		return fmt.Errorf("lead %s to %s: %w", l.proxy.Name, upstream, err)
	}
	return nil
}

func (l *Link) close() { l.Cut() }
