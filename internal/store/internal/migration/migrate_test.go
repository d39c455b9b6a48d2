package migration

import (
	"io/fs"
	"os"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
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
		changes, err := Files{Baseline: baseline(t), Migrations: files}.changes()
		require.NoError(t, err)
		p, err := provider(db, changes)
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
	changes, err := Files{Baseline: baseline(t), Migrations: os.DirFS("../..")}.changes()
	require.NoError(t, err)
	require.Equal(t, int64(pg.SchemaVersion), changes[len(changes)-1].version)
	p, err := provider(db, changes)
	require.NoError(t, err)
	for _, source := range p.ListSources() {
		require.GreaterOrEqual(t, source.Version, int64(BaselineVersion))
	}
}

// TestContractWaitsForOldPrograms: a change that takes something away is refused while programs
// run that need it, names them, and is then recorded where the oldest programs read it.
func TestContractWaitsForOldPrograms(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	files := fstest.MapFS{"migrations/00900_contract.sql": {Data: []byte("-- Takes away what fills the column.\n" +
		"-- contract 106: programs fill the column themselves\n-- +goose Up\ndrop trigger fill_failed_plan on tasker.step_attempts;\n-- +goose Down\nselect 1;\n")}}
	names, err := fs.Glob(os.DirFS("../.."), "migrations/*.sql")
	require.NoError(t, err)
	for _, name := range names {
		text, err := os.ReadFile("../../" + name)
		require.NoError(t, err)
		files[name] = &fstest.MapFile{Data: text}
	}
	now, err := Files{Baseline: baseline(t), Migrations: os.DirFS("../..")}.Migrator(db.DSN, nil)
	require.NoError(t, err)
	_, err = now.Up(t.Context())
	require.NoError(t, err)
	later, err := Files{Baseline: baseline(t), Migrations: files}.Migrator(db.DSN, nil)
	require.NoError(t, err)

	db.Exec(t, `insert into tasker.workers (worker_uuid, worker_id, hostname, version, mode, namespaces, schema_version) values
		(gen_random_uuid(), 'old', 'h', '1', 'Hybrid', '{}', null), (gen_random_uuid(), 'new', 'h', '2', 'Hybrid', '{}', 106)`)
	pending, refusal, err := later.Plan(t.Context())
	require.NoError(t, err)
	require.Len(t, pending, 1)
	require.Equal(t, int64(106), pending[0].Oldest)
	require.Equal(t, "Takes away what fills the column.", pending[0].Summary)
	require.ErrorContains(t, refusal, "00900_contract.sql removes what programs before version 106 need, and these run: worker old (105)")
	_, err = later.Up(t.Context())
	require.ErrorIs(t, err, pg.ErrSchema)

	db.Exec(t, `update tasker.workers set heartbeat_at = now() - interval '2 minutes' where worker_id = 'old'`)
	applied, err := later.Up(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{900}, applied)
	require.Equal(t, 900, db.QueryInt(t, `select max(version_id) from tasker.tasker_schema_version`), "programs of version 105 refuse it")
	version, err := later.Down(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(900), version)
	require.Equal(t, 105, db.QueryInt(t, `select max(version_id) from tasker.tasker_schema_version`))
}

func TestReadChange(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"create table tasker.a ();":                                 "want a line `-- +goose Up`",
		"-- contract: gone\n-- +goose Up\ndrop table tasker.a;":     "invalid line `-- contract",
		"-- contract 900: gone\n-- +goose Up\ndrop table tasker.a;": "invalid line `-- contract",
	} {
		_, err := readChange("00900_x.sql", text)
		require.ErrorContains(t, err, want, text)
	}
	c, err := readChange("00900_x.sql", "-- One\n-- two.\n-- +goose Up\na;\n-- +online backfill\nb;\n-- why\n-- +online index i\n-- c\nt (x)\n-- +goose Down\nd;")
	require.NoError(t, err)
	require.Equal(t, "One two.", c.summary)
	require.Equal(t, []string{"\na;\n", "\nd;"}, []string{c.up, c.down})
	require.Equal(t, []section{{text: "\nb;\n-- why\n"}, {index: "i", text: "t (x)"}}, c.online)
}
