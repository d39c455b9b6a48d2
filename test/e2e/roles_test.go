package e2e

import (
	"context"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/test/fleet"
)

// as returns the URL of a database for a role whose password is its name.
func as(t *testing.T, db *pgtest.DB, role string) string {
	t.Helper()
	u, err := url.Parse(db.TCPDSN)
	require.NoError(t, err)
	u.User = url.UserPassword(role, role)
	return u.String()
}

// execAs executes statements as the role of a URL.
func execAs(t *testing.T, dsn string, statements []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	for _, s := range statements {
		_, err := conn.Exec(t.Context(), s)
		require.NoError(t, err, s)
	}
	require.NoError(t, conn.Close(t.Context()))
}

// TestRoles starts a fleet twice as each of the roles that docs/operate/operations.md documents,
// created with the statements shown there. The server is private: roles belong to the
// whole server.
func TestRoles(t *testing.T) {
	const (
		login   = "create role app login password '…';"
		own     = "alter database shop owner to app;"
		grant   = "grant connect, create on database shop to app;"
		revoke  = "revoke create on database shop from app;"
		replica = "alter role app replication;"
		// Of two roles, one that migrates and one of daemons.
		connect = "grant connect on database shop to app;"
		publish = "create publication tasker_signals;"
	)
	page, err := os.ReadFile("../../docs/operate/operations.md")
	require.NoError(t, err)
	for _, statement := range []string{login, own, grant, revoke, replica, connect, publish, "tasker-ctl migrate grants app"} {
		require.Contains(t, string(page), statement)
	}
	server := pgtest.Private(t, map[string]string{"max_connections": "400"}) // for the fleets of all roles at once
	for _, c := range []struct {
		role, source  string
		create, after []string // after the first start
		owner         []string // creates a role that migrates, so that the other one owns nothing
	}{
		{"tasker", "notify", []string{login, own}, nil, nil},
		{"plain", "notify", []string{login, grant}, []string{revoke}, nil},
		{"listening", "wal", []string{login, grant, replica}, []string{revoke}, nil},
		{"guest", "notify", []string{login, connect}, nil, []string{login, grant}},
		{"guest_listening", "wal", []string{login, connect, replica}, nil, []string{login, grant}},
	} {
		t.Run(c.role, func(t *testing.T) {
			if c.role != "plain" && c.role != "listening" {
				needs.All(t, "the other roles")
			}
			t.Parallel()
			db := server.New(t)
			execFor := func(role string, statements []string) {
				for _, s := range statements {
					db.Exec(t, strings.NewReplacer("app", role, "shop", db.Name, "…", role).Replace(s))
				}
			}
			exec := func(statements []string) { execFor(c.role, statements) }
			exec([]string{"revoke all on database shop from public", "revoke all on schema public from public"})
			exec(c.create)
			if c.owner != nil {
				owner := c.role + "_owner"
				execFor(owner, c.owner)
				m, err := store.NewMigrator(as(t, db, owner))
				require.NoError(t, err)
				_, err = m.Up(t.Context())
				require.NoError(t, err)
				grants, err := store.Grants(c.role)
				require.NoError(t, err)
				execAs(t, as(t, db, owner), append(grants, publish))
				execFor(owner, []string{revoke})
			}
			dsn := as(t, db, c.role)
			for start := range 2 {
				r := newFleet(t, db)
				for _, kind := range []fleet.Kind{fleet.Orchestrator, fleet.Worker} {
					p, err := fleet.Start(fleet.Options{Kind: kind, BinDir: binDir, WorkDir: r.dir, Name: string(kind),
						DatabaseURL: dsn, Mode: "Hybrid", EventSource: c.source})
					require.NoError(t, err)
					r.all = append(r.all, p)
				}
				r.clients = append(r.clients, client.New(client.Config{BaseURL: r.all[0].URL, Timeout: 30 * time.Second}))
				r.ready()
				for _, id := range submit(t, r, 20, c.role+string(rune('a'+start))) {
					require.Equal(t, "complete", r.wait(id, time.Minute).Status)
				}
				for _, p := range r.all {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					require.NoError(t, p.Stop(ctx))
					cancel()
					require.Zero(t, p.ExitCode(), p.Log())
					require.NotContains(t, p.Log(), "permission denied")
					require.NotContains(t, p.Log(), "must be owner")
				}
				r.clean()
				exec(c.after)
			}
		})
	}
}
