package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/workflow"
)

// Task is a task as shown to users, alive or ended.
type Task struct {
	UUID                uuid.UUID
	Plan                *Plan
	State               workflow.TaskState // stored; see workflow.VisibleTaskState
	Priority            int
	Context             json.RawMessage
	CorrelationID       uuid.UUID
	ParentCorrelationID *uuid.UUID
	Initiator           *string
	SourceSystem        *string
	Reason              *string
	FinalReason         *string
	Tags                []string
	RequestedAt         time.Time
	UpdatedAt           time.Time
	StartAt             *time.Time
	CompletedAt         *time.Time
	Progress            *workflow.Progress
	Parent              *ParentStep // its step in the parent task; nil: no parent
	DependsOn           []uuid.UUID // the tasks that had to end before it
	Steps               []Step      // every existing step, by number
	// ContinuesTask is the task whose handler has named this one as the next; nil: none.
	ContinuesTask *uuid.UUID
	// ContinuedBy are the tasks that handlers of this one have named, the oldest
	// first, at most MaxContinuedBy; read with results only.
	ContinuedBy []uuid.UUID
	// Batches are the steps created at run time, by number; nil: none.
	Batches map[int]Batch
}

// Step is a step of a task as shown to users.
type Step struct {
	No            int
	UUID          uuid.UUID
	Name          string
	State         workflow.StepState
	Ready         bool // claimable now
	Attempts      int  // executions begun
	Crashes       int
	CreatedAt     time.Time // when it was first enqueued; the task's time before that
	LastAttemptAt *time.Time
	LastFailureAt *time.Time
	CompletedAt   *time.Time
	NextRetryAt   *time.Time
	Parents       int
	ParentsDone   int
	WorkerUUID    *uuid.UUID
	StartedAt     *time.Time      // when the attempt of Result or Error was claimed,
	ReportedAt    *time.Time      // and when it was reported
	Result        json.RawMessage // of the attempt that completed it
	Manual        *Manual         // the operator who set Result; nil: a handler
	Error         json.RawMessage // of the newest attempt that failed
	Reason        *string         // why it failed permanently
	Waiting       *Waiting        // nil: not waiting
	Checkpoint    json.RawMessage // of the step, or of its newest attempt; read with results only
}

// MaxContinuedBy bounds the next tasks shown.
const MaxContinuedBy = 100

// StepName is the name of a step, also of one created at run time; empty if it does not
// exist.
func (t *Task) StepName(no int) string {
	if no >= 0 && no < len(t.Plan.Steps) {
		return t.Plan.Steps[no].Name
	}
	return t.Batches[no].Name
}

// Manual is the origin of a result that was set by hand.
type Manual struct {
	Actor, Reason string
	Metadata      json.RawMessage // attached by the actor; nil: none
}

// Counts derives the counts of a task from its steps.
func (t *Task) Counts() workflow.StepCounts {
	c := workflow.StepCounts{Total: len(t.Steps)}
	for i := range t.Steps {
		s := &t.Steps[i]
		switch s.State {
		case workflow.StepPending, workflow.StepEnqueued:
			c.Pending++
		case workflow.StepInProgress, workflow.StepEnqueuedForOrchestration, workflow.StepEnqueuedAsErrorForOrchestration:
			c.InProgress++
		case workflow.StepComplete, workflow.StepResolvedManually:
			c.Complete++
		case workflow.StepError:
			c.Failed++
		case workflow.StepWaitingForRetry:
			c.BackingOff++
		case workflow.StepCancelled:
			c.Cancelled++
		}
		if s.Ready {
			c.Ready++
		}
	}
	return c
}

// readTask reads a task, its board rows and its attempts, and with the results the
// operators who set some and the next tasks: all in one round trip and one snapshot. The
// state and progress of a live task are in its board row, those of an ended one with its
// attempts.
// Index: the primary keys.
const (
	readTaskRow = `
select task_uuid, plan_id, priority, case when $2 then context end, coalesce(correlation_id, task_uuid), parent_correlation_id,
       initiator, source_system, reason, tags, requested_at, start_at, parent_task_uuid, parent_step_no, depth, depends_on,
       continues_task_uuid
from tasker.tasks where task_uuid = any ($1)`
	readBoard = `
select task_uuid, task_state, updated_at, priority, progress,
       step_no, state, attempt, outcome, enqueued_at, claimed_at, reported_at, due_at, worker, error, case when $2 then checkpoint end,
       case when state = 1 then wait end, token is not null
from tasker.board where task_uuid = any ($1)`
	// readAttempts excludes batches; with several tasks it reads some needlessly.
	readAttempts = `
select ` + attemptFields + `
from tasker.step_attempts a where a.task_uuid = any ($1)
  and a.step_no < (select max(p.steps) from (
                       select distinct t.plan_id from unnest($1::uuid[]) k(id)
                       cross join lateral (select plan_id from tasker.tasks where task_uuid = k.id limit 1) t) d -- one partition for each
                   cross join lateral (select cardinality(steps) as steps from tasker.plans where plan_id = any (array[d.plan_id]) limit 1) p)
order by a.task_uuid, a.step_no, a.token`
	// readBatchAttempts are those of the present batches, without those of former batches
	// with their numbers, of which there may be many more.
	readBatchAttempts = `
select ` + attemptFields + `
from tasker.batches d cross join lateral (
    select * from tasker.step_attempts where task_uuid = d.task_uuid and step_no = d.step_no and token > d.since) a
where d.task_uuid = any ($1) order by a.task_uuid, a.step_no, a.token`
	attemptFields = `a.task_uuid, a.task_state, a.task_reason, a.task_progress,
       a.step_no, a.attempt, a.outcome, a.enqueued_at, a.claimed_at, a.reported_at, a.applied_at, a.worker, case when $2 then a.result end, a.error, a.reason,
       case when $2 then a.checkpoint end`
	readManual = `
select task_uuid, (metadata->>'step')::int, actor, coalesce(reason, ''), metadata->'metadata', (metadata->>'continued_by')::uuid
from tasker.task_events where task_uuid = any ($1) and (metadata->>'action' = '` + workflow.ActionComplete + `' or metadata ? 'continued_by')
order by task_uuid, at, seq`
)

// parts are the optional parts of a task; each may be large.
type parts struct {
	context bool
	results bool // and checkpoints
	links   bool // steps completed by hand, and the next tasks
}

// Task reads one task with its steps and results, or ErrNotFound.
func (s *Store) Task(ctx context.Context, id uuid.UUID) (*Task, error) {
	return s.readTask(ctx, id, parts{context: true, results: true, links: true})
}

// TaskWithoutResults is Task without the results and checkpoints of the steps, which may
// be many times as large as the rest.
func (s *Store) TaskWithoutResults(ctx context.Context, id uuid.UUID) (*Task, error) {
	return s.readTask(ctx, id, parts{context: true, links: true})
}

func (s *Store) readTask(ctx context.Context, id uuid.UUID, of parts) (*Task, error) {
	tasks, err := s.readTasks(ctx, []uuid.UUID{id}, of)
	if err != nil {
		return nil, err
	}
	if len(tasks) == 0 {
		return nil, fmt.Errorf("read the task: %w", ErrNotFound)
	}
	return tasks[0], nil
}

// readTasks reads tasks in no particular order, with the requested parts.
func (s *Store) readTasks(ctx context.Context, ids []uuid.UUID, of parts) ([]*Task, error) {
	var tasks []*Task
	err := s.repeatable(ctx, "read_task", "read the task", func(ctx context.Context, db *conn) error {
		tasks = nil
		byID := make(map[uuid.UUID]*taskReader, len(ids))
		tx, err := s.begin(ctx, db, readOnlySnapshot)
		if err != nil {
			return err
		}
		defer s.rollback(tx) // read only: nothing to commit
		var plans []int32
		b := &pgx.Batch{}
		b.Queue(readTaskRow, ids, of.context).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				r, plan, err := scanTask(rows)
				if err != nil {
					return err
				}
				byID[r.task.UUID], tasks, plans = r, append(tasks, r.task), append(plans, plan)
			}
			return rows.Err()
		})
		b.Queue(readBoard, ids, of.results).Query(func(rows pgx.Rows) error { return scanEach(rows, byID, (*taskReader).scanBoard) })
		b.Queue(readAttempts, ids, of.results).Query(func(rows pgx.Rows) error { return scanEach(rows, byID, (*taskReader).scanAttempt) })
		if of.links {
			b.Queue(readManual, ids).Query(func(rows pgx.Rows) error { return scanEach(rows, byID, (*taskReader).scanManual) })
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		read, err := s.plansOn(ctx, db, plans)
		if err != nil {
			return err
		}
		for i, t := range tasks {
			if t.Plan, err = read.of(plans[i]); err != nil {
				return err
			}
			if t.Progress == nil {
				return fmt.Errorf("task %s has neither a board row nor an end", t.UUID)
			}
		}
		if err := batchesOf(ctx, tx, tasks, byID, of); err != nil {
			return err
		}
		for _, t := range tasks {
			byID[t.UUID].build()
		}
		return nil
	})
	return tasks, err
}

// Index: the primary keys. A reopened task has earlier ends; only tasks that the board
// does not hold have ended.
const taskEnds = `
select distinct on (a.task_uuid) a.task_uuid, a.task_state from tasker.step_attempts a
where a.task_uuid = any ($1) and a.task_state is not null
  and not exists (select from tasker.board b where b.task_uuid = a.task_uuid and b.slot = 0)
order by a.task_uuid, a.token desc`

// TaskEnds returns the state of those of the tasks that have ended.
func (s *Store) TaskEnds(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]workflow.TaskState, error) {
	ends := map[uuid.UUID]workflow.TaskState{}
	err := s.repeatable(ctx, "task_ends", "look for ended tasks", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, taskEnds, ids)
		if err != nil {
			return err
		}
		var id uuid.UUID
		var state int16
		_, err = pgx.ForEachRow(rows, []any{&id, &state}, func() error {
			ends[id] = workflow.TaskState(state)
			return nil
		})
		return err
	})
	return ends, err
}

// Index: the primary key.
const watchTask = `update tasker.board set watched = true where task_uuid = $1 and slot = 0`

// Watch requests a signal on TopicTasks when the task ends. It returns false if there
// will be none: the task has ended already, or does not exist. Claims and applies that
// skip the locked row look again, see Claim and Taken.Skipped.
func (s *Store) Watch(ctx context.Context, id uuid.UUID) (alive bool, err error) {
	err = s.repeatable(ctx, "watch", "watch the task", func(ctx context.Context, db *conn) error {
		tag, err := db.Exec(ctx, watchTask, id)
		alive = tag.RowsAffected() > 0
		return err
	})
	return alive, err
}

// StepResults reads the results of completed steps by number: those that a handler reads
// beyond its direct parents.
func (s *Store) StepResults(ctx context.Context, task uuid.UUID, steps []int) (map[int]json.RawMessage, error) {
	results := map[int]json.RawMessage{}
	err := s.repeatable(ctx, "step_results", "read results", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, `select step_no, result from tasker.step_attempts
			where task_uuid = $1 and step_no = any ($2) and outcome = 1 order by token`, task, steps)
		if err != nil {
			return err
		}
		var no int
		var result []byte
		_, err = pgx.ForEachRow(rows, []any{&no, &result}, func() error {
			results[no] = append(json.RawMessage(nil), result...)
			return nil
		})
		return err
	})
	return results, err
}
