package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"time"
)

// Options say which credentials are good; either kind may be nil, but not both.
type Options struct {
	Tokens *TokenOptions
	Keys   *KeyOptions
}

// Credentials are what a request carries.
type Credentials struct {
	// Authorization is the header of that name; Key the one of API keys.
	Authorization, Key string
}

const (
	// maxCredential bounds what is looked at: tokens have a few hundred bytes.
	maxCredential = 16 << 10
	// rememberFor is how long an answer is used again: a revoked key, or a token whose key
	// left the key set, is good for so long.
	rememberFor = 10 * time.Second
	// remembered bounds how many answers are kept.
	remembered = 4096
)

// Authenticator verifies credentials. It is safe for concurrent use.
type Authenticator struct {
	tokens *tokens
	keys   *KeyOptions
	memo   memo
}

// New returns an error if the options are not good.
func New(o Options) (*Authenticator, error) {
	a := &Authenticator{keys: o.Keys, memo: memo{now: time.Now}}
	if o.Tokens == nil && o.Keys == nil {
		return nil, errors.New("authentication needs tokens or API keys")
	}
	if o.Tokens == nil {
		return a, nil
	}
	var err error
	a.tokens, err = newTokens(*o.Tokens)
	return a, err
}

// Authenticate returns whom a request speaks for, a *Failure, or ErrUnavailable. A token
// counts before a key; a bad token is not made good by a key.
func (a *Authenticator) Authenticate(ctx context.Context, c Credentials) (*Principal, error) {
	kind, text := "key", c.Key
	if c.Authorization != "" {
		scheme, token, _ := strings.Cut(c.Authorization, " ")
		if !strings.EqualFold(scheme, "Bearer") || token == "" {
			return nil, refuse(Malformed, nil, "malformed header Authorization: want Bearer and a token")
		}
		kind, text = "token", token
	}
	switch {
	case text == "":
		return nil, refuse(Missing, nil, "credentials are missing: want a bearer token or an API key")
	case len(text) > maxCredential:
		return nil, refuse(Malformed, nil, "malformed %s: it is longer than %d bytes", kind, maxCredential)
	}
	return a.memo.do(sha256.Sum256([]byte(kind+text)), func() (*Principal, error) {
		if kind == "token" {
			return a.token(ctx, text)
		}
		if a.keys == nil {
			return nil, refuse(Invalid, nil, "API keys are not accepted")
		}
		return a.keys.verify(ctx, text)
	})
}

func (a *Authenticator) token(ctx context.Context, text string) (*Principal, error) {
	if a.tokens == nil {
		return nil, refuse(Invalid, nil, "tokens are not accepted")
	}
	return a.tokens.verify(ctx, text)
}

// memo keeps good answers for rememberFor: a signature takes longer to verify than many a
// request takes to answer. A full generation replaces the one before, so that both hold at
// most remembered answers.
type memo struct {
	now func() time.Time

	mu         sync.Mutex
	young, old map[[sha256.Size]byte]answer
}

type answer struct {
	principal *Principal
	since     time.Time
}

// do returns the answer for a credential, from compute if it is not remembered. Two at
// once may compute the same.
func (m *memo) do(hash [sha256.Size]byte, compute func() (*Principal, error)) (*Principal, error) {
	if p := m.get(hash); p != nil {
		return p, nil
	}
	p, err := compute()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.young == nil || len(m.young) >= remembered/2 {
		m.young, m.old = make(map[[sha256.Size]byte]answer), m.young
	}
	m.young[hash] = answer{p, m.now()}
	return p, nil
}

func (m *memo) get(hash [sha256.Size]byte) *Principal {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.young[hash]
	if !ok {
		known, ok = m.old[hash]
	}
	if !ok || m.now().Sub(known.since) >= rememberFor {
		return nil
	}
	return known.principal
}
