package store

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
)

// A task that waits for others is released by one of three: a message about it, a message
// about the end of the other one, or that task itself, which is alive and marked to
// notify dependents. Every transaction passes from one to the next, so this holds in each
// snapshot.
const (
	// heldTask is whether the task h waits for others.
	heldTask = `exists (select from tasker.board b where b.task_uuid = h.task_uuid and b.wait ->> 'kind' = 'tasks')
      and not exists (select from tasker.task_messages m where m.kind = any (array[3, 4]) and m.task_uuid = h.task_uuid)`
	// untoldEnd is whether no message will report the end of what d depends on.
	untoldEnd = `not exists (select from tasker.board t where t.task_uuid = d.depends_on and t.slot = 0 and t.awaited)
      and not exists (select from tasker.task_messages m where m.kind = 1 and m.task_uuid = d.depends_on)`
	// strandedTask is whether nothing will release the task h.
	strandedTask = `(` + heldTask + `
      and (not exists (select from tasker.task_dependencies d where d.task_uuid = h.task_uuid)
           or exists (select from tasker.task_dependencies d where d.task_uuid = h.task_uuid and ` + untoldEnd + `)))`
	// orphanedTask is whether no step waits for the living task h, although it was not
	// called off.
	orphanedTask = `(h.parent_task_uuid is not null
      and exists (select from tasker.board b where b.task_uuid = h.task_uuid and b.slot = 0)
      and not exists (select from tasker.board b where b.awaits = '` + awaitsTask + `' || h.task_uuid::text)
      and not exists (select from tasker.task_messages m where m.kind = 2 and m.task_uuid = h.task_uuid))`
)

// strandedTasks reads dependencies, from a key on, and returns tasks that no message will
// release. A last row says how far it came.
// Index: the primary keys.
const strandedTasks = `
with walked as materialized (
    select task_uuid, depends_on from tasker.task_dependencies
    where (task_uuid, depends_on) > ($1::uuid, $2::uuid) order by task_uuid, depends_on limit $3
)
(select distinct h.task_uuid, null::uuid as depends_on, 0 as walked
 from walked h cross join lateral (select h.depends_on offset 0) d where ` + heldTask + ` and ` + untoldEnd + `)
union all
(select task_uuid, depends_on, (select count(*) from walked)::int from walked order by task_uuid desc, depends_on desc limit 1)`

// DependencyPlace is how far a look at dependencies came; the zero value is the
// beginning.
type DependencyPlace struct{ task, on uuid.UUID }

// Stranded are waiting tasks that no message would have released.
type Stranded struct {
	Tasks []uuid.UUID
	Next  DependencyPlace // where the next look continues; zero: this one reached the end
	// Signals are to publish, unless the store sends them itself.
	Signals []signal.Signal
}

// SweepDependencies checks up to limit dependencies from a place on, and repairs those
// that no message would release; dry only finds them.
func (s *Store) SweepDependencies(ctx context.Context, from DependencyPlace, limit int, dry bool) (found Stranded, err error) {
	err = s.call(ctx, "sweep_dependencies", "look for tasks that nothing will release", func(ctx context.Context, db *conn) error {
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			found = Stranded{}
			rows, err := tx.Query(ctx, strandedTasks, from.task, from.on, limit)
			if err != nil {
				return nil, err
			}
			var task uuid.UUID
			var on *uuid.UUID
			var walked int
			if _, err := pgx.ForEachRow(rows, []any{&task, &on, &walked}, func() error {
				switch {
				case on == nil:
					found.Tasks = append(found.Tasks, task)
				case walked >= limit:
					found.Next = DependencyPlace{task, *on}
				}
				return nil
			}); err != nil || len(found.Tasks) == 0 || dry {
				return nil, err
			}
			found.Signals = []signal.Signal{{Topic: signal.TopicDue}}
			ids := make(uuids, len(found.Tasks))
			for i, id := range found.Tasks {
				ids[i] = id
			}
			_, err = tx.Exec(ctx, sendMessages, ids, messageDependencies)
			return found.Signals, err
		})
	})
	return found, err
}

// reopened reports whether an operator has reopened the task: it then continues
// independently of its step.
func (a *audited) reopened() bool {
	return slices.ContainsFunc(a.actions, func(act auditedAction) bool { return act.step != nil && *act.step >= 0 })
}
