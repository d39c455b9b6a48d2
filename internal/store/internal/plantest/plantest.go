// Package plantest checks the executed plans of statements, on large tables and with plans
// made while the tables were small. It is for the tests of the rooms.
package plantest

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store/internal/migration"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// Statements are those of a room for a fixture, each with as many items as it can carry.
type Statements func(f Fixture, t *testing.T, db *pgtest.DB, items int) []Statement

// Hot runs hot statements over a large board, with custom and generic plans, and checks the
// executed plans.
func Hot(t *testing.T, statements Statements) {
	if testing.Short() {
		t.Skip("fills a large board")
	}
	report := newPlanReport(t)
	db := Open(t)
	small := Fixture{Finished: 1000, Waiting: 10_000}
	if report != nil {
		other := Open(t)
		small.Fill(t, other)
		report.measure(t, other, small, statements)
	}
	big := Fixture{Finished: cmp.Or(*finishedTasks, 50_000), Waiting: cmp.Or(*waitingTasks, 100_000)}
	big.Fill(t, db)
	if report != nil {
		report.measure(t, db, big, statements)
		report.write(t)
	}
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		t.Run(mode, func(t *testing.T) {
			e := NewExplainer(t, db.DSN, mode)
			for _, items := range itemsOf {
				for _, c := range statements(big, t, db, items) {
					t.Run(fmt.Sprintf("%s/%d", c.Name, items), func(t *testing.T) { e.Check(t, c) })
				}
			}
		})
	}
}

// SmallTables checks plans made on small tables: a fleet begins with an empty database and keeps the plans that it made there
// until the tables are analyzed, while its first backlog grows.
func SmallTables(t *testing.T, statements Statements) {
	if testing.Short() {
		t.Skip("fills a large board")
	}
	db := Open(t)
	small := Fixture{Waiting: 60}
	small.Fill(t, db)
	e := NewExplainer(t, db.DSN, "force_generic_plan")
	for _, c := range statements(small, t, db, 1) {
		e.Execute(t, c)
	}
	large := Fixture{From: small.Waiting, Waiting: 50_000, Grown: true}
	large.Fill(t, db)
	for _, c := range statements(large, t, db, 100) {
		t.Run(c.Name, func(t *testing.T) { e.Check(t, c) })
	}
}

// AmongTheDead checks plans made among dead rows: while a session holds an old snapshot, the table may be analyzed when it
// holds only dead rows. It then looks empty although it is as long as before. Some
// statements walk through these rows.
func AmongTheDead(t *testing.T, statements Statements, walking []string) {
	if testing.Short() {
		t.Skip("fills a large board")
	}
	db := Open(t)
	dead := Fixture{Waiting: 60_000}
	dead.Fill(t, db)
	holder, err := db.Pool(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	var n int
	require.NoError(t, holder.QueryRow(t.Context(), `select count(*) from tasker.board`).Scan(&n))
	db.Exec(t, `delete from tasker.board`)
	db.Exec(t, `vacuum analyze tasker.board`)
	alive := Fixture{From: dead.Waiting, Waiting: 20_000, Grown: true}
	alive.Fill(t, db)
	e := NewExplainer(t, db.DSN, "force_generic_plan")
	for _, c := range statements(alive, t, db, 20) {
		if !slices.Contains(walking, c.Name) {
			t.Run(c.Name, func(t *testing.T) { e.Check(t, c) })
		}
	}
}

// More adds rows to a fixture.
type More func(f Fixture, t *testing.T, db *pgtest.DB)

// Grown checks statements on large tables: with plans made while they were small, and with
// new ones. Those in late are not checked before the tables are analyzed.
func Grown(t *testing.T, more More, statements Statements, late ...string) {
	if testing.Short() {
		t.Skip("fills large tables")
	}
	db := Open(t)
	small := Fixture{Finished: 100, Waiting: 200}
	small.Fill(t, db)
	more(small, t, db)
	old := NewExplainer(t, db.DSN, "force_generic_plan")
	for _, c := range statements(small, t, db, 1) {
		old.Execute(t, c)
	}
	big := Fixture{From: small.Finished + small.Waiting, Finished: cmp.Or(*finishedTasks, 20_000), Waiting: cmp.Or(*waitingTasks, 60_000), Grown: true}
	big.Fill(t, db)
	more(big, t, db)
	check := func(t *testing.T, e *Explainer) {
		for _, c := range statements(big, t, db, 100) {
			if e != old || !slices.Contains(late, c.Name) {
				t.Run(c.Name, func(t *testing.T) { e.Check(t, c) })
			}
		}
	}
	t.Run("planned when small", func(t *testing.T) { check(t, old) })
	db.Exec(t, `analyze`)
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		t.Run(mode, func(t *testing.T) { check(t, NewExplainer(t, db.DSN, mode)) })
	}
}

// FewTemplates checks plans made with few templates: a fleet begins with one or two templates, and its connections keep the
// plans made then. With thousands of templates a statement that reads all to find one would
// do so for each of its tasks.
func FewTemplates(t *testing.T, more More, statements Statements) {
	t.Parallel()
	const items = 20
	small := Fixture{Finished: 100, Waiting: 200}
	big := Fixture{From: small.Finished + small.Waiting, Finished: 1000, Waiting: 5000, Grown: true}
	db := Open(t)
	small.Fill(t, db)
	more(small, t, db)
	old := NewExplainer(t, db.DSN, "force_generic_plan")
	for _, c := range statements(small, t, db, 1) {
		old.Execute(t, c)
	}
	fillRegistry(t, db)
	big.Fill(t, db)
	more(big, t, db)
	for _, c := range statements(big, t, db, items) {
		t.Run(c.Name, func(t *testing.T) { old.checkRegistry(t, c) })
	}
}

// Open returns a migrated database.
func Open(t testing.TB) *pgtest.DB {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(here), "../..")
	text, err := os.ReadFile(filepath.Join(root, "schema.sql"))
	require.NoError(t, err)
	files := migration.Files{Baseline: string(text), Migrations: os.DirFS(root)}
	hash, err := files.Hash()
	require.NoError(t, err)
	return pgtest.NewMigrated(t, hash, func(ctx context.Context, dsn string) error {
		m, err := files.Migrator(dsn, nil)
		if err == nil {
			_, err = m.Up(ctx)
		}
		return err
	})
}

// Nothing adds no rows.
func Nothing(Fixture, *testing.T, *pgtest.DB) {}

// The sizes of the board and the ledger under test. The bounds below do not depend on
// them: a plan that reads a whole table needs ten times what they allow.
const (
	// maxBlocks bounds the blocks that one item may touch: a few descents of
	// an index and the entries of a new row version.
	maxBlocks  = 40
	maxRows    = 8   // read per item; tags skip seven in claimAny
	freeBlocks = 300 // for one statement of any size
)

var (
	waitingTasks  = flag.Int("plans.waiting", 0, "waiting tasks on the board under test (default: tens of thousands)")
	finishedTasks = flag.Int("plans.finished", 0, "finished tasks in the ledger under test (default: tens of thousands)")
	plansFile     = flag.String("plans.out", "", "where to write the plans that were executed, as Markdown")
)

// itemsOf one statement: a quiet moment and the largest batches that occur.
var itemsOf = []int{20, 500}

var bigTables = []string{"board", "tasks", "step_attempts", "dlq_entries", "task_identities", "workers", "schedules", "domain_events", "batches", "former_batches", "transitions", "followed", "attempt_logs", "attempt_progress"}

// Statement is a statement with its arguments.
type Statement struct {
	Name    string
	Call    stmt.Call
	Items   int
	Touched int // rows that it must affect; 0: not checked
}

// Of is a statement; touched is as in Statement.
func Of(name string, call stmt.Call, items, touched int) Statement {
	return Statement{name, call, items, touched}
}

// Fixture is a board of callable 1 with steps in all states, two of its lanes, and the
// ledger of ended tasks.
type Fixture struct {
	From     int // the first of its numbers, less one
	Finished int
	Waiting  int
	Grown    bool // added to another one, without causing new plans
}

// Fill adds the rows of the fixture.
func (f Fixture) Fill(t *testing.T, db *pgtest.DB) {
	start := time.Now()
	const secondary = `select coalesce(string_agg(indexdef, ';'), '') from pg_indexes where schemaname = 'tasker'
		and indexname in ('board_claimable', 'board_reported', 'board_reported_apart', 'board_due', 'board_leases')`
	indexes := db.QueryString(t, secondary)
	if !f.Grown { // most indexes are built afterwards
		db.Exec(t, `drop index tasker.board_claimable, tasker.board_reported, tasker.board_reported_apart, tasker.board_due, tasker.board_leases`)
		// Version 7 UUIDs rising with i from a minute before midnight: plans are made
		// while the partition of the day is empty.
		db.Exec(t, fmt.Sprintf(`create function test_id(i int) returns uuid language sql immutable as $$
			select (lpad(to_hex(%d + i * 50::bigint), 12, '0')
				|| '7' || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid $$`, start.UTC().Truncate(24*time.Hour).Add(-time.Minute).UnixMilli()))
		db.Exec(t, `insert into tasker.namespaces (name) values ('big'), ('other')`)
		db.Exec(t, `insert into tasker.callables (namespace_id, callable, method, resolver) select 1 + i % 2, 'c' || i, '', '' from generate_series(0, 999) i`)
		db.Exec(t, `insert into tasker.plans (namespace_id, name, version, environment, content_hash, steps, template, current)
			values (1, 'p', '1.0.0', 'test', decode(repeat('00', 32), 'hex'), '{a,b}', '{}', true)`)
	}
	first, ended, last := f.From+1, f.From+f.Finished, f.From+f.Finished+f.Waiting
	db.Exec(t, `insert into tasker.tasks (task_uuid, requested_at, plan_id, queue, priority, context)
		select test_id(i), now(), 1, 1, 0, '{"n": 1}' from generate_series($1::int, $2::int) i`, first, last)
	db.Exec(t, `insert into tasker.step_attempts (task_uuid, token, step_no, attempt, outcome, result, task_state, task_progress)
		select test_id(i), i, 0, 1, 1, '{"n": 1}', 9, decode(repeat('00', 14), 'hex') from generate_series($1::int, $2::int) i`, first, ended)
	for run, table := range []string{"former_batches", "batches"} { // three of every tenth task
		db.Exec(t, `insert into tasker.`+table+` (task_uuid, step_no, template_no, first_no, name, cursor, no_op, created_at, run, since)
			select test_id(i), n, 1, 2, 'b', '{}', false, now(), $3, $3 + i from generate_series($1::int, $2::int) i cross join generate_series(2, 4) n where i % 10 = 0`, first, last, run)
	}
	f.place(t, db, ended, last)
	if f.Grown {
		return
	}
	for _, index := range strings.Split(indexes, ";") {
		db.Exec(t, index)
	}
	db.Exec(t, `select setval('tasker.step_seq', $1), setval('tasker.claim_token', $1)`, 2*last+1_000_000)
	if f.Finished > 0 {
		db.Exec(t, `analyze`)
	}
	t.Logf("filled in %v", time.Since(start).Round(time.Second))
}

// place puts the steps on the board. Of twenty: 16 claimable, 2 scheduled, 1 running, 1
// reported. Every other twenty are in their tasks' rows, every third task's context in
// the ledger.
func (f Fixture) place(t *testing.T, db *pgtest.DB, after, last int) {
	const numbers = `(select i, i / 20 % 2 = 0 as inline,
			case when i % 20 < 16 then 2 when i % 20 < 18 then 1 when i % 20 = 18 then 3 else 4 end as state
		from generate_series($1::int + 1, $2::int) i where $3::int > 0) n`
	const step = `1, i, 1, 200 + i % 2, state, 1, case when state >= 3 then i end,
		case when state = 1 then now() + (i - $3) * interval '1 s' end,
		case when state = 3 then now() + (i - $3) * interval '1 s' end,
		case when state = 4 then 1 end, '{0}'::smallint[], case when i % 7 = 0 then array['gpu'] end, case when state >= 3 then now() end`
	const task = `1, 4, 0, decode(repeat('00', 14), 'hex'), now(), case when i % 3 > 0 then '{"n": 1}'::jsonb end`
	db.Exec(t, `insert into tasker.board (task_uuid, slot, queue, plan_id, task_state, priority, progress, requested_at, context,
			callable, seq, step_no, lane, state, attempt, token, due_at, lease_until, outcome, parents, tags, claimed_at)
		select test_id(i), 0, 1, `+task+`, `+step+` from `+numbers+` where inline
		union all
		select test_id(i), 0, 1, `+task+`, 0, 0, null, 0, 0, 0, null, null, null, null, null, null, null from `+numbers+` where not inline`, after, last, f.Youngest())
	db.Exec(t, `insert into tasker.board (task_uuid, slot, queue, callable, seq, step_no, lane, state, attempt, token, due_at, lease_until, outcome, parents, tags, claimed_at)
		select test_id(i), 2, 1, `+step+` from `+numbers+` where not inline`, after, last, f.Youngest())
}

// Youngest is where the statements begin to find their rows.
func (f Fixture) Youngest() int { return f.From + f.Finished + f.Waiting*4/10 }

// EndedTasks are the first tasks of a Fixture that has count ended ones, at most
// most of them.
func EndedTasks(t *testing.T, db *pgtest.DB, from, count, most int) [][16]byte {
	rows, err := db.Pool(t).Query(t.Context(), `select test_id(i) from generate_series($1::int, $2::int) i`, from, from+min(count, most)-1)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
	require.NoError(t, err)
	return ids
}

// Compiled is the plan of the fixture's template.
func Compiled(t *testing.T) *workflow.Plan {
	tmpl, _, err := template.Parse("big.yaml", []byte(`
name: p
namespace_name: big
version: 1.0.0
steps:
  - name: a
    handler: {callable: a}
  - name: b
    dependencies: [a]
    handler: {callable: b}
`))
	require.NoError(t, err)
	p, err := workflow.Compile(tmpl.Resolve("test"))
	require.NoError(t, err)
	return p
}

// Explainer runs statements on a connection that sends the plan of everything it
// executes, also inside functions, as a notice (auto_explain).
type Explainer struct {
	conn  *pgx.Conn
	plans []string
}

// NewExplainer connects to a database; mode is a plan_cache_mode.
func NewExplainer(t *testing.T, dsn, mode string) *Explainer {
	e := &Explainer{}
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { e.plans = append(e.plans, n.Message) }
	e.conn, err = pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.conn.Close(context.WithoutCancel(t.Context())) })
	settings := []string{
		`load 'auto_explain'`,
		`set auto_explain.log_analyze = on`, `set auto_explain.log_buffers = on`, `set auto_explain.log_timing = off`,
		`set auto_explain.log_nested_statements = on`, `set auto_explain.log_format = json`,
		`set client_min_messages = log`, `set plan_cache_mode = ` + mode, `set statement_timeout = '10min'`,
	}
	for name, value := range pg.Planner {
		settings = append(settings, `set `+name+` = `+value)
	}
	for _, setting := range settings {
		_, err := e.conn.Exec(t.Context(), setting)
		require.NoError(t, err, setting)
	}
	return e
}

// Execute executes a statement in a transaction that is rolled back.
func (e *Explainer) Execute(t *testing.T, c Statement) {
	tx, err := e.conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), c.Call.SQL, c.Call.Args...)
	require.NoError(t, err, c.Name)
}

// explain executes a statement in a transaction that is rolled back and returns the
// executed plans and the duration.
func (e *Explainer) explain(t *testing.T, c Statement) ([]planNode, time.Duration) {
	tx, err := e.conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `set local auto_explain.log_min_duration = 0`)
	require.NoError(t, err)
	e.plans = nil
	start := time.Now()
	tag, err := tx.Exec(t.Context(), c.Call.SQL, c.Call.Args...)
	require.NoError(t, err)
	took := time.Since(start)
	// The plan of a query is sent when its portal is closed: by the next one.
	_, err = tx.Exec(t.Context(), `set local auto_explain.log_min_duration = -1`)
	require.NoError(t, err)
	if c.Touched > 0 {
		require.EqualValues(t, c.Touched, tag.RowsAffected(), "the statement must affect rows")
	}
	require.NotEmpty(t, e.plans, "no plan was sent")
	var plans []planNode
	for _, text := range e.plans {
		_, document, found := strings.Cut(text, "plan:")
		require.True(t, found, text)
		var explained struct{ Plan planNode }
		require.NoError(t, json.Unmarshal([]byte(document), &explained))
		plans = append(plans, explained.Plan)
	}
	return plans, took
}

// Check executes a statement and judges the plans that were executed. One that touches too many blocks
// is executed once more: it may be the first to meet, and to mark, dead versions of its rows, which the
// statements before it left when they were rolled back.
func (e *Explainer) Check(t *testing.T, c Statement) {
	limit := c.Items*maxBlocks + freeBlocks
	blocks := e.judged(t, c, limit)
	if blocks > limit {
		blocks = e.judged(t, c, limit)
	}
	if blocks > limit {
		t.Errorf("%d blocks touched, more than %d:\n%s", blocks, limit, strings.Join(e.plans, "\n"))
	}
}

// judged executes a statement, judges the rows that its plans walk over, and returns the blocks that the
// plan with the most touched.
func (e *Explainer) judged(t *testing.T, c Statement, limit int) (blocks int) {
	plans, took := e.explain(t, c)
	for i := range plans {
		plans[i].walk(func(n *planNode) {
			blocks = max(blocks, n.Hit+n.Read)
			for _, table := range bigTables {
				if n.Type == "Seq Scan" && isPartOf(n.Relation, table) && n.rows() > 0 {
					t.Errorf("sequential scan of %s in\n%s", n.Relation, e.plans[i])
				}
				if isPartOf(n.Relation, table) && n.rows() > float64(c.Items*maxRows) {
					t.Errorf("%s walks over %.0f rows of %s in\n%s", n.Type, n.rows(), n.Relation, e.plans[i])
				}
			}
		})
	}
	t.Logf("%5d blocks (at most %d), %v", blocks, limit, took.Round(100*time.Microsecond))
	return blocks
}

// isPartOf reports whether a relation is the table or one of its partitions.
func isPartOf(relation, table string) bool {
	return relation == table || relation == table+"_default" || strings.HasPrefix(relation, table+"_20")
}

// planNode is the relevant part of EXPLAIN's output. A node's blocks include those of the
// nodes below it.
type planNode struct {
	Type     string     `json:"Node Type"`
	Index    string     `json:"Index Name"`
	Subplan  string     `json:"Subplan Name"`
	Relation string     `json:"Relation Name"`
	Loops    float64    `json:"Actual Loops"`
	Rows     float64    `json:"Actual Rows"`
	Removed  float64    `json:"Rows Removed by Filter"`
	Hit      int        `json:"Shared Hit Blocks"`
	Read     int        `json:"Shared Read Blocks"`
	Plans    []planNode `json:"Plans"`
}

// rows is how many rows a scan read; the planner may scan an empty partition in any way.
func (n *planNode) rows() float64 { return n.Loops * (n.Rows + n.Removed) }

func (n *planNode) walk(visit func(*planNode)) {
	visit(n)
	for i := range n.Plans {
		n.Plans[i].walk(visit)
	}
}

// FillOperations gives every tenth ended task a closed dead letter and every tenth
// waiting one an open one; it spreads deadlines, identities and workers.
func (f Fixture) FillOperations(t *testing.T, db *pgtest.DB) {
	first, ended, last := f.From+1, f.From+f.Finished, f.From+f.Finished+f.Waiting
	db.Exec(t, `insert into tasker.dlq_entries (task_uuid, dlq_timestamp, queue, plan_id, original_state, reason, resolution,
			resolution_timestamp, detail, task_snapshot)
		select test_id(i), now() - (10000000 - i) * interval '1 ms', 1, 1, 10, 1 + i / 10 % 5, case when i <= $2 then 2 + i / 10 % 3 else 1 end,
			case when i <= $2 then now() - (10000000 - i) * interval '1 ms' end, 'd', '{}'
		from generate_series($1::int, $3::int) i where i % 10 = 0`, first, ended, last)
	db.Exec(t, `update tasker.board b set dead_letter = true from tasker.dlq_entries d where d.task_uuid = b.task_uuid and b.slot = 0 and d.resolution = 1`)
	db.Exec(t, `update tasker.board set task_state = 1, deadline = now() + (i - $2) * interval '1 s' from generate_series($1::int, $2::int) i
		where i % 5 = 0 and task_uuid = test_id(i) and slot = 0`, ended+1, last)
	db.Exec(t, `update tasker.board set checkpoint = jsonb_build_object('cursor', 1, 'items_processed', 1, 'timestamp', '2020-01-01T00:00:00Z', 'history', '[]'::jsonb)
		where state = 3 and seq between $1 and $2 and seq % 40 < 20`, ended+1, last)
	db.Exec(t, `insert into tasker.task_identities (identity, task_uuid, expires_at)
		select substring(sha256(i::text::bytea) for 16), test_id(i), case when i % 3 = 0 then 'infinity' else now() + (i - $2) * interval '1 s' end
		from generate_series($1::int, $3::int) i`, first, (first+last)/2, last)
	db.Exec(t, `insert into tasker.workers (worker_uuid, worker_id, hostname, version, mode, namespaces, status, status_since, heartbeat_at)
		select test_id(i), 'w', 'h', 'v', 'm', '{}', case when i % 100 = 0 then 1 else 3 end, now() - i * interval '1 hour',
			now() - case when i % 100 = 0 then interval '40 s' else i * interval '1 hour' end
		from generate_series($1::int, $2::int) i where i % 10 = 0`, first, last)
	db.Exec(t, `insert into tasker.schedules (schedule_uuid, namespace_id, name, template, version, cron, time_zone, context, priority, tags, catch_up,
			max_catch_up, overlap, jitter_seconds, next_run_at, last_task_uuid, paused_at, paused_by)
		select test_id(i), 1, 's' || i, 'p', '1.0.0', '@daily', 'UTC', '{}', 0, '{}', 1, 1, 2, 0, now() + (i - $2) * interval '1 s', test_id(i),
			case when i % 3 = 0 then now() end, case when i % 3 = 0 then 'a' end
		from generate_series($1::int, $3::int) i where i % 4 = 0`, first, (first+last)/2, last)
	db.Exec(t, `with linked as (
			update tasker.tasks t set continues_task_uuid = test_id(i - 1) from generate_series($2::int - 50, $2::int) i where t.task_uuid = test_id(i) returning i)
		insert into tasker.task_events (task_uuid, from_state, to_state, actor, metadata)
		select test_id(i - 1), 4, 4, 'w', jsonb_build_object('continued_by', test_id(i), 'step', 0, 'token', i) from linked where i > $1`, first, last)
	db.Exec(t, `insert into tasker.operator_actions (actor, action, reason, target, matched, changed, dry_run, at)
		select 'a' || i % 10, 'b' || i % 10, 'c', case when i % 2 = 0 then '{"namespace":"big"}' else '{}' end::jsonb, 1, 1, false, now() - ($2 - i) * interval '1 s' from generate_series($1::int, $2::int) i`, first, last)
}

// FillWaits gives every tenth living task a waiting step and one to begin, a kept event
// and a delivered one, and a dependency.
func (f Fixture) FillWaits(t *testing.T, db *pgtest.DB) {
	first, last := f.From+f.Finished+1, f.From+f.Finished+f.Waiting
	db.Exec(t, `insert into tasker.board (task_uuid, slot, step_no, queue, lane, state, seq, attempt, token, claimed_at, wait, awaits)
		select test_id(i), 9, 8, 0, 200, 1, nextval('tasker.step_seq'), 1, nextval('tasker.claim_token'), now(), '{"kind":"wait_for_event"}', 'e' || i
		from generate_series($1::int, $2::int) i where i % 10 = 0`, first, last)
	db.Exec(t, `insert into tasker.board (task_uuid, slot, step_no, queue, lane, state, seq, enqueued_at)
		select test_id(i), 10, 9, 0, 200, 2, nextval('tasker.step_seq'), now() from generate_series($1::int, $2::int) i where i % 10 = 0`, first, last)
	db.Exec(t, `insert into tasker.received_events (namespace_id, name, key, awaits, sender_id, expires_at, delivered)
		select 1, 'n', i::text, 'k' || i, i::text, now() + interval '1 hour', i % 2 from generate_series($1::int, $2::int) i`, first, last)
	db.Exec(t, `insert into tasker.task_dependencies (task_uuid, depends_on, lenient)
		select test_id(i), test_id(i + 1), false from generate_series($1::int, $2::int) i where i % 10 = 0`, first, last)
	db.Exec(t, `insert into tasker.domain_events (event_uuid, position, task_uuid, correlation_id, fired_at, namespace_id, step_no, attempt, outcome, name, version, fired_by, payload, key)
		select test_id(i), i, test_id(i), test_id(i), now(), 1, 0, 1, 1, 'a.b', '1.0', 'x', '{}', i::text from generate_series($1::int, $2::int) i`, first, last)
	db.Exec(t, `insert into tasker.event_deliveries (event_uuid) select test_id(i) from generate_series($1::int, $2::int) i where i % 10 = 0`, first, last)
	db.Exec(t, `insert into tasker.task_messages (task_uuid, kind) select test_id(i), 1 from generate_series($1::int, $2::int) i where i % 10 = 0`, first, last)
}

const otherTemplates = 3000

// fillRegistry adds other namespaces and many versions of the fixture's template. In
// every index they precede those that are looked up.
func fillRegistry(t *testing.T, db *pgtest.DB) {
	db.Exec(t, `insert into tasker.namespaces (namespace_id, name) overriding system value
		select -i, 'a' || i from generate_series(1, $1::int) i`, otherTemplates)
	db.Exec(t, `insert into tasker.plans (plan_id, namespace_id, name, version, environment, content_hash, steps, template, current) overriding system value
		select -i, 1, 'p', '0.0.' || i, 'test', sha256(i::text::bytea), '{a,b}', '{}', true from generate_series(1, $1::int) i`, otherTemplates)
}

// FillRegistryUse adds rows that refer to namespaces.
func (f Fixture) FillRegistryUse(t *testing.T, db *pgtest.DB) {
	f.FillOperations(t, db)
	f.FillWaits(t, db)
	db.Exec(t, `insert into tasker.event_consumers (namespace_id, name, patterns, position)
		select 1, 'c' || i, '{}', 0 from generate_series($1::int, $2::int) i`, f.From+1, f.From+20)
}

// checkRegistry executes a statement and bounds the templates and namespaces that it
// reads.
func (e *Explainer) checkRegistry(t *testing.T, c Statement) {
	everywhere := slices.Contains([]string{"queueDepth", "attention", "stuck"}, c.Name)
	if c.Name == "queueDepth" {
		c.Touched += otherTemplates
	}
	plans, took := e.explain(t, c)
	rows := map[string]float64{}
	for i := range plans {
		plans[i].walk(func(n *planNode) { rows[n.Relation] += n.rows() })
	}
	t.Logf("%.0f templates, %.0f namespaces, %v", rows["plans"], rows["namespaces"], took.Round(100*time.Microsecond))
	for _, table := range []string{"plans", "namespaces"} {
		limit := 2 * c.Items
		if table == "namespaces" && everywhere { // the others, and their signals
			limit += 2 * otherTemplates
		}
		if rows[table] > float64(limit) {
			t.Errorf("walks over %.0f rows of %s in\n%s", rows[table], table, e.plans)
		}
	}
}

// IDs returns as many UUIDs as there are items; the query gets the number last.
func IDs(t *testing.T, db *pgtest.DB, items int, query string, args ...any) []uuid.UUID {
	t.Helper()
	rows, err := db.Pool(t).Query(t.Context(), query, append(args, items)...)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	require.NoError(t, err)
	require.Len(t, list, items)
	return list
}
