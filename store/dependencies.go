package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// The statements of dependencies between tasks.
// Index: the primary keys, task_dependencies_of.
var (
	dependentsOf = compile(`
select task_uuid, depends_on from tasker.task_dependencies where depends_on = any (@ended::uuid[]) limit @limit`)
	dependenciesMet = compile(`
delete from tasker.task_dependencies d using ` + stmt.List[dependency]("m") + `
where d.task_uuid = any (array[m.task_uuid]) and d.depends_on = m.depends_on
returning d.task_uuid, d.depends_on, d.lenient`)
	// releaseTasks lets tasks begin whose dependencies are met.
	releaseTasks = compile(`
update tasker.board b
set wait = null, seq = nextval('tasker.step_seq'),
    state = case when t.start_at > clock_timestamp() then {scheduled} else {claimable} end,
    due_at = case when t.start_at > clock_timestamp() then t.start_at end,
    enqueued_at = case when t.start_at > clock_timestamp() then null else clock_timestamp() end
from tasker.tasks t
where b.task_uuid = any (@tasks::uuid[]) and b.wait ->> 'kind' = 'tasks' and t.task_uuid = b.task_uuid
  and not exists (select from tasker.task_dependencies d where d.task_uuid = b.task_uuid)
returning b.task_uuid, b.state = {scheduled} or b.queue = {by_engine} as ours, b.callable, b.lane,
          coalesce((select name from tasker.namespaces where namespace_id = b.queue), '') as namespace`)
	dropDependencies = compile(`delete from tasker.task_dependencies where task_uuid = any (@tasks::uuid[])`)
	// sendFailed requests the cancellation of tasks that still wait: a task started by an
	// operator no longer depends on others.
	sendFailed = compile(`
insert into tasker.task_messages (task_uuid, kind)
select distinct task_uuid, {dependency_failed} from tasker.board where task_uuid = any (@tasks::uuid[]) and wait ->> 'kind' = 'tasks'`)
	openDependencies = compile(`select distinct depends_on from tasker.task_dependencies where task_uuid = any (@tasks::uuid[]) order by 1`)
)

// dependency is a task that waits for another one.
type dependency struct{ TaskUUID, DependsOn uuid.UUID }

// maxDependents bounds the dependencies that one transaction settles.
const maxDependents = 1000

// resolveDependencies releases tasks that have waited for the ended ones, or requests
// their cancellation. Tasks beyond the limit are left to another message; tasks that come
// to depend on the ended ones in the meantime send their own.
func resolveDependencies(ctx context.Context, tx pgx.Tx, ended []endedTask, topics signalSet) (released int, err error) {
	states := make(map[uuid.UUID]workflow.TaskState, len(ended))
	ids := make(uuids, len(ended))
	for i := range ended {
		ids[i], states[ended[i].uuid] = ended[i].uuid, ended[i].state
	}
	waiting, err := dependents(ctx, tx, ids)
	if err != nil || len(waiting) == 0 {
		return 0, err
	}
	if len(waiting) >= maxDependents {
		topics.add(signal.TopicDue)
		if _, err := run(ctx, tx, sendMessages.With(args{"tasks": ids, "kind": messageEnded})); err != nil {
			return 0, err
		}
	}
	type row struct {
		dependency
		Lenient bool
	}
	var met, failed uuids
	if err := stmt.Each(ctx, tx, dependenciesMet.With(args{"m": waiting}), func(r *row) error {
		state := states[r.DependsOn]
		if r.Lenient || state == workflow.TaskComplete || state == workflow.TaskResolvedManually {
			met = append(met, r.TaskUUID)
		} else {
			failed = append(failed, r.TaskUUID)
		}
		return nil
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		if _, err := run(ctx, tx, dropDependencies.With(args{"tasks": failed})); err != nil {
			return 0, err
		}
		if _, err := run(ctx, tx, sendFailed.With(args{"tasks": failed})); err != nil {
			return 0, err
		}
		topics.add(signal.TopicDue)
	}
	met = slices.DeleteFunc(met, func(id [16]byte) bool { return slices.Contains(failed, id) })
	if len(met) == 0 {
		return 0, nil
	}
	return release(ctx, tx, met, topics)
}

// dependents returns the tasks that wait for the ended ones, each with one of those, and
// locked: every other transaction that changes what they wait for has ended.
func dependents(ctx context.Context, tx pgx.Tx, ended uuids) ([]dependency, error) {
	waiting, err := stmt.All[dependency](ctx, tx, dependentsOf.With(args{"ended": ended, "limit": maxDependents}))
	if err != nil || len(waiting) == 0 {
		return nil, err
	}
	tasks := make(uuids, len(waiting))
	for i := range waiting {
		tasks[i] = waiting[i].TaskUUID
	}
	_, err = run(ctx, tx, lockTasks.With(args{"tasks": distinct(tasks)}))
	return waiting, err
}

// release lets locked tasks begin.
func release(ctx context.Context, tx pgx.Tx, tasks uuids, topics signalSet) (int, error) {
	type row struct {
		TaskUUID uuid.UUID
		Ours     bool // the engine begins it, or its time
		namedLane
	}
	seen := map[uuid.UUID]bool{}
	err := stmt.Each(ctx, tx, releaseTasks.With(args{"tasks": tasks}), func(r *row) error {
		seen[r.TaskUUID] = true
		if r.Ours {
			topics.add(signal.TopicDue)
			return nil
		}
		return topics.addNamed(&r.namedLane)
	})
	return len(seen), err
}

// WatchDependencies looks at the dependencies of up to limit new tasks: live ones are
// marked to notify their dependents when they end, ended ones count at once.
func (s *Store) WatchDependencies(ctx context.Context, limit int) (found int, signals []signal.Signal, err error) {
	err = s.transaction(ctx, "watch_dependencies", "look at what tasks depend on", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		found, signals = 0, nil
		ids, n, err := messagesOf(ctx, tx, messageDependencies, limit)
		if err != nil || n == 0 {
			return nil, err
		}
		found = n
		on, err := stmt.All[[16]byte](ctx, tx, openDependencies.With(args{"tasks": ids}))
		if err != nil {
			return nil, err
		}
		topics := signalSet{}
		err = awaitAll(ctx, tx, on, topics)
		signals = topics.signals()
		return signals, err
	})
	return found, signals, err
}

// awaitAll marks tasks to notify their dependents at their end; an ended one notifies at
// once. A claim skips a row while it is written, so its queue is signalled again.
func awaitAll(ctx context.Context, tx pgx.Tx, tasks uuids, topics signalSet) error {
	if len(tasks) == 0 {
		return nil
	}
	type row struct {
		TaskUUID  uuid.UUID
		Claimable bool
		namedLane
	}
	alive := map[[16]byte]bool{}
	if err := stmt.Each(ctx, tx, awaitTasks.With(args{"tasks": tasks}), func(r *row) error {
		if alive[r.TaskUUID] = true; r.Claimable {
			return topics.addNamed(&r.namedLane)
		}
		return nil
	}); err != nil {
		return err
	}
	gone := slices.DeleteFunc(slices.Clone(tasks), func(id [16]byte) bool { return alive[id] })
	if len(gone) == 0 {
		return nil
	}
	topics.add(signal.TopicDue)
	_, err := run(ctx, tx, sendMessages.With(args{"tasks": gone, "kind": messageEnded}))
	return err
}

// A task that waits for others is released by one of three: a message about it, a message
// about the end of the other one, or that task itself, which is alive and marked to
// notify dependents. Every transaction passes from one to the next, so this holds in each
// snapshot.
const (
	// heldTask is whether the task h waits for others.
	heldTask = `exists (select from tasker.board b where b.task_uuid = h.task_uuid and b.wait ->> 'kind' = 'tasks')
      and not exists (select from tasker.task_messages m where m.kind = any (array[{dependencies}, {dependency_failed}]) and m.task_uuid = h.task_uuid)`
	// untoldEnd is whether no message will report the end of what d depends on.
	untoldEnd = `not exists (select from tasker.board t where t.task_uuid = d.depends_on and t.slot = 0 and t.awaited)
      and not exists (select from tasker.task_messages m where m.kind = {ended} and m.task_uuid = d.depends_on)`
	// strandedTask is whether nothing will release the task h.
	strandedTask = `(` + heldTask + `
      and (not exists (select from tasker.task_dependencies d where d.task_uuid = h.task_uuid)
           or exists (select from tasker.task_dependencies d where d.task_uuid = h.task_uuid and ` + untoldEnd + `)))`
	// orphanedTask is whether no step waits for the living task h, although it was not
	// called off.
	orphanedTask = `(h.parent_task_uuid is not null
      and exists (select from tasker.board b where b.task_uuid = h.task_uuid and b.slot = 0)
      and not exists (select from tasker.board b where b.awaits = '` + awaitsTask + `' || h.task_uuid::text)
      and not exists (select from tasker.task_messages m where m.kind = {stop} and m.task_uuid = h.task_uuid))`
)

// strandedTasks reads dependencies, from a key on, and returns tasks that no message will
// release. A last row says how far it came.
// Index: the primary keys.
var strandedTasks = compile(`
with walked as materialized (
    select task_uuid, depends_on from tasker.task_dependencies
    where (task_uuid, depends_on) > (@task::uuid, @depends_on::uuid) order by task_uuid, depends_on limit @limit
)
(select distinct h.task_uuid, null::uuid as depends_on, 0 as walked
 from walked h cross join lateral (select h.depends_on offset 0) d where ` + heldTask + ` and ` + untoldEnd + `)
union all
(select task_uuid, depends_on, (select count(*) from walked)::int from walked order by task_uuid desc, depends_on desc limit 1)`)

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
	err = s.transaction(ctx, "sweep_dependencies", "look for tasks that nothing will release", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		found = Stranded{}
		type row struct {
			TaskUUID  uuid.UUID
			DependsOn *uuid.UUID // nil: the task is stranded
			Walked    int
		}
		var ids uuids
		look := strandedTasks.With(args{"task": from.task, "depends_on": from.on, "limit": limit})
		if err := stmt.Each(ctx, tx, look, func(r *row) error {
			switch {
			case r.DependsOn == nil:
				found.Tasks, ids = append(found.Tasks, r.TaskUUID), append(ids, r.TaskUUID)
			case r.Walked >= limit:
				found.Next = DependencyPlace{r.TaskUUID, *r.DependsOn}
			}
			return nil
		}); err != nil || len(found.Tasks) == 0 || dry {
			return nil, err
		}
		found.Signals = []signal.Signal{{Topic: signal.TopicDue}}
		_, err := run(ctx, tx, sendMessages.With(args{"tasks": ids, "kind": messageDependencies}))
		return found.Signals, err
	})
	return found, err
}

// reopened reports whether an operator has reopened the task: it then continues
// independently of its step.
func (a *audited) reopened() bool {
	return slices.ContainsFunc(a.actions, func(act auditedAction) bool { return act.step != nil && *act.step >= 0 })
}

func queueOf(p *Plan, step *workflow.PlanStep) int32 {
	if step.Kind.ByEngine() {
		return engineQueue
	}
	return p.Queue
}

// callableOf returns the callable whose line a step waits in.
func (p *Plan) callableOf(step *workflow.PlanStep) int32 { return p.Callables[step.No] }

// sendMessages adds a message about each task, even if there is one already: that one may
// be being processed without the news.
var sendMessages = compile(`
insert into tasker.task_messages (task_uuid, kind) select task_uuid, @kind::smallint from unnest(@tasks::uuid[]) t(task_uuid)`)

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
