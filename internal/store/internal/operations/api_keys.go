package operations

import (
	"context"
	"errors"
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

	// insertKey makes none of a name that a key has which is not shown. There are few keys.
	insertKey = pg.Compile(`
insert into tasker.api_keys (hash, name, permissions, namespaces, created_by, expires_at)
select @hash, @name, @permissions, @namespaces, @actor, now() + @life_ms::bigint * interval '1 ms'
where @within::text[] is null or not exists (select from tasker.api_keys where name = @name and not ` + shownKey + `)
returning ` + keyColumns)

	// Index: the primary key.
	oneKey  = pg.Compile(`select ` + keyColumns + ` from tasker.api_keys where key_uuid = @key`)
	lockKey = pg.Compile(`
select key_uuid, revoked_at is null and coalesce(expires_at > now(), true) as live from tasker.api_keys where key_uuid = @key for update`)

	// rotateKey makes a key that takes the place of another one, by default for as long as that was made for.
	// Index: the primary key.
	rotateKey = pg.Compile(`
insert into tasker.api_keys (hash, name, permissions, namespaces, created_by, expires_at)
select @hash, name, permissions, namespaces, @actor, now() + coalesce(@life_ms::bigint * interval '1 ms', expires_at - created_at)
from tasker.api_keys where key_uuid = @key returning ` + keyColumns)

	// expireKey ends a key, unless it ends sooner.
	// Index: the primary key.
	expireKey = pg.Compile(`
update tasker.api_keys set expires_at = least(expires_at, now() + @grace_ms::bigint * interval '1 ms') where key_uuid = @key`)

	// expireKeys ends the other keys of a name, those that end sooner aside.
	expireKeys = pg.Compile(`
update tasker.api_keys set expires_at = now() + @grace_ms::bigint * interval '1 ms'
where name = @name and key_uuid <> @key and revoked_at is null
  and coalesce(expires_at > now() + @grace_ms::bigint * interval '1 ms', true)`)

	revokeKey = pg.Compile(`
update tasker.api_keys set revoked_at = coalesce(revoked_at, now()) where key_uuid = @key returning ` + keyColumns)

	listKeys = pg.Compile(`
select ` + keyColumns + ` from tasker.api_keys where @within::text[] is null or ` + shownKey + `
order by created_at desc, key_uuid limit @limit`)
)

// shownKey is whether principals of some namespaces see a key: it may act in these alone.
const shownKey = `(namespaces <> '{}' and namespaces <@ @within::text[])`

// Errors of changes of keys.
var (
	ErrKeyNameTaken = errors.New("a key that is not shown has the name")
	ErrKeyEnded     = errors.New("the API key was revoked, or has expired")
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
	// Within are the namespaces of whoever makes it; nil: all. The names of keys beyond are taken.
	Within []string
}

// CreateAPIKey stores a key and records the operator.
func (s *Operations) CreateAPIKey(ctx context.Context, k NewAPIKey, by pg.OperatorAction) (APIKey, error) {
	var life *int64
	if k.Life > 0 {
		life = new(k.Life.Milliseconds())
	}
	made, _, err := pg.Recorded(ctx, s.db, "create_api_key", "create the API key", by, "", func(ctx context.Context, tx pgx.Tx) (APIKey, map[string]any, error) {
		made, err := pg.OneOf[APIKey](ctx, tx, insertKey.With(pg.Args{"hash": k.Hash, "name": k.Name, "permissions": k.Permissions,
			"namespaces": append([]string{}, k.Namespaces...), "actor": by.Actor, "life_ms": life, "within": k.Within}))
		if k.Within != nil && errors.Is(err, pg.ErrNotFound) {
			err = ErrKeyNameTaken
		}
		if err == nil && k.Rotate {
			_, err = pg.Run(ctx, tx, expireKeys.With(pg.Args{"name": k.Name, "key": made.UUID, "grace_ms": k.Grace.Milliseconds()}))
		}
		return made, ofOneNamespace(map[string]any{"api_key": made.UUID, "name": k.Name, "permissions": made.Permissions, "namespaces": made.Namespaces,
			"expires_at": made.ExpiresAt, "rotated": k.Rotate}, made.Namespaces), err
	})
	return made, err
}

// RevokeAPIKey ends a key for good and records the operator. Daemons may have remembered it
// for ten seconds. The error wraps ErrNotFound if there is none.
func (s *Operations) RevokeAPIKey(ctx context.Context, id uuid.UUID, by pg.OperatorAction) (APIKey, error) {
	gone, _, err := pg.Recorded(ctx, s.db, "revoke_api_key", "revoke the API key", by, "", func(ctx context.Context, tx pgx.Tx) (APIKey, map[string]any, error) {
		k, err := pg.OneOf[APIKey](ctx, tx, revokeKey.With(pg.Args{"key": id}))
		return k, ofOneNamespace(map[string]any{"api_key": id, "name": k.Name}, k.Namespaces), err
	})
	return gone, err
}

// RotatedKey is a key to make in place of another one, which is good for Grace more.
type RotatedKey struct {
	Of    uuid.UUID
	Hash  []byte
	Life  time.Duration // 0: as long as that of the other one was
	Grace time.Duration
}

// RotateAPIKey makes a key with the name, permissions and namespaces of another one, and records the
// operator. The error wraps ErrNotFound if there is no such key, and is ErrKeyEnded if it has ended.
func (s *Operations) RotateAPIKey(ctx context.Context, r RotatedKey, by pg.OperatorAction) (APIKey, error) {
	type standing struct {
		Key  uuid.UUID `sql:"key_uuid"`
		Live bool
	}
	var life *int64
	if r.Life > 0 {
		life = new(r.Life.Milliseconds())
	}
	made, _, err := pg.Recorded(ctx, s.db, "rotate_api_key", "rotate the API key", by, "", func(ctx context.Context, tx pgx.Tx) (made APIKey, _ map[string]any, err error) {
		old, err := pg.OneOf[standing](ctx, tx, lockKey.With(pg.Args{"key": r.Of}))
		if err == nil && !old.Live {
			err = ErrKeyEnded
		}
		if err == nil {
			made, err = pg.OneOf[APIKey](ctx, tx, rotateKey.With(pg.Args{"key": r.Of, "hash": r.Hash, "actor": by.Actor, "life_ms": life}))
		}
		if err == nil {
			_, err = pg.Run(ctx, tx, expireKey.With(pg.Args{"key": r.Of, "grace_ms": r.Grace.Milliseconds()}))
		}
		return made, ofOneNamespace(map[string]any{"api_key": made.UUID, "name": made.Name, "in_place_of": r.Of, "grace_ms": r.Grace.Milliseconds(),
			"expires_at": made.ExpiresAt}, made.Namespaces), err
	})
	return made, err
}

// APIKey returns a key, ended or not. The error wraps ErrNotFound if there is none.
func (s *Operations) APIKey(ctx context.Context, id uuid.UUID) (APIKey, error) {
	return pg.ReadOne[APIKey](ctx, s.db, "api_key", "read the API key", oneKey.With(pg.Args{"key": id}))
}

// APIKeys lists the keys, the newest first.
func (s *Operations) APIKeys(ctx context.Context, limit int) ([]APIKey, error) {
	return s.APIKeysWithin(ctx, nil, limit)
}

// APIKeysWithin lists the keys that may act in some namespaces alone, the newest first; nil: all keys.
func (s *Operations) APIKeysWithin(ctx context.Context, namespaces []string, limit int) ([]APIKey, error) {
	return pg.ReadAll[APIKey](ctx, s.db, "api_keys", "list the API keys", listKeys.With(pg.Args{"limit": limit, "within": namespaces}))
}
