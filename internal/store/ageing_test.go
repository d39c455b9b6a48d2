package store_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

// createOf creates tasks of a priority whose steps have waited for a time, the first for
// the longest.
func createOf(t *testing.T, s *store.Store, db *pgtest.DB, p *store.Plan, priority, n int, waited time.Duration) (ids []uuid.UUID) {
	t.Helper()
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		tasks[i] = newTask(p)
		tasks[i].Priority = priority
		ids = append(ids, tasks[i].UUID)
	}
	_, err := s.CreateTasks(t.Context(), tasks)
	require.NoError(t, err)
	for i, id := range ids {
		db.Exec(t, `update tasker.board set enqueued_at = clock_timestamp() - $2 * interval '1 ms' where task_uuid = $1 and state = 2`,
			id, (waited - time.Duration(i)*time.Millisecond).Milliseconds())
	}
	return ids
}

func ageSteps(t *testing.T, s *store.Store, limit int) store.Aged {
	t.Helper()
	found, err := s.Age(t.Context(), time.Minute, limit, false)
	require.NoError(t, err)
	return found
}

// TestAgedStepsAreClaimedFirst: those that have waited for longer than the bound, in the
// order of their waiting, and also by a worker that only follows signals.
func TestAgedStepsAreClaimedFirst(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	create(t, s, p, 1)
	claim(t, s, p, 1) // it knows the callable, and the lane of the priority 0
	lower := createOf(t, s, db, p, -50, 2, 2*time.Minute)
	low := createOf(t, s, db, p, -10, 3, 3*time.Minute)
	young := createOf(t, s, db, p, -10, 1, 30*time.Second)
	high := createOf(t, s, db, p, 10, 2, 5*time.Minute)

	preview, err := s.Age(t.Context(), time.Minute, 100, true)
	require.NoError(t, err)
	require.Equal(t, store.Aged{Steps: map[string]int{"flows": 5}}, preview)
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board where lane = -1`))

	first := ageSteps(t, s, 3)
	payload := fmt.Sprintf("%d.-1", p.Callables[0])
	require.Equal(t, store.Aged{Steps: map[string]int{"flows": 3}, More: true, Signals: []signal.Signal{{Topic: signal.WorkerTopic("flows"), Payload: payload}}}, first)
	require.Equal(t, map[string]int{"flows": 2}, ageSteps(t, s, 3).Steps)
	require.Empty(t, ageSteps(t, s, 3).Steps, "what is urgent waits behind nothing, and the young one not for long")

	_, err = s.Reprioritise(t.Context(), low[0], 0, by("op", "keeps its place"))
	require.NoError(t, err)
	receiveLanes(s, first.Signals)
	claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Callables: p.Callables, Limit: 5, Lease: time.Minute}, false)
	require.NoError(t, err)
	claimed = append(claimed, claim(t, s, p, 10)...)
	got := make([]uuid.UUID, len(claimed))
	for i := range claimed {
		got[i] = claimed[i].TaskUUID
	}
	require.Equal(t, slices.Concat(low, lower, high, young), got)
}

// TestAgeingLeavesWhatWaitsBehindNothing: it costs no write where priorities are not used.
func TestAgeingLeavesWhatWaitsBehindNothing(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, twiceYAML)
	createOf(t, s, db, p, 0, 3, time.Hour)
	require.Empty(t, ageSteps(t, s, 10).Steps, "all have one priority")
	db.Exec(t, `update tasker.board set lane = lane - 1 where task_uuid = (select task_uuid from tasker.board limit 1)`)
	require.Empty(t, ageSteps(t, s, 10).Steps, "a begun task of the same priority comes to its end")

	createOf(t, s, db, p, 1, 1, 0)
	pause := store.Pause{Namespace: p.Template.Namespace, Actor: "op", Reason: "why"}
	require.NoError(t, s.Pause(t.Context(), pause))
	require.Empty(t, ageSteps(t, s, 10).Steps, "no step of a paused line is claimed, in whichever lane")
	_, err := s.Resume(t.Context(), pause)
	require.NoError(t, err)
	require.Equal(t, map[string]int{p.Template.Namespace: 3}, ageSteps(t, s, 10).Steps, "the time of the pause counts")
}

// TestAgeingBesideOtherCallables: a worker claims the lanes of all its callables in one
// order.
func TestAgeingBesideOtherCallables(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	flows, shapes := plan(t, s, oneStepYAML), plan(t, s, diamondYAML)
	createOf(t, s, db, flows, 0, 2, time.Hour)
	createOf(t, s, db, shapes, 10, 2, 0)
	require.Empty(t, ageSteps(t, s, 10).Steps, "nothing claims both")
	w := uuid.Must(uuid.NewV7())
	_, err := s.WorkerHeartbeat(t.Context(), store.Daemon{UUID: w, ID: "w", Callables: append(slices.Clone(flows.Callables), shapes.Callables...)}, nil, time.Minute)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"flows": 2}, ageSteps(t, s, 10).Steps)
	db.Exec(t, `update tasker.board set lane = 201 where lane = -1`)
	db.Exec(t, `update tasker.workers set stopped_at = now()`)
	require.Empty(t, ageSteps(t, s, 10).Steps)
}

// TestAgeingBesideClaims: three orchestrators age while workers claim and a frozen session
// holds the oldest rows, in rows of tasks and in rows of their own. Each step is claimed
// once, and the locked ones are aged when they are free.
func TestAgeingBesideClaims(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	low := createOf(t, s, db, p, -10, 120, time.Hour)
	for _, c := range claim(t, s, p, 20) { // left and right have rows of their own
		report(t, s, succeed(c, `1`))
	}
	taken, err := s.TakeReported(t.Context(), 100, true)
	require.NoError(t, err)
	_, err = taken.Commit(t.Context(), uuid.Nil, decide(t, taken.Tasks))
	require.NoError(t, err)
	db.Exec(t, `update tasker.board set enqueued_at = now() - interval '1 h' where state = 2`)
	// Of each line one step that comes first, and stays.
	db.Exec(t, `update tasker.board set lane = 0, enqueued_at = now(), tags = '{nowhere}' where (task_uuid, slot) in (
		select distinct on (callable) task_uuid, slot from tasker.board where state = 2 order by callable, seq desc)`)
	frozen, err := db.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = frozen.Exec(t.Context(), `select from tasker.board where state = 2 and lane > 0 order by seq limit 10 for update`)
	require.NoError(t, err)

	var mu sync.Mutex
	seen, moved := map[store.ClaimKey]int{}, 0
	var all errgroup.Group
	for range 3 {
		all.Go(func() error {
			for range 30 {
				found, err := s.Age(t.Context(), time.Minute, 7, false)
				if err != nil {
					return err
				}
				mu.Lock()
				moved += found.Steps["shapes"]
				mu.Unlock()
			}
			return nil
		})
		all.Go(func() error {
			for range 15 {
				claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Callables: p.Callables, Limit: 2, Lease: time.Minute}, true)
				if err != nil {
					return err
				}
				mu.Lock()
				for i := range claimed {
					k := claimed[i].Key()
					k.Token = 0
					seen[k]++
				}
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
	require.Positive(t, moved)
	const waiting = `select count(*) from tasker.board where state = 2 and lane > 0`
	require.Equal(t, 10, db.QueryInt(t, waiting), "the locked ones")
	require.NoError(t, frozen.Rollback(t.Context()))
	require.Equal(t, map[string]int{"shapes": 10}, ageSteps(t, s, 100).Steps)
	for _, c := range claim(t, s, p, 1000) {
		k := c.Key()
		k.Token = 0
		seen[k]++
	}
	require.Zero(t, db.QueryInt(t, waiting))
	for k, n := range seen {
		require.Equal(t, 1, n, k)
	}
	require.Len(t, seen, len(low)+20-3, "but for those that stay")
}

// TestAgeingInTheLinesOfKeys: steps that have waited too long behind others of their key are
// claimed first of it; what waits for the turn of its key alone stays.
func TestAgeingInTheLinesOfKeys(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1)})
	with := func(key string, priority int, waited time.Duration) uuid.UUID {
		task := newTask(p)
		task.Context, task.Priority = fmt.Appendf(nil, `{"tenant":{"id":%q}}`, key), priority
		_, err := s.CreateTasks(t.Context(), []store.NewTask{task})
		require.NoError(t, err)
		db.Exec(t, `update tasker.board set enqueued_at = clock_timestamp() - $2 * interval '1 ms' where task_uuid = $1`, task.UUID, waited.Milliseconds())
		return task.UUID
	}
	first := with("a", 10, 0)
	claimed, _ := claimLimited(t, s, p, 10)
	require.Equal(t, []uuid.UUID{first}, tasksOf(claimed))
	with("a", 10, 2*time.Minute)
	young := with("a", -20, 0)
	older, old := with("a", -20, 3*time.Minute), with("a", -10, 2*time.Minute)
	with("b", -20, 3*time.Minute)
	with("b", -20, 2*time.Minute)
	claimed, _ = claimLimited(t, s, p, 10) // sorts them
	require.Equal(t, []string{"b"}, keysOf(t, claimed))
	require.Equal(t, 2, ageSteps(t, s, 100).Steps["limited"])
	require.Empty(t, ageSteps(t, s, 100).Steps, "once")
	for _, want := range []uuid.UUID{older, old} {
		db.Exec(t, `update tasker.board set state = 1, due_at = 'infinity' where state = 3`) // the key has room
		claimed, _ = claimLimited(t, s, p, 1)
		require.Equal(t, []uuid.UUID{want}, tasksOf(claimed))
	}
	require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.board where task_uuid = $1 and lane > 0`, young))
}
