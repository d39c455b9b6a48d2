package store

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

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
	waitingTasks  = flag.Int("plans.waiting", 100_000, "waiting tasks on the board under test")
	finishedTasks = flag.Int("plans.finished", 50_000, "finished tasks in the ledger under test")
	plansFile     = flag.String("plans.out", "", "where to write the plans that were executed, as Markdown")
)

// itemsOf one statement: a quiet moment and the largest batches that occur.
var itemsOf = []int{20, 500}

var bigTables = []string{"board", "tasks", "step_attempts", "dlq_entries", "task_identities", "workers", "schedules", "domain_events", "batches", "former_batches"}

// TestHotStatementsStayOnTheirIndexes runs every hot statement over a large board, with
// custom and generic plans, and checks the executed plans.
func TestHotStatementsStayOnTheirIndexes(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a large board")
	}
	report := newPlanReport(t)
	db := openPlans(t)
	small := fixture{finished: 1000, waiting: 10_000}
	if report != nil {
		other := openPlans(t)
		small.fill(t, other)
		report.measure(t, other, small)
	}
	big := fixture{finished: *finishedTasks, waiting: *waitingTasks}
	big.fill(t, db)
	if report != nil {
		report.measure(t, db, big)
		report.write(t)
	}
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		t.Run(mode, func(t *testing.T) {
			e := newExplainer(t, db.DSN, mode)
			for _, items := range itemsOf {
				for _, c := range big.hotStatements(t, db, items) {
					t.Run(fmt.Sprintf("%s/%d", c.name, items), func(t *testing.T) { e.check(t, c) })
				}
			}
		})
	}
}

// TestPlansMadeOnSmallTablesHold: a fleet begins with an empty database and keeps the
// plans that it made there until the tables are analyzed, while its first backlog grows.
func TestPlansMadeOnSmallTablesHold(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a large board")
	}
	db := openPlans(t)
	small := fixture{waiting: 60}
	small.fill(t, db)
	e := newExplainer(t, db.DSN, "force_generic_plan")
	for _, c := range small.hotStatements(t, db, 1) {
		e.execute(t, c)
	}
	large := fixture{from: small.waiting, waiting: 50_000, grown: true}
	large.fill(t, db)
	for _, c := range large.hotStatements(t, db, 100) {
		t.Run(c.name, func(t *testing.T) { e.check(t, c) })
	}
}

// TestPlansMadeAmongTheDeadHold: while a session holds an old snapshot, the table may be
// analyzed when it holds only dead rows. It then looks empty although it is as long as
// before.
func TestPlansMadeAmongTheDeadHold(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a large board")
	}
	db := openPlans(t)
	dead := fixture{waiting: 60_000}
	dead.fill(t, db)
	holder, err := db.Pool(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	var n int
	require.NoError(t, holder.QueryRow(t.Context(), `select count(*) from tasker.board`).Scan(&n))
	db.Exec(t, `delete from tasker.board`)
	db.Exec(t, `vacuum analyze tasker.board`)
	alive := fixture{from: dead.waiting, waiting: 20_000, grown: true}
	alive.fill(t, db)
	e := newExplainer(t, db.DSN, "force_generic_plan")
	// These begin at the beginning of an index, or between lanes, and read the dead rows
	// there: that is the purpose of the frontier.
	walking := []string{"claimAll", "firstTimes", "horizon", "attention", "queueDepth", "unservedLanes", "promoteDue", "expireLeases"}
	for _, c := range alive.hotStatements(t, db, 20) {
		if !slices.Contains(walking, c.name) {
			t.Run(c.name, func(t *testing.T) { e.check(t, c) })
		}
	}
}

func openPlans(t *testing.T) *pgtest.DB {
	hash, err := SchemaHash()
	require.NoError(t, err)
	db := pgtest.NewMigrated(t, hash, func(ctx context.Context, dsn string) error {
		m, err := NewMigrator(dsn)
		if err == nil {
			_, err = m.Up(ctx)
		}
		return err
	})
	return db
}

// fixture is a board of callable 1 with steps in all states, two of its lanes, and the
// ledger of ended tasks.
type fixture struct {
	from     int // the first of its numbers, less one
	finished int
	waiting  int
	grown    bool // added to another one, without causing new plans
}

func (f fixture) fill(t *testing.T, db *pgtest.DB) {
	start := time.Now()
	const secondary = `select coalesce(string_agg(indexdef, ';'), '') from pg_indexes where schemaname = 'tasker'
		and indexname in ('board_claimable', 'board_reported', 'board_reported_apart', 'board_due', 'board_lease')`
	indexes := db.QueryString(t, secondary)
	if !f.grown { // most indexes are built afterwards
		db.Exec(t, `drop index tasker.board_claimable, tasker.board_reported, tasker.board_reported_apart, tasker.board_due, tasker.board_lease`)
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
	first, ended, last := f.from+1, f.from+f.finished, f.from+f.finished+f.waiting
	db.Exec(t, `insert into tasker.tasks (task_uuid, requested_at, plan_id, queue, priority, context)
		select test_id(i), now(), 1, 1, 0, '{"n": 1}' from generate_series($1::int, $2::int) i`, first, last)
	db.Exec(t, `insert into tasker.step_attempts (task_uuid, token, step_no, attempt, outcome, result, task_state, task_progress)
		select test_id(i), i, 0, 1, 1, '{"n": 1}', 9, decode(repeat('00', 14), 'hex') from generate_series($1::int, $2::int) i`, first, ended)
	for run, table := range []string{"former_batches", "batches"} { // three of every tenth task
		db.Exec(t, `insert into tasker.`+table+` (task_uuid, step_no, template_no, first_no, name, cursor, no_op, created_at, run, since)
			select test_id(i), n, 1, 2, 'b', '{}', false, now(), $3, $3 + i from generate_series($1::int, $2::int) i cross join generate_series(2, 4) n where i % 10 = 0`, first, last, run)
	}
	f.place(t, db, ended, last)
	if f.grown {
		return
	}
	for _, index := range strings.Split(indexes, ";") {
		db.Exec(t, index)
	}
	db.Exec(t, `select setval('tasker.step_seq', $1), setval('tasker.claim_token', $1)`, 2*last+1_000_000)
	if f.finished > 0 {
		db.Exec(t, `analyze`)
	}
	t.Logf("filled in %v", time.Since(start).Round(time.Second))
}

// place puts the steps on the board. Of twenty: 16 claimable, 2 scheduled, 1 running, 1
// reported. Every other twenty are in their tasks' rows, every third task's context in
// the ledger.
func (f fixture) place(t *testing.T, db *pgtest.DB, after, last int) {
	const numbers = `(select i, i / 20 % 2 = 0 as inline,
			case when i % 20 < 16 then 2 when i % 20 < 18 then 1 when i % 20 = 18 then 3 else 4 end as state
		from generate_series($1::int + 1, $2::int) i where $3::int > 0) n`
	const step = `1, i, 1, 200 + i % 2, state, 1, case when state >= 3 then i end,
		case when state = 1 then now() + (i - $3) * interval '1 s' end,
		case when state = 3 then now() + (i - $3) * interval '1 s' end,
		case when state = 4 then 1 end, '{0}'::smallint[], case when i % 7 = 0 then array['gpu'] end`
	const task = `1, 4, 0, decode(repeat('00', 14), 'hex'), now(), case when i % 3 > 0 then '{"n": 1}'::jsonb end`
	db.Exec(t, `insert into tasker.board (task_uuid, slot, queue, plan_id, task_state, priority, progress, requested_at, context,
			callable, seq, step_no, lane, state, attempt, token, due_at, lease_until, outcome, parents, tags)
		select test_id(i), 0, 1, `+task+`, `+step+` from `+numbers+` where inline
		union all
		select test_id(i), 0, 1, `+task+`, 0, 0, null, 0, 0, 0, null, null, null, null, null, null from `+numbers+` where not inline`, after, last, f.youngest())
	db.Exec(t, `insert into tasker.board (task_uuid, slot, queue, callable, seq, step_no, lane, state, attempt, token, due_at, lease_until, outcome, parents, tags)
		select test_id(i), 2, 1, `+step+` from `+numbers+` where not inline`, after, last, f.youngest())
}

// youngest is where the statements begin to find their rows.
func (f fixture) youngest() int { return f.from + f.finished + f.waiting*4/10 }

// hotStatement is a statement with its arguments.
type hotStatement struct {
	name    string
	call    stmt.Call
	items   int
	touched int // rows that it must affect; 0: not checked
}

// endedTasks are the first tasks of a fixture that has count ended ones, at most
// most of them.
func endedTasks(t *testing.T, db *pgtest.DB, from, count, most int) uuids {
	rows, err := db.Pool(t).Query(t.Context(), `select test_id(i) from generate_series($1::int, $2::int) i`, from, from+min(count, most)-1)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
	require.NoError(t, err)
	return ids
}

// twoLanes are those of the fixture, from a mark.
func twoLanes(mark int64) lanesFrom {
	return lanesFrom{{laneKey{1, 200}, mark}, {laneKey{1, 201}, mark}}
}

// overdueArgs are those of overdue from the beginning of every list.
func overdueArgs(patience int64) args {
	return args{"due_from": longAgo, "lease_from": longAgo, "lone": int64(0), "apart": int64(0), "patience_ms": patience}
}

func (f fixture) hotStatements(t *testing.T, db *pgtest.DB, perStatement int) []hotStatement {
	pool := db.Pool(t)
	keys := func(state int) []ClaimKey {
		rows, err := pool.Query(t.Context(), `select task_uuid, slot, step_no, coalesce(token, 0) from tasker.board
			where state = $1 and seq > $3 order by seq limit $2`, state, perStatement, f.youngest())
		require.NoError(t, err)
		list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ClaimKey])
		require.NoError(t, err)
		require.Len(t, list, perStatement)
		return list
	}
	mark := int64(f.youngest())
	plan := &Plan{Plan: compiled(t), ID: 1, Queue: 1, Callables: []int32{1, 2}}
	worker := uuid.Must(uuid.NewV7())
	held := inLockOrder(keys(3))
	var tasks uuids
	var steps []stepKey
	var rows []rowKey
	for _, k := range held {
		tasks, steps, rows = append(tasks, k.TaskUUID), append(steps, stepKey{k.TaskUUID, k.Step}), append(rows, rowKey{k.TaskUUID, int16(k.Slot)})
	}
	reports, checkpoints := make([]Report, perStatement), make([]Checkpoint, perStatement)
	order := make([]int, perStatement)
	for i, k := range keys(3) {
		reports[i], order[i] = Report{ClaimKey: k, Success: true, Result: json.RawMessage(`{"n": 1}`), RetryAfter: -1}, i
		checkpoints[i] = Checkpoint{ClaimKey: k, Cursor: json.RawMessage(`500`), Items: 500, Accumulated: json.RawMessage(`{"sum": 1}`)}
	}
	isolating := slices.Clone(reports)
	for i := range isolating {
		isolating[i].Isolated = json.RawMessage(`[{"item": 1, "error": {}}]`)
	}
	fresh := make([]NewTask, perStatement)
	for i := range fresh {
		identity := workflow.KeyIdentity("big", "p", fmt.Sprint(i))
		fresh[i] = NewTask{UUID: uuid.Must(uuid.NewV7()), Plan: plan, Context: json.RawMessage(`{}`),
			CorrelationID: worker, Identity: &identity}
	}
	created, _, err := creation(fresh, distinctIdentities(fresh), nil)
	require.NoError(t, err)

	lanes := twoLanes(mark)
	everywhere, beyond := lanes.arguments(), twoLanes(1<<60)
	claim := ClaimRequest{Worker: worker, Lease: time.Minute, Limit: perStatement}
	ahead := claim
	ahead.Ahead = perStatement / 2
	full := func(scan *scanStatement, from lanesFrom, req *ClaimRequest) stmt.Call {
		return scan.of(req, from.arguments().And(args{"callables": []int32{2, 1, 3}}))
	}
	tagged := claim
	tagged.Tags = []string{"gpu"}
	processor := args{"processor": worker, "id": "p", "hostname": "h", "version": "v", "mode": "m", "address": "h:1", "rules": nil, "rules_ms": 1000}
	done := endedTasks(t, db, f.from+1, f.finished, perStatement)
	list := []hotStatement{
		{"taskEnds", taskEnds.With(args{"tasks": slices.Concat(done, tasks)}), perStatement + len(done), len(done)},
		{"claimSteps from the board", claimFromBoard.fromMarks.of(&claim, args{"l": lanes}), perStatement, perStatement},
		{"claimSteps from the ledger", claimFromLedger.fromMarks.of(&claim, args{"l": lanes}), perStatement, perStatement},
		{"claim of what is not there", claimFromBoard.fromMarks.of(&claim, args{"l": beyond}), perStatement, 0},
		{"claim from the frontier of what is not there", full(&claimFromBoard.full, beyond, &claim), perStatement, 0},
		{"claim from the frontier", full(&claimFromBoard.full, lanes, &claim), perStatement, perStatement},
		{"firstClaimable", firstClaimable.With(everywhere), 2, 2},
		{"claimAll", full(&claimFromLedger.full, lanesFrom{}, &tagged), perStatement, perStatement},
		{"claim ahead", claimFromBoard.fromMarks.of(&ahead, args{"l": lanes}), perStatement, perStatement},
		{"claim ahead from the frontier", full(&claimFromBoard.full, lanes, &ahead), perStatement, perStatement},
		{"beginClaims", beginClaims.With(args{"worker": worker, "token": mark, "before": mark - 1000}), 1, 1},
		{"reportSteps", reportSteps.With(args{"r": reportRows(reports, order)}), perStatement, perStatement},
		{"keepIsolated", keepIsolated.With(args{"r": isolatedRows(isolating, order)}), 2 * perStatement, 0},
		{"readIsolated", readIsolated.With(args{"task": tasks[0], "after_step": 0, "after_no": 0, "worker": nil, "batch": "", "retryable": nil, "replayed": nil, "limit": perStatement}), perStatement, 0},
		{"saveCheckpoints", savedCheckpoints(checkpoints, order, 20, time.Minute), perStatement, perStatement},
		{"resumeSteps", resumeSteps.With(args{"r": steps}), perStatement, 0},
		{"fetchInputs", fetchInputs.With(args{"k": rows}), perStatement, perStatement},
		{"handBack", handBack.With(args{"r": held}), perStatement, perStatement},
		{"releaseLeases", releaseLeases.With(args{"r": held}), perStatement, perStatement},
		{"take_reported", takeReported.With(args{"lone": mark, "apart": mark, "limit": perStatement}), 2 * perStatement, 0},
		{"firstReported", firstReported.With(args{"lone": mark, "apart": mark}), 1, 1},
		{"firstTimes", firstTimes.With(args{"due_from": longAgo, "lease_from": longAgo}), 1, 1},
		{"takeTasks", takeTasks.With(args{"tasks": tasks}), perStatement, perStatement},
		{"promoteDue", promoteDue.With(args{"limit": perStatement, "from": longAgo}), perStatement, 0},
		{"expireLeases", expireLeases.With(args{"limit": perStatement, "from": longAgo}), perStatement, 1},
		{"horizon", horizon.With(args{"due_from": longAgo, "lease_from": longAgo}), 1, 1},
		{"workerHeartbeat", workerHeartbeat.With(args{"worker": worker, "id": "w", "hostname": "h", "version": "v", "mode": "m", "namespaces": []string{"big"},
			"h": held, "lease_ms": int64(60_000), "tags": []string{}, "refused": []byte(`[]`), "address": "h:1", "callables": []int32{1}, "handlers": []string{"a"}}), perStatement, 0},
		{"processorAlive", processorAlive.With(processor), 1, 1},
		{"attention", attention.With(processor.And(everywhere).And(overdueArgs(10_000))), 2, 0},
		{"unservedLanes", unservedLanes.With(everywhere.And(args{"alive_ms": int64(30_000), "limit": perStatement})), perStatement, 1},
		{"unservedSteps", unservedSteps.With(args{"alive_ms": int64(30_000), "task": tasks[0]}), 2, 0},
		{"createTasks", created, perStatement, perStatement},
		{"readTaskRow", readTaskRow.With(args{"tasks": tasks, "context": true}), perStatement, perStatement},
		{"readBoard", readBoard.With(args{"tasks": tasks, "results": true}), 2 * perStatement, 0},
		{"queueDepth", queueDepth.With(everywhere.And(args{"limit": perStatement})), perStatement, 2}, // the other queue is empty
		{"readAttempts", readAttempts.With(args{"tasks": tasks, "results": true}), perStatement, 0},
	}
	list = append(list, hotStatement{"claimPut", claimPut.With(args{"worker": worker, "lease_ms": int64(60_000), "k": rows}), 2 * perStatement, 0})
	var p publishing
	for _, id := range tasks {
		p.events = append(p.events, newEvent{TaskUUID: id, NamespaceID: 1, Attempt: 1, Outcome: workflow.OutcomeSuccess, Name: "a.b", StepName: "a", FiredBy: "a"})
	}
	list = append(list, hotStatement{"readEvents", readEvents.With(args{"k": steps}), perStatement, 0},
		hotStatement{"publishEvents", publishEvents.With(args{"o": p.events}), perStatement, perStatement})
	return append(append(list, settleStatements(t, plan, keys(3))...), applyStatements(t, plan, keys(4))...)
}

// applyStatements has every statement of a commit, as Commit makes it.
func applyStatements(t *testing.T, plan *Plan, keys []ClaimKey) []hotStatement {
	var w writes
	progress := workflow.NewProgress(plan.Plan)
	for _, k := range keys {
		task := &TakenTask{UUID: k.TaskUUID, Plan: plan}
		w.gone = append(w.gone, goneRow{TaskUUID: k.TaskUUID, Slot: k.Slot, Outcome: workflow.OutcomeSuccess})
		w.retried = append(w.retried, retriedStep{TaskUUID: k.TaskUUID, Slot: k.Slot, Outcome: workflow.OutcomeFailed, DueIn: time.Second, Lane: 200})
		change := &Change{Task: task, Progress: progress, Effects: &workflow.Effects{Put: []workflow.PutStep{{Step: 0}}}}
		w.putRows(change)
		m := movedTask{TaskUUID: k.TaskUUID, State: workflow.TaskStepsInProcess, Progress: progress.Encode()}
		if k.Slot == 0 {
			m.Outcome = workflow.OutcomeSuccess
		}
		m.step(change, workflow.PutStep{Step: 1})
		w.moved = append(w.moved, m)
		w.events = append(w.events, taskEvent{k.TaskUUID, workflow.TaskStepsInProcess, workflow.TaskError, "a", "r", nil})
	}
	b := &pgx.Batch{}
	w.queue(b, uuid.Nil)
	names := []string{"leaveBoard", "retrySteps", "putSteps", "moveTasks", "recordEvents"}
	require.Len(t, b.QueuedQueries, len(names))
	var list []hotStatement
	for i, q := range b.QueuedQueries {
		list = append(list, hotStatement{names[i], stmt.Call{SQL: q.SQL, Args: q.Arguments}, len(keys), len(keys)})
	}
	return list
}

func compiled(t *testing.T) *workflow.Plan {
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

// explainer runs statements on a connection that sends the plan of everything it
// executes, also inside functions, as a notice (auto_explain).
type explainer struct {
	conn  *pgx.Conn
	plans []string
}

func newExplainer(t *testing.T, dsn, mode string) *explainer {
	e := &explainer{}
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
	for name, value := range planner {
		settings = append(settings, `set `+name+` = `+value)
	}
	for _, setting := range settings {
		_, err := e.conn.Exec(t.Context(), setting)
		require.NoError(t, err, setting)
	}
	return e
}

// execute executes a statement in a transaction that is rolled back.
func (e *explainer) execute(t *testing.T, c hotStatement) {
	tx, err := e.conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), c.call.SQL, c.call.Args...)
	require.NoError(t, err, c.name)
}

// explain executes a statement in a transaction that is rolled back and returns the
// executed plans and the duration.
func (e *explainer) explain(t *testing.T, c hotStatement) ([]planNode, time.Duration) {
	tx, err := e.conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `set local auto_explain.log_min_duration = 0`)
	require.NoError(t, err)
	e.plans = nil
	start := time.Now()
	tag, err := tx.Exec(t.Context(), c.call.SQL, c.call.Args...)
	require.NoError(t, err)
	took := time.Since(start)
	// The plan of a query is sent when its portal is closed: by the next one.
	_, err = tx.Exec(t.Context(), `set local auto_explain.log_min_duration = -1`)
	require.NoError(t, err)
	if c.touched > 0 {
		require.EqualValues(t, c.touched, tag.RowsAffected(), "the statement must affect rows")
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

// check executes a statement and judges the plans that were executed.
func (e *explainer) check(t *testing.T, c hotStatement) {
	plans, took := e.explain(t, c)
	blocks := 0
	for i := range plans {
		plans[i].walk(func(n *planNode) {
			blocks = max(blocks, n.Hit+n.Read)
			for _, table := range bigTables {
				if n.Type == "Seq Scan" && isPartOf(n.Relation, table) && n.rows() > 0 {
					t.Errorf("sequential scan of %s in\n%s", n.Relation, e.plans[i])
				}
				if isPartOf(n.Relation, table) && n.rows() > float64(c.items*maxRows) {
					t.Errorf("%s walks over %.0f rows of %s in\n%s", n.Type, n.rows(), n.Relation, e.plans[i])
				}
			}
		})
	}
	limit := c.items*maxBlocks + freeBlocks
	t.Logf("%5d blocks (at most %d), %v", blocks, limit, took.Round(100*time.Microsecond))
	if blocks > limit {
		t.Errorf("%d blocks touched, more than %d:\n%s", blocks, limit, strings.Join(e.plans, "\n"))
	}
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

// rows is how many rows a scan walked over; an empty partition may be scanned
// as the planner likes.
func (n *planNode) rows() float64 { return n.Loops * (n.Rows + n.Removed) }

func (n *planNode) walk(visit func(*planNode)) {
	visit(n)
	for i := range n.Plans {
		n.Plans[i].walk(visit)
	}
}
