package migration

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
)

// BaselineVersion is the migration that schema.sql is; its first line names it.
const BaselineVersion = 100

// Files are the text of the schema.
type Files struct {
	Baseline   string // schema.sql
	Migrations fs.FS  // the folder migrations, with those after the baseline
	Objects    string // what they make, see Migrator.Objects; a line each
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
	// Summary says what it is for. Online lists what it does outside its transaction.
	Summary string
	Online  []string
	// Oldest is the oldest version whose programs go on working after a change that takes
	// something away; 0: it only adds.
	Oldest int64
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
	cfg.ConnConfig.RuntimeParams["statement_timeout"] = "0" // building an index takes its time
	// A migration that stops between two statements must not keep its locks.
	cfg.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = strconv.FormatInt(migrationHold.Milliseconds(), 10)
	return &Migrator{config: cfg, files: f}, nil
}

// tries bounds how often a migration gives way to others, about five minutes in all.
const tries = 100

// Up applies what is missing and returns the versions applied. Several
// daemons may call it at once; one works, the others wait and find it done. It never waits
// longer than half a second for a lock that statements of daemons wait behind; then it
// lets them pass and tries again. The error wraps ErrSchema where a live daemon does not know
// what takes the place of something that would be removed, unless forced.
func (m *Migrator) Up(ctx context.Context) ([]int64, error) { return m.up(ctx, false) }

// UpForced is Up that removes what live daemons may need.
func (m *Migrator) UpForced(ctx context.Context) ([]int64, error) { return m.up(ctx, true) }

func (m *Migrator) up(ctx context.Context, forced bool) (done []int64, err error) {
	err = m.with(ctx, func(db *sql.DB, p *goose.Provider, list []change) error {
		if !forced {
			if err := m.refuseFor(ctx, db, p, list); err != nil {
				return err
			}
		}
		backoff := deploymode.Backoff{Base: 50 * time.Millisecond, Max: 4 * time.Second, Multiplier: 1.5, Jitter: 0.5}
		for try := 1; ; try++ {
			results, err := p.Up(ctx)
			var partial *goose.PartialError
			if errors.As(err, &partial) {
				results = partial.Applied
			}
			for _, r := range results {
				done = append(done, r.Source.Version)
			}
			if err == nil || !pg.LockTimeout(err) || try == tries {
				return err
			}
			if err := lifecycle.Pause(ctx, backoff.Delay(try, rand.Float64())); err != nil {
				return err
			}
		}
	})
	return done, err
}

// Down takes back the newest migration and returns its version. The way back of
// the baseline drops everything.
func (m *Migrator) Down(ctx context.Context) (int64, error) {
	var version int64
	err := m.with(ctx, func(_ *sql.DB, p *goose.Provider, _ []change) error {
		r, err := p.Down(ctx)
		if r != nil {
			version = r.Source.Version
		}
		return err
	})
	return version, err
}

// Status lists all migrations in order.
func (m *Migrator) Status(ctx context.Context) (list []Status, err error) {
	err = m.with(ctx, func(_ *sql.DB, p *goose.Provider, changes []change) error {
		states, err := p.Status(ctx)
		for i, s := range states {
			c := changes[i]
			row := Status{Version: c.version, Name: c.name, Summary: c.summary, Oldest: c.oldest,
				Applied: s.State == goose.StateApplied, AppliedAt: s.AppliedAt}
			for _, o := range c.online {
				row.Online = append(row.Online, o.String())
			}
			list = append(list, row)
		}
		return err
	})
	return list, err
}

// Plan lists the migrations that Up would apply, and returns the error with which it would
// refuse them.
func (m *Migrator) Plan(ctx context.Context) (pending []Status, refusal, err error) {
	if pending, err = m.Status(ctx); err != nil {
		return nil, nil, err
	}
	pending = slices.DeleteFunc(pending, func(s Status) bool { return s.Applied })
	err = m.with(ctx, func(db *sql.DB, p *goose.Provider, changes []change) error {
		if refusal = m.refuseFor(ctx, db, p, changes); errors.Is(refusal, pg.ErrSchema) {
			return nil
		}
		return refusal
	})
	return pending, refusal, err
}

func (m *Migrator) with(ctx context.Context, fn func(*sql.DB, *goose.Provider, []change) error) error {
	var hooks []stdlib.OptionOpenDB
	if before := m.config.BeforeConnect; before != nil {
		hooks = append(hooks, stdlib.OptionBeforeConnect(before))
	}
	hooks = append(hooks, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		if after := m.config.AfterConnect; after != nil {
			if err := after(ctx, c); err != nil {
				return err
			}
		}
		_, err := c.Exec(ctx, `set idle_session_timeout = 0`) // the lock is held by a session that only waits
		return err
	}))
	db := stdlib.OpenDB(*m.config.ConnConfig, hooks...)
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(2) // one holds the lock, one works
	have, err := readState(func(query string) scanner { return db.QueryRowContext(ctx, query) })
	if err != nil {
		return m.denied(pg.Classify("reach the database to migrate it", err))
	}
	if err := have.refusal(); err != nil {
		return fmt.Errorf("migrate the schema: %w", err)
	}
	changes, err := m.files.changes()
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	p, err := provider(db, changes)
	if err != nil {
		return fmt.Errorf("prepare the migrations: %w", err)
	}
	if err := fn(db, p, changes); err != nil {
		return m.denied(pg.Classify("migrate the schema", err))
	}
	return nil
}

// denied adds to an error about a missing right which role is needed.
func (m *Migrator) denied(err error) error {
	if pg.ServerCode(err) != "42501" {
		return err
	}
	return fmt.Errorf("%w (role %s, database %s): the first migration needs `grant create on database`, all others the role that owns the schema tasker; "+
		"see docs/operate/operations.md", err, m.config.ConnConfig.User, m.config.ConnConfig.Database)
}

func provider(db *sql.DB, changes []change) (*goose.Provider, error) {
	// Those who come second look every second, for five minutes.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, err
	}
	applied, err := database.NewStore(database.DialectPostgres, versionTable)
	if err != nil {
		return nil, err
	}
	migrations, oldest := make([]*goose.Migration, len(changes)), map[int64]change{}
	for i, c := range changes {
		migrations[i], oldest[c.version] = c.migration(), c
	}
	// The program that this engine is part of may have registered migrations of its own.
	return goose.NewProvider("", db, nil, goose.WithSessionLocker(locker), goose.WithStore(versionStore{applied, oldest}),
		goose.WithGoMigrations(migrations...), goose.WithDisableGlobalRegistry(true))
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
