package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Migrate brings the database of dsn to the schema under test. It must have closed its
// connections when it returns.
type Migrate func(ctx context.Context, dsn string) error

// NewMigrated returns a database with the schema that migrate makes, dropped
// when the test ends. The schema is built once per server and name and copied
// from then on, across packages and runs of a day; so name must change whenever the
// schema does: put a hash of the schema into it.
func NewMigrated(t testing.TB, name string, migrate Migrate) *DB {
	t.Helper()
	return mustAcquire(t).newMigrated(t, name, migrate)
}

func (s *server) newMigrated(t testing.TB, name string, migrate Migrate) *DB {
	t.Helper()
	template, err := s.template(t.Context(), name, migrate)
	if err != nil {
		t.Fatalf("prepare template %q: %v", name, err)
	}
	return s.newDB(t, template)
}

// templateKey tells templates apart: by their names, and by the day (UTC), since a schema may
// have tables for the days around that of its migration.
func templateKey(name string, at time.Time) [sha256.Size]byte {
	return sha256.Sum256([]byte(name + "\x00" + at.UTC().Format(time.DateOnly)))
}

// template returns the template database for a name, building it if necessary. It is
// complete as soon as it has its final name.
func (s *server) template(ctx context.Context, name string, migrate Migrate) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	conn, err := s.connect(ctx)
	if err != nil {
		return "", err
	}
	sum := templateKey(name, time.Now())
	final := "tmpl_" + hex.EncodeToString(sum[:12])
	if ok, err := databaseExists(ctx, conn, final); ok || err != nil {
		s.release(conn)
		return final, err
	}
	// Closing the connection releases the advisory lock.
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	key := int64(binary.BigEndian.Uint64(sum[:8])) // any 64 bits will do
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, key); err != nil {
		return "", fmt.Errorf("wait for the template's lock: %w", err)
	}
	if ok, err := databaseExists(ctx, conn, final); ok || err != nil {
		return final, err
	}
	return final, s.buildTemplate(ctx, conn, final, migrate)
}

func (s *server) buildTemplate(ctx context.Context, conn *pgx.Conn, final string, migrate Migrate) error {
	building := final + "_building"
	if err := s.drop(ctx, building); err != nil { // of a run that was killed
		return fmt.Errorf("drop a half-built template: %w", err)
	}
	if err := s.create(ctx, building, ""); err != nil {
		return fmt.Errorf("create the template: %w", err)
	}
	if err := migrate(ctx, s.dsn(building)); err != nil {
		return errors.Join(fmt.Errorf("migrate: %w", err), s.drop(ctx, building))
	}
	// Statistics and visibility made once here save autovacuum the work in every copy.
	if err := s.vacuum(ctx, building); err != nil {
		return err
	}
	// No connections from now on, or copying it would have to wait. A session that is just
	// ending is waited for.
	const closed = `UPDATE pg_database SET datallowconn = false WHERE datname = $1`
	if _, err := conn.Exec(ctx, closed, building); err != nil {
		// Not a superuser (an external server): it works without, too.
		if !isCode(err, "42501") {
			return fmt.Errorf("close the template: %w", err)
		}
	}
	err := retry(ctx, func() error {
		_, err := conn.Exec(ctx, "ALTER DATABASE "+quote(building)+" RENAME TO "+quote(final))
		return err
	}, "55006")
	if err != nil {
		return fmt.Errorf("finish the template (does the migration close its connections?): %w", err)
	}
	return nil
}

func (s *server) vacuum(ctx context.Context, database string) error {
	conn, err := pgx.Connect(ctx, s.dsn(database))
	if err != nil {
		return fmt.Errorf("connect to the template: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "VACUUM (FREEZE, ANALYZE)"); err != nil {
		return fmt.Errorf("vacuum the template: %w", err)
	}
	return nil
}

func databaseExists(ctx context.Context, conn *pgx.Conn, name string) (exists bool, err error) {
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&exists)
	if err != nil {
		return false, fmt.Errorf("look for database %s: %w", name, err)
	}
	return exists, nil
}
