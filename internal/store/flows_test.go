package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/perfguard"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

const oneStepYAML = `
name: one
namespace_name: flows
version: 1.0.0
steps:
  - name: only
    handler: {callable: only}
`

// flow is one of the hot flows over a number of one-step tasks. Each continues where the
// previous one ended.
type flow struct {
	name string
	// statements is the budget for any number of tasks, without those inside functions.
	statements float64
	run        func(tb testing.TB, life *life)
}

// life is the life of tasks, flow by flow.
type life struct {
	store   *store.Store
	plan    *store.Plan
	tasks   int
	claimed []store.Claimed
}

var flows = []flow{
	// many are copied: begin with its bounds (one round trip), clock, identities, ledger, numbers in line, board, commit
	{"create", 8, func(tb testing.TB, l *life) {
		tasks := make([]store.NewTask, l.tasks)
		for i := range tasks {
			tasks[i] = newTask(l.plan)
		}
		_, err := l.store.CreateTasks(tb.Context(), tasks)
		require.NoError(tb, err)
		receiveLanes(l.store, store.CreateSignals(tasks[:1]))
	}},
	{"claim", 2, func(tb testing.TB, l *life) { // a large one waits for its lock first
		var err error
		l.claimed, _, err = l.store.Claim(tb.Context(), store.ClaimRequest{Worker: uuid.Max, Callables: l.plan.Callables, Limit: l.tasks, Lease: time.Minute}, false)
		require.NoError(tb, err)
		require.Len(tb, l.claimed, l.tasks)
	}},
	{"report", 1, func(tb testing.TB, l *life) {
		reports := make([]store.Report, len(l.claimed))
		for i := range reports {
			reports[i] = succeed(l.claimed[i], `{"n":1}`)
		}
		accepted, err := l.store.Report(tb.Context(), reports)
		require.NoError(tb, err)
		require.NotContains(tb, accepted, false)
	}},
	{"apply", 5, func(tb testing.TB, l *life) { // begin with its bounds (one round trip with the take), take, leave the board, commit
		taken, err := l.store.TakeReported(tb.Context(), l.tasks, false)
		require.NoError(tb, err)
		require.Len(tb, taken.Tasks, l.tasks)
		_, err = taken.Commit(tb.Context(), uuid.Max, decide(tb, taken.Tasks))
		require.NoError(tb, err)
	}},
}

var flowSizes = []int{1, 100}

// TestStatementsDoNotGrowWithTheBatch counts the statements sent to the server.
func TestStatementsDoNotGrowWithTheBatch(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, map[string]string{"shared_preload_libraries": "pg_stat_statements"}).New(t)
	require.NoError(t, migrate(t.Context(), db.DSN))
	db.Exec(t, `create extension pg_stat_statements`)
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 1})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	l := &life{store: s, plan: plan(t, s, oneStepYAML)}
	_, err = s.Callables(t.Context())
	require.NoError(t, err)
	// begin with its bounds (one round trip), lock, read under the locks, create, move on, commit
	all := slices.Concat(flows, []flow{{"run schedules", 7, func(tb testing.TB, l *life) {
		fired, err := l.store.RunDueSchedules(tb.Context(), store.UpTo(l.tasks), runEach(tb))
		require.NoError(tb, err)
		require.Len(tb, fired.Accepted, l.tasks)
	}}})
	for _, l.tasks = range flowSizes {
		makeSchedules(t, db, l.tasks)
		for _, f := range all {
			db.Exec(t, `select pg_stat_statements_reset()`)
			f.run(t, l)
			calls := db.QueryInt(t, `select coalesce(sum(calls), 0)::int from pg_stat_statements where query !~ 'pg_stat_statements'`)
			require.Positive(t, calls, "nothing was counted")
			perfguard.Within(t, "statements", fmt.Sprintf("%s of %d", f.name, l.tasks), float64(calls), f.statements)
		}
	}
}

// BenchmarkFlows takes one-step tasks through their life and reports the time of each
// flow per task.
func BenchmarkFlows(b *testing.B) {
	for _, tasks := range flowSizes {
		b.Run(fmt.Sprint(tasks), func(b *testing.B) {
			s, _ := open(b)
			l := &life{store: s, plan: plan(b, s, oneStepYAML), tasks: tasks}
			_, err := s.Callables(b.Context())
			require.NoError(b, err)
			took := make([]time.Duration, len(flows))
			rounds := 0
			for b.Loop() {
				rounds++
				for i, f := range flows {
					begin := time.Now()
					f.run(b, l)
					took[i] += time.Since(begin)
				}
			}
			for i, f := range flows {
				b.ReportMetric(float64(took[i].Microseconds())/float64(rounds*tasks), "µs-"+f.name+"/task")
			}
		})
	}
}
