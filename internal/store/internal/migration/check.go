package migration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
)

const (
	schemaName = "tasker"
	// versionTable records the changes that programs up to version lastOfFirstRecord know, and
	// those after it that they cannot stand: such a program serves exactly the greatest version
	// in it. It is always named with its schema: what an unqualified name means depends on the
	// role.
	versionTable = schemaName + ".tasker_schema_version"
	// changeTable records the changes after that, see migration 106.
	changeTable       = schemaName + ".schema_changes"
	lastOfFirstRecord = 105
)

// CheckSchema returns an error that wraps ErrSchema unless this program can serve the
// database: its schema is the one that the program knows, or newer by changes that leave
// programs of this version at work.
func (s *Schema) CheckSchema(ctx context.Context) error {
	_, err := s.SchemaVersion(ctx)
	return err
}

// SchemaVersion is CheckSchema that returns the version of the database's schema.
func (s *Schema) SchemaVersion(ctx context.Context) (int64, error) {
	var have schemaState
	err := s.db.Call(ctx, "schema", "read the schema version", func(ctx context.Context, db *pg.Conn) (err error) {
		have, err = readState(func(query string) scanner { return db.QueryRow(ctx, query) })
		return err
	})
	if err == nil {
		err = have.refusal()
	}
	if err != nil {
		return 0, err
	}
	switch {
	case have.version < pg.SchemaVersion:
		changes, err := s.files.changes()
		if err != nil {
			return 0, fmt.Errorf("read the migrations: %w", err)
		}
		var lacks []string
		for _, c := range changes {
			if c.version > have.version {
				lacks = append(lacks, c.name)
			}
		}
		return have.version, fmt.Errorf("%w: the database has %d, this program needs %d and lacks %s: run `tasker-ctl migrate up`",
			pg.ErrSchema, have.version, pg.SchemaVersion, strings.Join(lacks, ", "))
	case have.oldest > pg.SchemaVersion:
		return have.version, fmt.Errorf("%w: the database has %d, whose change %s leaves programs from %d on at work, and this program knows only %d: use a newer program",
			pg.ErrSchema, have.version, have.by, have.oldest, pg.SchemaVersion)
	}
	return have.version, nil
}

// schemaState is what a database has of the schema.
type schemaState struct {
	version      int64 // the newest migration that has been applied; 0: none
	tasks, plans bool  // there is a table of tasks, and these have plans
	oldest       int64 // the oldest version whose programs go on working
	by           string
}

type scanner interface{ Scan(into ...any) error }

// readState reads the state with statements that bring one row each.
func readState(queryRow func(query string) scanner) (s schemaState, err error) {
	var recorded, changed bool
	err = queryRow(`select to_regclass('`+versionTable+`') is not null, to_regclass('`+changeTable+`') is not null, to_regclass('tasker.tasks') is not null,
		exists (select from pg_attribute where attrelid = to_regclass('tasker.tasks') and attname = 'plan_id')`).Scan(&recorded, &changed, &s.tasks, &s.plans)
	if err == nil && recorded {
		err = queryRow(`select coalesce(max(version_id), 0) from ` + versionTable + ` where is_applied`).Scan(&s.version)
	}
	if err == nil && changed {
		var newest int64
		err = queryRow(`select coalesce(max(version), 0), coalesce(max(oldest), 0),
			coalesce((select name from `+changeTable+` order by oldest desc, version limit 1), '') from `+changeTable).Scan(&newest, &s.oldest, &s.by)
		s.version = max(s.version, newest)
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
			"give this program a database of its own and let both run side by side until the old one is empty: see docs/use/migrating.md", pg.ErrSchema)
	}
}

// refuseFor returns an error that wraps ErrSchema if a pending migration removes what a live
// daemon may need. Daemons that gave no sign for a minute are dead.
func (m *Migrator) refuseFor(ctx context.Context, db *sql.DB, p *goose.Provider, changes []change) error {
	current, err := p.GetDBVersion(ctx)
	if err != nil || current <= lastOfFirstRecord { // the first to record what daemons know is 106
		return err
	}
	for _, c := range changes {
		if c.version <= current || c.oldest == 0 {
			continue
		}
		var old sql.NullString
		err := db.QueryRowContext(ctx, `
			select string_agg(kind || ' ' || id || ' (' || coalesce(schema_version, $2::int) || ')', ', ')
			from (select 'worker' as kind, worker_id as id, schema_version, heartbeat_at, stopped_at from tasker.workers
			      union all select 'orchestrator', processor_id, schema_version, heartbeat_at, stopped_at from tasker.processors) d
			where stopped_at is null and heartbeat_at > clock_timestamp() - interval '1 minute'
			      and coalesce(schema_version, $2::int) < $1`, c.oldest, lastOfFirstRecord).Scan(&old)
		if err != nil {
			return err
		}
		if old.Valid {
			return fmt.Errorf("%w: %s removes what programs before version %d need, and these run: %s; replace them first",
				pg.ErrSchema, c.name, c.oldest, old.String)
		}
	}
	return nil
}

// versionStore is what goose writes the versions with.
type versionStore struct {
	database.Store
	changes map[int64]change
}

// TableExists implements database.StoreExtender.
func (s versionStore) TableExists(ctx context.Context, db database.DBTxConn) (exists bool, err error) {
	return tableExists(ctx, db, s.Tablename())
}

func tableExists(ctx context.Context, db database.DBTxConn, name string) (exists bool, err error) {
	err = db.QueryRowContext(ctx, `select to_regclass($1) is not null`, name).Scan(&exists)
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

// Insert records a version where the programs read it that go by it.
func (s versionStore) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	c := s.changes[req.Version]
	if req.Version > lastOfFirstRecord {
		if _, err := db.ExecContext(ctx, `insert into `+changeTable+` (version, name, oldest) values ($1, $2, $3)`, c.version, c.name, c.oldest); err != nil {
			return err
		}
		if c.oldest <= lastOfFirstRecord { // it leaves the programs at work that read the first record
			return nil
		}
	}
	return s.Store.Insert(ctx, db, req)
}

// Delete does nothing where the tables have gone: the way back of the baseline drops them with
// the schema, that of migration 106 its own.
func (s versionStore) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	if exists, err := tableExists(ctx, db, changeTable); err != nil {
		return err
	} else if exists {
		if _, err := db.ExecContext(ctx, `delete from `+changeTable+` where version = $1`, version); err != nil {
			return err
		}
	}
	if exists, err := s.TableExists(ctx, db); err != nil || !exists {
		return err
	}
	return s.Store.Delete(ctx, db, version)
}

// GetMigration implements database.Store.
func (s versionStore) GetMigration(ctx context.Context, db database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	exists, err := tableExists(ctx, db, changeTable)
	if err != nil {
		return nil, err
	}
	if version > lastOfFirstRecord {
		found := database.GetMigrationResult{IsApplied: true}
		if !exists {
			return nil, database.ErrVersionNotFound
		}
		err := db.QueryRowContext(ctx, `select applied_at from `+changeTable+` where version = $1`, version).Scan(&found.Timestamp)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, database.ErrVersionNotFound
		}
		return &found, err
	}
	return s.Store.GetMigration(ctx, db, version)
}

// GetLatestVersion implements database.Store.
func (s versionStore) GetLatestVersion(ctx context.Context, db database.DBTxConn) (int64, error) {
	list, err := s.ListMigrations(ctx, db)
	if err != nil {
		return 0, err
	}
	latest := int64(-1)
	for _, m := range list {
		latest = max(latest, m.Version)
	}
	if latest < 0 {
		return 0, database.ErrVersionNotFound
	}
	return latest, nil
}

// ListMigrations implements database.Store: those of both tables, the newest first.
func (s versionStore) ListMigrations(ctx context.Context, db database.DBTxConn) (list []*database.ListMigrationsResult, err error) {
	exists, err := tableExists(ctx, db, changeTable)
	if err != nil {
		return nil, err
	}
	first, err := s.Store.ListMigrations(ctx, db)
	if err != nil || !exists {
		return first, err
	}
	rows, err := db.QueryContext(ctx, `select version from `+changeTable+` order by version desc`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		m := &database.ListMigrationsResult{IsApplied: true}
		if err := rows.Scan(&m.Version); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	for _, m := range first {
		if m.Version <= lastOfFirstRecord {
			list = append(list, m)
		}
	}
	return list, rows.Err()
}
