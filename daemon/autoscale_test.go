package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/autoscale"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// The advice follows a backlog and the measured time of its handler.
func TestAutoscaling(t *testing.T) {
	var loads []store.CallableLoad
	workers := []store.NamespaceWorkers{{Namespace: "a", Workers: 1, Permits: 10}, {Namespace: "idle", Workers: 2, Permits: 10}}
	fail := error(nil)
	now := time.Time{}.Add(time.Hour)
	a := &autoscaling{target: 10 * time.Second, window: time.Minute, dampers: map[string]*autoscale.Damper{},
		loads: func(context.Context, time.Duration, int) ([]store.CallableLoad, []store.NamespaceWorkers, error) {
			return loads, workers, fail
		}}
	a.now = func() time.Time { return now }
	ask := func(namespace string) (autoscale.Advice, error) {
		now = now.Add(2 * depthAge)
		return a.advise(t.Context(), namespace)
	}
	loads = []store.CallableLoad{{Namespace: "a", Handler: workflow.HandlerReference{Callable: "x"}, Waiting: 1000, Running: 10, Service: time.Second}}
	advice, err := ask("a")
	require.NoError(t, err)
	require.Equal(t, 11, advice.DesiredWorkers, "10 run, and 100 more would begin 1,000 in 10 s")
	require.Len(t, advice.Callables, 1)
	loads = nil
	advice, err = ask("a")
	require.NoError(t, err)
	require.Equal(t, []int{11, 0}, []int{advice.DesiredWorkers, advice.NeededWorkers})
	now = now.Add(time.Minute)
	advice, err = ask("a")
	require.NoError(t, err)
	require.Zero(t, advice.DesiredWorkers)
	_, err = ask("unknown")
	require.ErrorIs(t, err, store.ErrNotFound)
	fail = store.ErrUnavailable
	_, err = ask("a")
	require.ErrorIs(t, err, store.ErrUnavailable, "an old advice is not repeated")
}

// After a restart, which has seen no load, the workers that live are kept for the window.
func TestTheScaleDownWindowSurvivesARestart(t *testing.T) {
	workers := []store.NamespaceWorkers{{Namespace: "a", Workers: 11, Permits: 10}}
	now := time.Time{}.Add(time.Hour)
	a := &autoscaling{target: 10 * time.Second, window: time.Minute, dampers: map[string]*autoscale.Damper{},
		loads: func(context.Context, time.Duration, int) ([]store.CallableLoad, []store.NamespaceWorkers, error) {
			return nil, workers, nil
		}}
	a.now = func() time.Time { return now }
	advice, err := a.advise(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, []int{11, 0}, []int{advice.DesiredWorkers, advice.NeededWorkers})
	workers[0].Workers = 30 // later starts are no need
	for _, want := range []int{11, 0} {
		now = now.Add(40 * time.Second)
		advice, err := a.advise(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, want, advice.DesiredWorkers)
	}
}

// What a worker tells of its permits and handlers, and what waits, are in the answer and in
// the metric.
func TestAutoscalingOfAFleet(t *testing.T) {
	t.Parallel()
	db := enginetest.Migrated(t)
	loaded := loadToo(t, db, `
[orchestration.autoscaling]
target_wait_seconds = 60
scale_down_after_seconds = 0
[worker.mpsc_channels.handler_dispatch]
max_concurrent_handlers = 2
`)
	o, err := newOrchestrator(t.Context(), loaded, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	defer func() { require.NoError(t, o.Stop(context.Background())) }()
	release := make(chan struct{})
	w, err := newWorker(t.Context(), loaded, func(w *worker.Worker) error {
		template, _, err := template.Parse("a.yaml",
			[]byte("name: a\nnamespace_name: none\nversion: 1.0.0\nsteps:\n  - {name: s, handler: {callable: s}}\n"))
		require.NoError(t, err)
		require.NoError(t, w.RegisterTemplate(template))
		return w.Register("s", worker.HandlerFunc(func(s *worker.StepContext) (any, error) {
			select {
			case <-release:
			case <-s.Done():
			}
			return 1, nil
		}))
	}, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, w.Start(t.Context()))
	defer func() { require.NoError(t, w.Stop(context.Background())) }()
	base := "http://" + o.Addr().String()
	for i := range 7 {
		r := request(t, http.MethodPost, base+"/v1/tasks",
			fmt.Sprintf(`{"name":"a","namespace":"none","version":"1.0.0","context":{"no":%d},"initiator":"i","source_system":"s","reason":"r"}`, i))
		require.Equal(t, http.StatusOK, r.status, r.body)
	}
	awaitAdvice := func(says string, want func(a *autoscale.Advice) bool) {
		pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
			var advice autoscale.Advice
			r := request(t, http.MethodGet, base+"/v1/autoscaling/none", "")
			require.Equal(t, http.StatusOK, r.status, r.body)
			require.NoError(t, json.Unmarshal([]byte(r.body), &advice))
			return want(&advice), says + ": " + r.body
		})
	}
	awaitAdvice("two run, the others were never measured", func(a *autoscale.Advice) bool {
		return a.Workers == 1 && a.Permits == 2 && a.DesiredWorkers == 2 && len(a.Callables) == 1 &&
			a.Callables[0].Running == 2 && a.Callables[0].Waiting == 5 && a.Callables[0].Service == 0
	})
	require.Contains(t, request(t, http.MethodGet, base+"/metrics", "").body, `tasker_workers_desired{namespace="none"} 2`)
	close(release)
	awaitAdvice("all is done", func(a *autoscale.Advice) bool {
		return a.Workers == 1 && a.DesiredWorkers == 0 && len(a.Callables) == 0
	})
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		return db.QueryInt(t, `select count(*) from tasker.workers where (load -> 'service_ms') <> '{}'`) == 1, "the worker tells how long its handler took"
	})
	require.Equal(t, http.StatusNotFound, request(t, http.MethodGet, base+"/v1/autoscaling/other", "").status)
}
