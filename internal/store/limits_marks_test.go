package store_test

import (
	"context"
	"fmt"
	"slices"
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
	"github.com/tasker-go/tasker/internal/store/internal/pg"
)

// sortsElsewhere has another session sort a callable for the time of a call, so that claims sort
// the newest steps alone.
func sortsElsewhere(t *testing.T, db *pgtest.DB, callable int32, then func()) {
	require.NoError(t, pgx.BeginFunc(t.Context(), db.Pool(t), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `select pg_advisory_xact_lock($1, $2)`, int32(pg.SortLock), callable)
		then()
		return err
	}))
}

// TestStepsSortedBehindAMark: claims from the marks find older steps that come into the line of
// a key after newer ones were taken from it, first of all.
func TestStepsSortedBehindAMark(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1000)})
	keys := make([]string, 600)
	limited(t, s, p, keys...)
	at := func() string {
		return db.QueryString(t, `select from_lane || ' ' || from_seq from tasker.limit_keys where key = ''`)
	}
	sortsElsewhere(t, db, p.Callables[0], func() {
		first, _ := look(t, s, p, 100, 0, true)
		require.Len(t, first, 100, "of the newest 250")
		second, _ := look(t, s, p, 100, 0, false)
		require.Len(t, second, 100)
	})
	newer := at()
	oldest := db.QueryInt(t, `select min(seq) from tasker.board where state = 2`)
	claimed, _ := look(t, s, p, 100, 0, false)
	require.Len(t, claimed, 100)
	require.Equal(t, oldest, db.QueryInt(t, `select min(seq) from tasker.board where state = 3`), "the oldest step was claimed")
	require.NotEqual(t, newer, at(), "the mark has gone back")
	for len(claimed) > 0 {
		endAll(t, s, claimed)
		claimed, _ = look(t, s, p, 200, 0, false)
	}
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board where state = 2`))
}

// TestAStepHeldWhileYoungerOnesAreSorted is found from the marks as soon as its transaction has ended,
// as one is whose number was drawn before it committed: a flood draws thousands meanwhile.
func TestAStepHeldWhileYoungerOnesAreSorted(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	s.Steady()
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(10_000)})
	for range 5 {
		limited(t, s, p, make([]string, 1000)...)
	}
	look(t, s, p, 1, 0, true)
	unsorted := func() int {
		return db.QueryInt(t, `select count(*) from tasker.board where state = 2 and callable > 0`)
	}
	var held int
	require.NoError(t, pgx.BeginFunc(t.Context(), db.Pool(t), func(tx pgx.Tx) error {
		require.NoError(t, tx.QueryRow(t.Context(), `select seq from tasker.board where state = 2 and callable > 0 order by seq limit 1 for update`).Scan(&held))
		for range 4 {
			_, err := s.SortLimited(t.Context(), p.Callables[0], nil)
			require.NoError(t, err)
			look(t, s, p, 1, 0, false)
		}
		return nil
	}))
	require.Equal(t, 1, unsorted(), "all others are sorted")
	look(t, s, p, 10, 0, false)
	require.Zero(t, unsorted(), "step %d is sorted", held)
}

// TestAStepWithAnotherPriorityBehindAMark: in the line of a key it is claimed at the latest when nothing
// waits behind the mark.
func TestAStepWithAnotherPriorityBehindAMark(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1000)})
	limited(t, s, p, make([]string, 6)...)
	look(t, s, p, 1, 0, true)
	look(t, s, p, 1, 0, false)
	before := db.QueryInt(t, `select from_lane from tasker.limit_keys`)
	_, err := s.Reprioritise(t.Context(), uuid.MustParse(db.QueryString(t, `select task_uuid::text from tasker.board where state = 2 order by seq desc limit 1`)), 50, by("ana", "why"))
	require.NoError(t, err)
	require.Less(t, db.QueryInt(t, `select min(lane) from tasker.board where state = 2`), before, "it waits before the mark")
	for range 3 {
		look(t, s, p, 3, 0, false)
	}
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board where state = 2`))
	look(t, s, p, 3, 0, false)
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.limit_keys where waiting`), "no step waits")
}

// TestNewKeysBesideClaims: claims and a sorter that meet the same new keys do not wait for each
// other, and no step is left or claimed twice.
func TestNewKeysBesideClaims(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	const tasks = 6000
	keys := make([]string, tasks)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d", (i*7919)%1500)
	}
	for from := 0; from < tasks; from += 1000 {
		limited(t, s, p, keys[from:from+1000]...)
	}
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(5)})
	var done atomic.Int32
	var group conc.WaitGroup
	sorting, sorted := context.WithCancel(t.Context())
	defer sorted()
	for range 2 {
		group.Go(func() {
			for sorting.Err() == nil {
				if _, err := s.SortLimited(t.Context(), p.Callables[0], nil); err != nil {
					t.Errorf("sort: %v", err)
				}
			}
		})
	}
	for worker := range 3 {
		group.Go(func() {
			defer func() {
				if done.Load() >= tasks {
					sorted()
				}
			}()
			for done.Load() < tasks && t.Context().Err() == nil {
				claimed, _ := look(t, s, p, 60, 0, worker == 0)
				for i := range claimed {
					if claimed[i].Attempt != 1 {
						t.Errorf("attempt %d", claimed[i].Attempt)
					}
				}
				done.Add(int32(len(claimed)))
			}
		})
	}
	group.Wait()
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board where state = 2`))
	require.Zero(t, db.QueryInt(t, `select deadlocks from pg_stat_database where datname = current_database()`))
}

// markSlack is how far before their marks claims read.
const markSlack = 1000

// TestClaimsWhileASnapshotIsHeld: claims read few index entries of limits and keys, although all row
// versions of a hundred claims before are kept.
func TestClaimsWhileASnapshotIsHeld(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1000)})
	held, err := db.Pool(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = held.Rollback(context.WithoutCancel(t.Context())) }()
	var n int
	require.NoError(t, held.QueryRow(t.Context(), `select count(*) from tasker.board`).Scan(&n))
	const claims = 100
	keys := make([]string, 40)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d", i%20)
	}
	limited(t, s, p, slices.Concat(keys, keys)...) // the lines are never empty
	entries := func() int {
		return db.QueryInt(t, `select sum(idx_tup_read)::bigint from pg_stat_user_indexes where relname in ('limit_keys', 'limits')`)
	}
	before := entries()
	reads := func() int {
		claiming := another(t, db)
		limited(t, claiming, p, keys...)
		look(t, claiming, p, 1, 0, true) // knows where to look from then on
		for range claims {
			limited(t, claiming, p, keys...)
			claimed, _ := look(t, claiming, p, len(keys), 0, false)
			require.Len(t, claimed, len(keys))
		}
		claiming.Close() // the server counts what its sessions have read
		var read int
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			read = entries() - before
			return read > claims*len(keys)/2, fmt.Sprintf("%d entries counted", read)
		})
		before += read
		return read
	}
	lines := func() int {
		return db.QueryInt(t, `select idx_tup_read from pg_stat_user_indexes where indexrelname = 'board_claimable'`)
	}
	first := reads()
	inLines := lines()
	later := reads()
	require.Less(t, (lines()-inLines)/claims, 3*markSlack, "entries of lines of a claim, while those of %d steps are kept", 2*claims*len(keys))
	require.Less(t, later, 30*claims*len(keys)/2, "entries of a claim and key; the first hundred claims read %d", first)
	require.Greater(t, db.QueryInt(t, `select n_tup_upd from pg_stat_user_tables where relname = 'limit_keys'`), claims*len(keys)/2, "each claim changes all keys")
	require.Less(t, db.QueryInt(t, `select 100 * (n_tup_upd - n_tup_hot_upd) / n_tup_upd from pg_stat_user_tables where relname = 'limit_keys'`), 30,
		"of a hundred changes of keys those that change an index")
}

// TestManyKeysWithoutRoom: the keys with the smallest turns have no room, so claims go on to those behind them.
func TestManyKeysWithoutRoom(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1)})
	const full, others = 300, 50
	keys := make([]string, 0, 2*(full+others))
	for i := range full {
		keys = append(keys, fmt.Sprintf("a%03d", i), fmt.Sprintf("a%03d", i))
	}
	limited(t, s, p, keys...)
	first, _ := look(t, s, p, full, 0, true)
	require.Len(t, first, full, "one of each key runs")
	keys = keys[:0]
	for i := range others {
		keys = append(keys, fmt.Sprintf("b%03d", i), fmt.Sprintf("b%03d", i))
	}
	limited(t, s, p, keys...)
	claimed, _ := look(t, s, p, 2*others, 0, false)
	require.Len(t, claimed, others)
	for _, key := range keysOf(t, claimed) {
		require.Equal(t, byte('b'), key[0])
	}
	endAll(t, s, first)
	claimed, _ = look(t, s, p, full, 0, false)
	require.Len(t, claimed, full, "each key has room again")
}

// TestKeysOfFormerPrograms: a key that a program of version 119 has added, or has found steps for again, is
// found by a claim that reads all keys, and from then on by others.
func TestKeysOfFormerPrograms(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1)})
	limited(t, s, p, "a", "b", "a", "b", "a", "b")
	claimed, _ := look(t, s, p, 2, 0, true)
	endAll(t, s, claimed)
	claimed, _ = look(t, s, p, 2, 0, false) // sets the mark
	require.Len(t, claimed, 2)
	endAll(t, s, claimed)
	db.Exec(t, `update tasker.limit_keys set from_turn = '-infinity' where key = 'a'`)
	claimed, _ = look(t, s, p, 2, 0, false)
	require.Equal(t, []string{"b"}, keysOf(t, claimed))
	claimed, _ = look(t, s, p, 2, 0, true)
	require.Equal(t, []string{"a"}, keysOf(t, claimed))
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.limit_keys where from_turn = '-infinity'`))
}

// TestAnAnalysisWhileNothingRuns: claims count what runs of a key by its index, also where the planner expects
// that nothing runs, so that all indexes of what runs cost the same but for their heights.
func TestAnAnalysisWhileNothingRuns(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(10_000)})
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d", i%20)
	}
	var running []store.Report
	for range 9 {
		limited(t, s, p, keys...)
		claimed, _ := look(t, s, p, len(keys), 0, true)
		require.Len(t, claimed, len(keys))
		for i := range claimed {
			running = append(running, succeed(claimed[i], `{}`))
		}
	}
	db.Exec(t, `alter index tasker.board_running set (fillfactor = 10)`)
	db.Exec(t, `reindex index tasker.board_running`) // higher than others
	for ended := range slices.Chunk(running, 1000) {
		report(t, s, ended...)
	}
	limited(t, s, p, keys...)
	db.Exec(t, `analyze tasker.board`)
	claiming := another(t, db)
	claimed, _ := look(t, claiming, p, len(keys), 0, true)
	require.Len(t, claimed, len(keys))
	claiming.Close()
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		n := db.QueryInt(t, `select idx_scan from pg_stat_user_indexes where indexrelname = 'board_running'`)
		return n >= 20, fmt.Sprintf("%d scans counted", n)
	})
	require.Zero(t, db.QueryInt(t, `select sum(idx_scan)::int from pg_stat_user_indexes where indexrelname like 'board_lease%'`))
}
