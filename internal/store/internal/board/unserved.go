package board

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/plainqueue"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/internal/wording"
	"github.com/tasker-go/tasker/workflow"
)

// Unserved are waiting steps that no live worker can run: none offers their callable.
type Unserved struct {
	Namespace string
	Handler   workflow.HandlerReference `sql:",inline"`
	Steps     int                       // counted up to a limit
	Waited    time.Duration             `sql:",seconds"` // how long the oldest of them has waited
	// Workers says whether live workers serve the namespace, and Handlers lists their
	// handlers, at most 1,000 names.
	Workers  bool
	Handlers []string
}

// String says what is missing, with suggestions.
func (u *Unserved) String() string {
	if !u.Workers {
		return "no worker serves namespace " + u.Namespace
	}
	what := u.Handler.Callable
	if u.Handler.Method != "" {
		what += " (method " + u.Handler.Method + ")"
	}
	if u.Handler.Resolver != "" {
		what += " (resolver " + u.Handler.Resolver + ")"
	}
	near := wording.Nearest(u.Handler.Callable, u.Handlers)
	if near == "" || near == u.Handler.Callable {
		return "no worker serves " + what
	}
	return fmt.Sprintf("no worker serves %s; did you mean %s", what, near)
}

// liveWorkers are those with a heartbeat not older than alive_ms, and what they offer.
const (
	liveWorkers = `live as materialized (
    select namespaces, callables, handlers from tasker.workers
    where stopped_at is null and heartbeat_at > clock_timestamp() - @alive_ms::bigint * interval '1 ms'
), offered as materialized (
    select distinct unnest(callables) as callable from live
    union
    select c.callable_id from tasker.queue_workers w
    cross join lateral (select namespace_id from tasker.namespaces where name = any (array[w.queue]) limit 1) q
    cross join lateral (select callable_id from tasker.callables c where c.namespace_id = any (array[q.namespace_id])
                        and md5(c.callable || {separator} || c.method || {separator} || c.resolver) = md5('` + plainqueue.Template + `' || {separator} || {separator}) limit 1) c
    where w.lives_until > clock_timestamp()
)`
	// unservedColumns are of a callable c in a namespace n.
	unservedColumns = `n.name as namespace, c.callable, c.method, c.resolver, exists (select from live l where n.name = any (l.namespaces)) as workers,
       array(select distinct h from live l cross join lateral unnest(l.handlers) h where n.name = any (l.namespaces) order by 1 limit 1000) as handlers`
)

// unservedLanes counts the steps of the callables that no live worker offers, each
// up to a limit, the most first. Index: board_claimable, those of keyLines, then the primary keys.
var unservedLanes = pg.Compile(`
with recursive ` + liveWorkers + `, ` + everyLane + `, ` + keyLines(allOfKey) + `, waiting as materialized (
    select s.callable as id, sum(s.steps) as steps, max(s.waited) as waited
    from (
        select l.callable, s.* from (select * from found where callable <> all (array(select callable from offered))) l cross join lateral (
            select count(*) as steps, extract(epoch from clock_timestamp() - min(enqueued_at)) as waited from (
                select enqueued_at from tasker.board where state = {claimable} and callable = l.callable and lane = l.lane and seq >= l.mark
                order by seq limit @limit::int) first) s
        union all
        select callable, steps, extract(epoch from clock_timestamp() - since) from key_lines
        where callable <> all (array(select callable from offered))) s
    where s.steps > 0 group by s.callable
)
select least(w.steps, @limit::int)::int as steps, coalesce(w.waited, 0)::float8 as waited, ` + unservedColumns + `
from waiting w
cross join lateral (select * from tasker.callables where callable_id = any (array[w.id]) limit 1) c
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[c.namespace_id]) limit 1) n
order by w.steps desc, c.callable_id limit 1000`)

// Unserved lists the callables with waiting steps that no live worker offers, most steps
// first, at most 1,000. alive is the age up to which a heartbeat counts; steps are
// counted up to limit for each.
func (s *Board) Unserved(ctx context.Context, alive time.Duration, limit int) (list []Unserved, err error) {
	err = s.db.Call(ctx, "unserved", "look for steps that no worker can run", func(ctx context.Context, db *pg.Conn) error {
		limits := pg.Args{"alive_ms": alive.Milliseconds(), "limit": limit}
		list, err = stmt.All[Unserved](ctx, db, unservedLanes.With(s.everywhere().And(limits)))
		return err
	})
	return list, err
}

// unservedSteps are the steps of a task that no live worker can run.
// Index: the primary keys.
var unservedSteps = pg.Compile(`
with ` + liveWorkers + `
select b.step_no, 1 as steps, 0::float8 as waited, ` + unservedColumns + `
from (select step_no, ` + limitedCallableOf + ` as callable, state from tasker.board s where task_uuid = @task offset 0) b
cross join lateral (select * from tasker.callables where callable_id = any (array[b.callable]) limit 1) c
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[c.namespace_id]) limit 1) n
where b.state = {claimable} and b.callable <> all (array(select callable from offered))`)

// UnservedSteps returns, by step number, the waiting steps of a task that no live worker
// can run; alive is as with Unserved.
func (s *Board) UnservedSteps(ctx context.Context, task uuid.UUID, alive time.Duration) (map[int]Unserved, error) {
	type row struct {
		StepNo int
		Unserved
	}
	return pg.ReadMap(ctx, s.db, "unserved_steps", "look for workers that can run the steps",
		unservedSteps.With(pg.Args{"alive_ms": alive.Milliseconds(), "task": task}), func(r *row) (int, Unserved) { return r.StepNo, r.Unserved })
}
