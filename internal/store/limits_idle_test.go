package store_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
)

// idleFor lets all keys have been idle for days, between claims.
func idleFor(t testing.TB, db *pgtest.DB, p *store.Plan, days int) {
	db.Exec(t, `with turn as materialized (select pg_advisory_xact_lock($1::int, $2::int))
		update tasker.limit_keys set tokens_at = tokens_at - $3::int * interval '1 day' from turn`, int32(pg.TurnLock), p.Callables[0], days)
}

// forget returns how many keys were forgotten.
func forget(t testing.TB, s *store.Store, dry bool) int {
	forgotten, next, err := s.ForgetKeys(t.Context(), 0, dry)
	require.NoError(t, err)
	require.Zero(t, next)
	return forgotten
}

const keysLeft = `select coalesce(string_agg(key, ' ' order by key), '') from tasker.limit_keys`

// TestIdleKeysAreForgotten: after a week, where nothing of a key waits or runs; they return as new ones.
func TestIdleKeysAreForgotten(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1000)})
	known(t, s, p, "idle", "placed", "")
	limited(t, s, p, "runs")
	first, _ := look(t, s, p, 2, 0, true) // not full, so it sees that nothing else waits
	limited(t, s, p, turns(100, "placed")...)
	require.Equal(t, 99, inLines(t, db))
	require.Zero(t, forget(t, s, false), "young")
	idleFor(t, db, p, 8)
	require.Equal(t, 3, forget(t, s, true), "looked at")
	require.Equal(t, 1, forget(t, s, false))
	require.Equal(t, " placed runs", db.QueryString(t, keysLeft))
	limited(t, s, p, "idle")
	endAll(t, s, first)
	rest, _ := look(t, s, p, 200, 0, true)
	require.Len(t, rest, 101)
	endAll(t, s, rest)
	applyAll(t, s)
	idleFor(t, db, p, 8)
	require.Equal(t, 3, forget(t, s, false))
	require.Empty(t, db.QueryString(t, keysLeft))
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.limit_keys`), "of steps without a key")
	noViolations(t, s)
}

// TestKeysThatHoldSomethingAreKept: used tokens, and the order of a step that waits for its retry.
func TestKeysThatHoldSomethingAreKept(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, `
name: limited
namespace_name: limited
version: 1.0.0
steps:
  - name: call
    handler: {callable: call}
    retry: {max_attempts: 2, backoff: fixed, backoff_base_ms: 3600000}
`)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, PerSecond: new(1.0 / (20 * 24 * 3600)), Burst: 1})
	limited(t, s, p, "a")
	claimed, _ := look(t, s, p, 2, 0, true)
	endAll(t, s, claimed)
	idleFor(t, db, p, 19)
	require.Zero(t, forget(t, s, false), "its beginning is not back")
	idleFor(t, db, p, 2)
	require.Equal(t, 1, forget(t, s, false))

	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, Ordered: true})
	limited(t, s, p, "a")
	claimed, _ = look(t, s, p, 2, 0, true)
	report(t, s, fail(claimed[0], true, "again"))
	applyAll(t, s)
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.board where due_at is not null`), "it waits for its retry")
	idleFor(t, db, p, 8)
	require.Zero(t, forget(t, s, false))
	db.Exec(t, `update tasker.board set due_at = now() where due_at is not null`)
	_, err := s.PromoteDue(t.Context(), store.UpTo(10))
	require.NoError(t, err)
	claimed, _ = look(t, s, p, 2, 0, true)
	endAll(t, s, claimed)
	applyAll(t, s)
	idleFor(t, db, p, 8)
	require.Equal(t, 1, forget(t, s, false))
	noViolations(t, s)
}

// manyKeys adds keys to the limit.
func manyKeys(t testing.TB, db *pgtest.DB, p *store.Plan, n int) {
	db.Exec(t, `insert into tasker.limit_keys (callable_id, key, turn, weight, tokens, tokens_at, waiting)
		select $1::int, 'c' || i, 0, 1, 1, now(), false from generate_series(1, $2::int) i`, p.Callables[0], n)
}

// TestALimitOfManyKeysIsRemoved in several transactions, with the steps that wait in their lines.
func TestALimitOfManyKeysIsRemoved(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1000)})
	manyKeys(t, db, p, 12_000)
	known(t, s, p, "last")
	limited(t, s, p, turns(100, "c1", "last")...)
	require.Equal(t, 98, inLines(t, db))
	_, err := s.DeleteLimit(t.Context(), "limited", p.Steps[0].Handler, "ana", "why")
	require.NoError(t, err)
	require.Zero(t, db.QueryInt(t, `select (select count(*) from tasker.limit_keys) + (select count(*) from tasker.limits)`))
	require.Len(t, claim(t, s, p, 200), 100)
	noViolations(t, s)
}

// TestASetLimitWritesTheKeysThatItChanges, whose weights are others, and not all.
func TestASetLimitWritesTheKeysThatItChanges(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1000)})
	manyKeys(t, db, p, 100)
	const rows = `select string_agg(key || ctid::text, ' ' order by key) from tasker.limit_keys where key <> 'c7'`
	before, seventh := db.QueryString(t, rows), `select ctid::text || weight from tasker.limit_keys where key = 'c7'`
	light := db.QueryString(t, seventh)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(900)})
	require.Equal(t, light, db.QueryString(t, seventh))
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(900), Weights: map[string]float64{"c7": 3}})
	require.Equal(t, before, db.QueryString(t, rows))
	require.Equal(t, 3, db.QueryInt(t, `select weight::int from tasker.limit_keys where key = 'c7'`))
}

// TestKeysAreForgottenWhileTheyAreUsed: three workers claim what two others create, one at a time of each key,
// while keys are forgotten as soon as they are idle.
func TestKeysAreForgottenWhileTheyAreUsed(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1)})
	const creators, batches, size, keys = 2, 12, 6, 4
	var running [keys]atomic.Int32
	var ended, forgotten atomic.Int32
	var many sync.Once
	var group conc.WaitGroup
	for n := range creators {
		s := another(t, db)
		group.Go(func() {
			for b := range batches {
				list := turns(size, fmt.Sprint("k", (n+b)%keys))
				if b == batches/2 {
					many.Do(func() { list = turns(100, "k0", "k1") }) // they are placed by the creation
				}
				limited(t, s, p, list...)
			}
		})
	}
	const total = (creators*batches-1)*size + 100
	done := func() bool { return ended.Load() == total || t.Failed() || t.Context().Err() != nil }
	for range 3 {
		s := another(t, db)
		group.Go(func() {
			for i := 0; !done(); i++ {
				claimed, _ := look(t, s, p, 3, 0, i%5 == 0)
				for c, key := range keysOf(t, claimed) {
					if n := running[key[1]-'0'].Add(1); n > 1 {
						t.Errorf("%d steps of %s run", n, key)
					}
					running[key[1]-'0'].Add(-1) // before the report, which makes room
					report(t, s, succeed(claimed[c], `{}`))
					ended.Add(1)
				}
				if len(claimed) == 0 {
					_, _, _, err := s.MarkWaiting(t.Context(), 0)
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	cleaner := another(t, db)
	for !done() {
		idleFor(t, db, p, 8)
		n, _, err := cleaner.ForgetKeys(t.Context(), 0, false)
		require.NoError(t, err)
		forgotten.Add(int32(n)) // #nosec G115 -- few
	}
	group.Wait()
	applyAll(t, s)
	idleFor(t, db, p, 8)
	forget(t, s, false)
	require.Positive(t, forgotten.Load())
	require.Zero(t, db.QueryInt(t, `select (select count(*) from tasker.board) + (select count(*) from tasker.limit_keys)`))
	noViolations(t, s)
}

// TestLinesOfKeysBeginAnew with those that are free, behind the last number that 32 bits have.
func TestLinesOfKeysBeginAnew(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1000)})
	manyKeys(t, db, p, 50)
	const deleted = 20
	db.Exec(t, `delete from tasker.limit_keys where line between $1 and $1 + 9`, deleted)
	limited(t, s, p, "a")
	running, _ := look(t, s, p, 1, 0, true)
	require.Len(t, running, 1)
	db.Exec(t, `update tasker.board set limit_line = $1 where limit_line is not null`, deleted)
	db.Exec(t, `update tasker.limit_keys set waiting = false`)
	db.Exec(t, `select setval('tasker.limit_keys_line_seq', 2147483646)`)

	db.Exec(t, `insert into tasker.limit_keys (callable_id, key, turn, weight, tokens, tokens_at, waiting)
		select $1::int, 'again' || i, 0, 1, 1, now(), false from generate_series(1, 11) i`, p.Callables[0])
	lines := db.QueryString(t, `select string_agg(line::text, ' ' order by line) from tasker.limit_keys where key like 'again%'`)
	require.Regexp(t, `^21 22 23 24 25 26 27 28 29 \d+ 2147483647$`, lines, "not the one that a step of the board names")
	limited(t, s, p, "b", "c")
	claimed, _ := look(t, s, p, 2, 0, true)
	require.Len(t, claimed, 2, "limited callables go on")
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.limit_keys where key in ('b', 'c') and line between 1 and 1000`))
}
