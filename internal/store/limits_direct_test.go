package store_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

// look claims limited steps as a worker does: from the marks, or everywhere.
func look(t testing.TB, s *store.Store, p *store.Plan, limit, ahead int, full bool) ([]store.Claimed, time.Duration) {
	claimed, _, again, err := s.ClaimLimited(t.Context(), store.ClaimRequest{Worker: uuid.New(), Callables: p.Callables, Limit: limit, Ahead: ahead, Lease: time.Minute}, full)
	require.NoError(t, err)
	return claimed, again
}

func endAll(t testing.TB, s *store.Store, claimed []store.Claimed) {
	for i := range claimed {
		require.Equal(t, []bool{true}, report(t, s, succeed(claimed[i], `{}`)))
	}
}

// TestALimitWithoutKeys: its steps are claimed from the line of their callable, from marks once
// a claim has seen them, also by a worker that saw them when there was no room.
func TestALimitWithoutKeys(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	other := another(t, db)
	p := plan(t, s, limitedYAML)
	limited(t, s, p, "a", "b", "c", "d", "e", "f", "g", "h")
	setLimit(t, s, p, limitrule.Rule{MaxRunning: new(3)})
	first, again := look(t, s, p, 10, 0, true)
	require.Equal(t, []string{"a", "b", "c"}, keysOf(t, first))
	require.Positive(t, again, "others wait")
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board where callable < 0`))
	none, again := look(t, other, p, 10, 0, true)
	require.Empty(t, none)
	require.Positive(t, again, "others wait")
	endAll(t, s, first[:2])
	more, _ := look(t, other, p, 10, 0, false)
	require.Equal(t, []string{"d", "e"}, keysOf(t, more))
	endAll(t, s, first[2:])
	more, again = look(t, s, p, 10, 0, false)
	require.Equal(t, []string{"f"}, keysOf(t, more))
	require.Positive(t, again)

	// A change of the limit takes steps to the line of a key, and back. Both workers have known the limit as direct.
	setLimit(t, s, p, limitrule.Rule{MaxRunning: new(3), Ordered: true})
	none, _ = look(t, other, p, 10, 0, true)
	require.Empty(t, none, "f runs")
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.board where callable < 0`))
	limited(t, s, p, "i")
	setLimit(t, s, p, limitrule.Rule{MaxRunning: new(7)})
	rest, again := look(t, s, p, 10, 0, true)
	require.Equal(t, []string{"g", "h", "i"}, keysOf(t, rest))
	require.Negative(t, again, "nothing waits")
	none, again = look(t, s, p, 10, 0, false)
	require.Empty(t, none)
	require.Negative(t, again)
}

// TestLimitedStepsClaimedAhead: as much room as a claim takes ahead stays for others.
func TestLimitedStepsClaimedAhead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rule       limitrule.Rule
		now, ahead int // of 60, of which 50 begin later
	}{
		"much room":             {limitrule.Rule{MaxRunning: new(1000)}, 0, 60},
		"some room":             {limitrule.Rule{MaxRunning: new(40)}, 10, 20},
		"little room":           {limitrule.Rule{MaxRunning: new(8)}, 4, 4},
		"much room of a key":    {limitrule.Rule{KeyPath: tenant, MaxRunning: new(1000)}, 0, 60},
		"little room of a key":  {limitrule.Rule{KeyPath: tenant, MaxRunning: new(12)}, 6, 6},
		"an order":              {limitrule.Rule{Ordered: true}, 1, 0},
		"a rate of many":        {limitrule.Rule{PerSecond: new(1000.0), Burst: 1000}, 10, 10},
		"a rate":                {limitrule.Rule{PerSecond: new(50.0), Burst: 1000}, 10, 0},
		"shares without bounds": {limitrule.Rule{KeyPath: tenant}, 0, 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := open(t)
			p := plan(t, s, limitedYAML)
			limited(t, s, p, make([]string, 100)...)
			setLimit(t, s, p, tt.rule)
			claimed, _ := look(t, s, p, 60, 50, true)
			now, ahead := 0, 0
			for i := range claimed {
				if claimed[i].Ahead {
					ahead++
				} else {
					now++
				}
			}
			require.Equal(t, []int{tt.now, tt.ahead}, []int{now, ahead})
		})
	}
}

// TestLimitedCallablesShareAWorker: one that has been claimed often waits no longer than a new one,
// whatever their limits are.
func TestLimitedCallablesShareAWorker(t *testing.T) {
	t.Parallel()
	keyed, direct := limitrule.Rule{KeyPath: tenant}, limitrule.Rule{MaxRunning: new(1000)}
	for name, rules := range map[string][]limitrule.Rule{"with keys": {keyed, keyed}, "without keys": {direct, direct}, "of both kinds": {keyed, direct}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := open(t)
			p := plan(t, s, `
name: two
namespace_name: limited
version: 1.0.0
steps:
  - {name: often, handler: {callable: often}}
  - {name: seldom, handler: {callable: seldom}}
`)
			for i, step := range p.Steps {
				_, err := s.SetLimit(t.Context(), store.Limit{Namespace: "limited", Handler: step.Handler, Rule: rules[i]}, "ana", "why")
				require.NoError(t, err)
			}
			limited(t, s, p, make([]string, 400)...)
			take := func(callables ...int32) (often int) {
				claimed, _, _, err := s.ClaimLimited(t.Context(), store.ClaimRequest{Worker: uuid.New(), Callables: callables, Limit: 5, Lease: time.Minute}, true)
				require.NoError(t, err)
				require.Len(t, claimed, 5)
				for i := range claimed {
					if claimed[i].Step == 0 {
						often++
					}
				}
				return often
			}
			for range 4 {
				require.Equal(t, 5, take(p.Callables[0]))
			}
			often := 0
			for i := range 60 {
				often += take(p.Callables[i%2], p.Callables[1-i%2])
			}
			require.InDelta(t, 150, often, 90)
		})
	}
}

// TestWhatRunsIsCountedFromItsOldestToken, so that what has ended is not read, while a snapshot
// keeps its row versions.
func TestWhatRunsIsCountedFromItsOldestToken(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{MaxRunning: new(3)})
	holder, err := db.Pool(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = holder.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = holder.Exec(t.Context(), `select count(*) from tasker.board`)
	require.NoError(t, err)
	behind := func() int {
		return db.QueryInt(t, `select (select last_value from tasker.claim_token) - running_from from tasker.limit_keys`)
	}
	limited(t, s, p, make([]string, 3)...)
	slow, _ := look(t, s, p, 1, 0, true)
	require.Len(t, slow, 1)
	endAll(t, s, first(look(t, s, p, 10, 0, false)))
	db.Exec(t, `select setval('tasker.claim_token', (select last_value + 5000 from tasker.claim_token))`)
	for range 3 {
		limited(t, s, p, make([]string, 4)...)
		claimed, _ := look(t, s, p, 10, 0, false)
		require.Len(t, claimed, 2, "one runs")
		endAll(t, s, claimed)
	}
	require.Greater(t, behind(), 5000, "it may not pass what runs")
	endAll(t, s, slow)
	claimed, _ := look(t, s, p, 10, 0, false)
	require.Len(t, claimed, 3)
	require.Less(t, behind(), 1010)
	noViolations(t, s)
}

// TestLimitsHoldForStepsClaimedAhead: by the ledger never more claims are alive than may run,
// while workers with marks of their own race, some of whose claims are lost.
func TestLimitsHoldForStepsClaimedAhead(t *testing.T) {
	t.Parallel()
	const most, steps = 40, 1500
	for name, path := range map[string][]string{"without keys": nil, "of a key": tenant} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, db := open(t)
			p := plan(t, s, limitedYAML)
			limited(t, s, p, make([]string, steps)...)
			setLimit(t, s, p, limitrule.Rule{KeyPath: path, MaxRunning: new(most)})
			var group conc.WaitGroup
			var done atomic.Int32
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for worker := range 3 {
				mine := s
				if worker > 0 {
					mine = another(t, db)
				}
				group.Go(func() {
					for n := 0; done.Load() < steps && ctx.Err() == nil; n++ {
						claimed, _ := look(t, mine, p, 30, 20, n%7 == 0)
						for i := range claimed {
							if n%5 == 1 && i == 0 { // the worker of this one dies
								done.Add(1)
								db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where task_uuid = $1`, claimed[i].TaskUUID)
								continue
							}
							if report(t, mine, succeed(claimed[i], `{}`))[0] {
								done.Add(1)
							}
						}
						if _, err := mine.ExpireLeases(t.Context(), store.UpTo(100), 10); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			require.NoError(t, ctx.Err())
			applyAll(t, s)
			alive := db.QueryInt(t, `select max(alive)::int from (select sum(d) over (order by at, d rows unbounded preceding) as alive from (
				select claimed_at as at, 1 as d from tasker.step_attempts union all select reported_at, -1 from tasker.step_attempts) e) s`)
			require.LessOrEqual(t, alive, most)
			require.Greater(t, alive, most/2)
			noViolations(t, s)
		})
	}
}

func first[A, B any](a A, _ B) A { return a }

// another is a store of another daemon.
func another(t testing.TB, db *pgtest.DB) *store.Store {
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 2})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// TestWhatAClaimAheadLeavesIsFoundFromTheMarks: steps that are not claimed ahead, so that room stays for
// others, wait for the next claim.
func TestWhatAClaimAheadLeavesIsFoundFromTheMarks(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, limitedYAML)
	limited(t, s, p, make([]string, 100)...)
	setLimit(t, s, p, limitrule.Rule{MaxRunning: new(40)})
	first, _ := look(t, s, p, 1, 0, true)
	require.Len(t, first, 1)
	ahead, again := look(t, s, p, 60, 50, false)
	require.Len(t, ahead, 29)
	require.Zero(t, again)
	more, _ := look(t, s, p, 60, 0, false)
	require.Len(t, more, 10)
}
