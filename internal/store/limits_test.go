package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

const limitedYAML = `
name: limited
namespace_name: limited
version: 1.0.0
steps:
  - {name: call, handler: {callable: call}}
`

// limited creates tasks with keys.
func limited(t testing.TB, s *store.Store, p *store.Plan, keys ...string) {
	tasks := make([]store.NewTask, len(keys))
	for i, key := range keys {
		tasks[i] = newTask(p)
		tasks[i].Context = json.RawMessage(fmt.Sprintf(`{"tenant":{"id":%q}}`, key))
	}
	_, err := s.CreateTasks(t.Context(), tasks)
	require.NoError(t, err)
}

func claimLimited(t testing.TB, s *store.Store, p *store.Plan, limit int) ([]store.Claimed, time.Duration) {
	claimed, _, again, err := s.ClaimLimited(t.Context(), store.ClaimRequest{Worker: uuid.New(), Callables: p.Callables, Limit: limit, Lease: time.Minute}, true)
	require.NoError(t, err)
	return claimed, again
}

func keysOf(t testing.TB, claimed []store.Claimed) (keys []string) {
	for i := range claimed {
		var c struct{ Tenant struct{ ID string } }
		require.NoError(t, json.Unmarshal(claimed[i].Context, &c))
		keys = append(keys, c.Tenant.ID)
	}
	return keys
}

func setLimit(t testing.TB, s *store.Store, p *store.Plan, r limitrule.Rule) {
	_, err := s.SetLimit(t.Context(), store.Limit{Namespace: "limited", Handler: p.Steps[0].Handler, Rule: r}, "ana", "why")
	require.NoError(t, err)
}

var tenant = []string{"tenant", "id"}

// At most two steps of a key run, keys take turns, and the end of one makes room.
func TestALimitOfWhatRuns(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	limited(t, s, p, "a", "a", "a", "a", "b", "a", "b", "c")
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(2)})
	require.Empty(t, claim(t, s, p, 10), "other claims leave limited steps")
	claimed, _ := claimLimited(t, s, p, 3)
	require.Equal(t, []string{"a", "b", "c"}, keysOf(t, claimed))
	more, again := claimLimited(t, s, p, 10)
	require.Equal(t, []string{"a", "b"}, keysOf(t, more))
	require.Positive(t, again)
	report(t, s, succeed(claimed[0], `{}`))
	more, _ = claimLimited(t, s, p, 10)
	require.Equal(t, []string{"a"}, keysOf(t, more))
	db.Exec(t, `update tasker.board set lease_until = now() - interval '1 s' where state = 3`)
	_, err := s.ExpireLeases(t.Context(), store.UpTo(100), 10)
	require.NoError(t, err)
	more, _ = claimLimited(t, s, p, 10)
	require.Equal(t, []string{"a", "a"}, keysOf(t, more), "lost leases make room")
}

// TestALimitBeforeItsCallable is set in a namespace before a template names the callable, and bounds what the template
// brings.
func TestALimitBeforeItsCallable(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	early := store.Limit{Namespace: "limited", Handler: workflow.HandlerReference{Callable: "later.on"}, Rule: limitrule.Rule{MaxRunning: new(1)}}
	_, err := s.SetLimit(t.Context(), early, "ana", "why")
	require.ErrorIs(t, err, store.ErrNotFound, "there is no such namespace")
	plan(t, s, limitedYAML)
	_, err = s.SetLimit(t.Context(), early, "ana", "why")
	require.NoError(t, err)
	p := plan(t, s, strings.NewReplacer("name: one", "name: later", "callable: test.ok", "callable: later.on").Replace(laterYAML))
	limited(t, s, p, "a", "b")
	claimed, _ := claimLimited(t, s, p, 10)
	require.Len(t, claimed, 1)
}

const laterYAML = `
name: one
namespace_name: limited
version: 1.0.0
steps:
  - name: only
    handler: {callable: test.ok}
`

// Three workers claim at the same time: never more than the limit of a key runs.
func TestLimitsWhileWorkersRace(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	var keys []string
	for i := range 600 {
		keys = append(keys, fmt.Sprintf("k%d", i%7))
	}
	limited(t, s, p, keys...)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(3)})
	var running [7]atomic.Int32
	var done atomic.Int32
	var group conc.WaitGroup
	for range 3 {
		group.Go(func() {
			for done.Load() < 600 && t.Context().Err() == nil {
				claimed, _ := claimLimited(t, s, p, 5)
				for i, key := range keysOf(t, claimed) {
					if n := running[key[1]-'0'].Add(1); n > 3 {
						t.Errorf("%d steps of %s run", n, key)
					}
					if claimed[i].Attempt != 1 {
						t.Errorf("attempt %d", claimed[i].Attempt)
					}
				}
				for i, key := range keysOf(t, claimed) {
					running[key[1]-'0'].Add(-1) // before the report, which makes room
					report(t, s, succeed(claimed[i], `{}`))
					done.Add(1)
				}
			}
		})
	}
	group.Wait()
	applyAll(t, s)
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board`))
	noViolations(t, s)
}

// In any window there are at most rate times its length and burst beginnings, by the recorded times.
func TestARateOfBeginnings(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	keys := make([]string, 200)
	limited(t, s, p, keys...)
	setLimit(t, s, p, limitrule.Rule{PerSecond: new(100.0), Burst: 10})
	for begun := 0; begun < 150; {
		claimed, again := claimLimited(t, s, p, 40)
		begun += len(claimed)
		require.LessOrEqual(t, len(claimed), 10)
		require.GreaterOrEqual(t, again, time.Duration(0))
		for i := range claimed {
			report(t, s, succeed(claimed[i], `{}`))
		}
	}
	applyAll(t, s)
	require.Zero(t, db.QueryInt(t, `select count(*) from (
		select count(*) over w as begun, extract(epoch from claimed_at - first_value(claimed_at) over w) as seconds
		from tasker.step_attempts window w as (order by claimed_at range between interval '200 ms' preceding and current row)) w
		where begun > 100 * 0.2 + 10`))
	require.GreaterOrEqual(t, db.QueryInt(t, `select (extract(epoch from max(claimed_at) - min(claimed_at)) * 1000)::int from tasker.step_attempts`), 1350)
}

// One step of a key at a time, in the order in which they became claimable; a retry holds the key unless others may overtake.
func TestOrderedKeys(t *testing.T) {
	t.Parallel()
	for _, overtake := range []bool{false, true} {
		s, db := open(t)
		p := plan(t, s, limitedYAML)
		setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, Ordered: true, Overtake: overtake})
		limited(t, s, p, "a", "a", "a", "b")
		first, _ := claimLimited(t, s, p, 10)
		require.Equal(t, []string{"a", "b"}, keysOf(t, first))
		failed := store.Report{ClaimKey: key(first[0]), Retryable: true, RetryAfter: -1, Error: json.RawMessage(`{"message":"x"}`)}
		require.Equal(t, []bool{true}, report(t, s, failed))
		applyAll(t, s)
		require.Equal(t, 1, db.QueryInt(t, `select count(*) from tasker.board where state = 1`))
		next, _ := claimLimited(t, s, p, 10)
		if overtake {
			require.Equal(t, []string{"a"}, keysOf(t, next))
			require.NotEqual(t, first[0].TaskUUID, next[0].TaskUUID)
			continue
		}
		require.Empty(t, next)
		db.Exec(t, `update tasker.board set due_at = now() where state = 1`)
		_, err := s.PromoteDue(t.Context(), store.UpTo(10))
		require.NoError(t, err)
		next, _ = claimLimited(t, s, p, 10)
		require.Len(t, next, 1)
		require.Equal(t, first[0].TaskUUID, next[0].TaskUUID)
		report(t, s, succeed(next[0], `{}`))
		applyAll(t, s)
		next, _ = claimLimited(t, s, p, 10)
		require.Equal(t, []string{"a"}, keysOf(t, next))
	}
}

// Three orchestrators create steps of ordered keys while three workers claim and sort them: one step of a key runs
// at a time, in the order in which they became claimable, and none is left behind in a line of which no claim knows.
func TestSortingBesideClaims(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, Ordered: true})
	const batches, size, all = 6, 200, 3 * 6 * 200
	var done atomic.Int32
	var mu sync.Mutex
	running, last := map[string]bool{}, map[string]int{}
	var group conc.WaitGroup
	for creator := range 3 {
		group.Go(func() {
			for batch := range batches {
				tasks := make([]store.NewTask, size)
				for i := range tasks {
					tasks[i] = newTask(p)
					tasks[i].Context = json.RawMessage(fmt.Sprintf(`{"tenant":{"id":"k%d-%d"},"n":%d}`, creator, i%40, 1+batch*size+i))
				}
				if _, err := s.CreateTasks(t.Context(), tasks); err != nil {
					t.Error(err)
				}
			}
		})
		group.Go(func() {
			for done.Load() < all && t.Context().Err() == nil && !t.Failed() {
				if _, err := s.SortLimited(t.Context(), p.Callables[0], nil); err != nil {
					t.Error(err)
				}
				claimed, _ := claimLimited(t, s, p, 40)
				keys := keysOf(t, claimed)
				mu.Lock()
				for i, key := range keys {
					var c struct{ N int }
					if err := json.Unmarshal(claimed[i].Context, &c); err != nil || running[key] || c.N <= last[key] {
						t.Errorf("step %d of %s after %d, running %t, %v", c.N, key, last[key], running[key], err)
					}
					running[key], last[key] = true, c.N
				}
				mu.Unlock()
				reports := make([]store.Report, len(claimed))
				for i := range claimed {
					reports[i] = succeed(claimed[i], `{}`)
				}
				mu.Lock()
				for _, key := range keys {
					running[key] = false // before the report, which makes room
				}
				mu.Unlock()
				report(t, s, reports...)
				applyAll(t, s)
				done.Add(int32(len(claimed)))
			}
		})
	}
	group.Wait()
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board`))
	noViolations(t, s)
}

// Keys with steps share the claims by their weights.
func TestWeightsOfKeys(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, limitedYAML)
	var keys []string
	for range 200 {
		keys = append(keys, "a", "b")
	}
	limited(t, s, p, keys...)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, Weights: map[string]float64{"a": 3}})
	counts := map[string]int{}
	for range 20 {
		claimed, _ := claimLimited(t, s, p, 10)
		for _, key := range keysOf(t, claimed) {
			counts[key]++
		}
	}
	require.Equal(t, map[string]int{"a": 150, "b": 50}, counts)
}

// Without its limit a callable's steps are claimed like all others, in their order, also those that waited in
// lines; a pause by an operator outlasts both.
func TestLimitsEnd(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	limited(t, s, p, "a", "a", "b", "a")
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1)})
	claimed, _ := claimLimited(t, s, p, 10)
	require.Len(t, claimed, 2)
	limits, err := s.Limits(t.Context(), "", 100)
	require.NoError(t, err)
	require.Len(t, limits, 1)
	require.Equal(t, []int{2, 2, 1}, []int{limits[0].Running, limits[0].Waiting, limits[0].Keys})
	require.Equal(t, tenant, limits[0].KeyPath)
	pause := store.Pause{Namespace: "limited", Callable: "call", Actor: "ana", Reason: "x"}
	require.NoError(t, s.Pause(t.Context(), pause))
	claimed, _ = claimLimited(t, s, p, 10)
	require.Empty(t, claimed)
	_, err = s.Resume(t.Context(), pause)
	require.NoError(t, err)
	require.Empty(t, claim(t, s, p, 10), "the limit outlasts the pause")
	_, err = s.DeleteLimit(t.Context(), "limited", p.Steps[0].Handler, "ana", "why")
	require.NoError(t, err)
	require.Len(t, claim(t, s, p, 10), 2)
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.limits`)+db.QueryInt(t, `select count(*) from tasker.limit_keys`))
	_, err = s.DeleteLimit(t.Context(), "limited", p.Steps[0].Handler, "ana", "why")
	require.ErrorIs(t, err, store.ErrNotFound)
}

// A removal that is interrupted after its first transaction leaves no step without a claim, and the sweep finishes it.
func TestAnInterruptedRemovalOfALimit(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	limited(t, s, p, "a", "a", "a")
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(0)})
	claimed, _ := claimLimited(t, s, p, 10)
	require.Empty(t, claimed, "all are sorted, none may run")
	db.Exec(t, `create function tasker.fails() returns trigger language plpgsql as $$ begin raise exception 'interrupted'; end $$`)
	db.Exec(t, `create trigger fails before update on tasker.board for each row when (old.callable < 0 and new.callable > 0 and new.state = old.state) execute function tasker.fails()`)
	_, err := s.DeleteLimit(t.Context(), "limited", p.Steps[0].Handler, "ana", "why")
	require.NoError(t, err, "steps that the database rejects are left to the sweep")
	callables, err := s.LimitedCallables(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[int32]store.LimitedCallable{p.Callables[0]: {Removing: true}}, callables)
	limited(t, s, p, "b")
	require.Len(t, claim(t, s, p, 10), 1, "new steps are claimed without a limit")
	claimed, _ = claimLimited(t, s, p, 1)
	require.Len(t, claimed, 1, "those of keys without a bound")
	db.Exec(t, `drop trigger fails on tasker.board`)
	finished, signals, more, err := s.FinishLimits(t.Context())
	require.NoError(t, err)
	require.Zero(t, finished)
	require.True(t, more, "its steps have returned")
	require.NotEmpty(t, signals)
	finished, _, more, err = s.FinishLimits(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, finished)
	require.False(t, more)
	require.Len(t, claim(t, s, p, 10), 2)
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.limits`)+db.QueryInt(t, `select count(*) from tasker.limit_keys`))
}

// A removal that the database rejects holds up no others.
func TestARemovalOfALimitThatCannotBeFinished(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	stuck := plan(t, s, limitedYAML)
	other := plan(t, s, strings.ReplaceAll(limitedYAML, "callable: ", "callable: other_"))
	require.Less(t, stuck.Callables[0], other.Callables[0])
	for _, p := range []*store.Plan{stuck, other} {
		setLimit(t, s, p, limitrule.Rule{MaxRunning: new(1)})
	}
	db.Exec(t, `update tasker.limits set removing = true, max_running = null`)
	db.Exec(t, `create function tasker.fails() returns trigger language plpgsql as $$ begin raise exception 'interrupted'; end $$`)
	db.Exec(t, fmt.Sprintf(`create trigger fails before delete on tasker.limits for each row when (old.callable_id = %d) execute function tasker.fails()`, stuck.Callables[0]))
	finished, signals, more, err := s.FinishLimits(t.Context())
	require.ErrorContains(t, err, "interrupted")
	require.Equal(t, 1, finished)
	require.NotEmpty(t, signals)
	require.False(t, more)
	require.Equal(t, int(stuck.Callables[0]), db.QueryInt(t, `select sum(callable_id) from tasker.limits`))
}

// Limits come and go while three workers claim in both ways and steps become due: each step runs once for each
// attempt, and none stays in a line that is gone.
func TestLimitsComeAndGoWhileWorkersClaim(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	var keys []string
	for i := range 400 {
		keys = append(keys, fmt.Sprintf("k%d", i%9))
	}
	limited(t, s, p, keys...)
	db.Exec(t, `update tasker.board set state = 1, due_at = clock_timestamp() + seq * interval '1 ms' where seq % 2 = 0`)
	var done atomic.Int32
	var group conc.WaitGroup
	for range 3 {
		group.Go(func() {
			for done.Load() < 400 && t.Context().Err() == nil {
				_, err := s.PromoteDue(t.Context(), store.UpTo(20))
				if err != nil {
					t.Error(err)
					return
				}
				claimed, _ := claimLimited(t, s, p, 3)
				for _, c := range append(claimed, claim(t, s, p, 3)...) {
					if c.Attempt != 1 {
						t.Errorf("attempt %d", c.Attempt)
					}
					report(t, s, succeed(c, `{}`))
					done.Add(1)
				}
			}
		})
	}
	for done.Load() < 400 && t.Context().Err() == nil && !t.Failed() {
		setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(2)})
		_, err := s.DeleteLimit(t.Context(), "limited", p.Steps[0].Handler, "ana", "why")
		require.NoError(t, err)
	}
	group.Wait()
	applyAll(t, s)
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board`))
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.limits`)+db.QueryInt(t, `select count(*) from tasker.limit_keys`))
	noViolations(t, s)
}

// The integrity check finds a step in a line that is not there.
func TestAStepInALineThatIsGone(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(0)})
	limited(t, s, p, "a")
	claimLimited(t, s, p, 1)
	noViolations(t, s)
	db.Exec(t, `alter table tasker.limit_keys disable trigger guard`)
	db.Exec(t, `delete from tasker.limit_keys`)
	found, err := s.CheckIntegrity(t.Context(), workflow.Rules{})
	require.NoError(t, err)
	require.Len(t, found.Violations, 1)
	require.Contains(t, found.Violations[0].Problem, "in the line of a key")
}

// Steps that wait in the lines of keys are counted for their callable, wherever waiting ones are; a heartbeat
// signals those that no claim has sorted, and an operator's pause and priorities hold for them, too.
func TestStepsInTheLinesOfKeysAreSeen(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1)})
	limited(t, s, p, "a", "a", "a", "b")
	seen := func(depth, load, running int) {
		t.Helper()
		depths, err := s.QueueDepth(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"limited": depth}, depths)
		loads, _, err := s.Loads(t.Context(), time.Minute, 100)
		require.NoError(t, err)
		require.Len(t, loads, 1)
		require.Equal(t, []int{load, running}, []int{loads[0].Waiting, loads[0].Running})
		require.Positive(t, loads[0].Oldest)
		oldest, err := s.OldestClaimable(t.Context())
		require.NoError(t, err)
		require.Positive(t, oldest["limited"])
		unserved, err := s.Unserved(t.Context(), time.Minute, 100)
		require.NoError(t, err)
		require.Len(t, unserved, 1)
		require.Equal(t, depth, unserved[0].Steps)
	}
	seen(4, 4, 0)
	db.Exec(t, `update tasker.board set enqueued_at = now() - interval '1 hour'`)
	attention, err := s.ProcessorHeartbeat(t.Context(), store.Daemon{UUID: uuid.New(), ID: "o"}, time.Minute, true)
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(attention.Signals), "limited")
	claimed, _ := claimLimited(t, s, p, 1)
	require.Len(t, claimed, 1)
	seen(3, 2, 1)
	waiting := uuid.MustParse(db.QueryString(t, `select task_uuid::text from tasker.board where callable < 0 order by seq limit 1`))
	steps, err := s.UnservedSteps(t.Context(), waiting, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "call", steps[0].Handler.Callable)
	_, err = s.Reprioritise(t.Context(), uuid.MustParse(db.QueryString(t, `select task_uuid::text from tasker.board where callable < 0 and state = 2 order by seq desc limit 1`)), 50, by("ana", "why"))
	require.NoError(t, err)
	require.Equal(t, 2, db.QueryInt(t, `select count(distinct lane) from tasker.board where callable < 0`))
	pause := store.Pause{Namespace: "limited", Callable: "call", Actor: "ana", Reason: "x"}
	require.NoError(t, s.Pause(t.Context(), pause))
	loads, _, err := s.Loads(t.Context(), time.Minute, 100)
	require.NoError(t, err)
	require.Zero(t, loads[0].Waiting)
}

// An operator's priority leaves the order of a key.
func TestOrderedKeysKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, Ordered: true})
	limited(t, s, p, "a", "a", "a")
	first, _ := claimLimited(t, s, p, 10)
	last := uuid.MustParse(db.QueryString(t, `select task_uuid::text from tasker.board where callable < 0 order by seq desc limit 1`))
	_, err := s.Reprioritise(t.Context(), last, 100, by("ana", "why"))
	require.NoError(t, err)
	report(t, s, succeed(first[0], `{}`))
	applyAll(t, s)
	next, _ := claimLimited(t, s, p, 10)
	require.Len(t, next, 1)
	require.NotEqual(t, last, next[0].TaskUUID)
	noViolations(t, s)
}
