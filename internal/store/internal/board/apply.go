package board

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// TakenStep is a reported step of a taken task. The result of an ordinary step stays in
// the database: the rules do not read it.
type TakenStep struct {
	Step       int
	Attempt    int
	Outcome    workflow.AttemptOutcome // success, failed or lease_lost
	Retryable  bool
	RetryAfter time.Duration // negative: none requested
	// Result is that of a step which creates others (workflow.StepKind.Unfolds).
	Result json.RawMessage
	// Events are the step's domain events as made by the worker.
	Events MadeEvents
}

// TakenTask is a live task, locked until the transaction ends.
type TakenTask struct {
	UUID     uuid.UUID
	Plan     *registry.Plan
	State    workflow.TaskState
	Priority int
	Watched  bool
	Awaited  bool // another task waits for its end
	// DeadLetter says that an investigation of the task is open.
	DeadLetter bool
	Inline     bool // its only step stands in the task's own row
	Progress   *workflow.Progress
	Trace      []byte // see NewTask.Trace; nil unless Options.Traces
	Reported   []TakenStep
	Context    json.RawMessage // if requested, see Taking
	Batch      int             // the number of the requested step created at run time; 0: none
	BatchName  string          // its name
	// Broken says why the records of the task cannot be read; then Plan or Progress is
	// missing, and the task can only be quarantined.
	Broken error
	// Unreadable says why this program cannot read the task's plan or progress, while a newer
	// one may: the task is left unchanged.
	Unreadable error

	lanes lanes // of the steps that are put in line
}

// Change is the decision about a taken task.
type Change struct {
	Task     *TakenTask
	Progress *workflow.Progress
	Effects  *workflow.Effects
	Actor    string // recorded with the task's transitions
	// Action is an operator's or a sweep's action; nil: reports were applied.
	Action *Performed
	// Quarantine removes everything of the task from the board, regardless of its
	// progress.
	Quarantine bool
}

// Taken is an open transaction that holds tasks. It must end with Commit or
// Release; it is not safe for concurrent use.
type Taken struct {
	Tasks []TakenTask
	// Skipped counts tasks with reported steps that another transaction has locked; it
	// may have read before the last report, or not apply reports, so the caller must look
	// again soon.
	Skipped int
	// Waited is the age of the oldest report; full scans only.
	Waited time.Duration

	store           *Board
	reportedResults map[StepKey]json.RawMessage // results reported in the same transaction; nil: reported by other transactions
	from            reportMarks                 // where the scans began; zero: full scans, or none
	oldest          []int64                     // of each task, the sequence number of the first step reported
	// conn carries a transaction that begins and commits inside batches: one round trip
	// to take, one to commit.
	conn *pg.Conn
}

// take_reported gives no traces, and older daemons call it too: where this daemon makes
// spans they are read beside it.
var (
	takeReported = pg.Compile(`select *, null::bytea as trace from tasker.take_reported(@lone, @apart, @limit)`)
	takeTraced   = pg.Compile(`
select t.task_uuid, t.plan_id, t.queue, t.task_state, t.priority, t.watched, t.dead_letter, t.awaited, t.inline, t.progress, t.step_no, t.seq,
       t.attempt, t.outcome, t.retryable, t.retry_after_ms, t.skipped, b.trace
from tasker.take_reported(@lone, @apart, @limit) with ordinality as t
left join lateral (select trace from tasker.board where task_uuid = any (array[t.task_uuid]) and slot = 0 limit 1) b on true
order by t.ordinality`)
)

// TakeReported takes the tasks of up to limit reported steps, and of as many again of
// tasks with several live steps. full ignores the marks and scans from the beginning.
// A result without tasks is already closed.
func (s *Board) TakeReported(ctx context.Context, limit int, full bool) (*Taken, error) {
	taken := &Taken{store: s}
	from := s.marks.reported()
	if full {
		first, waited, err := s.firstReported(ctx)
		if err != nil || first == (reportMarks{}) {
			return taken, err
		}
		from, taken.Waited = first, waited
	} else {
		taken.from = from
	}
	take := takeReported
	if s.db.Opts.Traces {
		take = takeTraced
	}
	err := s.db.Timed(ctx, "take", "take reported steps", func(ctx context.Context) error {
		return taken.begin(ctx, nothing, take.With(pg.Args{"lone": from.lone, "apart": from.apart, "limit": limit}), nothing)
	})
	if full && err == nil {
		s.marks.applied(taken.from, taken.cutOff(limit), true)
	}
	if err != nil || len(taken.Tasks) == 0 {
		taken.Release()
	}
	return taken, err
}

// firstReported checks for reports first, since most polls find none: an idle poll is one
// statement instead of a transaction. It returns where the scan may begin, zero without
// reports, and how long the oldest report has waited.
func (s *Board) firstReported(ctx context.Context) (first reportMarks, waited time.Duration, err error) {
	err = s.db.Repeatable(ctx, "any_reported", "look for reported steps", func(ctx context.Context, db *pg.Conn) error {
		begin, from := time.Now(), reportMarks{}
		var found waitingReports
		if err := s.db.ScanAll(ctx, db, func(b *pgx.Batch) {
			from = s.reportedFrom()
			firstReported.With(pg.Args{"lone": from.lone, "apart": from.apart}).Queue(b).Query(stmt.Row(&found))
		}); err != nil {
			return err
		}
		_ = s.moveReported(ctx, db, time.Since(begin)) // the result is valid regardless of an error
		first, waited = reportMarks{found.Lone, found.Apart}, found.Waited
		if first != (reportMarks{}) {
			first.lone, first.apart = max(first.lone, from.lone), max(first.apart, from.apart)
		}
		return nil
	})
	return first, waited, err
}

// begin begins the transaction and takes the tasks, with statements before and after the one
// that takes them.
func (t *Taken) begin(ctx context.Context, before func(*pgx.Batch), take stmt.Call, behind func(*pgx.Batch)) error {
	var err error
	if t.conn, err = t.store.db.Acquire(ctx); err != nil {
		return err
	}
	var plans []int32
	b := &pgx.Batch{}
	b.Queue("begin")
	b.Queue(t.store.db.Hold)
	before(b)
	take.Queue(b).Query(stmt.Rows(func(r *takenRow) {
		if t.add(r) {
			plans = append(plans, r.PlanID)
		}
	}))
	behind(b)
	if err := t.conn.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	// Only now: the cache may have to query the database.
	read, err := t.store.registry.PlansOn(ctx, t.conn, plans)
	if err != nil {
		return err
	}
	for i, id := range plans {
		task := &t.Tasks[i]
		if task.Plan, err = read.Of(id); errors.Is(err, pg.ErrNotFound) {
			task.Broken = fmt.Errorf("plan %d: %w", id, err)
		} else if err != nil {
			task.Unreadable = err
		}
	}
	return t.readRest(ctx)
}

// add adds one row and reports whether it starts a new task.
func (t *Taken) add(r *takenRow) (first bool) {
	if r.TaskUUID == uuid.Nil {
		t.Skipped = r.Skipped
		return false
	}
	n := len(t.Tasks)
	if first = n == 0 || t.Tasks[n-1].UUID != r.TaskUUID; first {
		t.Tasks = append(t.Tasks, r.task())
	}
	if r.StepNo != nil {
		at := len(t.Tasks) - 1
		if len(t.oldest) <= at {
			t.oldest = append(t.oldest, r.Seq)
		}
		t.oldest[at] = min(t.oldest[at], r.Seq)
		t.Tasks[at].Reported = append(t.Tasks[at].Reported, r.taken())
	}
	return first
}

// reached returns how far the scans came: each task was found by its oldest step. Younger
// steps come along with their task while older ones of other tasks still wait. 0: a scan
// found nothing.
func (t *Taken) reached() (r reportMarks) {
	for i, seq := range t.oldest {
		if t.Tasks[i].Inline {
			r.lone = max(r.lone, seq)
		} else {
			r.apart = max(r.apart, seq)
		}
	}
	return r
}

// cutOff is reached for the kinds of which the limit cut off reports.
func (t *Taken) cutOff(limit int) reportMarks {
	lone, apart := 0, 0
	for i := range t.Tasks {
		if n := len(t.Tasks[i].Reported); t.Tasks[i].Inline {
			lone += n
		} else {
			apart += n
		}
	}
	r := t.reached()
	if lone < limit {
		r.lone = 0
	}
	if apart < limit {
		r.apart = 0
	}
	return r
}

// takenRow is a row of take_reported; one without a task counts the skipped ones.
type takenRow struct {
	TaskUUID     uuid.UUID          `sql:",omitzero"`
	PlanID       int32              `sql:",omitzero"`
	Queue        int32              `sql:",omitzero"`
	TaskState    workflow.TaskState `sql:",omitzero"`
	Priority     int                `sql:",omitzero"`
	Watched      bool               `sql:",omitzero"`
	DeadLetter   bool               `sql:",omitzero"`
	Awaited      bool               `sql:",omitzero"`
	Inline       bool               `sql:",omitzero"`
	Progress     []byte
	Seq          int64 `sql:",omitzero"`
	reportedStep       // none: nothing was reported
	Skipped      int
	Trace        []byte
}

// reportedStep is a report that is not applied yet.
type reportedStep struct {
	StepNo       *int
	Attempt      int                     `sql:",omitzero"`
	Outcome      workflow.AttemptOutcome `sql:",omitzero"`
	Retryable    bool                    `sql:",omitzero"`
	RetryAfterMs *int64
}

func (r *takenRow) task() TakenTask {
	t := TakenTask{UUID: r.TaskUUID, State: r.TaskState, Priority: r.Priority,
		Watched: r.Watched, Awaited: r.Awaited, DeadLetter: r.DeadLetter, Inline: r.Inline, Trace: r.Trace}
	if t.Progress, t.Broken = workflow.DecodeProgress(r.Progress); errors.Is(t.Broken, errors.ErrUnsupported) {
		t.Broken, t.Unreadable = nil, t.Broken
	}
	return t
}

func (r *reportedStep) taken() TakenStep {
	s := TakenStep{Step: *r.StepNo, Attempt: r.Attempt, Outcome: r.Outcome, Retryable: r.Retryable, RetryAfter: -1}
	if r.RetryAfterMs != nil {
		s.RetryAfter = time.Duration(*r.RetryAfterMs) * time.Millisecond
	}
	return s
}

// Release gives the tasks back unchanged; it does nothing after Commit.
func (t *Taken) Release() {
	if t.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, _ = t.conn.Exec(ctx, "rollback") // the pool closes a connection that is not idle
	t.conn.Release()
	t.conn = nil
}

// Committed is the result of a commit.
type Committed struct {
	Signals  []signal.Signal // to publish, unless the store sends them itself
	Finished int             // tasks that ended
	// NextDue is the shortest delay put on the board, negative for none.
	NextDue time.Duration
	// Published are the durable domain events, in the order of their positions.
	Published []PublishedEvent
	// Cancelled counts the attempts of each task that were cancelled, and Revoked are the
	// workers that held them, each once for each task.
	Cancelled map[uuid.UUID]int
	Revoked   []uuid.UUID
	// Claimed are the steps that the transaction put on the board and claimed for its
	// taker. Unread says that the inputs of some others could not be read.
	Claimed []Claimed
	Unread  bool
}

// Commit applies the changes together in a fixed number of statements. processor is
// recorded on the tasks, never enforced.
func (t *Taken) Commit(ctx context.Context, processor uuid.UUID, changes []Change) (Committed, error) {
	return t.CommitFor(ctx, processor, changes, nil)
}

// CommitFor is Commit that also claims for taker, up to its Limit, the new steps that it
// may run; nil: none. These claims bypass the steps that wait on the board.
func (t *Taken) CommitFor(ctx context.Context, processor uuid.UUID, changes []Change, taker *ClaimRequest) (Committed, error) {
	if t.conn == nil {
		return Committed{}, errors.New("apply changes: the tasks have already been released")
	}
	w := writes{topics: SignalSet{}, claims: putClaims{taker: taker, reportedResults: t.reportedResults}}
	for i := range changes {
		if err := w.add(&changes[i]); err != nil {
			t.Release()
			return Committed{}, fmt.Errorf("apply changes: %w", err)
		}
	}
	if t.reportedResults != nil && len(changes) < len(t.Tasks) {
		w.topics.Add(signal.TopicOrchestration) // only the reports of these are committed
	}
	if w.finished > 0 && t.store.db.Following.Results() {
		w.topics.Add(signal.TopicEvents)
	}
	done := Committed{Signals: t.store.db.WithTransitions(w.signals()), Finished: w.finished, NextDue: w.nextDue()}
	found := newClaims()
	err := t.store.db.Timed(ctx, "apply", "apply changes", func(ctx context.Context) error {
		b := &pgx.Batch{}
		if t.reportedResults != nil {
			b.Queue(fmt.Sprintf(waitForLocks, 0)) // waiting for eventTurn may take longer
		}
		w.queue(b, processor)
		w.claims.queue(b, &found)
		w.publish.queue(b, &done.Published)        // last: see eventTurn
		queueList(b, forgetBatches, "g", w.former) // after the events, which name their batches
		if len(w.calledOff) > 0 {
			done.Cancelled = map[uuid.UUID]int{}
			cancelledAttempts.With(pg.Args{"tasks": w.calledOff}).Queue(b).Query(stmt.Rows(func(r *cancelledSteps) {
				done.Cancelled[r.TaskUUID], done.Revoked = r.Steps, append(done.Revoked, r.Workers...)
			}))
		}
		return t.store.db.Commit(ctx, t.conn, b, done.Signals)
	})
	if err != nil {
		t.Release()
		return Committed{}, err
	}
	t.store.counts.Count(w.counted.attempts, w.counted.ends)
	w.claims.fill(&found)
	done.Unread = t.complete(ctx, &found) != nil
	done.Claimed = found.list
	for _, seq := range found.newest {
		t.store.db.History.Drew(seq)
	}
	t.conn.Release()
	t.conn = nil
	if len(t.oldest) > 0 {
		reached := t.reached()
		t.store.db.History.Drew(max(reached.lone, reached.apart))
		t.store.marks.applied(t.from, reached, false)
	}
	return done, nil
}
