package operations

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/plainqueue"
	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// QueueWorker is a worker that claims the tasks of a queue over /tasks/v1.
type QueueWorker struct {
	ID           string `sql:"worker_id"`
	Queue        string
	Tags         []string
	Claims       uuid.UUID // the worker of its claims on the board; another one after it was dead
	RegisteredAt time.Time
	HeartbeatAt  time.Time
	Lives        time.Duration // without another heartbeat; not positive: it is dead
	Status       pg.WorkerStatus
}

// queueWorkerColumns judges a worker by the time of the statement, as a worker that has waited
// for a lock is not younger for it.
const queueWorkerColumns = `w.worker_id, w.queue, w.tags, w.claims, w.registered_at, w.heartbeat_at,
	(extract(epoch from w.lives_until - clock_timestamp()) * 1000)::bigint as lives,
	(case when w.lives_until <= clock_timestamp() then {worker_dead}
	      when w.heartbeat_at <= clock_timestamp() - @stale_ms::bigint * interval '1 ms' then {worker_stale} else {worker_active} end)::smallint as status`

// queueWorkerLives are the changes of a sign of life. A worker that was dead gets other claims,
// and so does one for which the condition holds: what it held ends when it would have died.
func queueWorkerLives(orIf string) string {
	return `heartbeat_at = clock_timestamp(), lives_until = clock_timestamp() + @dead_ms::bigint * interval '1 ms', death_noted = false,
    claims = case when w.lives_until <= clock_timestamp() or ` + orIf + ` then gen_random_uuid() else w.claims end`
}

// Index: the primary key.
var (
	registerQueueWorker = pg.Compile(`
insert into tasker.queue_workers as w (worker_id, queue, tags, instance, lives_until)
values (@id, @queue, @tags, @instance, clock_timestamp() + @dead_ms::bigint * interval '1 ms')
on conflict (worker_id) do update set queue = excluded.queue, tags = excluded.tags, instance = excluded.instance,
    ` + queueWorkerLives(`w.instance <> excluded.instance`) + `
where @namespaces::text[] is null or w.queue = any (@namespaces::text[])
returning ` + queueWorkerColumns)

	queueWorkerHeartbeat = pg.Compile(`
update tasker.queue_workers w set ` + queueWorkerLives(`false`) + ` where w.worker_id = @id returning ` + queueWorkerColumns)

	readQueueWorkers = pg.Compile(`select ` + queueWorkerColumns + ` from tasker.queue_workers w where w.worker_id = any (@ids)`)

	listQueueWorkers = pg.Compile(`
select ` + queueWorkerColumns + ` from tasker.queue_workers w where (@queue = '' or w.queue = @queue) order by w.worker_id limit @limit`)

	// heldByWorker are those of some claims that a worker holds.
	heldByWorker = pg.Compile(`
select h.task_uuid, h.token from ` + stmt.HiddenList[board.HeldClaim]("h") + `
cross join lateral (select from tasker.board b where b.task_uuid = any (array[h.task_uuid]) and b.slot in (0, 1) and b.token = h.token
                    and b.state = {in_progress} and b.worker = @claims limit 1) b`)
)

// QueueRegistration registers a worker.
type QueueRegistration struct {
	ID, Queue string
	Tags      []string
	Instance  string // of the process; "": the same as one without
	// Namespaces are those of which a worker may be that is registered already; nil: of any.
	Namespaces []string
}

// RegisterQueueWorker adds a worker, or changes its queue and tags, and is a heartbeat. Of the
// limits Stale and Dead count. The error wraps ErrNotFound if the worker is of another namespace.
func (s *Operations) RegisterQueueWorker(ctx context.Context, r QueueRegistration, l LivenessLimits) (QueueWorker, error) {
	return pg.ReadOne[QueueWorker](ctx, s.db, "register_queue_worker", "register the worker of a queue",
		registerQueueWorker.With(l.ages().And(pg.Args{"id": r.ID, "queue": r.Queue, "tags": pg.NonNil(r.Tags), "instance": r.Instance, "namespaces": r.Namespaces})))
}

func (l LivenessLimits) ages() pg.Args {
	return pg.Args{"stale_ms": l.Stale.Milliseconds(), "dead_ms": l.Dead.Milliseconds()}
}

// QueueWorkerHeartbeat records that a worker lives, which extends all of its claims, and
// returns those of held that are not its own any more. The error wraps ErrNotFound if the
// worker is not registered.
func (s *Operations) QueueWorkerHeartbeat(ctx context.Context, id string, held []board.HeldClaim, l LivenessLimits) (w QueueWorker, lost []board.HeldClaim, err error) {
	err = s.db.Call(ctx, "queue_worker_heartbeat", "record the heartbeat of the worker of a queue", func(ctx context.Context, db *pg.Conn) error {
		if w, err = pg.OneOf[QueueWorker](ctx, db, queueWorkerHeartbeat.With(l.ages().And(pg.Args{"id": id}))); err != nil || len(held) == 0 {
			return err
		}
		its := make(map[board.HeldClaim]bool, len(held))
		if err = stmt.Each(ctx, db, heldByWorker.With(pg.Args{"h": held, "claims": w.Claims}), func(c *board.HeldClaim) { its[*c] = true }); err != nil {
			return err
		}
		lost = nil
		for _, c := range held {
			if !its[c] {
				lost = append(lost, c)
			}
		}
		return nil
	})
	return w, lost, err
}

// QueueWorker reads a worker; the error wraps ErrNotFound if it is not registered.
func (s *Operations) QueueWorker(ctx context.Context, id string, l LivenessLimits) (QueueWorker, error) {
	return pg.ReadOne[QueueWorker](ctx, s.db, "queue_worker", "read the worker of a queue",
		readQueueWorkers.With(pg.Args{"ids": []string{id}, "stale_ms": l.Stale.Milliseconds()}))
}

// QueueWorkersNamed reads workers by their ids; those that are not registered are left out.
func (s *Operations) QueueWorkersNamed(ctx context.Context, ids []string, l LivenessLimits) (map[string]QueueWorker, error) {
	return pg.ReadMap(ctx, s.db, "queue_workers_named", "read workers of queues",
		readQueueWorkers.With(pg.Args{"ids": ids, "stale_ms": l.Stale.Milliseconds()}), func(w *QueueWorker) (string, QueueWorker) { return w.ID, *w })
}

// QueueWorkers lists workers of a queue, or of all, by their ids.
func (s *Operations) QueueWorkers(ctx context.Context, queue string, limit int, l LivenessLimits) ([]QueueWorker, error) {
	return pg.ReadAll[QueueWorker](ctx, s.db, "queue_workers", "list the workers of queues",
		listQueueWorkers.With(pg.Args{"queue": queue, "limit": limit, "stale_ms": l.Stale.Milliseconds()}))
}

// QueueDeaths is the result of NoteQueueDeaths.
type QueueDeaths struct {
	Died []string // the ids of workers that died since the last look
	More bool     // a batch was full
}

const unnotedDeaths = `select worker_id from tasker.queue_workers where lives_until <= clock_timestamp() and not death_noted order by lives_until limit @limit offset @skip`

// Index: queue_workers_lives.
var (
	viewQueueDeaths = pg.Compile(unnotedDeaths)
	noteQueueDeaths = pg.Compile(`
with dead as materialized (` + unnotedDeaths + ` for update skip locked)
update tasker.queue_workers w set death_noted = true where w.worker_id = any (array(select worker_id from dead)) returning w.worker_id`)
)

// NoteQueueDeaths lists workers of queues that died since the last look, each once, up to
// limit. It changes nothing that a worker or a claim depends on. A dry run lists only.
func (s *Operations) NoteQueueDeaths(ctx context.Context, limit int, dry bool) (QueueDeaths, error) {
	note := noteQueueDeaths
	if dry {
		note = viewQueueDeaths
	}
	var died []string
	_, err := s.db.ByPosition("note_queue_deaths", "dead worker %d of queues", limit, func(limit, skip int) (int, error) {
		some, err := pg.ReadAll[string](ctx, s.db, "note_queue_deaths", "look for dead workers of queues", note.With(pg.Args{"limit": limit, "skip": skip}))
		if err == nil {
			died = append(died, some...)
		}
		return len(some), err
	})
	return QueueDeaths{Died: died, More: len(died) >= limit}, err
}

// QueueRetained counts what RetainQueues deleted.
type QueueRetained struct {
	Tasks, Workers int
	Next           uuid.UUID // older tasks have been looked at
	More           bool
}

// oldQueueTasks are tasks of queues that are so old that they may have ended long ago, after a
// task, with whether they did.
// Index: tasks_by_plan, the primary keys.
var oldQueueTasks = pg.Compile(`
select t.task_uuid, exists (select from tasker.step_attempts a where a.task_uuid = t.task_uuid and a.task_state is not null
                              and a.applied_at < now() - @ttl_ms::bigint * interval '1 ms') as ended
from (select l.task_uuid from tasker.plans p cross join lateral (
          select task_uuid from tasker.tasks
          where plan_id = p.plan_id and plan_id > 0 and task_uuid > @after and task_uuid < tasker.uuid_floor(now() - @ttl_ms::bigint * interval '1 ms')
          order by task_uuid limit @limit) l
      where p.name = '` + plainqueue.Template + `' order by l.task_uuid limit @limit) t
order by t.task_uuid`)

// goneQueueWorkers have been dead for long.
// Index: queue_workers_lives.
var goneQueueWorkers = expiredRows("queue_workers", `select ctid as at from tasker.queue_workers where lives_until < clock_timestamp() - @ttl_ms::bigint * interval '1 ms' order by lives_until limit @limit offset @skip`)

// RetainQueues deletes a batch of tasks of queues that ended longer than ttl ago, those younger
// than after, and of workers of queues that have been dead for that long. Tasks with an open
// dead letter stay. A dry run counts.
func (s *Operations) RetainQueues(ctx context.Context, ttl time.Duration, after uuid.UUID, batch int, dry bool) (r QueueRetained, err error) {
	type old struct {
		TaskUUID uuid.UUID
		Ended    bool
	}
	workers, err := s.purge(ctx, "queue_workers", goneQueueWorkers, pg.Args{"ttl_ms": ttl.Milliseconds()}, batch, dry)
	if err != nil {
		return QueueRetained{Workers: workers, Next: after}, err
	}
	err = s.db.Call(ctx, "retain_queues", "remove old tasks of queues", func(ctx context.Context, db *pg.Conn) error {
		r = QueueRetained{Workers: workers, Next: after}
		found, err := stmt.All[old](ctx, db, oldQueueTasks.With(pg.Args{"ttl_ms": ttl.Milliseconds(), "after": after, "limit": batch}))
		if err != nil {
			return err
		}
		r.More = len(found) >= batch
		ended := make([]uuid.UUID, 0, len(found))
		for _, t := range found {
			if r.Next = t.TaskUUID; t.Ended {
				ended = append(ended, t.TaskUUID)
			}
		}
		if len(ended) == 0 {
			return nil
		}
		r.Tasks, err = s.deleteEnded(ctx, db, ended, dry)
		return err
	})
	return r, err
}
