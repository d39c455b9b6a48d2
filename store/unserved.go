package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/wording"
	"github.com/tasker-go/tasker/workflow"
)

// Unserved are waiting steps that no live worker can run: none offers their callable.
type Unserved struct {
	Namespace string
	Handler   workflow.HandlerReference
	Steps     int           // counted up to a limit
	Waited    time.Duration // how long the oldest of them has waited
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

// offered are the callables of live workers; $1 is the age in ms up to which a heartbeat
// counts.
const (
	liveWorkers = `live as materialized (
    select namespaces, callables, handlers from tasker.workers
    where stopped_at is null and heartbeat_at > clock_timestamp() - $1::bigint * interval '1 ms'
), offered as materialized (
    select distinct unnest(callables) as callable from live
)`
	// unservedColumns are of a callable c in a namespace n.
	unservedColumns = `n.name, c.callable, c.method, c.resolver, exists (select from live l where n.name = any (l.namespaces)),
       array(select distinct h from live l cross join lateral unnest(l.handlers) h where n.name = any (l.namespaces) order by 1 limit 1000)`
)

// unservedLanes counts the steps of the callables that no live worker offers, each
// up to $2, the most first. Index: board_claimable, then the primary keys.
var unservedLanes = `
with recursive ` + liveWorkers + `, ` + everyLane(3, 6) + `, waiting as materialized (
    select l.callable as id, sum(s.steps) as steps, max(s.waited) as waited
    from (select * from found where callable <> all (array(select callable from offered))) l cross join lateral (
        select count(*) as steps, extract(epoch from clock_timestamp() - min(enqueued_at)) as waited from (
            select enqueued_at from tasker.board where state = 2 and callable = l.callable and lane = l.lane and seq >= l.mark
            order by seq limit $2::int) first) s
    where s.steps > 0 group by l.callable
)
select least(w.steps, $2::int)::int, coalesce(w.waited, 0)::float8, ` + unservedColumns + `
from waiting w
cross join lateral (select * from tasker.callables where callable_id = any (array[w.id]) limit 1) c
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[c.namespace_id]) limit 1) n
order by w.steps desc, c.callable_id limit 1000`

// othersOffer checks whether another live worker offers callable $2.
// Index: workers_alive.
const othersOffer = `
select exists (
    select from tasker.workers
    where stopped_at is null and status < 3 and heartbeat_at > clock_timestamp() - $3::bigint * interval '1 ms'
      and worker_uuid <> $1 and mode not in ('` + ModeDraining + `', 'Disabled') and $2 = any (callables))`

// OthersOffer reports whether a worker other than the given one offers a callable; alive
// is the age up to which a heartbeat counts.
func (s *Store) OthersOffer(ctx context.Context, worker uuid.UUID, callable int32, alive time.Duration) (others bool, err error) {
	err = s.repeatable(ctx, "others_offer", "look for workers that offer the same", func(ctx context.Context, db *conn) error {
		return db.QueryRow(ctx, othersOffer, worker, callable, alive.Milliseconds()).Scan(&others)
	})
	return others, err
}

// Unserved lists the callables with waiting steps that no live worker offers, most steps
// first, at most 1,000. alive is the age up to which a heartbeat counts; steps are
// counted up to limit for each.
func (s *Store) Unserved(ctx context.Context, alive time.Duration, limit int) (list []Unserved, err error) {
	err = s.call(ctx, "unserved", "look for steps that no worker can run", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, unservedLanes, append([]any{alive.Milliseconds(), limit}, s.everywhere()...)...)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (u Unserved, err error) {
			var waited float64
			err = row.Scan(&u.Steps, &waited, &u.Namespace, &u.Handler.Callable, &u.Handler.Method, &u.Handler.Resolver, &u.Workers, &u.Handlers)
			u.Waited = seconds(&waited)
			return u, err
		})
		return err
	})
	return list, err
}

// unservedSteps are the steps of a task that no live worker can run.
// Index: the primary keys.
const unservedSteps = `
with ` + liveWorkers + `
select b.step_no, ` + unservedColumns + `
from (select step_no, callable, state from tasker.board where task_uuid = $2 offset 0) b
cross join lateral (select * from tasker.callables where callable_id = any (array[b.callable]) limit 1) c
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[c.namespace_id]) limit 1) n
where b.state = 2 and b.callable <> all (array(select callable from offered))`

// UnservedSteps returns, by step number, the waiting steps of a task that no live worker
// can run; alive is as with Unserved.
func (s *Store) UnservedSteps(ctx context.Context, task uuid.UUID, alive time.Duration) (map[int]Unserved, error) {
	steps := map[int]Unserved{}
	err := s.repeatable(ctx, "unserved_steps", "look for workers that can run the steps", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, unservedSteps, alive.Milliseconds(), task)
		if err != nil {
			return err
		}
		var no int
		u := Unserved{Steps: 1}
		_, err = pgx.ForEachRow(rows, []any{&no, &u.Namespace, &u.Handler.Callable, &u.Handler.Method, &u.Handler.Resolver, &u.Workers, &u.Handlers}, func() error {
			steps[no] = u
			u.Handlers = nil
			return nil
		})
		return err
	})
	return steps, err
}
