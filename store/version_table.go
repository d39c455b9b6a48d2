package store

import (
	"context"
	"fmt"

	"github.com/pressly/goose/v3/database"
)

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
	case s.version >= baselineVersion || s.version == 0 && !s.tasks:
		return nil
	case s.version > 0 || s.plans:
		return fmt.Errorf("%w: the schema tasker of this database was made by a development build and cannot be upgraded: "+
			"drop schema tasker (its tasks are lost) or use a new database, then migrate again", ErrSchema)
	default:
		return fmt.Errorf("%w: the schema tasker of this database belongs to another Tasker (it has tables that this program did not make); "+
			"give this program a database of its own and let both run side by side until the old one is empty: see docs/migrating.md", ErrSchema)
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
