package waits

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store/internal/board"
	"github.com/tasker-go/tasker/store/internal/pg"
	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// The statements of dependencies between tasks.
// Index: the primary keys, task_dependencies_of.
var (
	dependentsOf = pg.Compile(`
select task_uuid, depends_on from tasker.task_dependencies where depends_on = any (@ended::uuid[]) limit @limit`)
	dependenciesMet = pg.Compile(`
delete from tasker.task_dependencies d using ` + stmt.List[dependency]("m") + `
where d.task_uuid = any (array[m.task_uuid]) and d.depends_on = m.depends_on
returning d.task_uuid, d.depends_on, d.lenient`)
	// releaseTasks lets tasks begin whose dependencies are met.
	releaseTasks = pg.Compile(`
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
	dropDependencies = pg.Compile(`delete from tasker.task_dependencies where task_uuid = any (@tasks::uuid[])`)
	// sendFailed requests the cancellation of tasks that still wait: a task started by an
	// operator no longer depends on others.
	sendFailed = pg.Compile(`
insert into tasker.task_messages (task_uuid, kind)
select distinct task_uuid, {dependency_failed} from tasker.board where task_uuid = any (@tasks::uuid[]) and wait ->> 'kind' = 'tasks'`)
	openDependencies = pg.Compile(`select distinct depends_on from tasker.task_dependencies where task_uuid = any (@tasks::uuid[]) order by 1`)
)

// dependency is a task that waits for another one.
type dependency struct{ TaskUUID, DependsOn uuid.UUID }

// maxDependents bounds the dependencies that one transaction settles.
const maxDependents = 1000

// resolveDependencies releases tasks that have waited for the ended ones, or requests
// their cancellation. Tasks beyond the limit are left to another message; tasks that come
// to depend on the ended ones in the meantime send their own.
func resolveDependencies(ctx context.Context, tx pgx.Tx, ended []endedTask, topics board.SignalSet) (released int, err error) {
	states := make(map[uuid.UUID]workflow.TaskState, len(ended))
	ids := make(pg.UUIDs, len(ended))
	for i := range ended {
		ids[i], states[ended[i].uuid] = ended[i].uuid, ended[i].state
	}
	waiting, err := dependents(ctx, tx, ids)
	if err != nil || len(waiting) == 0 {
		return 0, err
	}
	if len(waiting) >= maxDependents {
		topics.Add(signal.TopicDue)
		if _, err := pg.Run(ctx, tx, board.SendMessages.With(pg.Args{"tasks": ids, "kind": pg.MessageEnded})); err != nil {
			return 0, err
		}
	}
	type row struct {
		dependency
		Lenient bool
	}
	var met, failed pg.UUIDs
	if err := stmt.Each(ctx, tx, dependenciesMet.With(pg.Args{"m": waiting}), func(r *row) error {
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
		if _, err := pg.Run(ctx, tx, dropDependencies.With(pg.Args{"tasks": failed})); err != nil {
			return 0, err
		}
		if _, err := pg.Run(ctx, tx, sendFailed.With(pg.Args{"tasks": failed})); err != nil {
			return 0, err
		}
		topics.Add(signal.TopicDue)
	}
	met = slices.DeleteFunc(met, func(id [16]byte) bool { return slices.Contains(failed, id) })
	if len(met) == 0 {
		return 0, nil
	}
	return release(ctx, tx, met, topics)
}

// dependents returns the tasks that wait for the ended ones, each with one of those, and
// locked: every other transaction that changes what they wait for has ended.
func dependents(ctx context.Context, tx pgx.Tx, ended pg.UUIDs) ([]dependency, error) {
	waiting, err := stmt.All[dependency](ctx, tx, dependentsOf.With(pg.Args{"ended": ended, "limit": maxDependents}))
	if err != nil || len(waiting) == 0 {
		return nil, err
	}
	tasks := make(pg.UUIDs, len(waiting))
	for i := range waiting {
		tasks[i] = waiting[i].TaskUUID
	}
	_, err = pg.Run(ctx, tx, board.LockTasks.With(pg.Args{"tasks": pg.Distinct(tasks)}))
	return waiting, err
}

// release lets locked tasks begin.
func release(ctx context.Context, tx pgx.Tx, tasks pg.UUIDs, topics board.SignalSet) (int, error) {
	type row struct {
		TaskUUID uuid.UUID
		Ours     bool // the engine begins it, or its time
		board.NamedLane
	}
	seen := map[uuid.UUID]bool{}
	err := stmt.Each(ctx, tx, releaseTasks.With(pg.Args{"tasks": tasks}), func(r *row) error {
		seen[r.TaskUUID] = true
		if r.Ours {
			topics.Add(signal.TopicDue)
			return nil
		}
		return topics.AddNamed(&r.NamedLane)
	})
	return len(seen), err
}

// WatchDependencies looks at the dependencies of up to limit new tasks: live ones are
// marked to notify their dependents when they end, ended ones count at once.
func (s *Waits) WatchDependencies(ctx context.Context, limit int) (found int, signals []signal.Signal, err error) {
	err = s.db.Transaction(ctx, "watch_dependencies", "look at what tasks depend on", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		found, signals = 0, nil
		ids, n, err := messagesOf(ctx, tx, pg.MessageDependencies, limit)
		if err != nil || n == 0 {
			return nil, err
		}
		found = n
		on, err := stmt.All[[16]byte](ctx, tx, openDependencies.With(pg.Args{"tasks": ids}))
		if err != nil {
			return nil, err
		}
		topics := board.SignalSet{}
		err = awaitAll(ctx, tx, on, topics)
		signals = topics.Signals()
		return signals, err
	})
	return found, signals, err
}

// awaitAll marks tasks to notify their dependents at their end; an ended one notifies at
// once. A claim skips a row while it is written, so its queue is signalled again.
func awaitAll(ctx context.Context, tx pgx.Tx, tasks pg.UUIDs, topics board.SignalSet) error {
	if len(tasks) == 0 {
		return nil
	}
	type row struct {
		TaskUUID  uuid.UUID
		Claimable bool
		board.NamedLane
	}
	alive := map[[16]byte]bool{}
	if err := stmt.Each(ctx, tx, awaitTasks.With(pg.Args{"tasks": tasks}), func(r *row) error {
		if alive[r.TaskUUID] = true; r.Claimable {
			return topics.AddNamed(&r.NamedLane)
		}
		return nil
	}); err != nil {
		return err
	}
	gone := slices.DeleteFunc(slices.Clone(tasks), func(id [16]byte) bool { return alive[id] })
	if len(gone) == 0 {
		return nil
	}
	topics.Add(signal.TopicDue)
	_, err := pg.Run(ctx, tx, board.SendMessages.With(pg.Args{"tasks": gone, "kind": pg.MessageEnded}))
	return err
}

// strandedTasks reads dependencies, from a key on, and returns tasks that no message will
// release. A last row says how far it came.
// Index: the primary keys.
var strandedTasks = pg.Compile(`
with walked as materialized (
    select task_uuid, depends_on from tasker.task_dependencies
    where (task_uuid, depends_on) > (@task::uuid, @depends_on::uuid) order by task_uuid, depends_on limit @limit
)
(select distinct h.task_uuid, null::uuid as depends_on, 0 as walked
 from walked h cross join lateral (select h.depends_on offset 0) d where ` + board.HeldTask + ` and ` + board.UntoldEnd + `)
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
func (s *Waits) SweepDependencies(ctx context.Context, from DependencyPlace, limit int, dry bool) (found Stranded, err error) {
	err = s.db.Transaction(ctx, "sweep_dependencies", "look for tasks that nothing will release", func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error) {
		found = Stranded{}
		type row struct {
			TaskUUID  uuid.UUID
			DependsOn *uuid.UUID // nil: the task is stranded
			Walked    int
		}
		var ids pg.UUIDs
		look := strandedTasks.With(pg.Args{"task": from.task, "depends_on": from.on, "limit": limit})
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
		_, err := pg.Run(ctx, tx, board.SendMessages.With(pg.Args{"tasks": ids, "kind": pg.MessageDependencies}))
		return found.Signals, err
	})
	return found, err
}
