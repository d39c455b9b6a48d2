package rest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// healthRoutes answer whether the process is live, ready, and what is wrong. They need no
// credentials, so they must be cheap.
type healthRoutes struct {
	*api
	status   Status
	database Database
	ping     pingCache
	loaded   func() (bool, string)
	extra    func(ctx context.Context) map[string]telemetry.Check
	breakers Breakers // nil: none
	worker   *Worker  // nil in an orchestrator
	started  time.Time
	served   atomic.Bool // has been ready once
}

func newHealthRoutes(a *api, status Status, database Database) *healthRoutes {
	return &healthRoutes{api: a, status: status, database: database, started: time.Now()}
}

func (h *healthRoutes) add(failure shape) {
	op := operation{tag: "health", failure: failure, unguarded: true}
	add(h.api, op.at(http.MethodGet, "/health", "health", "Does the daemon answer?"), h.basic)
	add(h.api, op.at(http.MethodGet, "/health/live", "health-live", "Do the process and its loops run? 503 when not"), h.live)
	add(h.api, op.at(http.MethodGet, "/health/ready", "health-ready", "Can it serve? 503 with the reason when not"), h.ready)
	add(h.api, op.at(http.MethodGet, "/health/accepting", "health-accepting",
		"Should it be sent requests? 503 until it has been ready, and while it drains; not while the database is unavailable"), h.accepting)
	add(h.api, op.at(http.MethodGet, "/health/detailed", "health-detailed", "All checks; always 200"), h.detailed)
}

func (h *healthRoutes) short(status string) *client.Health {
	w := &client.Health{Status: status, Timestamp: client.Time{Time: time.Now()}}
	if h.worker != nil {
		w.WorkerID = h.worker.ID
	}
	return w
}

func (h *healthRoutes) basic(context.Context, *struct{}) (*client.Health, error) {
	return h.short("healthy"), nil
}

// live checks for what only a restart can fix: a loop that is stuck, or a server that has
// ended. A dead loop is restarted, and an unavailable database comes back; neither is a
// reason to kill the process.
func (h *healthRoutes) live(context.Context, *struct{}) (*client.Health, error) {
	if stuck := h.stuck(); len(stuck) > 0 {
		return nil, unavailable("These loops are stuck: "+strings.Join(stuck, ", "), 0)
	}
	if h.failed.Load() {
		return nil, unavailable("The HTTP server has ended", 0)
	}
	return h.short("alive"), nil
}

func (h *healthRoutes) stuck() (names []string) {
	loops := slices.Clone(h.status.Loops())
	for _, system := range h.status.Health() {
		loops = append(loops, system.Loop, system.Poller.Loop)
		if system.Listener != nil {
			loops = append(loops, system.Listener.Loop)
		}
	}
	for _, l := range loops {
		if l.Stuck {
			names = append(names, l.Name)
		}
	}
	slices.Sort(names)
	return names
}

// closed returns why the daemon takes no requests, whatever the database does; "" if it
// does.
func (h *healthRoutes) closed() string {
	if h.draining.Load() {
		return "the daemon is draining"
	}
	if h.loaded != nil {
		if ok, reason := h.loaded(); !ok {
			return "the templates are not loaded: " + reason
		}
	}
	return ""
}

// accepting is for load balancers: all daemons share the database, so without it they are
// all unready, and clients should hear 503 with Retry-After from any of them.
func (h *healthRoutes) accepting(ctx context.Context, _ *struct{}) (*client.Health, error) {
	var reason string
	if h.served.Load() {
		reason = h.closed()
	} else {
		reason = h.notReady(h.ping.check(ctx, h.database))
	}
	if reason != "" {
		return nil, unavailable("Not accepting requests: "+reason, databaseRetry)
	}
	return h.short("accepting"), nil
}

// notReady returns why the daemon does not work; "" if ready.
func (h *healthRoutes) notReady(database telemetry.Check) string {
	if reason := h.closed(); reason != "" {
		return reason
	}
	if database.Message != "" {
		return database.Message
	}
	if ok, reason := h.status.Ready(); !ok {
		return withoutErrors(reason, slices.Collect(maps.Values(h.status.Health()))...)
	}
	h.served.Store(true)
	return ""
}

func (h *healthRoutes) ready(ctx context.Context, _ *struct{}) (*client.DetailedHealth, error) {
	database := h.ping.check(ctx, h.database)
	if reason := h.notReady(database); reason != "" {
		return nil, unavailable("Not ready: "+reason, databaseRetry)
	}
	w := h.report()
	w.Status = "ready"
	w.Checks = checksOf(h.readinessChecks(database), h.worker != nil)
	return w, nil
}

func (h *healthRoutes) detailed(ctx context.Context, _ *struct{}) (*client.DetailedHealth, error) {
	database := h.ping.check(ctx, h.database)
	reason := h.notReady(database)
	w := h.report()
	w.NotReady = reason
	checks := h.detailedChecks(database)
	if h.extra != nil {
		maps.Copy(checks, h.extra(ctx))
	}
	w.Checks = checksOf(checks, h.worker != nil)
	w.Status = overall(checks)
	if w.NotReady != "" {
		w.Status = "degraded"
	}
	if h.worker != nil {
		w.DistributedCache = &client.DistributedCache{Provider: "noop", Healthy: true}
	}
	w.EventSystems = map[string]client.EventSystem{}
	for name, system := range h.status.Health() {
		w.EventSystems[name] = eventSystemOf(system)
	}
	for _, l := range h.status.Loops() {
		w.Loops = append(w.Loops, client.Loop{Name: l.Name, State: string(l.State), Restarts: l.Restarts, Stuck: l.Stuck})
	}
	w.ChannelSaturation = map[string]float64{"commands": h.status.Saturation()}
	w.Warnings = h.cfg.Warnings
	w.FleetWarning = h.fleetWarning(ctx, database)
	return w, nil
}

func (h *healthRoutes) fleetWarning(ctx context.Context, database telemetry.Check) string {
	if h.database == nil || database.Message != "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	replicas, err := h.database.Fleet(ctx, fleetAge)
	if err != nil {
		return fmt.Sprintf("the fleet could not be listed (%s)", clip(classify(ctx, err).message, 200))
	}
	return fleetWarning(remembered(replicas))
}

// report sets the common fields of ready and detailed.
func (h *healthRoutes) report() *client.DetailedHealth {
	w := &client.DetailedHealth{Timestamp: client.Time{Time: time.Now()}}
	var pool store.PoolStat
	var utilization *client.PoolUtilization
	if h.database != nil {
		pool = h.database.PoolStat()
		utilization = poolOf(pool)
	}
	if h.worker == nil {
		w.Info = &client.HealthInfo{
			Version: h.cfg.Version, Environment: h.cfg.Environment, OperationalState: h.operationalState(),
			WebDatabasePoolSize: int(pool.Total), OrchestrationDatabasePoolSize: int(pool.Total),
			CircuitBreakerState: breakerState(h.webBreaker()), PoolUtilization: utilization,
		}
		return w
	}
	w.WorkerID = h.worker.ID
	w.SystemInfo = &client.WorkerSystemInfo{
		Version: h.cfg.Version, Environment: h.cfg.Environment, UptimeSeconds: int64(time.Since(h.started).Seconds()),
		WorkerType: h.worker.Type, DatabasePoolSize: int(pool.Total), CommandProcessorActive: !h.draining.Load(),
		SupportedNamespaces: append([]string{}, h.worker.namespaces()...), PoolUtilization: utilization,
	}
	return w
}

func (h *healthRoutes) operationalState() string {
	switch {
	case h.draining.Load():
		return "GracefulShutdown"
	case h.served.Load():
		return "Normal"
	}
	return "Startup"
}
