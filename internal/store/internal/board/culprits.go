package board

import (
	"context"
	"encoding/json"
	"errors"
	"math"

	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
)

// Waiting is a step that a claim may take.
type Waiting struct {
	RowKey
	Namespace string
	Callable  string
}

// waitingSteps are the first steps that a claim of a worker may take: those in the lines of its
// callables, and those in the lines of keys.
// Index: board_claimable, limit_keys_turns, the primary keys.
var waitingSteps = pg.Compile(`
select s.task_uuid, s.slot, c.callable, n.name as namespace
from (
    select s.task_uuid, s.slot, c as callable
    from unnest(@callables::int[]) c cross join lateral (
        select task_uuid, slot ` + claimableHere + ` and callable = c order by lane, seq limit @limit) s
    union all
    select s.task_uuid, s.slot, k.callable_id
    from (select line, callable_id from tasker.limit_keys where callable_id = any (@callables::int[]) and waiting
          order by from_turn, line limit @limit) k
    cross join lateral (select task_uuid, slot ` + claimableHere + ` and callable = -k.line order by lane, seq limit @limit) s
    limit @limit
) s
cross join lateral (select callable, namespace_id from tasker.callables where callable_id = s.callable limit 1) c
cross join lateral (select name from tasker.namespaces where namespace_id = c.namespace_id limit 1) n`)

// tryClaims makes claims of rows, as a claim does. The transaction is rolled back.
// Index: the primary key.
var tryClaims = pg.Compile(`
with picked as materialized (
    select b.at
    from ` + stmt.OrderedHiddenList[RowKey]("k") + `
    cross join lateral (select ctid as at, state from tasker.board where task_uuid = k.task_uuid and slot = k.slot offset 0) b
    where b.state = {claimable}
    order by k.at
)` + claimPicked + `, rest as (
    select 0 as rest
)` + claimedRows + fromBoard)

// maxTried is how many steps a search for culprits tries.
const maxTried = 500

// RejectedClaims finds the steps for which the database rejects claims of a worker, for the reason
// why: it tries the first 500 that such a claim may take, in transactions that are rolled back, and
// calls alone for each that is rejected. The error is why if it finds none.
func (s *Board) RejectedClaims(ctx context.Context, req ClaimRequest, why error, alone func(step Waiting, why error)) error {
	args := pg.Args{"callables": req.Callables, "losses": math.MaxInt16, "tags": pg.NonNil(req.Tags), "except": pg.NonNil(req.Except), "limit": maxTried}
	steps, err := pg.ReadAll[Waiting](ctx, s.db, "waiting_steps", "list the steps that wait", waitingSteps.With(args))
	if err != nil {
		return err
	}
	if err := s.tryClaims(ctx, req, steps); !pg.Rejected(err) {
		if err == nil {
			err = why // of another step, or it was handled
		}
		return err
	}
	return aside.Halves(steps, why, pg.Rejected, func(part []Waiting) error { return s.tryClaims(ctx, req, part) }, alone)
}

func (s *Board) tryClaims(ctx context.Context, req ClaimRequest, steps []Waiting) error {
	keys := pg.Column(steps, func(w *Waiting) RowKey { return w.RowKey })
	call := tryClaims.With(pg.Args{"worker": req.Worker, "lease_ms": req.Lease.Milliseconds(), "k": keys})
	err := s.db.Call(ctx, "try_claims", "try claims", func(ctx context.Context, db *pg.Conn) error {
		return s.db.InTx(ctx, db, func(tx pg.Tx) error {
			if err := stmt.Each(ctx, tx, call, func(*claimedRow) {}); err != nil {
				return err
			}
			if err := stmt.Each(ctx, tx, FetchInputs.With(inClaimsOf(keys)), func(*ClaimInputs) {}); err != nil {
				return err
			}
			return errTried
		})
	})
	if errors.Is(err, errTried) {
		return nil
	}
	return err
}

// errTried rolls back a transaction that has shown what it was for.
var errTried = errors.New("tried")

// failWaiting ends a step that waits as one whose execution failed for good.
// Index: the primary key.
var failWaiting = pg.Compile(`
update tasker.board
set state = {reported}, seq = nextval('tasker.step_seq'), token = nextval('tasker.claim_token'), reported_at = clock_timestamp(),
    claimed_at = clock_timestamp(), attempt = attempt + 1, outcome = {failed}, error = @error::jsonb, retryable = false
where task_uuid = any (array[@task::uuid]) and slot = @slot::smallint and state = {claimable}`)

// FailWaiting ends a step that waits, and cannot be claimed, with an error, as if its execution
// had failed for good. A step that does not wait any more is left unchanged.
func (s *Board) FailWaiting(ctx context.Context, step RowKey, failure json.RawMessage) ([]signal.Signal, error) {
	return ReportSignals(), s.db.Call(ctx, "fail_waiting", "end a step that cannot be claimed", func(ctx context.Context, db *pg.Conn) error {
		_, err := pg.Run(ctx, db, failWaiting.With(pg.Args{"task": [16]byte(step.TaskUUID), "slot": step.Slot, "error": failure}))
		return err
	})
}
