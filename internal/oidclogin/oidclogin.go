// Package oidclogin logs people in at an OpenID Connect provider, by the authorization code flow with
// PKCE. The provider may hang or lie: a login has a deadline, few are under way at once, and what the
// provider sends is bounded.
//
// What may not enter: cookies and answers (internal/api/rest), and what claims permit (internal/auth).
package oidclogin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/semaphore"

	"github.com/tasker-go/tasker/internal/auth"
)

// Options describe a provider and its client. All are required but ClientSecret and NameClaim.
type Options struct {
	// Issuer is the address below which the provider describes itself.
	Issuer                              string
	ClientID, ClientSecret, RedirectURL string
	Scopes                              []string
	// Algorithms may have signed an ID token.
	Algorithms []string
	// NameClaim is the name of the principal; "": sub.
	NameClaim string
	// Principal maps claims to what they permit.
	Principal func(subject string, claims map[string]any) (*auth.Principal, error)
	// Timeout bounds what a login does with the provider, and Most how many do at once.
	Timeout time.Duration
	Most    int64
}

// Errors of a login that are not the fault of its credentials.
var (
	// ErrBusy is returned while as many logins as may are waiting for the provider.
	ErrBusy = errors.New("too many logins wait for the identity provider")
	// ErrUnavailable is returned where the provider does not answer, or not as it should.
	ErrUnavailable = errors.New("the identity provider does not answer as it should")
)

const (
	// maxAnswer bounds an answer of the provider.
	maxAnswer = 1 << 20
	// askAgain is how long a failed look at the provider's description counts for all logins.
	askAgain = 5 * time.Second
)

// Flow is what a login remembers while the browser is at the provider.
type Flow struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
}

// Provider is an OpenID Connect provider. It asks the provider nothing before the first login. It is
// safe for concurrent use.
type Provider struct {
	Options
	web    *http.Client
	places *semaphore.Weighted

	look  chan struct{} // held by the login that reads the description
	mu    sync.Mutex
	known *described
	err   error // of the last look
	tried time.Time
}

// described is what the provider says of itself.
type described struct {
	oauth    oauth2.Config
	verifier *oidc.IDTokenVerifier
}

// New returns a provider, or an error if the options are not good.
func New(o Options) (*Provider, error) {
	switch {
	case o.Issuer == "", o.ClientID == "", o.RedirectURL == "":
		return nil, errors.New("an identity provider needs issuer, client id and redirect URL")
	case len(o.Algorithms) == 0, o.Principal == nil, o.Timeout <= 0, o.Most <= 0:
		return nil, errors.New("an identity provider needs algorithms, claims and bounds")
	case !slices.Contains(o.Scopes, oidc.ScopeOpenID):
		return nil, fmt.Errorf("invalid scopes %v: want %s among them", o.Scopes, oidc.ScopeOpenID)
	}
	for _, name := range o.Algorithms {
		if !slices.Contains(auth.Signatures(), name) {
			return nil, fmt.Errorf("invalid signature algorithm %q: want one of %v", name, auth.Signatures())
		}
	}
	transport, _ := http.DefaultTransport.(*http.Transport)
	bounded := transport.Clone()
	bounded.ResponseHeaderTimeout, bounded.MaxResponseHeaderBytes, bounded.MaxConnsPerHost = o.Timeout, 64<<10, int(o.Most)
	web := &http.Client{Transport: short{bounded}, Timeout: o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("the provider leads elsewhere") }}
	return &Provider{Options: o, web: web, places: semaphore.NewWeighted(o.Most), look: make(chan struct{}, 1)}, nil
}

// short cuts answers off.
type short struct{ to http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s short) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.to.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	}
	return answer, err
}

// within runs a part of a login with its deadline and one of the places.
func (p *Provider) within(ctx context.Context, do func(ctx context.Context) error) error {
	if !p.places.TryAcquire(1) {
		return ErrBusy
	}
	defer p.places.Release(1)
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.web), p.Timeout)
	defer cancel()
	return do(ctx)
}

// describe reads what the provider says of itself, once. One login does it at a time, and a failure
// counts for the others for a while.
func (p *Provider) describe(ctx context.Context) (*described, error) {
	select {
	case p.look <- struct{}{}:
		defer func() { <-p.look }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	p.mu.Lock()
	known, err, recent := p.known, p.err, time.Since(p.tried) < askAgain
	p.mu.Unlock()
	if known != nil || err != nil && recent {
		return known, err
	}
	known, err = p.read(ctx)
	if err != nil {
		err = fmt.Errorf("%w: read its description: %w", ErrUnavailable, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.err, p.tried = known, err, time.Now()
	return known, err
}

func (p *Provider) read(ctx context.Context) (*described, error) {
	provider, err := oidc.NewProvider(ctx, p.Issuer)
	if err != nil {
		return nil, err
	}
	var more struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := provider.Claims(&more); err != nil {
		return nil, err
	}
	endpoint := provider.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInHeader // what a provider that says nothing takes
	if slices.Contains(more.Methods, "client_secret_post") && !slices.Contains(more.Methods, "client_secret_basic") || p.ClientSecret == "" {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return &described{
		oauth:    oauth2.Config{ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: endpoint, RedirectURL: p.RedirectURL, Scopes: p.Scopes},
		verifier: provider.Verifier(&oidc.Config{ClientID: p.ClientID, SupportedSigningAlgs: p.Algorithms}),
	}, nil
}

// Begin returns a new flow and the address at the provider to which the browser goes.
func (p *Provider) Begin(ctx context.Context) (f Flow, address string, err error) {
	err = p.within(ctx, func(ctx context.Context) error {
		d, err := p.describe(ctx)
		if err != nil {
			return err
		}
		f = Flow{State: random(), Nonce: random(), Verifier: oauth2.GenerateVerifier()}
		address = d.oauth.AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier))
		return nil
	})
	return f, address, err
}

// Same reports whether a state is that of the flow.
func (f Flow) Same(state string) bool {
	return f.State != "" && subtle.ConstantTimeCompare([]byte(f.State), []byte(state)) == 1
}

// Finish exchanges the code that the browser has brought back, and returns whom its ID token names. The
// error is a *auth.Failure where the code or the token is not good.
func (p *Provider) Finish(ctx context.Context, f Flow, code string) (who *auth.Principal, err error) {
	err = p.within(ctx, func(ctx context.Context) error {
		d, err := p.describe(ctx)
		if err != nil {
			return err
		}
		token, err := d.oauth.Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
		if refused := (*oauth2.RetrieveError)(nil); errors.As(err, &refused) && refused.Response.StatusCode < http.StatusInternalServerError {
			return auth.Refused(err, "the identity provider does not accept the code")
		}
		if err != nil {
			return fmt.Errorf("%w: exchange the code: %w", ErrUnavailable, err)
		}
		raw, _ := token.Extra("id_token").(string)
		who, err = p.verify(ctx, d, raw, f.Nonce)
		return err
	})
	return who, err
}

// verify returns whom an ID token names.
func (p *Provider) verify(ctx context.Context, d *described, raw, nonce string) (*auth.Principal, error) {
	if raw == "" {
		return nil, auth.Refused(nil, "the identity provider has sent no ID token")
	}
	token, err := d.verifier.Verify(ctx, raw)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: verify the ID token: %w", ErrUnavailable, ctx.Err())
	case err != nil:
		return nil, auth.Refused(err, "invalid ID token")
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1:
		return nil, auth.Refused(nil, "invalid ID token: wrong nonce")
	}
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return nil, auth.Refused(err, "invalid ID token")
	}
	if azp, given := claims["azp"]; given && azp != p.ClientID {
		return nil, auth.Refused(nil, "invalid ID token: it was issued to another client")
	}
	name := token.Subject
	if p.NameClaim != "" {
		if name, _ = claims[p.NameClaim].(string); strings.TrimSpace(name) == "" {
			return nil, auth.Refused(nil, "invalid ID token: it has no claim %q", p.NameClaim)
		}
		if verified, given := claims["email_verified"]; p.NameClaim == "email" && given && verified != true {
			return nil, auth.Refused(nil, "invalid ID token: the address is not verified")
		}
	}
	who, err := p.Principal(name, claims)
	if err != nil {
		return nil, err
	}
	who.Method, who.Expires = auth.ByProvider, time.Time{}
	return who, nil
}

// random is a text that nobody guesses.
func random() string {
	var b [32]byte
	_, _ = io.ReadFull(rand.Reader, b[:]) // never an error
	return base64.RawURLEncoding.EncodeToString(b[:])
}
