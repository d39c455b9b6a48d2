package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/execution"
	"github.com/tasker-go/tasker/internal/rates"
	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// Ledger is the room of what happened. It is safe for concurrent use.
type Ledger struct {
	db       *pg.DB
	registry *registry.Memory
	scans    scans

	counts    *rates.Counter // of what this process records
	uncounted atomic.Bool    // there may be counts to add up
}

// New returns the room. counts is what the board counts.
func New(db *pg.DB, r *registry.Memory, counts *rates.Counter) *Ledger {
	return &Ledger{db: db, registry: r, scans: scansOfLists, counts: counts}
}

// Task is a task as shown to users, alive or ended. Its tagged fields are those of its
// request, which its row in the ledger has.
type Task struct {
	UUID                uuid.UUID          `sql:"task_uuid"`
	Plan                *registry.Plan     `sql:"-"`
	State               workflow.TaskState `sql:"-"` // stored; see execution.VisibleState
	Priority            int
	Context             json.RawMessage
	CorrelationID       uuid.UUID
	ParentCorrelationID *uuid.UUID
	Initiator           *string
	SourceSystem        *string
	Reason              *string
	FinalReason         *string `sql:"-"`
	Tags                []string
	RequestedAt         time.Time
	UpdatedAt           time.Time `sql:"-"`
	StartAt             *time.Time
	CompletedAt         *time.Time         `sql:"-"`
	Progress            *workflow.Progress `sql:"-"`
	Parent              *board.ParentStep  `sql:"-"` // its step in the parent task; nil: no parent
	DependsOn           []uuid.UUID        // the tasks that had to end before it
	Steps               []Step             `sql:"-"` // every existing step, by number
	// ContinuesTask is the task whose handler has named this one as the next; nil: none.
	ContinuesTask *uuid.UUID `sql:"continues_task_uuid"`
	// ContinuedBy are the tasks that handlers of this one have named, the oldest
	// first, at most maxContinuedBy; read with results only.
	ContinuedBy []uuid.UUID `sql:"-"`
	// Batches are the steps created at run time, by number; nil: none.
	Batches map[int]board.Batch `sql:"-"`
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
	Metadata      json.RawMessage // what its handler said beside it, an object; nil: nothing
	Manual        *Manual         // the operator who set Result; nil: a handler
	Error         json.RawMessage // of the newest attempt that failed
	Reason        *string         // why it failed permanently
	Waiting       *Waiting        // nil: not waiting
	Checkpoint    json.RawMessage // of the step, or of its newest attempt; read with results only
	Said          *StepProgress   // how far its latest execution says that it is, or was; nil: nothing; read of single tasks
}

// maxContinuedBy bounds the next tasks shown.
const maxContinuedBy = 100

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
func (t *Task) Counts() execution.Counts {
	c := execution.Counts{Total: len(t.Steps)}
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
var (
	readTaskRow = pg.Compile(`
select task_uuid, plan_id, priority, case when @context then context end as context, coalesce(correlation_id, task_uuid) as correlation_id, parent_correlation_id,
       initiator, source_system, reason, tags, requested_at, start_at, parent_task_uuid, parent_step_no, depth, depends_on,
       continues_task_uuid
from tasker.tasks where task_uuid = any (@tasks)`)
	readBoard = pg.Compile(`
select task_uuid, task_state, updated_at, priority, progress,
       step_no, state, attempt, outcome, enqueued_at, claimed_at, reported_at, due_at, worker, ` + briefly("error") + `, case when @results then checkpoint end as checkpoint,
       case when state = {scheduled} then wait end as wait, token is not null as begun
from tasker.board where task_uuid = any (@tasks)`)
	// readAttempts excludes batches; with several tasks it reads some needlessly.
	readAttempts = pg.Compile(`
select ` + attemptFields + `
from tasker.step_attempts a where a.task_uuid = any (@tasks)
  and a.step_no < (select max(p.steps) from (
                       select distinct t.plan_id from unnest(@tasks::uuid[]) k(id)
                       cross join lateral (select plan_id from tasker.tasks where task_uuid = k.id limit 1) t) d -- one partition for each
                   cross join lateral (select cardinality(steps) as steps from tasker.plans where plan_id = any (array[d.plan_id]) limit 1) p)
order by a.task_uuid, a.step_no, a.token`)
	// readBatchAttempts are those of the present batches, without those of former batches
	// with their numbers, of which there may be many more.
	readBatchAttempts = pg.Compile(`
select ` + attemptFields + `
from tasker.batches d cross join lateral (
    select * from tasker.step_attempts where task_uuid = d.task_uuid and step_no = d.step_no and token > d.since) a
where d.task_uuid = any (@tasks) order by a.task_uuid, a.step_no, a.token`)
	readManual = pg.Compile(`
select task_uuid, (metadata->>'step')::int as step_no, actor, coalesce(reason, '') as reason, metadata->'metadata' as metadata,
       (metadata->>'continued_by')::uuid as continued_by
from tasker.task_events where task_uuid = any (@tasks) and (metadata->>'action' = '` + workflow.ActionComplete + `' or metadata ? 'continued_by')
order by task_uuid, at, seq`)
)

var attemptFields = `a.task_uuid, a.task_state, a.task_reason, a.task_progress,
       a.step_no, a.attempt, a.outcome, a.enqueued_at, a.claimed_at, a.reported_at, a.applied_at, a.worker, case when @results then a.result end as result, ` + briefly("a.error") + `, a.reason,
       case when @results then a.checkpoint end as checkpoint`

// briefly is a failure, or with @brief only its type and the beginning of its message: a failure may
// have 64 KiB, and a task thousands of them.
func briefly(failure string) string {
	return `case when @brief::boolean and ` + failure + ` is not null then jsonb_build_object('error_type', ` + failure + `->'error_type', 'message', left(` + failure + `->>'message', 500)) else ` +
		failure + ` end as error`
}

// parts are the optional parts of a task; each may be large.
type parts struct {
	context bool
	results bool // and checkpoints
	links   bool // steps completed by hand, the next tasks, and how far steps are
	brief   bool // of failures only the type and the beginning of the message
}

// Task reads one task with its steps and results, or ErrNotFound.
func (s *Ledger) Task(ctx context.Context, id uuid.UUID) (*Task, error) {
	return s.readTask(ctx, id, parts{context: true, results: true, links: true})
}

// TaskWithoutResults is Task without the results and checkpoints of the steps, which may
// be many times as large as the rest.
func (s *Ledger) TaskWithoutResults(ctx context.Context, id uuid.UUID) (*Task, error) {
	return s.readTask(ctx, id, parts{context: true, links: true})
}

func (s *Ledger) readTask(ctx context.Context, id uuid.UUID, of parts) (*Task, error) {
	tasks, err := s.readTasks(ctx, []uuid.UUID{id}, of)
	if err != nil {
		return nil, err
	}
	if len(tasks) == 0 {
		return nil, fmt.Errorf("read the task: %w", pg.ErrNotFound)
	}
	return tasks[0], nil
}

// readTasks reads tasks in no particular order, with the requested parts.
func (s *Ledger) readTasks(ctx context.Context, ids []uuid.UUID, of parts) ([]*Task, error) {
	var tasks []*Task
	err := s.db.Repeatable(ctx, "read_task", "read the task", func(ctx context.Context, db *pg.Conn) error {
		tasks = nil
		byID := make(map[uuid.UUID]*taskReader, len(ids))
		tx, err := s.db.Begin(ctx, db, pg.ReadOnlySnapshot)
		if err != nil {
			return err
		}
		defer s.db.Rollback(tx) // read only: nothing to commit
		var plans []int32
		b := &pgx.Batch{}
		readTaskRow.With(pg.Args{"tasks": ids, "context": of.context}).Queue(b).Query(stmt.Rows(func(r *taskRow) {
			byID[r.UUID] = newTaskReader(r)
			tasks, plans = append(tasks, byID[r.UUID].task), append(plans, r.PlanID)
		}))
		readBoard.With(pg.Args{"tasks": ids, "results": of.results, "brief": of.brief}).Queue(b).Query(readParts(byID, (*taskReader).addBoard))
		queueAttempts(b, readAttempts, ids, of, byID)
		if of.links {
			readManual.With(pg.Args{"tasks": ids}).Queue(b).Query(readParts(byID, (*taskReader).addManual))
			readProgress.With(pg.Args{"tasks": ids}).Queue(b).Query(readParts(byID, (*taskReader).addProgress))
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		read, err := s.registry.PlansOn(ctx, db, plans)
		if err != nil {
			return err
		}
		for i, t := range tasks {
			if t.Plan, err = read.Of(plans[i]); err != nil {
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

// Index: the primary keys. A reopened task has no end.
var taskEnds = pg.Compile(`select task_uuid, task_state from tasker.step_attempts where task_uuid = any (@tasks) and task_state is not null`)

// TaskEnds returns the state of those of the tasks that have ended.
func (s *Ledger) TaskEnds(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]workflow.TaskState, error) {
	type row struct {
		TaskUUID  uuid.UUID
		TaskState workflow.TaskState
	}
	return pg.ReadMap(ctx, s.db, "task_ends", "look for ended tasks", taskEnds.With(pg.Args{"tasks": ids}),
		func(r *row) (uuid.UUID, workflow.TaskState) { return r.TaskUUID, r.TaskState })
}

var stepResults = pg.Compile(`
select step_no, result from tasker.step_attempts
where task_uuid = @task and step_no = any (@steps) and outcome = {success} order by token`)

// StepResults reads the results of completed steps by number: those that a handler reads
// beyond its direct parents.
func (s *Ledger) StepResults(ctx context.Context, task uuid.UUID, steps []int) (map[int]json.RawMessage, error) {
	type row struct {
		StepNo int
		Result json.RawMessage
	}
	return pg.ReadMap(ctx, s.db, "step_results", "read results", stepResults.With(pg.Args{"task": task, "steps": steps}),
		func(r *row) (int, json.RawMessage) { return r.StepNo, r.Result })
}

var contextBytes = pg.Compile(`select coalesce(sum(octet_length(context::text)), 0)::bigint from tasker.tasks where task_uuid = any (@tasks)`)

// ContextBytes is how long the contexts of tasks are together.
func (s *Ledger) ContextBytes(ctx context.Context, ids []uuid.UUID) (int64, error) {
	return pg.ReadOne[int64](ctx, s.db, "context_bytes", "measure contexts", contextBytes.With(pg.Args{"tasks": ids}))
}

// Contexts reads the contexts of tasks, without those that the database cannot read.
func (s *Ledger) Contexts(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]json.RawMessage, error) {
	contexts := make(map[uuid.UUID]json.RawMessage, len(ids))
	_, err := s.apart("contexts", ids, func(part []uuid.UUID) error {
		some, err := pg.ReadMap(ctx, s.db, "contexts", "read contexts", board.ReadContexts.With(pg.Args{"tasks": part}),
			func(t *board.TaskContext) (uuid.UUID, json.RawMessage) { return t.TaskUUID, t.Context })
		maps.Copy(contexts, some)
		return err
	})
	return contexts, err
}

// readableTasks reads the tasks of a list, and returns those that the database cannot read beside
// them.
func (s *Ledger) readableTasks(ctx context.Context, ids []uuid.UUID) (tasks []*Task, unreadable []uuid.UUID, err error) {
	unreadable, err = s.apart("read_task", ids, func(part []uuid.UUID) error {
		some, err := s.readTasks(ctx, part, parts{})
		if err == nil {
			tasks = append(tasks, some...)
		}
		return err
	})
	return tasks, unreadable, err
}

// apart reads tasks. Those that the database rejects do not affect the others.
func (s *Ledger) apart(flow string, ids []uuid.UUID, read func(part []uuid.UUID) error) (unreadable []uuid.UUID, err error) {
	return pg.LeftOut(s.db, flow, ids, read, uuid.UUID.String)
}

// Waiting is what a step waits for.
type Waiting struct {
	Kind     string // of the step, or "tasks": those that its task depends on
	Event    string
	Key      string
	Prompt   string
	TaskUUID *uuid.UUID // the sub-workflow's task
	Until    *time.Time // nil: without limit
}
