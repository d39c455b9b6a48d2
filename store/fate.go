package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/store/internal/stmt"
)

// Fate is the outcome of a claim whose success was reported in a transaction
// (Work.Report) whose commit was not answered.
type Fate uint8

const (
	// FateOpen says that another session has locked the row of the step, perhaps that transaction,
	// which may still be committed. Retry.
	FateOpen Fate = iota + 1
	// FateReported says that it was committed.
	FateReported
	// FateHeld says that it was rolled back, and the claim still holds.
	FateHeld
	// FateLost says that it was rolled back, and the claim is over.
	FateLost
)

// The transaction in question changed the row of its step before its commit was sent, so
// it holds the row's lock until it ends. A session that gets the lock therefore knows
// that it has ended, regardless of the connection, the pooler and the backend in between;
// and it sees the version of the row that the transaction, or a later one, has left. A
// read without the lock would prove nothing: a commit under way may arrive after it.

// successReported holds for the row of a claim whose success was accepted. A task may
// have been called off before that was applied; then the step is recorded as cancelled,
// with its result.
const successReported = `(outcome = {success} or result is not null)`

// lockClaim locks the row of a claim if it is not locked.
// Index: the primary key.
var lockClaim = compile(`
select state, ` + successReported + ` as success from tasker.board
where task_uuid = any (array[@task::uuid]) and slot in (@slot::smallint, @own_slot::smallint) and step_no = @step::smallint and token = @token::bigint
for update skip locked`)

// findClaim returns whether a claim is on the board, else how it was recorded. Both are
// read with one snapshot: what leaves the board enters the ledger in the same
// transaction.
// Index: the primary keys.
var findClaim = compile(`
select exists (select from tasker.board
               where task_uuid = any (array[@task::uuid]) and slot in (@slot::smallint, @own_slot::smallint) and step_no = @step::smallint and token = @token::bigint) as waits,
       coalesce((select ` + successReported + ` from tasker.step_attempts where task_uuid = @task::uuid and step_no = @step::smallint and token = @token::bigint), false) as success`)

// Fate determines the outcome of a claim whose success was reported in a transaction with
// an unanswered commit. Every result but FateOpen is final.
func (p *WorkPool) Fate(ctx context.Context, k ClaimKey) (Fate, error) {
	var fate Fate
	err := p.store.repeatable(ctx, "fate", "find out what became of a transaction", func(ctx context.Context, db *conn) (err error) {
		fate, err = claimFate(ctx, db, k)
		return err
	})
	return fate, err
}

func claimFate(ctx context.Context, db *conn, k ClaimKey) (Fate, error) {
	type locked struct {
		State   int16
		Success *bool
	}
	type found struct {
		Waits   bool
		Success *bool
	}
	claim := args{"task": [16]byte(k.TaskUUID), "slot": k.Slot, "own_slot": k.Step + 1, "step": k.Step, "token": k.Token}
	row, err := stmt.One[locked](ctx, db, lockClaim.With(claim))
	switch {
	case err == nil && row.State == boardInProgress:
		return FateHeld, nil
	case err == nil:
		return recordedFate(row.Success), nil
	case !errors.Is(err, pgx.ErrNoRows):
		return 0, err
	}
	other, err := stmt.One[found](ctx, db, findClaim.With(claim))
	switch {
	case err != nil:
		return 0, err
	case other.Waits:
		return FateOpen, nil
	}
	return recordedFate(other.Success), nil
}

// recordedFate is the fate of a claim that is over. No other transaction could have
// reported a success for it: the end of its lease and an operator's call are recorded
// under its token as well, without a result.
func recordedFate(success *bool) Fate {
	if success != nil && *success {
		return FateReported
	}
	return FateLost
}
