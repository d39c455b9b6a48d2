package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/wording"
	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// Callable is the code that steps of a namespace name. Each has its own line on the
// board, so that a worker claims only what it can run.
type Callable struct {
	ID        int32
	Namespace int32                     // see Store.Queues
	Handler   workflow.HandlerReference `sql:",inline"`
}

// callables caches the registered callables. They do not change, and come in the order of
// their ids: registrations are serialized, see registration.take. It is safe for
// concurrent use.
type callables struct {
	mu   sync.RWMutex
	byID map[int32]Callable
	last int32
	// version changes when callables are added or cleared.
	version uint64
}

func newCallables() *callables { return &callables{byID: map[int32]Callable{}} }

func (c *callables) knows(id int32) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, ok := c.byID[id]
	return ok
}

// newCallablesSince reads the callables registered since.
// Index: the primary key.
var newCallablesSince = compile(`
select callable_id as id, namespace_id as namespace, callable, method, resolver from tasker.callables where callable_id > @last order by callable_id`)

// ask adds the query for new callables to a batch.
func (c *callables) ask(b *pgx.Batch, list *[]Callable) {
	c.mu.RLock()
	last := c.last
	c.mu.RUnlock()
	newCallablesSince.With(args{"last": last}).Queue(b).Query(stmt.Into(list))
}

// learn adds the answer.
func (c *callables) learn(list []Callable) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range list {
		c.byID[k.ID], c.last = k, max(c.last, k.ID)
		c.version++
	}
}

// forget empties it.
func (c *callables) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.byID)
	c.last = 0
	c.version++
}

// Callables returns all registered callables, in the order of the ids. It reads only
// those not read before.
func (s *Store) Callables(ctx context.Context) ([]Callable, error) {
	err := s.repeatable(ctx, "callables", "read the callables", func(ctx context.Context, db *conn) error {
		var list []Callable
		err := s.scanAll(ctx, db, func(b *pgx.Batch) { s.callables.ask(b, &list) })
		if err == nil {
			s.callables.learn(list)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.KnownCallables(), nil
}

// CallablesVersion changes when KnownCallables changes; claims of any caller can cause
// that.
func (s *Store) CallablesVersion() uint64 {
	s.callables.mu.RLock()
	defer s.callables.mu.RUnlock()
	return s.callables.version
}

// KnownCallables returns the callables known from earlier reads, without a query.
func (s *Store) KnownCallables() []Callable {
	s.callables.mu.RLock()
	defer s.callables.mu.RUnlock()
	list := make([]Callable, 0, len(s.callables.byID))
	for _, id := range slices.Sorted(maps.Keys(s.callables.byID)) {
		list = append(list, s.callables.byID[id])
	}
	return list
}

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
)`
	// unservedColumns are of a callable c in a namespace n.
	unservedColumns = `n.name as namespace, c.callable, c.method, c.resolver, exists (select from live l where n.name = any (l.namespaces)) as workers,
       array(select distinct h from live l cross join lateral unnest(l.handlers) h where n.name = any (l.namespaces) order by 1 limit 1000) as handlers`
)

// unservedLanes counts the steps of the callables that no live worker offers, each
// up to a limit, the most first. Index: board_claimable, then the primary keys.
var unservedLanes = compile(`
with recursive ` + liveWorkers + `, ` + everyLane + `, waiting as materialized (
    select l.callable as id, sum(s.steps) as steps, max(s.waited) as waited
    from (select * from found where callable <> all (array(select callable from offered))) l cross join lateral (
        select count(*) as steps, extract(epoch from clock_timestamp() - min(enqueued_at)) as waited from (
            select enqueued_at from tasker.board where state = {claimable} and callable = l.callable and lane = l.lane and seq >= l.mark
            order by seq limit @limit::int) first) s
    where s.steps > 0 group by l.callable
)
select least(w.steps, @limit::int)::int as steps, coalesce(w.waited, 0)::float8 as waited, ` + unservedColumns + `
from waiting w
cross join lateral (select * from tasker.callables where callable_id = any (array[w.id]) limit 1) c
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[c.namespace_id]) limit 1) n
order by w.steps desc, c.callable_id limit 1000`)

// othersOffer checks whether another live worker offers a callable.
// Index: workers_alive.
var othersOffer = compile(`
select exists (
    select from tasker.workers
    where stopped_at is null and status < {worker_dead} and heartbeat_at > clock_timestamp() - @alive_ms::bigint * interval '1 ms'
      and worker_uuid <> @worker and mode not in ('` + ModeDraining + `', 'Disabled') and @callable = any (callables))`)

// OthersOffer reports whether a worker other than the given one offers a callable; alive
// is the age up to which a heartbeat counts.
func (s *Store) OthersOffer(ctx context.Context, worker uuid.UUID, callable int32, alive time.Duration) (bool, error) {
	return readOne[bool](ctx, s, "others_offer", "look for workers that offer the same",
		othersOffer.With(args{"worker": worker, "callable": callable, "alive_ms": alive.Milliseconds()}))
}

// Unserved lists the callables with waiting steps that no live worker offers, most steps
// first, at most 1,000. alive is the age up to which a heartbeat counts; steps are
// counted up to limit for each.
func (s *Store) Unserved(ctx context.Context, alive time.Duration, limit int) (list []Unserved, err error) {
	err = s.call(ctx, "unserved", "look for steps that no worker can run", func(ctx context.Context, db *conn) error {
		limits := args{"alive_ms": alive.Milliseconds(), "limit": limit}
		list, err = stmt.All[Unserved](ctx, db, unservedLanes.With(s.everywhere().And(limits)))
		return err
	})
	return list, err
}

// unservedSteps are the steps of a task that no live worker can run.
// Index: the primary keys.
var unservedSteps = compile(`
with ` + liveWorkers + `
select b.step_no, 1 as steps, 0::float8 as waited, ` + unservedColumns + `
from (select step_no, callable, state from tasker.board where task_uuid = @task offset 0) b
cross join lateral (select * from tasker.callables where callable_id = any (array[b.callable]) limit 1) c
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[c.namespace_id]) limit 1) n
where b.state = {claimable} and b.callable <> all (array(select callable from offered))`)

// UnservedSteps returns, by step number, the waiting steps of a task that no live worker
// can run; alive is as with Unserved.
func (s *Store) UnservedSteps(ctx context.Context, task uuid.UUID, alive time.Duration) (map[int]Unserved, error) {
	type row struct {
		StepNo int
		Unserved
	}
	list, err := readAll[row](ctx, s, "unserved_steps", "look for workers that can run the steps",
		unservedSteps.With(args{"alive_ms": alive.Milliseconds(), "task": task}))
	steps := make(map[int]Unserved, len(list))
	for _, r := range list {
		steps[r.StepNo] = r.Unserved
	}
	return steps, err
}
