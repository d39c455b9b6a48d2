package ledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// What analytics read at most: the newest tasks of the window, the executions of these,
// the newest rows of the board, and steps in the progress of the tasks. A statement takes
// tens of milliseconds with all of it, however large the ledger is.
const (
	analysedTasks    = 10_000
	analysedAttempts = 50_000
	analysedRows     = 20_000
	analysedSteps    = 200_000
)

// analysed are the newest tasks of a window and their executions. Where there are more
// executions than are read, the tasks that lack some are left out: `recent` begins behind
// them.
// Index: the primary keys backwards, in the partitions of the window.
const analysed = `
newest as materialized (
    select task_uuid, plan_id, requested_at from tasker.tasks
    where task_uuid >= tasker.uuid_floor(now() - @hours::int * interval '1 hour') order by task_uuid desc limit @tasks::int
), attempted as materialized (
    select task_uuid, step_no, token, outcome, task_state, claimed_at, reported_at, applied_at from tasker.step_attempts
    where task_uuid >= (select task_uuid from newest order by task_uuid limit 1)
    order by task_uuid desc limit @attempts::int
), edge as materialized (
    select case when (select count(*) from attempted) = @attempts::int
                then (select task_uuid from attempted order by task_uuid limit 1) end as task_uuid
), recent as materialized (
    select n.* from newest n cross join edge where edge.task_uuid is null or n.task_uuid > edge.task_uuid
), ended as materialized (
    select task_uuid, task_state, applied_at from attempted where task_state is not null
), outcomes as materialized (
    select r.task_uuid, r.plan_id, r.requested_at, e.task_state, e.applied_at,
           extract(epoch from e.applied_at - r.requested_at)::float8 as seconds
    from recent r left join ended e on e.task_uuid = r.task_uuid
), executed as materialized (
    select r.plan_id, a.task_uuid, a.step_no, a.outcome, a.applied_at, extract(epoch from a.reported_at - a.claimed_at)::float8 as seconds
    from attempted a join recent r on r.task_uuid = a.task_uuid
    where a.step_no >= 0 and a.claimed_at is not null and a.reported_at is not null
)`

// performance: a task that the board holds is active, one without a row of either is
// being deleted.
var performance = pg.Compile(`
with ` + analysed + `
select count(*) as total, count(*) filter (where task_state is null) as active,
       count(*) filter (where task_state in ({task_complete}, {task_resolved})) as completed,
       count(*) filter (where task_state = {task_error}) as failed,
       coalesce(avg(seconds) filter (where task_state is not null), 0)::float8 as task_seconds,
       (select coalesce(avg(seconds), 0)::float8 from executed) as step_seconds,
       (select count(*) from executed where outcome = {success}) as steps,
       now() as at, coalesce(case when (select count(*) from newest) = @tasks::int or (select task_uuid from edge) is not null
                                  then min(requested_at) end,
                             now() - @hours::int * interval '1 hour') as since
from outcomes`)

const (
	// showSteps names the steps of the part slowest.
	showSteps = `
select n.name as namespace, p.name as task, p.version, coalesce(p.step, '') as step, s.average, s.longest,
       s.executions, s.errors, s.last_at, 0::float8 as steps
from slowest s
cross join lateral (select namespace_id, name, version, steps[s.step + 1] as step from tasker.plans
                    where plan_id = any (array[s.plan_id]) limit 1) p
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[p.namespace_id]) limit 1) n
order by s.average desc, s.plan_id, s.step`
	// showTasks names the templates of the part slowest.
	showTasks = `
select n.name as namespace, p.name as task, p.version, '' as step, s.average, s.longest, s.executions, s.errors, s.last_at, s.steps
from slowest s
cross join lateral (select namespace_id, name, version from tasker.plans where plan_id = any (array[s.plan_id]) limit 1) p
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[p.namespace_id]) limit 1) n
order by s.average desc, s.plan_id`
)

// slowSteps: a batch counts as the step that it is an instance of.
var slowSteps = pg.Compile(`
with ` + analysed + `, sizes as materialized (
    select d.plan_id, p.steps from (select distinct plan_id from executed) d
    cross join lateral (select cardinality(steps) as steps from tasker.plans where plan_id = any (array[d.plan_id]) limit 1) p
), numbered as materialized (
    select e.*, coalesce(b.template_no, e.step_no) as step
    from executed e join sizes s on s.plan_id = e.plan_id
    left join lateral (select template_no from tasker.batches
                       where task_uuid = e.task_uuid and step_no = e.step_no and e.step_no >= s.steps limit 1) b on true
), slowest as materialized (
    select plan_id, step, avg(seconds)::float8 as average, max(seconds)::float8 as longest, count(*) as executions,
           count(*) filter (where outcome in ({failed}, {failed_for_good})) as errors, max(applied_at) as last_at
    from numbered group by plan_id, step having count(*) >= @min::int order by avg(seconds) desc, plan_id, step limit @limit::int
)` + showSteps)

// slowTasks are the templates of ended tasks.
var slowTasks = pg.Compile(`
with ` + analysed + `, sized as materialized (
    select task_uuid, count(*) as steps from executed where outcome = {success} group by task_uuid
), slowest as materialized (
    select o.plan_id, avg(o.seconds)::float8 as average, max(o.seconds)::float8 as longest, count(*) as executions,
           count(*) filter (where o.task_state = {task_error}) as errors, max(o.applied_at) as last_at,
           avg(coalesce(z.steps, 0))::float8 as steps
    from outcomes o left join sized z on z.task_uuid = o.task_uuid where o.task_state is not null
    group by o.plan_id having count(*) >= @min::int order by avg(o.seconds) desc, o.plan_id limit @limit::int
)` + showTasks)

// stateCounts are the states of the tasks on the board and of the ended ones of the
// window, and of their steps by the status in the progress or the row on the board. The
// number of steps is in the length of a progress, except in one with retries of its own.
// Index: the primary key of the board backwards, and those of analysed.
var stateCounts = pg.Compile(`
with ` + analysed + `, living as materialized (
    select task_uuid, slot, step_no, state, attempt, outcome, wait is not null and token is not null as waits, task_state, progress, plan_id
    from tasker.board order by task_uuid desc, slot desc limit @rows::int
), shown as materialized (
    select task_uuid, plan_id, task_state, progress from living where slot = 0
    union all
    select o.task_uuid, o.plan_id, o.task_state, a.task_progress
    from outcomes o cross join lateral (
        select task_progress from tasker.step_attempts where task_uuid = o.task_uuid and task_state is not null limit 1) a
    where o.task_state is not null and a.task_progress is not null
), sizes as materialized (
    select d.plan_id, p.steps from (select distinct plan_id from shown) d
    cross join lateral (select cardinality(steps) as steps from tasker.plans where plan_id = any (array[d.plan_id]) limit 1) p
), entries as materialized (
    select s.task_uuid, no, get_byte(s.progress, {progress_header} + {progress_step} * no) as status
    from shown s join sizes z on z.plan_id = s.plan_id
    cross join lateral (select case get_byte(s.progress, 0)
        when {progress_plain} then (length(s.progress) - {progress_header}) / {progress_step}
        when {progress_grouped} then (length(s.progress) - {progress_header} - {progress_group} * get_byte(s.progress, 1)) / {progress_step}
        when {progress_ending} then (length(s.progress) - {progress_header} - 1 - {progress_group} * get_byte(s.progress, 1)) / {progress_step}
        else z.steps end as steps) n
    cross join lateral generate_series(0, n.steps - 1) no
    limit @steps::int
)
select true as task, tasker.task_state_name(task_state) as state, count(*) as count from shown group by task_state
union all
select false, tasker.step_state_name(e.status, case when l.waits and l.state = 1 then 3 else l.state end, l.attempt, l.outcome), count(*)
from entries e left join living l on l.task_uuid = e.task_uuid and l.step_no = e.no
where e.status <> 0 group by 2`)

// analysedMore reports whether a window has more than is analysed of it: then the rates are read instead.
// Index: the primary keys backwards, in the partitions of the window.
var analysedMore = pg.Compile(`
select (select count(*) from (select from tasker.tasks where task_uuid >= tasker.uuid_floor(now() - @hours::int * interval '1 hour')
                              order by task_uuid desc limit @tasks::int) t) = @tasks::int
    or (select count(*) from (select from tasker.step_attempts where task_uuid >= tasker.uuid_floor(now() - @hours::int * interval '1 hour')
                              order by task_uuid desc limit @attempts::int) a) = @attempts::int`)

// The same by the rates of a window, all of it.
// Index: task_rates_at, call_rates_at, then the primary keys.
var (
	ratedPerformance = pg.Compile(`
with ` + period + `, tasks as materialized (
    select ` + taskFigures + ` from period cross join tasker.task_rates r where r.grain = @grain::int and r.at >= since and r.at < till
), calls as materialized (
    select coalesce(sum(count) filter (where outcome = {success}), 0)::bigint as steps, coalesce(sum(running_ms), 0) / greatest(sum(count), 1) / 1000 as seconds
    from period cross join tasker.call_rates where grain = @grain::int and at >= since and at < till
)
select t.created as total, greatest(t.created - t.completed - t.resolved - t.failed - t.cancelled, 0) as active, t.completed + t.resolved as completed, t.failed,
       (t.ended_ms / greatest(t.completed + t.resolved + t.failed + t.cancelled, 1) / 1000.0)::float8 as task_seconds,
       c.seconds::float8 as step_seconds, c.steps, till as at, since
from tasks t cross join calls c cross join period`)
	ratedSteps = pg.Compile(`
with ` + period + `, slowest as materialized (
    select plan_id, step_no as step, (sum(running_ms) / sum(count) / 1000)::float8 as average, (max(longest_ms) / 1000.0)::float8 as longest, sum(count)::bigint as executions,
           coalesce(sum(count) filter (where outcome in ({failed}, {failed_for_good})), 0)::bigint as errors, max(at) as last_at
    from period cross join tasker.call_rates where grain = @grain::int and at >= since and at < till
    group by plan_id, step_no having sum(count) >= @min::int order by average desc, plan_id, step_no limit @limit::int
)` + showSteps)
	ratedTasks = pg.Compile(`
with ` + period + `, ended as materialized (
    select plan_id, (sum(ms) / sum(count) / 1000)::float8 as average, (max(longest_ms) / 1000.0)::float8 as longest, sum(count)::bigint as executions,
           coalesce(sum(count) filter (where state = {task_error}), 0)::bigint as errors, max(at) as last_at
    from period cross join tasker.task_rates where grain = @grain::int and at >= since and at < till and state <> {task_pending}
    group by plan_id having sum(count) >= @min::int order by average desc, plan_id limit @limit::int
), done as materialized (
    select plan_id, sum(count) as steps from period cross join tasker.call_rates
    where grain = @grain::int and at >= since and at < till and outcome = {success} and plan_id = any (array(select plan_id from ended)) group by plan_id
), slowest as materialized (
    select e.*, (coalesce(d.steps, 0) / e.executions)::float8 as steps from ended e left join done d on d.plan_id = e.plan_id
)` + showTasks)
)

// rated is the period of a window: in hours up to some days, then in days.
func rated(window time.Duration) Period {
	p := Period{Last: window, Grain: time.Hour}
	if window > 72*time.Hour {
		p.Grain = 24 * time.Hour
	}
	return p
}

// more reports whether a window has more than is analysed of it.
func (s *Ledger) more(ctx context.Context, db *pg.Conn, window time.Duration) (bool, error) {
	return stmt.One[bool](ctx, db, analysedMore.With(analysis(window)))
}

// Performance summarises the newest tasks of a window. Seconds are averages.
type Performance struct {
	Total, Active, Completed, Failed int64
	TaskSeconds, StepSeconds         float64
	Steps                            int64     // completed by these tasks
	Since                            time.Time // where the window begins, or what was read of it
	At                               time.Time
}

// SlowWork is a step of a template, or a template with Step "".
type SlowWork struct {
	Namespace, Task, Version, Step string
	Average, Longest               float64 // seconds
	Executions, Errors             int64
	LastAt                         *time.Time
	Steps                          float64 // of a task, on average
}

// Bottlenecks are the slowest steps and templates, and the states of tasks and steps by
// name.
type Bottlenecks struct {
	Steps, Tasks           []SlowWork
	TaskStates, StepStates map[string]int64
}

func analysis(window time.Duration) pg.Args {
	return pg.Args{"hours": int(window / time.Hour), "tasks": analysedTasks, "attempts": analysedAttempts}
}

// Performance reads the newest tasks of a window, whole hours, up to analysedTasks; of a window with more it sums up the rates, which
// count ends and executions of the window whenever the tasks were created, and the tasks that have not ended as active.
func (s *Ledger) Performance(ctx context.Context, window time.Duration) (Performance, error) {
	return pg.Read(ctx, s.db, "performance", "summarise the performance", func(ctx context.Context, db *pg.Conn) (p Performance, err error) {
		if more, err := s.more(ctx, db, window); err != nil || more {
			if err == nil {
				p, err = stmt.One[Performance](ctx, db, ratedPerformance.With(rated(window).args()))
			}
			return p, err
		}
		b := &pgx.Batch{}
		b.Queue(pg.PlanForValues)
		performance.With(analysis(window)).Queue(b).Query(stmt.Row(&p))
		return p, db.SendBatch(ctx, b).Close()
	})
}

// Bottlenecks reads the slowest steps and templates among the newest tasks of a window
// that were executed at least so often, the slowest first; of a window with more tasks than are analysed, by the rates.
func (s *Ledger) Bottlenecks(ctx context.Context, window time.Duration, limit, executions int) (Bottlenecks, error) {
	return pg.Read(ctx, s.db, "bottlenecks", "look for bottlenecks", func(ctx context.Context, db *pg.Conn) (Bottlenecks, error) {
		type row struct {
			Task  bool
			State string
			Count int64
		}
		found := Bottlenecks{TaskStates: map[string]int64{}, StepStates: map[string]int64{}}
		more, err := s.more(ctx, db, window)
		if err != nil {
			return found, err
		}
		steps, tasks, args := slowSteps, slowTasks, analysis(window)
		if more {
			steps, tasks, args = ratedSteps, ratedTasks, rated(window).args()
		}
		args = args.And(pg.Args{"limit": limit, "min": max(executions, 1)})
		b := &pgx.Batch{}
		b.Queue(pg.PlanForValues)
		steps.With(args).Queue(b).Query(stmt.Into(&found.Steps))
		tasks.With(args).Queue(b).Query(stmt.Into(&found.Tasks))
		stateCounts.With(analysis(window).And(pg.Args{"rows": analysedRows, "steps": analysedSteps})).Queue(b).Query(stmt.Rows(func(r *row) {
			if r.Task {
				found.TaskStates[r.State] += r.Count
			} else {
				found.StepStates[r.State] += r.Count
			}
		}))
		return found, db.SendBatch(ctx, b).Close()
	})
}
