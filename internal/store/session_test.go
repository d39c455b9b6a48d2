package store_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/store"
)

// The check of sessions leaves nothing behind, and says what a pooler does that ignores the
// parameters of a connection.
func TestSessionsAreChecked(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	for name, o := range map[string]store.Options{"prepared": {URL: db.DSN, MaxConns: 2}, "not prepared": {URL: db.DSN, MaxConns: 2, NoPreparedStatements: true}} {
		s, err := store.Open(t.Context(), o)
		require.NoError(t, err, name)
		for range 2 {
			require.NoError(t, s.CheckSession(t.Context()), name)
		}
		s.Close()
	}
	require.Equal(t, "0", db.QueryString(t, `select ((select count(*) from tasker.workers) + (select count(*) from tasker.task_identities))::text`))

	like, err := pgxpool.ParseConfig(db.DSN)
	require.NoError(t, err)
	like.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `set plan_cache_mode = auto`)
		return err
	}
	s, err := store.Open(t.Context(), store.Options{Like: like, MaxConns: 2})
	require.NoError(t, err)
	defer s.Close()
	err = s.CheckSession(t.Context())
	require.ErrorContains(t, err, "the session lacks the parameters of its connection")
	require.ErrorContains(t, err, "set common.database.prepared_statements = false")
	require.NotErrorIs(t, err, store.ErrUnavailable)

	for _, mode := range []string{"exec", "simple_protocol"} {
		require.ErrorContains(t, store.Options{URL: "postgres://h/db?default_query_exec_mode=" + mode}.Check(), `invalid default_query_exec_mode "`+mode+`"`)
	}
}
