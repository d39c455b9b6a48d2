package migration

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
)

// objects lists what the schema consists of, a line each, without the daily partitions,
// whose indexes are those of their parents. Not-null constraints are in the lines of columns:
// PostgreSQL 18 has them among the constraints too.
const objects = `
with tables as (
    select c.oid, c.relname, c.relkind, c.relpersistence from pg_class c
    where c.relnamespace = 'tasker'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
          and c.relname not in ('tasker_schema_version', 'schema_changes')
)
select regexp_replace(line, '\s+', ' ', 'g') as line from (
    select format('table %s%s%s', relname, case relkind when 'p' then ' partitioned' end, case relpersistence when 'u' then ' unlogged' end) as line from tables
    union all
    select format('column %s.%s %s%s%s', t.relname, a.attname, format_type(a.atttypid, a.atttypmod), case when a.attnotnull then ' not null' end,
                  ' default ' || pg_get_expr(d.adbin, d.adrelid))
    from tables t join pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    union all
    select pg_get_indexdef(i.indexrelid) from tables t join pg_index i on i.indrelid = t.oid
    union all
    select format('constraint %s.%s %s', t.relname, k.conname, pg_get_constraintdef(k.oid))
    from tables t join pg_constraint k on k.conrelid = t.oid and k.contype in ('c', 'f', 'u', 'p')
    union all
    select pg_get_triggerdef(g.oid) from tables t join pg_trigger g on g.tgrelid = t.oid and not g.tgisinternal
    union all
    select format('sequence %s', relname) from pg_class where relnamespace = 'tasker'::regnamespace and relkind = 'S'
    union all
    select format('function %s md5 %s', p.oid::regprocedure, md5(p.prosrc)) from pg_proc p where p.pronamespace = 'tasker'::regnamespace
) l
order by regexp_replace(line, '\s+', ' ', 'g') collate "C"`

// unfinished finds what a build that was cut off, or a hand, has left: an index that is not
// valid, or a partition without one that its table has.
const unfinished = `
select format('index %s is not valid', i.indexrelid::regclass) from pg_index i join pg_class c on c.oid = i.indexrelid
where c.relnamespace = 'tasker'::regnamespace and not i.indisvalid
union all
select format('partition %s has no index of %s', h.inhrelid::regclass, i.indexrelid::regclass)
from pg_inherits h join pg_class p on p.oid = h.inhparent and p.relkind = 'p' and p.relnamespace = 'tasker'::regnamespace
join pg_index i on i.indrelid = p.oid
where not exists (select from pg_inherits x join pg_index part on part.indexrelid = x.inhrelid
                  where x.inhparent = i.indexrelid and part.indrelid = h.inhrelid)
order by 1`

// Verify compares the schema of the database with the one that the migrations make, and
// returns the differences. That of a newer version is only searched for what is unfinished,
// and the last line says so.
func (m *Migrator) Verify(ctx context.Context) (differences []string, err error) {
	err = m.with(ctx, func(db *sql.DB, _ *goose.Provider, _ []change) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		have, err := readState(func(query string) scanner { return conn.QueryRowContext(ctx, query) })
		if err != nil {
			return err
		}
		if have.version < pg.SchemaVersion {
			return fmt.Errorf("%w: the database has %d: apply the migrations up to %d first", pg.ErrSchema, have.version, pg.SchemaVersion)
		}
		if differences, err = linesOf(ctx, conn, unfinished); err != nil {
			return err
		}
		if have.version > pg.SchemaVersion {
			differences = append(differences, fmt.Sprintf("the database has %d, and this program knows the objects of %d: verify it with a newer program", have.version, pg.SchemaVersion))
			return nil
		}
		found, err := linesOf(ctx, conn, objects)
		if err != nil {
			return err
		}
		differences = append(differences, compare(m.files.objects(), found)...)
		return nil
	})
	return differences, err
}

// Objects lists what the schema of the database consists of.
func (m *Migrator) Objects(ctx context.Context) (list []string, err error) {
	err = m.with(ctx, func(db *sql.DB, _ *goose.Provider, _ []change) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		list, err = linesOf(ctx, conn, objects)
		return err
	})
	return list, err
}

func (f Files) objects() []string { return strings.Split(strings.TrimSpace(f.Objects), "\n") }

// compare tells the differences of two sorted lists.
func compare(want, found []string) (differences []string) {
	for _, line := range want {
		if _, ok := slices.BinarySearch(found, line); !ok {
			differences = append(differences, "missing: "+line)
		}
	}
	for _, line := range found {
		if _, ok := slices.BinarySearch(want, line); !ok {
			differences = append(differences, "unknown: "+line)
		}
	}
	return differences
}

// linesOf reads texts. Names are shown with their schemas, whatever the role's search_path.
func linesOf(ctx context.Context, conn *sql.Conn, query string) (lines []string, err error) {
	if _, err := conn.ExecContext(ctx, `set search_path = pg_catalog`); err != nil {
		return nil, err
	}
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, rows.Err()
}
