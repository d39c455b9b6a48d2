package store_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

func actBeyond(t testing.TB, s *store.Store, p *store.Plan) store.Beyond {
	done, err := s.ActBeyond(t.Context(), p.Callables)
	require.NoError(t, err)
	require.Equal(t, done.Newest+done.Running+done.Dropped > 0, len(done.Signals) > 0)
	done.Signals = nil
	return done
}

// stopped are the tasks that orchestrators are to cancel.
func stopped(t testing.TB, s *store.Store) (tasks []uuid.UUID) {
	messages, err := s.StopMessages(t.Context(), store.UpTo(1000))
	require.NoError(t, err)
	for i := range messages {
		require.Equal(t, "beyond_limit", messages[i].Reason())
		tasks = append(tasks, messages[i].Task)
	}
	return tasks
}

func tasksOf(claimed []store.Claimed) (tasks []uuid.UUID) {
	for i := range claimed {
		tasks = append(tasks, claimed[i].TaskUUID)
	}
	return tasks
}

// waitingOf are the tasks of which a step can be claimed, the oldest first.
func waitingOf(t testing.TB, db *pgtest.DB) (tasks []uuid.UUID) {
	rows, err := db.Pool(t).Query(t.Context(), `select task_uuid from tasker.board where state = 2 order by seq`)
	require.NoError(t, err)
	for rows.Next() {
		var id uuid.UUID
		require.NoError(t, rows.Scan(&id))
		tasks = append(tasks, id)
	}
	require.NoError(t, rows.Err())
	return tasks
}

// Steps that find no room leave their line at once, and their tasks are to be cancelled; keys
// with room are left alone.
func TestBeyondALimitTheNewestAreCancelled(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1), Beyond: limitrule.CancelNewest})
	limited(t, s, p, "a", "a", "a", "b")
	require.Equal(t, store.Beyond{}, actBeyond(t, s, p), "nothing is sorted")
	running, _ := claimLimited(t, s, p, 1)
	require.Equal(t, []string{"a"}, keysOf(t, running))
	newest := waitingOf(t, db)[:2]
	require.Equal(t, store.Beyond{Newest: 2}, actBeyond(t, s, p))
	require.Equal(t, store.Beyond{}, actBeyond(t, s, p), "once")
	require.ElementsMatch(t, newest, stopped(t, s))
	limited(t, s, p, "a")
	others, _ := claimLimited(t, s, p, 10)
	require.Equal(t, []string{"b"}, keysOf(t, others))
	require.Equal(t, store.Beyond{Newest: 1}, actBeyond(t, s, p), "one more, after the others")
	require.Len(t, stopped(t, s), 3)
	require.Empty(t, waitingOf(t, db))

	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1)})
	limited(t, s, p, "a")
	claimed, _ := claimLimited(t, s, p, 10)
	require.Empty(t, claimed)
	require.Equal(t, store.Beyond{}, actBeyond(t, s, p), "it waits")
}

// Those that run make room for as many of the newest as may run at once; those in between are
// cancelled. One message for each task is enough.
func TestBeyondALimitTheRunningAreCancelled(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(2), Beyond: limitrule.CancelRunning})
	limited(t, s, p, "a", "a")
	first, _ := claimLimited(t, s, p, 10)
	require.Len(t, first, 2)
	limited(t, s, p, "a")
	_, _ = claimLimited(t, s, p, 10)
	require.Equal(t, store.Beyond{Running: 1}, actBeyond(t, s, p))
	require.Equal(t, tasksOf(first)[:1], stopped(t, s), "the oldest")
	limited(t, s, p, "a", "a", "a")
	_, _ = claimLimited(t, s, p, 10)
	waiting := waitingOf(t, db)
	require.Len(t, waiting, 4)
	require.Equal(t, store.Beyond{Newest: 2, Running: 1}, actBeyond(t, s, p))
	require.ElementsMatch(t, append(tasksOf(first), waiting[:2]...), stopped(t, s))
	require.Equal(t, waiting[2:], waitingOf(t, db))
	require.Equal(t, store.Beyond{}, actBeyond(t, s, p))
}

// A dropped step is complete without a claim, whatever bound leaves no room.
func TestBeyondALimitStepsAreDropped(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]limitrule.Rule{
		"at once": {KeyPath: tenant, MaxRunning: new(1), Beyond: limitrule.Drop},
		"rate":    {KeyPath: tenant, PerSecond: new(0.001), Burst: 1, Beyond: limitrule.Drop},
		"ordered": {KeyPath: tenant, Ordered: true, Beyond: limitrule.Drop},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, db := open(t)
			p := plan(t, s, limitedYAML)
			setLimit(t, s, p, r)
			limited(t, s, p, "a", "a", "a")
			claimed, _ := claimLimited(t, s, p, 10)
			require.Len(t, claimed, 1)
			require.Equal(t, store.Beyond{Dropped: 2}, actBeyond(t, s, p))
			require.Empty(t, stopped(t, s))
			require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.board where state = 4 and outcome = 1 and result = '{"dropped": true}' and claimed_at is null and attempt = 1`))
		})
	}
}

// TestBeyondALimitWhileWorkersRace: three workers claim and act beside creators; every task
// runs, or is to be cancelled, never both before its claim and after.
func TestBeyondALimitWhileWorkersRace(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(3), Beyond: limitrule.CancelNewest})
	var mu sync.Mutex
	var claimed []uuid.UUID
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 20 {
				limited(t, s, p, "a", "b", "a")
				got, _, _, err := s.ClaimLimited(t.Context(), store.ClaimRequest{Worker: uuid.New(), Callables: p.Callables, Limit: 2, Lease: time.Hour}, true)
				if err != nil {
					t.Error(err)
				}
				if _, err := s.ActBeyond(t.Context(), p.Callables); err != nil {
					t.Error(err)
				}
				mu.Lock()
				claimed = append(claimed, tasksOf(got)...)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for len(waitingOf(t, db)) > 0 {
		got, _ := claimLimited(t, s, p, 10)
		claimed = append(claimed, tasksOf(got)...)
		actBeyond(t, s, p)
	}
	require.Len(t, claimed, 6, "three of each key")
	all := slices.Concat(claimed, stopped(t, s))
	require.Len(t, all, 180)
	unique := map[uuid.UUID]bool{}
	for _, id := range all {
		unique[id] = true
	}
	require.Len(t, unique, 180)
}

// TestBeyondALimitTheSupersededAreCancelled: a step that has run and waits to run again has no place, and is
// older than what has come since. Once as many others run as may, it is not claimed any more.
func TestBeyondALimitTheSupersededAreCancelled(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(2), Beyond: limitrule.CancelRunning})
	retries := func(c []store.Claimed, due string) {
		t.Helper()
		db.Exec(t, `update tasker.board set state = case when $2 = '' then 2 else 1 end, token = null, worker = null, lease_until = null, claimed_at = null,
			due_at = case when $2 <> '' then now() + $2::interval end, seq = nextval('tasker.step_seq') where task_uuid = any ($1)`, tasksOf(c), due)
	}
	limited(t, s, p, "a", "b")
	first, _ := claimLimited(t, s, p, 10)
	require.Len(t, first, 2)
	retries(first[:1], "1 hour")
	limited(t, s, p, "a")
	second, _ := claimLimited(t, s, p, 10)
	require.Len(t, second, 1)
	require.Equal(t, store.Beyond{}, actBeyond(t, s, p), "one of two runs")
	limited(t, s, p, "a", "b")
	third, _ := claimLimited(t, s, p, 10)
	require.Len(t, third, 2)
	retries(second, "") // has begun later than was decided: it stays
	require.Equal(t, store.Beyond{Running: 1}, actBeyond(t, s, p))
	require.Equal(t, tasksOf(first)[:1], stopped(t, s))
	require.Equal(t, store.Beyond{}, actBeyond(t, s, p), "once")
	again, _ := claimLimited(t, s, p, 10)
	require.Equal(t, tasksOf(second), tasksOf(again))
	require.Equal(t, store.Beyond{}, actBeyond(t, s, p))

	// In the line, and not marked since its row was locked: the youngest of the line, and yet the oldest.
	limited(t, s, p, "a")
	retries(again, "")
	fourth, _ := claimLimited(t, s, p, 1)
	require.NotEqual(t, tasksOf(again), tasksOf(fourth), "the retry comes behind")
	none, _ := claimLimited(t, s, p, 10)
	require.Empty(t, none, "it is not claimed")
	db.Exec(t, `update tasker.board set limit_line = abs(limit_line)`)
	require.Equal(t, store.Beyond{Running: 1}, actBeyond(t, s, p))
	require.ElementsMatch(t, []uuid.UUID{first[0].TaskUUID, again[0].TaskUUID}, stopped(t, s))
	require.Empty(t, waitingOf(t, db))
}

// TestBeyondALimitTheSupersededWhileWorkersRace: workers claim, fail and act beside creators. In the end one task
// of the key runs, and all others are to be cancelled.
func TestBeyondALimitTheSupersededWhileWorkersRace(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1), Beyond: limitrule.CancelRunning})
	claim := func() []store.Claimed {
		got, _, _, err := s.ClaimLimited(t.Context(), store.ClaimRequest{Worker: uuid.New(), Callables: p.Callables, Limit: 2, Lease: time.Hour}, true)
		assert.NoError(t, err)
		return got
	}
	act := func() store.Beyond {
		done, err := s.ActBeyond(t.Context(), p.Callables)
		assert.NoError(t, err)
		return done
	}
	var wg sync.WaitGroup
	for worker := range 3 {
		wg.Go(func() {
			for range 20 {
				limited(t, s, p, "a")
				if got := claim(); worker > 0 { // it fails, and waits for its retry
					db.Exec(t, `update tasker.board set state = 1 + (seq % 2)::int, token = null, worker = null, lease_until = null, claimed_at = null,
						due_at = case when seq % 2 = 0 then now() + interval '1 hour' end, seq = nextval('tasker.step_seq') where task_uuid = any ($1) and state = 3`, tasksOf(got))
				}
				act()
			}
		})
	}
	wg.Wait()
	limited(t, s, p, "a") // the newest of all
	var last []store.Claimed
	for quiet := 0; quiet < 3; { // those that run make room, which a cancellation gives back
		got := claim()
		if len(got) > 0 {
			last = got
		}
		done := act()
		db.Exec(t, `delete from tasker.board b using tasker.task_messages m where m.task_uuid = b.task_uuid`)
		if quiet++; len(got)+done.Newest+done.Running > 0 {
			quiet = 0
		}
	}
	require.Len(t, last, 1)
	require.Len(t, stopped(t, s), 60)
	require.Equal(t, db.QueryString(t, `select task_uuid::text from tasker.tasks order by requested_at desc limit 1`), tasksOf(last)[0].String())
}
