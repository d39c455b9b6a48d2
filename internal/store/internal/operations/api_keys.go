package operations

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
)

// APIKey is an API key without its secret, of which only the hash is kept.
type APIKey struct {
	UUID        uuid.UUID `sql:"key_uuid"`
	Name        string    // the principal
	Permissions []string
	Namespaces  []string // none: all
	CreatedAt   time.Time
	CreatedBy   string
	ExpiresAt   *time.Time // nil: never
	RevokedAt   *time.Time
	LastUsedAt  *time.Time // to the minute
}

// UsedAPIKey is a key that a client has sent, and the database's time.
type UsedAPIKey struct {
	APIKey
	Now time.Time
}

const keyColumns = `key_uuid, name, permissions, namespaces, created_at, created_by, expires_at, revoked_at, last_used_at`

var (
	// useKey notes the use of a key at most once a minute, so that reading stays reading.
	// Index: the unique hash; the primary key.
	useKey = pg.Compile(`
with k as (select * from tasker.api_keys where hash = @hash),
noted as (
    update tasker.api_keys a set last_used_at = now() from k
    where a.key_uuid = k.key_uuid and k.revoked_at is null and coalesce(k.expires_at > now(), true)
      and coalesce(k.last_used_at < now() - interval '1 minute', true)
)
select ` + keyColumns + `, now() as now from k`)

	insertKey = pg.Compile(`
insert into tasker.api_keys (hash, name, permissions, namespaces, created_by, expires_at)
values (@hash, @name, @permissions, @namespaces, @actor, now() + @life_ms::bigint * interval '1 ms')
returning ` + keyColumns)

	// expireKeys ends the other keys of a name, those that end sooner aside.
	expireKeys = pg.Compile(`
update tasker.api_keys set expires_at = now() + @grace_ms::bigint * interval '1 ms'
where name = @name and key_uuid <> @key and revoked_at is null
  and coalesce(expires_at > now() + @grace_ms::bigint * interval '1 ms', true)`)

	revokeKey = pg.Compile(`
update tasker.api_keys set revoked_at = coalesce(revoked_at, now()) where key_uuid = @key returning ` + keyColumns)

	listKeys = pg.Compile(`select ` + keyColumns + ` from tasker.api_keys order by created_at desc, key_uuid limit @limit`)
)

// UseAPIKey returns the key with a hash, whether it is still good or not, and notes its use
// if it is. The error wraps ErrNotFound if there is none.
func (s *Operations) UseAPIKey(ctx context.Context, hash []byte) (UsedAPIKey, error) {
	return pg.ReadOne[UsedAPIKey](ctx, s.db, "use_api_key", "read the API key", useKey.With(pg.Args{"hash": hash}))
}

// NewAPIKey is a key to create.
type NewAPIKey struct {
	Hash        []byte
	Name        string
	Permissions []string
	Namespaces  []string      // none: all
	Life        time.Duration // 0: without end
	// Rotate lets the other keys of the name end after Grace.
	Rotate bool
	Grace  time.Duration
}

// CreateAPIKey stores a key and records the operator.
func (s *Operations) CreateAPIKey(ctx context.Context, k NewAPIKey, by pg.OperatorAction) (APIKey, error) {
	var life *int64
	if k.Life > 0 {
		life = new(k.Life.Milliseconds())
	}
	made, _, err := pg.Recorded(ctx, s.db, "create_api_key", "create the API key", by, "", func(ctx context.Context, tx pgx.Tx) (APIKey, map[string]any, error) {
		made, err := pg.OneOf[APIKey](ctx, tx, insertKey.With(pg.Args{"hash": k.Hash, "name": k.Name, "permissions": k.Permissions,
			"namespaces": append([]string{}, k.Namespaces...), "actor": by.Actor, "life_ms": life}))
		if err == nil && k.Rotate {
			_, err = pg.Run(ctx, tx, expireKeys.With(pg.Args{"name": k.Name, "key": made.UUID, "grace_ms": k.Grace.Milliseconds()}))
		}
		return made, map[string]any{"api_key": made.UUID, "name": k.Name, "permissions": made.Permissions, "namespaces": made.Namespaces,
			"expires_at": made.ExpiresAt, "rotated": k.Rotate}, err
	})
	return made, err
}

// RevokeAPIKey ends a key for good and records the operator. Daemons may have remembered it
// for ten seconds. The error wraps ErrNotFound if there is none.
func (s *Operations) RevokeAPIKey(ctx context.Context, id uuid.UUID, by pg.OperatorAction) (APIKey, error) {
	gone, _, err := pg.Recorded(ctx, s.db, "revoke_api_key", "revoke the API key", by, "", func(ctx context.Context, tx pgx.Tx) (APIKey, map[string]any, error) {
		k, err := pg.OneOf[APIKey](ctx, tx, revokeKey.With(pg.Args{"key": id}))
		return k, map[string]any{"api_key": id, "name": k.Name}, err
	})
	return gone, err
}

// APIKeys lists the keys, the newest first.
func (s *Operations) APIKeys(ctx context.Context, limit int) ([]APIKey, error) {
	return pg.ReadAll[APIKey](ctx, s.db, "api_keys", "list the API keys", listKeys.With(pg.Args{"limit": limit}))
}
