package client

// Health is the short answer of /health and /health/live.
type Health struct {
	Status    string `json:"status" doc:"healthy or alive"`
	Timestamp Time   `json:"timestamp" format:"date-time"`
	// WorkerID is set by workers only.
	WorkerID string `json:"worker_id,omitempty"`
}

// HealthCheck is the outcome of one check.
type HealthCheck struct {
	Status     string  `json:"status" doc:"healthy, degraded, unhealthy or unknown"`
	Message    *string `json:"message"`
	DurationMS int64   `json:"duration_ms"`
	// LastChecked is set by workers only.
	LastChecked *Time `json:"last_checked,omitempty" format:"date-time"`
}

// DetailedHealth is the answer of /health/ready and /health/detailed of both daemons: an
// orchestrator sets Info, a worker WorkerID and SystemInfo. The fields after them are in
// the detailed answer only.
type DetailedHealth struct {
	Status     string                 `json:"status"`
	Timestamp  Time                   `json:"timestamp" format:"date-time"`
	WorkerID   string                 `json:"worker_id,omitempty"`
	Checks     map[string]HealthCheck `json:"checks"`
	Info       *HealthInfo            `json:"info,omitempty"`
	SystemInfo *WorkerSystemInfo      `json:"system_info,omitempty"`

	// DistributedCache is that of a worker.
	DistributedCache *DistributedCache `json:"distributed_cache,omitempty" doc:"Of a worker; it has none"`

	EventSystems map[string]EventSystem `json:"event_systems,omitempty"`
	Loops        []Loop                 `json:"loops,omitempty"`
	// ChannelSaturation is how full each command channel is, 0 to 1.
	ChannelSaturation map[string]float64 `json:"channel_saturation,omitempty"`
	// FleetWarning says what the fleet lacks.
	FleetWarning string `json:"fleet_warning,omitempty"`
	// Warnings are what the configuration leaves open, such as credentials in plain text.
	Warnings []string `json:"warnings,omitempty"`
	// NotReady is the reason for a 503 of /health/ready.
	NotReady string `json:"not_ready_reason,omitempty"`
}

// DistributedCache is the cache that workers of Tasker share. Here there is none: Enabled is
// false and the provider noop, which is always healthy.
type DistributedCache struct {
	Enabled  bool   `json:"enabled"`
	Provider string `json:"provider"`
	Healthy  bool   `json:"healthy"`
}

// HealthInfo is the information of an orchestrator.
type HealthInfo struct {
	Version                       string           `json:"version"`
	Environment                   string           `json:"environment"`
	OperationalState              string           `json:"operational_state" doc:"Startup, Normal, GracefulShutdown or Stopped"`
	WebDatabasePoolSize           int              `json:"web_database_pool_size"`
	OrchestrationDatabasePoolSize int              `json:"orchestration_database_pool_size"`
	CircuitBreakerState           string           `json:"circuit_breaker_state"`
	PoolUtilization               *PoolUtilization `json:"pool_utilization,omitempty"`
}

// WorkerSystemInfo is the information of a worker.
type WorkerSystemInfo struct {
	Version                string           `json:"version"`
	Environment            string           `json:"environment"`
	UptimeSeconds          int64            `json:"uptime_seconds"`
	WorkerType             string           `json:"worker_type"`
	DatabasePoolSize       int              `json:"database_pool_size"`
	CommandProcessorActive bool             `json:"command_processor_active"`
	SupportedNamespaces    []string         `json:"supported_namespaces"`
	PoolUtilization        *PoolUtilization `json:"pool_utilization,omitempty"`
}

// PoolUtilization is the utilization of the connection pools. There is one pool;
// pgmq_pool is the same, for clients that read that field.
type PoolUtilization struct {
	TaskerPool PoolDetail `json:"tasker_pool"`
	PGMQPool   PoolDetail `json:"pgmq_pool"`
}

// PoolDetail is the use of one connection pool.
type PoolDetail struct {
	ActiveConnections    int     `json:"active_connections"`
	IdleConnections      int     `json:"idle_connections"`
	MaxConnections       int     `json:"max_connections"`
	UtilizationPercent   float64 `json:"utilization_percent"`
	TotalAcquires        int64   `json:"total_acquires"`
	SlowAcquires         int64   `json:"slow_acquires"`
	AcquireErrors        int64   `json:"acquire_errors"`
	AverageAcquireTimeMS float64 `json:"average_acquire_time_ms"`
	MaxAcquireTimeMS     float64 `json:"max_acquire_time_ms"`
}

// EventSystem is one listener-poller pair.
type EventSystem struct {
	Mode           string `json:"deployment_mode" doc:"PollingOnly, EventDrivenOnly, Hybrid or Disabled"`
	ConfiguredMode string `json:"configured_mode"`
	Status         string `json:"status"`
	Ready          bool   `json:"ready"`
	Reason         string `json:"reason,omitempty"`
	// FallbackActive says that polling replaces a listener.
	FallbackActive bool `json:"fallback_active"`
	// Listener is absent in modes without one.
	Listener *Listener `json:"listener,omitempty"`
	Poller   *Poller   `json:"poller,omitempty"`
	// Found counts work by its trigger: listener, poller, timer, catch_up, continue.
	Found map[string]uint64 `json:"found"`
	// Errors counts; their texts are in the log, for health is open to all.
	Errors uint64 `json:"errors"`
	// DeadLoops names the loops that should run and do not.
	DeadLoops []string `json:"dead_loops,omitempty"`
}

// Listener is the state of a queue listener.
type Listener struct {
	Source     string `json:"source"`
	State      string `json:"state"`
	Proven     bool   `json:"proven" doc:"Signals are known to arrive"`
	Reconnects uint64 `json:"reconnects"`
	// LagMS is the round trip of the latest probe; LagAt when it came back.
	LagMS       float64 `json:"lag_ms"`
	LagAt       *Time   `json:"lag_at,omitempty" format:"date-time"`
	ConnectedAt *Time   `json:"connected_at,omitempty" format:"date-time"`
	// MovingFrom is that of the source which the fleet moves away from; absent unless it moves.
	MovingFrom *Listener `json:"moving_from,omitempty"`
}

// Poller is the state of a fallback poller.
type Poller struct {
	Pace     string `json:"pace" doc:"off, tight or relaxed"`
	Cycles   uint64 `json:"cycles"`
	Found    uint64 `json:"found"`
	Errors   uint64 `json:"errors"`
	LastPoll *Time  `json:"last_poll,omitempty" format:"date-time"`
}

// Loop is the state of a supervised background loop.
type Loop struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Restarts uint64 `json:"restarts"`
	Stuck    bool   `json:"stuck"`
}
