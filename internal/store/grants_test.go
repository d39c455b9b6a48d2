package store_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

// newRole makes a role that may connect and returns its name and its URL of the database.
func newRole(t *testing.T, db *pgtest.DB, kind string) (name, dsn string) {
	t.Helper()
	name = kind + "_" + strings.ReplaceAll(uuid.NewString()[:8], "-", "")
	db.Exec(t, `create role `+name+` login password '`+name+`'`)
	db.Exec(t, `grant connect on database `+db.Name+` to `+name)
	t.Cleanup(func() {
		db.Exec(t, `drop owned by `+name+` cascade`)
		db.Exec(t, `drop role `+name)
	})
	u, err := url.Parse(db.TCPDSN)
	require.NoError(t, err)
	u.User = url.UserPassword(name, name)
	return name, u.String()
}

// closed returns a database in which nothing is allowed to the public, that of another owner.
func closed(t *testing.T) (db *pgtest.DB, owner string) {
	t.Helper()
	db = pgtest.New(t)
	db.Exec(t, `revoke all on database `+db.Name+` from public`)
	db.Exec(t, `revoke all on schema public from public`)
	return newOwner(t, db)
}

func newOwner(t *testing.T, db *pgtest.DB) (*pgtest.DB, string) {
	t.Helper()
	name, dsn := newRole(t, db, "owner")
	db.Exec(t, `grant create on database `+db.Name+` to `+name)
	require.NoError(t, migrate(t.Context(), dsn))
	db.Exec(t, `revoke create on database `+db.Name+` from `+name)
	return db, dsn
}

func execAs(t *testing.T, dsn string, statements ...string) error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			return err
		}
	}
	return nil
}

func grants(t *testing.T, role string) []string {
	t.Helper()
	statements, err := store.Grants(role)
	require.NoError(t, err)
	return statements
}

// TestARoleThatOwnsNothingDoesTheWorkOfADaemon has the documented grants and nothing more, in a
// database of another role that is closed to the public.
func TestARoleThatOwnsNothingDoesTheWorkOfADaemon(t *testing.T) {
	t.Parallel()
	db, owner := closed(t)
	app, dsn := newRole(t, db, "app")
	require.NoError(t, execAs(t, owner, grants(t, app)...))

	s, err := store.Open(t.Context(), store.Options{URL: dsn, MaxConns: 4, HoldTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.CheckGrants(t.Context()))
	require.NoError(t, s.CheckSchema(t.Context()))
	require.NoError(t, migrate(t.Context(), dsn), "nothing is pending")

	p := plan(t, s, diamondYAML)
	create(t, s, p, 3)
	for range 3 {
		for _, c := range claim(t, s, p, 100) {
			require.Equal(t, []bool{true}, report(t, s, succeed(c, `{}`)))
		}
		applyAll(t, s)
	}
	require.Equal(t, 12, db.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 1`))

	// The partitions of days come and go, and belong to the owner.
	db.Exec(t, `drop table tasker.tasks_`+dayName(-6))
	_, err = s.EnsurePartitions(t.Context(), 7)
	require.NoError(t, err)
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from pg_class c join pg_class p on p.oid = 'tasker.tasks'::regclass
		where c.relname = $1 and c.relowner = p.relowner`, "tasks_"+dayName(-6)))
	for _, table := range []string{"tasks", "step_attempts", "task_events", "domain_events"} {
		createDay(t, db, table, 20)
		db.Exec(t, `alter table tasker.`+table+`_`+dayName(20)+` owner to `+db.QueryString(t, `select relowner::regrole::text from pg_class where oid = 'tasker.tasks'::regclass`))
	}
	l := &ledger{Store: s, t: t, db: db, plan: p}
	l.ended(1, dayStart(20), dayStart(20))
	limits := weekLimits
	limits.EventTTL = week
	require.Equal(t, []string{dayName(20)}, l.all(limits, false).Days)
	require.Zero(t, db.QueryInt(t, `select count(*) from pg_class where relname like '%'||$1`, dayName(20)))

	for _, more := range []string{`create table tasker.mine ()`, `create schema mine`, `create table public.mine ()`, `drop table tasker.board`, `truncate tasker.board`,
		`alter table tasker.board add column mine int`, `drop table tasker.tasks_default`, `create role mine`} {
		require.Error(t, execAs(t, dsn, more), more)
	}
}

// TestMigrationsExtendTheGrants: what the owner makes later is granted by itself.
func TestMigrationsExtendTheGrants(t *testing.T) {
	t.Parallel()
	db, owner := closed(t)
	m, err := store.NewMigrator(owner)
	require.NoError(t, err)
	for range 3 {
		_, err = m.Down(t.Context())
		require.NoError(t, err)
	}
	app, dsn := newRole(t, db, "app")
	require.NoError(t, execAs(t, owner, grants(t, app)...))
	err = migrate(t.Context(), dsn)
	require.ErrorContains(t, err, "(role "+app+", database "+db.Name+"): the first migration needs `grant create on database`, all others the role that owns the schema tasker")
	require.NoError(t, migrate(t.Context(), owner))
	s, err := store.Open(t.Context(), store.Options{URL: dsn, MaxConns: 2})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.CheckGrants(t.Context()))
	require.NoError(t, s.CheckSchema(t.Context()))
}

// TestWhatARoleLacksIsNamed also before a statement fails for it.
func TestWhatARoleLacksIsNamed(t *testing.T) {
	t.Parallel()
	db, owner := closed(t)
	app, dsn := newRole(t, db, "app")
	check := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s, err := store.Open(ctx, store.Options{URL: dsn, MaxConns: 1})
		if err != nil {
			return err
		}
		defer s.Close()
		return s.CheckGrants(ctx)
	}
	err := check()
	for _, lacks := range []string{"the role " + app + " lacks usage on schema tasker; ", "select, insert, update, delete on table tasker.board; ",
		"select on table tasker.schema_changes; ", "usage, update on sequence tasker.claim_token; ", "execute on function tasker.ack_events(",
		"the rights of the owner (security definer) on function tasker.drop_event_day; ", ": the owner of the schema executes what `tasker-ctl migrate grants " + app + "` prints"} {
		require.ErrorContains(t, err, lacks)
	}
	require.NoError(t, execAs(t, owner, grants(t, app)...))
	require.NoError(t, check())
	for revoke, lacks := range map[string]string{
		`revoke usage on schema tasker from ` + app:                            "usage on schema tasker",
		`revoke insert, delete on tasker.board from ` + app:                    "insert, delete on table tasker.board",
		`revoke update on sequence tasker.following from ` + app:               "update on sequence tasker.following",
		`revoke execute on function tasker.ensure_partitions(int) from ` + app: "execute on function tasker.ensure_partitions(days_ahead integer)",
		`alter function tasker.ensure_partitions(int) security invoker`:        "the rights of the owner (security definer) on function tasker.ensure_partitions",
	} {
		require.NoError(t, execAs(t, owner, revoke))
		require.ErrorContains(t, check(), "the role "+app+" lacks "+lacks+": the owner")
		require.NoError(t, execAs(t, owner, grants(t, app)...))
	}
	_, err = store.Grants("")
	require.EqualError(t, err, `invalid role "": want the name of a role`)
	statements, err := store.Grants(`a"b`)
	require.NoError(t, err)
	require.Equal(t, `grant usage on schema tasker to "a""b"`, statements[0])
}
