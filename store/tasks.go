package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Task is a task as people see it, alive or ended.
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
	Steps               []Step // every step that exists, in the order of numbers
	// Batches are the steps created at run time, by number; nil: there are none.
	Batches map[int]Batch
}

// Step is a step of a task as people see it.
type Step struct {
	No            int
	UUID          uuid.UUID
	Name          string
	State         workflow.StepState
	Ready         bool // claimable now
	Attempts      int  // executions begun
	Crashes       int
	CreatedAt     time.Time // when it was first put in line; the task's time before that
	LastAttemptAt *time.Time
	LastFailureAt *time.Time
	CompletedAt   *time.Time
	NextRetryAt   *time.Time
	Parents       int
	ParentsDone   int
	WorkerUUID    *uuid.UUID
	StartedAt     *time.Time      // when the attempt that Result or Error is of was claimed,
	ReportedAt    *time.Time      // and when it was reported
	Result        json.RawMessage // of the attempt that completed it
	Error         json.RawMessage // of the newest attempt that failed
	Reason        *string         // why it failed for good
	Checkpoint    json.RawMessage // what the step, or its newest attempt, has saved; read with results only
}

// StepName is the name of a step, also of one created at run time; empty where
// there is none.
func (t *Task) StepName(no int) string {
	if no >= 0 && no < len(t.Plan.Steps) {
		return t.Plan.Steps[no].Name
	}
	return t.Batches[no].Name
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

// readTask reads a task, its board rows and its attempts: three statements in
// one round trip and one snapshot. The state and progress of a live task stand
// in its board row, those of an ended one with its attempts.
// Index: the primary keys.
const (
	readTaskRow = `
select task_uuid, plan_id, priority, context, coalesce(correlation_id, task_uuid), parent_correlation_id,
       initiator, source_system, reason, tags, requested_at, start_at
from tasker.tasks where task_uuid = any ($1)`
	readBoard = `
select task_uuid, task_state, updated_at, priority, progress,
       step_no, state, attempt, outcome, enqueued_at, claimed_at, reported_at, due_at, worker, error, case when $2 then checkpoint end
from tasker.board where task_uuid = any ($1)`
	readAttempts = `
select task_uuid, task_state, task_reason, task_progress,
       step_no, attempt, outcome, enqueued_at, claimed_at, reported_at, applied_at, worker, case when $2 then result end, error, reason,
       case when $2 then checkpoint end
from tasker.step_attempts where task_uuid = any ($1) order by task_uuid, step_no, token`
)

// Task reads one task with its steps and results, or ErrNotFound.
func (s *Store) Task(ctx context.Context, id uuid.UUID) (*Task, error) {
	tasks, err := s.readTasks(ctx, []uuid.UUID{id}, true)
	if err != nil {
		return nil, err
	}
	if len(tasks) == 0 {
		return nil, fmt.Errorf("read the task: %w", ErrNotFound)
	}
	return tasks[0], nil
}

// readTasks reads tasks in no particular order; results are left out unless
// asked for.
func (s *Store) readTasks(ctx context.Context, ids []uuid.UUID, results bool) ([]*Task, error) {
	var tasks []*Task
	err := s.repeatable(ctx, "read_task", "read the task", func(ctx context.Context, db *conn) error {
		tasks = nil
		byID := make(map[uuid.UUID]*taskReader, len(ids))
		tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
		if err != nil {
			return err
		}
		defer s.rollback(tx) // read only: nothing to commit
		var plans []int32
		b := &pgx.Batch{}
		b.Queue(readTaskRow, ids).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				r, plan, err := scanTask(rows)
				if err != nil {
					return err
				}
				byID[r.task.UUID], tasks, plans = r, append(tasks, r.task), append(plans, plan)
			}
			return rows.Err()
		})
		b.Queue(readBoard, ids, results).Query(func(rows pgx.Rows) error { return scanEach(rows, byID, (*taskReader).scanBoard) })
		b.Queue(readAttempts, ids, results).Query(func(rows pgx.Rows) error { return scanEach(rows, byID, (*taskReader).scanAttempt) })
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		for i, t := range tasks {
			if t.Plan, err = s.planOn(ctx, db, plans[i]); err != nil {
				return err
			}
			if t.Progress == nil {
				return fmt.Errorf("task %s has neither a board row nor an end", t.UUID)
			}
		}
		if err := batchesOf(ctx, tx, tasks); err != nil {
			return err
		}
		for _, t := range tasks {
			byID[t.UUID].build()
		}
		return nil
	})
	return tasks, err
}

// TaskEnds returns the state of those of the tasks that have ended.
func (s *Store) TaskEnds(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]workflow.TaskState, error) {
	ends := map[uuid.UUID]workflow.TaskState{}
	err := s.repeatable(ctx, "task_ends", "look for ended tasks", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, `select task_uuid, task_state from tasker.step_attempts
			where task_uuid = any ($1) and task_state is not null`, ids)
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

// Watched is what became of a wish to be told of a task's end.
type Watched struct {
	Alive   bool            // false: it has ended already or does not exist, no signal will come
	Signals []signal.Signal // to publish, unless the store sends them itself
}

// Watch asks for a signal on TopicTasks when the task ends. While it writes
// that down, a claim passes over the step that stands in the same row; so its
// queue is signalled again.
func (s *Store) Watch(ctx context.Context, id uuid.UUID) (Watched, error) {
	var w Watched
	err := s.repeatable(ctx, "watch", "watch the task", func(ctx context.Context, db *conn) error {
		w = Watched{}
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
			var claimable bool
			var namespace string
			err := tx.QueryRow(ctx, `update tasker.board b set watched = true from tasker.namespaces n
				where b.task_uuid = $1 and b.slot = 0 and n.namespace_id = b.queue returning b.state = 2, n.name`, id).Scan(&claimable, &namespace)
			switch {
			case errors.Is(err, pgx.ErrNoRows):
				return nil, nil
			case err != nil:
				return nil, err
			}
			w.Alive = true
			if claimable {
				w.Signals = []signal.Signal{{Topic: signal.WorkerTopic(namespace)}}
			}
			return w.Signals, nil
		})
	})
	return w, err
}

// StepResults reads the results of completed steps by number: what a handler
// asks for beyond its direct parents.
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

// taskReader puts the parts of a task together.
type taskReader struct {
	task     *Task
	board    map[int]boardRow
	attempts map[int][]attemptRow
}

type boardRow struct {
	state, attempt, outcome int16
	enqueuedAt, claimedAt   *time.Time
	reportedAt, dueAt       *time.Time
	worker                  *uuid.UUID
	err, checkpoint         json.RawMessage
}

type attemptRow struct {
	attempt                           int16
	outcome                           workflow.AttemptOutcome
	enqueued, claimed, reported, done *time.Time
	worker                            *uuid.UUID
	result, err, checkpoint           json.RawMessage
	reason                            *string
}

func scanTask(rows pgx.Rows) (*taskReader, int32, error) {
	t := &Task{}
	var plan int32
	err := rows.Scan(&t.UUID, &plan, &t.Priority, &t.Context, &t.CorrelationID, &t.ParentCorrelationID,
		&t.Initiator, &t.SourceSystem, &t.Reason, &t.Tags, &t.RequestedAt, &t.StartAt)
	t.UpdatedAt = t.RequestedAt
	return &taskReader{task: t, board: map[int]boardRow{}, attempts: map[int][]attemptRow{}}, plan, err
}

func scanEach(rows pgx.Rows, readers map[uuid.UUID]*taskReader, scan func(*taskReader, pgx.Rows, *uuid.UUID) (func(*taskReader), error)) error {
	for rows.Next() {
		var id uuid.UUID
		keep, err := scan(nil, rows, &id)
		if err != nil {
			return err
		}
		if r := readers[id]; r != nil {
			keep(r)
		}
	}
	return rows.Err()
}

func (*taskReader) scanBoard(rows pgx.Rows, id *uuid.UUID) (func(*taskReader), error) {
	var b boardRow
	var no, state, outcome *int16
	var updated *time.Time
	var encoded []byte
	var priority *int
	err := rows.Scan(id, &state, &updated, &priority, &encoded,
		&no, &b.state, &b.attempt, &outcome, &b.enqueuedAt, &b.claimedAt, &b.reportedAt, &b.dueAt, &b.worker, &b.err, &b.checkpoint)
	if err != nil {
		return nil, err
	}
	if outcome != nil {
		b.outcome = *outcome
	}
	var progress *workflow.Progress
	if state != nil {
		if progress, err = workflow.DecodeProgress(encoded); err != nil {
			return nil, fmt.Errorf("task %s: %w", *id, err)
		}
	}
	return func(r *taskReader) {
		if no != nil {
			r.board[int(*no)] = b
		}
		if progress == nil {
			return
		}
		r.task.State, r.task.Progress, r.task.Priority = workflow.TaskState(*state), progress, *priority
		if updated != nil {
			r.task.UpdatedAt = *updated
		}
	}, nil
}

func (*taskReader) scanAttempt(rows pgx.Rows, id *uuid.UUID) (func(*taskReader), error) {
	var no int
	var a attemptRow
	var state *int16
	var reason *string
	var encoded []byte
	err := rows.Scan(id, &state, &reason, &encoded,
		&no, &a.attempt, &a.outcome, &a.enqueued, &a.claimed, &a.reported, &a.done, &a.worker, &a.result, &a.err, &a.reason, &a.checkpoint)
	if err != nil {
		return nil, err
	}
	var progress *workflow.Progress
	if state != nil {
		if progress, err = workflow.DecodeProgress(encoded); err != nil {
			return nil, fmt.Errorf("task %s: %w", *id, err)
		}
	}
	return func(r *taskReader) {
		if no >= 0 {
			r.attempts[no] = append(r.attempts[no], a)
		}
		if progress == nil {
			return
		}
		t := r.task
		t.State, t.Progress, t.FinalReason = workflow.TaskState(*state), progress, reason
		t.CompletedAt, t.UpdatedAt = a.done, *a.done
	}, nil
}

// build fills in the steps from plan, progress, board and attempts.
func (r *taskReader) build() {
	t := r.task
	for no, p := range t.Progress.Steps {
		step := t.Plan.Step(t.Progress, no)
		if p.Status == workflow.StatusNotCreated || step == nil {
			continue
		}
		s := Step{No: no, UUID: StepUUID(t.UUID, no), Name: t.StepName(no), State: endedState(p.Status),
			Attempts: int(p.Attempts), Crashes: int(p.Crashes), CreatedAt: t.RequestedAt}
		s.Parents, s.ParentsDone = t.Plan.ParentCounts(t.Progress, no)
		for _, a := range r.attempts[no] {
			s.addAttempt(a)
		}
		if b, on := r.board[no]; on {
			s.addBoard(b)
		} else if s.State == workflow.StepPending {
			s.Checkpoint = nil // of a run before; this one has not begun
		}
		t.Steps = append(t.Steps, s)
	}
}

// addAttempt adds the next attempt in the order of claims.
func (s *Step) addAttempt(a attemptRow) {
	if s.LastAttemptAt == nil && a.enqueued != nil {
		s.CreatedAt = *a.enqueued
	}
	if a.claimed != nil {
		s.LastAttemptAt = a.claimed
	}
	s.WorkerUUID, s.Checkpoint = a.worker, a.checkpoint
	switch a.outcome {
	case workflow.OutcomeSuccess:
		s.Result, s.CompletedAt = a.result, a.done
		s.StartedAt, s.ReportedAt = a.claimed, a.reported
	case workflow.OutcomeCancelled: // neither: what it would have become is not known
	default:
		s.LastFailureAt, s.Error, s.Reason = a.reported, a.err, a.reason
		s.StartedAt, s.ReportedAt = a.claimed, a.reported
	}
}

func (s *Step) addBoard(b boardRow) {
	s.State, s.Ready = boardState(b), b.state == 2
	if s.LastAttemptAt == nil && b.enqueuedAt != nil {
		s.CreatedAt = *b.enqueuedAt
	}
	s.Attempts, s.Checkpoint = int(b.attempt), b.checkpoint
	if b.claimedAt != nil {
		s.LastAttemptAt, s.WorkerUUID = b.claimedAt, b.worker
	}
	if b.state == 1 {
		s.NextRetryAt = b.dueAt
	}
	if b.err != nil {
		s.Error, s.StartedAt, s.ReportedAt = b.err, b.claimedAt, b.reportedAt
	}
}

func boardState(b boardRow) workflow.StepState {
	switch b.state {
	case 1:
		if b.attempt > 0 {
			return workflow.StepWaitingForRetry
		}
		return workflow.StepPending
	case 2:
		return workflow.StepEnqueued
	case 3:
		return workflow.StepInProgress
	}
	if workflow.AttemptOutcome(b.outcome) == workflow.OutcomeSuccess {
		return workflow.StepEnqueuedForOrchestration
	}
	return workflow.StepEnqueuedAsErrorForOrchestration
}

func endedState(s workflow.Status) workflow.StepState {
	switch s {
	case workflow.StatusComplete:
		return workflow.StepComplete
	case workflow.StatusResolved:
		return workflow.StepResolvedManually
	case workflow.StatusError, workflow.StatusTolerated:
		return workflow.StepError
	case workflow.StatusCancelled:
		return workflow.StepCancelled
	default:
		return workflow.StepPending
	}
}
