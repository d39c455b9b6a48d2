package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

// lockRow locks a row of the board, as Watch, a heartbeat or an operator's action
// does for a moment, until release is called.
func lockRow(t *testing.T, db *pgtest.DB, task uuid.UUID, slot int) (release func()) {
	t.Helper()
	tx, err := db.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	tag, err := tx.Exec(t.Context(), `select from tasker.board where task_uuid = $1 and slot = $2 for update`, task, slot)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }
}

const loneYAML = `
name: lone
namespace_name: shapes
version: 1.0.0
steps:
  - name: only
    handler: {callable: shapes.only}
`

// TestALookTellsOfReportsThatItPassedOver: a look uses up its signal. If it skips a
// reported step whose row is locked, it must report that, whatever the lock is for;
// otherwise only a poll finds the step.
func TestALookTellsOfReportsThatItPassedOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		yaml  string
		apart bool
	}{"in the task's own row": {loneYAML, false}, "in a row of its own": {diamondYAML, true}} {
		for _, full := range []bool{false, true} {
			t.Run(name+map[bool]string{false: " from the mark", true: " in a full scan"}[full], func(t *testing.T) {
				t.Parallel()
				s, db := open(t)
				p := plan(t, s, c.yaml)
				id := create(t, s, p, 1)[0]
				require.Equal(t, []bool{true}, report(t, s, succeed(claim(t, s, p, 1)[0], `1`)))
				if c.apart {
					applyAll(t, s)
					require.Equal(t, []bool{true}, report(t, s, succeed(claim(t, s, p, 1)[0], `1`)))
				}
				release := lockRow(t, db, id, 0)
				taken, err := s.TakeReported(t.Context(), 100, full)
				require.NoError(t, err)
				require.Empty(t, taken.Tasks)
				require.Equal(t, 1, taken.Skipped)
				release()
				taken, err = s.TakeReported(t.Context(), 100, full)
				require.NoError(t, err)
				defer taken.Release()
				require.Len(t, taken.Tasks, 1)
				require.Zero(t, taken.Skipped)
			})
		}
	}
}

// TestALookTellsOfReportsPassedOverBesideOthers: also if it found others.
func TestALookTellsOfReportsPassedOverBesideOthers(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, loneYAML)
	ids := create(t, s, p, 3)
	for _, c := range claim(t, s, p, 3) {
		require.Equal(t, []bool{true}, report(t, s, succeed(c, `1`)))
	}
	defer lockRow(t, db, ids[1], 0)()
	taken, err := s.TakeReported(t.Context(), 100, false)
	require.NoError(t, err)
	defer taken.Release()
	require.Len(t, taken.Tasks, 2)
	require.Equal(t, 1, taken.Skipped)
	other, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 2})
	require.NoError(t, err)
	defer other.Close()
	second, err := other.TakeReported(t.Context(), 100, true)
	require.NoError(t, err)
	defer second.Release()
	require.Empty(t, second.Tasks)
	require.Equal(t, 3, second.Skipped, "also those held by another orchestrator, which may die")
}

// TestALookTellsOfStepsThatItPassedOver is the same for claims.
func TestALookTellsOfStepsThatItPassedOver(t *testing.T) {
	t.Parallel()
	type way struct {
		full, frontier bool
	}
	for name, w := range map[string]way{
		"from the marks": {}, "in a full scan": {full: true}, "in a full scan from the frontier": {full: true, frontier: true},
	} {
		for kind, c := range map[string]struct {
			yaml string
			slot int
		}{"in the task's own row": {loneYAML, 0}, "in a row of its own": {diamondYAML, 2}} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				s, db := open(t)
				p := plan(t, s, c.yaml)
				if c.slot > 0 { // the marks hold only lanes with claims
					create(t, s, p, 1)
					require.Equal(t, []bool{true}, report(t, s, succeed(claim(t, s, p, 1)[0], `1`)))
					applyAll(t, s)
					require.Len(t, claim(t, s, p, 2), 2)
				}
				ids := create(t, s, p, 2)
				if c.slot > 0 {
					for _, done := range claim(t, s, p, 2) {
						require.Equal(t, []bool{true}, report(t, s, succeed(done, `1`)))
					}
					applyAll(t, s)
				}
				if w.frontier {
					for range 3 {
						require.NoError(t, s.MoveFrontiers(t.Context()))
					}
					reached, _ := s.AtFrontier()
					require.True(t, reached)
				}
				look := func() (int, store.Rest) {
					req := store.ClaimRequest{Worker: uuid.Max, Callables: p.Callables, Limit: 100, Lease: time.Minute}
					var list []store.Claimed
					var rest store.Rest
					var err error
					list, rest, err = s.Claim(t.Context(), req, w.full)
					require.NoError(t, err)
					return len(list), rest
				}
				release := lockRow(t, db, ids[0], c.slot)
				rows := db.QueryInt(t, `select count(*) from tasker.board where state = 2`)
				found, rest := look()
				require.Equal(t, rows-1, found)
				require.Equal(t, store.RestLocked, rest)
				found, rest = look()
				require.Zero(t, found, "all steps are locked")
				require.Equal(t, store.RestLocked, rest)
				release()
				found, rest = look()
				require.Equal(t, 1, found)
				require.Zero(t, rest)
				found, rest = look()
				require.Zero(t, found)
				require.Zero(t, rest)
			})
		}
	}
}

// TestAFullClaimTellsNothing: a claim that filled its limit is followed by another
// anyway, and does not check further.
func TestAFullClaimTellsNothing(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, loneYAML)
	ids := create(t, s, p, 3)
	defer lockRow(t, db, ids[0], 0)()
	claimed, rest, err := s.Claim(t.Context(), store.ClaimRequest{Worker: uuid.Max, Callables: p.Callables, Limit: 1, Lease: time.Minute}, false)
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	require.Zero(t, rest)
}
