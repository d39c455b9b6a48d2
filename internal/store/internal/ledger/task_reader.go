package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// taskReader assembles the parts of a task.
type taskReader struct {
	task     *Task
	board    map[int]boardRow
	attempts map[int][]attemptRow
	manual   map[int]*Manual // the latest of each step
	said     map[int]*StepProgress
}

// taskRow is a task's row in the ledger.
type taskRow struct {
	Task
	PlanID              int32
	ParentTaskUUID      *uuid.UUID
	ParentStepNo, Depth *int
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
	Wait                  *board.Wait // nil: not waiting
	Begun                 bool        // the attempt has begun
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
	t := r.Task
	t.UpdatedAt = r.RequestedAt
	if r.ParentTaskUUID != nil && r.ParentStepNo != nil && r.Depth != nil {
		t.Parent = &board.ParentStep{Task: *r.ParentTaskUUID, Step: *r.ParentStepNo, Depth: *r.Depth}
	}
	return &taskReader{task: &t, board: map[int]boardRow{}, attempts: map[int][]attemptRow{}, manual: map[int]*Manual{}}
}

// part is a row that belongs to a task.
type part interface{ of() uuid.UUID }

func (b boardRow) of() uuid.UUID { return b.TaskUUID }

func (a attemptRow) of() uuid.UUID { return a.TaskUUID }

func (m manualRow) of() uuid.UUID { return m.TaskUUID }

// readParts adds rows to the tasks that they belong to.
func readParts[T part](readers map[uuid.UUID]*taskReader, add func(*taskReader, T) error) func(pgx.Rows) error {
	return stmt.Checked(func(row *T) error {
		if r := readers[(*row).of()]; r != nil {
			return add(r, *row)
		}
		return nil
	})
}

func queueAttempts(b *pgx.Batch, read *stmt.Statement, ids []uuid.UUID, of parts, readers map[uuid.UUID]*taskReader) {
	read.With(pg.Args{"tasks": ids, "results": of.results, "brief": of.brief}).Queue(b).Query(readParts(readers, (*taskReader).addAttempt))
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
		return fmt.Errorf("task %s: %w", t.UUID, pg.OfNewer(err))
	}
	return nil
}

func (r *taskReader) addProgress(p progressRow) error {
	if r.said == nil {
		r.said = map[int]*StepProgress{}
	}
	p.StepProgress.At = p.At
	r.said[p.Step] = &p.StepProgress
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
	t.Steps = make([]Step, 0, len(t.Progress.Steps))
	for no, p := range t.Progress.Steps {
		step := t.Plan.Step(t.Progress, no)
		if p.Status == workflow.StatusNotCreated || step == nil {
			continue
		}
		s := Step{No: no, UUID: board.BatchUUID(t.UUID, no, t.Batches[no].Run), Name: t.StepName(no), State: EndedState(p.Status),
			Attempts: int(p.Attempts), Crashes: int(p.Crashes), CreatedAt: t.RequestedAt}
		s.Parents, s.ParentsDone = parentCounts(t.Plan.Plan, t.Progress, no)
		for _, a := range r.attempts[no] {
			s.addAttempt(a, r.manual[no])
		}
		if b, on := r.board[no]; on {
			s.addBoard(b)
		} else if s.State == workflow.StepPending {
			s.Checkpoint = nil // of an earlier run; this one has not begun
		}
		s.Said = r.said[no]
		t.Steps = append(t.Steps, s)
	}
}

// parentCounts counts the parents of a step that exist, batches each by itself,
// and those of them that are satisfied.
func parentCounts(p *workflow.Plan, progress *workflow.Progress, no int) (parents, satisfied int) {
	count := func(s workflow.Status) {
		if s != workflow.StatusNotCreated {
			parents++
		}
		if s == workflow.StatusComplete || s == workflow.StatusResolved {
			satisfied++
		}
	}
	for _, parent := range p.Step(progress, no).Parents {
		count(progress.Steps[parent].Status)
		for _, g := range progress.Groups {
			if g.Template == parent {
				for _, s := range progress.Steps[g.First : g.First+g.Count] {
					count(s.Status)
				}
				break
			}
		}
	}
	return parents, satisfied
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
		s.Result, s.Metadata, s.CompletedAt = a.Result, a.Error, a.AppliedAt
		s.StartedAt, s.ReportedAt, s.Manual = a.ClaimedAt, a.ReportedAt, nil
		if a.Reason != nil && *a.Reason == board.ManualReason {
			s.Manual = manual
		}
	case workflow.OutcomeCancelled: // neither: its outcome is not known
	default:
		s.LastFailureAt, s.Error, s.Reason = a.ReportedAt, a.Error, a.Reason
		s.StartedAt, s.ReportedAt = a.ClaimedAt, a.ReportedAt
	}
}

func (s *Step) addBoard(b boardRow) {
	s.State, s.Ready = boardState(b), b.State == pg.BoardClaimable
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
	case b.State == pg.BoardScheduled:
		s.NextRetryAt = b.DueAt
	}
	if b.Error != nil && b.Outcome != workflow.OutcomeSuccess {
		s.Error, s.StartedAt, s.ReportedAt = b.Error, b.ClaimedAt, b.ReportedAt
	}
}

func boardState(b boardRow) workflow.StepState {
	switch b.State {
	case pg.BoardScheduled:
		if b.Wait != nil && b.Begun {
			return workflow.StepInProgress
		}
		if b.Attempt > 0 {
			return workflow.StepWaitingForRetry
		}
		return workflow.StepPending
	case pg.BoardClaimable:
		return workflow.StepEnqueued
	case pg.BoardInProgress:
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

// AsCreated is a task in its first moment: what Task would read before any change. Its
// context is the one sent, not yet in the database's form.
func AsCreated(t *board.NewTask, requestedAt time.Time) *Task {
	task := &Task{
		UUID: t.UUID, Plan: t.Plan, State: workflow.TaskPending, Priority: t.Priority, Context: t.Context,
		CorrelationID: t.CorrelationID, ParentCorrelationID: t.ParentCorrelationID,
		Initiator: pg.Text(t.Initiator), SourceSystem: pg.Text(t.SourceSystem), Reason: pg.Text(t.Reason), Tags: t.Tags,
		RequestedAt: requestedAt, UpdatedAt: requestedAt, Progress: t.Start().Progress, DependsOn: t.DependsOn,
	}
	startIn := t.StartsIn(requestedAt)
	due := requestedAt.Add(startIn)
	if startIn > 0 {
		task.StartAt = &due
	}
	r := taskReader{task: task, board: map[int]boardRow{}}
	for _, p := range t.Start().Put {
		if len(t.DependsOn) > 0 {
			r.board[p.Step] = boardRow{State: pg.BoardScheduled, Wait: &board.Wait{Kind: board.WaitForTasks}}
		} else if startIn > 0 {
			r.board[p.Step] = boardRow{State: pg.BoardScheduled, DueAt: &due}
		} else {
			r.board[p.Step] = boardRow{State: pg.BoardClaimable, EnqueuedAt: &requestedAt}
		}
	}
	r.build()
	return task
}

// countIsolated is the number of items that the newest attempt a of the batch d
// has isolated.
const countIsolated = `case when a.outcome = {success} and (d.isolated ->> 'token')::bigint = a.token then jsonb_array_length(d.isolated -> 'items') else 0 end`

// readBatches names the steps of tasks that were created at run time.
// Index: the primary key.
var readBatches = pg.Compile(`
select d.task_uuid, d.step_no, d.template_no as template, d.name, d.cursor - 'items' as cursor, d.no_op, d.run, d.since, case when d.isolated is null then 0 else (
    select ` + countIsolated + ` from tasker.step_attempts a where a.task_uuid = d.task_uuid and a.step_no = d.step_no order by a.token desc limit 1) end as isolated
from tasker.batches d where d.task_uuid = any (@tasks)`)

// batchesOf reads the steps created at run time for tasks that have some, and their
// attempts.
func batchesOf(ctx context.Context, tx pgx.Tx, tasks []*Task, readers map[uuid.UUID]*taskReader, of parts) error {
	byID := map[uuid.UUID]*Task{}
	var ids []uuid.UUID
	for _, t := range tasks {
		if t.Progress != nil && len(t.Progress.Groups) > 0 {
			t.Batches = map[int]board.Batch{}
			byID[t.UUID], ids = t, append(ids, t.UUID)
			// Attempts that were read with other tasks include former batches.
			maps.DeleteFunc(readers[t.UUID].attempts, func(no int, _ []attemptRow) bool { return no >= len(t.Plan.Steps) })
		}
	}
	if ids == nil {
		return nil
	}
	b := &pgx.Batch{}
	type row struct {
		TaskUUID uuid.UUID
		StepNo   int
		board.Batch
	}
	readBatches.With(pg.Args{"tasks": ids}).Queue(b).Query(stmt.Rows(func(r *row) {
		byID[r.TaskUUID].Batches[r.StepNo] = r.Batch
	}))
	queueAttempts(b, readBatchAttempts, ids, of, readers)
	return tx.SendBatch(ctx, b).Close()
}

// batchableResult is the result of a batchable step without the list of all batches.
// Index: the primary key.
var batchableResult = pg.Compile(`
select result #- '{` + workflow.BatchOutcomeKey + `,cursor_configs}' from tasker.step_attempts
where task_uuid = @task and step_no = @step and outcome = {success} and jsonb_typeof(result) = 'object' order by token desc limit 1`)

// BatchableResult reads the result of the step that created batches, without the list of
// them; nil without one.
func (s *Ledger) BatchableResult(ctx context.Context, task uuid.UUID, step int) (json.RawMessage, error) {
	result, err := pg.ReadOne[json.RawMessage](ctx, s.db, "batchable_result", "read the result of the step that made batches",
		batchableResult.With(pg.Args{"task": task, "step": step}))
	if errors.Is(err, pg.ErrNotFound) {
		return nil, nil
	}
	return result, err
}

// BatchResult is the result of one batch.
type BatchResult struct {
	Step   int `sql:"step_no"`
	Name   string
	Cursor workflow.CursorConfig
	NoOp   bool
	Result json.RawMessage // nil: it has none
	// Isolated counts the items that its handler could not process.
	Isolated int
}

// readBatchResults reads the latest group of a batch worker, in the order in which the
// batches were created.
// Index: the primary keys.
var readBatchResults = pg.Compile(`
select d.step_no, d.name, d.cursor - 'items' as cursor, d.no_op, a.result, ` + countIsolated + ` as isolated
from tasker.batches d
left join lateral (select result, token, outcome from tasker.step_attempts where task_uuid = d.task_uuid and step_no = d.step_no and outcome = {success}
                   and token > d.since order by token desc limit 1) a on true
where d.task_uuid = @task and d.template_no = @template and d.step_no > @after
  and d.first_no = (select max(first_no) from tasker.batches where task_uuid = @task and template_no = @template)
order by d.step_no limit @limit`)

// BatchResults reads the results of the batches of one worker step of a task, at most
// limit, after a step's number; negative: from the first.
func (s *Ledger) BatchResults(ctx context.Context, task uuid.UUID, template, after, limit int) ([]BatchResult, error) {
	return pg.ReadAll[BatchResult](ctx, s.db, "batch_results", "read the results of batches",
		readBatchResults.With(pg.Args{"task": task, "template": template, "after": after, "limit": limit}))
}
