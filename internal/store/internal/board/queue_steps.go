package board

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/plainqueue"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
)

// QueueStep is the step of a live task of a queue.
type QueueStep struct {
	TaskUUID uuid.UUID
	Queue    string
	Slot     int
	Held     bool      // claimed, and neither reported nor lost
	Worker   uuid.UUID `sql:",omitzero"` // of the claim
	Token    int64     `sql:",omitzero"`
	Age      time.Duration
	Running  time.Duration // since the claim
}

// Key names the claim.
func (s *QueueStep) Key() ClaimKey {
	return ClaimKey{TaskUUID: s.TaskUUID, Slot: s.Slot, Token: s.Token}
}

// queueSteps reads the only steps of tasks, which may have rows of their own.
// Index: the primary keys.
var queueSteps = pg.Compile(`
select b.task_uuid, n.name as queue, b.slot, b.state = {in_progress} as held, b.worker, b.token,
       (extract(epoch from clock_timestamp() - t.requested_at) * 1000)::bigint as age,
       coalesce((extract(epoch from clock_timestamp() - b.claimed_at) * 1000)::bigint, 0) as running
from unnest((select @tasks::uuid[])) h(task_uuid)
cross join lateral (select requested_at from tasker.board where task_uuid = h.task_uuid and slot = 0 limit 1) t
cross join lateral (select * from tasker.board where task_uuid = h.task_uuid and slot in (0, 1) and step_no = 0 limit 1) b
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[b.queue]) limit 1) n`)

// QueueSteps reads the steps of tasks of queues that are alive; the others are left out.
func (s *Board) QueueSteps(ctx context.Context, tasks []uuid.UUID) (map[uuid.UUID]QueueStep, error) {
	ids := pg.Column(tasks, func(id *uuid.UUID) [16]byte { return *id })
	return pg.ReadMap(ctx, s.db, "queue_steps", "read the steps of tasks", queueSteps.With(pg.Args{"tasks": ids}),
		func(r *QueueStep) (uuid.UUID, QueueStep) { return r.TaskUUID, *r })
}

// QueueCounts are the tasks of a queue by their states.
type QueueCounts struct {
	Queue            string
	Waiting, Claimed int // alive
	Complete, Failed int // ended, and still kept
	// Capped says that there were more tasks than were counted: the numbers are about the least
	// that there are.
	Capped        bool
	PausedAt      *time.Time
	ActiveWorkers int
}

// countQueues counts the claimable steps of a queue in its lines on the board, and its tasks and
// those that failed in the ledger: of each up to @limit, shared by the queues. What is scheduled,
// runs or was reported is in no order of queues: @others of each are looked at, for all queues.
// The number of tasks that are complete is what is left.
// Index: tasks_by_plan, step_attempts_failed_by_plan_state, board_claimable, limit_keys_turns,
// board_due, board_leases, board_reported, board_reported_apart.
var countQueues = pg.Compile(`
with queues as materialized (
    select n.namespace_id, n.name, n.paused_at, array_agg(p.plan_id) as plans, array_agg(distinct p.callables[1]) as callables
    from tasker.plans p join tasker.namespaces n using (namespace_id)
    where p.name = @template and (@queue = '' or n.name = @queue) group by n.namespace_id order by n.name limit 1000
), share as materialized (
    select greatest(@limit::int / greatest(count(*), 1), 100)::int as each from queues
), seen as materialized (
    (select queue, slot, step_no, state, plan_id from tasker.board where state = {scheduled} and due_at is not null order by due_at limit @others)
    union all
    (select queue, slot, step_no, state, plan_id from tasker.board where state = {in_progress} and lease_until is not null order by lease_until limit @others)
    union all
    (select queue, slot, step_no, state, plan_id from tasker.board where state = {reported} and slot = 0 order by seq limit @others)
    union all
    (select queue, slot, step_no, state, plan_id from tasker.board where state = {reported} and slot > 0 order by seq limit @others)
), cut as materialized (
    select coalesce(bool_or(n >= @others), false) as off from (select count(*) as n from seen group by state, slot = 0 and state = {reported}) s
), others as materialized (
    select queue, count(*) filter (where state = {scheduled}) as waiting, count(*) filter (where state <> {scheduled}) as claimed
    from seen where slot in (0, 1) and step_no = 0 and queue = any (array(select namespace_id from queues))
    and (slot = 1 or plan_id = any (array(select unnest(plans) from queues))) group by queue
), counted as materialized (
    select q.namespace_id, s.each, (select count(*) from (
               select from (select unnest(q.callables) as id
                            union all
                            select -k.line from tasker.limit_keys k where k.callable_id = any (q.callables) and k.waiting) l
               cross join lateral (select from tasker.board where state = {claimable} and callable = l.id limit s.each) b limit s.each) c) as claimable,
           (select count(*) from (select from unnest(q.plans) p(id) cross join lateral (
               select from tasker.tasks where plan_id = p.id and plan_id > 0 limit s.each) t limit s.each) c) as total,
           (select count(*) from (select from unnest(q.plans) p(id) cross join lateral (
               select from tasker.step_attempts where failed_plan_id = p.id and task_state <> {task_resolved} limit s.each) f limit s.each) c) as failed
    from queues q cross join share s
)
select q.name as queue, q.paused_at, (c.claimable + coalesce(o.waiting, 0))::int as waiting, coalesce(o.claimed, 0)::int as claimed, c.failed::int as failed,
       greatest(c.total - c.claimable - coalesce(o.waiting, 0) - coalesce(o.claimed, 0) - c.failed, 0)::int as complete,
       greatest(c.claimable, c.total, c.failed) >= c.each or (select off from cut) as capped,
       (select count(*) from tasker.queue_workers w where w.queue = q.name
          and w.heartbeat_at > clock_timestamp() - @stale_ms::bigint * interval '1 ms')::int as active_workers
from queues q join counted c using (namespace_id) left join others o on o.queue = q.namespace_id order by q.name`)

// maxCounted bounds the tasks of queues that are counted, and maxOthers those on the board that
// are looked at for it.
const (
	maxCounted = 50_000
	maxOthers  = 5000
)

// CountQueues counts the tasks and active workers of a queue, or of the first thousand; a
// worker is active up to an age of its heartbeat. What it costs does not grow with the board.
func (s *Board) CountQueues(ctx context.Context, queue string, active time.Duration) ([]QueueCounts, error) {
	return pg.ReadAll[QueueCounts](ctx, s.db, "count_queues", "count the tasks of queues", countQueues.With(pg.Args{
		"template": plainqueue.Template, "queue": queue, "limit": maxCounted, "others": maxOthers, "stale_ms": active.Milliseconds()}))
}
