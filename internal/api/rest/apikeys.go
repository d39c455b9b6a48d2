package rest

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wire"
)

// KeyStore keeps the API keys of the database.
type KeyStore interface {
	CreateAPIKey(ctx context.Context, k store.NewAPIKey, by store.OperatorAction) (store.APIKey, error)
	RotateAPIKey(ctx context.Context, r store.RotatedKey, by store.OperatorAction) (store.APIKey, error)
	RevokeAPIKey(ctx context.Context, id uuid.UUID, by store.OperatorAction) (store.APIKey, error)
	APIKey(ctx context.Context, id uuid.UUID) (store.APIKey, error)
	APIKeysWithin(ctx context.Context, namespaces []string, limit int) ([]store.APIKey, error)
}

// keyRoutes make, show, rotate and revoke API keys. To a principal of some namespaces the keys that
// act elsewhere too do not exist.
type keyRoutes struct{ *orchestratorAPI }

func (r *keyRoutes) add() {
	const path = "/v1/api-keys"
	op := operation{tag: "access"}
	add(r.api, op.at(http.MethodGet, path, "list-api-keys", "List the API keys of the database, newest first"), r.list)
	made := operation{tag: "access", status: http.StatusCreated}
	addBody(r.api, made.at(http.MethodPost, path, "create-api-key", "Make an API key, which the answer shows once"), r.create)
	rotated := operation{tag: "access", status: http.StatusCreated, body: client.APIKeyRotation{}, optional: true}
	add(r.api, rotated.at(http.MethodPost, path+"/{id}/rotate", "rotate-api-key", "Make a key in place of another one, which is good for a grace more"), r.rotate)
	add(r.api, op.at(http.MethodDelete, path+"/{id}", "revoke-api-key", "Revoke an API key for good"), r.revoke)
}

func (r *keyRoutes) list(ctx context.Context, in *struct {
	Limit number `query:"limit" format:"int64" within:"0,1000,100" default:"100" doc:"1 to 1000"`
}) (*wire.APIKeyList, error) {
	keys, err := r.store.APIKeysWithin(ctx, exchangeOf(ctx).namespaces(), cmp.Or(int(in.Limit), 100))
	return &wire.APIKeyList{APIKeys: each(keys, keyOf)}, err
}

func keyOf(k *store.APIKey) client.APIKey {
	return client.APIKey{KeyUUID: k.UUID.String(), Name: k.Name, Permissions: k.Permissions, Namespaces: k.Namespaces, CreatedAt: client.Time{Time: k.CreatedAt},
		CreatedBy: k.CreatedBy, ExpiresAt: instant(k.ExpiresAt), RevokedAt: instant(k.RevokedAt), LastUsedAt: instant(k.LastUsedAt)}
}

// shownOnce is a new key with its secret, which no cache may keep.
func shownOnce(ctx context.Context, k *store.APIKey, secret string) *client.APIKey {
	exchangeOf(ctx).Header().Set("Cache-Control", "no-store")
	shown := keyOf(k)
	shown.Key = secret
	return &shown
}

// maxKeyLife bounds lives and graces, ten years.
const maxKeyLife = 10 * 366 * 24 * 60 * 60

// seconds reads a duration.
func (c *checked) seconds(name string, n int64) time.Duration {
	if n < 0 || n > maxKeyLife {
		c.add("%s must be between 0 and %d", name, maxKeyLife)
		return 0
	}
	return time.Duration(n) * time.Second
}

// permissions reads names of permissions. They are kept one by one: what is added to a resource later
// was not given.
func (c *checked) permissions(names []string) auth.Permissions {
	set, unknown := auth.ParsePermissions(names)
	if len(unknown) > 0 {
		c.add("invalid permission %q: want resource:action or resource:*", clip(strings.ToValidUTF8(unknown[0], "?"), 64))
	}
	return set
}

// namespaceNames reads the namespaces of a key.
func (c *checked) namespaceNames(names []string) []string {
	for _, name := range names {
		if c.filled("namespaces", name, orchestration.MaxNameLength); name == auth.AllNames && len(names) > 1 {
			c.add("namespaces: %s stands for all, and alone", auth.AllNames)
		}
	}
	if slices.Contains(names, auth.AllNames) {
		return nil
	}
	return names
}

func (r *keyRoutes) create(ctx context.Context, _ *struct{}, body *request[client.APIKeyRequest]) (*client.APIKey, error) {
	x, b := exchangeOf(ctx), &body.body
	body.need("permissions")
	n := store.NewAPIKey{Name: body.required("name", b.Name, maxPrincipal), Namespaces: body.namespaceNames(b.Namespaces),
		Life: body.seconds("expires_in_seconds", b.ExpiresInSeconds), Within: x.namespaces()}
	if len(b.Name) > maxPrincipal || strings.ContainsFunc(b.Name, unicode.IsControl) {
		body.add("name must have at most %d bytes, and no control characters", maxPrincipal)
	}
	given := body.permissions(b.Permissions)
	if n.Permissions = given.List(); body.has("permissions") && len(b.Permissions) == 0 {
		body.add("permissions must not be empty")
	}
	why := body.whyOr(b.Reason, b.Actor, r.actor, "created over the API")
	if err := body.err(); err != nil {
		return nil, err
	}
	if err := x.server.judged(x, x.who.Covers(given, n.Namespaces)); err != nil {
		return nil, err
	}
	secret := auth.NewKey()
	hash := auth.HashKey(secret)
	n.Hash = hash[:]
	made, err := r.store.CreateAPIKey(ctx, n, recorded("create_api_key", why))
	if errors.Is(err, store.ErrKeyNameTaken) {
		return nil, conflict("The name is that of another key")
	}
	if err != nil {
		return nil, err
	}
	return shownOnce(ctx, &made, secret), nil
}

// keyInput selects a key.
type keyInput struct {
	ID string `path:"id" format:"uuid"`
}

// shown reads a key that the principal may see.
func (r *keyRoutes) shown(ctx context.Context, text string) (k store.APIKey, err error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return k, noSuch(unknownKey, text, err)
	}
	k, err = r.store.APIKey(ctx, id)
	if err != nil {
		return k, missing(err, unknownKey, id)
	}
	if x := exchangeOf(ctx); !x.shows(k.Namespaces) {
		return k, hidden(x.server.judged(x, x.who.AllNamespaces()), func(cause error) error { return noSuch(unknownKey, id.String(), cause) })
	}
	return k, nil
}

const unknownKey = "API key not found: %s"

// rotate makes a key for whoever could make it anew: its answer has the secret.
func (r *keyRoutes) rotate(ctx context.Context, in *keyInput) (*client.APIKey, error) {
	body, err := optionalBody[client.APIKeyRotation](ctx)
	if err != nil {
		return nil, err
	}
	x := exchangeOf(ctx)
	c := checked{who: x.who}
	n := store.RotatedKey{Life: c.seconds("expires_in_seconds", body.ExpiresInSeconds), Grace: 24 * time.Hour}
	if body.GraceSeconds != nil {
		n.Grace = c.seconds("grace_seconds", *body.GraceSeconds)
	}
	why := c.whyOr(body.Reason, body.Actor, r.actor, "rotated over the API")
	if err := c.err(); err != nil {
		return nil, err
	}
	old, err := r.shown(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	given, unknown := auth.ParsePermissions(old.Permissions)
	if len(unknown) > 0 {
		return nil, conflict("The key has permissions that this version does not know: make another one")
	}
	if err := x.server.judged(x, x.who.Covers(given, old.Namespaces)); err != nil {
		return nil, err
	}
	secret := auth.NewKey()
	hash := auth.HashKey(secret)
	n.Of, n.Hash = old.UUID, hash[:]
	made, err := r.store.RotateAPIKey(ctx, n, recorded("rotate_api_key", why))
	switch {
	case errors.Is(err, store.ErrKeyEnded):
		return nil, conflict("The API key was revoked, or has expired: make another one")
	case err != nil:
		return nil, missing(err, unknownKey, old.UUID)
	}
	return shownOnce(ctx, &made, secret), nil
}

func (r *keyRoutes) revoke(ctx context.Context, in *struct {
	keyInput
	whyQuery
}) (*client.APIKey, error) {
	why, err := r.optionalWhy(ctx, in.whyQuery, "revoked over the API")
	if err != nil {
		return nil, err
	}
	old, err := r.shown(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	gone, err := r.store.RevokeAPIKey(ctx, old.UUID, recorded("revoke_api_key", why))
	if err != nil {
		return nil, missing(err, unknownKey, old.UUID)
	}
	return new(keyOf(&gone)), nil
}
