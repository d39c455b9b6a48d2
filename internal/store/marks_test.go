package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

// far is more than a scan starts before its mark.
const far = 5000

// TestBacklogBehindTheMarkNeedsOneFullScan: a transaction that drew its numbers early
// commits many steps after younger ones have been claimed.
func TestBacklogBehindTheMarkNeedsOneFullScan(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	fast := func(limit int) int {
		claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Callables: p.Callables, Limit: limit, Lease: time.Minute}, false)
		require.NoError(t, err)
		return len(claimed)
	}
	create(t, s, p, 50)
	db.Exec(t, `update tasker.board set state = 1, due_at = 'infinity' where state = 2`) // not visible yet
	db.QueryInt(t, `select setval('tasker.step_seq', $1)`, far)
	create(t, s, p, 1)
	require.Len(t, claim(t, s, p, 10), 1)
	db.Exec(t, `update tasker.board set state = 2, due_at = null where state = 1`)
	require.Zero(t, fast(10), "they are behind the mark")
	require.Len(t, claim(t, s, p, 10), 10, "a full scan finds them")
	require.Equal(t, 25, fast(25), "and lowers the mark for the others")
	create(t, s, p, 1)
	require.Equal(t, 16, fast(25), "up to the newest")
	require.Zero(t, fast(25))
}

func TestReportsBehindTheMarkNeedOneFullScan(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 40)
	take := func(limit int, full, commit bool) int {
		taken, err := s.TakeReported(t.Context(), limit, full)
		require.NoError(t, err)
		defer taken.Release()
		if commit && len(taken.Tasks) > 0 {
			_, err = taken.Commit(t.Context(), uuid.Nil, decide(t, taken.Tasks))
			require.NoError(t, err)
		}
		return len(taken.Tasks)
	}
	var reports []store.Report
	for _, c := range claim(t, s, p, 40) {
		reports = append(reports, succeed(c, `1`))
	}
	report(t, s, reports[:20]...)
	db.QueryInt(t, `select setval('tasker.step_seq', $1)`, far)
	report(t, s, reports[20:]...)
	db.Exec(t, `update tasker.board set state = 1, due_at = 'infinity' where state = 4 and seq < $1`, far) // not visible yet
	require.Equal(t, 20, take(100, false, false), "nothing is committed, so the mark stays")
	require.Equal(t, 20, take(100, false, true))
	db.Exec(t, `update tasker.board set state = 4, due_at = null where state = 1`)
	require.Zero(t, take(100, false, true), "they are behind the mark")
	require.Equal(t, 5, take(5, true, true), "a full scan finds them")
	require.Equal(t, 15, take(100, false, true), "and lowers the mark for the others")
}

// TestLateSiblingDoesNotHideOlderReports: a task comes with all of its reports; the mark
// must not follow its youngest step past the older steps of others.
func TestLateSiblingDoesNotHideOlderReports(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 3)
	for _, c := range claim(t, s, p, 10) {
		report(t, s, succeed(c, `1`))
	}
	applyAll(t, s)
	sides := claim(t, s, p, 10)
	require.Len(t, sides, 6)
	var late store.Claimed
	left, _ := p.StepNumber("left")
	for _, c := range sides {
		if c.TaskUUID == sides[0].TaskUUID && c.Step != left {
			late = c
			continue
		}
		if c.TaskUUID == sides[0].TaskUUID {
			report(t, s, succeed(c, `1`))
		}
	}
	for _, c := range sides {
		if c.TaskUUID != sides[0].TaskUUID {
			report(t, s, succeed(c, `1`))
		}
	}
	db.QueryInt(t, `select setval('tasker.step_seq', $1)`, far)
	report(t, s, succeed(late, `1`))
	seen := 0
	for range 3 {
		taken, err := s.TakeReported(t.Context(), 1, false)
		require.NoError(t, err)
		if len(taken.Tasks) > 0 {
			_, err = taken.Commit(t.Context(), uuid.Nil, decide(t, taken.Tasks))
			require.NoError(t, err)
		}
		seen += len(taken.Tasks)
	}
	require.Equal(t, 3, seen)
}

// decide runs the rules over taken tasks.
func decide(t testing.TB, tasks []store.TakenTask) []store.Change {
	t.Helper()
	changes := make([]store.Change, len(tasks))
	for i := range tasks {
		changes[i] = change(t, &tasks[i], inputsOf(&tasks[i])...)
	}
	return changes
}

// TestAFullScanWaitsForNobodysTurn: it may take long, while others claim.
func TestAFullScanWaitsForNobodysTurn(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 1)
	tx, err := db.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), `select pg_advisory_xact_lock(x'7461736b'::int, $1)`, p.Callables[0])
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	claimed, _, err := s.Claim(ctx, store.ClaimRequest{Callables: p.Callables, Limit: 100, Lease: time.Minute}, true)
	require.NoError(t, err)
	require.Len(t, claimed, 1)
}
