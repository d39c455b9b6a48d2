package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/workflow"
)

// taskReader assembles the parts of a task.
type taskReader struct {
	task     *Task
	board    map[int]boardRow
	attempts map[int][]attemptRow
	manual   map[int]*Manual // the latest of each step
}

type boardRow struct {
	state, attempt, outcome int16
	enqueuedAt, claimedAt   *time.Time
	reportedAt, dueAt       *time.Time
	worker                  *uuid.UUID
	err, checkpoint         json.RawMessage
	wait                    *wait // nil: not waiting
	begun                   bool  // the attempt has begun
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
	var parent *uuid.UUID
	var parentStep, depth *int
	err := rows.Scan(&t.UUID, &plan, &t.Priority, &t.Context, &t.CorrelationID, &t.ParentCorrelationID,
		&t.Initiator, &t.SourceSystem, &t.Reason, &t.Tags, &t.RequestedAt, &t.StartAt, &parent, &parentStep, &depth, &t.DependsOn,
		&t.ContinuesTask)
	if parent != nil && parentStep != nil && depth != nil {
		t.Parent = &ParentStep{Task: *parent, Step: *parentStep, Depth: *depth}
	}
	t.UpdatedAt = t.RequestedAt
	return &taskReader{task: t, board: map[int]boardRow{}, attempts: map[int][]attemptRow{}, manual: map[int]*Manual{}}, plan, err
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
		&no, &b.state, &b.attempt, &outcome, &b.enqueuedAt, &b.claimedAt, &b.reportedAt, &b.dueAt, &b.worker, &b.err, &b.checkpoint, &b.wait, &b.begun)
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

func (*taskReader) scanManual(rows pgx.Rows, id *uuid.UUID) (func(*taskReader), error) {
	var no *int
	var next *uuid.UUID
	m := &Manual{}
	err := rows.Scan(id, &no, &m.Actor, &m.Reason, &m.Metadata, &next)
	return func(r *taskReader) {
		switch {
		case next != nil:
			if t := r.task; len(t.ContinuedBy) < MaxContinuedBy {
				t.ContinuedBy = append(t.ContinuedBy, *next)
			}
		case no != nil:
			r.manual[*no] = m
		}
	}, err
}

// build fills in the steps from plan, progress, board and attempts.
func (r *taskReader) build() {
	t := r.task
	for no, p := range t.Progress.Steps {
		step := t.Plan.Step(t.Progress, no)
		if p.Status == workflow.StatusNotCreated || step == nil {
			continue
		}
		s := Step{No: no, UUID: BatchUUID(t.UUID, no, t.Batches[no].Run), Name: t.StepName(no), State: EndedState(p.Status),
			Attempts: int(p.Attempts), Crashes: int(p.Crashes), CreatedAt: t.RequestedAt}
		s.Parents, s.ParentsDone = t.Plan.ParentCounts(t.Progress, no)
		for _, a := range r.attempts[no] {
			s.addAttempt(a, r.manual[no])
		}
		if b, on := r.board[no]; on {
			s.addBoard(b)
		} else if s.State == workflow.StepPending {
			s.Checkpoint = nil // of an earlier run; this one has not begun
		}
		t.Steps = append(t.Steps, s)
	}
}

// addAttempt adds the next attempt in the order of claims. manual is the latest result
// set by hand, if any.
func (s *Step) addAttempt(a attemptRow, manual *Manual) {
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
		s.StartedAt, s.ReportedAt, s.Manual = a.claimed, a.reported, nil
		if a.reason != nil && *a.reason == manualReason {
			s.Manual = manual
		}
	case workflow.OutcomeCancelled: // neither: its outcome is not known
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
	switch {
	case b.wait != nil:
		s.Waiting = &Waiting{Kind: b.wait.Kind, Event: b.wait.Event, Key: b.wait.Key, Prompt: b.wait.Prompt, TaskUUID: b.wait.TaskUUID, Until: b.dueAt}
	case b.state == 1:
		s.NextRetryAt = b.dueAt
	}
	if b.err != nil {
		s.Error, s.StartedAt, s.ReportedAt = b.err, b.claimedAt, b.reportedAt
	}
}

func boardState(b boardRow) workflow.StepState {
	switch b.state {
	case 1:
		if b.wait != nil && b.begun {
			return workflow.StepInProgress
		}
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

// EndedState is the state of a step that is not on the board.
func EndedState(s workflow.Status) workflow.StepState {
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
