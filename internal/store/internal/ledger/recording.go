package ledger

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/order/simulate"
	"github.com/tasker-go/tasker/internal/predict"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// What a page of a recording reads at most: tasks, and executions of each, the first ones.
const (
	recordedTasks    = 500
	recordedAttempts = 200
)

// RecordingFilter selects the executions of the tasks of a namespace that were created in
// a time.
type RecordingFilter struct {
	Namespace, Handler string // Handler "": all of them
	From, To           time.Time
	// The tenant of a task is what follows TenantTag in one of its tags, else the text at
	// TenantPath in its context.
	TenantTag  string
	TenantPath []string
	// What times are learned by, as a policy declares it; see [predict.Values].
	Features []string
	Class    string
	After    uuid.UUID // a cursor
}

// recordedEdge is the last task of a page, no row after the last one.
// Index: the primary key, from the cursor on; tasks of other namespaces in that time are passed over.
var recordedEdge = pg.Compile(`
select task_uuid from (
    select task_uuid from tasker.tasks
    where queue = (select namespace_id from tasker.namespaces where name = @namespace)
      and task_uuid > @after and task_uuid >= tasker.uuid_floor(@from) and task_uuid < tasker.uuid_floor(@to)
    order by task_uuid limit @tasks::int) t
order by task_uuid desc limit 1`)

// recorded are the executions of the tasks of a page. A batch counts as the step that it is
// an instance of.
// Index: the primary keys.
var recorded = pg.Compile(`
with page as materialized (
    select task_uuid, plan_id, priority, deadline, coalesce(
        case when @tag <> '' then (select substr(tag, length(@tag) + 1) from unnest(tags) tag where starts_with(tag, @tag) order by tag limit 1) end,
        case when cardinality(@path::text[]) > 0 then context #>> @path::text[] end, '') as tenant,
        case when @learning then context end as context
    from tasker.tasks
    where queue = (select namespace_id from tasker.namespaces where name = @namespace)
      and task_uuid > @after and task_uuid >= tasker.uuid_floor(@from) and task_uuid <= @edge
)
select t.task_uuid::text as task, p.name as template, coalesce(p.steps[n.step + 1], '') as step, c.callable as handler, t.tenant,
       coalesce(a.worker::text, '') as worker, a.token, a.attempt, t.priority, a.begun, t.deadline,
       a.enqueued_at as enqueued, a.claimed_at as claimed, coalesce(a.reported_at, a.applied_at) as ended,
       t.context
from page t
cross join lateral (select name, steps, callables from tasker.plans where plan_id = any (array[t.plan_id]) limit 1) p
cross join lateral (
    select step_no, token, worker, attempt, enqueued_at, claimed_at, reported_at, applied_at,
           min(claimed_at) over () < claimed_at and min(claimed_at) over () <= enqueued_at as begun
    from (select * from tasker.step_attempts where task_uuid = t.task_uuid order by step_no, token limit @attempts::int) x
    where step_no >= 0 and enqueued_at is not null and claimed_at is not null) a
cross join lateral (select coalesce((
    select template_no from (
        select template_no, since from tasker.batches where task_uuid = t.task_uuid and step_no = a.step_no
        union all
        select template_no, since from tasker.former_batches where task_uuid = t.task_uuid and step_no = a.step_no) b
    where a.step_no >= cardinality(p.steps) and since < a.token order by since desc limit 1), a.step_no) as step) n
cross join lateral (select callable from tasker.callables where callable_id = any (array[p.callables[n.step + 1]]) limit 1) c
where @handler = '' or c.callable = @handler
order by t.task_uuid, a.token`)

// Recording reads a page of a recording, and the cursor of the next; nil: that was all.
func (s *Ledger) Recording(ctx context.Context, f RecordingFilter) (records []simulate.Record, next uuid.UUID, err error) {
	if f.TenantPath == nil {
		f.TenantPath = []string{}
	}
	args := pg.Args{"namespace": f.Namespace, "from": f.From, "after": f.After}
	err = s.db.Call(ctx, "recording", "read what was recorded", func(ctx context.Context, db *pg.Conn) error {
		edges, err := stmt.All[uuid.UUID](ctx, db, recordedEdge.With(args.And(pg.Args{"to": f.To, "tasks": recordedTasks})))
		if err != nil || len(edges) == 0 {
			records, next = nil, uuid.Nil
			return err
		}
		next = edges[0]
		type row struct {
			simulate.Record
			Context []byte
		}
		records = nil
		return stmt.Each(ctx, db, recorded.With(args.And(pg.Args{"edge": next, "handler": f.Handler, "tag": f.TenantTag, "path": f.TenantPath,
			"attempts": recordedAttempts, "learning": f.Class != "" || len(f.Features) > 0})), func(r *row) {
			r.Class, r.Values = predict.Class(f.Class, r.Context), predict.Values(f.Features, r.Context)
			records = append(records, r.Record)
		})
	})
	return records, next, err
}
