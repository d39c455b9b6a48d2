package board

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// ClaimKey identifies one claim: the row of the step, the step and the fence.
type ClaimKey struct {
	TaskUUID uuid.UUID
	Slot     int `sql:"slot,smallint"` // of the board's row: 0 for the only live step, else step + 1
	Step     int `sql:"step_no,smallint"`
	Token    int64
}

// Report is the end of one execution.
type Report struct {
	ClaimKey
	Success bool
	// Metadata is what a handler says beside its success, an object; nil: nothing. The column
	// error of the row has it.
	Metadata   json.RawMessage
	Result     json.RawMessage // storable JSON; nil is kept as SQL null
	Error      json.RawMessage // set when Success is false
	Retryable  bool
	RetryAfter time.Duration // negative: none requested
	// Isolated are the items that a successful batch has isolated, as a list of {"item",
	// "error"}; nil: none.
	Isolated json.RawMessage
	// Events are the step's domain events (MadeEvents.Encode); nil: default payloads, or
	// no events.
	Events json.RawMessage
	// Publishes says that Events has some that the template does not declare. The row of a
	// success says so in retryable, which has no meaning for it, so that events are read
	// of those rows alone.
	Publishes bool
}

// reportSteps accepts the results whose token still holds the step. The rows come sorted
// by key, so that locks are taken in one order. A hidden list hides their number from
// the planner, and a lease replaces the condition on the state: it then expects a few rows
// and stays at the primary key, where it would otherwise read all steps in progress from
// their partial index.
// Index: the primary key.
var reportSteps = pg.Compile(`
update tasker.board s
set state = {reported}, seq = nextval('tasker.step_seq'), lease_until = null, reported_at = clock_timestamp(),
    outcome = r.outcome, result = r.result::jsonb, error = r.error::jsonb, retryable = r.retryable, retry_after_ms = r.retry_after_ms,
    events = r.events::jsonb
from ` + stmt.HiddenList[reportRow]("r") + `
where s.task_uuid = any (array[r.task_uuid]) and s.slot = r.slot and s.step_no = r.step_no and s.lease_until is not null and s.token = r.token
returning s.token, s.step_no`)

// reportRow is a report to accept.
type reportRow struct {
	ClaimKey
	Outcome      workflow.AttemptOutcome
	Result       json.RawMessage
	Error        json.RawMessage
	Retryable    bool
	RetryAfterMs *int64
	Events       json.RawMessage
}

// Report reports results, many in one statement. accepted has one entry per report, in
// order; false means that the claim is lost and nothing was changed. Of several reports
// of one claim the first counts.
func (s *Board) Report(ctx context.Context, reports []Report) (accepted []bool, err error) {
	order := reportOrder(reports)
	held := make(map[int64]int, len(reports)) // steps by token; a token belongs to one claim
	err = s.db.Call(ctx, "report", "report results", func(ctx context.Context, db *pg.Conn) error {
		clear(held) // of a rolled-back try
		if err := s.report(ctx, db, reports, order, held); err != nil {
			return err
		}
		if moved := movedReports(reports, order, held); len(moved) > 0 {
			return s.report(ctx, db, moved, reportOrder(moved), held)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return acceptedReports(reports, order, held), nil
}

// acceptedReports returns for each report whether it was accepted.
func acceptedReports(reports []Report, order []int, held map[int64]int) []bool {
	accepted := make([]bool, len(reports))
	for _, i := range order {
		step, ours := held[reports[i].Token]
		accepted[i] = ours && step == reports[i].Step
	}
	return accepted
}

// report sends one batch and records the accepted reports in held.
func (s *Board) report(ctx context.Context, db *pg.Conn, reports []Report, order []int, held map[int64]int) error {
	return s.db.Transact(ctx, db, ReportSignals(), func(b *pgx.Batch) { queueReports(b, reports, order, held) })
}

func queueReports(b *pgx.Batch, reports []Report, order []int, held map[int64]int) {
	reportSteps.With(pg.Args{"r": reportRows(reports, order)}).Queue(b).Query(stmt.Rows(func(r *heldStep) {
		held[r.Token] = r.StepNo
	}))
	if isolated := isolatedRows(reports, order); isolated != nil {
		keepIsolated.With(pg.Args{"r": isolated}).Queue(b)
	}
}

// heldStep is a step whose report was accepted.
type heldStep struct {
	Token  int64
	StepNo int
}

// movedReports are those that found no row at their claims' place: an operator's action
// may have given the steps rows of their own since.
func movedReports(reports []Report, order []int, held map[int64]int) (moved []Report) {
	for _, i := range order {
		if _, ours := held[reports[i].Token]; ours {
			continue
		}
		if key, possible := reports[i].ownSlot(); possible {
			r := reports[i]
			r.ClaimKey = key
			moved = append(moved, r)
		}
	}
	return moved
}

// reportOrder is the order of keys, with only the first report of a claim.
func reportOrder(reports []Report) []int {
	order := make([]int, 0, len(reports))
	seen := make(map[ClaimKey]bool, len(reports))
	for i := range reports {
		if k := reports[i].ClaimKey; !seen[k] {
			seen[k] = true
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return compareClaims(reports[a].ClaimKey, reports[b].ClaimKey) })
	return order
}

// compareClaims is the order of locks: the rows of tasks precede those of steps, because
// an action holds the rows of many tasks before it locks their steps.
func compareClaims(x, y ClaimKey) int {
	return cmp.Or(cmp.Compare(min(x.Slot, 1), min(y.Slot, 1)), slices.Compare(x.TaskUUID[:], y.TaskUUID[:]), cmp.Compare(x.Step, y.Step), cmp.Compare(x.Token, y.Token))
}

func reportRows(reports []Report, order []int) []reportRow {
	rows := make([]reportRow, len(order))
	for i, at := range order {
		r := &reports[at]
		rows[i] = reportRow{r.ClaimKey, workflow.OutcomeFailed, r.Result, r.Error, r.Retryable, nil, r.Events}
		if r.Success {
			rows[i].Outcome, rows[i].Retryable, rows[i].Error = workflow.OutcomeSuccess, r.Publishes, r.Metadata
		}
		if r.RetryAfter >= 0 {
			rows[i].RetryAfterMs = new(stmt.Millis(r.RetryAfter))
		}
	}
	return rows
}

// handBack returns steps whose handlers have not begun, or have yielded; the execution
// that did not happen, or continues elsewhere, is not counted. Checkpoints are kept. An
// action may have moved the steps (ownSlot).
// Index: the primary key.
var handBack = pg.Compile(`
update tasker.board s
set ` + claimableAgain + `
from ` + stmt.HiddenList[ClaimKey]("r") + `
where s.task_uuid = any (array[r.task_uuid]) and s.slot in (r.slot, r.step_no + 1) and s.step_no = r.step_no and s.lease_until is not null and s.token = r.token
returning (select name from tasker.namespaces where namespace_id = s.queue) as namespace, s.callable, s.lane`)

// HandBack makes claims claimable again, as at shutdown. It returns the signals to
// publish; stale claims are skipped.
func (s *Board) HandBack(ctx context.Context, claims []ClaimKey) ([]signal.Signal, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	topics := SignalSet{}
	err := s.inHalves("hand_back", InLockOrder(claims), func(part []ClaimKey) error {
		return s.db.Call(ctx, "hand_back", "hand back claims", func(ctx context.Context, db *pg.Conn) error {
			return stmt.Each(ctx, db, handBack.With(pg.Args{"r": part}), topics.AddNamed)
		})
	})
	return topics.Signals(), err
}

// inHalves runs a flow over claims. One that the database rejects does not affect the others: its
// lease ends.
func (s *Board) inHalves(flow string, claims []ClaimKey, run func(part []ClaimKey) error) error {
	return pg.Apart(s.db, flow, claims, run, func(k ClaimKey) string { return k.TaskUUID.String() })
}

// claimsAfter are the claims of a worker with tokens above a given one. It is for a
// worker that does not know its claims, and reads all claims of the fleet.
// Index: board_leases.
var claimsAfter = pg.Compile(`
select task_uuid, slot, step_no, token from tasker.board
where state = {in_progress} and lease_until > (select clock_timestamp()) and worker = @worker and token > @after`)

// ClaimsAfter lists the claims of a worker whose tokens are greater than after
// and whose leases have not ended.
func (s *Board) ClaimsAfter(ctx context.Context, worker uuid.UUID, after int64) ([]ClaimKey, error) {
	return pg.ReadAll[ClaimKey](ctx, s.db, "claims_after", "look for claims of the worker", claimsAfter.With(pg.Args{"worker": worker, "after": after}))
}

// releaseLeases ends the leases of running steps at once: the sweep treats
// them as lost and the next attempt begins without waiting for the lease.
var releaseLeases = pg.Compile(`
update tasker.board s set lease_until = clock_timestamp()
from ` + stmt.HiddenList[ClaimKey]("r") + `
where s.task_uuid = any (array[r.task_uuid]) and s.slot in (r.slot, r.step_no + 1) and s.step_no = r.step_no and s.lease_until is not null and s.token = r.token`)

// ReleaseLeases ends the leases of claims whose handlers did not end in time, ahead of
// their time.
func (s *Board) ReleaseLeases(ctx context.Context, claims []ClaimKey) error {
	if len(claims) == 0 {
		return nil
	}
	return s.inHalves("release", InLockOrder(claims), func(part []ClaimKey) error {
		return s.db.Call(ctx, "release", "release leases", func(ctx context.Context, db *pg.Conn) error {
			return s.db.Transact(ctx, db, []signal.Signal{{Topic: signal.TopicDue}}, func(b *pgx.Batch) {
				releaseLeases.With(pg.Args{"r": part}).Queue(b)
			})
		})
	})
}

// InLockOrder returns the claims in the order in which all lock them.
func InLockOrder(claims []ClaimKey) []ClaimKey {
	return slices.SortedFunc(slices.Values(claims), compareClaims)
}

// lockPatience bounds the wait of a transaction that reports and decides at once for the
// locked row of a task: a sibling holds it for a round trip. Waiting for a frozen holder
// is pointless, since a report needs no such lock.
const lockPatience = 100 * time.Millisecond

// ReportAndTake records the ends of executions, as Report does, and takes their tasks
// with all reported, not yet applied steps, in one round trip and one transaction, which
// Commit ends: with the decisions, and for tasks without one with the reports only.
// accepted has one entry per report, in order; those with false must be sent with Report,
// which determines the reason. So must all after an error, or after Release.
//
// The rows of tasks are locked before those of steps, as everywhere. A row that is not
// free after a tenth of a second is an error.
func (s *Board) ReportAndTake(ctx context.Context, reports []Report) (taken *Taken, accepted []bool, err error) {
	order := reportOrder(reports)
	held := make(map[int64]int, len(reports)) // steps by token
	tasks := pg.Distinct(pg.Column(reports, func(r *Report) [16]byte { return r.TaskUUID }))
	taken = &Taken{store: s, reportedResults: map[StepKey]json.RawMessage{}}
	err = s.db.Timed(ctx, "report_and_take", "report results and take their tasks", func(ctx context.Context) error {
		return taken.begin(ctx, func(b *pgx.Batch) {
			b.Queue(fmt.Sprintf(waitForLocks, lockPatience.Milliseconds()))
		}, takeTasks.With(pg.Args{"tasks": tasks}), func(b *pgx.Batch) {
			queueReports(b, reports, order, held)
			takenReports.With(pg.Args{"tasks": tasks}).Queue(b).Query(taken.collectReports)
		})
	})
	if err != nil {
		clear(held) // it was rolled back
	}
	if len(held) == 0 {
		taken.Release()
	}
	accepted = acceptedReports(reports, order, held)
	for i, ok := range accepted {
		if ok {
			taken.reportedResults[StepKey{reports[i].TaskUUID, reports[i].Step}] = reports[i].Result
		}
	}
	taken.attachResults()
	return taken, accepted, err
}

// attachResults gives the steps that create others their results, if reported in this
// transaction.
func (t *Taken) attachResults() {
	for i := range t.Tasks {
		task := &t.Tasks[i]
		for j := range task.Reported {
			task.Reported[j].Result = t.reportedResults[StepKey{task.UUID, task.Reported[j].Step}]
		}
	}
}

// waitForLocks is for how many ms each statement of a transaction waits for a lock.
const waitForLocks = `select set_config('lock_timeout', '%d', true)`

// claimPut claims steps that the same transaction has put on the board, in the order of the
// list. They are not visible to others yet, so none is locked.
// Index: the primary key.
var claimPut = pg.Compile(`
with picked as materialized (
    select b.at
    from ` + stmt.OrderedHiddenList[RowKey]("k") + `
    cross join lateral (select ctid as at, state, callable from tasker.board where task_uuid = k.task_uuid and slot = k.slot offset 0) b
    where b.state = {claimable} and b.callable <> all (` + pausedCallables + `)
    order by k.at
)` + claimPicked + `, rest as (
    select 0 as rest
)` + claimedRows + fromBoard)

// StepKey names a step of a task.
type StepKey struct {
	TaskUUID uuid.UUID
	StepNo   int `sql:",smallint"`
}

// putClaims are the steps that a commit puts on the board and claims at once, with the
// inputs that the board does not hold.
type putClaims struct {
	taker           *ClaimRequest               // nil: none
	reportedResults map[StepKey]json.RawMessage // results of steps whose reports the transaction has accepted
	rows            []RowKey
	parents         map[StepKey][]int // of each of these steps
	read            struct {          // steps with other parents, whose results are in the ledger
		rows  []RowKey
		steps []StepKey
		found map[StepKey]ClaimInputs
	}
}

// wants reports whether a new step is claimed at once, and records it.
func (p *putClaims) wants(c *Change, put workflow.PutStep, step *workflow.PlanStep) bool {
	if p.taker == nil || len(p.rows) >= p.taker.Limit || put.DueIn > 0 || step == nil || step.Kind.ByEngine() ||
		!p.taker.runs(c.Task.Plan, step) {
		return false
	}
	slot := int16(put.Step + 1) // #nosec G115 -- at most MaxSteps
	if c.inOwnRow() {
		slot = 0
	}
	p.rows = append(p.rows, RowKey{c.Task.UUID, slot})
	key, parents := StepKey{c.Task.UUID, put.Step}, c.parents(put.Step)
	if p.parents == nil {
		p.parents = map[StepKey][]int{}
	}
	if p.parents[key] = parents; p.results(key) == nil {
		p.read.rows, p.read.steps = append(p.read.rows, RowKey{c.Task.UUID, slot}), append(p.read.steps, key)
	}
	return true
}

// results are those of a step's parents, as reported in this transaction; nil if one was
// not.
func (p *putClaims) results(step StepKey) map[int]json.RawMessage {
	results := make(map[int]json.RawMessage, len(p.parents[step]))
	for _, no := range p.parents[step] {
		result, known := p.reportedResults[StepKey{step.TaskUUID, no}]
		if !known {
			return nil
		}
		results[no] = result
	}
	return results
}

// queue adds the statements. found receives the claims.
func (p *putClaims) queue(b *pgx.Batch, found *claims) {
	if len(p.rows) == 0 {
		return
	}
	claimPut.With(pg.Args{"worker": p.taker.Worker, "lease_ms": p.taker.Lease.Milliseconds(), "k": p.rows}).Queue(b).Query(stmt.Rows(found.add))
	r := &p.read
	if len(r.rows) == 0 {
		return
	}
	r.found = make(map[StepKey]ClaimInputs, len(r.rows))
	FetchInputs.With(inClaimsOf(r.rows)).Queue(b).Query(stmt.Rows(func(in *ClaimInputs) {
		r.found[r.steps[in.At-1]] = *in
	}))
}

// fill gives claims the inputs reported and read in the transaction. The remaining claims
// are incomplete.
func (p *putClaims) fill(found *claims) {
	found.incomplete = slices.DeleteFunc(found.incomplete, func(at int) bool {
		c := &found.list[at]
		key := StepKey{c.TaskUUID, c.Step}
		if read, ok := p.read.found[key]; ok {
			c.take(&read)
			return true
		}
		c.ParentResults = p.results(key)
		return c.Context != nil
	})
}

// inOwnRow reports whether the new step is the only live one, and moves into the
// task's row.
func (c *Change) inOwnRow() bool {
	put := c.Effects.Put
	return len(put) == 1 && registry.Inlines(c.Task.Plan.Plan, c.Progress, put[0].Step) && inHand(c.Progress) == 1
}

// complete gives claims the inputs that the board does not hold. After an error the list
// excludes claims without their inputs.
func (t *Taken) complete(ctx context.Context, found *claims) error {
	if len(found.incomplete) == 0 {
		return nil
	}
	err := t.store.db.Timed(ctx, "claim_inputs", "read the inputs of claimed steps", func(ctx context.Context) error {
		return found.complete(ctx, t.conn)
	})
	if err != nil {
		at := -1
		found.list = slices.DeleteFunc(found.list, func(Claimed) bool {
			at++
			return slices.Contains(found.incomplete, at)
		})
	}
	return err
}

// collectReports adds the reports to the taken tasks.
func (t *Taken) collectReports(rows pgx.Rows) error {
	type row struct {
		TaskUUID uuid.UUID
		reportedStep
	}
	place, _ := t.places()
	return stmt.Rows(func(r *row) {
		at := &t.Tasks[place[r.TaskUUID]]
		at.Reported = append(at.Reported, r.taken())
	})(rows)
}
