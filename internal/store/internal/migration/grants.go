package migration

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
)

// owned are the functions that make and drop the partitions of days, which only the owner of
// their tables can: for other roles they work with the owner's rights.
var owned = []string{"ensure_partitions(int)", "drop_ledger_day(text, uuid, uuid, timestamptz, text)", "drop_event_day(text, text)"}

// Grants returns the statements that let a role that may connect be that of daemons: the owner of
// the schema executes them, once. Later migrations of the same owner extend them by themselves.
func Grants(role string) (statements []string, err error) {
	if role == "" || strings.ContainsRune(role, 0) {
		return nil, fmt.Errorf("invalid role %q: want the name of a role", role)
	}
	to := " to " + pgx.Identifier{role}.Sanitize()
	statements = []string{"grant usage on schema tasker" + to}
	for _, on := range []string{"select, insert, update, delete on %stables", "usage, update on %ssequences", "execute on %sfunctions"} {
		statements = append(statements, "grant "+fmt.Sprintf(on, "all ")+" in schema tasker"+to,
			"alter default privileges in schema tasker grant "+fmt.Sprintf(on, "")+to)
	}
	for _, function := range owned {
		statements = append(statements, "alter function tasker."+function+" security definer set search_path = pg_catalog, pg_temp")
	}
	return statements, nil
}

// lacking reads what the role of the session lacks to be that of a daemon, in the words of
// Grants. It names everything by its oid, because a name needs usage of the schema.
const lacking = `
with room as (select oid, nspowner from pg_namespace where nspname = 'tasker')
select format('%s on %s', rights, object) from (
    select 1, 'usage', 'schema tasker' from room where not has_schema_privilege(oid, 'usage')
    union all
    select 2, string_agg(r.name, ', ' order by r.no), 'table tasker.' || c.relname
    from pg_class c join room on c.relnamespace = room.oid,
         unnest(array['select', 'insert', 'update', 'delete']) with ordinality r(name, no)
    where c.relkind in ('r', 'p') and (not c.relispartition or c.relname like '%\_default')
      and (r.name = 'select' or c.relname not in ('tasker_schema_version', 'schema_changes'))
      and not has_table_privilege(c.oid, r.name)
    group by c.relname
    union all
    select 3, string_agg(r.name, ', ' order by r.no), 'sequence tasker.' || c.relname
    from pg_class c join room on c.relnamespace = room.oid, unnest(array['usage', 'update']) with ordinality r(name, no)
    where c.relkind = 'S' and not has_sequence_privilege(c.oid, r.name)
    group by c.relname
    union all
    select 4, 'execute', format('function tasker.%s(%s)', p.proname, pg_get_function_identity_arguments(p.oid))
    from pg_proc p join room on p.pronamespace = room.oid
    where p.prorettype <> 'trigger'::regtype and not has_function_privilege(p.oid, 'execute')
    union all
    select 5, 'the rights of the owner (security definer)', 'function tasker.' || p.proname from pg_proc p join room on p.pronamespace = room.oid
    where p.proname = any (array(select split_part(f, '(', 1) from unnest($1::text[]) f)) and not p.prosecdef and not pg_has_role(p.proowner, 'usage')
) l(no, rights, object) order by no, object`

// CheckGrants returns an error that names everything that the role of the pool lacks to be that
// of a daemon, before a statement fails for the first of it.
func (s *Schema) CheckGrants(ctx context.Context) error {
	var role string
	var lacks []string
	err := s.db.Call(ctx, "schema", "read the rights of the role", func(ctx context.Context, db *pg.Conn) error {
		if err := db.QueryRow(ctx, `select current_user`).Scan(&role); err != nil {
			return err
		}
		rows, err := db.Query(ctx, lacking, owned)
		if err != nil {
			return err
		}
		lacks, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil || len(lacks) == 0 {
		return err
	}
	return fmt.Errorf("the role %s lacks %s: the owner of the schema executes what `tasker-ctl migrate grants %[1]s` prints", role, strings.Join(lacks, "; "))
}
