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
	Capped           bool
	PausedAt         *time.Time
	ActiveWorkers    int
}

// countQueues counts live tasks on the board and ended ones in the ledger, of which there may
// be many: at most @limit of each queue are looked at.
// Index: tasks_by_plan, step_attempts_failed; the board is read once.
var countQueues = pg.Compile(`
with queues as materialized (
    select n.namespace_id, n.name, n.paused_at, array_agg(p.plan_id) as plans
    from tasker.plans p join tasker.namespaces n using (namespace_id)
    where p.name = @template and (@queue = '' or n.name = @queue) group by n.namespace_id order by n.name limit 1000
), live as materialized (
    select queue, count(*) filter (where state < {in_progress}) as waiting, count(*) filter (where state >= {in_progress}) as claimed
    from tasker.board where slot in (0, 1) and step_no = 0 and queue = any (array(select namespace_id from queues))
    and (slot = 1 or plan_id = any (array(select unnest(plans) from queues))) group by queue
), ended as materialized (
    select q.namespace_id, (select count(*) from (select 1 from unnest(q.plans) p(id) cross join lateral (
               select 1 from tasker.tasks where plan_id = p.id and plan_id > 0 limit @limit) t limit @limit) c) as total,
           (select count(*) from (select 1 from tasker.step_attempts a join tasker.tasks t on t.task_uuid = a.task_uuid
               where a.task_state > {task_complete} and a.task_state <> {task_resolved} and t.plan_id = any (q.plans) limit @limit) f) as failed
    from queues q
)
select q.name as queue, q.paused_at, coalesce(l.waiting, 0)::int as waiting, coalesce(l.claimed, 0)::int as claimed, e.failed::int as failed,
       greatest(e.total - coalesce(l.waiting, 0) - coalesce(l.claimed, 0) - e.failed, 0)::int as complete, e.total >= @limit as capped,
       (select count(*) from tasker.queue_workers w where w.queue = q.name
          and w.heartbeat_at > clock_timestamp() - @stale_ms::bigint * interval '1 ms')::int as active_workers
from queues q join ended e using (namespace_id) left join live l on l.queue = q.namespace_id order by q.name`)

// maxCounted bounds the ended tasks of a queue that are counted.
const maxCounted = 1_000_000

// CountQueues counts the tasks and active workers of a queue, or of the first thousand; a
// worker is active up to an age of its heartbeat. It reads the whole board.
func (s *Board) CountQueues(ctx context.Context, queue string, active time.Duration) ([]QueueCounts, error) {
	return pg.ReadAll[QueueCounts](ctx, s.db, "count_queues", "count the tasks of queues", countQueues.With(pg.Args{
		"template": plainqueue.Template, "queue": queue, "limit": maxCounted, "stale_ms": active.Milliseconds()}))
}
