package orchestration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/admission"
	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/inproc"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

const oneStepYAML = `
name: one
namespace_name: many
version: 1.0.0
steps:
  - name: only
    handler: {callable: test.ok}
`

// manyHouse is an orchestrator over a database of its own, without workers.
type manyHouse struct {
	*orchestration.Orchestrator
	store   *store.Store
	db      *pgtest.DB
	metrics *telemetry.Metrics
}

// startMany runs an orchestrator that creates ten tasks per transaction. The
// records are checked when the test ends.
func startMany(t *testing.T) *manyHouse {
	t.Helper()
	s, db := enginetest.OpenStore(t)
	template, _, err := template.Parse("one.yaml", []byte(oneStepYAML))
	require.NoError(t, err)
	_, err = s.RegisterTemplates(t.Context(), store.Registrant{Environment: "test"}, []*workflow.Template{template})
	require.NoError(t, err)
	bus, rules := inproc.New(), workflow.Rules{MaxCrashes: 3}
	shared := listener.New(listener.Config{Source: bus})
	system := func(id string) coordinator.Config {
		return enginetest.Completed(t, coordinator.Config{SystemID: id, Mode: deploymode.EventDrivenOnly, Listener: shared})
	}
	c := enginetest.Configured(t)
	c.Store, c.Publisher, c.Rules, c.CreateBatch = s, bus, rules, 10
	c.Metrics = telemetry.NewMetrics(prometheus.NewRegistry())
	c.Orchestration, c.Readiness = system("orchestration"), system("task_readiness")
	o, err := orchestration.New(c)
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, o.Stop(ctx))
		report, err := s.CheckIntegrity(ctx, rules)
		require.NoError(t, err)
		require.Empty(t, report.Violations)
	})
	return &manyHouse{Orchestrator: o, store: s, db: db, metrics: c.Metrics}
}

func numbered(n int) orchestration.Request {
	return orchestration.Request{Namespace: "many", Name: "one", Version: "1.0.0", Context: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}
}

func TestCreateManyCreatesEachForItself(t *testing.T) {
	t.Parallel()
	o := startMany(t)
	before, err := o.Create(t.Context(), numbered(7))
	require.NoError(t, err)
	keyed := numbered(1000)
	keyed.IdempotencyKey = "k"

	requests := make([]orchestration.Request, 0, 64)
	for n := range 55 {
		requests = append(requests, numbered(n))
	}
	nowhere, bad := numbered(2000), numbered(2001)
	nowhere.Name, bad.Context = "nowhere", json.RawMessage(`[]`)
	requests = append(requests, keyed, numbered(3), keyed, nowhere, bad, numbered(7))
	results := o.CreateMany(t.Context(), requests)
	require.Len(t, results, len(requests))

	seen := map[uuid.UUID]bool{before.UUID: true}
	for i, r := range results[:56] {
		if i == 7 {
			var duplicate *orchestration.DuplicateError
			require.ErrorAs(t, r.Err, &duplicate)
			require.Zero(t, duplicate.Existing, "a guessed context must not reveal an identifier")
			continue
		}
		require.NoError(t, r.Err, i)
		require.False(t, seen[r.UUID])
		seen[r.UUID] = true
		task, err := o.store.Task(t.Context(), r.UUID)
		require.NoError(t, err)
		require.JSONEq(t, string(requests[i].Context), string(task.Context))
		require.True(t, task.RequestedAt.Equal(r.RequestedAt))
	}
	var duplicate *orchestration.DuplicateError
	require.ErrorAs(t, results[56].Err, &duplicate)
	require.Zero(t, duplicate.Existing)
	require.ErrorAs(t, results[57].Err, &duplicate)
	require.Equal(t, results[55].UUID, duplicate.Existing, "the first of the batch has the key")
	var unknown *orchestration.UnknownTemplateError
	require.ErrorAs(t, results[58].Err, &unknown)
	var invalid *orchestration.InvalidError
	require.ErrorAs(t, results[59].Err, &invalid)
	require.ErrorAs(t, results[60].Err, &duplicate)
	require.Equal(t, 56, o.db.QueryInt(t, `select count(*) from tasker.tasks`))
	require.Empty(t, o.CreateMany(t.Context(), nil))
}

// A request that repeats the key of another keeps its own policy, and does not pay for the faults
// of that one.
func TestCreateManyJudgesRepeatsForThemselves(t *testing.T) {
	t.Parallel()
	o := startMany(t)
	request := func(key string, n int, policy submission.ConflictPolicy) orchestration.Request {
		r := numbered(n)
		r.IdempotencyKey, r.Conflict = key, policy
		return r
	}
	before, err := o.Create(t.Context(), request("old", 1, ""))
	require.NoError(t, err)
	broken := request("new", 2, "")
	broken.DependsOn = []uuid.UUID{uuid.New()}
	results := o.CreateMany(t.Context(), []orchestration.Request{
		request("old", 1, ""), request("old", 1, submission.ConflictUseExisting), request("old", 1, ""),
		broken, request("new", 3, ""), request("new", 4, submission.ConflictUseExisting), request("new", 5, ""), broken,
	})
	var duplicate *orchestration.DuplicateError
	require.ErrorAs(t, results[0].Err, &duplicate)
	require.Equal(t, before.UUID, duplicate.Existing)
	require.NoError(t, results[1].Err, "its policy is its own")
	require.True(t, results[1].Existing)
	require.Equal(t, before.UUID, results[1].UUID)
	require.ErrorAs(t, results[2].Err, &duplicate)
	_, err = o.db.Pool(t).Exec(t.Context(), `update tasker.board set task_state = $2 where task_uuid = $1`, before.UUID, workflow.TaskWaitingForRetry)
	require.NoError(t, err)
	found := o.CreateMany(t.Context(), []orchestration.Request{request("old", 1, submission.ConflictUseExisting), request("old", 1, "")})
	require.Equal(t, workflow.TaskWaitingForRetry, found[0].State)
	require.ErrorAs(t, found[1].Err, &duplicate)
	require.Equal(t, found[0].State, duplicate.State, "the task was there before both")

	var invalid *orchestration.InvalidError
	require.ErrorAs(t, results[3].Err, &invalid)
	require.NoError(t, results[4].Err, "its dependencies are not those of the request before")
	task, err := o.store.Task(t.Context(), results[4].UUID)
	require.NoError(t, err)
	require.JSONEq(t, `{"n":3}`, string(task.Context))
	require.NoError(t, results[5].Err)
	require.True(t, results[5].Existing)
	require.Equal(t, results[4].UUID, results[5].UUID)
	require.ErrorAs(t, results[6].Err, &duplicate)
	require.Equal(t, results[4].UUID, duplicate.Existing)
	require.ErrorAs(t, results[7].Err, &duplicate, "it comes after the one that created the task")
	require.Equal(t, 2, o.db.QueryInt(t, `select count(*) from tasker.tasks`))
}

// Concurrent callers with the same tasks in different orders get each task once and
// do not deadlock.
func TestCreateManyAtOnce(t *testing.T) {
	t.Parallel()
	o := startMany(t)
	const callers, tasks = 4, 95
	created := make([]int, callers)
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			requests := make([]orchestration.Request, tasks)
			for i := range requests {
				requests[i] = numbered((i*7 + c*31) % tasks)
			}
			for _, r := range o.CreateMany(t.Context(), requests) {
				var duplicate *orchestration.DuplicateError
				switch {
				case r.Err == nil:
					created[c]++
				case !errors.As(r.Err, &duplicate):
					t.Error(r.Err)
				}
			}
		})
	}
	group.Wait()
	total := 0
	for _, n := range created {
		total += n
	}
	require.Equal(t, tasks, total)
}

func TestCreateManyStops(t *testing.T) {
	t.Parallel()
	o := startMany(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range o.CreateMany(ctx, []orchestration.Request{numbered(1), numbered(2)}) {
		require.ErrorIs(t, r.Err, context.Canceled)
	}
	stop, done := context.WithTimeout(context.Background(), 20*time.Second)
	defer done()
	require.NoError(t, o.Stop(stop))
	for _, r := range o.CreateMany(t.Context(), []orchestration.Request{numbered(1), numbered(2)}) {
		require.ErrorIs(t, r.Err, command.ErrStopped)
	}
}

// Debounced requests of one call become one task with the context of the last, over all of
// its transactions and with repetitions in between; throttled ones are refused and counted.
func TestCreateManyKeepsTheOrderOfLimitedRequests(t *testing.T) {
	t.Parallel()
	o := startMany(t)
	limit := func(rules admission.Rules) {
		require.NoError(t, o.SetSubmissionLimit(t.Context(), "many", "one", rules, orchestration.Why{Actor: "ana", Reason: "why"}))
	}
	limit(admission.Rules{Debounce: &admission.Debounce{QuietMS: 3_600_000}})
	requests := []orchestration.Request{}
	for i := range 47 {
		requests = append(requests, numbered(i%13))
	}
	var first uuid.UUID
	for i, r := range o.CreateMany(t.Context(), requests) {
		require.NoError(t, r.Err, i)
		if i == 0 {
			first = r.UUID
		}
		require.Equal(t, first, r.UUID)
		require.Equal(t, i > 0, r.Existing, i)
	}
	require.JSONEq(t, string(requests[46].Context), o.db.QueryString(t, `select context::text from tasker.tasks`))

	limit(admission.Rules{Throttle: &admission.Throttle{Max: 3, PeriodMS: 3_600_000}})
	var fast *submission.ThrottleError
	for i := range requests {
		requests[i] = numbered(100 + i)
	}
	for i, r := range o.CreateMany(t.Context(), requests) {
		if i < 3 {
			require.NoError(t, r.Err, i)
			continue
		}
		require.ErrorAs(t, r.Err, &fast)
		require.Equal(t, "many/one", fast.Template)
		require.Positive(t, fast.RetryAfter)
	}
	_, err := o.Create(t.Context(), numbered(200))
	require.ErrorAs(t, err, &fast)
	require.InDelta(t, 45, testutil.ToFloat64(o.metrics.BackpressureRefusals.WithLabelValues("throttle")), 0)
	limit(admission.Rules{})
	_, err = o.Create(t.Context(), numbered(200))
	require.NoError(t, err)
}
