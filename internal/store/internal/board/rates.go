package board

import (
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/rates"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/workflow"
)

// The statements that write the ledger return what they have recorded, so that the rates have what the
// ledger has. Creations leave a row for each of their plans in task_counts instead, in the same
// transaction: they are made over connections of clients, too, whose commits nobody here sees.

// recordedRow is what a statement of an apply has recorded: an attempt, the end of a task, or both.
type recordedRow struct {
	TaskUUID    uuid.UUID
	StepNo      int
	Outcome     workflow.AttemptOutcome
	EnqueuedAt  *time.Time
	ClaimedAt   *time.Time // nil: no attempt
	ReportedAt  *time.Time
	AppliedAt   time.Time
	EndState    *workflow.TaskState // nil: the task continues
	RequestedAt *time.Time
}

const (
	// recordedColumns are those of recordedRow that the ledger has.
	recordedColumns = `task_uuid, step_no, outcome, enqueued_at, claimed_at, reported_at, applied_at`
	// returnRecorded returns the attempts of the part `recorded`, which returns recordedColumns.
	returnRecorded = `
select ` + recordedColumns + `, null::int as end_state, null::timestamptz as requested_at from recorded where claimed_at is not null`
)

// counted gathers what a transaction records, to be counted when it is committed.
type counted struct {
	attempts []rates.Attempt
	ends     []rates.End
}

// add adds what was recorded of a task. One whose plan cannot be read is not counted, nor are steps of
// the engine.
func (c *counted) add(r *recordedRow, t *TakenTask, progress *workflow.Progress) {
	if t == nil || t.Plan == nil {
		return
	}
	if r.EndState != nil && r.RequestedAt != nil {
		c.ends = append(c.ends, rates.End{Plan: t.Plan.ID, State: *r.EndState, Requested: *r.RequestedAt, Ended: r.AppliedAt})
	}
	if r.ClaimedAt == nil {
		return
	}
	if step := stepOf(t.Plan, r.StepNo, t.Progress, progress); step != nil && !step.Kind.ByEngine() {
		c.attempts = append(c.attempts, rates.Attempt{Callable: t.Plan.CallableOf(step), Plan: t.Plan.ID, Step: step.No, Outcome: r.Outcome,
			Enqueued: orZero(r.EnqueuedAt), Claimed: *r.ClaimedAt, Reported: orZero(r.ReportedAt), Applied: r.AppliedAt})
	}
}

// stepOf is the step of the plan that a number stands for in the first progress that knows it.
func stepOf(plan *registry.Plan, no int, progresses ...*workflow.Progress) *workflow.PlanStep {
	for _, p := range progresses {
		if p == nil {
			p = &workflow.Progress{}
		}
		if step := plan.Step(p, no); step != nil {
			return step
		}
	}
	return nil
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// lostRow is an attempt that was lost and used none.
type lostRow struct {
	PlanID     *int32
	Step       int
	EnqueuedAt *time.Time
	ClaimedAt  *time.Time
	At         *time.Time // as in the ledger
}

func (c *counted) addLost(r *judgement) {
	if r.PlanID != nil && r.At != nil {
		c.attempts = append(c.attempts, rates.Attempt{Callable: r.callable, Plan: *r.PlanID, Step: r.Step, Outcome: workflow.OutcomeLeaseLost,
			Enqueued: orZero(r.EnqueuedAt), Claimed: orZero(r.ClaimedAt), Reported: *r.At, Applied: *r.At})
	}
}

// settled counts what Settle has recorded of a claim.
func (x *Settlement) settled(c *counted, at time.Time, requested *time.Time) {
	if step := stepOf(x.Plan, x.Claim.Step, x.Claim.Task.Progress, x.Progress); step != nil {
		c.attempts = append(c.attempts, rates.Attempt{Callable: x.Plan.CallableOf(step), Plan: x.Plan.ID, Step: step.No, Outcome: workflow.OutcomeSuccess,
			Enqueued: x.Claim.EnqueuedAt, Claimed: x.Claim.ClaimedAt, Reported: at, Applied: at})
	}
	if x.Effects.Finished {
		c.ends = append(c.ends, rates.End{Plan: x.Plan.ID, State: x.Effects.State, Requested: orZero(requested), Ended: at})
	}
}
