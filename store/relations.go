package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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
const sendMessages = `
insert into tasker.task_messages (task_uuid, kind) select task_uuid, $2::smallint from unnest($1::uuid[]) t(task_uuid)`

// calledOff is the task that a step s was, where that was still waited for.
const calledOff = `case when s.state = 1 then (s.wait ->> 'task_uuid')::uuid end`

// relateTasks adds the relations of tasks created in the same transaction. The first
// steps of a task with dependencies are held: they wait without a due time. Tasks that
// were not created are not found.
// Index: the primary keys.
const relateTasks = `
with r as materialized (
    select * from unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::smallint[], $5::text[], $6::boolean[])
           r(task_uuid, parent, parent_step, depth, depends_on, lenient)
), ledger as (
    update tasker.tasks t
    set parent_task_uuid = r.parent, parent_step_no = r.parent_step, depth = r.depth, depends_on = r.depends_on::uuid[]
    from r where t.task_uuid = any (array[r.task_uuid])
), living as (
    update tasker.board b
    set awaited = case when b.slot = 0 and r.parent is not null then true end,
        state = case when held and b.state > 0 then 1 else b.state end, due_at = case when held then null else b.due_at end,
        enqueued_at = case when held then null else b.enqueued_at end,
        wait = case when held and b.state > 0 then '{"kind":"tasks"}'::jsonb end
    from r, lateral (select r.depends_on is not null as held) h
    where b.task_uuid = any (array[r.task_uuid])
    returning b.task_uuid, b.slot
), held as (
    insert into tasker.task_dependencies (task_uuid, depends_on, lenient)
    select r.task_uuid, d, r.lenient from r join living l on l.task_uuid = r.task_uuid and l.slot = 0
    cross join lateral (select distinct d from unnest(r.depends_on::uuid[]) u(d)) x
)
insert into tasker.task_messages (task_uuid, kind)
select r.task_uuid, 3 from r join living l on l.task_uuid = r.task_uuid and l.slot = 0 where r.depends_on is not null`

// relationColumns are tasks with relations.
type relationColumns struct {
	tasks         uuids
	parents       []*[16]byte
	steps, depths []*int16
	dependsOn     []*string
	lenient       []bool
}

// relations are those of new tasks; chosen excludes some, nil includes all.
func relations(tasks []NewTask, chosen []bool) (c relationColumns) {
	for i := range tasks {
		t := &tasks[i]
		left := chosen != nil && i < len(chosen) && !chosen[i]
		if left || t.Parent == nil && len(t.DependsOn) == 0 {
			continue
		}
		var parent *[16]byte
		var step, depth *int16
		if p := t.Parent; p != nil {
			no, d := int16(p.Step), int16(p.Depth) // #nosec G115 -- bounded
			parent, step, depth = (*[16]byte)(&p.Task), &no, &d
		}
		var list *string
		if len(t.DependsOn) > 0 {
			text := uuidArray(t.DependsOn)
			list = &text
		}
		c.tasks, c.parents = append(c.tasks, t.UUID), append(c.parents, parent)
		c.steps, c.depths = append(c.steps, step), append(c.depths, depth)
		c.dependsOn, c.lenient = append(c.dependsOn, list), append(c.lenient, t.Lenient)
	}
	return c
}

func (c *relationColumns) arguments() []any {
	return []any{c.tasks, c.parents, c.steps, c.depths, c.dependsOn, c.lenient}
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
	if c := relations(tasks, chosen); len(c.tasks) > 0 {
		b.Queue(relateTasks, c.arguments()...)
	}
}

func (g guest) relate(ctx context.Context, tasks []NewTask, chosen []bool) error {
	c := relations(tasks, chosen)
	if len(c.tasks) == 0 {
		return nil
	}
	rows, err := g.Query(ctx, relateTasks, c.arguments()...)
	if err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}

// UnknownTasksError says that new tasks depend on tasks that do not exist.
type UnknownTasksError struct{ Tasks []uuid.UUID }

// Error implements error.
func (e *UnknownTasksError) Error() string {
	return fmt.Sprintf("%d tasks to depend on do not exist, such as %s", len(e.Tasks), e.Tasks[0])
}

// missingTasks returns those that do not exist.
// Index: the primary key.
const missingTasks = `
select id from unnest($1::uuid[]) i(id) where not exists (select from tasker.tasks t where t.task_uuid = any (array[i.id])) limit 100`

// checkDependencies checks that the dependencies of new tasks exist; without dependencies
// it runs no statement.
func checkDependencies(ctx context.Context, db querier, tasks []NewTask, chosen []bool) error {
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
	rows, err := db.Query(ctx, missingTasks, on)
	if err != nil {
		return err
	}
	missing, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id uuid.UUID, err error) { return id, row.Scan((*[16]byte)(&id)) })
	if err == nil && len(missing) > 0 {
		err = &UnknownTasksError{missing}
	}
	return err
}
