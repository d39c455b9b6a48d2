package auth

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// KeySetOptions say how a JWKS is fetched.
type KeySetOptions struct {
	// URL is https, or http if AllowHTTP; required.
	URL       string
	AllowHTTP bool
	// Refresh is how long a fetched set counts as current; required.
	Refresh time.Duration
	// MaxStale is how much longer it is used while it cannot be fetched again.
	MaxStale time.Duration
	// OnFetch is called after each fetch; nil: not called.
	OnFetch func(error)
	// Now is nil for time.Now.
	Now func() time.Time
}

const (
	// fetchTimeout and maxKeySet bound a fetch.
	fetchTimeout = 5 * time.Second
	maxKeySet    = 1 << 20
	// fetchEvery is the shortest time between two fetches, whatever tokens name: a client
	// chooses the key id of its token.
	fetchEvery = 10 * time.Second
)

// KeySet is a JWKS. It fetches when a token needs it: the first time, after Refresh, and
// for a key id that it does not know, at most every ten seconds. It is safe for
// concurrent use; requests that need a fetch that is under way wait for it.
type KeySet struct {
	KeySetOptions
	web *http.Client

	held atomic.Pointer[heldKeys] // written with mu held; never nil

	mu     sync.Mutex
	tried  time.Time // when the last fetch began
	err    error     // of the last fetch
	flight chan struct{}
}

// heldKeys are those of the last good fetch.
type heldKeys struct {
	generation uint64 // how many good fetches there were
	keys       map[string][]crypto.PublicKey
	fetched    time.Time
}

// NewKeySet returns an error if the options are not good. It fetches nothing yet.
func NewKeySet(o KeySetOptions) (*KeySet, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !o.AllowHTTP) {
		return nil, fmt.Errorf("invalid address of a key set %q: want https://HOST/PATH", o.URL)
	}
	if o.Refresh <= 0 {
		return nil, errors.New("a key set needs a refresh interval")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	dialer := &net.Dialer{Timeout: fetchTimeout, Control: refuseLinkLocal}
	k := &KeySet{KeySetOptions: o, web: &http.Client{
		Timeout:   fetchTimeout,
		Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConns: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 3 || r.URL.Scheme != u.Scheme {
				return errors.New("the key set redirects too often or to another scheme")
			}
			return nil
		},
	}}
	k.held.Store(&heldKeys{})
	return k, nil
}

// refuseLinkLocal keeps a redirect or a name from reaching the metadata service of a
// cloud, which answers on link-local addresses.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsLinkLocalUnicast() {
		return fmt.Errorf("address %s of the key set is link-local", host)
	}
	return nil
}

// Keys implements KeySource. It returns ErrUnavailable if the set is older than Refresh
// and MaxStale together, or was never fetched.
func (k *KeySet) Keys(ctx context.Context, id string) ([]crypto.PublicKey, error) {
	if id == "" {
		return nil, refuse(Invalid, nil, "invalid token: it has no kid")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if now, held := k.Now(), k.held.Load(); held.keys[id] == nil || now.Sub(held.fetched) > k.Refresh {
		if err := k.refresh(ctx, now); err != nil {
			return nil, err
		}
	}
	held := k.held.Load()
	if k.Now().Sub(held.fetched) > k.Refresh+k.MaxStale {
		return nil, fmt.Errorf("%w: fetch the key set: %w", ErrUnavailable, k.err)
	}
	if keys := held.keys[id]; keys != nil {
		return keys, nil
	}
	return nil, refuse(Invalid, nil, "invalid token: its kid is unknown")
}

// Generation implements KeySource: each good fetch begins another, whether or not the keys
// are others. While a set cannot be fetched, the last one counts until it is too old.
func (k *KeySet) Generation() (number uint64, until time.Time) {
	held := k.held.Load()
	until = held.fetched.Add(k.Refresh)
	if k.Now().After(until) {
		until = until.Add(k.MaxStale)
	}
	return held.generation, until
}

// refresh fetches if the last fetch is long enough ago, or waits for the one under way.
// The caller holds k.mu, which is free meanwhile. It returns an error only if ctx ends.
func (k *KeySet) refresh(ctx context.Context, now time.Time) error {
	if k.flight == nil {
		if !k.tried.IsZero() && now.Sub(k.tried) < fetchEvery {
			return nil
		}
		k.tried, k.flight = now, make(chan struct{})
		k.fetch(ctx)
		return nil
	}
	flight := k.flight
	k.mu.Unlock()
	defer k.mu.Lock()
	select {
	case <-flight:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
}

// fetch fetches the set on behalf of all that wait, so that the request that happens to
// fetch cannot end it by leaving.
func (k *KeySet) fetch(ctx context.Context) {
	k.mu.Unlock()
	keys, err := k.get(context.WithoutCancel(ctx))
	if k.OnFetch != nil {
		k.OnFetch(err)
	}
	k.mu.Lock()
	if k.err = err; err == nil {
		k.held.Store(&heldKeys{k.held.Load().generation + 1, keys, k.Now()})
	}
	close(k.flight)
	k.flight = nil
}

func (k *KeySet) get(ctx context.Context) (map[string][]crypto.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.URL, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := k.web.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: status %d", k.URL, response.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxKeySet))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", k.URL, err)
	}
	return keySet(text)
}
