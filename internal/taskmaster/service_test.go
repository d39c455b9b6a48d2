package taskmaster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/places"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/taskmaster"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/poller"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.With(m)) }

// fleet are orchestrators with the queues of each.
type fleet struct {
	*enginetest.Engine
	t        testing.TB
	services []*taskmaster.Service
	metrics  *telemetry.Metrics // of the first
}

func newFleet(t testing.TB, orchestrators int, mode deploymode.Mode, live store.LivenessLimits) *fleet {
	t.Helper()
	f := &fleet{t: t, metrics: telemetry.Discard()}
	const crashes = 1000 // of one task, in the test of dying workers
	f.Engine = enginetest.Start(t, func(*worker.Worker) error { return nil }, func(o *orchestration.Config, w *worker.Config) {
		w.Namespaces, o.Rules.MaxCrashes = []string{"other"}, crashes
	})
	f.Rules.MaxCrashes = crashes
	for i := range orchestrators {
		engine := f.Orchestrator
		if i > 0 {
			engine = f.AnotherOrchestrator()
		}
		metrics := f.metrics
		if i > 0 {
			metrics = telemetry.Discard()
		}
		s, err := taskmaster.New(taskmaster.Config{Store: f.Store, Engine: engine, Publisher: f.Bus, Liveness: live, BaseDelay: time.Millisecond,
			MaxWaiting: 100, Share: 50, Actor: "test", Metrics: metrics,
			System: enginetest.Completed(t, coordinator.Config{SystemID: "queues", Mode: mode, Listener: listener.New(listener.Config{Source: f.Bus}),
				Poller: poller.Config{Interval: 50 * time.Millisecond, RelaxedInterval: time.Hour}})})
		require.NoError(t, err)
		require.NoError(t, s.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
		f.services = append(f.services, s)
	}
	return f
}

var lives = store.LivenessLimits{Stale: time.Minute, Dead: time.Hour}

func (f *fleet) submit(queue string, n int) []uuid.UUID {
	f.t.Helper()
	list := make([]taskmaster.Submission, n)
	for i := range list {
		list[i] = taskmaster.Submission{Queue: queue, Payload: json.RawMessage(fmt.Sprint(i)), Initiator: "test"}
	}
	created, err := f.services[0].Submit(f.t.Context(), list)
	require.NoError(f.t, err)
	ids := make([]uuid.UUID, n)
	for i := range created {
		require.NoError(f.t, created[i].Err)
		ids[i] = created[i].UUID
	}
	return ids
}

func (f *fleet) register(id, queue string) {
	f.t.Helper()
	_, err := f.services[0].Register(f.t.Context(), store.QueueRegistration{ID: id, Queue: queue})
	require.NoError(f.t, err)
}

// A submission that is repeated is answered with its task, and counted as such.
func TestRepeatedSubmissionsAreCounted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, deploymode.PollingOnly, lives)
	in := []taskmaster.Submission{{Queue: "mail", Payload: json.RawMessage(`1`), Initiator: "test", IdempotencyKey: "k"}}
	var first uuid.UUID
	for i := range 3 {
		created, err := f.services[0].Submit(t.Context(), in)
		require.NoError(t, err)
		require.NoError(t, created[0].Err)
		if i == 0 {
			first = created[0].UUID
		}
		require.Equal(t, first, created[0].UUID)
	}
	require.InDelta(t, 1, testutil.ToFloat64(f.metrics.QueueSubmitted.WithLabelValues("mail")), 0)
	require.InDelta(t, 2, testutil.ToFloat64(f.metrics.QueueDuplicates.WithLabelValues("mail")), 0)
}

// A claim that waits is answered by a signal where nothing polls, and by polling where nothing
// is received; a claim whose caller leaves gets nothing.
func TestClaimsThatWait(t *testing.T) {
	t.Parallel()
	for _, mode := range []deploymode.Mode{deploymode.Hybrid, deploymode.EventDrivenOnly, deploymode.PollingOnly} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 2, mode, lives)
			f.register("w", "q")
			var group conc.WaitGroup
			answers := make(chan int, 8)
			for i := range 4 {
				group.Go(func() {
					claimed, err := f.services[i%2].Claim(t.Context(), taskmaster.ClaimRequest{Worker: "w", Limit: 1, Wait: time.Minute})
					if err != nil {
						t.Error(err)
					}
					answers <- len(claimed)
				})
			}
			left, leave := context.WithCancel(t.Context())
			group.Go(func() {
				claimed, err := f.services[0].Claim(left, taskmaster.ClaimRequest{Worker: "w", Limit: 1, Wait: time.Minute})
				if err != nil || len(claimed) > 0 {
					t.Error(claimed, err)
				}
			})
			f.wait(5)
			leave()
			f.wait(4)
			f.submit("q", 4)
			group.Wait()
			for range 4 {
				require.Equal(t, 1, <-answers)
			}
		})
	}
}

// wait returns when so many claims wait.
func (f *fleet) wait(claims int) {
	f.t.Helper()
	pgtest.Eventually(f.t, time.Minute, func() (bool, string) {
		n := 0
		for _, s := range f.services {
			n += s.Waiting()
		}
		return n == claims, fmt.Sprint(n)
	})
}

func TestWaitingClaimsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, deploymode.Hybrid, lives)
	f.register("w", "q")
	ctx, cancel := context.WithCancel(t.Context())
	var group conc.WaitGroup
	for range 100 {
		group.Go(func() {
			_, _ = f.services[0].Claim(ctx, taskmaster.ClaimRequest{Worker: "w", Limit: 1, Wait: time.Minute})
		})
	}
	f.wait(100)
	_, err := f.services[0].Claim(t.Context(), taskmaster.ClaimRequest{Worker: "w", Limit: 1, Wait: time.Minute})
	require.ErrorIs(t, err, taskmaster.ErrTooMany)
	cancel()
	group.Wait()
	f.wait(0)
}

func TestAPrincipalHasItsShareOfTheWaitingClaims(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, deploymode.Hybrid, lives)
	f.register("w", "q")
	ctx, cancel := context.WithCancel(t.Context())
	var group conc.WaitGroup
	wait := func(principal string, n int) {
		for range n {
			group.Go(func() {
				_, _ = f.services[0].Claim(ctx, taskmaster.ClaimRequest{Worker: "w", Limit: 1, Wait: time.Minute, Principal: principal})
			})
		}
	}
	wait("token ana", 50)
	f.wait(50)
	_, err := f.services[0].Claim(t.Context(), taskmaster.ClaimRequest{Worker: "w", Limit: 1, Wait: time.Minute, Principal: "token ana"})
	var own *places.ShareError
	require.ErrorAs(t, err, &own)
	require.Equal(t, "token ana", own.Principal)
	wait("token ben", 50)
	f.wait(100)
	cancel()
	group.Wait()
	f.wait(0)
}

// Three orchestrators, and workers that die at any moment and come back: each task is done
// once, by the worker that held it, however often it was claimed.
func TestTasksAreDoneOnceWhileWorkersDie(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, deploymode.Hybrid, store.LivenessLimits{Stale: 400 * time.Millisecond, Dead: 800 * time.Millisecond})
	const workers, tasks = 6, 120
	for i := range workers {
		f.register(fmt.Sprint("w", i), "q")
	}
	list := make([]taskmaster.Submission, tasks)
	for i := range list {
		list[i] = taskmaster.Submission{Queue: "q", Payload: json.RawMessage(`{}`), MaxAttempts: 1000, Initiator: "test"}
	}
	created, err := f.services[0].Submit(t.Context(), list)
	require.NoError(t, err)
	var done atomic.Int64
	var mu sync.Mutex
	ends := map[uuid.UUID]int{}
	var group conc.WaitGroup
	for i := range workers {
		group.Go(func() {
			w := mortal{fleet: f, name: fmt.Sprint("w", i), random: rand.New(rand.NewPCG(uint64(i), 7))}
			for done.Load() < tasks {
				for _, id := range w.work() {
					mu.Lock()
					ends[id]++
					mu.Unlock()
					done.Add(1)
				}
			}
		})
	}
	group.Wait()
	for i := range created {
		require.Equal(t, 1, ends[created[i].UUID])
		task, err := f.Store.Task(t.Context(), created[i].UUID)
		require.NoError(t, err)
		require.Equal(t, workflow.TaskComplete, task.State)
	}
}

// mortal is a worker that dies now and then.
type mortal struct {
	*fleet
	name   string
	random *rand.Rand
}

func (m *mortal) service() *taskmaster.Service { return m.services[m.random.IntN(len(m.services))] }

// work claims a few tasks, and dies or ends them; it returns those whose end was accepted.
func (m *mortal) work() (ended []uuid.UUID) {
	ctx := m.t.Context()
	claimed, err := m.service().Claim(ctx, taskmaster.ClaimRequest{Worker: m.name, Limit: 1 + m.random.IntN(5), Wait: 300 * time.Millisecond})
	if errors.Is(err, taskmaster.ErrDeadWorker) {
		_, err = m.service().Register(ctx, store.QueueRegistration{ID: m.name, Queue: "q"})
	}
	if err != nil {
		m.t.Error(err)
	}
	if len(claimed) == 0 {
		return nil
	}
	if m.random.IntN(4) == 0 { // it dies, and another one with its name ends what it held
		pgtest.Eventually(m.t, time.Minute, func() (bool, string) {
			w, err := m.service().Worker(ctx, m.name)
			return err == nil && w.Status == store.WorkerDead, fmt.Sprint(w.Status, err)
		})
		if _, _, err := m.service().Heartbeat(ctx, m.name, nil); err != nil {
			m.t.Error(err)
		}
	}
	list := make([]taskmaster.Finish, len(claimed))
	for i := range claimed {
		list[i] = taskmaster.Finish{Task: claimed[i].TaskUUID, Token: claimed[i].Token, Worker: m.name, Success: m.random.IntN(5) > 0, Retryable: true,
			Error: json.RawMessage(`{"message":"no"}`), RetryAfter: 0}
	}
	answers, err := m.service().Finish(ctx, list, nil)
	if err != nil {
		m.t.Error(err)
		return nil
	}
	for i := range answers {
		switch err := answers[i].Err; {
		case err == nil && list[i].Success:
			ended = append(ended, list[i].Task)
		case err != nil && !errors.Is(err, taskmaster.ErrNotHeld):
			m.t.Error(err)
		}
	}
	return ended
}

// The answer to an end says what follows, for one and for many.
func TestEndsAreDecidedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, deploymode.Hybrid, lives)
	f.register("w", "q")
	for _, n := range []int{1, 50} {
		f.submit("q", n)
		claimed, err := f.services[0].Claim(t.Context(), taskmaster.ClaimRequest{Worker: "w", Limit: n})
		require.NoError(t, err)
		require.Len(t, claimed, n)
		list := make([]taskmaster.Finish, n)
		for i := range claimed {
			list[i] = taskmaster.Finish{Task: claimed[i].TaskUUID, Worker: "w", Success: i%2 == 0, Error: json.RawMessage(`{"message":"no"}`), RetryAfter: -1}
		}
		answers, err := f.services[0].Finish(t.Context(), list, nil)
		require.NoError(t, err)
		for i := range answers {
			require.NoError(t, answers[i].Err)
			require.Equal(t, map[bool]taskmaster.Status{true: taskmaster.Done, false: taskmaster.Dead}[i%2 == 0], answers[i].Status)
		}
	}
}

// TestNamesMakeNoRows until something is submitted to them.
func TestNamesMakeNoRows(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, deploymode.EventDrivenOnly, lives)
	const rows = `select (select count(*) from tasker.namespaces) + (select count(*) from tasker.plans) + (select count(*) from tasker.callables)`
	before := f.DB.QueryInt(t, rows)
	f.register("w", "nowhere")
	for i := range 50 {
		f.register(fmt.Sprint("w", i), fmt.Sprint("none", i))
		claimed, err := f.services[0].Claim(t.Context(), taskmaster.ClaimRequest{Worker: "w", Queue: fmt.Sprint("unknown", i), Limit: 1})
		require.NoError(t, err)
		require.Empty(t, claimed)
	}
	require.Equal(t, before, f.DB.QueryInt(t, rows))
	require.Equal(t, 1, testutil.CollectAndCount(f.metrics.QueueWorkersKnown), "all under one name")
	require.Zero(t, testutil.CollectAndCount(f.metrics.QueueClaimed))

	var group conc.WaitGroup
	group.Go(func() {
		claimed, err := f.services[0].Claim(t.Context(), taskmaster.ClaimRequest{Worker: "w", Queue: "later", Limit: 1, Wait: time.Minute})
		if err != nil || len(claimed) != 1 || claimed[0].Queue != "later" {
			t.Error(claimed, err)
		}
	})
	f.wait(1)
	f.submit("later", 1)
	group.Wait()
}
