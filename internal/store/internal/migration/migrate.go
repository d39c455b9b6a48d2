package migration

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
)

// BaselineVersion is the migration that schema.sql is; its first line names it.
const BaselineVersion = 100

// Files are the text of the schema.
type Files struct {
	Baseline   string // schema.sql
	Migrations fs.FS  // the folder migrations, with those after the baseline
}

// Schema is the schema of a database.
type Schema struct {
	db    *pg.DB
	files Files
}

// New returns the room.
func New(db *pg.DB, files Files) *Schema { return &Schema{db, files} }

// Status is one migration and whether it has been applied.
type Status struct {
	Version   int64
	Name      string
	Applied   bool
	AppliedAt time.Time
}

// Migrator changes the schema. It uses one connection of its own, opened for
// each call, because a pool in transaction mode cannot hold the session-level
// advisory lock under which migrations run.
type Migrator struct {
	config *pgxpool.Config
	files  Files
}

// migrationHold is how long the server waits for a migration between two
// statements, before it ends its transaction.
const migrationHold = 30 * time.Second

// Migrator reads the direct (not pooled) database URL, or connects like a pool that reaches
// the server directly. Settings of a pool in the URL are checked and have no effect; sent
// to the server, they would be refused.
func (f Files) Migrator(url string, like *pg.PoolConfig) (*Migrator, error) {
	cfg, err := pg.Connecting(url, like)
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = "tasker-migrate"
	// A migration that stops between two statements must not keep its locks.
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = strconv.FormatInt(migrationHold.Milliseconds(), 10)
	return &Migrator{config: cfg, files: f}, nil
}

// Up applies what is missing and returns the versions applied. Several
// daemons may call it at once; one works, the others wait and find it done.
func (m *Migrator) Up(ctx context.Context) ([]int64, error) {
	var done []int64
	err := m.with(ctx, func(p *goose.Provider) error {
		results, err := p.Up(ctx)
		for _, r := range results {
			done = append(done, r.Source.Version)
		}
		return err
	})
	return done, err
}

// Down takes back the newest migration and returns its version. The way back of
// the baseline drops everything.
func (m *Migrator) Down(ctx context.Context) (int64, error) {
	var version int64
	err := m.with(ctx, func(p *goose.Provider) error {
		r, err := p.Down(ctx)
		if r != nil {
			version = r.Source.Version
		}
		return err
	})
	return version, err
}

// Status lists all migrations in order.
func (m *Migrator) Status(ctx context.Context) ([]Status, error) {
	var list []Status
	err := m.with(ctx, func(p *goose.Provider) error {
		states, err := p.Status(ctx)
		for _, s := range states {
			list = append(list, Status{
				Version: s.Source.Version, Name: cmp.Or(s.Source.Path, "schema.sql"),
				Applied: s.State == goose.StateApplied, AppliedAt: s.AppliedAt,
			})
		}
		return err
	})
	return list, err
}

func (m *Migrator) with(ctx context.Context, fn func(*goose.Provider) error) error {
	var hooks []stdlib.OptionOpenDB
	if before := m.config.BeforeConnect; before != nil {
		hooks = append(hooks, stdlib.OptionBeforeConnect(before))
	}
	if after := m.config.AfterConnect; after != nil {
		hooks = append(hooks, stdlib.OptionAfterConnect(after))
	}
	db := stdlib.OpenDB(*m.config.ConnConfig, hooks...)
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(2) // one holds the lock, one works
	have, err := readState(func(query string) scanner { return db.QueryRowContext(ctx, query) })
	if err != nil {
		return pg.Classify("reach the database to migrate it", err)
	}
	if err := have.refusal(); err != nil {
		return fmt.Errorf("migrate the schema: %w", err)
	}
	p, err := m.files.provider(db)
	if err != nil {
		return fmt.Errorf("prepare the migrations: %w", err)
	}
	if err := fn(p); err != nil {
		return pg.Classify("migrate the schema", err)
	}
	return nil
}

func (f Files) provider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(f.Migrations, "migrations")
	if err != nil {
		return nil, err
	}
	// Those who come second look every second, for five minutes.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, err
	}
	applied, err := database.NewStore(database.DialectPostgres, versionTable)
	if err != nil {
		return nil, err
	}
	base := goose.NewGoMigration(BaselineVersion, executing(f.Baseline), executing(`drop schema `+schemaName+` cascade`))
	// The program that this engine is part of may have registered migrations of its own.
	return goose.NewProvider("", db, files, goose.WithSessionLocker(locker), goose.WithStore(versionStore{applied}),
		goose.WithGoMigrations(base), goose.WithDisableGlobalRegistry(true))
}

// executing is one way of a migration.
func executing(statements string) *goose.GoFunc {
	return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statements)
		return err
	}}
}

// Version is the newest migration of the files.
func (f Files) Version() (int64, error) {
	names, err := fs.Glob(f.Migrations, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	newest := int64(BaselineVersion)
	for _, name := range names {
		v, err := goose.NumericComponent(name)
		if err != nil {
			return 0, err
		}
		newest = max(newest, v)
	}
	return newest, nil
}

// Hash identifies the text of the baseline and of all migrations.
func (f Files) Hash() (string, error) {
	h := sha256.New()
	h.Write([]byte(f.Baseline))
	err := fs.WalkDir(f.Migrations, "migrations", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(f.Migrations, path)
		h.Write(text)
		return err
	})
	return hex.EncodeToString(h.Sum(nil))[:16], err
}

// CheckSchema returns an error that wraps ErrSchema unless the database has
// exactly the schema this program knows.
func (s *Schema) CheckSchema(ctx context.Context) error {
	want, err := s.files.Version()
	if err != nil {
		return fmt.Errorf("list the migrations: %w", err)
	}
	var have schemaState
	err = s.db.Call(ctx, "schema", "read the schema version", func(ctx context.Context, db *pg.Conn) (err error) {
		have, err = readState(func(query string) scanner { return db.QueryRow(ctx, query) })
		return err
	})
	if err != nil {
		return err
	}
	switch refusal := have.refusal(); {
	case refusal != nil:
		return refusal
	case have.version < want:
		return fmt.Errorf("%w: the database has %d, this program needs %d: run `tasker-ctl migrate up`", pg.ErrSchema, have.version, want)
	case have.version > want:
		return fmt.Errorf("%w: the database has %d, this program knows only %d: use a newer program", pg.ErrSchema, have.version, want)
	}
	return nil
}

const (
	schemaName = "tasker"
	// versionTable records which migrations have been applied. It is always named
	// with its schema: what an unqualified name means depends on the role.
	versionTable = schemaName + ".tasker_schema_version"
)

// schemaState is what a database has of the schema.
type schemaState struct {
	version      int64 // the newest migration that has been applied; 0: none
	tasks, plans bool  // there is a table of tasks, and these have plans
}

type scanner interface{ Scan(into ...any) error }

// readState reads the state with statements that bring one row each.
func readState(queryRow func(query string) scanner) (s schemaState, err error) {
	var recorded bool
	err = queryRow(`select to_regclass('`+versionTable+`') is not null, to_regclass('tasker.tasks') is not null,
		exists (select from pg_attribute where attrelid = to_regclass('tasker.tasks') and attname = 'plan_id')`).Scan(&recorded, &s.tasks, &s.plans)
	if err == nil && recorded {
		err = queryRow(`select coalesce(max(version_id), 0) from ` + versionTable + ` where is_applied`).Scan(&s.version)
	}
	return s, err
}

// refusal is an error that wraps ErrSchema where the baseline did not make the
// schema tasker: that of a build from before it, or of the Tasker in Rust, whose
// tasks have no plan.
func (s schemaState) refusal() error {
	switch {
	case s.version >= BaselineVersion || s.version == 0 && !s.tasks:
		return nil
	case s.version > 0 || s.plans:
		return fmt.Errorf("%w: the schema tasker of this database was made by a development build and cannot be upgraded: "+
			"drop schema tasker (its tasks are lost) or use a new database, then migrate again", pg.ErrSchema)
	default:
		return fmt.Errorf("%w: the schema tasker of this database belongs to another Tasker (it has tables that this program did not make); "+
			"give this program a database of its own and let both run side by side until the old one is empty: see docs/migrating.md", pg.ErrSchema)
	}
}

// versionStore is what goose writes the versions with.
type versionStore struct {
	database.Store
}

// TableExists implements database.StoreExtender.
func (s versionStore) TableExists(ctx context.Context, db database.DBTxConn) (exists bool, err error) {
	err = db.QueryRowContext(ctx, `select to_regclass($1) is not null`, s.Tablename()).Scan(&exists)
	return exists, err
}

// CreateVersionTable makes the schema as well, where the baseline puts its
// objects. A role that may not create schemas gets by if the schema exists.
func (s versionStore) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	var exists bool
	if err := db.QueryRowContext(ctx, `select to_regnamespace($1) is not null`, schemaName).Scan(&exists); err != nil {
		return err
	}
	if !exists {
		if _, err := db.ExecContext(ctx, `create schema `+schemaName); err != nil {
			return err
		}
	}
	return s.Store.CreateVersionTable(ctx, db)
}

// Delete does nothing where the table has gone with the schema: that is what
// the way back of the baseline drops.
func (s versionStore) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	if exists, err := s.TableExists(ctx, db); err != nil || !exists {
		return err
	}
	return s.Store.Delete(ctx, db, version)
}
