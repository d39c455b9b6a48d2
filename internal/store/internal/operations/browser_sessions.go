package operations

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
)

// BrowserSession is a browser session without its token, of which only the hash is kept.
type BrowserSession struct {
	ID          uuid.UUID
	Principal   string
	OpenedBy    string     // api_key or oidc
	KeyUUID     *uuid.UUID // the API key of the database that has opened it
	KeyHash     []byte     // the hash of one of a file
	Permissions []string
	Namespaces  []string // none: all
	CreatedAt   time.Time
	LastUsedAt  time.Time // to the minute
	ExpiresAt   time.Time // at the latest
	RevokedAt   *time.Time
}

// UsedBrowserSession is a browser session whose token a client has sent, and the database's time.
type UsedBrowserSession struct {
	BrowserSession
	// Ends is when it ends unless it is used again, by its life, its idle time and its API key.
	Ends time.Time
	Live bool // it has not ended
	Now  time.Time
}

const sessionColumns = `s.id, s.principal, s.opened_by, s.key_uuid, s.key_hash, s.permissions, s.namespaces,
    s.created_at, s.last_used_at, s.expires_at, s.revoked_at`

// openSession is the condition of a session s that has not ended by itself. Its key may have.
const openSession = `s.revoked_at is null and s.expires_at > now()
  and s.last_used_at > now() - @idle_ms::bigint * interval '1 ms'`

// shownSession is the condition of a session s that principals of some namespaces see.
const shownSession = `(@within::text[] is null or s.namespaces <> '{}' and s.namespaces <@ @within::text[])`

var (
	// useBrowserSession notes the use at most once a minute, so that reading stays reading. The condition
	// on the row that is changed is looked at again after another one's change.
	// Index: the unique hash; the primary keys.
	useBrowserSession = pg.Compile(`
with found as (
    select s.*, ` + openSession + `
          and (s.key_uuid is null or k.key_uuid is not null and k.revoked_at is null and coalesce(k.expires_at > now(), true)) as live,
        least(s.expires_at, k.expires_at, s.last_used_at + @idle_ms::bigint * interval '1 ms') as ends
    from tasker.browser_sessions s left join tasker.api_keys k on k.key_uuid = s.key_uuid
    where s.hash = @hash
), noted as (
    update tasker.browser_sessions b set last_used_at = now() from found
    where b.id = found.id and found.live and b.last_used_at < now() - interval '1 minute'
)
select ` + sessionColumns + `, s.ends, s.live, now() as now from found s`)

	// principalTurn has the sessions of a principal opened one after the other, so that they can be counted.
	principalTurn = pg.Compile(`select pg_advisory_xact_lock(hashtextextended('tasker.browser_session ' || @principal, 0))`)

	insertBrowserSession = pg.Compile(`
insert into tasker.browser_sessions as s (hash, principal, opened_by, key_uuid, key_hash, permissions, namespaces, expires_at)
values (@hash, @principal, @opened_by, @key_uuid, @key_hash, @permissions, @namespaces, now() + @life_ms::bigint * interval '1 ms')
returning ` + sessionColumns)

	// endOldest ends those beyond the number that a principal may have.
	// Index: browser_sessions_by_principal.
	endOldest = pg.Compile(`
update tasker.browser_sessions set revoked_at = now(), expires_at = now() where id in (
    select s.id from tasker.browser_sessions s
    where s.principal = @principal and s.opened_by = @opened_by and ` + openSession + `
    order by s.created_at desc, s.id desc offset @most)`)

	// endByHash ends one by its token.
	// Index: the unique hash.
	endByHash = pg.Compile(`
update tasker.browser_sessions as s set revoked_at = now(), expires_at = least(expires_at, now())
where s.hash = @hash and s.revoked_at is null returning ` + sessionColumns)

	// endBrowserSession ends one for good; a second time changes nothing.
	// Index: the primary key.
	endBrowserSession = pg.Compile(`
update tasker.browser_sessions as s set revoked_at = coalesce(revoked_at, now()), expires_at = least(expires_at, now())
where s.id = @id returning s.hash, ` + sessionColumns)

	// Index: the primary key.
	oneBrowserSession = pg.Compile(`select ` + sessionColumns + ` from tasker.browser_sessions s where s.id = @id`)

	// Lists of live ones, newest first. What has ended is deleted soon, so few are passed over.
	// Index: browser_sessions_by_principal; of all, browser_sessions_by_creation.
	listBrowserSessions = pg.Compile(`
select ` + sessionColumns + ` from tasker.browser_sessions s
where s.principal = @principal and s.opened_by = @opened_by and ` + openSession + ` and ` + shownSession + `
order by s.created_at desc, s.id desc limit @limit`)
	listSessionsOf = pg.Compile(`
select ` + sessionColumns + ` from tasker.browser_sessions s
where s.principal = @principal and ` + openSession + ` and ` + shownSession + `
order by s.created_at desc, s.id desc limit @limit`)
	listAllSessions = pg.Compile(`
select ` + sessionColumns + ` from tasker.browser_sessions s
where ` + openSession + ` and ` + shownSession + `
order by s.created_at desc, s.id desc limit @limit`)
)

// UseBrowserSession returns the session whose token has a hash, whether it has ended or not, and
// notes its use if it has not. The error wraps ErrNotFound if there is none.
func (s *Operations) UseBrowserSession(ctx context.Context, hash []byte, idle time.Duration) (UsedBrowserSession, error) {
	args := pg.Args{"hash": hash, "idle_ms": idle.Milliseconds()}
	return pg.ReadOne[UsedBrowserSession](ctx, s.db, "use_browser_session", "read the browser session", useBrowserSession.With(args))
}

// NewBrowserSession is a browser session to open.
type NewBrowserSession struct {
	Hash        []byte
	Principal   string
	OpenedBy    string
	KeyUUID     *uuid.UUID
	KeyHash     []byte
	Permissions []string
	Namespaces  []string // none: all
	Life, Idle  time.Duration
	// Most is how many its principal may have; the oldest beyond end.
	Most int
	// Replaces is the hash of the token that the browser had; nil: none. That session ends.
	Replaces []byte
}

// OpenBrowserSession opens a browser session, and returns how many have ended for it.
func (s *Operations) OpenBrowserSession(ctx context.Context, n NewBrowserSession) (made BrowserSession, ended int, err error) {
	who := pg.Args{"principal": n.Principal, "opened_by": n.OpenedBy, "idle_ms": n.Idle.Milliseconds()}
	err = s.db.Call(ctx, "open_browser_session", "open the browser session", func(ctx context.Context, db *pg.Conn) error {
		return s.db.InTx(ctx, db, func(tx pgx.Tx) error {
			ended = 0
			if _, err := pg.Run(ctx, tx, principalTurn.With(pg.Args{"principal": n.Principal})); err != nil {
				return err
			}
			if n.Replaces != nil {
				gone, err := pg.Run(ctx, tx, endByHash.With(pg.Args{"hash": n.Replaces}))
				if ended = gone; err != nil {
					return err
				}
			}
			var err error
			made, err = pg.OneOf[BrowserSession](ctx, tx, insertBrowserSession.With(pg.Args{"hash": n.Hash, "principal": n.Principal,
				"opened_by": n.OpenedBy, "key_uuid": n.KeyUUID, "key_hash": n.KeyHash, "permissions": append([]string{}, n.Permissions...),
				"namespaces": append([]string{}, n.Namespaces...), "life_ms": n.Life.Milliseconds()}))
			if err != nil {
				return err
			}
			gone, err := pg.Run(ctx, tx, endOldest.With(who.And(pg.Args{"most": n.Most})))
			ended += gone
			return err
		})
	})
	return made, ended, err
}

// EndBrowserSessionOf ends the session whose token has a hash, if there is one that has not ended.
func (s *Operations) EndBrowserSessionOf(ctx context.Context, hash []byte) (ended bool, err error) {
	err = s.db.Call(ctx, "end_browser_session_of", "end the browser session", func(ctx context.Context, db *pg.Conn) error {
		n, err := pg.Run(ctx, db, endByHash.With(pg.Args{"hash": hash}))
		ended = n > 0
		return err
	})
	return ended, err
}

// BrowserSession returns the session with an id, ended or not. The error wraps ErrNotFound if there
// is none.
func (s *Operations) BrowserSession(ctx context.Context, id uuid.UUID) (BrowserSession, error) {
	return pg.ReadOne[BrowserSession](ctx, s.db, "browser_session", "read the browser session", oneBrowserSession.With(pg.Args{"id": id}))
}

// EndedBrowserSession is a session that has been ended by its id.
type EndedBrowserSession struct {
	BrowserSession
	Hash []byte // of its token
}

// EndBrowserSession ends a session for good and records the operator. Daemons may have remembered it
// for ten seconds. The error wraps ErrNotFound if there is none.
func (s *Operations) EndBrowserSession(ctx context.Context, id uuid.UUID, by pg.OperatorAction) (EndedBrowserSession, error) {
	gone, _, err := pg.Recorded(ctx, s.db, "end_browser_session", "end the browser session", by, "",
		func(ctx context.Context, tx pgx.Tx) (EndedBrowserSession, map[string]any, error) {
			gone, err := pg.OneOf[EndedBrowserSession](ctx, tx, endBrowserSession.With(pg.Args{"id": id}))
			return gone, ofOneNamespace(map[string]any{"browser_session": id, "principal": gone.Principal}, gone.Namespaces), err
		})
	return gone, err
}

// BrowserSessionFilter selects browser sessions that have not ended.
type BrowserSessionFilter struct {
	Principal string // whose; "": of all
	OpenedBy  string // how those of the principal were opened; "": either way
	// Within are the namespaces that sessions may act in at most; nil: any.
	Within []string
	Idle   time.Duration
	Limit  int
}

// BrowserSessions lists those of a principal, or of all, newest first.
func (s *Operations) BrowserSessions(ctx context.Context, f BrowserSessionFilter) ([]BrowserSession, error) {
	args := pg.Args{"idle_ms": f.Idle.Milliseconds(), "limit": f.Limit, "within": f.Within}
	list := listAllSessions.With(args)
	switch {
	case f.OpenedBy != "":
		list = listBrowserSessions.With(args.And(pg.Args{"principal": f.Principal, "opened_by": f.OpenedBy}))
	case f.Principal != "":
		list = listSessionsOf.With(args.And(pg.Args{"principal": f.Principal}))
	}
	return pg.ReadAll[BrowserSession](ctx, s.db, "browser_sessions", "list the browser sessions", list)
}

// ofOneNamespace adds the namespace to the target of an action where there is one alone, so that its
// operators find it.
func ofOneNamespace(target map[string]any, namespaces []string) map[string]any {
	if len(namespaces) == 1 && namespaces[0] != "" && namespaces[0] != "*" {
		target["namespace"] = namespaces[0]
	}
	return target
}
