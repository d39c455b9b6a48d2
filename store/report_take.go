package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

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
func (s *Store) ReportAndTake(ctx context.Context, reports []Report) (taken *Taken, accepted []bool, err error) {
	order := reportOrder(reports)
	held := make(map[int64]int, len(reports)) // steps by token
	tasks := make(uuids, 0, len(reports))
	for i := range reports {
		tasks = append(tasks, reports[i].TaskUUID)
	}
	slices.SortFunc(tasks, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	tasks = slices.Compact(tasks)
	taken = &Taken{store: s, reportedResults: map[stepKey]json.RawMessage{}}
	err = s.timed(ctx, "report_and_take", "report results and take their tasks", func(ctx context.Context) error {
		return taken.beginAround(ctx, func(b *pgx.Batch) {
			b.Queue(fmt.Sprintf(waitForLocks, lockPatience.Milliseconds()))
		}, func(b *pgx.Batch) {
			queueReports(b, reports, order, held)
			takenReports.With(args{"tasks": tasks}).Queue(b).Query(taken.collectReports)
		}, takeTasks.With(args{"tasks": tasks}))
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
			taken.reportedResults[stepKey{reports[i].TaskUUID, reports[i].Step}] = reports[i].Result
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
			task.Reported[j].Result = t.reportedResults[stepKey{task.UUID, task.Reported[j].Step}]
		}
	}
}

// waitForLocks is for how many ms each statement of a transaction waits for a lock.
const waitForLocks = `select set_config('lock_timeout', '%d', true)`

// claimPut claims steps that the same transaction has put on the board, in the order of the
// list. They are not visible to others yet, so none is locked.
// Index: the primary key.
var claimPut = compile(`
with picked as materialized (
    select b.at
    from ` + stmt.OrderedHiddenList[rowKey]("k") + `
    cross join lateral (select ctid as at, state, callable from tasker.board where task_uuid = k.task_uuid and slot = k.slot offset 0) b
    where b.state = {claimable} and b.callable <> all (` + pausedCallables + `)
    order by k.at
), numbered as materialized (
    select at, nextval('tasker.claim_token') as token from picked
), claimed as (
    update tasker.board s
    set ` + toClaim + `
    from numbered n where s.ctid = n.at
    returning ` + ofBoard + `
), rest as (
    select 0 as rest
)` + claimedRows + fromBoard)

// stepKey names a step of a task.
type stepKey struct {
	TaskUUID uuid.UUID
	StepNo   int `sql:",smallint"`
}

// putClaims are the steps that a commit puts on the board and claims at once, with the
// inputs that the board does not hold.
type putClaims struct {
	taker           *ClaimRequest               // nil: none
	reportedResults map[stepKey]json.RawMessage // results of steps whose reports the transaction has accepted
	rows            []rowKey
	parents         map[stepKey][]int // of each of these steps
	read            struct {          // steps with other parents, whose results are in the ledger
		rows  []rowKey
		steps []stepKey
		found map[stepKey]claimInputs
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
	p.rows = append(p.rows, rowKey{c.Task.UUID, slot})
	key, parents := stepKey{c.Task.UUID, put.Step}, c.parents(put.Step)
	if p.parents == nil {
		p.parents = map[stepKey][]int{}
	}
	if p.parents[key] = parents; p.results(key) == nil {
		p.read.rows, p.read.steps = append(p.read.rows, rowKey{c.Task.UUID, slot}), append(p.read.steps, key)
	}
	return true
}

// results are those of a step's parents, as reported in this transaction; nil if one was
// not.
func (p *putClaims) results(step stepKey) map[int]json.RawMessage {
	results := make(map[int]json.RawMessage, len(p.parents[step]))
	for _, no := range p.parents[step] {
		result, known := p.reportedResults[stepKey{step.TaskUUID, no}]
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
	claimPut.With(args{"worker": p.taker.Worker, "lease_ms": p.taker.Lease.Milliseconds(), "k": p.rows}).Queue(b).Query(stmt.Rows(found.add))
	r := &p.read
	if len(r.rows) == 0 {
		return
	}
	r.found = make(map[stepKey]claimInputs, len(r.rows))
	fetchInputs.With(args{"k": r.rows}).Queue(b).Query(stmt.Rows(func(in *claimInputs) error {
		r.found[r.steps[in.At-1]] = *in
		return nil
	}))
}

// fill gives claims the inputs reported and read in the transaction. The remaining claims
// are incomplete.
func (p *putClaims) fill(found *claims) {
	found.incomplete = slices.DeleteFunc(found.incomplete, func(at int) bool {
		c := &found.list[at]
		key := stepKey{c.TaskUUID, c.Step}
		if read, ok := p.read.found[key]; ok {
			c.Context, c.ParentResults = read.Context, read.Inputs
			return true
		}
		c.ParentResults = p.results(key)
		return c.Context != nil
	})
}

// inOwnRow reports whether the new step is the only one in hand, and moves into the
// task's row.
func (c *Change) inOwnRow() bool {
	put := c.Effects.Put
	return len(put) == 1 && inlines(c.Task.Plan, c.Progress, put[0].Step) && inHand(c.Progress) == 1
}

// complete gives claims the inputs that the board does not hold. After an error the list
// excludes claims without their inputs.
func (t *Taken) complete(ctx context.Context, found *claims) error {
	if len(found.incomplete) == 0 {
		return nil
	}
	err := t.store.timed(ctx, "claim_inputs", "read the inputs of claimed steps", func(ctx context.Context) error {
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
	return stmt.Rows(func(r *row) error {
		at := &t.Tasks[place[r.TaskUUID]]
		at.Reported = append(at.Reported, r.taken())
		return nil
	})(rows)
}
