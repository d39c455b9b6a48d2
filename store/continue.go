package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/store/internal/stmt"
)

// Continuation is the next task that a handler names when it ends its step.
type Continuation struct {
	Claim    ClaimKey
	StepName string
	Actor    string // recorded in the history of the continued task
	Next     NewTask
}

// continueTask links two tasks: the event is on the continued task, the column on the
// next one. Fields that the request left empty are taken from the old task. A task with a
// claimed step is in process, whatever its stored state.
// Index: the primary keys.
var continueTask = compile(`
with told as (
    insert into tasker.task_events (task_uuid, at, from_state, to_state, actor, reason, metadata)
    select task_uuid, clock_timestamp(), greatest(task_state, {task_in_process}), greatest(task_state, {task_in_process}), @actor, 'continued by ' || @next::uuid,
           jsonb_build_object('continued_by', @next::uuid, 'step', @step::int, 'step_name', @step_name::text, 'token', @token::bigint)
    from tasker.board where task_uuid = @task::uuid and slot = 0
)
update tasker.tasks n
set continues_task_uuid = o.task_uuid, initiator = coalesce(n.initiator, o.initiator),
    source_system = coalesce(n.source_system, o.source_system), tags = coalesce(n.tags, o.tags)
from tasker.tasks o
where n.task_uuid = @next::uuid and o.task_uuid = @task::uuid and not @duplicate::bool`)

// ErrContinuesItself says that the next task has the identity of the task that it continues.
var ErrContinuesItself = errors.New("the next task is the task itself")

// Continue creates the next task within the transaction and links both, see
// CreateTasksIn. It is committed with the report of the step, whose fence decides about
// all of it. A duplicate is recorded as the next task and stays unchanged. After an error
// the transaction must be rolled back.
func (w *Work) Continue(ctx context.Context, c Continuation) (created CreatedTask, err error) {
	if err := w.reportable(); err != nil { // outside its transaction the task would stay
		return created, err
	}
	defer w.observe("continue", time.Now(), &err)
	rows, err := CreateTasksIn(ctx, w.tx, AnnounceNothing, c.Next)
	if err != nil {
		return created, err
	}
	created = rows[0]
	if created.UUID == c.Claim.TaskUUID {
		return created, ErrContinuesItself
	}
	link := continueTask.With(args{"task": [16]byte(c.Claim.TaskUUID), "next": [16]byte(created.UUID), "step": c.Claim.Step,
		"step_name": c.StepName, "token": c.Claim.Token, "actor": c.Actor, "duplicate": created.Duplicate})
	if err = guestOf(w.tx).exec(ctx, link); err != nil {
		return created, classify("link a task with the next one", err)
	}
	if !created.Duplicate {
		w.Announce(CreateSignals([]NewTask{c.Next})...)
	}
	return created, nil
}

// MaxChain bounds how far a chain is followed in each direction.
const MaxChain = 500

// chainBefore follows the predecessors of a task, nearest first. It reads only as far as
// the limit, one key lookup per round.
// Index: the primary key.
var chainBefore = compile(`
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
var chainAfter = compile(`
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
func (s *Store) Chain(ctx context.Context, task uuid.UUID, limit int) (Chain, error) {
	var c Chain
	limit = min(max(limit, 1), MaxChain)
	next := map[uuid.UUID][]uuid.UUID{}
	ids := []uuid.UUID{task}
	err := s.call(ctx, "chain", "follow the chain of a task", func(ctx context.Context, db *conn) error {
		type link struct{ Task, Next uuid.UUID }
		links := func(more *bool) func(rows pgx.Rows) error {
			n := 0
			return stmt.Rows(func(l *link) error {
				if n++; n > limit {
					*more = true
					return nil
				}
				next[l.Task], ids = append(next[l.Task], l.Next), append(ids, l.Task, l.Next)
				return nil
			})
		}
		b := &pgx.Batch{}
		chainBefore.With(args{"task": task, "limit": limit + 1}).Queue(b).Query(links(&c.MoreBefore))
		chainAfter.With(args{"task": task, "limit": limit + 1}).Queue(b).Query(links(&c.MoreAfter))
		return db.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return c, err
	}
	slices.SortFunc(ids, compareUUIDs)
	if c.Tasks, err = s.readTasks(ctx, slices.Compact(ids), parts{}); err != nil {
		return c, err
	}
	if !slices.ContainsFunc(c.Tasks, func(t *Task) bool { return t.UUID == task }) {
		return c, classify("follow the chain of a task", ErrNotFound)
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
