package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3/database"
)

// The table that records which migrations have been applied.
const (
	versionTable  = "tasker_schema_version"
	versionSchema = "tasker" // of new databases
)

// versions is the version table of one database. It is always named with its
// schema: what an unqualified name means depends on the role, since "$user"
// comes first in search_path, and changes for a role called tasker as soon as
// the first migration has made the schema of that name.
type versions struct {
	schema string
	newest int64 // applied; 0 for none
	exists bool
}

func (v versions) name() string { return pgx.Identifier{v.schema, versionTable}.Sanitize() }

// findVersions finds the version table. Earlier programs put it into the
// first schema of the search_path, mostly public, and it stays where it is, so
// that they still find it. A role called tasker made a second one there: the
// table that has more migrations counts.
func findVersions(ctx context.Context, db querier) (versions, error) {
	rows, err := db.Query(ctx, `select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relname = $1 and c.relkind = 'r' and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')
		order by n.nspname <> 'public', n.nspname <> $2, n.nspname`, versionTable, versionSchema)
	if err != nil {
		return versions{}, fmt.Errorf("look for the version table: %w", err)
	}
	schemas, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return versions{}, fmt.Errorf("look for the version table: %w", err)
	}
	found := versions{schema: versionSchema}
	for _, schema := range schemas {
		v := versions{schema: schema, exists: true}
		rows, err := db.Query(ctx, `select coalesce(max(version_id), 0) from `+v.name()+` where is_applied`)
		if err != nil {
			return versions{}, fmt.Errorf("read the version table in schema %s: %w", schema, err)
		}
		if v.newest, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64]); err != nil {
			return versions{}, fmt.Errorf("read the version table in schema %s: %w", schema, err)
		}
		if !found.exists || v.newest > found.newest {
			found = v
		}
	}
	if found.newest > 0 {
		return found, nil
	}
	return found, refuseOtherTasker(ctx, db)
}

// refuseOtherTasker returns an error that wraps ErrSchema where the schema tasker
// is that of the Tasker in Rust: its tasks have a named task where ours have a
// plan.
func refuseOtherTasker(ctx context.Context, db querier) error {
	rows, err := db.Query(ctx, `select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = $1 and c.relname = 'tasks'
		  and not exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'plan_id'))`, versionSchema)
	if err != nil {
		return fmt.Errorf("look for another Tasker: %w", err)
	}
	other, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	if err != nil {
		return fmt.Errorf("look for another Tasker: %w", err)
	}
	if other {
		return fmt.Errorf("%w: the schema tasker of this database belongs to another Tasker (it has tables that this program did not make); "+
			"give this program a database of its own and let both run side by side until the old one is empty: see docs/migrating.md", ErrSchema)
	}
	return nil
}

// findVersionsOf is findVersions for database/sql.
func findVersionsOf(ctx context.Context, db *sql.DB) (found versions, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return versions{}, err
	}
	defer func() { _ = conn.Close() }()
	err = conn.Raw(func(driver any) error {
		own, ok := driver.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("look for the version table: invalid connection %T: want one of pgx", driver)
		}
		found, err = findVersions(ctx, own.Conn())
		return err
	})
	return found, err
}

// versionStore is what goose writes the versions with.
type versionStore struct {
	database.Store
}

func newVersionStore(v versions) (versionStore, error) {
	s, err := database.NewStore(database.DialectPostgres, v.name())
	return versionStore{s}, err
}

// TableExists implements database.StoreExtender.
func (s versionStore) TableExists(ctx context.Context, db database.DBTxConn) (exists bool, err error) {
	err = db.QueryRowContext(ctx, `select to_regclass($1) is not null`, s.Tablename()).Scan(&exists)
	return exists, err
}

// CreateVersionTable makes the schema as well, which the first migration finds
// then. A role that may not create schemas gets by if the schema exists.
func (s versionStore) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	var exists bool
	if err := db.QueryRowContext(ctx, `select to_regnamespace($1) is not null`, versionSchema).Scan(&exists); err != nil {
		return err
	}
	if !exists {
		if _, err := db.ExecContext(ctx, `create schema `+versionSchema); err != nil {
			return err
		}
	}
	return s.Store.CreateVersionTable(ctx, db)
}

// Delete does nothing where the table has gone with the schema: that is what
// the way back of the first migration drops.
func (s versionStore) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	if exists, err := s.TableExists(ctx, db); err != nil || !exists {
		return err
	}
	return s.Store.Delete(ctx, db, version)
}
