package store_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

const objectsFile = "schema_objects.txt"

// migratorOf returns a migrator of a database, not migrated yet.
func migratorOf(t *testing.T, db *pgtest.DB) *store.Migrator {
	t.Helper()
	m, err := store.NewMigrator(db.DSN)
	require.NoError(t, err)
	return m
}

// up applies what is missing.
func up(t *testing.T, m *store.Migrator) {
	t.Helper()
	_, err := m.Up(t.Context())
	require.NoError(t, err)
}

// differences are those that Verify finds.
func differences(t *testing.T, m *store.Migrator) []string {
	t.Helper()
	found, err := m.Verify(t.Context())
	require.NoError(t, err)
	return found
}

// TestSchemaObjects: Verify compares databases with this record. -migrations.record writes it anew.
func TestSchemaObjects(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	m := migratorOf(t, db)
	up(t, m)
	list, err := m.Objects(t.Context())
	require.NoError(t, err)
	text := strings.Join(list, "\n") + "\n"
	if *recordMigrations {
		require.NoError(t, os.WriteFile(objectsFile, []byte(text), 0o644)) // #nosec G306 -- it is for all to read
	}
	want, err := os.ReadFile(objectsFile)
	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll(string(want), "\r", ""), text)
	require.Greater(t, len(list), 500)
}

// TestVerifyFindsDrift plants differences of every kind.
func TestVerifyFindsDrift(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	m := migratorOf(t, db)
	_, err := m.Verify(t.Context())
	require.ErrorIs(t, err, store.ErrSchema)
	require.ErrorContains(t, err, "apply the migrations")
	up(t, m)
	require.Empty(t, differences(t, m))
	for breach, found := range map[string]string{
		`drop index tasker.board_due`:                                                                              "missing: CREATE INDEX board_due ON tasker.board",
		`create index by_hand on tasker.workers (hostname)`:                                                        "unknown: CREATE INDEX by_hand",
		`alter table tasker.workers add column note text`:                                                          "unknown: column workers.note text",
		`alter table tasker.sweeps alter column next_at drop not null`:                                             "missing: column sweeps.next_at timestamp with time zone not null",
		`create or replace function tasker.clip(value text, most int) returns text language sql as 'select value'`: "missing: function tasker.clip(text,integer) md5",
		`drop trigger fill_failed_plan on tasker.step_attempts`:                                                    "missing: CREATE TRIGGER fill_failed_plan",
		`create index spare on only tasker.tasks (initiator)`:                                                      "index tasker.spare is not valid",
	} {
		db.Exec(t, breach)
		require.Contains(t, strings.Join(differences(t, m), "\n"), found, breach)
	}
}

// attemptsOfBefore migrates to the version before failed plans, with tasks that failed, in the
// default partition and in one of a day; one of them twice.
func attemptsOfBefore(t *testing.T, db *pgtest.DB, m *store.Migrator, tasks int) {
	t.Helper()
	up(t, m)
	for { // back to what the version before has made
		v, err := m.Down(t.Context())
		require.NoError(t, err)
		if v == 106 {
			break
		}
	}
	db.Exec(t, `insert into tasker.namespaces (name) values ('old')`)
	db.Exec(t, `insert into tasker.tasks (task_uuid, plan_id, queue, priority, context)
		select case when i % 2 = 0 then gen_random_uuid() else tasker.uuid_floor(now() + i * interval '1 ms') end, 1 + i % 3, 1, 0, '{}'
		from generate_series(1, $1::int) i`, tasks)
	db.Exec(t, `insert into tasker.step_attempts (task_uuid, token, step_no, attempt, outcome, task_state, task_progress)
		select task_uuid, row_number() over (), 0, 1, 3, case when plan_id = 3 then 9 else 11 end, '' from tasker.tasks`)
}

func TestOnlineMigrationFillsRows(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	m := migratorOf(t, db)
	attemptsOfBefore(t, db, m, 9000)
	up(t, m)
	wrong := func() int {
		return db.QueryInt(t, `select count(*) from tasker.step_attempts a join tasker.tasks t using (task_uuid)
			where a.failed_plan_id is distinct from case when a.task_state > 9 then t.plan_id end`)
	}
	require.Zero(t, wrong())
	require.Empty(t, differences(t, m))
	// A program of the version before goes on inserting without the column.
	db.Exec(t, `insert into tasker.step_attempts (task_uuid, token, step_no, attempt, outcome, task_state, task_progress)
		select task_uuid, 100000 + token, 0, 2, 3, 11, '' from tasker.step_attempts where task_state = 9 limit 100`)
	require.Zero(t, wrong())
}

// TestOnlineMigrationIsContinued: one that was cut off in an index is run again.
func TestOnlineMigrationIsContinued(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	m := migratorOf(t, db)
	attemptsOfBefore(t, db, m, 100)
	holder := begin(t, db)
	_, err := holder.Exec(t.Context(), `set transaction isolation level repeatable read`)
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), `select count(*) from pg_class`) // a snapshot for which a concurrent build waits
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := m.Up(ctx); ended <- err }()
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		n := db.QueryInt(t, `select count(*) from pg_stat_activity where datname = current_database() and query ilike 'create index concurrently%' and wait_event_type = 'Lock'`)
		return n == 1, "the build waits for the transaction before it"
	})
	cancel()
	require.Error(t, <-ended)
	require.NoError(t, holder.Rollback(t.Context()))
	up(t, m)
	require.Empty(t, differences(t, m))
}

func begin(t *testing.T, db *pgtest.DB) pgx.Tx {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	return tx
}

// TestMigrationGivesWay: while a migration waits for a lock that a long transaction holds,
// statements of daemons behind it wait half a second at most, and it succeeds in the end.
func TestMigrationGivesWay(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	m := migratorOf(t, db)
	attemptsOfBefore(t, db, m, 100)
	holder := begin(t, db)
	_, err := holder.Exec(t.Context(), `insert into tasker.step_attempts (task_uuid, token, step_no, attempt, outcome) values ($1, 1, 0, 1, 1)`, uuid.New())
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { _, err := m.Up(t.Context()); ended <- err }()
	waits := `select count(*) from pg_stat_activity where datname = current_database() and application_name = 'tasker-migrate' and wait_event_type = 'Lock'`
	for range 2 { // twice, so that it has given way in between
		pgtest.Eventually(t, time.Minute, func() (bool, string) { return db.QueryInt(t, waits) == 1, "the migration waits for the lock" })
		db.Exec(t, `insert into tasker.step_attempts (task_uuid, token, step_no, attempt, outcome) values ($1, 1, 0, 1, 1)`, uuid.New())
	}
	select {
	case err := <-ended:
		t.Fatalf("the migration ended though the lock is held: %v", err)
	default:
	}
	require.NoError(t, holder.Commit(t.Context()))
	require.NoError(t, <-ended)
}

// TestMigratorsRace: of three that migrate at once one works, whose death in the middle leaves
// it to the next.
func TestMigratorsRace(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	m := migratorOf(t, db)
	attemptsOfBefore(t, db, m, 5000)
	db.Exec(t, `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tasker-migrate' and datname = current_database()`)
	var wg conc.WaitGroup
	var killed atomic.Bool
	for range 3 {
		wg.Go(func() {
			_, err := m.Up(t.Context())
			for err != nil { // as a daemon does that finds the database unavailable
				killed.Store(true)
				require.ErrorIs(t, err, store.ErrUnavailable)
				_, err = m.Up(t.Context())
			}
		})
	}
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		n := db.QueryInt(t, `select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'tasker-migrate'
			and datname = current_database() and (query like '%failed_plan_id = t.plan_id%' or query ilike 'create index concurrently%')`)
		return n > 0, "a migrator is at its online sections"
	})
	wg.Wait()
	require.True(t, killed.Load())
	require.Empty(t, differences(t, m))
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.step_attempts where task_state > 9 and failed_plan_id is null`))
}

// TestOldestProgram: a change that takes something away refuses the programs that it ends, those
// that read the first record of versions as well, and is refused while they run.
func TestOldestProgram(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	m := migratorOf(t, db)
	up(t, m)
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 2})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	firstRecord := func() int { return db.QueryInt(t, `select max(version_id) from tasker.tasker_schema_version`) }
	require.Equal(t, 105, firstRecord(), "programs of version 105 go on")

	db.Exec(t, `insert into tasker.schema_changes (version, name, oldest) values ($1, 'newer.sql', 0)`, store.SchemaVersion+1)
	require.NoError(t, s.CheckSchema(t.Context()), "it only adds")
	db.Exec(t, `update tasker.schema_changes set oldest = $1 where name = 'newer.sql'`, store.SchemaVersion)
	require.NoError(t, s.CheckSchema(t.Context()), "it leaves this program at work")
	db.Exec(t, `update tasker.schema_changes set oldest = $1 where name = 'newer.sql'`, store.SchemaVersion+1)
	err = s.CheckSchema(t.Context())
	require.ErrorIs(t, err, store.ErrSchema)
	require.ErrorContains(t, err, fmt.Sprintf("change newer.sql leaves programs from %d on at work", store.SchemaVersion+1))
	list, err := m.Status(t.Context())
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(list, func(a, b store.MigrationStatus) int { return int(a.Version - b.Version) }))
}
