package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

// A database of the Tasker in Rust is not touched.
func TestADatabaseOfAnotherTasker(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, `create schema tasker`)
	db.Exec(t, `create table tasker.named_tasks (named_task_uuid uuid primary key)`)
	db.Exec(t, `create table tasker.tasks (task_uuid uuid primary key, named_task_uuid uuid not null, identity_hash text not null unique)`)
	m, err := store.NewMigrator(db.DSN)
	require.NoError(t, err)
	_, err = m.Up(t.Context())
	require.ErrorIs(t, err, store.ErrSchema)
	require.ErrorContains(t, err, "belongs to another Tasker")
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 2})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	err = s.CheckSchema(t.Context())
	require.ErrorIs(t, err, store.ErrSchema)
	require.ErrorContains(t, err, "give this program a database of its own")
	require.Equal(t, 2, db.QueryInt(t, `select count(*)::int from pg_tables where schemaname = 'tasker'`), "nothing was created")
}
