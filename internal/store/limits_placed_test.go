package store_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

// known creates a task of each key, so that the keys have lines, and ends them.
func known(t testing.TB, s *store.Store, p *store.Plan, keys ...string) {
	limited(t, s, p, keys...)
	claimed, _ := look(t, s, p, 2*len(keys), 0, true)
	require.Len(t, claimed, len(keys))
	endAll(t, s, claimed)
	applyAll(t, s)
}

// turns are n keys by turns.
func turns(n int, keys ...string) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = keys[i%len(keys)]
	}
	return list
}

func inLines(t testing.TB, db *pgtest.DB) int {
	return db.QueryInt(t, `select count(*) from tasker.board where callable < 0`)
}

// TestManyTasksComeIntoTheLinesOfTheirKeys: all but the first of each key that is known.
func TestManyTasksComeIntoTheLinesOfTheirKeys(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1000)})
	known(t, s, p, "a", "b")
	limited(t, s, p, turns(150, "a", "b", "new")...)
	require.Equal(t, 49+49, inLines(t, db))
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.board where callable > 0 and context #>> '{tenant,id}' <> 'new'`))
	require.Equal(t, db.QueryInt(t, `select min(seq) from tasker.board`), db.QueryInt(t, `select min(seq) from tasker.board where callable > 0`), "the first waits in the line of the callable")
	claimed, _ := look(t, s, p, 200, 0, false)
	require.Len(t, claimed, 150)
	endAll(t, s, claimed)
	applyAll(t, s)
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board`))
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.limit_keys where waiting`))
	noViolations(t, s)
}

// TestStepsThatAreNotPlaced: those of limits that are direct, ordered or let no step wait, those that wait for
// their time, and creations of few tasks.
func TestStepsThatAreNotPlaced(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant})
	known(t, s, p, "a", "b")
	for name, rule := range map[string]limitrule.Rule{
		"ordered": {KeyPath: tenant, Ordered: true}, "drops": {KeyPath: tenant, MaxRunning: new(1000), Beyond: limitrule.Drop},
	} {
		setLimit(t, s, p, rule)
		limited(t, s, p, turns(100, "a", "b")...)
		require.Zero(t, inLines(t, db), name)
	}
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant})
	limited(t, s, p, turns(99, "a", "b")...)
	require.Zero(t, inLines(t, db), "few tasks")
	later := make([]store.NewTask, 100)
	for i := range later {
		later[i] = newTask(p)
		later[i].Context, later[i].StartIn = json.RawMessage(`{"tenant":{"id":"a"}}`), time.Hour
	}
	_, err := s.CreateTasks(t.Context(), later)
	require.NoError(t, err)
	require.Zero(t, inLines(t, db), "they wait for their time")
	noViolations(t, s)
}

// TestStepsOfOneTaskArePlaced: several first steps have rows of their own.
func TestStepsOfOneTaskArePlaced(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, `
name: limited
namespace_name: limited
version: 1.0.0
steps:
  - {name: one, handler: {callable: call}}
  - {name: two, handler: {callable: call}}
  - {name: three, handler: {callable: other}}
`)
	setLimit(t, s, p, limitrule.Rule{KeyTag: "tenant:", MaxRunning: new(1000)})
	create := func(n int) {
		tasks := make([]store.NewTask, n)
		for i := range tasks {
			tasks[i] = newTask(p)
			tasks[i].Tags = []string{"x", "tenant:a", "tenant:b"}
		}
		_, err := s.CreateTasks(t.Context(), tasks)
		require.NoError(t, err)
	}
	create(1)
	claimed, _ := look(t, s, p, 10, 0, true)
	require.Len(t, claimed, 2)
	require.Equal(t, "a", db.QueryString(t, `select key from tasker.limit_keys`))
	create(100)
	require.Equal(t, 2*100-1, inLines(t, db))
	claimed, _, _, err := s.ClaimLimited(t.Context(), store.ClaimRequest{Worker: uuid.New(), Callables: p.Callables[:1], Limit: 300, Lease: time.Minute}, false)
	require.NoError(t, err)
	require.Len(t, claimed, 200)
	require.Len(t, claim(t, s, p, 300), 101, "of the handler without a limit")
	noViolations(t, s)
}

// TestStepsOfAKeyWhoseFirstStepIsCancelled: MarkWaiting finds them, and its transaction sends their signals.
func TestStepsOfAKeyWhoseFirstStepIsCancelled(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1000)})
	known(t, s, p, "a", "b", "c")
	limited(t, s, p, turns(300, "a", "b", "c")...)
	for _, key := range []string{"a", "b"} {
		cancel(t, s, uuid.MustParse(db.QueryString(t, `select task_uuid::text from tasker.board where callable > 0 and context #>> '{tenant,id}' = $1`, key)), "not needed")
	}
	claimed, _ := look(t, s, p, 500, 0, true)
	require.Len(t, claimed, 100, "of c")
	limited(t, s, p, "c")
	var sent []signal.Signal
	sends, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 2, Publish: func(list ...signal.Signal) { sent = append(sent, list...) }})
	require.NoError(t, err)
	t.Cleanup(sends.Close)
	marked, next, signals, err := sends.MarkWaiting(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, []int{2, 0}, []int{marked, int(next)})
	require.Len(t, signals, 1)
	require.Equal(t, signals, sent)
	marked, _, signals, err = s.MarkWaiting(t.Context(), 0)
	require.NoError(t, err)
	require.Zero(t, marked)
	require.Empty(t, signals)
	claimed, _ = look(t, s, p, 500, 0, false)
	require.Len(t, claimed, 2*99+1)
	noViolations(t, s)
}

// TestARemovalOfALimitWaitsForCreations that have placed steps and are not committed, and so does that
// of a program that does not know of them, and the removal of idle keys.
func TestARemovalOfALimitWaitsForCreations(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	db.Exec(t, `create function held() returns trigger language plpgsql as $$ begin
		perform set_config('lock_timeout', '0', true), pg_advisory_xact_lock_shared(1); return new; end $$`)
	db.Exec(t, `create trigger held before insert on tasker.board for each row when (new.callable < 0) execute function held()`)
	wait := func(sessions int) {
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			n := db.QueryInt(t, `select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'advisory'`)
			return n == sessions, fmt.Sprintf("%d sessions wait", n)
		})
	}
	during := func(remove func() error) error {
		setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(1000)})
		known(t, s, p, "a")
		idleFor(t, db, p, 8)
		removed := make(chan error, 1)
		var group conc.WaitGroup
		require.NoError(t, pgx.BeginFunc(t.Context(), db.Pool(t), func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `select pg_advisory_xact_lock(1)`)
			group.Go(func() { limited(t, s, p, turns(150, "a")...) })
			wait(1)
			group.Go(func() { removed <- remove() })
			wait(2)
			return err
		}))
		group.Wait()
		return <-removed
	}
	end := func(claimed []store.Claimed) {
		require.Len(t, claimed, 150)
		endAll(t, s, claimed)
		applyAll(t, s)
	}
	require.NoError(t, during(func() error {
		forgotten, _, err := s.ForgetKeys(t.Context(), 0, false)
		require.Zero(t, forgotten)
		return err
	}))
	require.Equal(t, 149, inLines(t, db))
	claimed, _ := look(t, s, p, 500, 0, false)
	end(claimed)

	require.NoError(t, during(func() error {
		_, err := s.DeleteLimit(t.Context(), "limited", p.Steps[0].Handler, "ana", "why")
		return err
	}))
	require.Zero(t, inLines(t, db))
	end(claim(t, s, p, 500))

	require.ErrorContains(t, during(func() error {
		_, err := db.Pool(t).Exec(t.Context(), `delete from tasker.limit_keys where callable_id = $1`, p.Callables[0])
		return err
	}), "steps wait in its line")
	require.Equal(t, 149, inLines(t, db))
	claimed, _ = look(t, s, p, 500, 0, false)
	end(claimed)
	noViolations(t, s)
}

// TestCreationsRaceClaimsAndLimits: three processes create many tasks while the limit comes and goes, keys become empty
// and three others claim. Each task ends once, and none stays in a line.
func TestCreationsRaceClaimsAndLimits(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	rule := limitrule.Rule{KeyPath: tenant, MaxRunning: new(100)}
	setLimit(t, s, p, rule)
	known(t, s, p, turns(7, "k0", "k1", "k2", "k3", "k4", "k5", "k6")...)
	const creators, batches, size = 3, 6, 120
	var created, ended atomic.Int32
	var mu sync.Mutex
	ran := map[uuid.UUID]bool{}
	var group conc.WaitGroup
	for n := range creators {
		s := another(t, db)
		group.Go(func() {
			defer created.Add(1)
			for b := range batches {
				keys := make([]string, size)
				for i := range keys {
					keys[i] = fmt.Sprintf("k%d", (n+b+i)%(3+2*b)) // some are new
				}
				limited(t, s, p, keys...)
			}
		})
	}
	done := func() bool { return ended.Load() == creators*batches*size || t.Failed() || t.Context().Err() != nil }
	for worker := range 3 {
		s := another(t, db)
		group.Go(func() {
			for i := 0; !done(); i++ {
				claimed, _ := look(t, s, p, 40, 20*(i%2), i%5 == 0)
				for _, c := range append(claimed, claim(t, s, p, 5)...) {
					mu.Lock()
					if ran[c.TaskUUID] || c.Attempt != 1 {
						t.Errorf("task %s, attempt %d again", c.TaskUUID, c.Attempt)
					}
					ran[c.TaskUUID] = true
					mu.Unlock()
					report(t, s, succeed(c, `{}`))
					ended.Add(1)
				}
				if worker == 0 {
					_, _, _, err := s.MarkWaiting(t.Context(), 0)
					if err != nil {
						t.Error(err)
					}
				}
				if len(claimed) == 0 {
					_, err := s.SortLimited(t.Context(), p.Callables[0], nil)
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for i := 0; created.Load() < creators && !done(); i++ {
		if i%2 == 0 {
			_, err := s.DeleteLimit(t.Context(), "limited", p.Steps[0].Handler, "ana", "why")
			require.NoError(t, err)
		}
		setLimit(t, s, p, rule)
	}
	group.Wait()
	applyAll(t, s)
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board`))
	noViolations(t, s)
}

// TestKeysAreFoundAsByPostgreSQL: where a creation knows the key of a task, it is the one by which its step would be sorted.
func TestKeysAreFoundAsByPostgreSQL(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	texts := rapid.SampledFrom([]string{`"a"`, `"b"`, `"\u0061"`, `"ä\n\"\\\/"`, `"\ud83d\ude00"`, `"x y"`, `""`, `1`, `-0`, `0`, `-17`, `12345678901234567890123`, `1.50`, `1e3`, `true`, `false`, `null`, `[]`, `["a"]`, `[[{"a":1}],2]`, `{}`})
	names := rapid.SampledFrom([]string{"a", "b", `\u0061`, "0"})
	var value func(depth int) *rapid.Generator[string]
	value = func(depth int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			if depth == 0 || rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
				return texts.Draw(t, "text")
			}
			doc := ""
			for i := range rapid.IntRange(0, 4).Draw(t, "members") {
				if i > 0 {
					doc += ", "
				}
				doc += `"` + names.Draw(t, "name") + `": ` + value(depth-1).Draw(t, "member")
			}
			return "{" + doc + " }"
		})
	}
	found := 0
	rapid.Check(t, func(r *rapid.T) {
		doc := value(4).Draw(r, "context")
		path := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "0"}), 1, 3).Draw(r, "path")
		key, known := (&limitrule.Key{KeyPath: path}).Of([]byte(doc), nil)
		if !known {
			return
		}
		found++
		if want := db.QueryString(t, `select coalesce($1::text::jsonb #>> $2::text[], '')`, doc, path); key != want {
			r.Fatalf("key %q, want %q", key, want)
		}
	})
	require.Greater(t, found, 20, "keys are known")
}
