package store_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow/template"
)

// sqlError asserts that an error of the server has a state, and returns it.
func sqlError(t *testing.T, err error, state string) *pgconn.PgError {
	t.Helper()
	var failed *pgconn.PgError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, state, failed.Code, "%s", failed.Message)
	return failed
}

// createdBySQL calls a function that creates a task.
func createdBySQL(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, call string, args ...any) (id uuid.UUID, err error) {
	err = db.QueryRow(ctx, `select tasker.`+call, args...).Scan((*[16]byte)(&id))
	return id, err
}

// A program in any language creates a task in its own transaction.
func TestATaskCreatedBySQLSharesTheFateOfItsTransaction(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	for _, commit := range []bool{true, false} {
		tx := beginOn(t, db, pgx.TxOptions{})
		id, err := createdBySQL(t.Context(), tx, `create_task($1, $2, jsonb_build_object('commit', $3::boolean))`, p.Template.Namespace, p.Template.Name, commit)
		require.NoError(t, err)
		if commit {
			require.NoError(t, tx.Commit(t.Context()))
			require.Equal(t, id, read(t, s, id).UUID)
			require.Len(t, claim(t, s, p, 10), 1)
			continue
		}
		require.NoError(t, tx.Rollback(t.Context()))
		_, err = s.Task(t.Context(), id)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.tasks`))
		require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.task_identities`))
		_, err = createdBySQL(t.Context(), db.Pool(t), `create_task($1, $2, '{"commit": false}')`, p.Template.Namespace, p.Template.Name)
		require.NoError(t, err, "its identity is free again")
	}
	noViolations(t, s)
}

// Of creators with the same key one creates the task, whatever they wait for.
func TestConcurrentCreatorsBySQL(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	create := `create_task($1, $2, $3::text::jsonb, idempotency_key => 'order-1', conflict_policy => $4)`
	type answer struct {
		id  uuid.UUID
		err error
	}
	first := beginOn(t, db, pgx.TxOptions{})
	one, err := createdBySQL(t.Context(), first, create, p.Template.Namespace, p.Template.Name, `{}`, "fail")
	require.NoError(t, err)
	answers, pool := make(chan answer, 2), db.Pool(t)
	for i, policy := range []string{"use_existing", "fail"} {
		go func() {
			id, err := createdBySQL(t.Context(), pool, create, p.Template.Namespace, p.Template.Name, fmt.Sprintf(`{"n":%d}`, i), policy)
			answers <- answer{id, err}
		}()
	}
	pgtest.Eventually(t, patience, func() (bool, string) {
		return db.QueryInt(t, `select count(*) from pg_locks l join pg_stat_activity a using (pid) where not l.granted and a.datname = current_database()`) == 2, "two do not wait"
	})
	require.NoError(t, first.Commit(t.Context()))
	for range 2 {
		if a := <-answers; a.err == nil {
			require.Equal(t, one, a.id)
		} else {
			failed := sqlError(t, a.err, "23505")
			require.Equal(t, one.String(), failed.Detail)
			require.Contains(t, failed.Message, "a task with this idempotency key already exists: "+one.String()+" (pending)")
		}
	}
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.tasks`))
	noViolations(t, s)
}

// The role of programs that create tasks can call the four functions and nothing else.
func TestTheRoleOfSQLClientsCanDoNothingElse(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	tx := beginOn(t, db, pgx.TxOptions{})
	exec := func(sql string, args ...any) error {
		nested, err := tx.Begin(t.Context())
		require.NoError(t, err)
		_, err = nested.Exec(t.Context(), sql, args...)
		return errors.Join(err, nested.Rollback(t.Context()))
	}
	relations, err := db.Pool(t).Query(t.Context(), `select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = 'tasker' and c.relkind in ('r', 'p', 'v', 'm', 'f')`)
	require.NoError(t, err)
	names, err := pgx.CollectRows(relations, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(names), 40)
	require.NoError(t, func() error { _, err := tx.Exec(t.Context(), `set local role tasker_client`); return err }())
	for _, name := range names {
		statements := []string{`select * from %s`, `insert into %s default values`, `delete from %s`, `truncate %s`}
		if strings.HasPrefix(name, "tasker.v_") { // nothing is written to a view
			statements = statements[:1]
		}
		for _, statement := range statements {
			sqlError(t, exec(fmt.Sprintf(statement, name)), "42501")
		}
		require.Zero(t, db.QueryInt(t, `select count(*) from pg_attribute where attrelid = $1::regclass and attnum > 0
			and has_column_privilege('tasker_client', attrelid, attnum, 'select, insert, update, references')`, name), name)
	}
	require.Zero(t, db.QueryInt(t, `select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = 'tasker' and case c.relkind when 'S' then has_sequence_privilege('tasker_client', c.oid, 'usage, select, update') end`))
	require.Equal(t, "create_task enqueue send_event task_result", db.QueryString(t, `select string_agg(p.proname, ' ' order by p.proname)
		from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'tasker' and has_function_privilege('tasker_client', p.oid, 'execute')`))
	require.False(t, db.QueryBool(t, `select has_schema_privilege('tasker_client', 'tasker', 'create')`))
	require.Zero(t, db.QueryInt(t, `select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		where n.nspname = 'tasker' and p.prosecdef and not coalesce(array_to_string(p.proconfig, ' ') like '%search_path=pg_catalog, pg_temp%', false)`), "a definer's search path is its own")

	id, err := createdBySQL(t.Context(), tx, `create_task($1, $2, '{}')`, p.Template.Namespace, p.Template.Name)
	require.NoError(t, err)
	require.NoError(t, exec(`select * from tasker.task_result($1)`, id))
	require.NoError(t, exec(`select * from tasker.send_event($1, 'paid', 'order-1', '{}')`, p.Template.Namespace))
	sqlError(t, exec(`select tasker.enqueue('nothing', '{}')`), "22023")
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, id, read(t, s, id).UUID)
}

// noteType registers the task type note of the queue bench, whose tasks have no duplicates.
func noteType(t testing.TB, s *store.Store) *store.Plan {
	t.Helper()
	parsed, _, err := template.Parse("note.yaml", []byte(`
name: note
namespace_name: bench
version: 1.0.0
identity: {strategy: always_unique}
steps: [{name: only, handler: {callable: bench.note}}]
`))
	require.NoError(t, err)
	made, _, err := s.PutTaskType(t.Context(), parsed, store.Registrant{ID: "test"}, store.OperatorAction{Actor: "test", Action: "register_task_type", Reason: "test"})
	require.NoError(t, err)
	return made.Plan
}

// What SQL announces is what Go announces, by the setting of the session.
func TestTasksCreatedBySQLAreAnnounced(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p, forked := plan(t, s, diamondYAML), plan(t, s, forkedYAML)
	create := func(how, call string, args ...any) {
		t.Helper()
		require.NoError(t, pgx.BeginFunc(t.Context(), db.Pool(t), func(tx pgx.Tx) error {
			if how != "" {
				_, err := tx.Exec(t.Context(), `select set_config('tasker.announce', $1, true)`, how)
				require.NoError(t, err)
			}
			_, err := createdBySQL(t.Context(), tx, call, args...)
			return err
		}))
	}
	e := listen(t, db.DSN)
	for i, of := range []*store.Plan{p, forked} {
		task := newTask(of)
		task.Priority = 30
		want := store.CreateSignals([]store.NewTask{task})
		require.Len(t, want, 1)
		create("", `create_task($1, $2, jsonb_build_object('n', $3::int), priority => 30)`, of.Template.Namespace, of.Template.Name, i)
		require.Equal(t, want[0].Payload, e.receives(want[0].Topic))
	}
	create("notify", `create_task($1, $2, '{"later": 1}', delay_seconds => 60)`, p.Template.Namespace, p.Template.Name)
	require.Empty(t, e.receives(signal.TopicDue))
	create("nothing", `create_task($1, $2, '{"silent": 1}')`, p.Template.Namespace, p.Template.Name)
	slot := "s_" + db.Name
	db.Exec(t, `select pg_create_logical_replication_slot($1, 'test_decoding')`, slot)
	t.Cleanup(func() { db.Exec(t, `select pg_drop_replication_slot($1)`, slot) })
	create("wal", `create_task($1, $2, '{"wal": 1}')`, p.Template.Namespace, p.Template.Name)
	e.receivesNothing()
	encoded, err := wal.Encode(store.CreateSignals([]store.NewTask{newTask(p)})[0])
	require.NoError(t, err)
	written := db.QueryString(t, `select string_agg(data, '') from pg_logical_slot_get_changes($1, null, null) where data like 'message:%'`, slot)
	require.Contains(t, written, "transactional: 1 prefix: tasker, sz: "+strconv.Itoa(len(encoded)))
	tx := beginOn(t, db, pgx.TxOptions{})
	_, err = tx.Exec(t.Context(), `set local tasker.announce = 'loudly'`)
	require.NoError(t, err)
	_, err = createdBySQL(t.Context(), tx, `create_task($1, $2, '{"loud": 1}')`, p.Template.Namespace, p.Template.Name)
	require.Contains(t, sqlError(t, err, "22023").Message, `invalid tasker.announce "loudly"`)
}

// A plan that an earlier version has registered is refused until a current one brings it.
func TestPlansOfEarlierVersionsAreRefusedBySQL(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	db.Exec(t, `delete from tasker.plan_starts`)
	_, err := createdBySQL(t.Context(), db.Pool(t), `create_task($1, $2, '{}')`, p.Template.Namespace, p.Template.Name)
	require.Contains(t, sqlError(t, err, "0A000").Message, "an earlier version of the daemons")
	plan(t, s, oneStepYAML)
	_, err = createdBySQL(t.Context(), db.Pool(t), `create_task($1, $2, '{}')`, p.Template.Namespace, p.Template.Name)
	require.NoError(t, err)
	before := db.QueryString(t, `select xmin::text from tasker.plan_starts`)
	plan(t, s, oneStepYAML)
	require.Equal(t, before, db.QueryString(t, `select xmin::text from tasker.plan_starts`), "what is there is not written again")
}

// The windows of identities end by SQL as they do elsewhere.
func TestAnIdentityThatHasExpiredIsFreeBySQL(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	create := func() error {
		_, err := createdBySQL(t.Context(), db.Pool(t), `create_task($1, $2, '{}', idempotency_key => 'k')`, p.Template.Namespace, p.Template.Name)
		return err
	}
	require.NoError(t, create())
	sqlError(t, create(), "23505")
	db.Exec(t, `update tasker.task_identities set expires_at = now() - interval '1 s'`)
	require.NoError(t, create())
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.tasks`))
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.task_identities where expires_at = 'infinity'`))
}

// Roles that could call functions of the schema before the migration still can; others cannot.
func TestRolesKeepTheFunctionsThatTheyHad(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	m, err := store.NewMigrator(db.DSN)
	require.NoError(t, err)
	for version := int64(0); version != 104; {
		version, err = m.Down(t.Context())
		require.NoError(t, err)
	}
	old, fresh := "old_"+db.Name, "fresh_"+db.Name
	db.Exec(t, `create role `+old+`; create role `+fresh+`; grant usage on schema tasker to `+old)
	t.Cleanup(func() {
		db.Exec(t, `drop owned by `+old+`, `+fresh)
		db.Exec(t, `drop role `+old+`, `+fresh)
	})
	_, err = m.Up(t.Context())
	require.NoError(t, err)
	db.Exec(t, `grant usage on schema tasker to `+fresh)
	for _, function := range []string{"plan_for_use(int, text, text)", "uuid_v7()", "take_reported(bigint, bigint, int)"} {
		for role, may := range map[string]bool{old: true, fresh: false, "tasker_client": false} {
			require.Equal(t, may, db.QueryBool(t, `select has_function_privilege($1, 'tasker.`+function+`', 'execute')`, role), "%s: %s", role, function)
		}
	}
	require.True(t, db.QueryBool(t, `select has_function_privilege('tasker_client', 'tasker.task_result(uuid)', 'execute')`))
}
