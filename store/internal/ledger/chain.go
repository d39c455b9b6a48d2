package ledger

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/store/internal/pg"
	"github.com/tasker-go/tasker/store/internal/stmt"
)

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
		chainBefore.With(pg.Args{"task": task, "limit": limit + 1}).Queue(b).Query(links(&c.MoreBefore))
		chainAfter.With(pg.Args{"task": task, "limit": limit + 1}).Queue(b).Query(links(&c.MoreAfter))
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
