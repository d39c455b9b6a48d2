package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// taskReader assembles the parts of a task.
type taskReader struct {
	task     *Task
	board    map[int]boardRow
	attempts map[int][]attemptRow
	manual   map[int]*Manual // the latest of each step
}

// taskRow is the request of a task.
type taskRow struct {
	UUID                uuid.UUID `sql:"task_uuid"`
	PlanID              int32
	Priority            int
	Context             json.RawMessage
	CorrelationID       uuid.UUID
	ParentCorrelationID *uuid.UUID
	Initiator           *string
	SourceSystem        *string
	Reason              *string
	Tags                []string
	RequestedAt         time.Time
	StartAt             *time.Time
	ParentTaskUUID      *uuid.UUID
	ParentStepNo, Depth *int
	DependsOn           []uuid.UUID
	ContinuesTaskUUID   *uuid.UUID
}

// boardRow is a row of a task on the board.
type boardRow struct {
	TaskUUID              uuid.UUID
	TaskState             *workflow.TaskState // nil: the row of a step
	UpdatedAt             *time.Time
	Priority              *int
	Progress              []byte
	StepNo                *int // nil: no step
	State, Attempt        int16
	Outcome               workflow.AttemptOutcome `sql:",omitzero"`
	EnqueuedAt, ClaimedAt *time.Time
	ReportedAt, DueAt     *time.Time
	Worker                *uuid.UUID
	Error, Checkpoint     json.RawMessage
	Wait                  *wait // nil: not waiting
	Begun                 bool  // the attempt has begun
}

type attemptRow struct {
	TaskUUID              uuid.UUID
	TaskState             *workflow.TaskState // how the task ended; nil: it went on
	TaskReason            *string
	TaskProgress          []byte
	StepNo                int // negative: the end of a task without an attempt
	Attempt               int16
	Outcome               workflow.AttemptOutcome
	EnqueuedAt, ClaimedAt *time.Time
	ReportedAt, AppliedAt *time.Time
	Worker                *uuid.UUID
	Result, Error         json.RawMessage
	Reason                *string
	Checkpoint            json.RawMessage
}

// manualRow is an event of a task that names a step completed by hand, or a next task.
type manualRow struct {
	TaskUUID uuid.UUID
	StepNo   *int
	Manual
	ContinuedBy *uuid.UUID
}

func newTaskReader(r *taskRow) *taskReader {
	t := &Task{UUID: r.UUID, Priority: r.Priority, Context: r.Context, CorrelationID: r.CorrelationID, ParentCorrelationID: r.ParentCorrelationID,
		Initiator: r.Initiator, SourceSystem: r.SourceSystem, Reason: r.Reason, Tags: r.Tags, RequestedAt: r.RequestedAt,
		UpdatedAt: r.RequestedAt, StartAt: r.StartAt, DependsOn: r.DependsOn, ContinuesTask: r.ContinuesTaskUUID}
	if r.ParentTaskUUID != nil && r.ParentStepNo != nil && r.Depth != nil {
		t.Parent = &ParentStep{Task: *r.ParentTaskUUID, Step: *r.ParentStepNo, Depth: *r.Depth}
	}
	return &taskReader{task: t, board: map[int]boardRow{}, attempts: map[int][]attemptRow{}, manual: map[int]*Manual{}}
}

// part is a row that belongs to a task.
type part interface{ of() uuid.UUID }

func (b boardRow) of() uuid.UUID   { return b.TaskUUID }
func (a attemptRow) of() uuid.UUID { return a.TaskUUID }
func (m manualRow) of() uuid.UUID  { return m.TaskUUID }

// readParts adds rows to the tasks that they belong to.
func readParts[T part](readers map[uuid.UUID]*taskReader, add func(*taskReader, T) error) func(pgx.Rows) error {
	return stmt.Rows(func(row *T) error {
		if r := readers[(*row).of()]; r != nil {
			return add(r, *row)
		}
		return nil
	})
}

func queueAttempts(b *pgx.Batch, read *stmt.Statement, ids []uuid.UUID, of parts, readers map[uuid.UUID]*taskReader) {
	read.With(args{"tasks": ids, "results": of.results}).Queue(b).Query(readParts(readers, (*taskReader).addAttempt))
}

func (r *taskReader) addBoard(b boardRow) (err error) {
	if b.StepNo != nil {
		r.board[*b.StepNo] = b
	}
	t := r.task
	if b.TaskState == nil {
		return nil
	}
	t.State, t.Priority = *b.TaskState, *b.Priority
	if b.UpdatedAt != nil {
		t.UpdatedAt = *b.UpdatedAt
	}
	return t.decode(b.Progress)
}

func (r *taskReader) addAttempt(a attemptRow) error {
	if a.StepNo >= 0 {
		r.attempts[a.StepNo] = append(r.attempts[a.StepNo], a)
	}
	t := r.task
	if a.TaskState == nil {
		return nil
	}
	t.State, t.FinalReason = *a.TaskState, a.TaskReason
	t.CompletedAt, t.UpdatedAt = a.AppliedAt, *a.AppliedAt
	return t.decode(a.TaskProgress)
}

// decode reads the task's progress.
func (t *Task) decode(progress []byte) (err error) {
	if t.Progress, err = workflow.DecodeProgress(progress); err != nil {
		return fmt.Errorf("task %s: %w", t.UUID, err)
	}
	return nil
}

func (r *taskReader) addManual(m manualRow) error {
	switch t := r.task; {
	case m.ContinuedBy != nil:
		if len(t.ContinuedBy) < maxContinuedBy {
			t.ContinuedBy = append(t.ContinuedBy, *m.ContinuedBy)
		}
	case m.StepNo != nil:
		r.manual[*m.StepNo] = &m.Manual
	}
	return nil
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
	if s.LastAttemptAt == nil && a.EnqueuedAt != nil {
		s.CreatedAt = *a.EnqueuedAt
	}
	if a.ClaimedAt != nil {
		s.LastAttemptAt = a.ClaimedAt
	}
	s.WorkerUUID, s.Checkpoint = a.Worker, a.Checkpoint
	switch a.Outcome {
	case workflow.OutcomeSuccess:
		s.Result, s.CompletedAt = a.Result, a.AppliedAt
		s.StartedAt, s.ReportedAt, s.Manual = a.ClaimedAt, a.ReportedAt, nil
		if a.Reason != nil && *a.Reason == manualReason {
			s.Manual = manual
		}
	case workflow.OutcomeCancelled: // neither: its outcome is not known
	default:
		s.LastFailureAt, s.Error, s.Reason = a.ReportedAt, a.Error, a.Reason
		s.StartedAt, s.ReportedAt = a.ClaimedAt, a.ReportedAt
	}
}

func (s *Step) addBoard(b boardRow) {
	s.State, s.Ready = boardState(b), b.State == boardClaimable
	if s.LastAttemptAt == nil && b.EnqueuedAt != nil {
		s.CreatedAt = *b.EnqueuedAt
	}
	s.Attempts, s.Checkpoint = int(b.Attempt), b.Checkpoint
	if b.ClaimedAt != nil {
		s.LastAttemptAt, s.WorkerUUID = b.ClaimedAt, b.Worker
	}
	switch {
	case b.Wait != nil:
		s.Waiting = &Waiting{Kind: b.Wait.Kind, Event: b.Wait.Event, Key: b.Wait.Key, Prompt: b.Wait.Prompt, TaskUUID: b.Wait.TaskUUID, Until: b.DueAt}
	case b.State == boardScheduled:
		s.NextRetryAt = b.DueAt
	}
	if b.Error != nil {
		s.Error, s.StartedAt, s.ReportedAt = b.Error, b.ClaimedAt, b.ReportedAt
	}
}

func boardState(b boardRow) workflow.StepState {
	switch b.State {
	case boardScheduled:
		if b.Wait != nil && b.Begun {
			return workflow.StepInProgress
		}
		if b.Attempt > 0 {
			return workflow.StepWaitingForRetry
		}
		return workflow.StepPending
	case boardClaimable:
		return workflow.StepEnqueued
	case boardInProgress:
		return workflow.StepInProgress
	}
	if b.Outcome == workflow.OutcomeSuccess {
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
