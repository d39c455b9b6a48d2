package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// ClaimKey identifies one claim: the row of the step, the step and the fence.
type ClaimKey struct {
	TaskUUID uuid.UUID
	Slot     int `sql:"slot,smallint"` // of the board's row: 0 for the only step in hand, else step + 1
	Step     int `sql:"step_no,smallint"`
	Token    int64
}

// Report is the end of one execution.
type Report struct {
	ClaimKey
	Success    bool
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
}

// reportSteps accepts the results whose token still holds the step. The rows come sorted
// by key, so that locks are taken in one order. A hidden list hides their number from
// the planner, and a lease replaces the condition on the state: it then expects a few rows
// and stays at the primary key, where it would otherwise read all steps in progress from
// their partial index.
// Index: the primary key.
var reportSteps = compile(`
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
func (s *Store) Report(ctx context.Context, reports []Report) (accepted []bool, err error) {
	order := reportOrder(reports)
	held := make(map[int64]int, len(reports)) // steps by token; a token belongs to one claim
	err = s.call(ctx, "report", "report results", func(ctx context.Context, db *conn) error {
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
func (s *Store) report(ctx context.Context, db *conn, reports []Report, order []int, held map[int64]int) error {
	return s.transact(ctx, db, ReportSignals(), func(b *pgx.Batch) { queueReports(b, reports, order, held) })
}

func queueReports(b *pgx.Batch, reports []Report, order []int, held map[int64]int) {
	reportSteps.With(args{"r": reportRows(reports, order)}).Queue(b).Query(stmt.Rows(func(r *heldStep) error {
		held[r.Token] = r.StepNo
		return nil
	}))
	if isolated := isolatedRows(reports, order); isolated != nil {
		keepIsolated.With(args{"r": isolated}).Queue(b)
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
			rows[i].Outcome = workflow.OutcomeSuccess
		}
		if r.RetryAfter >= 0 {
			rows[i].RetryAfterMs = new(millis(r.RetryAfter))
		}
	}
	return rows
}

// handBack returns steps whose handlers have not begun, or have yielded; the execution
// that did not happen, or continues elsewhere, is not counted. Checkpoints are kept. An
// action may have moved the steps (ownSlot).
// Index: the primary key.
var handBack = compile(`
update tasker.board s
set state = {claimable}, seq = nextval('tasker.step_seq'), attempt = s.attempt - 1, token = null, worker = null, lease_until = null,
    claimed_at = null, ahead = null, enqueued_at = clock_timestamp()
from ` + stmt.HiddenList[ClaimKey]("r") + `
where s.task_uuid = any (array[r.task_uuid]) and s.slot in (r.slot, r.step_no + 1) and s.step_no = r.step_no and s.lease_until is not null and s.token = r.token
returning (select name from tasker.namespaces where namespace_id = s.queue) as namespace, s.callable, s.lane`)

// HandBack makes claims claimable again, as at shutdown. It returns the signals to
// publish; stale claims are skipped.
func (s *Store) HandBack(ctx context.Context, claims []ClaimKey) ([]signal.Signal, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	topics := signalSet{}
	call := handBack.With(args{"r": inLockOrder(claims)})
	err := s.call(ctx, "hand_back", "hand back claims", func(ctx context.Context, db *conn) error {
		return stmt.Each(ctx, db, call, topics.addNamed)
	})
	return topics.signals(), err
}

// claimsAfter are the claims of a worker with tokens above a given one. It is for a
// worker that does not know its claims, and reads all claims of the fleet.
// Index: board_lease.
var claimsAfter = compile(`
select task_uuid, slot, step_no, token from tasker.board
where state = {in_progress} and lease_until > (select clock_timestamp()) and worker = @worker and token > @after`)

// ClaimsAfter lists the claims of a worker whose tokens are greater than after
// and whose leases have not ended.
func (s *Store) ClaimsAfter(ctx context.Context, worker uuid.UUID, after int64) ([]ClaimKey, error) {
	return readAll[ClaimKey](ctx, s, "claims_after", "look for claims of the worker", claimsAfter.With(args{"worker": worker, "after": after}))
}

// releaseLeases ends the leases of running steps at once: the sweep treats
// them as lost and the next attempt begins without waiting for the lease.
var releaseLeases = compile(`
update tasker.board s set lease_until = clock_timestamp()
from ` + stmt.HiddenList[ClaimKey]("r") + `
where s.task_uuid = any (array[r.task_uuid]) and s.slot in (r.slot, r.step_no + 1) and s.step_no = r.step_no and s.lease_until is not null and s.token = r.token`)

// ReleaseLeases ends the leases of claims whose handlers did not end in time, ahead of
// their time.
func (s *Store) ReleaseLeases(ctx context.Context, claims []ClaimKey) error {
	if len(claims) == 0 {
		return nil
	}
	call := releaseLeases.With(args{"r": inLockOrder(claims)})
	return s.call(ctx, "release", "release leases", func(ctx context.Context, db *conn) error {
		return s.transact(ctx, db, []signal.Signal{{Topic: signal.TopicDue}}, func(b *pgx.Batch) {
			call.Queue(b)
		})
	})
}

// inLockOrder returns the claims in the order in which all lock them.
func inLockOrder(claims []ClaimKey) []ClaimKey {
	return slices.SortedFunc(slices.Values(claims), compareClaims)
}
