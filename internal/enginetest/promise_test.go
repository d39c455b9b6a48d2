package enginetest_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

const promiseYAML = `
name: promise
namespace_name: promises
version: 1.0.0
steps:
  - name: keep
    handler: {callable: keep}
    retry: {retryable: true, max_attempts: 1000, backoff: fixed, backoff_base_ms: 1}
`

// broken lists the steps for which only one of the business row and the completion
// exists. It is one statement, with one snapshot.
const broken = `
select count(*)::int from (
    select task_uuid, count(*) filter (where kind = 'row') as rows, count(*) filter (where kind = 'step') as steps from (
        select task_uuid, 'row' as kind from kept
        union all select task_uuid, 'step' from tasker.board where state = 4 and outcome = 1 and step_no is not null
        union all select task_uuid, 'step' from tasker.step_attempts where outcome = 1
    ) all_of_them group by task_uuid
) s where rows <> steps or rows > 1`

// unfaithful counts the rows written by an execution other than the one that completed
// the step.
const unfaithful = `
select count(*)::int from kept k join tasker.step_attempts a using (task_uuid)
where a.outcome = 1 and (a.attempt <> k.attempt or a.token <> k.token or a.result::text::int <> k.attempt)`

func registerPromise(w *worker.Worker, keep func(*worker.StepContext, store.Tx) (any, error)) error {
	tmpl, _, err := template.Parse("promise.yaml", []byte(promiseYAML))
	if err == nil {
		err = w.RegisterTemplate(tmpl)
	}
	if err != nil {
		return err
	}
	return w.Register("keep", worker.InTx(keep))
}

// keep writes the business row of a step. A second one violates the key.
func keep(ctx *worker.StepContext, tx pgx.Tx) (any, error) {
	_, err := tx.Exec(ctx, `insert into kept (task_uuid, attempt, token) values ($1, $2, $3)`, ctx.TaskUUID(), ctx.Attempt(), ctx.Token())
	return ctx.Attempt(), err
}

const keptTable = `create table kept (task_uuid uuid primary key, attempt int not null, token bigint not null)`

// TestThePromise: a handler's writes in its transaction and the completion of its step
// are committed together or not at all, wherever the connection breaks; and every step
// completes once. Connections are killed between "the row is written" and "the step is
// complete": by the server, at any moment around the report and the commit, and by a
// proxy, at each relevant moment.
func TestThePromise(t *testing.T) {
	t.Parallel()
	kills := 300
	switch {
	case testing.Short():
		kills = 150
	case pgtest.FullSize():
		kills = 1000
	}
	p := newPromise(t, kills)
	ids := make([]uuid.UUID, kills/3)
	for i := range ids {
		ids[i] = p.Submit("promises", "promise", fmt.Sprintf(`{"i":%d}`, i))
	}
	stop := p.watch()
	for _, id := range ids {
		require.Equal(t, workflow.TaskComplete, p.Await(id).State)
	}
	require.Zero(t, stop(), "a row without its completion, or the other way round, was seen")
	require.Zero(t, p.DB.QueryInt(t, broken))
	require.Zero(t, p.DB.QueryInt(t, unfaithful))
	require.Equal(t, len(ids), p.DB.QueryInt(t, `select count(*) from kept`))
	require.Equal(t, len(ids), p.DB.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 1`))
	require.Zero(t, p.DB.QueryInt(t, `select count(*) from tasker.step_attempts where error->>'message' like '%kept_pkey%'`), "no committed step ran again")
	require.GreaterOrEqual(t, int(p.killed.Load()), kills, "the handlers ran often enough to be killed that often")
	attempts := p.DB.QueryInt(t, `select count(*) from tasker.step_attempts`)
	require.Zero(t, p.DB.QueryInt(t, `select count(*) from tasker.step_attempts where outcome = 4`), "no lease had to end for it")
	t.Logf("%d kills, %d steps, %d attempts, %.0f commits of unknown fate, kills %v", min(p.killed.Load(), p.wanted), len(ids), attempts,
		testutil.ToFloat64(p.metrics.CommitsUnknown), p.tally())
	require.Positive(t, testutil.ToFloat64(p.metrics.CommitsUnknown))
}

// The worker's knowledge after each cut, and its reaction.
func TestEachCut(t *testing.T) {
	t.Parallel()
	for _, c := range cuts {
		t.Run(string(c), func(t *testing.T) {
			t.Parallel()
			want := map[cut]struct {
				unknown  []float64 // commits with an unknown outcome
				attempts []int     // allowed numbers
			}{
				cutBeforeReport: {[]float64{0}, []int{2}}, cutAfterReport: {[]float64{0}, []int{2}}, cutBeforeCommit: {[]float64{1}, []int{2}},
				cutUnderCommit:  {[]float64{0, 1}, []int{1, 2}}, // the answer may be faster than the cut
				cutCommitAnswer: {[]float64{1}, []int{1}}, cutCommitTravels: {[]float64{1}, []int{1}}, cutCommitVanishes: {[]float64{1}, []int{2}},
			}[c]
			p := newPromise(t, 0)
			p.always = c
			task := p.Run("promises", "promise", `{}`)
			require.Equal(t, workflow.TaskComplete, task.State)
			require.Contains(t, want.attempts, task.Steps[0].Attempts)
			require.Zero(t, p.DB.QueryInt(t, broken)+p.DB.QueryInt(t, unfaithful))
			// The task may be complete before its worker has the answer to its commit.
			pgtest.Eventually(t, patience, func() (bool, string) {
				h := p.Worker.Health()
				return h.Succeeded == 1, fmt.Sprintf("%+v", h)
			})
			h := p.Worker.Health()
			require.Contains(t, want.unknown, testutil.ToFloat64(p.metrics.CommitsUnknown))
			require.EqualValues(t, task.Steps[0].Attempts-1, h.Failed, "a committed step is not a failure")
			require.Zero(t, h.Stale)
			require.Equal(t, task.Steps[0].Attempts-1, p.DB.QueryInt(t, `select count(*) from tasker.step_attempts where error->>'error_type' = 'TransactionFailed' and (error->>'retryable')::bool`))
		})
	}
}

// promise is an engine whose handlers' connections are killed.
type promise struct {
	*enginetest.Engine
	t       *testing.T
	metrics *telemetry.Metrics
	always  cut // of first attempts; "": random
	wanted  int64
	killed  atomic.Int64
	kills   sync.WaitGroup
	admin   *pgxpool.Pool

	mu    sync.Mutex
	kinds map[string]int
}

func newPromise(t *testing.T, kills int) *promise {
	t.Helper()
	p := &promise{t: t, metrics: telemetry.Discard(), wanted: int64(kills), kinds: map[string]int{}}
	p.Engine = enginetest.Start(t, func(w *worker.Worker) error { return registerPromise(w, p.keep) },
		func(oc *orchestration.Config, wc *worker.Config) {
			p.admin = oc.Store.Execer()
			_, err := p.admin.Exec(t.Context(), keptTable)
			require.NoError(t, err)
			wc.Metrics, wc.MaxConcurrent, wc.HeartbeatInterval = p.metrics, 32, 20*time.Millisecond
			wc.Transactions.Pool = sever(t, p.admin, 32)
		})
	t.Cleanup(p.kills.Wait)
	return p
}

// keep writes the row and kills the connection until there have been enough kills.
func (p *promise) keep(ctx *worker.StepContext, tx pgx.Tx) (any, error) {
	result, err := keep(ctx, tx)
	if p.always != "" && ctx.Attempt() == 1 && err == nil {
		_, err = tx.Exec(ctx, "select 1 /*"+string(p.always)+"*/")
		return result, err
	}
	if err != nil || p.killed.Add(1) > p.wanted {
		return result, err
	}
	if kind := rand.IntN(2 * len(cuts)); kind < len(cuts) {
		p.note(string(cuts[kind]))
		_, err = tx.Exec(ctx, "select 1 /*"+string(cuts[kind])+"*/")
		return result, err
	}
	p.note("backend terminated")
	pid := tx.Conn().PgConn().PID()
	at := time.NewTimer(time.Duration(rand.IntN(3000)) * time.Microsecond) // takes time: the fault falls at a random moment
	p.kills.Go(func() {
		<-at.C
		// It may have been committed by now, and the connection be in use for another
		// step.
		_, _ = p.admin.Exec(context.WithoutCancel(p.t.Context()), `select pg_terminate_backend($1)`, pid)
	})
	return result, nil
}

func (p *promise) note(kind string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kinds[kind]++
}

func (p *promise) tally() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.kinds)
}

// watch checks continuously that rows and completions match; stop returns the number of
// mismatches.
func (p *promise) watch() (stop func() int) {
	over, seen := make(chan struct{}), make(chan int, 1)
	go func() {
		worst := 0
		for {
			select {
			case <-over:
				seen <- worst
				return
			case <-time.After(20 * time.Millisecond): // takes time: checks during the whole run
			}
			var n int
			if err := p.admin.QueryRow(context.WithoutCancel(p.t.Context()), broken).Scan(&n); err == nil {
				worst = max(worst, n)
			}
		}
	}()
	return func() int {
		close(over)
		return <-seen
	}
}
