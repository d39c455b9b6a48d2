package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/wire"
)

// frozen replaces values that differ from run to run.
func frozen(t testing.TB, r reply) []byte {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal(r.body, &v), "%s", r.body)
	_, err := time.Parse("2006-01-02T15:04:05.000000Z", v["timestamp"].(string))
	require.NoError(t, err)
	v["timestamp"] = "now"
	if id, ok := v["request_id"]; ok {
		require.Equal(t, r.Header.Get("X-Request-Id"), id)
		v["request_id"] = "id"
	}
	if checks, ok := v["checks"].(map[string]any); ok {
		for _, c := range checks {
			check := c.(map[string]any)
			check["duration_ms"] = 0
			if _, ok := check["last_checked"]; ok {
				check["last_checked"] = "now"
			}
		}
	}
	if system, ok := v["system_info"].(map[string]any); ok {
		require.Less(t, system["uptime_seconds"], 600., "of a test")
		system["uptime_seconds"] = 0
	}
	body, err := json.Marshal(v)
	require.NoError(t, err)
	return body
}

func TestHealthOfAnOrchestrator(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for path, file := range map[string]string{
		"/health": "health", "/health/live": "health_live", "/health/ready": "health_ready", "/health/accepting": "health_accepting", "/health/detailed": "health_detailed",
	} {
		r := h.get(path)
		require.Equal(t, http.StatusOK, r.StatusCode, path)
		goldenJSON(t, file, frozen(t, r))
	}
}

func TestNotReady(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrange func(h *house, o *rest.Orchestrator)
		says    string
	}{
		"templates": {func(_ *house, o *rest.Orchestrator) {
			o.Loaded = func() (bool, string) { return false, "shapes.yaml has errors" }
		}, "templates are not loaded: shapes.yaml has errors"},
		"listener": {func(h *house, _ *rest.Orchestrator) { h.engine.notReady = "the listener is connecting" }, "the listener is connecting"},
		"database": {func(h *house, _ *rest.Orchestrator) { h.store.err = errors.New("password of dbhost-7 is wrong") }, "the database does not answer"},
		"errors are withheld": {func(h *house, _ *rest.Orchestrator) {
			system := h.engine.systems["orchestration"]
			system.LastError = "secret text"
			h.engine.systems["orchestration"] = system
			h.engine.notReady = "10 looks in a row failed: secret text"
		}, "10 looks in a row failed: see the log"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h *house
			engine, store := newFakeEngine(), newFakeStore()
			h = newHouse(t, func(_ *rest.Config, o *rest.Orchestrator) {
				c.arrange(&house{engine: engine, store: store}, o)
				o.Engine, o.Store = engine, store
			})
			r := h.get("/health/ready")
			require.Contains(t, r.refused(t, 503, "SERVICE_UNAVAILABLE").Message, c.says)
			require.NotContains(t, string(r.body), "dbhost-7")
			require.NotEmpty(t, r.Header.Get("Retry-After"))
			require.Equal(t, http.StatusOK, h.get("/health/live").StatusCode, "not ready is no reason to be killed")
			var detailed client.DetailedHealth
			h.get("/health/detailed").into(t, &detailed)
			require.Equal(t, "degraded", detailed.Status)
			require.Contains(t, detailed.NotReady, c.says)
			require.Equal(t, "Startup", detailed.Info.OperationalState)
		})
	}
}

func TestAccepting(t *testing.T) {
	t.Parallel()
	var loaded atomic.Bool
	h := newHouse(t, func(_ *rest.Config, o *rest.Orchestrator) {
		o.Loaded = func() (bool, string) { return loaded.Load(), "shapes.yaml has errors" }
	})
	refused := func(says string) {
		t.Helper()
		r := h.get("/health/accepting")
		require.Contains(t, r.refused(t, 503, "SERVICE_UNAVAILABLE").Message, says)
		require.NotEmpty(t, r.Header.Get("Retry-After"))
	}
	refused("templates are not loaded: shapes.yaml has errors")
	loaded.Store(true)
	h.engine.change(func(s *fakeStatus) { s.notReady = "the listener is connecting" })
	refused("the listener is connecting")
	h.engine.change(func(s *fakeStatus) { s.notReady = "" })
	require.Equal(t, http.StatusOK, h.get("/health/accepting").StatusCode, "it is ready")
	h.engine.change(func(s *fakeStatus) { s.notReady = "the listener is connecting" })
	require.Equal(t, http.StatusServiceUnavailable, h.get("/health/ready").StatusCode)
	require.Equal(t, http.StatusOK, h.get("/health/accepting").StatusCode, "it was ready, and answers")
	h.server.Drain()
	refused("draining")
}

func TestDraining(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	require.Equal(t, http.StatusOK, h.get("/health/ready").StatusCode)
	h.server.Drain()
	require.Contains(t, h.get("/health/ready").refused(t, 503, "SERVICE_UNAVAILABLE").Message, "draining")
	require.Equal(t, http.StatusOK, h.get("/health/live").StatusCode)
	require.Equal(t, http.StatusOK, h.get("/v1/tasks").StatusCode, "other requests finish")
	var detailed client.DetailedHealth
	h.get("/health/detailed").into(t, &detailed)
	require.Equal(t, "GracefulShutdown", detailed.Info.OperationalState)
}

func TestLive(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.engine.change(func(s *fakeStatus) {
		s.loops = []lifecycle.LoopHealth{{Name: "partitions", State: lifecycle.LoopRestarting}}
	})
	require.Equal(t, http.StatusOK, h.get("/health/live").StatusCode, "it is being restarted")
	h.engine.change(func(s *fakeStatus) {
		s.loops = []lifecycle.LoopHealth{{Name: "partitions", State: lifecycle.LoopRunning, Stuck: true}}
		system := s.systems["orchestration"]
		system.Loop = lifecycle.LoopHealth{Name: "looker", Stuck: true}
		system.Poller.Loop = lifecycle.LoopHealth{Name: "poller", Stuck: true}
		listener := *system.Listener
		listener.Loop = lifecycle.LoopHealth{Name: "listener", Stuck: true}
		system.Listener = &listener
		s.systems["orchestration"] = system
	})
	e := h.get("/health/live").refused(t, 503, "SERVICE_UNAVAILABLE")
	require.Contains(t, e.Message, "listener, looker, partitions, poller")
}

func TestDetailedHealthJudges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrange func(h *house)
		check   string
		want    string
	}{
		"pool busy":       {func(h *house) { h.store.pool.Acquired = 9 }, "pool_utilization", "degraded"},
		"pool exhausted":  {func(h *house) { h.store.pool.Acquired = 10 }, "pool_utilization", "unhealthy"},
		"channel busy":    {func(h *house) { h.engine.saturation = 0.9 }, "channel_saturation", "degraded"},
		"channel full":    {func(h *house) { h.engine.saturation = 1 }, "command_processor", "unhealthy"},
		"a system is bad": {func(h *house) { h.engine.systems["x"] = coordinator.Health{Status: deploymode.Unhealthy, Reason: "r"} }, "orchestration_system", "unhealthy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			c.arrange(h)
			var got client.DetailedHealth
			h.get("/health/detailed").into(t, &got)
			require.Equal(t, c.want, got.Checks[c.check].Status)
			require.Equal(t, "degraded", got.Status)
		})
	}
	h := newHouse(t, func(_ *rest.Config, o *rest.Orchestrator) {
		o.Checks = func(context.Context) map[string]telemetry.Check {
			return map[string]telemetry.Check{"queue_depth": {Status: deploymode.Healthy, Message: "7 steps"}}
		}
	})
	var got client.DetailedHealth
	h.get("/health/detailed").into(t, &got)
	require.Equal(t, "healthy", got.Checks["queue_depth"].Status)
	require.Contains(t, got.FleetWarning, "worker shapes: none of 1 live replicas polls")
}

// Without a breaker its state is unknown. Probes show it as well, and are ready in any
// state.
func TestCircuitBreakerIsShownWhereThereIsOne(t *testing.T) {
	t.Parallel()
	for want, b := range map[string]rest.Breakers{
		"unknown": nil, "Closed": shownBreakers{breaker.Closed}, "HalfOpen": shownBreakers{breaker.HalfOpen}, "Open": shownBreakers{breaker.Open},
	} {
		h := newHouse(t, func(_ *rest.Config, o *rest.Orchestrator) { o.Breakers = b })
		for _, path := range []string{"/health/ready", "/health/detailed"} {
			var got client.DetailedHealth
			h.get(path).into(t, &got)
			require.Equal(t, want, got.Info.CircuitBreakerState, path)
			if b == nil {
				require.Equal(t, "unknown", got.Checks["circuit_breaker"].Status)
				require.Contains(t, *got.Checks["circuit_breaker"].Message, "no such circuit breaker")
			}
		}
	}
}

// shownBreakers is the breaker of the API in a state.
type shownBreakers struct{ state breaker.State }

func (s shownBreakers) Health() []breaker.Health {
	return []breaker.Health{{Component: breaker.Web, State: s.state}}
}

func (s shownBreakers) Force(string, breaker.Control) error { return breaker.ErrUnknown }

func TestHealthIsNoLoad(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for range 50 {
		h.get("/health/ready")
	}
	// Fifty requests take far less than the life of an answer, but a slow
	// machine may see it out once or twice.
	require.Less(t, h.store.pings, 25)
}

func newWorkerHouse(t testing.TB, status *fakeStatus, db *fakeStore, change ...func(*rest.Config, *rest.Worker)) *house {
	t.Helper()
	cfg := bounded(t, rest.Config{Version: "1.2.3", Environment: "test"})
	h := &house{t: t, store: db}
	w := rest.Worker{ID: "worker-1", Type: "go", Status: status,
		Namespaces: func() []string { return []string{"shapes"} }, Events: func() wire.EventMetrics {
			return wire.EventMetrics{Router: wire.EventRouterStats{TotalRouted: 7, DurableRouted: 2, FastRouted: 4, BroadcastRouted: 1, FastDeliveryErrors: 3, RoutingErrors: 5},
				Bus: wire.EventBusStats{TotalEventsDispatched: 5, RustHandlerDispatches: 9, RustHandlerErrors: 1, FFIChannelDrops: 2, RustSubscriberPatterns: 3,
					RustHandlerCount: 2}, WorkerID: "worker-1"}
		}}
	if db != nil {
		w.Database, w.Templates = db, db
	}
	for _, c := range change {
		c(&cfg, &w)
	}
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "tasker_worker_example_total", Help: "An example."})
	registry.MustRegister(counter)
	cfg.Metrics = registry
	var err error
	h.server, err = rest.NewWorker(cfg, w)
	require.NoError(t, err)
	h.schema = newContract(t, h.server.OpenAPI())
	return h
}

func TestHealthOfAWorker(t *testing.T) {
	t.Parallel()
	status := newFakeStatus()
	h := newWorkerHouse(t, status, newFakeStore())
	for path, file := range map[string]string{
		"/health": "worker_health", "/health/live": "worker_live", "/health/ready": "worker_ready", "/health/accepting": "worker_accepting", "/health/detailed": "worker_detailed",
	} {
		r := h.get(path)
		require.Equal(t, http.StatusOK, r.StatusCode, path)
		goldenJSON(t, file, frozen(t, r))
	}
	status.change(func(s *fakeStatus) { s.notReady = "the worker is draining" })
	r := h.get("/health/ready")
	require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
	goldenJSON(t, "worker_not_ready", frozen(t, r))

	var mode wire.DeploymentMode
	h.do(http.MethodPut, modePath, `{"mode":"PollingOnly"}`).into(t, &mode)
	require.Equal(t, deploymode.PollingOnly, status.Mode())
	h.get("/v1/admin/fleet").problem(t, 404)
	goldenJSON(t, "worker_not_found", frozen(t, h.get("/v1/tasks")))
	require.Contains(t, string(h.get("/metrics").body), "tasker_worker_example_total 0")
}

func TestWorkerWithoutDatabase(t *testing.T) {
	t.Parallel()
	h := newWorkerHouse(t, newFakeStatus(), nil)
	var got client.DetailedHealth
	h.get("/health/detailed").into(t, &got)
	require.Equal(t, "healthy", got.Status)
	require.Equal(t, "unknown", got.Checks["database"].Status)
	require.Nil(t, got.SystemInfo.PoolUtilization)
	require.Equal(t, http.StatusOK, h.get("/health/ready").StatusCode)
}

func TestConstructorsWantTheirParts(t *testing.T) {
	t.Parallel()
	_, err := rest.NewOrchestrator(bounded(t, rest.Config{}), rest.Orchestrator{Engine: newFakeEngine()})
	require.Error(t, err)
	_, err = rest.NewWorker(bounded(t, rest.Config{}), rest.Worker{ID: "x"})
	require.Error(t, err)
}
