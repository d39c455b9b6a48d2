package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/workflow"
)

// standingToo ends a claim with what stands on the board, and where the tasks
// stand. The row of the task is read as it was when the statement began; one
// that has changed since makes a settlement miss its fence, and no more.
// Index: the primary key.
const standingToo = `
       coalesce(c.context, b.context), c.inputs, c.checkpoint - 'history', b.task_state, b.progress` + ofClaimed + `
left join lateral (
    select plan_id, context, correlation_id, parent_correlation_id, priority, requested_at, task_state, progress from tasker.board
    where task_uuid = c.task_uuid and slot = 0 limit 1) b on true
` + inClaimOrder

var claimStanding = claimsEndingWith(standingToo)

// ClaimStanding is Claim for those who settle what they run: it also tells, of
// each step that is the only one in hand, where its task stands. The second
// list goes with the first; it has nil for other steps.
func (s *Store) ClaimStanding(ctx context.Context, req ClaimRequest, full bool) (claimed []Claimed, standings []*Standing, rest Rest, err error) {
	var found standingClaims
	err = s.call(ctx, claimFlow(full), "claim steps", func(ctx context.Context, db *conn) error {
		found = standingClaims{claims: newClaims()}
		err := s.claimInto(ctx, db, req, full, &claimStanding, &found.claims, found.scan)
		if err == nil && len(found.incomplete) > 0 {
			err = found.complete(ctx, db)
		}
		return err
	})
	return found.list, found.standings, found.rest, err
}

// standingClaims are the rows of a claim with where the tasks stand.
type standingClaims struct {
	claims
	standings []*Standing
}

func (f *standingClaims) scan(row pgx.CollectableRow) (Claimed, error) {
	var state *int16
	var document []byte
	c, err := f.claims.scan(longerRow{row, []any{&state, &document}})
	if err != nil {
		return c, err
	}
	var standing *Standing
	if c.Slot == 0 && state != nil {
		progress, err := workflow.DecodeProgress(document)
		if err != nil {
			return c, fmt.Errorf("task %s: %w", c.TaskUUID, err)
		}
		standing = &Standing{State: workflow.TaskState(*state), Progress: progress}
	}
	f.standings = append(f.standings, standing)
	return c, nil
}

// longerRow has more columns than those who read it ask for.
type longerRow struct {
	pgx.CollectableRow
	more []any
}

// Scan implements pgx.CollectableRow.
func (r longerRow) Scan(dest ...any) error { return r.CollectableRow.Scan(append(dest, r.more...)...) }
