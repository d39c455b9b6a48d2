package auth

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"
)

// sessionBytes is the length of the token of a browser session, all of it random.
const sessionBytes = 32

// NewSessionToken returns the random token of a browser session. Only its hash is kept.
func NewSessionToken() string {
	var token [sessionBytes]byte
	_, _ = rand.Read(token[:]) // never an error
	return base64.RawURLEncoding.EncodeToString(token[:])
}

// sessionToken reports whether a text may be one of NewSessionToken.
func sessionToken(text string) bool {
	token, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return err == nil && len(token) == sessionBytes
}

// BrowserSession is a browser session as it is kept.
type BrowserSession struct {
	ID      string
	Subject string
	// OpenedBy is ByKey or ByProvider.
	OpenedBy    Method
	Permissions Permissions
	// Namespaces are as those of APIKey.
	Namespaces []string
	// Key is the UUID of the API key of the database that has opened it, FileKey the hash of one of
	// a file. A session by a key has one of them.
	Key     string
	FileKey *KeyHash
	// Expires is when it ends unless it is used, as its key does at the latest.
	Expires time.Time
	// Ended says that it, or its key, was revoked or has expired.
	Ended bool
}

// SessionStore has the browser sessions of the database.
type SessionStore interface {
	// BrowserSession returns the one whose token has a hash, and the database's time; nil if there is
	// none. It notes the use of one that has not ended.
	BrowserSession(ctx context.Context, hash KeyHash) (session *BrowserSession, now time.Time, err error)
}

// session returns whom a browser session speaks for, and how long until it ends.
func (a *Authenticator) session(ctx context.Context, text string) (*Principal, time.Duration, error) {
	if a.sessions == nil || !sessionToken(text) {
		return nil, 0, refuse(Invalid, nil, "invalid browser session")
	}
	s, now, err := a.sessions.BrowserSession(ctx, HashKey(text))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("%w: read browser session: %w", ErrUnavailable, err)
	case s == nil:
		return nil, 0, refuse(Invalid, nil, "invalid browser session")
	case s.Ended, !now.Before(s.Expires):
		return nil, 0, refuse(Expired, nil, "the browser session has ended")
	}
	p, ok := a.keptPrincipal(s)
	if !ok {
		return nil, 0, refuse(Expired, nil, "the browser session has ended with its API key")
	}
	return p, s.Expires.Sub(now), nil
}

// keptPrincipal is the holder of a session, with what the session was opened with. Keys of files
// change with the configuration: one that is gone ends its sessions, and the others take over what
// theirs may do now.
func (a *Authenticator) keptPrincipal(s *BrowserSession) (*Principal, bool) {
	key := &APIKey{ID: s.Key, Name: s.Subject, Permissions: s.Permissions, Namespaces: s.Namespaces, Expires: s.Expires}
	switch {
	case s.OpenedBy != ByKey:
	case a.keys == nil, s.FileKey == nil && (s.Key == "" || a.keys.Stored == nil):
		return nil, false
	case s.FileKey != nil:
		now, known := a.keys.Configured[*s.FileKey]
		if !known {
			return nil, false
		}
		key.Permissions, key.Namespaces = now.Permissions, now.Namespaces
	}
	p := key.principal()
	p.Method, p.Session = s.OpenedBy, s.ID
	return p, true
}

// OpeningKey returns the holder of an API key that opens a browser session, and the hash of the key
// if it is of a file. It is always verified anew.
func (a *Authenticator) OpeningKey(ctx context.Context, key string) (p *Principal, file *KeyHash, err error) {
	switch {
	case a.keys == nil:
		return nil, nil, refuse(Invalid, nil, "API keys are not accepted")
	case key == "":
		return nil, nil, refuse(Missing, nil, "credentials are missing: want an API key")
	case len(key) > maxCredential:
		return nil, nil, refuse(Malformed, nil, "malformed key: it is longer than %d bytes", maxCredential)
	}
	p, _, err = a.keys.verify(ctx, key)
	if err == nil && p.Key == "" {
		file = new(HashKey(key))
	}
	return p, file, err
}

// Opens returns the API key that the credentials are; "" for others.
func (c Credentials) Opens() string {
	if k, text, err := c.text(); err == nil && k == aKey {
		return text
	}
	return ""
}

// BySession reports whether the browser session of the credentials is what counts.
func (c Credentials) BySession() bool {
	return c.Session != "" && c.Authorization == "" && c.Key == ""
}

// Forget has the next request with a browser session look it up again, once it has ended.
func (a *Authenticator) Forget(session KeyHash) { a.memo.forget(fingerprint{aSession, session}) }
