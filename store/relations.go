package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// engineQueue is the queue of steps that the engine runs: no worker claims from it,
// whatever the task's namespace.
const engineQueue = 0

func queueOf(p *Plan, step *workflow.PlanStep) int32 {
	if step.Kind.ByEngine() {
		return engineQueue
	}
	return p.Queue
}

// callableOf returns the callable whose line a step waits in.
func (p *Plan) callableOf(step *workflow.PlanStep) int32 { return p.Callables[step.No] }

// The kinds of messages about tasks, as in the column.
const (
	messageEnded        int16 = iota + 1 // it has ended and has dependents
	messageStop                          // cancel it, its step was called off
	messageDependencies                  // check its dependencies
	messageFailed                        // cancel it, a dependency has failed
)

// sendMessages adds a message about each task, even if there is one already: that one may
// be being processed without the news.
var sendMessages = compile(`
insert into tasker.task_messages (task_uuid, kind) select task_uuid, @kind::smallint from unnest(@tasks::uuid[]) t(task_uuid)`)

// queueMessages sends messages about tasks, if there are any.
func queueMessages(b *pgx.Batch, tasks uuids, kind int16) {
	if len(tasks) > 0 {
		sendMessages.With(args{"tasks": tasks, "kind": kind}).Queue(b)
	}
}

// calledOff is the task that a step s was, where that was still waited for.
const calledOff = `case when s.state = {scheduled} then (s.wait ->> 'task_uuid')::uuid end`

// relateTasks adds the relations of tasks created in the same transaction. The first
// steps of a task with dependencies are held: they wait without a due time. Tasks that
// were not created are not found.
// Index: the primary keys.
var relateTasks = compile(`
with r as materialized (
    select * from ` + stmt.List[relation]("r") + `
), ledger as (
    update tasker.tasks t
    set parent_task_uuid = r.parent, parent_step_no = r.parent_step, depth = r.depth, depends_on = r.depends_on::uuid[]
    from r where t.task_uuid = any (array[r.task_uuid])
), living as (
    update tasker.board b
    set awaited = case when b.slot = 0 and r.parent is not null then true end,
        state = case when held and b.state > {no_step} then {scheduled} else b.state end, due_at = case when held then null else b.due_at end,
        enqueued_at = case when held then null else b.enqueued_at end,
        wait = case when held and b.state > {no_step} then '{"kind":"tasks"}'::jsonb end
    from r, lateral (select r.depends_on is not null as held) h
    where b.task_uuid = any (array[r.task_uuid])
    returning b.task_uuid, b.slot
), held as (
    insert into tasker.task_dependencies (task_uuid, depends_on, lenient)
    select r.task_uuid, d, r.lenient from r join living l on l.task_uuid = r.task_uuid and l.slot = 0
    cross join lateral (select distinct d from unnest(r.depends_on::uuid[]) u(d)) x
)
insert into tasker.task_messages (task_uuid, kind)
select r.task_uuid, {dependencies} from r join living l on l.task_uuid = r.task_uuid and l.slot = 0 where r.depends_on is not null`)

// relation is what a new task has to do with others.
type relation struct {
	TaskUUID   uuid.UUID
	Parent     *uuid.UUID
	ParentStep *int   `sql:",smallint"`
	Depth      *int   `sql:",smallint"`
	DependsOn  string `sql:",omitzero"` // see uuidArray
	Lenient    bool
}

// relations are those of new tasks; chosen excludes some, nil includes all.
func relations(tasks []NewTask, chosen []bool) (list []relation) {
	for i := range tasks {
		t := &tasks[i]
		left := chosen != nil && i < len(chosen) && !chosen[i]
		if left || t.Parent == nil && len(t.DependsOn) == 0 {
			continue
		}
		r := relation{TaskUUID: t.UUID, Lenient: t.Lenient}
		if p := t.Parent; p != nil {
			r.Parent, r.ParentStep, r.Depth = &p.Task, &p.Step, &p.Depth
		}
		if len(t.DependsOn) > 0 {
			r.DependsOn = uuidArray(t.DependsOn)
		}
		list = append(list, r)
	}
	return list
}

// uuidArray writes UUIDs as PostgreSQL does.
func uuidArray(list []uuid.UUID) string {
	b := []byte{'{'}
	for i, id := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, id.String()...)
	}
	return string(append(b, '}'))
}

// relate adds the statement for relations of new tasks, if there are any.
func relate(b *pgx.Batch, tasks []NewTask, chosen []bool) {
	queueList(b, relateTasks, "r", relations(tasks, chosen))
}

func (g guest) relate(ctx context.Context, tasks []NewTask, chosen []bool) error {
	b := &pgx.Batch{}
	relate(b, tasks, chosen)
	return g.execAll(ctx, b)
}

// UnknownTasksError says that new tasks depend on tasks that do not exist.
type UnknownTasksError struct{ Tasks []uuid.UUID }

// Error implements error.
func (e *UnknownTasksError) Error() string {
	return fmt.Sprintf("%d tasks to depend on do not exist, such as %s", len(e.Tasks), e.Tasks[0])
}

// missingTasks returns those that do not exist.
// Index: the primary key.
var missingTasks = compile(`
select id from unnest(@tasks::uuid[]) i(id) where not exists (select from tasker.tasks t where t.task_uuid = any (array[i.id])) limit 100`)

// checkDependencies checks that the dependencies of new tasks exist; without dependencies
// it runs no statement.
func checkDependencies(ctx context.Context, db stmt.Querier, tasks []NewTask, chosen []bool) error {
	var on uuids
	for i := range tasks {
		if chosen[i] {
			for _, id := range tasks[i].DependsOn {
				on = append(on, id)
			}
		}
	}
	if on == nil {
		return nil
	}
	missing, err := stmt.All[uuid.UUID](ctx, db, missingTasks.With(args{"tasks": on}))
	if err == nil && len(missing) > 0 {
		err = &UnknownTasksError{missing}
	}
	return err
}
