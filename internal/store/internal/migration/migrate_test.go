package migration

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func baseline(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../schema.sql")
	require.NoError(t, err)
	return string(text)
}

// TestNumberedMigrationsFollowTheBaseline: forward and back, in the order of their
// numbers. The way back of the baseline leaves nothing behind.
func TestNumberedMigrationsFollowTheBaseline(t *testing.T) {
	t.Parallel()
	test := pgtest.New(t)
	cfg, err := pgx.ParseConfig(test.DSN)
	require.NoError(t, err)
	db := stdlib.OpenDB(*cfg)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	files := fstest.MapFS{"migrations/00101_words.sql": {Data: []byte(`
-- +goose Up
alter table tasker.schedules add column owner text not null default '';
-- +goose Down
alter table tasker.schedules drop column owner;
`)}}
	owners := func() int {
		return test.QueryInt(t, `select count(*)::int from pg_attribute where attrelid = to_regclass('tasker.schedules') and attname = 'owner'`)
	}
	for range 2 {
		p, err := Files{Baseline: baseline(t), Migrations: files}.provider(db)
		require.NoError(t, err)
		applied, err := p.Up(t.Context())
		require.NoError(t, err)
		require.Len(t, applied, 2)
		require.Equal(t, []int64{BaselineVersion, 101}, []int64{applied[0].Source.Version, applied[1].Source.Version})
		require.Equal(t, 1, owners())
		back, err := p.Down(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(101), back.Source.Version)
		require.Zero(t, owners())
		back, err = p.Down(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(BaselineVersion), back.Source.Version)
		require.Zero(t, test.QueryInt(t, `select count(*)::int from pg_namespace where nspname = 'tasker'`))
	}
}

// TestMigrationsOfTheHostProgram: a program that the engine is part of may have
// registered migrations with goose, which are none of the engine's.
func TestMigrationsOfTheHostProgram(t *testing.T) {
	require.NoError(t, goose.SetGlobalMigrations(goose.NewGoMigration(7, nil, nil)))
	t.Cleanup(goose.ResetGlobalMigrations)
	cfg, err := pgx.ParseConfig("postgres://localhost/none")
	require.NoError(t, err)
	db := stdlib.OpenDB(*cfg) // never connects
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	p, err := Files{baseline(t), os.DirFS("../..")}.provider(db)
	require.NoError(t, err)
	for _, source := range p.ListSources() {
		require.GreaterOrEqual(t, source.Version, int64(BaselineVersion))
	}
}
