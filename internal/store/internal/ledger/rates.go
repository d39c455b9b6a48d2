package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/internal/rates"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// Grains are the lengths of the times that rates are kept for, the shortest first.
var Grains = []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour}

// ofBuckets makes a text of each bucket of a histogram: %[1]s is its kind, %[2]d its number from 0 on, and %[3]d from 1 on.
func ofBuckets(format string) string {
	var texts []string
	for _, kind := range []string{"waiting", "running"} {
		for i := range rates.Buckets {
			texts = append(texts, fmt.Sprintf(format, kind, i, i+1))
		}
	}
	return strings.Join(texts, ", ")
}

// histograms are those of added up rows, as waiting and running.
var histograms = func() string {
	var both []string
	for _, kind := range []string{"waiting", "running"} {
		var sums []string
		for i := range rates.Buckets {
			sums = append(sums, fmt.Sprintf("coalesce(sum(%s_%d), 0)", kind, i))
		}
		both = append(both, "array["+strings.Join(sums, ", ")+"]::bigint[] as "+kind)
	}
	return strings.Join(both, ",\n       ")
}()

// countedCall is a row of call_counts.
type countedCall struct {
	Callable, PlanID     int32
	StepNo               int `sql:",smallint"`
	Outcome              workflow.AttemptOutcome
	At                   time.Time
	Count                int64
	WaitingMS, RunningMS int64
	LongestMS            int64
	Waiting, Running     []int
}

// countedTask is a row of task_counts.
type countedTask struct {
	PlanID    int32
	State     workflow.TaskState
	At        time.Time
	Count     int64
	MS        int64
	LongestMS int64
}

var (
	keepCalls = pg.Compile(`
insert into tasker.call_counts (callable, plan_id, step_no, outcome, at, count, waiting_ms, running_ms, longest_ms, waiting, running)
select callable, plan_id, step_no, outcome, at, count, waiting_ms, running_ms, longest_ms, waiting::bigint[], running::bigint[] from ` + stmt.List[countedCall]("c"))
	keepTasks = pg.Compile(`
insert into tasker.task_counts (plan_id, state, at, count, ms, longest_ms) select plan_id, state, at, count, ms, longest_ms from ` + stmt.List[countedTask]("t"))
)

// The least and the longest time for the writing of rates.
const (
	leastForRates = time.Second
	mostForRates  = 5 * time.Second
)

// KeepRates writes what this process has counted since the last call, in the time within, from 1 to 5 s. What the database
// rejects is left out; what it certainly does not have stays counted for the next call. Where the answer is lost the counts are,
// too: nothing is counted twice. So the end of ctx does not interrupt it. dropped is how many attempts and ends of tasks are not
// in the rates, for that or for lack of room.
func (s *Ledger) KeepRates(ctx context.Context, within time.Duration) (dropped int64, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(max(within, leastForRates), mostForRates))
	defer cancel()
	calls, tasks := s.counts.Take()
	err = errors.Join(
		pg.Apart(s.db, "keep_rates", calls, func(part []rates.Call) error {
			return s.keepCounts(ctx, keepCalls.With(pg.Args{"c": callRows(part)}), part, nil)
		}, func(c rates.Call) string { return fmt.Sprintf("the attempts of callable %d", c.Callable) }),
		pg.Apart(s.db, "keep_rates", tasks, func(part []rates.Task) error {
			return s.keepCounts(ctx, keepTasks.With(pg.Args{"t": taskRows(part)}), nil, part)
		}, func(t rates.Task) string { return fmt.Sprintf("the ends of tasks of plan %d", t.Plan) }))
	return s.counts.TakeDropped(), err
}

// keepCounts writes counts, and gives them back if the database certainly does not have them and has not
// rejected them.
func (s *Ledger) keepCounts(ctx context.Context, write stmt.Call, calls []rates.Call, tasks []rates.Task) error {
	if len(calls)+len(tasks) == 0 {
		return nil
	}
	sent := false
	err := s.db.Call(ctx, "keep_rates", "write the rates", func(ctx context.Context, db *pg.Conn) error {
		sent = true
		_, err := pg.Run(ctx, db, write)
		return err
	})
	var answer *pgconn.PgError
	switch {
	case err == nil:
		s.uncounted.Store(true)
	case pg.Rejected(err): // its halves follow
	case !sent || pgconn.SafeToRetry(err) || errors.As(err, &answer):
		s.counts.Return(calls, tasks)
	default:
		s.counts.Drop(calls, tasks)
	}
	return err
}

func callRows(calls []rates.Call) []countedCall {
	return pg.Column(calls, func(c *rates.Call) countedCall {
		return countedCall{c.Callable, c.Plan, c.Step, c.Outcome, time.Unix(c.Minute*60, 0), c.Count, c.WaitingMS, c.RunningMS, c.LongestMS,
			ints(&c.Waiting), ints(&c.Running)}
	})
}

func taskRows(tasks []rates.Task) []countedTask {
	return pg.Column(tasks, func(t *rates.Task) countedTask {
		return countedTask{t.Plan, t.State, time.Unix(t.Minute*60, 0), t.Count, t.MS, t.LongestMS}
	})
}

func ints(h *rates.Histogram) []int {
	list := []int{} // not nil, which is null
	for _, n := range h.Trimmed() {
		list = append(list, int(n))
	}
	return list
}

// takeCounts takes rows of a table of counts, which has no order.
func takeCounts(table string) string {
	return `delete from tasker.` + table + `
    where ctid = any (array(select ctid from tasker.` + table + ` limit @limit offset @skip for update skip locked)) returning *`
}

const (
	everyGrain = `unnest(array[60, 600, 3600, 86400]) grain`
	// ofGrain is where the time of a grain begins in which at is.
	ofGrain = `date_bin(grain * interval '1 second', at, '2000-01-01 00:00:00+00')`
)

// addUpCalls adds counts up, in the order of their keys: another run locks the rows in the same order.
var addUpCalls = pg.Compile(`
with taken as (
    ` + takeCounts("call_counts") + `
), added as (
    insert into tasker.call_rates as r (callable, grain, at, plan_id, step_no, outcome, count, waiting_ms, running_ms, longest_ms, ` + ofBuckets("%[1]s_%[2]d") + `)
    select callable, grain, ` + ofGrain + `, plan_id, step_no, outcome, sum(count), sum(waiting_ms), sum(running_ms), max(longest_ms), ` + ofBuckets("nullif(sum(%[1]s[%[3]d]), 0)") + `
    from taken cross join ` + everyGrain + `
    group by 1, 2, 3, 4, 5, 6 order by 1, 2, 3, 4, 5, 6
    on conflict (callable, grain, at, plan_id, step_no, outcome) do update set count = r.count + excluded.count,
        waiting_ms = r.waiting_ms + excluded.waiting_ms, running_ms = r.running_ms + excluded.running_ms, longest_ms = greatest(r.longest_ms, excluded.longest_ms),
        ` + ofBuckets("%[1]s_%[2]d = coalesce(r.%[1]s_%[2]d + excluded.%[1]s_%[2]d, r.%[1]s_%[2]d, excluded.%[1]s_%[2]d)") + `
)
select count(*)::int from taken`)

var addUpTasks = pg.Compile(`
with taken as (
    ` + takeCounts("task_counts") + `
), added as (
    insert into tasker.task_rates as r (plan_id, grain, at, state, count, ms, longest_ms)
    select plan_id, grain, ` + ofGrain + `, state, sum(count), sum(ms), max(longest_ms) from taken cross join ` + everyGrain + `
    group by 1, 2, 3, 4 order by 1, 2, 3, 4
    on conflict (plan_id, grain, at, state) do update set count = r.count + excluded.count, ms = r.ms + excluded.ms,
        longest_ms = greatest(r.longest_ms, excluded.longest_ms)
)
select count(*)::int from taken`)

// AddUpRates adds up to limit rows of each kind that daemons and creations have written to the rates. more: there are
// others.
func (s *Ledger) AddUpRates(ctx context.Context, limit int) (added int, more bool, err error) {
	s.uncounted.Store(false) // what comes from here on is seen again
	for _, kind := range []struct {
		rows string
		by   *stmt.Statement
	}{{"call_counts", addUpCalls}, {"task_counts", addUpTasks}} {
		n, failed := s.db.ByPosition("add_up_rates", kind.rows+", row %d", limit, func(limit, skip int) (n int, err error) {
			err = s.db.Call(ctx, "add_up_rates", "add up the rates", func(ctx context.Context, db *pg.Conn) error {
				n, err = stmt.One[int](ctx, db, kind.by.With(pg.Args{"limit": limit, "skip": skip}))
				return err
			})
			return n, err
		})
		added, more, err = added+n, more || n >= limit, errors.Join(err, failed)
	}
	if more || err != nil {
		s.uncounted.Store(true)
	}
	return added, more, err
}

// RatesToAddUp reports whether there may be counts to add up, as far as this process knows.
func (s *Ledger) RatesToAddUp() bool { return s.uncounted.Load() }

// NoteCounts tells that there are counts to add up, as the heartbeat of an orchestrator has seen.
func (s *Ledger) NoteCounts() { s.uncounted.Store(true) }

// CallDepth is how much waits and runs of a callable.
type CallDepth struct {
	Callable         int32
	Waiting, Running int
	Oldest           time.Duration `sql:"oldest_ms"` // how long the oldest waiting step has waited
}

// keepDepths writes what was seen, and when: of longer times the most is kept.
var keepDepths = pg.Compile(`
with seen as (
    insert into tasker.depths_seen (at) values (clock_timestamp()) on conflict (one) do update set at = excluded.at returning at
)
insert into tasker.call_depths as r (callable, grain, at, waiting, running, oldest_ms)
select callable, grain, ` + ofGrain + `, waiting, running, oldest_ms
from seen cross join ` + stmt.List[CallDepth]("d") + ` cross join ` + everyGrain + `
order by 1, 2, 3
on conflict (callable, grain, at) do update set waiting = greatest(r.waiting, excluded.waiting), running = greatest(r.running, excluded.running),
    oldest_ms = greatest(r.oldest_ms, excluded.oldest_ms)`)

// KeepDepths writes how much waits and runs of each callable, at most one row of each.
func (s *Ledger) KeepDepths(ctx context.Context, depths []CallDepth) error {
	keep := func(part []CallDepth) error {
		_, err := pg.Execute(ctx, s.db, "keep_depths", "write the depths of queues", keepDepths.With(pg.Args{"d": part}))
		return err
	}
	if len(depths) == 0 { // it was looked
		return keep(nil)
	}
	return pg.Apart(s.db, "keep_depths", depths, keep, func(d CallDepth) string { return fmt.Sprintf("the depth of callable %d", d.Callable) })
}

// Period is a time for which rates are read.
type Period struct {
	From, To time.Time     // by the database's clock; To zero: now
	Last     time.Duration // before To, where From is zero
	Grain    time.Duration // one of Grains
}

func (p Period) args() pg.Args {
	args := pg.Args{"grain": int(p.Grain / time.Second), "last_ms": p.Last.Milliseconds(), "from": nil, "to": nil}
	if !p.From.IsZero() {
		args["from"] = p.From
	}
	if !p.To.IsZero() {
		args["to"] = p.To
	}
	return args
}

// period is the time of a Period, from the beginning of a grain on.
const period = `
period as materialized (
    select date_bin(@grain::int * interval '1 second', coalesce(@from::timestamptz, till - @last_ms::bigint * interval '1 ms'), '2000-01-01 00:00:00+00') as since, till
    from (select coalesce(@to::timestamptz, clock_timestamp()) as till) p
)`

// CallFigures are sums over attempts.
type CallFigures struct {
	Succeeded, Failed, FailedForGood, Lost, Cancelled int64
	WaitingMS, RunningMS                              int64 // in all
	LongestMS                                         int64 // that one ran
	Waiting, Running                                  []int // by the buckets of package rates
}

// callFigures are the columns of CallFigures.
var callFigures = `coalesce(sum(count) filter (where outcome = {success}), 0)::bigint as succeeded, coalesce(sum(count) filter (where outcome = {failed}), 0)::bigint as failed,
       coalesce(sum(count) filter (where outcome = {failed_for_good}), 0)::bigint as failed_for_good,
       coalesce(sum(count) filter (where outcome = {lease_lost}), 0)::bigint as lost, coalesce(sum(count) filter (where outcome = {cancelled}), 0)::bigint as cancelled,
       coalesce(sum(waiting_ms), 0)::bigint as waiting_ms, coalesce(sum(running_ms), 0)::bigint as running_ms, coalesce(max(longest_ms), 0)::bigint as longest_ms,
       ` + histograms

// CallRates are the attempts of a callable in a period, and what it has waiting.
type CallRates struct {
	Namespace string
	Handler   workflow.HandlerReference `sql:",inline"`
	CallFigures
	Depth int // of the queue, as last seen
	InRun int
	// Oldest is how long the first of it had waited.
	Oldest time.Duration `sql:",seconds"`
}

// overview sums up the rates of all callables.
// Index: call_rates_at, then the primary keys.
var overview = pg.Compile(`
with ` + period + `, done as materialized (
    select callable, ` + callFigures + `
    from tasker.call_rates r cross join period
    where grain = @grain::int and at >= since and at < till group by callable
), waiting as materialized (
    select d.callable, d.waiting, d.running, d.oldest_ms from tasker.depths_seen s
    join tasker.call_depths d on d.grain = 60 and d.at = date_trunc('minute', s.at)
)
select n.name as namespace, c.callable, c.method, c.resolver, coalesce(r.succeeded, 0) as succeeded, coalesce(r.failed, 0) as failed,
       coalesce(r.failed_for_good, 0) as failed_for_good, coalesce(r.lost, 0) as lost, coalesce(r.cancelled, 0) as cancelled,
       coalesce(r.waiting_ms, 0) as waiting_ms, coalesce(r.running_ms, 0) as running_ms, coalesce(r.longest_ms, 0) as longest_ms,
       coalesce(r.waiting, '{}') as waiting, coalesce(r.running, '{}') as running,
       coalesce(w.waiting, 0) as depth, coalesce(w.running, 0) as in_run, coalesce(w.oldest_ms / 1000.0, 0)::float8 as oldest
from done r full join waiting w on w.callable = r.callable
cross join lateral (select * from tasker.callables where callable_id = any (array[coalesce(r.callable, w.callable)]) limit 1) c
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[c.namespace_id]) limit 1) n
where @namespaces::text[] is null or n.name = any (@namespaces::text[])
order by n.name, c.callable, c.method, c.resolver limit @limit`)

// ReadRates is what reads of rates tell besides: when, for which time, and what is missing in it.
type ReadRates struct {
	At         time.Time  // by the database's clock
	Since      time.Time  // where the period begins
	Till       time.Time  // where it ends
	DepthsSeen *time.Time // when depths were last seen; nil: never
}

// readRates reads what the other statements of a read refer to.
var readRates = pg.Compile(`
with ` + period + `
select clock_timestamp() as at, since, till, (select at from tasker.depths_seen) as depths_seen from period`)

// RatesGap is what a process that was killed, or lost its database, may not have written: what it did from
// its last heartbeat on.
type RatesGap struct {
	Kind string // orchestrator or worker
	ID   string
	From time.Time
}

// readGaps lists the processes whose last counts may be missing.
var readGaps = pg.Compile(`
with ` + period + `
select kind, id, "from" from (
    select 'orchestrator' as kind, processor_id as id, heartbeat_at as "from", stopped_at from tasker.processors
    union all
    select 'worker', worker_id, heartbeat_at, stopped_at from tasker.workers) d cross join period
where stopped_at is null and "from" >= since and "from" < till and "from" < clock_timestamp() - @alive_ms::bigint * interval '1 ms'
order by "from" desc limit 100`)

// reading queues what every read of rates has besides.
func (s *Ledger) reading(b *pgx.Batch, p Period, alive time.Duration, about *ReadRates, gaps *[]RatesGap) {
	b.Queue(pg.PlanForValues)
	readRates.With(p.args()).Queue(b).Query(stmt.Row(about))
	readGaps.With(p.args().And(pg.Args{"alive_ms": alive.Milliseconds()})).Queue(b).Query(stmt.Into(gaps))
}

// Overview is the rates of all callables in a period.
type Overview struct {
	ReadRates
	Gaps  []RatesGap
	Calls []CallRates
}

// CallOverview sums up the rates of the callables of namespaces, nil for all, up to limit. alive is the age up to which a
// heartbeat counts.
func (s *Ledger) CallOverview(ctx context.Context, p Period, namespaces []string, limit int, alive time.Duration) (Overview, error) {
	return pg.Read(ctx, s.db, "call_overview", "read the rates of callables", func(ctx context.Context, db *pg.Conn) (o Overview, err error) {
		b := &pgx.Batch{}
		s.reading(b, p, alive, &o.ReadRates, &o.Gaps)
		overview.With(p.args().And(pg.Args{"namespaces": namespaces, "limit": limit})).Queue(b).Query(stmt.Into(&o.Calls))
		return o, db.SendBatch(ctx, b).Close()
	})
}

// CallSeries is what a callable did in each grain of a period, and by the versions of its templates in all of it.
type CallSeries struct {
	ReadRates
	Gaps     []RatesGap
	Points   []CallPoint
	Depths   []DepthPoint
	Versions []CallVersion
}

// CallPoint is what a callable did from a time on.
type CallPoint struct {
	At time.Time
	CallFigures
}

// DepthPoint is the most that was seen of its queue from a time on.
type DepthPoint struct {
	At               time.Time
	Waiting, Running int
	Oldest           time.Duration `sql:",seconds"`
}

// CallVersion is what it did for the steps of a version of a template.
type CallVersion struct {
	Task, Version, Step string
	CallFigures
}

// callPoints, callVersions: only of a version of a template, if that is given.
// Index: the primary key of call_rates.
var (
	callPoints = pg.Compile(`
with ` + period + `, ` + oneCallable + `
select at, ` + callFigures + `
from tasker.call_rates r cross join period
where callable = any (array(select callable_id from it)) and grain = @grain::int and at >= since and at < till
group by at order by at limit @limit`)
	callVersions = pg.Compile(`
with ` + period + `, ` + oneCallable + `, sums as materialized (
    select plan_id, step_no, ` + callFigures + `
    from tasker.call_rates r cross join period
    where callable = any (array(select callable_id from it)) and grain = @grain::int and at >= since and at < till
    group by plan_id, step_no
)
select p.name as task, p.version, coalesce(p.steps[s.step_no + 1], '') as step, s.succeeded, s.failed, s.failed_for_good, s.lost, s.cancelled,
       s.waiting_ms, s.running_ms, s.longest_ms, s.waiting, s.running
from sums s cross join lateral (select name, version, steps from tasker.plans where plan_id = any (array[s.plan_id]) limit 1) p
order by p.name, p.version, s.step_no, s.plan_id limit @limit`)
	depthPoints = pg.Compile(`
with ` + period + `, ` + oneCallable + `
select at, waiting, running, (oldest_ms / 1000.0)::float8 as oldest
from tasker.call_depths d cross join period
where callable = any (array(select callable_id from it)) and grain = @grain::int and at >= since and at < till order by at limit @limit`)
)

const oneCallable = `it as materialized (
    select c.callable_id from tasker.namespaces n join tasker.callables c on c.namespace_id = n.namespace_id
    where n.name = @namespace and c.callable = @callable and c.method = @method and c.resolver = @resolver
)`

// CallSeries reads what a callable did in each grain of a period; the error wraps ErrNotFound for an unknown one.
func (s *Ledger) CallSeries(ctx context.Context, p Period, namespace string, of workflow.HandlerReference, limit int, alive time.Duration) (CallSeries, error) {
	it := pg.Args{"namespace": namespace, "callable": of.Callable, "method": of.Method, "resolver": of.Resolver}
	args := p.args().And(it).And(pg.Args{"limit": limit})
	return pg.Read(ctx, s.db, "call_series", "read the rates of a callable", func(ctx context.Context, db *pg.Conn) (o CallSeries, err error) {
		b, known := &pgx.Batch{}, false
		s.reading(b, p, alive, &o.ReadRates, &o.Gaps)
		knownCallable.With(it).Queue(b).Query(stmt.Row(&known))
		callPoints.With(args).Queue(b).Query(stmt.Into(&o.Points))
		callVersions.With(args).Queue(b).Query(stmt.Into(&o.Versions))
		depthPoints.With(args).Queue(b).Query(stmt.Into(&o.Depths))
		if err := db.SendBatch(ctx, b).Close(); err != nil {
			return o, err
		}
		if !known {
			return o, pg.ErrNotFound
		}
		return o, nil
	})
}

var knownCallable = pg.Compile(`with ` + oneCallable + ` select exists (select from it)`)

// TaskFigures are how many tasks were created, and how they ended.
type TaskFigures struct {
	Created, Completed, Failed, Cancelled, Resolved int64
	EndedMS                                         int64 // from the requests to the ends, in all
}

const taskFigures = `coalesce(sum(r.count) filter (where r.state = {task_pending}), 0)::bigint as created, coalesce(sum(r.count) filter (where r.state = {task_complete}), 0)::bigint as completed,
       coalesce(sum(r.count) filter (where r.state = {task_error}), 0)::bigint as failed, coalesce(sum(r.count) filter (where r.state = {task_cancelled}), 0)::bigint as cancelled,
       coalesce(sum(r.count) filter (where r.state = {task_resolved}), 0)::bigint as resolved, coalesce(sum(r.ms), 0)::bigint as ended_ms`

// NamespaceRates are the tasks of a namespace in a period, and what it has waiting.
type NamespaceRates struct {
	Namespace string
	TaskFigures
	Waiting, Running int           // steps, as last seen
	Oldest           time.Duration `sql:",seconds"`
}

// namespaceTotals sums up the tasks of each namespace.
// Index: task_rates_at, then the primary keys.
var namespaceTotals = pg.Compile(`
with ` + period + `, done as materialized (
    select p.namespace_id, ` + taskFigures + `
    from period cross join tasker.task_rates r join tasker.plans p on p.plan_id = r.plan_id
    where r.grain = @grain::int and r.at >= since and r.at < till group by p.namespace_id
), waiting as materialized (
    select c.namespace_id, sum(d.waiting)::int as waiting, sum(d.running)::int as running, max(d.oldest_ms) as oldest_ms from tasker.depths_seen s
    join tasker.call_depths d on d.grain = 60 and d.at = date_trunc('minute', s.at)
    join tasker.callables c on c.callable_id = d.callable group by c.namespace_id
)
select n.name as namespace, coalesce(r.created, 0) as created, coalesce(r.completed, 0) as completed, coalesce(r.failed, 0) as failed,
       coalesce(r.cancelled, 0) as cancelled, coalesce(r.resolved, 0) as resolved, coalesce(r.ended_ms, 0) as ended_ms,
       coalesce(w.waiting, 0) as waiting, coalesce(w.running, 0) as running, coalesce(w.oldest_ms / 1000.0, 0)::float8 as oldest
from tasker.namespaces n left join done r on r.namespace_id = n.namespace_id left join waiting w on w.namespace_id = n.namespace_id
where @namespaces::text[] is null or n.name = any (@namespaces::text[])
order by n.name limit @limit`)

// NamespacePoint is what happened to the tasks of a namespace from a time on.
type NamespacePoint struct {
	At time.Time
	TaskFigures
	Waiting, Running int
	Oldest           time.Duration `sql:",seconds"`
}

// namespacePoints are those of the tasks of one namespace.
// Index: task_rates_at, call_depths_at, then the primary keys.
var namespacePoints = pg.Compile(`
with ` + period + `, it as materialized (
    select namespace_id from tasker.namespaces where name = any (@namespaces::text[])
), done as materialized (
    select r.at, ` + taskFigures + `
    from period cross join tasker.task_rates r join tasker.plans p on p.plan_id = r.plan_id
    where r.grain = @grain::int and r.at >= since and r.at < till and p.namespace_id = any (array(select namespace_id from it)) group by r.at
), waiting as materialized (
    select d.at, sum(d.waiting)::int as waiting, sum(d.running)::int as running, max(d.oldest_ms) as oldest_ms
    from period cross join tasker.call_depths d join tasker.callables c on c.callable_id = d.callable
    where d.grain = @grain::int and d.at >= since and d.at < till and c.namespace_id = any (array(select namespace_id from it)) group by d.at
)
select at, coalesce(r.created, 0) as created, coalesce(r.completed, 0) as completed, coalesce(r.failed, 0) as failed, coalesce(r.cancelled, 0) as cancelled,
       coalesce(r.resolved, 0) as resolved, coalesce(r.ended_ms, 0) as ended_ms,
       coalesce(w.waiting, 0) as waiting, coalesce(w.running, 0) as running, coalesce(w.oldest_ms / 1000.0, 0)::float8 as oldest
from done r full join waiting w using (at) order by at limit @limit`)

// NamespaceOverview is the rates of namespaces in a period; Points are those of one of them, in its grains.
type NamespaceOverview struct {
	ReadRates
	Gaps       []RatesGap
	Namespaces []NamespaceRates
	Points     []NamespacePoint
}

// NamespaceRates sums up the tasks of namespaces, nil for all, up to limit; with series, which needs exactly one of them,
// also for each grain of the period.
func (s *Ledger) NamespaceRates(ctx context.Context, p Period, namespaces []string, series bool, limit int, alive time.Duration) (NamespaceOverview, error) {
	args := p.args().And(pg.Args{"namespaces": namespaces, "limit": limit})
	return pg.Read(ctx, s.db, "namespace_rates", "read the rates of namespaces", func(ctx context.Context, db *pg.Conn) (o NamespaceOverview, err error) {
		b := &pgx.Batch{}
		s.reading(b, p, alive, &o.ReadRates, &o.Gaps)
		namespaceTotals.With(args).Queue(b).Query(stmt.Into(&o.Namespaces))
		if series {
			namespacePoints.With(args).Queue(b).Query(stmt.Into(&o.Points))
		}
		return o, db.SendBatch(ctx, b).Close()
	})
}

// RatesDifference is a minute in which the ledger has other attempts of a step than were counted.
type RatesDifference struct {
	PlanID            int32
	StepNo            int // of the plan
	Outcome           workflow.AttemptOutcome
	At                time.Time
	Recorded, Counted AttemptSums
}

// AttemptSums are sums over attempts.
type AttemptSums struct{ Count, WaitingMS, RunningMS int64 }

// compareRates compares the ledger with the rates of minutes. It reads all attempts of the time: it is for tests, and for
// operators who doubt.
var compareRates = pg.Compile(`
with recorded as (
    select t.plan_id, coalesce(d.template_no, a.step_no) as step_no, a.outcome, date_trunc('minute', a.applied_at) as at, count(*) as count,
           sum(coalesce(greatest(round(extract(epoch from a.claimed_at - a.enqueued_at) * 1000), 0), 0))::bigint as waiting_ms,
           sum(coalesce(greatest(round(extract(epoch from a.reported_at - a.claimed_at) * 1000), 0), 0))::bigint as running_ms
    from tasker.step_attempts a join tasker.tasks t using (task_uuid)
    left join lateral (
        select template_no from (
            select template_no, since from tasker.batches where task_uuid = a.task_uuid and step_no = a.step_no and since < a.token
            union all
            select template_no, since from tasker.former_batches where task_uuid = a.task_uuid and step_no = a.step_no and since < a.token) b
        order by since desc limit 1) d on true
    where a.step_no >= 0 and a.claimed_at is not null and a.applied_at >= @from::timestamptz and a.applied_at < @to::timestamptz
    group by 1, 2, 3, 4
), counted as (
    select plan_id, step_no, outcome, at, sum(count)::bigint as count, sum(waiting_ms)::bigint as waiting_ms, sum(running_ms)::bigint as running_ms
    from tasker.call_rates where grain = 60 and at >= @from::timestamptz and at < @to::timestamptz group by 1, 2, 3, 4
)
select plan_id, step_no, outcome, at, coalesce(r.count, 0) as recorded, coalesce(r.waiting_ms, 0) as recorded_waiting, coalesce(r.running_ms, 0) as recorded_running,
       coalesce(c.count, 0) as counted, coalesce(c.waiting_ms, 0) as counted_waiting, coalesce(c.running_ms, 0) as counted_running
from recorded r full join counted c using (plan_id, step_no, outcome, at)
where (r.count, r.waiting_ms, r.running_ms) is distinct from (c.count, c.waiting_ms, c.running_ms)
order by at, plan_id, step_no, outcome`)

// CompareRates returns where the rates of minutes differ from the ledger, from a minute on, and before another one. Steps of the engine
// are not counted.
func (s *Ledger) CompareRates(ctx context.Context, from, to time.Time) ([]RatesDifference, error) {
	type row struct {
		PlanID, StepNo                             int32
		Outcome                                    workflow.AttemptOutcome
		At                                         time.Time
		Recorded, RecordedWaiting, RecordedRunning int64
		Counted, CountedWaiting, CountedRunning    int64
	}
	return pg.Read(ctx, s.db, "compare_rates", "compare the rates with the ledger", func(ctx context.Context, db *pg.Conn) ([]RatesDifference, error) {
		rows, err := stmt.All[row](ctx, db, compareRates.With(pg.Args{"from": from, "to": to}))
		if err != nil {
			return nil, err
		}
		plans, err := s.registry.PlansOn(ctx, db, pg.Column(rows, func(r *row) int32 { return r.PlanID }))
		if err != nil {
			return nil, err
		}
		var list []RatesDifference
		for _, r := range rows {
			plan, err := plans.Of(r.PlanID)
			if err != nil {
				return nil, err
			}
			if no := int(r.StepNo); no >= len(plan.Steps) || !plan.Steps[no].Kind.ByEngine() {
				list = append(list, RatesDifference{r.PlanID, no, r.Outcome, r.At, AttemptSums{r.Recorded, r.RecordedWaiting, r.RecordedRunning},
					AttemptSums{r.Counted, r.CountedWaiting, r.CountedRunning}})
			}
		}
		return list, nil
	})
}
