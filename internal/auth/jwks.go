package auth

import (
	"cmp"
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

	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/internal/lifecycle"
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
	// keyWait is how long a fetch keeps those waiting that need a key of it.
	keyWait = time.Second
	// fetchEvery is the shortest time between two fetches, whatever tokens name: a client
	// chooses the key id of its token.
	fetchEvery = 10 * time.Second
)

var errNotFetched = errors.New("it has not been fetched")

// KeySet is a JWKS. It is fetched beside the requests: when it starts, and when a token needs it
// after Refresh, or for a key id that it does not know, at most every ten seconds. Meanwhile its
// keys are used, and only requests for a key that it does not hold wait, for a moment. It
// implements lifecycle.Service and is safe for concurrent use.
type KeySet struct {
	KeySetOptions
	web *http.Client

	held atomic.Pointer[heldKeys] // written with mu held; never nil

	working context.Context // ends at Stop
	stop    context.CancelFunc

	mu      sync.Mutex
	tried   time.Time // when the last fetch began
	err     error     // of the last fetch
	flight  *flight   // the fetch under way; nil: none
	stopped bool
	fetches conc.WaitGroup
}

// flight is a fetch under way.
type flight struct {
	begun time.Time
	done  chan struct{}
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
	k.working, k.stop = context.WithCancel(context.Background())
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
// and MaxStale together or was never fetched, and for a key id that a fetch which has failed, or is
// not answered, may have brought.
func (k *KeySet) Keys(ctx context.Context, id string) ([]crypto.PublicKey, error) {
	if id == "" {
		return nil, refuse(Invalid, nil, "invalid token: it has no kid")
	}
	held, now := k.held.Load(), k.Now()
	keys := held.keys[id]
	if keys != nil && now.Sub(held.fetched) <= k.Refresh {
		return keys, nil
	}
	under := k.refresh(now)
	if keys != nil && now.Sub(held.fetched) <= k.Refresh+k.MaxStale {
		return keys, nil
	}
	if err := under.wait(ctx); err != nil {
		return nil, err
	}
	k.mu.Lock()
	held, failed := k.held.Load(), k.err
	k.mu.Unlock()
	switch keys := held.keys[id]; {
	case now.Sub(held.fetched) > k.Refresh+k.MaxStale, keys == nil && failed != nil:
		return nil, fmt.Errorf("%w: fetch the key set: %w", ErrUnavailable, cmp.Or(failed, errNotFetched))
	case keys == nil:
		return nil, refuse(Invalid, nil, "invalid token: its kid is unknown")
	default:
		return keys, nil
	}
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

// Name implements lifecycle.Service.
func (k *KeySet) Name() string { return "key set" }

// Start implements lifecycle.Service: it begins the first fetch.
func (k *KeySet) Start(context.Context) error {
	k.refresh(k.Now())
	return nil
}

// Stop implements lifecycle.Service: it ends a fetch under way.
func (k *KeySet) Stop(context.Context) error {
	k.mu.Lock()
	k.stopped = true
	k.mu.Unlock()
	k.stop()
	k.fetches.Wait()
	return nil
}

// refresh begins a fetch if the last one is long enough ago, and returns the one under way; nil:
// none is.
func (k *KeySet) refresh(now time.Time) *flight {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flight == nil && !k.stopped && (k.tried.IsZero() || now.Sub(k.tried) >= fetchEvery) {
		k.tried, k.flight = now, &flight{time.Now(), make(chan struct{})}
		k.fetches.Go(k.fetch)
	}
	return k.flight
}

// fetch fetches the set on behalf of all requests, none of which can end it by leaving.
func (k *KeySet) fetch() {
	var keys map[string][]crypto.PublicKey
	err := lifecycle.Guard(func() (err error) {
		keys, err = k.get(k.working)
		return err
	})
	if k.OnFetch != nil {
		k.OnFetch(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; err == nil {
		k.held.Store(&heldKeys{k.held.Load().generation + 1, keys, k.Now()})
	}
	close(k.flight.done)
	k.flight = nil
}

// wait returns when a fetch has ended, or ErrUnavailable if it takes long. There may be none.
func (f *flight) wait(ctx context.Context) error {
	if f == nil {
		return nil
	}
	select {
	case <-f.done:
		return nil
	default:
	}
	left := time.NewTimer(keyWait - time.Since(f.begun))
	defer left.Stop()
	select {
	case <-f.done:
		return nil
	case <-left.C:
		return fmt.Errorf("%w: the key set is not answered", ErrUnavailable)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
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
