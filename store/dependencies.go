package store

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// The statements of dependencies between tasks.
// Index: the primary keys, task_dependencies_of.
const (
	dependentsOf = `
select task_uuid, depends_on from tasker.task_dependencies where depends_on = any ($1::uuid[]) limit $2`
	// lockTasks locks tasks in the global order. Of two whose last dependencies are met
	// at once, the second sees the changes of the first.
	lockTasks = `
select from tasker.board where task_uuid = any ($1::uuid[]) and slot = 0 order by task_uuid for update`
	dependenciesMet = `
delete from tasker.task_dependencies d using unnest($1::uuid[], $2::uuid[]) m(task_uuid, depends_on)
where d.task_uuid = any (array[m.task_uuid]) and d.depends_on = m.depends_on
returning d.task_uuid, d.depends_on, d.lenient`
	// releaseTasks lets tasks begin whose dependencies are met.
	releaseTasks = `
update tasker.board b
set wait = null, seq = nextval('tasker.step_seq'),
    state = case when t.start_at > clock_timestamp() then 1 else 2 end,
    due_at = case when t.start_at > clock_timestamp() then t.start_at end,
    enqueued_at = case when t.start_at > clock_timestamp() then null else clock_timestamp() end
from tasker.tasks t
where b.task_uuid = any ($1::uuid[]) and b.wait ->> 'kind' = 'tasks' and t.task_uuid = b.task_uuid
  and not exists (select from tasker.task_dependencies d where d.task_uuid = b.task_uuid)
returning b.task_uuid, b.state = 1 or b.queue = 0, b.callable, b.lane, coalesce((select name from tasker.namespaces where namespace_id = b.queue), '')`
	dropDependencies = `delete from tasker.task_dependencies where task_uuid = any ($1::uuid[])`
	// sendFailed requests the cancellation of tasks that still wait: a task started by an
	// operator no longer depends on others.
	sendFailed = `
insert into tasker.task_messages (task_uuid, kind)
select distinct task_uuid, 4 from tasker.board where task_uuid = any ($1::uuid[]) and wait ->> 'kind' = 'tasks'`
	openDependencies = `select distinct depends_on from tasker.task_dependencies where task_uuid = any ($1::uuid[]) order by 1`
)

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
	waiting, on, err := dependents(ctx, tx, ids)
	if err != nil || len(waiting) == 0 {
		return 0, err
	}
	if len(waiting) >= maxDependents {
		topics.add(signal.TopicDue)
		if _, err := tx.Exec(ctx, sendMessages, ids, messageEnded); err != nil {
			return 0, err
		}
	}
	rows, err := tx.Query(ctx, dependenciesMet, waiting, on)
	if err != nil {
		return 0, err
	}
	var met, failed uuids
	var task, end uuid.UUID
	var lenient bool
	if _, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&task), (*[16]byte)(&end), &lenient}, func() error {
		state := states[end]
		if lenient || state == workflow.TaskComplete || state == workflow.TaskResolvedManually {
			met = append(met, task)
		} else {
			failed = append(failed, task)
		}
		return nil
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		if _, err := tx.Exec(ctx, dropDependencies, failed); err != nil {
			return 0, err
		}
		if _, err := tx.Exec(ctx, sendFailed, failed); err != nil {
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
func dependents(ctx context.Context, tx pgx.Tx, ended uuids) (waiting, on uuids, err error) {
	rows, err := tx.Query(ctx, dependentsOf, ended, maxDependents)
	if err != nil {
		return nil, nil, err
	}
	var task, end [16]byte
	if _, err := pgx.ForEachRow(rows, []any{&task, &end}, func() error {
		waiting, on = append(waiting, task), append(on, end)
		return nil
	}); err != nil || len(waiting) == 0 {
		return nil, nil, err
	}
	_, err = tx.Exec(ctx, lockTasks, distinct(waiting))
	return waiting, on, err
}

// release lets locked tasks begin.
func release(ctx context.Context, tx pgx.Tx, tasks uuids, topics signalSet) (int, error) {
	rows, err := tx.Query(ctx, releaseTasks, tasks)
	if err != nil {
		return 0, err
	}
	seen := map[uuid.UUID]bool{}
	var task uuid.UUID
	var ours bool
	var lane laneKey
	var namespace string
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&task), &ours, &lane.callable, &lane.lane, &namespace}, func() error {
		seen[task] = true
		if ours {
			topics.add(signal.TopicDue)
		} else {
			topics.addLane(namespace, lane)
		}
		return nil
	})
	return len(seen), err
}

// WatchDependencies looks at the dependencies of up to limit new tasks: live ones are
// marked to notify their dependents when they end, ended ones count at once.
func (s *Store) WatchDependencies(ctx context.Context, limit int) (found int, signals []signal.Signal, err error) {
	err = s.call(ctx, "watch_dependencies", "look at what tasks depend on", func(ctx context.Context, db *conn) error {
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			found, signals = 0, nil
			ids, n, err := messagesOf(ctx, tx, messageDependencies, limit)
			if err != nil || n == 0 {
				return nil, err
			}
			found = n
			rows, err := tx.Query(ctx, openDependencies, ids)
			if err != nil {
				return nil, err
			}
			on, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id [16]byte, err error) { return id, row.Scan(&id) })
			if err != nil {
				return nil, err
			}
			topics := signalSet{}
			err = awaitAll(ctx, tx, on, topics)
			signals = topics.signals()
			return signals, err
		})
	})
	return found, signals, err
}

// awaitAll marks tasks to notify their dependents at their end; an ended one notifies at
// once. A claim skips a row while it is written, so its queue is signalled again.
func awaitAll(ctx context.Context, tx pgx.Tx, tasks uuids, topics signalSet) error {
	if len(tasks) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, awaitTasks, tasks)
	if err != nil {
		return err
	}
	alive := map[[16]byte]bool{}
	var id [16]byte
	var claimable bool
	var lane laneKey
	var namespace string
	if _, err := pgx.ForEachRow(rows, []any{&id, &claimable, &lane.callable, &lane.lane, &namespace}, func() error {
		alive[id] = true
		if claimable {
			topics.addLane(namespace, lane)
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
	_, err = tx.Exec(ctx, sendMessages, gone, messageEnded)
	return err
}
