package rest

import (
	"context"
	"errors"
	"time"

	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/store"
)

// StoredCredentials are the API keys and browser sessions of a database. They implement auth.KeyStore
// and auth.SessionStore.
type StoredCredentials struct {
	Database interface {
		UseAPIKey(ctx context.Context, hash []byte) (store.UsedAPIKey, error)
		UseBrowserSession(ctx context.Context, hash []byte, idle time.Duration) (store.UsedBrowserSession, error)
	}
	// Idle is how long a session lasts without a request.
	Idle time.Duration
}

// APIKey implements auth.KeyStore.
func (k StoredCredentials) APIKey(ctx context.Context, hash auth.KeyHash) (*auth.APIKey, time.Time, error) {
	key, err := k.Database.UseAPIKey(ctx, hash[:])
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, key.Now, nil
	case err != nil:
		return nil, key.Now, err
	}
	permissions, _ := auth.ParsePermissions(key.Permissions) // those that this version knows
	good := &auth.APIKey{ID: key.UUID.String(), Name: key.Name, Permissions: permissions, Namespaces: key.Namespaces, Revoked: key.RevokedAt != nil}
	if key.ExpiresAt != nil {
		good.Expires = *key.ExpiresAt
	}
	return good, key.Now, nil
}

// BrowserSession implements auth.SessionStore.
func (k StoredCredentials) BrowserSession(ctx context.Context, hash auth.KeyHash) (*auth.BrowserSession, time.Time, error) {
	s, err := k.Database.UseBrowserSession(ctx, hash[:], k.Idle)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, s.Now, nil
	case err != nil:
		return nil, s.Now, err
	}
	permissions, _ := auth.ParsePermissions(s.Permissions) // those that this version knows
	kept := &auth.BrowserSession{ID: s.ID.String(), Subject: s.Principal, OpenedBy: auth.Method(s.OpenedBy), Permissions: permissions,
		Namespaces: s.Namespaces, Expires: s.Ends, Ended: !s.Live}
	if s.KeyUUID != nil {
		kept.Key = s.KeyUUID.String()
	}
	if s.KeyHash != nil {
		kept.FileKey = new(auth.KeyHash(s.KeyHash))
	}
	return kept, s.Now, nil
}
