package migration

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
)

// change is one migration, read from its file.
type change struct {
	version  int64
	name     string // of the file
	summary  string // the comment at its beginning
	up, down string // each in one transaction
	online   []section
	oldest   int64 // the oldest version whose programs go on working; 0: that of the changes before
}

// section is a part of a migration that runs outside a transaction.
type section struct {
	index string // the name of the index that it creates; "": it fills rows
	// text is the table and the definition of the index, or a statement that fills some rows
	// after the key $1 and returns the last key; no row: it is done.
	text string
}

var (
	marker   = regexp.MustCompile(`(?m)^-- \+(goose Up|goose Down|online backfill|online index (\w+))[ \t]*$`)
	contract = regexp.MustCompile(`(?m)^-- contract(?: (\d+))?: \S`)
)

// changes reads the files, in the order of their numbers, with the baseline first.
func (f Files) changes() ([]change, error) {
	names, err := fs.Glob(f.Migrations, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	list := []change{{version: BaselineVersion, name: "schema.sql", up: f.Baseline, down: `drop schema ` + schemaName + ` cascade`}}
	for _, name := range names {
		text, err := fs.ReadFile(f.Migrations, name)
		if err != nil {
			return nil, err
		}
		c, err := readChange(path.Base(name), string(text))
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", name, err)
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	return list, nil
}

func readChange(name, text string) (c change, err error) {
	c.name = name
	if c.version, err = goose.NumericComponent(name); err != nil {
		return c, err
	}
	parts := marker.FindAllStringSubmatchIndex(text, -1)
	if len(parts) == 0 {
		return c, errors.New("want a line `-- +goose Up`")
	}
	for i, at := range parts {
		end := len(text)
		if i+1 < len(parts) {
			end = parts[i+1][0]
		}
		body := text[at[1]:end]
		switch kind := text[at[2]:at[3]]; kind {
		case "goose Up":
			c.up = body
		case "goose Down":
			c.down = body
		case "online backfill":
			c.online = append(c.online, section{text: body})
		default:
			c.online = append(c.online, section{index: text[at[4]:at[5]], text: strings.TrimSpace(uncommented(body))})
		}
	}
	head := text[:parts[0][0]]
	for line := range strings.Lines(head) {
		if line = strings.TrimSpace(strings.TrimPrefix(line, "--")); !strings.HasPrefix(line, "contract") {
			c.summary = strings.TrimSpace(c.summary + " " + line)
		}
	}
	if m := contract.FindStringSubmatch(head); m != nil && c.version > lastOfFirstRecord {
		if c.oldest, err = strconv.ParseInt(m[1], 10, 64); err != nil || c.oldest >= c.version {
			return c, errors.New("invalid line `-- contract: …`: want `-- contract N: reason`, N being the oldest version whose programs go on working")
		}
	}
	return c, nil
}

func uncommented(text string) (rest string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			rest += line
		}
	}
	return rest
}

// lockWait is how long a statement of a migration waits for a lock. Statements of daemons
// that come after it wait behind it, so it gives up soon, and is tried again.
const lockWait = "500ms"

// migration is what goose runs.
func (c change) migration() *goose.Migration {
	up := inTransaction(c.up)
	if len(c.online) > 0 {
		up = &goose.GoFunc{RunDB: c.upOnline}
	}
	return goose.NewGoMigration(c.version, up, inTransaction(c.down))
}

// inTransaction runs the statements in the transaction that records the version.
func inTransaction(statements string) *goose.GoFunc {
	return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error { return executeIn(ctx, tx, statements) }}
}

func executeIn(ctx context.Context, tx *sql.Tx, statements string) error {
	if _, err := tx.ExecContext(ctx, `set local lock_timeout = '`+lockWait+`'`); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, statements)
	return err
}

// upOnline runs the transaction and then the sections. The version is recorded after all of
// them, so one that was cut off is run from its beginning.
func (c change) upOnline(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := executeIn(ctx, tx, c.up); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, s := range c.online {
		if s.index == "" {
			err = s.backfill(ctx, conn)
		} else {
			err = s.createIndex(ctx, conn)
		}
		if err != nil {
			return fmt.Errorf("migrate to version %d, %s: %w", c.version, s, err)
		}
	}
	return nil
}

// String says what the section does.
func (s section) String() string {
	if s.index != "" {
		return "create index " + s.index + " concurrently"
	}
	return "fill rows in batches"
}

// backfill runs the statement until it finds no row, each time in a transaction of its own.
func (s section) backfill(ctx context.Context, conn *sql.Conn) error {
	last := "00000000-0000-0000-0000-000000000000"
	for {
		switch err := conn.QueryRowContext(ctx, s.text, last).Scan(&last); {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil:
			return err
		}
	}
}

// createIndex creates an index without keeping writers waiting: on a plain table, or on every
// partition of one, and then makes those one. It does again what an earlier try has left
// invalid. New partitions get the index with those of their parent.
func (s section) createIndex(ctx context.Context, conn *sql.Conn) error {
	table, definition, found := strings.Cut(s.text, " ")
	if !found {
		return fmt.Errorf("invalid index %q: want TABLE (COLUMNS)", s.text)
	}
	execute := func(statements ...string) error {
		for _, statement := range statements {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}
	const bounded = `set lock_timeout = '` + lockWait + `'`
	build := func(name, table string) error {
		// A concurrent build waits for older transactions, and no statement waits behind it.
		return execute(bounded, `drop index if exists `+schemaName+`.`+name, `set lock_timeout = 0`,
			`create index concurrently `+name+` on `+table+` `+definition, bounded)
	}
	var plain bool
	if err := conn.QueryRowContext(ctx, `select relkind = 'r' from pg_class where oid = $1::regclass`, table).Scan(&plain); err != nil {
		return err
	}
	if plain {
		return build(s.index, table)
	}
	if err := execute(bounded, `create index if not exists `+s.index+` on only `+table+` `+definition); err != nil {
		return err
	}
	for {
		var part string // without its schema
		err := conn.QueryRowContext(ctx, partWithoutIndex, table, schemaName+"."+s.index).Scan(&part)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		name := indexOfPart(part, s.index)
		if err := build(name, schemaName+`.`+part); err != nil {
			return err
		}
		if err := execute(`alter index ` + schemaName + `.` + s.index + ` attach partition ` + schemaName + `.` + name); err != nil {
			return err
		}
	}
}

// indexOfPart is the name of the index of a partition, of at most 63 bytes.
func indexOfPart(part, index string) string {
	index = index[:min(len(index), 40)]
	return part[:min(len(part), 62-len(index))] + "_" + index
}

// partWithoutIndex finds a partition that has no index attached to that of its parent.
const partWithoutIndex = `
select t.relname from pg_partition_tree($1::regclass) p join pg_class t on t.oid = p.relid
where p.isleaf and p.parentrelid is not null
      and not exists (select from pg_inherits h join pg_index i on i.indexrelid = h.inhrelid
                      where h.inhparent = $2::regclass and i.indrelid = p.relid)
order by t.relname limit 1`
