package board

import (
	"context"
	"time"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/workflow"
)

// CallableLoad is the waiting and running work of a callable, and the speed of live workers.
type CallableLoad struct {
	ID        int32 // of the callable
	Namespace string
	Handler   workflow.HandlerReference `sql:",inline"`
	Waiting   int                       // counted up to a limit
	Running   int
	Oldest    time.Duration `sql:",seconds"` // how long the oldest waiting step has waited
	Service   time.Duration `sql:",seconds"` // mean time of the handler; 0: no live worker has measured it
	// Expected is the mean expected time of the waiting steps that have one; 0 without the policy
	// that orders by it.
	Expected time.Duration `sql:",seconds"`
}

// WorkerLoad is what a worker reports with each heartbeat.
type WorkerLoad struct {
	Permits   int               `json:"permits"`    // handlers that run at once
	ServiceMS map[int32]float64 `json:"service_ms"` // mean time of handlers by callable, of late; 1,000 at most
	// Samples are the last executions to learn from; see Registry.SampleOf.
	Samples []registry.Sample `json:"samples,omitempty"`
}

// NamespaceWorkers are those that serve a namespace.
type NamespaceWorkers struct {
	Namespace string
	Workers   int // alive and not draining
	// Permits is the mean number of handlers that one of them runs at once; without a live worker,
	// that of the last one; 0: no worker has reported it.
	Permits int
}

// callableLoads counts lane by lane, like queueDepth; of the steps in the line of a key it
// counts those that may run at once, since more workers would not run more of them. Under
// shortest_expected a lane says what its steps are expected to take, by a factor of 1.2; see
// package order.
// Index: board_claimable, board_leases, those of keyLines, then the primary keys.
var callableLoads = pg.Compile(`
with recursive ` + everyLane + `, ` + keyLines(runnableOfKey) + `, paused as materialized (select ` + pausedByOperators + ` as those), waiting as materialized (
    select s.callable, sum(s.steps) as steps, max(s.waited) as waited,
           sum(s.steps * 2 ^ ((s.lane - @unknown_lane::int) / 2.0)) filter (where s.lane not in ({aged_lane}, @unknown_lane::int))
           / sum(s.steps) filter (where s.lane not in ({aged_lane}, @unknown_lane::int)) as expected
    from (
        select l.callable, l.lane, s.* from found l cross join lateral (
            select count(*) as steps, extract(epoch from clock_timestamp() - min(since)) as waited from (
                select coalesce(enqueued_at, requested_at) as since from tasker.board
                where state = {claimable} and callable = l.callable and lane = l.lane and seq >= l.mark
                order by seq limit @limit::int) first) s
        union all
        select callable, null, steps, extract(epoch from clock_timestamp() - since) from key_lines) s cross join paused
    where s.steps > 0 and (@paused::boolean or s.callable <> all (paused.those)) group by s.callable
), running as materialized (
    select callable, count(*) as steps
    from (select callable from tasker.board where state = {in_progress} and lease_until >= @lease_from order by lease_until limit @limit::int) r
    where callable <> {by_engine} group by callable
), measured as materialized (
    select m.key::int as callable, avg(m.value::float8) / 1000 as seconds
    from tasker.workers w cross join lateral jsonb_each_text(w.load -> 'service_ms') m
    where w.stopped_at is null and w.heartbeat_at > clock_timestamp() - @alive_ms::bigint * interval '1 ms' group by m.key
)
select c.callable_id as id, n.name as namespace, c.callable, c.method, c.resolver, least(coalesce(w.steps, 0), @limit::int)::int as waiting,
       coalesce(r.steps, 0)::int as running, coalesce(greatest(w.waited, 0), 0)::float8 as oldest, coalesce(m.seconds, 0)::float8 as service,
       case when exists (select from tasker.policies where callable_id = k.callable and policy = @by_time) then coalesce(w.expected, 0) else 0 end::float8 as expected
from (select callable from waiting union select callable from running) k
left join waiting w on w.callable = k.callable
left join running r on r.callable = k.callable
left join measured m on m.callable = k.callable
cross join lateral (select * from tasker.callables where callable_id = any (array[k.callable]) limit 1) c
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[c.namespace_id]) limit 1) n
order by n.name, c.callable_id`)

// namespaceWorkers lists every namespace.
var namespaceWorkers = pg.Compile(`
with live as materialized (
    select namespaces, (load ->> 'permits')::int as permits from tasker.workers
    where stopped_at is null and heartbeat_at > clock_timestamp() - @alive_ms::bigint * interval '1 ms' and mode <> '` + ModeDraining + `'
)
select n.name as namespace, count(l.*)::int as workers,
       coalesce(round(avg(l.permits))::int, (select (load ->> 'permits')::int from tasker.workers w
            where n.name = any (w.namespaces) and load is not null order by heartbeat_at desc limit 1), 0) as permits
from tasker.namespaces n left join live l on n.name = any (l.namespaces)
group by n.name`)

// Loads returns the load of the callables with work, of which none waits while they are paused, and the workers of every
// namespace. Each lane is counted up to limit. alive is the age up to which a heartbeat
// counts.
func (s *Board) Loads(ctx context.Context, alive time.Duration, limit int) ([]CallableLoad, []NamespaceWorkers, error) {
	limits := pg.Args{"alive_ms": alive.Milliseconds()}
	workers, err := pg.ReadAll[NamespaceWorkers](ctx, s.db, "namespace_workers", "count the workers of namespaces", namespaceWorkers.With(limits))
	if err != nil {
		return nil, nil, err
	}
	loads, err := s.loads(ctx, alive, limit, false)
	return loads, workers, err
}

// Depths returns what waits and runs of the callables with work, also of paused ones. Each lane is counted up to limit.
func (s *Board) Depths(ctx context.Context, limit int) ([]CallableLoad, error) {
	return s.loads(ctx, 0, limit, true)
}

func (s *Board) loads(ctx context.Context, alive time.Duration, limit int, paused bool) ([]CallableLoad, error) {
	args := pg.Args{"alive_ms": alive.Milliseconds(), "limit": limit, "paused": paused, "by_time": order.ShortestExpected,
		"unknown_lane": order.ShortestExpected.Lane(order.Step{})}
	_, args["lease_from"] = s.timesFrom()
	return pg.ReadAll[CallableLoad](ctx, s.db, "callable_loads", "read the load of callables", callableLoads.With(s.everywhere().And(args)))
}
