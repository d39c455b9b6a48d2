package ledger

import (
	"cmp"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/plantest"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

var (
	listedTasks = flag.Int("lists.tasks", 0, "tasks in the ledger under test (default: 60,000)")
	listsFile   = flag.String("lists.out", "", "where to write the times, as Markdown")
)

// listFilters are single filters and pairs, of much and of little.
func listFilters(shared, few uuid.UUID, of func(i int) time.Time, count int) []struct {
	name   string
	filter TaskFilter
} {
	hour := func(f TaskFilter) TaskFilter {
		f.CreatedAfter, f.CreatedBefore = of(count/2), of(count/2).Add(time.Hour)
		return f
	}
	states := func(list ...workflow.TaskState) []workflow.TaskState { return list }
	return []struct {
		name   string
		filter TaskFilter
	}{
		{"none", TaskFilter{}},
		{"namespace of most", TaskFilter{Namespace: "n0"}},
		{"namespace of few", TaskFilter{Namespace: "n9"}},
		{"name of most", TaskFilter{Name: "flow0"}},
		{"name of few", TaskFilter{Name: "flow49"}},
		{"version", TaskFilter{Version: "2.0.0"}},
		{"text", TaskFilter{Text: "LOW4"}},
		{"complete", TaskFilter{States: states(workflow.TaskComplete)}},
		{"error", TaskFilter{States: states(workflow.TaskError)}},
		{"in process", TaskFilter{States: states(workflow.TaskStepsInProcess)}},
		{"blocked or resolved", TaskFilter{States: states(workflow.TaskBlockedByFailures, workflow.TaskResolvedManually)}},
		{"tag of many", TaskFilter{Tags: []string{"nightly"}}},
		{"tag of few", TaskFilter{Tags: []string{"vip"}}},
		{"correlation id of many", TaskFilter{CorrelationID: shared}},
		{"correlation id of few", TaskFilter{CorrelationID: few}},
		{"an hour", hour(TaskFilter{})},
		{"initiator", TaskFilter{Initiator: "ann"}},
		{"namespace and error", TaskFilter{Namespace: "n1", States: states(workflow.TaskError)}},
		{"name and an hour", hour(TaskFilter{Name: "flow1"})},
		{"tag and complete", TaskFilter{Tags: []string{"nightly"}, States: states(workflow.TaskComplete)}},
		{"correlation id and error", TaskFilter{CorrelationID: few, States: states(workflow.TaskError)}},
		{"text and initiator", TaskFilter{Text: "flow1", Initiator: "ann"}},
		{"initiator of none", TaskFilter{Initiator: "nobody"}},
		{"namespace, tag and initiator of none", TaskFilter{Namespace: "n1", Tags: []string{"nightly"}, Initiator: "nobody"}},
		{"namespace of few and tag of none", TaskFilter{Namespace: "n9", Tags: []string{"nightly"}}},
		{"error and initiator of none", TaskFilter{Initiator: "nobody", States: states(workflow.TaskError)}},
		{"complete and initiator of none", TaskFilter{Initiator: "nobody", States: states(workflow.TaskComplete)}},
	}
}

// TestListsOfALargeLedger bounds what lists read, and measures them for -lists.out.
func TestListsOfALargeLedger(t *testing.T) {
	if testing.Short() {
		t.Skip("fills a large ledger")
	}
	count := cmp.Or(*listedTasks, 60_000)
	db := plantest.Open(t)
	opened, err := pg.Open(t.Context(), pg.Options{URL: db.DSN})
	require.NoError(t, err)
	t.Cleanup(opened.Server().Close)
	plans, known := registry.New(opened)
	shared := uuid.New()
	fillLargeLedger(t, db, plans, shared, count)
	l := New(opened, known, nil)
	id := func(i int) uuid.UUID { return uuid.MustParse(db.QueryString(t, `select list_id($1)::text`, i)) }
	of := func(i int) time.Time {
		at := id(i)
		return time.UnixMilli(int64(binary.BigEndian.Uint64(at[:]) >> 16))
	}
	deep := id(count - count/5)
	report := listReport{db: db, ledger: l, newest: of(count).UTC().Format("20060102")}
	for _, c := range listFilters(shared, id((count-count/20)/100*100), of, count) {
		t.Run(c.name, func(t *testing.T) {
			c.filter.Limit = 25
			report.add(t, c.name, "first page, counted", c.filter)
			c.filter.Continued = true
			report.add(t, c.name, "first page", c.filter)
			c.filter.Before = deep
			report.add(t, c.name, "after a fifth of the tasks", c.filter)
		})
	}
	t.Run("what no task fits ends early", func(t *testing.T) {
		for _, f := range []TaskFilter{{Initiator: "nobody"}, {Initiator: "nobody", States: []workflow.TaskState{workflow.TaskComplete}}, {Namespace: "n0", Initiator: "nobody"}} {
			f.Limit = 25
			page, err := l.Tasks(t.Context(), f)
			require.NoError(t, err)
			require.Empty(t, page.Tasks)
			require.True(t, page.Estimated, "%+v", f)
			require.NotEqual(t, uuid.Nil, page.Next, "%+v looked at all tasks", f)
		}
	})
	if *listsFile != "" {
		report.write(t, count)
	}
}

// fillLargeLedger makes tasks of 30 days, the youngest fiftieth of them alive.
func fillLargeLedger(t *testing.T, db *pgtest.DB, plans *registry.Registry, shared uuid.UUID, count int) {
	var templates []*workflow.Template
	for i := range 50 {
		tmpl, _, err := template.Parse("t.yaml", fmt.Appendf(nil, "name: flow%d\nnamespace_name: n%d\nversion: %d.0.0\nsteps:\n  - {name: a, handler: {callable: a}}\n", i, min(i%10, i/5), 1+i%2))
		require.NoError(t, err)
		templates = append(templates, tmpl.Resolve("test"))
	}
	_, err := plans.RegisterTemplates(t.Context(), registry.Registrant{Environment: "test"}, templates)
	require.NoError(t, err)
	compiled, err := workflow.Compile(templates[0])
	require.NoError(t, err)
	start := time.Now().UTC().Truncate(24 * time.Hour).Add(-29 * 24 * time.Hour)
	step := (29*24*time.Hour + time.Hour).Milliseconds() / int64(count)
	db.Exec(t, fmt.Sprintf(`create function list_id(i int) returns uuid language sql immutable as $$
		select (lpad(to_hex(%d + i * %d::bigint), 12, '0') || '7' || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid $$`, start.UnixMilli(), max(step, 1)))
	for day := range 29 {
		at := start.Add(time.Duration(day) * 24 * time.Hour)
		for _, table := range []string{"tasks", "step_attempts"} {
			db.Exec(t, fmt.Sprintf(`do $$ begin execute format('create table if not exists tasker.%s_%s partition of tasker.%s for values from (%%L) to (%%L)',
				tasker.uuid_floor('%s'), tasker.uuid_floor('%s')); exception when invalid_object_definition then null; end $$`,
				table, at.Format("20060102"), table, at.Format(time.RFC3339), at.Add(24*time.Hour).Format(time.RFC3339)))
		}
	}
	for from := 1; from <= count; from += 250_000 {
		to := min(from+250_000-1, count)
		// A plan of each hundred thousand, one of each hundred, and so on.
		db.Exec(t, `insert into tasker.tasks (task_uuid, requested_at, plan_id, queue, priority, context, tags, correlation_id, initiator, source_system)
			select list_id(i), to_timestamp($4::float8 + i * $5::float8), p.plan_id, p.namespace_id, 0, '{"n": 1}',
				case when i % 20 = 0 then array['nightly', 'eu'] when i % 10000 = 1 then array['vip'] end,
				case when i % 50 = 0 then $3::uuid when i % 5 = 0 then list_id(i / 100 * 100) end,
				case when i % 3 = 0 then 'ann' else 'bob' end, 'shop'
			from generate_series($1::int, $2::int) i
			cross join lateral (select case when i % 30000 = 7 then 49 when i % 1000 = 7 then 9 + i % 40 when i % 3 = 0 then 1 + i % 9 else 0 end as no) k
			join tasker.plans p on p.name = 'flow' || k.no`, from, to, shared, float64(start.Unix()), float64(step)/1000)
		db.Exec(t, `insert into tasker.step_attempts (task_uuid, token, step_no, attempt, outcome, result, task_state, task_progress)
			select list_id(i), i, 0, 1, 1, '{"n": 1}', case when i % 100 = 3 then 10 when i % 200 = 5 then 11 when i % 1000 = 7 then 12 else 9 end, $3
			from generate_series($1::int, $2::int) i`, from, min(to, count-count/50), workflow.NewProgress(compiled).Encode())
	}
	db.Exec(t, `insert into tasker.board (task_uuid, slot, queue, lane, state, task_state, priority, progress, plan_id, requested_at)
		select list_id(i), 0, 1, 0, 0, case when i % 500 = 0 then 8 else 4 end, 0, $3, 1, now() from generate_series($1::int, $2::int) i`,
		count-count/50+1, count, workflow.NewProgress(compiled).Encode())
	db.Exec(t, `vacuum analyze`)
}

// listReport measures lists.
type listReport struct {
	db     *pgtest.DB
	ledger *Ledger
	newest string // the suffix of the youngest task's partition
	rows   []string
}

// maxListBlocks bounds the blocks that the first statement of a list touches: those of the
// tasks that it looks at, each with its state.
const maxListBlocks = 15

var digits = regexp.MustCompile(`\d+`)

var buffers = regexp.MustCompile(`shared hit=(\d+)(?: read=(\d+))?|shared read=(\d+)`)

func (r *listReport) add(t *testing.T, filter, what string, f TaskFilter) {
	plans, err := pg.ReadAll[int32](t.Context(), r.ledger.db, "list_plans", "", listPlans.With(pg.Args{
		"namespace": f.Namespace, "name": f.Name, "version": f.Version, "text": f.Text, "limit": maxListedPlans}))
	require.NoError(t, err)
	if f.Namespace+f.Name+f.Version+f.Text == "" {
		plans = nil
	}
	before, oldest := f.bounds()
	byTags, err := r.ledger.byTags(t.Context(), &f, before, oldest)
	require.NoError(t, err)
	q := searchOf(&f, plans, byTags)
	scan := r.ledger.scans.first
	var enough *int
	if f.Continued {
		enough = new(f.Limit + 1)
	}
	text, blocks := r.explain(t, q.call(q.statement, pg.Args{"before": before, "oldest": r.ledger.scans.recently(before, oldest), "each": max(scan/q.sources, r.ledger.scans.source), "skip": 0, "take": f.Limit + 1, "enough": enough}))
	require.LessOrEqual(t, blocks, scan*maxListBlocks+1000, text)
	// The newest partition has the tasks of an hour, on two pages. In the evening the last 24 hours
	// have fewer tasks than a list looks at, so all of it is read.
	few := "Seq Scan on tasks_" + r.newest
	require.NotRegexp(t, `Seq Scan on (tasks|step_attempts)_20\S+ .*rows=[1-9]`, strings.ReplaceAll(text, few, "All of the newest"))

	times := make([]time.Duration, 0, 200)
	rounds := 3
	if *listsFile != "" {
		rounds = cap(times)
	}
	var page TaskPage
	for range rounds {
		start := time.Now()
		page, err = r.ledger.Tasks(t.Context(), f)
		require.NoError(t, err)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	at := func(part float64) string {
		return fmt.Sprintf("%.1f", float64(times[int(part*float64(len(times)-1))].Microseconds())/1000)
	}
	total := strconv.Itoa(page.Total)
	if page.Estimated {
		total = "about " + total
	}
	if f.Continued {
		total = ""
	}
	r.rows = append(r.rows, fmt.Sprintf("| %s | %s | %d | %s | %d | %s | %s |", filter, what, len(page.Tasks), total, blocks, at(0.5), at(0.99)))
}

// explain executes a statement as lists do, and returns its plan and the blocks that it touched.
func (r *listReport) explain(t *testing.T, c stmt.Call) (text string, blocks int) {
	conn, err := r.ledger.db.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	b := &pgx.Batch{}
	b.Queue(pg.PlanForValues)
	var lines []string
	b.Queue(`explain (analyze, buffers, costs off, timing off, summary off) `+c.SQL, c.Args...).Query(stmt.Into(&lines))
	require.NoError(t, conn.SendBatch(t.Context(), b).Close())
	var kept strings.Builder
	seen := map[string]bool{} // what is the same for other partitions
	for _, line := range lines {
		same := digits.ReplaceAllString(line, "")
		if !strings.Contains(line, "never executed") && !seen[same] {
			kept.WriteString(line + "\n")
		}
		seen[same] = true
	}
	if found := buffers.FindStringSubmatch(kept.String()); found != nil {
		for _, digits := range found[1:] {
			n, _ := strconv.Atoi(digits)
			blocks += n
		}
	}
	return kept.String(), blocks
}

func (r *listReport) write(t *testing.T, count int) {
	text := fmt.Sprintf(`# Lists of a large ledger

Written by `+"`make plans`"+`: lists of 25 of %d tasks of 30 days on PostgreSQL %s, 200 times each, through the store with the steps of the
tasks read. A page looks at 5,000 tasks at most, and at 1,250 where each is looked up in another table, so it may be short.

| filter | what | tasks | total | blocks of the first statement | p50 ms | p99 ms |
| --- | --- | --: | --: | --: | --: | --: |
%s
`, count, r.db.QueryString(t, `show server_version`), strings.Join(r.rows, "\n"))
	require.NoError(t, os.WriteFile(*listsFile, []byte(text), 0o600))
}
