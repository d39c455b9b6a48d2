package ledger

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/workflow"
)

// MaxChildren bounds the children of a Graph.
const MaxChildren = 1_000

// Graph is a task with what its steps have done, without contexts, results and whole failures, and
// the tasks that its steps are.
type Graph struct {
	*Task
	Children []ChildTask // by their creation
	// MoreChildren says that there are more than MaxChildren.
	MoreChildren bool
	At           time.Time // when it was read, by the clock of the database
}

// ChildTask is the task that a step is.
type ChildTask struct {
	Task  uuid.UUID          `sql:"task_uuid"`
	Step  int                // of the parent
	State workflow.TaskState `sql:",omitzero"` // stored; see execution.VisibleState
	Ended *time.Time
	Name  string
	Of    string `sql:"namespace"`
}

// readChildren reads the tasks that the steps of a task are. They are looked for before they are put
// into their order, or a plan made on a small table would walk along it.
// Index: tasks_by_parent, the primary keys.
var readChildren = pg.Compile(`
with found as materialized (
    select task_uuid, parent_step_no as step, plan_id from tasker.tasks where parent_task_uuid = @task
)
select t.task_uuid, t.step, coalesce(b.task_state, e.task_state) as state, e.applied_at as ended, p.name, n.name as namespace
from (select * from found order by task_uuid limit @limit) t
left join lateral (select task_state from tasker.board where task_uuid = any (array[t.task_uuid]) and slot = 0 limit 1) b on true
left join lateral (select task_state, applied_at from tasker.step_attempts
                   where task_uuid = any (array[t.task_uuid]) and task_state is not null limit 1) e on true
cross join lateral (select name, namespace_id from tasker.plans where plan_id = any (array[t.plan_id]) limit 1) p
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[p.namespace_id]) limit 1) n
order by t.task_uuid`)

// Graph reads a task with its steps and children, or ErrNotFound.
func (s *Ledger) Graph(ctx context.Context, id uuid.UUID) (g Graph, err error) {
	if g.Task, err = s.readTask(ctx, id, parts{links: true, brief: true}); err != nil {
		return g, err
	}
	args := pg.Args{"task": id, "limit": MaxChildren + 1}
	g.Children, err = pg.ReadAll[ChildTask](ctx, s.db, "children", "read the tasks that steps are", readChildren.With(args))
	if g.MoreChildren = len(g.Children) > MaxChildren; g.MoreChildren {
		g.Children = g.Children[:MaxChildren]
	}
	if err != nil {
		return g, err
	}
	now, err := s.SeenNow(ctx)
	g.At = now.At
	return g, err
}
