package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// TaskFilter selects tasks for a list; zero values select everything.
type TaskFilter struct {
	Namespace, Name, Version string
	Text                     string               // a part of the name, regardless of case
	States                   []workflow.TaskState // one of them
	Tags                     []string             // all of them
	CorrelationID            uuid.UUID
	CreatedAfter             time.Time // or at
	CreatedBefore            time.Time
	Initiator, SourceSystem  string

	Limit  int // 1–1,000
	Offset int
	// Before is a cursor: only older tasks. Continued says that the list goes on by cursors:
	// then the tasks are not counted.
	Before    uuid.UUID
	Continued bool
}

// TaskPage is one page of a list, newest first. The tasks that are looked at have a bound, so
// the page may be short of its limit, or empty, though more follow.
type TaskPage struct {
	Tasks []*Task
	// Unreadable are the tasks of the page that the database cannot read.
	Unreadable []uuid.UUID
	// Total counts the tasks that fit, unless the list is continued. It is Estimated where
	// the search would have to look at more than ExactCount tasks, or was cut off.
	Total     int
	Estimated bool
	Next      uuid.UUID // the cursor of what follows; nil: nothing does
}

// ExactCount is how many tasks are looked at to count those of a list.
const ExactCount = 20_000

const (
	// clockSkew is by how much the clock of a process that creates tasks, which their UUIDs
	// are of, may differ from that of the database.
	clockSkew = time.Minute
	// maxMergedPlans is how many plans are read one by one; the tasks of more are looked for
	// among all.
	maxMergedPlans = 200
	// maxListedPlans bounds the plans that a filter may select.
	maxListedPlans = 20_000
)

// scans are how many tasks lists look at.
type scans struct {
	first   int // by the first statement
	last    int // by all of a page, see budget
	tagged  int // by tags, which are found in no order; more are looked for among others
	counted int // to count
	most    int // by one statement
	source  int // of a source, at least: more than a task can have ends
	// recent is how far back the first statement looks: where all partitions come into
	// question, planning takes longer than the search.
	recent time.Duration
}

var scansOfLists = scans{first: 500, last: 5000, tagged: 5000, counted: ExactCount + 1, most: 200_000, source: 200, recent: 24 * time.Hour}

// budget is how many tasks the search for a page looks at: what few tasks fit shall take no longer
// than what many do, so that its page may be short. A page that many precede looks at more.
func (s *scans) budget(f *TaskFilter, q *search) int {
	budget := s.last
	if q.byShare { // each takes as long as four
		budget = max(budget/4, 1)
	}
	if !f.Continued {
		budget += 10 * f.Offset
	}
	return budget
}

var listPlans = pg.Compile(`
select p.plan_id from tasker.plans p join tasker.namespaces n using (namespace_id)
where (@namespace = '' or n.name = @namespace) and (@name = '' or p.name = @name) and (@version = '' or p.version = @version)
  and (@text = '' or strpos(lower(p.name), lower(@text)) > 0)
order by p.plan_id limit @limit`)

// source is a table of tasks that a search looks at. A task is in it once, and in one of
// several: it is on the board, or has one end, which is removed when it is reopened.
type source struct {
	table   string
	columns string // beside task_uuid, those that conditions may be about
	where   string // a condition that all rows meet
	key     string // a column with one of the values; the newest of each are merged
	values  string
	index   string // what the index demands beside, which would make an estimate too small
	fits    string // a condition that rows are checked for
	// unordered: an index finds the rows, in no order. The planner must not look for them among
	// all in order: where they are old, or fewer than it thinks, it would read all.
	unordered bool
}

// The range of a search, its conditions, and the columns that conditions are about.
const (
	inRange       = `task_uuid < @before and task_uuid >= @oldest`
	ofCorrelation = `coalesce(correlation_id, task_uuid) = @correlation`
	ofStatesGiven = `task_state = any (@states::smallint[])`
	ofTasks       = `plan_id correlation_id tags requested_at initiator source_system`
	ofEnds        = `task_state`
	storedEnd     = `coalesce((select task_state from tasker.board b where b.task_uuid = t.task_uuid and b.slot = 0),
		(select task_state from tasker.step_attempts a where a.task_uuid = t.task_uuid and ` + inRange + ` and a.task_state is not null limit 1))`
)

// The sources. A pending task that has been claimed is shown as steps_in_process but stored
// as pending; filters use the stored state. Those held are live ones in states that few are in.
// Indexes: the primary keys backwards, tasks_by_plan, tasks_by_correlation, tasks_by_tags,
// board_held, step_attempts_failed_by_state, step_attempts_failed_by_plan_state.
var (
	allTasks      = source{table: `tasker.tasks`, columns: ofTasks}
	byPlan        = source{table: `tasker.tasks`, columns: ofTasks, key: `plan_id`, values: `@plans::int[]`, index: `plan_id > 0`}
	tagged        = source{table: `tasker.tasks`, columns: ofTasks, where: `tags @> @tags`, unordered: true}
	byCorrelation = source{table: `tasker.tasks`, columns: ofTasks, where: `correlation_id = @correlation`}
	ofItself      = source{table: `tasker.tasks`, columns: ofTasks, where: `task_uuid = @correlation and correlation_id is null`}
	alive         = source{table: `tasker.board`, columns: ofEnds, where: `slot = 0`, fits: ofStatesGiven}
	held          = source{table: `tasker.board`, where: `slot = 0`, key: `task_state`, values: `@states::smallint[]`,
		index: `task_state > {task_in_process} and task_state < {task_complete}`}
	completed     = source{table: `tasker.step_attempts`, where: `task_state = {task_complete}`}
	failed        = source{table: `tasker.step_attempts`, key: `task_state`, values: `@states::smallint[]`, index: `task_state > {task_complete}`}
	failedOfPlans = source{table: `tasker.step_attempts`, columns: ofEnds, key: `failed_plan_id`, values: `@plans::int[]`, fits: ofStatesGiven}
)

// selected are the columns that fits is about: others may not be in the index.
func (x source) selected(fits string) string {
	columns := `task_uuid`
	for _, c := range strings.Fields(x.columns) {
		if strings.Contains(fits, c) {
			columns += `, ` + c
		}
	}
	return columns
}

// newest are up to @each rows of the source, the newest, or so many of each value of the key;
// n numbers them from the newest.
func (x source) newest(columns string) string {
	if x.unordered {
		return `(select ` + columns + `, row_number() over (order by task_uuid desc) as n from (` + x.whole(columns, inRange) +
			` offset 0) a order by task_uuid desc limit @each::int)`
	}
	rows := func(key string) string {
		return `(select ` + columns + `, row_number() over (order by task_uuid desc) as n from ` + x.table + ` where ` +
			and(inRange, x.where, x.index, key) + ` order by task_uuid desc limit @each::int)`
	}
	if x.key == "" {
		return rows("")
	}
	return `select l.* from unnest(` + x.values + `) k(v) cross join lateral ` + rows(x.key+` = k.v`) + ` l`
}

// whole are all rows of the source that meet further conditions, in no order.
func (x source) whole(columns string, further ...string) string {
	key := ""
	if x.key != "" {
		key = x.key + ` = any (` + x.values + `)`
	}
	return `select ` + columns + ` from ` + x.table + ` where ` + and(x.where, key, and(further...))
}

// search is how the tasks of a filter are found.
type search struct {
	statement, counting, estimate string
	args                          pg.Args
	sources                       int  // among which a scan is divided
	byShare                       bool // the estimate is of more than what fits: each task is looked up elsewhere
	// newestEnds finds the tasks sooner if many of the newest that have ended fit; nil: there
	// is no such way.
	newestEnds *search
}

// found is what a scan has found.
type found struct {
	Matched int
	Seen    int
	// Reached is above the tasks that the search has not looked at; nil: it looked at all.
	Reached *uuid.UUID
	Tasks   []uuid.UUID
}

var compiledLists sync.Map // of *stmt.Statement by their text, as many as there are kinds of filters

// callOf is a statement with those of the arguments that it names.
func callOf(text string, args pg.Args) stmt.Call {
	known, ok := compiledLists.Load(text)
	if !ok {
		known, _ = compiledLists.LoadOrStore(text, pg.Compile(text))
	}
	named := pg.Args{}
	for name, value := range args {
		if strings.Contains(text, "@"+name) {
			named[name] = value
		}
	}
	return known.(*stmt.Statement).With(named) //nolint:errcheck,forcetypeassert // the only type in it
}

// tagsEstimated is how the planner is asked how many tasks have all tags of a filter.
const tagsEstimated = `explain (format json) select 1 from tasker.tasks where tags @> @tags and ` + inRange

// searchOf makes the search of a filter. byTags: few tasks have its tags.
func searchOf(f *TaskFilter, plans []int32, byTags bool) *search {
	s := &search{sources: 1, args: pg.Args{}}
	var conditions []string // about a row of tasks
	add := func(set bool, condition, name string, value any) {
		if set {
			conditions, s.args[name] = append(conditions, condition), value
		}
	}
	add(plans != nil, `plan_id = any (@plans::int[])`, "plans", plans)
	add(len(f.Tags) > 0, `tags @> @tags`, "tags", f.Tags)
	add(!f.CreatedAfter.IsZero(), `requested_at >= @created_after`, "created_after", f.CreatedAfter)
	add(!f.CreatedBefore.IsZero(), `requested_at < @created_before`, "created_before", f.CreatedBefore)
	add(f.Initiator != "", `initiator = @initiator`, "initiator", f.Initiator)
	add(f.SourceSystem != "", `source_system = @source_system`, "source_system", f.SourceSystem)
	add(f.CorrelationID != uuid.Nil, ofCorrelation, "correlation", f.CorrelationID)
	sources, ofState := s.choose(f, plans, byTags)
	if !ofState && len(f.States) > 0 && !slices.ContainsFunc(f.States, func(state workflow.TaskState) bool { return !state.Terminal() }) {
		s.newestEnds = &search{sources: 1, args: s.args}
		s.newestEnds.compile(f, ofStates(f.States), true, conditions)
	}
	s.compile(f, sources, ofState, conditions)
	return s
}

// compile makes the statements of a search by its sources and the conditions for tasks.
func (s *search) compile(f *TaskFilter, sources []source, ofState bool, conditions []string) {
	all := []string{`select 1 from tasker.tasks where ` + and(conditions...)}
	switch sources[0] { // these see to a condition themselves
	case failedOfPlans:
		conditions = conditions[1:] // the first is about plans
	case byCorrelation:
		conditions = slices.DeleteFunc(slices.Clone(conditions), func(c string) bool { return c == ofCorrelation })
	}
	s.byShare = len(f.States) > 0 && (!ofState || len(conditions) > 0)
	if ofState {
		all = nil
		for _, x := range sources {
			all = append(all, x.whole(`1`, x.fits))
		}
		if len(conditions) > 0 {
			conditions = []string{`exists (select from tasker.tasks k where k.task_uuid = t.task_uuid and ` + and(inRange, and(conditions...)) + `)`}
		}
	} else if len(f.States) > 0 {
		conditions = append(conditions, storedEnd+` = any (@states)`)
	}
	if len(f.States) > 0 {
		s.args["states"] = numbersOf(f.States)
	}
	s.statement, s.counting = statementsOf(sources, conditions)
	s.estimate = `explain (format json) ` + strings.Join(all, " union all ")
}

// choose returns the sources with the fewest tasks to look at; ofState: they are not of
// tasks.
func (s *search) choose(f *TaskFilter, plans []int32, byTags bool) (sources []source, ofState bool) {
	switch {
	case f.CorrelationID != uuid.Nil:
		return []source{byCorrelation, ofItself}, false
	case byTags:
		return []source{tagged}, false
	case len(f.States) > 0 && slices.Min(f.States) > workflow.TaskComplete:
		if plans != nil && len(plans) <= maxMergedPlans {
			s.sources = len(plans)
			return []source{failedOfPlans}, true
		}
		return []source{failed}, true
	case plans != nil && len(plans) <= maxMergedPlans:
		s.sources = len(plans)
		return []source{byPlan}, false
	case len(f.States) == 0:
		return []source{allTasks}, false
	}
	return ofStates(f.States), true
}

// ofStates are the sources that have the tasks in some states.
func ofStates(states []workflow.TaskState) (sources []source) {
	living := slices.DeleteFunc(slices.Clone(states), workflow.TaskState.Terminal)
	switch {
	case len(living) == 0:
	case slices.Min(living) > workflow.TaskStepsInProcess:
		sources = append(sources, held)
	default:
		sources = append(sources, alive)
	}
	if slices.Contains(states, workflow.TaskComplete) {
		sources = append(sources, completed)
	}
	if slices.Max(states) > workflow.TaskComplete {
		sources = append(sources, failed)
	}
	return sources
}

// call is one of the statements with its range.
func (s *search) call(statement string, args pg.Args) stmt.Call {
	return callOf(statement, s.args.And(args))
}

// and joins the conditions that are set.
func and(conditions ...string) string {
	set := ""
	for _, c := range conditions {
		if c != "" && set != "" {
			c = ` and ` + c
		}
		set += c
	}
	return cmp.Or(set, `true`)
}

// numbersOf are the numbers of states, each once.
func numbersOf(states []workflow.TaskState) []int16 {
	numbers := make([]int16, len(states))
	for i, s := range states {
		numbers[i] = int16(s)
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// statementsOf returns the statement that looks at up to @each tasks of each source, and the
// one that only counts those that fit among up to @each of all. Below the greatest of those
// where a source was cut off a list would have gaps. The conditions of a list are checked from
// the newest task on until @enough fit; offset 0 keeps the planner from checking before.
func statementsOf(sources []source, conditions []string) (list, count string) {
	var with, cuts, fitting, counts []string
	number := `0`
	for i := 0; i < len(sources); {
		fits := and(sources[i].fits, and(conditions...))
		name := `seen` + strconv.Itoa(i)
		var seen, all []string // of sources with the same conditions, which are planned once
		for own := sources[i].fits; i < len(sources) && sources[i].fits == own; i++ {
			columns := sources[i].selected(fits)
			seen, all = append(seen, sources[i].newest(columns)), append(all, sources[i].whole(columns, inRange, sources[i].index))
		}
		with = append(with, name+` as materialized (`+strings.Join(seen, ` union all `)+`)`)
		cuts = append(cuts, `select task_uuid, n from `+name)
		fitting = append(fitting, `(select task_uuid from (select t.task_uuid, `+fits+` as fits from (select * from `+name+
			` where task_uuid > coalesce((select task_uuid from cut), '00000000-0000-0000-0000-000000000000') order by task_uuid desc) t offset 0) c where fits limit @enough::int)`)
		number += ` + (select count(*) from ` + name + `)`
		counts = append(counts, `select `+fits+` as fits from (`+strings.Join(all, ` union all `)+`) t`)
	}
	return `
with ` + strings.Join(with, `, `) + `,
cut as materialized (select task_uuid from (` + strings.Join(cuts, ` union all `) + `) s where n = @each::int order by task_uuid desc limit 1),
fitting as materialized (` + strings.Join(fitting, ` union all `) + `)
select (select count(*) from fitting)::int as matched, (` + number + `)::int as seen, (select task_uuid from cut) as reached,
       array(select task_uuid from fitting order by task_uuid desc offset @skip::int limit @take::int) as tasks`, `
select count(*) filter (where fits)::int as matched, count(*)::int as seen, case when count(*) >= @each::int then @oldest::uuid end as reached, '{}'::uuid[] as tasks
from (` + strings.Join(counts, ` union all `) + ` limit @each::int) c`
}

// Tasks lists tasks, newest first, with their steps but without contexts and
// results.
func (s *Ledger) Tasks(ctx context.Context, f TaskFilter) (page TaskPage, err error) {
	ids, err := s.find(ctx, f, &page)
	if err != nil || len(ids) == 0 {
		return page, err
	}
	tasks, unreadable, err := s.readableTasks(ctx, ids)
	if err != nil {
		return page, err
	}
	page.Unreadable = unreadable
	byID := make(map[uuid.UUID]*Task, len(tasks))
	for _, t := range tasks {
		byID[t.UUID] = t
	}
	for _, id := range ids {
		if t := byID[id]; t != nil { // else retention has deleted it since
			page.Tasks = append(page.Tasks, t)
		}
	}
	return page, nil
}

// find returns the tasks of a page, and sets its numbers.
func (s *Ledger) find(ctx context.Context, f TaskFilter, page *TaskPage) (ids []uuid.UUID, err error) {
	var plans []int32
	if f.Namespace != "" || f.Name != "" || f.Version != "" || f.Text != "" {
		plans, err = pg.ReadAll[int32](ctx, s.db, "list_plans", "look for the templates", listPlans.With(pg.Args{
			"namespace": f.Namespace, "name": f.Name, "version": f.Version, "text": f.Text, "limit": maxListedPlans}))
		if err != nil || len(plans) == 0 {
			return nil, err
		}
	}
	before, oldest := f.bounds()
	byTags, err := s.byTags(ctx, &f, before, oldest)
	if err != nil {
		return nil, err
	}
	q := searchOf(&f, plans, byTags)
	run := func(q *search, statement string, oldest uuid.UUID, each, skip, take int) (found, error) {
		skip = max(skip, 0)
		var enough *int // all that fit are counted
		if f.Continued {
			enough = new(skip + take)
		}
		return planned[found](ctx, s.db, "list_tasks", "list tasks",
			q.call(statement, pg.Args{"before": before, "oldest": oldest, "each": each, "skip": skip, "take": take, "enough": enough}))
	}
	look := func(q *search, from uuid.UUID, scan, skip, take int) (found, error) {
		part, err := run(q, q.statement, from, max(scan/q.sources, s.scans.source), skip, take)
		switch {
		case part.Reached != nil:
			*part.Reached = after(*part.Reached)
		case from != oldest:
			part.Reached = &from
		}
		return part, err
	}
	count := func(q *search, share float64, few bool) error {
		before, _ = f.bounds()
		return s.count(ctx, q, page, share, few, func() (found, error) { return run(q, q.counting, oldest, s.scans.counted, 0, 0) })
	}
	from := s.scans.recently(before, oldest)
	if q.newestEnds != nil {
		part, err := look(q.newestEnds, from, s.scans.first, f.Offset, f.Limit+1)
		if err != nil {
			return nil, err
		}
		if ids = part.Tasks; len(ids) > f.Limit {
			ids, page.Total = ids[:f.Limit], part.Matched
			if page.Next = ids[f.Limit-1]; !f.Continued && part.Reached != nil {
				err = count(q.newestEnds, float64(part.Matched)/float64(part.Seen), *part.Reached == from)
			}
			return ids, err
		}
		ids = nil
	}
	budget := s.scans.budget(&f, q)
	for scan, seen := s.scans.first, 0; ; scan, from = min(3*scan, s.scans.most), oldest {
		if seen > 0 {
			scan = min(scan, budget-seen)
		}
		part, err := look(q, from, scan, f.Offset-page.Total, f.Limit+1-len(ids))
		if err != nil {
			return nil, err
		}
		page.Total, ids, seen = page.Total+part.Matched, append(ids, part.Tasks...), seen+part.Seen
		switch {
		case len(ids) > f.Limit:
			ids = ids[:f.Limit]
			page.Next = ids[f.Limit-1]
		case part.Reached == nil:
			return ids, nil
		case seen >= budget:
			if page.Next = *part.Reached; !f.Continued {
				err = s.guess(ctx, q, page, float64(page.Total)/float64(seen))
			}
			return ids, err
		default:
			before = *part.Reached
			continue
		}
		if part.Reached == nil || f.Continued {
			return ids, nil
		}
		return ids, count(q, float64(page.Total)/float64(seen), *part.Reached == from)
	}
}

// byTags reports whether so few tasks of a range have the tags of a filter that they are found by
// these.
func (s *Ledger) byTags(ctx context.Context, f *TaskFilter, before, oldest uuid.UUID) (bool, error) {
	if len(f.Tags) == 0 || f.CorrelationID != uuid.Nil {
		return false, nil
	}
	rows, err := s.estimate(ctx, callOf(tagsEstimated, pg.Args{"tags": f.Tags, "before": before, "oldest": oldest}))
	return err == nil && rows <= float64(s.scans.tagged), err
}

// count sets the total of a page after which there is more: share is the part that fit of what
// was seen. Where few have to be looked at, for the newest part of the range was seen whole, the
// count is tried first, unless it is costly for each: it takes less than planning for an estimate.
func (s *Ledger) count(ctx context.Context, q *search, page *TaskPage, share float64, few bool, look func() (found, error)) error {
	var rows float64
	var err error
	if few = few && !q.byShare; !few {
		if rows, err = s.estimate(ctx, q.estimated()); err != nil {
			return err
		}
	}
	if rows <= ExactCount {
		all, err := look()
		if err != nil {
			return err
		}
		if all.Reached == nil {
			page.Total = all.Matched
			return nil
		}
		page.Total = max(page.Total, all.Matched)
	}
	if few {
		return s.guess(ctx, q, page, share)
	}
	page.guess(q, rows, share)
	return nil
}

// guess sets the total of a page by an estimate, of which a share may fit.
func (s *Ledger) guess(ctx context.Context, q *search, page *TaskPage, share float64) error {
	rows, err := s.estimate(ctx, q.estimated())
	if err == nil {
		page.guess(q, rows, share)
	}
	return err
}

func (p *TaskPage) guess(q *search, rows, share float64) {
	if !q.byShare {
		share = 1
	}
	p.Total, p.Estimated = max(p.Total, int(rows*share)), true
}

// bounds are the UUIDs between which the tasks are.
func (f *TaskFilter) bounds() (before, oldest uuid.UUID) {
	before = uuid.Max
	if !f.CreatedBefore.IsZero() {
		before = floorOf(f.CreatedBefore.Add(clockSkew))
	}
	if f.Before != uuid.Nil && bytes.Compare(f.Before[:], before[:]) < 0 {
		before = f.Before
	}
	if !f.CreatedAfter.IsZero() {
		oldest = floorOf(f.CreatedAfter.Add(-clockSkew))
	}
	return before, oldest
}

// floorOf is the least UUID of version 7 of a time.
func floorOf(t time.Time) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:], uint64(max(t.UnixMilli(), 0))<<16) // #nosec G115 -- not negative
	return id
}

// recently is the least UUID of the last part of a range, which may end in the future.
func (s *scans) recently(before, oldest uuid.UUID) uuid.UUID {
	end := min(int64(binary.BigEndian.Uint64(before[:])>>16), time.Now().UnixMilli()) // #nosec G115 -- 48 bits
	if from := floorOf(time.UnixMilli(end).Add(-s.recent)); bytes.Compare(from[:], oldest[:]) > 0 {
		return from
	}
	return oldest
}

// after is the least UUID that is greater.
func after(id uuid.UUID) uuid.UUID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			break
		}
	}
	return id
}

// planned reads one row by a plan that is made for the values.
func planned[T any](ctx context.Context, db *pg.DB, flow, doing string, call stmt.Call) (row T, err error) {
	err = db.Repeatable(ctx, flow, doing, func(ctx context.Context, c *pg.Conn) error {
		b := &pgx.Batch{}
		b.Queue(pg.PlanForValues)
		call.Queue(b).Query(stmt.Row(&row))
		return c.SendBatch(ctx, b).Close()
	})
	return row, err
}

// estimated is how the planner is asked how many tasks a search would have to look at, of which a
// share may fit.
func (s *search) estimated() stmt.Call { return callOf(s.estimate, s.args) }

// estimate is the number of rows of a query by the planner's statistics.
func (s *Ledger) estimate(ctx context.Context, query stmt.Call) (float64, error) {
	text, err := planned[json.RawMessage](ctx, s.db, "estimate_tasks", "estimate the number of tasks", query)
	if err != nil {
		return 0, err
	}
	var plans []struct {
		Plan struct {
			Rows float64 `json:"Plan Rows"`
		} `json:"Plan"`
	}
	if err := json.Unmarshal(text, &plans); err != nil || len(plans) == 0 {
		return 0, fmt.Errorf("read the plan of a list: %w", err)
	}
	return plans[0].Plan.Rows, nil
}
