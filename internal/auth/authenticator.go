package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"time"
)

// Options say which credentials are good. Tokens or Keys may be nil, but not both.
type Options struct {
	Tokens *TokenOptions
	Keys   *KeyOptions
	// Sessions has the browser sessions; nil: no cookie is accepted.
	Sessions SessionStore
	// OnLookup is called for each credential that is looked at, with whether its answer was
	// remembered; nil: not called.
	OnLookup func(remembered bool)
	// Now is the time by which answers are remembered; nil: that of Tokens, else time.Now.
	Now func() time.Time
}

// Credentials are what a request carries.
type Credentials struct {
	// Authorization is the header of that name, with a token or a generated API key; Key the one of
	// API keys.
	Authorization, Key string
	// Session is the token of a browser session. It counts only without the others.
	Session string
}

const (
	// maxCredential bounds what is looked at.
	maxCredential = 16 << 10
	// usualCredential is what tokens rarely exceed.
	usualCredential = 1 << 10
)

// Authenticator verifies credentials. It is safe for concurrent use.
type Authenticator struct {
	tokens   *tokens
	keys     *KeyOptions
	sessions SessionStore
	now      func() time.Time
	onLookup func(remembered bool)
	memo     memo
}

// New returns an error if the options are not good.
func New(o Options) (*Authenticator, error) {
	a := &Authenticator{keys: o.Keys, sessions: o.Sessions, now: time.Now, onLookup: o.OnLookup}
	if o.Now != nil {
		a.now = o.Now
	}
	if a.onLookup == nil {
		a.onLookup = func(bool) {}
	}
	if o.Tokens == nil && o.Keys == nil {
		return nil, errors.New("authentication needs tokens or API keys")
	}
	if o.Tokens == nil {
		return a, nil
	}
	var err error
	if a.tokens, err = newTokens(*o.Tokens); err != nil {
		return nil, err
	}
	if o.Now == nil {
		a.now = a.tokens.Now
	}
	return a, nil
}

// Authenticate returns whom a request speaks for, a *Failure, or ErrUnavailable. A token
// counts before a key; a bad token is not made good by a key.
func (a *Authenticator) Authenticate(ctx context.Context, c Credentials) (*Principal, error) {
	kind, text, err := c.text()
	if err != nil {
		return nil, err
	}
	// The generation is read before the keys, so that an answer of keys that change
	// meanwhile is not used again.
	now, generation := a.now(), a.generation()
	var room [usualCredential]byte // the conversion of a longer one allocates
	f := fingerprint{kind, sha256.Sum256(append(room[:0], text...))}
	if p := a.memo.get(f, generation, now); p != nil {
		a.onLookup(true)
		return p, nil
	}
	a.onLookup(false)
	p, life, err := a.verify(ctx, kind, text)
	if err != nil {
		return nil, err
	}
	if life > 0 {
		a.memo.put(f, answer{p, generation, now.Add(min(life, rememberFor))})
	}
	return p, nil
}

// text is the credential that counts.
func (c Credentials) text() (k kind, text string, err error) {
	k, text = aKey, c.Key
	if text == "" && c.Session != "" {
		k, text = aSession, c.Session
	}
	if c.Authorization != "" {
		scheme, token, _ := strings.Cut(c.Authorization, " ")
		if !strings.EqualFold(scheme, "Bearer") || token == "" {
			return k, "", refuse(Malformed, nil, "malformed header Authorization: want Bearer and a token")
		}
		k, text = aToken, token
		if strings.HasPrefix(token, keyPrefix) { // of a client whose only header is this one, such as a Prometheus operator
			k = aKey
		}
	}
	switch {
	case text == "":
		return k, "", refuse(Missing, nil, "credentials are missing: want a bearer token or an API key")
	case len(text) > maxCredential:
		return k, "", refuse(Malformed, nil, "malformed %s: it is longer than %d bytes", k, maxCredential)
	}
	return k, text, nil
}

// generation is that of the keys that verify tokens. API keys have none: what is known of
// them ends by time alone.
func (a *Authenticator) generation() uint64 {
	if a.tokens == nil {
		return 0
	}
	generation, _ := a.tokens.Keys.Generation()
	return generation
}

// verify returns whom a credential speaks for, and for how long at most.
func (a *Authenticator) verify(ctx context.Context, k kind, text string) (*Principal, time.Duration, error) {
	switch {
	case k == aToken && a.tokens == nil:
		return nil, 0, refuse(Invalid, nil, "tokens are not accepted")
	case k == aToken:
		return a.tokens.verify(ctx, text)
	case k == aSession:
		return a.session(ctx, text)
	case a.keys == nil:
		return nil, 0, refuse(Invalid, nil, "API keys are not accepted")
	}
	return a.keys.verify(ctx, text)
}
