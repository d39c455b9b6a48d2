package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// TaskEvent is a transition of a task. The ordinary ones, from the first claim to the
// complete end, have no actor and are not recorded.
type TaskEvent struct {
	Seconds float64 // since the task was requested
	From    string  `sql:"from_state"`
	To      string  `sql:"to_state"`
	Actor   string
	Reason  string
	// ContextEdited: an operator has changed the context of the task. Both versions are
	// read if they are small (maxShownContext).
	ContextEdited               bool
	ContextBefore, ContextAfter json.RawMessage
}

// maxShownContext bounds the contexts in a timeline, in bytes of both forms.
const maxShownContext = "262144"

// StepAttempt is one execution with all its times, in seconds since the task was
// requested; negative: not reached.
type StepAttempt struct {
	Step                                 int `sql:"step_no"`
	Attempt                              int
	Token                                int64
	Enqueued, Claimed, Reported, Applied float64
	Outcome                              string
	Worker                               *uuid.UUID      // nil: never claimed
	Result, Error                        json.RawMessage // only from Attempts; nil: none
	Batch                                string          // its name; empty: a step of the plan
	Run                                  int             // see BatchUUID
}

// Timeline is the history of one task by the database's clock.
type Timeline struct {
	Completed float64 // seconds since the task was requested; negative: not yet
	Events    []TaskEvent
	Attempts  []StepAttempt
}

// taskEvents are the recorded transitions between the first claim and the complete end,
// which the rows of attempts and of the task show themselves. A task with a claimed step
// is in process, whatever the stored state was at the first recorded change. Recorded
// times are those of transactions, which may begin before the claim they handle: none is
// shown earlier than the event before it.
// Index: the primary keys.
var taskEvents = pg.Compile(`
with begun as (
    select min(claimed_at) as at from (
        select claimed_at from tasker.step_attempts where task_uuid = @task
        union all
        select claimed_at from tasker.board where task_uuid = @task) c
), events as (
    select at, 1 as part, 0::bigint as seq, 'pending' as from_state, 'steps_in_process' as to_state, '' as actor, '' as reason, null::jsonb as context
    from begun where at is not null
    union all
    select e.at, 2, e.seq,
           case when e.from_state = {task_pending} and begun.at is not null then 'steps_in_process' else tasker.task_state_name(e.from_state) end,
           tasker.task_state_name(e.to_state), e.actor, coalesce(e.reason, ''), e.metadata->'context'
    from tasker.task_events e cross join begun where e.task_uuid = @task
    union all
    select applied_at, 3, 0, 'evaluating_results', 'complete', '', '', null
    from tasker.step_attempts where task_uuid = @task and task_state = {task_complete}
)
select extract(epoch from max(e.at) over (order by e.part, e.seq) - t.requested_at)::float8 as seconds, e.from_state, e.to_state, e.actor, e.reason,
       e.context is not null as context_edited, case when s.small then e.context->'before' end as context_before,
       case when s.small then e.context->'after' end as context_after
from events e cross join lateral (select octet_length(e.context::text) <= ` + maxShownContext + ` as small) s cross join tasker.tasks t
where t.task_uuid = @task
order by e.part, e.seq limit 10000`)

// stepAttempts lists the applied executions of one step, or of all (null). Results are
// read for one step only; of a batch, without those of former batches with its number,
// which the list of all names.
// Index: the primary keys.
var stepAttempts = pg.Compile(`
select a.step_no, a.attempt, a.token, coalesce(extract(epoch from a.enqueued_at - t.requested_at), -1)::float8 as enqueued,
       coalesce(extract(epoch from a.claimed_at - t.requested_at), -1)::float8 as claimed,
       coalesce(extract(epoch from a.reported_at - t.requested_at), -1)::float8 as reported,
       extract(epoch from a.applied_at - t.requested_at)::float8 as applied,
       (array['success','failed','error','lease_lost','cancelled'])[a.outcome] as outcome, a.worker,
       case when @step::smallint is not null then a.result end as result, case when @step::smallint is not null and a.outcome <> {success} then a.error end as error,
       coalesce(d.name, '') as batch, coalesce(d.run, 0) as run
from tasker.step_attempts a join tasker.tasks t using (task_uuid)
cross join lateral (select steps from tasker.plans where plan_id = any (array[t.plan_id]) limit 1) p
left join lateral (
    select name, run from (
        select name, run, since from tasker.batches where task_uuid = @task and step_no = a.step_no and since < a.token
        union all
        select name, run, since from tasker.former_batches where task_uuid = @task and step_no = a.step_no and since < a.token) x
    where a.step_no >= cardinality(p.steps) order by since desc limit 1) d on true
where task_uuid = @task and a.step_no >= 0
  and (@step::smallint is null or a.step_no = @step::smallint
       and a.token > coalesce((select since from tasker.batches where task_uuid = @task and step_no = @step::smallint), 0))
order by a.applied_at, a.token limit 100000`)

// taskEnd is when a task ended, in seconds since it was requested.
// Index: the primary keys.
var taskEnd = pg.Compile(`
select coalesce(extract(epoch from (select applied_at from tasker.step_attempts a where a.task_uuid = t.task_uuid and task_state is not null limit 1)
       - requested_at), -1)::float8 as completed from tasker.tasks t where task_uuid = @task`)

// Timeline reads the history of a task, or ErrNotFound. Running attempts are excluded.
func (s *Ledger) Timeline(ctx context.Context, task uuid.UUID) (tl Timeline, err error) {
	err = s.db.Call(ctx, "timeline", "read the history", func(ctx context.Context, db *pg.Conn) error {
		tl = Timeline{Completed: -1}
		b := &pgx.Batch{}
		taskEnd.With(pg.Args{"task": task}).Queue(b).Query(stmt.Row(&tl.Completed))
		taskEvents.With(pg.Args{"task": task}).Queue(b).Query(stmt.Into(&tl.Events))
		stepAttempts.With(pg.Args{"task": task, "step": nil}).Queue(b).Query(stmt.Into(&tl.Attempts))
		err := db.SendBatch(ctx, b).Close()
		if errors.Is(err, pgx.ErrNoRows) {
			return pg.ErrNotFound
		}
		return err
	})
	return tl, err
}

// Attempts reads the executions of one step with their results, in the order in which
// they were applied. A task or a step that does not exist has none.
func (s *Ledger) Attempts(ctx context.Context, task uuid.UUID, step int) ([]StepAttempt, error) {
	return pg.ReadAll[StepAttempt](ctx, s.db, "attempts", "read the executions of a step", stepAttempts.With(pg.Args{"task": task, "step": step}))
}

// MaxChain bounds how far a chain is followed in each direction.
const MaxChain = 500

// chainBefore follows the predecessors of a task, nearest first. It reads only as far as
// the limit, one key lookup per round.
// Index: the primary key.
var chainBefore = pg.Compile(`
with recursive back(task_uuid, before) as (
    select task_uuid, continues_task_uuid from tasker.tasks where task_uuid = @task and continues_task_uuid is not null
    union
    select t.task_uuid, t.continues_task_uuid from back b join tasker.tasks t on t.task_uuid = any (array[b.before])
    where t.continues_task_uuid is not null
)
select before as task, task_uuid as next from back limit @limit`)

// chainAfter follows the tasks that continue one, and those that continue them, nearest
// first. A task that continues with an existing one can make paths meet again; each is
// followed once.
// Index: the primary key.
var chainAfter = pg.Compile(`
with recursive ahead(task_uuid, next) as (
    select task_uuid, (metadata->>'continued_by')::uuid from tasker.task_events where task_uuid = @task and metadata ? 'continued_by'
    union
    select e.task_uuid, (e.metadata->>'continued_by')::uuid
    from ahead a join tasker.task_events e on e.task_uuid = any (array[a.next]) and e.metadata ? 'continued_by'
)
select task_uuid as task, next from ahead limit @limit`)

// Chain is a task with its predecessors and successors.
type Chain struct {
	// Tasks are those that still exist, oldest first, without steps' results.
	Tasks []*Task
	// MoreBefore and MoreAfter say that the limit has cut the chain.
	MoreBefore, MoreAfter bool
}

// Chain reads the chain of a task, up to limit links in each direction
// (1–MaxChain), or ErrNotFound.
func (s *Ledger) Chain(ctx context.Context, task uuid.UUID, limit int) (Chain, error) {
	var c Chain
	limit = min(max(limit, 1), MaxChain)
	next := map[uuid.UUID][]uuid.UUID{}
	ids := []uuid.UUID{task}
	err := s.db.Call(ctx, "chain", "follow the chain of a task", func(ctx context.Context, db *pg.Conn) error {
		type link struct{ Task, Next uuid.UUID }
		links := func(more *bool) func(rows pgx.Rows) error {
			n := 0
			return stmt.Rows(func(l *link) {
				if n++; n > limit {
					*more = true
					return
				}
				next[l.Task], ids = append(next[l.Task], l.Next), append(ids, l.Task, l.Next)
			})
		}
		b := &pgx.Batch{}
		chainBefore.With(pg.Args{"task": task, "limit": limit + 1}).Queue(b).Query(links(&c.MoreBefore))
		chainAfter.With(pg.Args{"task": task, "limit": limit + 1}).Queue(b).Query(links(&c.MoreAfter))
		return db.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return c, err
	}
	slices.SortFunc(ids, compareUUIDs)
	if c.Tasks, _, err = s.readableTasks(ctx, slices.Compact(ids)); err != nil {
		return c, err
	}
	if !slices.ContainsFunc(c.Tasks, func(t *Task) bool { return t.UUID == task }) {
		return c, pg.Classify("follow the chain of a task", pg.ErrNotFound)
	}
	for _, t := range c.Tasks {
		t.ContinuedBy = next[t.UUID]
	}
	slices.SortFunc(c.Tasks, func(a, b *Task) int {
		return cmp.Or(a.RequestedAt.Compare(b.RequestedAt), compareUUIDs(a.UUID, b.UUID))
	})
	return c, nil
}

func compareUUIDs(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }
