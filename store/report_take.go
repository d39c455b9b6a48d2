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
			b.Queue(takenReports, tasks).Query(taken.collectReports)
		}, takeTasks, tasks)
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

// claimPut claims steps that the same transaction has put on the board, for worker $1 and
// $2 ms, in the order of the list. They are not visible to others yet, so none is locked.
// Index: the primary key.
const claimPut = `
with picked as materialized (
    select b.at
    from unnest((select $3::uuid[]), (select $4::smallint[])) with ordinality k(task_uuid, slot, place)
    cross join lateral (select ctid as at, state, callable from tasker.board where task_uuid = k.task_uuid and slot = k.slot offset 0) b
    where b.state = 2 and b.callable <> all (` + pausedCallables + `)
    order by k.place
), numbered as materialized (
    select at, nextval('tasker.claim_token') as token from picked
), claimed as (
    update tasker.board s
    set ` + toClaim + `
    from numbered n where s.ctid = n.at
    returning ` + ofBoard + `
), rest as (
    select 0 as rest
)` + claimedRows + fromBoard

// stepKey names a step of a task.
type stepKey struct {
	task uuid.UUID
	no   int
}

// putClaims are the steps that a commit puts on the board and claims at once, with the
// inputs that the board does not hold.
type putClaims struct {
	taker           *ClaimRequest               // nil: none
	reportedResults map[stepKey]json.RawMessage // results of steps whose reports the transaction has accepted
	tasks           uuids
	slots           []int16
	parents         map[stepKey][]int // of each of these steps
	read            struct {          // steps with other parents, whose results are in the ledger
		tasks uuids
		slots []int16
		keys  []stepKey
		found map[stepKey]claimInputs
	}
}

// claimInputs are inputs that a claim from the board may lack.
type claimInputs struct {
	context json.RawMessage
	results map[int]json.RawMessage
}

// wants reports whether a new step is claimed at once, and records it.
func (p *putClaims) wants(c *Change, put workflow.PutStep, step *workflow.PlanStep) bool {
	if p.taker == nil || len(p.tasks) >= p.taker.Limit || put.DueIn > 0 || step == nil || step.Kind.ByEngine() ||
		!p.taker.runs(c.Task.Plan, step) {
		return false
	}
	slot := int16(put.Step + 1) // #nosec G115 -- at most MaxSteps
	if c.inOwnRow() {
		slot = 0
	}
	p.tasks, p.slots = append(p.tasks, c.Task.UUID), append(p.slots, slot)
	key, parents := stepKey{c.Task.UUID, put.Step}, c.parents(put.Step)
	if p.parents == nil {
		p.parents = map[stepKey][]int{}
	}
	if p.parents[key] = parents; p.results(key) == nil {
		r := &p.read
		r.tasks, r.slots, r.keys = append(r.tasks, c.Task.UUID), append(r.slots, slot), append(r.keys, key)
	}
	return true
}

// results are those of a step's parents, as reported in this transaction; nil if one was
// not.
func (p *putClaims) results(step stepKey) map[int]json.RawMessage {
	results := make(map[int]json.RawMessage, len(p.parents[step]))
	for _, no := range p.parents[step] {
		result, known := p.reportedResults[stepKey{step.task, no}]
		if !known {
			return nil
		}
		results[no] = result
	}
	return results
}

// queue adds the statements. found receives the claims.
func (p *putClaims) queue(b *pgx.Batch, found *claims) {
	if len(p.tasks) == 0 {
		return
	}
	b.Queue(claimPut, p.taker.Worker, p.taker.Lease.Milliseconds(), p.tasks, p.slots).Query(found.collect)
	r := &p.read
	if len(r.keys) == 0 {
		return
	}
	r.found = make(map[stepKey]claimInputs, len(r.keys))
	b.Queue(fetchInputs, r.tasks, r.slots).Query(func(rows pgx.Rows) error {
		return eachInput(rows, func(at int, context json.RawMessage, results map[int]json.RawMessage) {
			r.found[r.keys[at]] = claimInputs{context, results}
		})
	})
}

// fill gives claims the inputs reported and read in the transaction. The remaining claims
// are incomplete.
func (p *putClaims) fill(found *claims) {
	found.incomplete = slices.DeleteFunc(found.incomplete, func(at int) bool {
		c := &found.list[at]
		key := stepKey{c.TaskUUID, c.Step}
		if read, ok := p.read.found[key]; ok {
			c.Context, c.ParentResults = read.context, read.results
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
	place, _ := t.places()
	var id uuid.UUID
	var raw takenRow
	_, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &raw.step, &raw.attempt, &raw.outcome, &raw.retryable, &raw.retryAfter}, func() error {
		at := &t.Tasks[place[id]]
		at.Reported = append(at.Reported, raw.reported())
		return nil
	})
	return err
}
