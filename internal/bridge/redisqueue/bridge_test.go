//go:build unix

package redisqueue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/bridge"
	"github.com/tasker-go/tasker/internal/bridge/redisqueue"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/redistest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.With(m)) }

const patience = 30 * time.Second

// lanes is a Redis with jobs in front of an engine that has the task type EMAIL.
type lanes struct {
	t      *testing.T
	engine *enginetest.Engine
	server *redistest.Server
	redis  *goredis.Client
}

func newLanes(t *testing.T) *lanes {
	t.Helper()
	l := &lanes{t: t, server: redistest.Start(t)}
	l.redis = l.server.Client(t)
	l.engine = enginetest.Start(t, func(w *worker.Worker) error {
		return w.Register("EMAIL", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return "sent", nil }))
	}, func(_ *orchestration.Config, w *worker.Config) { w.Namespaces = []string{"jobs"} })
	_, err := l.engine.Orchestrator.RegisterTaskType(t.Context(), &workflow.Template{Namespace: "jobs", Name: "EMAIL", Version: "1.0.0",
		Steps: []workflow.StepTemplate{{Name: "run", Kind: workflow.KindStandard, Handler: workflow.HandlerReference{Callable: "EMAIL"}}}},
		orchestration.Why{Actor: "test", Reason: "test"})
	require.NoError(t, err)
	return l
}

// bridge makes one that is not started.
func (l *lanes) bridge(engine bridge.Engine, reclaim time.Duration) *redisqueue.Bridge {
	l.t.Helper()
	b, err := redisqueue.New(redisqueue.Config{URL: l.server.URL, Prefix: "tq", BatchSize: 50, Interval: 5 * time.Millisecond, ReclaimAfter: reclaim,
		Timeout: time.Second, Logger: zap.NewNop(), Door: bridge.Door{Engine: engine, Admitted: func(string) bool { return true }, Metrics: telemetry.Discard()}})
	require.NoError(l.t, err)
	return b
}

// run starts a bridge until the test ends.
func (l *lanes) run(engine bridge.Engine, reclaim time.Duration) {
	l.t.Helper()
	b := l.bridge(engine, reclaim)
	require.NoError(l.t, b.Start(l.t.Context()))
	l.t.Cleanup(func() { l.stop(b) })
}

func (l *lanes) stop(b *redisqueue.Bridge) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(l.t, b.Stop(ctx))
}

func job(n int) string {
	return fmt.Sprintf(`{"id":"job-%d","type":"EMAIL","payload":"{\"n\":%d}","priority":"HIGH"}`, n, n)
}

func (l *lanes) push(list string, jobs ...any) {
	l.t.Helper()
	require.NoError(l.t, l.redis.RPush(l.t.Context(), "tq:queue:"+list, jobs...).Err())
}

// emptied waits until no job is in a lane or being moved, and returns the dead letters.
func (l *lanes) emptied() (letters []string) {
	l.t.Helper()
	pgtest.Eventually(l.t, patience, func() (bool, string) {
		left, err := l.redis.Keys(l.t.Context(), "tq:*").Result()
		if err == nil {
			letters, err = l.redis.LRange(l.t.Context(), "tq:dlq", 0, -1).Result()
		}
		return err == nil && (len(left) == 0 || len(left) == 1 && left[0] == "tq:dlq"), fmt.Sprint(left, err)
	})
	return letters
}

func (l *lanes) tasks() int {
	l.t.Helper()
	return l.engine.DB.QueryInt(l.t, `select count(*) from tasker.v_tasks`)
}

// done waits until all tasks are complete, of which there are n.
func (l *lanes) done(n int) {
	l.t.Helper()
	pgtest.Eventually(l.t, patience, func() (bool, string) {
		complete := l.engine.DB.QueryInt(l.t, `select count(*) from tasker.v_tasks where state = 'complete'`)
		return complete == n && l.tasks() == n, fmt.Sprintf("%d of %d tasks are complete", complete, l.tasks())
	})
}

// TestJobsOfAllLanesBecomeTasks, from lists and sorted sets, in the priority of their lane.
func TestJobsOfAllLanesBecomeTasks(t *testing.T) {
	t.Parallel()
	l := newLanes(t)
	l.push("high", job(1))
	l.push("normal", job(2), `{"jobId":"job-3","type":"EMAIL","payload":{"n":3}}`)
	require.NoError(t, l.redis.ZAdd(t.Context(), "tq:sorted:low", goredis.Z{Score: 2, Member: job(4)}, goredis.Z{Score: 1, Member: job(5)}).Err())
	l.run(l.engine.Orchestrator, time.Hour)
	require.Empty(t, l.emptied())
	l.done(5)
	require.Equal(t, `1:50 2:0 3:0 4:-50 5:-50`, l.engine.DB.QueryString(t,
		`select string_agg((context->>'n') || ':' || priority, ' ' order by context->>'n') from tasker.v_tasks where name = 'EMAIL'`))
	l.push("high", job(1)) // pushed again
	require.Empty(t, l.emptied())
	l.done(5)
}

// TestWhatIsNoJobBecomesADeadLetter, with the reason, and holds up no other.
func TestWhatIsNoJobBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	l := newLanes(t)
	wrong := map[string]string{
		"no json":                                      "want a JSON object",
		`{"type":"EMAIL","payload":{}}`:                "want a JSON object",
		`["job-1"]`:                                    "want a JSON object",
		`{"id":7,"type":"EMAIL"}`:                      "want a JSON object",
		`{"id":"a","type":["EMAIL"]}`:                  "want a JSON object",
		`{"id":"b","type":"FAX"}`:                      "Unknown task type: FAX",
		`{"id":"c","type":"EMAIL"}`:                    "context",
		`{"id":"d","type":"EMAIL","payload":"text"}`:   "context",
		`{"id":"e","type":"EM\u0000AIL","payload":{}}`: "Unknown task type: EM",
	}
	for text := range wrong {
		l.push("normal", text)
	}
	l.push("normal", job(1))
	l.run(l.engine.Orchestrator, time.Hour)
	letters := l.emptied()
	require.Len(t, letters, len(wrong))
	for _, letter := range letters {
		var said struct{ Reason, Job string }
		require.NoError(t, json.Unmarshal([]byte(letter), &said))
		require.Contains(t, wrong, said.Job)
		require.Contains(t, said.Reason, wrong[said.Job])
	}
	l.done(1)
}

// failing is an engine that fails before or after it has created tasks.
type failing struct {
	bridge.Engine
	calls  atomic.Int64
	create bool
}

func (f *failing) CreateMany(ctx context.Context, requests []orchestration.Request) []orchestration.CreateResult {
	f.calls.Add(1)
	if f.create {
		f.Engine.CreateMany(ctx, requests)
	}
	results := make([]orchestration.CreateResult, len(requests))
	for i := range results {
		results[i].Err = fmt.Errorf("planted: %w", store.ErrUnavailable)
	}
	return results
}

// TestABridgeThatDies leaves its jobs to another one, which makes one task of each, whether
// the first has created it or not. Jobs of the other program's workers stay theirs.
func TestABridgeThatDies(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]bool{"before the creation": false, "after the creation": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLanes(t)
			for i := range 20 {
				l.push("high", job(i))
			}
			dies := &failing{Engine: l.engine.Orchestrator, create: create}
			first := l.bridge(dies, time.Hour)
			require.NoError(t, first.Start(t.Context()))
			pgtest.Eventually(t, patience, func() (bool, string) { return dies.calls.Load() > 0, "nothing was moved" })
			l.stop(first)
			moved, err := l.redis.HLen(t.Context(), "tq:processing").Result()
			require.NoError(t, err)
			require.EqualValues(t, 20, moved)

			require.NoError(t, l.redis.HSet(t.Context(), "tq:processing", "theirs", job(99)).Err())
			l.run(l.engine.Orchestrator, time.Second)
			l.done(20)
			pgtest.Eventually(t, patience, func() (bool, string) {
				left, err := l.redis.HKeys(t.Context(), "tq:processing").Result()
				return err == nil && len(left) == 1 && left[0] == "theirs", fmt.Sprint(left, err)
			})
		})
	}
}

// TestBridgesShareTheLanes: each job becomes one task, while Redis is killed and frozen, and
// bridges take up each other's jobs too early.
func TestBridgesShareTheLanes(t *testing.T) {
	t.Parallel()
	l := newLanes(t)
	const jobs = 600
	for range 3 {
		l.run(l.engine.Orchestrator, time.Second)
	}
	for i := range jobs {
		l.push([]string{"high", "normal", "low"}[i%3], job(i))
		if i == jobs/2 {
			l.server.Freeze(t)
			frozen, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond) // takes time: the bridges notice
			<-frozen.Done()
			cancel()
			l.server.Thaw(t)
		}
	}
	require.Empty(t, l.emptied())
	l.done(jobs)
	l.server.Restart(t)
	l.push("low", job(jobs))
	require.Empty(t, l.emptied())
	l.done(jobs + 1)
}

// TestAFullRedisLosesNoJob: where the script could write one half only, a job would be gone.
func TestAFullRedisLosesNoJob(t *testing.T) {
	t.Parallel()
	l := newLanes(t)
	for i := range 20 {
		l.push("high", job(i))
	}
	l.push("high", "no json")
	require.NoError(t, l.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.ErrorContains(t, l.redis.RPush(t.Context(), "tq:queue:high", job(20)).Err(), "OOM")
	l.run(l.engine.Orchestrator, time.Hour)
	require.Len(t, l.emptied(), 1)
	l.done(20)
}

// TestRefusedTasksLeaveJobsInTheirLane: back-pressure reaches Redis.
func TestRefusedTasksLeaveJobsInTheirLane(t *testing.T) {
	t.Parallel()
	l := newLanes(t)
	l.push("high", job(1))
	var welcome atomic.Bool
	metrics := telemetry.Discard()
	asked := make(chan struct{}, 1)
	core, logs := observer.New(zap.InfoLevel)
	b, err := redisqueue.New(redisqueue.Config{URL: l.server.URL, Prefix: "tq", BatchSize: 50, Interval: time.Millisecond, ReclaimAfter: time.Hour,
		Timeout: time.Second, Logger: zap.New(core), Door: bridge.Door{Engine: l.engine.Orchestrator, Metrics: metrics, Admitted: func(string) bool {
			select {
			case asked <- struct{}{}:
			default:
			}
			return welcome.Load()
		}}})
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context()))
	t.Cleanup(func() { l.stop(b) })
	<-asked
	<-asked
	length, err := l.redis.LLen(t.Context(), "tq:queue:high").Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, length)
	require.InDelta(t, time.Now().Unix(), testutil.ToFloat64(metrics.BridgeWaiting.WithLabelValues("redis")), 60)
	welcome.Store(true)
	require.Empty(t, l.emptied())
	l.done(1)
	pgtest.Eventually(t, patience, func() (bool, string) {
		return testutil.ToFloat64(metrics.BridgeWaiting.WithLabelValues("redis")) == 0, "it waits"
	})
	require.Equal(t, 1, logs.FilterMessage("jobs in Redis wait").Len())
	pgtest.Eventually(t, patience, func() (bool, string) {
		return logs.FilterMessage("jobs in Redis are taken again").Len() == 1, "the log does not say that it goes on"
	})
	require.InDelta(t, 1, testutil.ToFloat64(metrics.BrokerUp.WithLabelValues("redis_queue")), 0)
	for want := range 2 {
		pgtest.Eventually(t, patience, func() (bool, string) {
			n := testutil.ToFloat64(metrics.BridgeDeadLetters.WithLabelValues("redis"))
			return n == float64(want), fmt.Sprint(n, " dead letters")
		})
		l.push("low", "no json")
	}
}

// TestJobsOfAFullNamespaceHoldUpNoOthers: those of one namespace are refused, and the database
// rejects the task of one. The others become tasks, the refused ones once there is room, and the
// rejected one a dead letter.
func TestJobsOfAFullNamespaceHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	l := newLanes(t)
	engine := enginetest.FullNamespace(l.engine.Orchestrator)
	named := func(id string) string { return fmt.Sprintf(`{"id":%q,"type":"EMAIL","payload":{"id":%q}}`, id, id) }
	l.push("high", named("rejected"))
	for i := range 120 { // more than two batches
		l.push("high", named(fmt.Sprintf("full-%d", i)))
	}
	for i := range 20 {
		l.push("low", named(fmt.Sprintf("other-%d", i)))
	}
	l.push("low", `{"id":"no text","type":"EMAIL","payload":{"x":"`+"\xff"+`"}}`)
	metrics := telemetry.Discard()
	b, err := redisqueue.New(redisqueue.Config{URL: l.server.URL, Prefix: "tq", BatchSize: 50, Interval: 5 * time.Millisecond, ReclaimAfter: time.Hour,
		Timeout: time.Second, Logger: zap.NewNop(), Door: bridge.Door{Engine: engine, Admitted: func(string) bool { return true }, Metrics: metrics, ParkedFor: time.Second}})
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context()))
	t.Cleanup(func() { l.stop(b) })
	l.done(20)
	engine.Full.Store(false)
	letters := l.emptied()
	l.done(140)
	require.Len(t, letters, 2)
	require.GreaterOrEqual(t, testutil.ToFloat64(metrics.BridgeJobs.WithLabelValues("redis", "parked")), 120.0)
}
