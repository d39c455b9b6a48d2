package client

import "encoding/json"

// Namespace is a queue. While it is paused workers claim none of its steps; tasks are
// still created, and running steps finish.
type Namespace struct {
	Name        string  `json:"name"`
	Paused      bool    `json:"paused"`
	PausedAt    *Time   `json:"paused_at" format:"date-time"`
	PausedBy    *string `json:"paused_by"`
	PauseReason *string `json:"pause_reason"`
	// PausedCallables are those paused separately.
	PausedCallables []PausedCallable `json:"paused_callables,omitempty"`
}

// PausedCallable is one of which workers claim no steps.
type PausedCallable struct {
	Callable    string  `json:"callable"`
	PausedAt    Time    `json:"paused_at" format:"date-time"`
	PausedBy    *string `json:"paused_by"`
	PauseReason *string `json:"pause_reason"`
}

// WorkerListOptions select workers; zero values select everything.
type WorkerListOptions struct {
	Status    string // active, stale or dead
	Namespace string
	Limit     int // 1 to 1000; 0 means 100
}

// WorkerState is a registered worker.
type WorkerState struct {
	WorkerUUID  string   `json:"worker_uuid" doc:"New for every start of the process"`
	WorkerID    string   `json:"worker_id"`
	Hostname    string   `json:"hostname"`
	Address     string   `json:"address" doc:"host:port of its API, with the host's name where it listens on all addresses; empty without an API"`
	Version     string   `json:"version"`
	Mode        string   `json:"mode" doc:"Deployment mode; Draining while it stops"`
	Draining    bool     `json:"draining,omitempty" doc:"Stopping: it claims nothing and ends its steps"`
	Namespaces  []string `json:"namespaces"`
	Tags        []string `json:"tags"`
	Status      string   `json:"status" doc:"active, stale or dead" enum:"active,stale,dead"`
	StatusSince Time     `json:"status_since" format:"date-time"`
	StartedAt   Time     `json:"started_at" format:"date-time"`
	// HeartbeatAgeSeconds is by the database's clock.
	HeartbeatAgeSeconds float64 `json:"heartbeat_age_seconds"`
	StoppedAt           *Time   `json:"stopped_at" format:"date-time" doc:"When it signed off"`
	// RefusedTemplates are its rejected templates, whose versions have other content, the
	// first 100.
	RefusedTemplates []RefusedTemplate `json:"refused_templates,omitempty"`
}

// Sweep is a job that the orchestrators do by turns.
type Sweep struct {
	Name    string `json:"name"`
	Running bool   `json:"running"`
	// Holder is the orchestrator that runs it, or ran it last.
	Holder     string          `json:"holder" doc:"UUID of the orchestrator that runs it or did last"`
	NextAt     Time            `json:"next_at" format:"date-time" doc:"When it is due again"`
	StartedAt  Time            `json:"started_at" format:"date-time"`
	FinishedAt *Time           `json:"finished_at" format:"date-time" doc:"Null while it runs, and when its last run was cut off"`
	Runs       int64           `json:"runs"`
	Result     json.RawMessage `json:"result" doc:"Result of the last complete run"`
}

// SweepRequest is the optional body of POST /v1/sweeps/{name}/run.
type SweepRequest struct {
	// DryRun is false by default: the same as a periodic run.
	DryRun bool `json:"dry_run,omitempty" doc:"Only preview"`
}

// SweepRun is the result of a sweep, or of a dry run.
type SweepRun struct {
	Sweep   string `json:"sweep"`
	Outcome string `json:"outcome"`
	DryRun  bool   `json:"dry_run"`
	TookMS  int64  `json:"took_ms"`
	// Error is why it did not complete.
	Error string `json:"error,omitempty"`
	// Items counts the actions, by name, such as "cancelled".
	Items map[string]int `json:"items"`
	// Findings are the first findings; all are counted.
	Findings []SweepFinding `json:"findings"`
	More     bool           `json:"more" doc:"It ended at its bounds; the next run continues"`
}

// SweepFinding is one finding of a sweep.
type SweepFinding struct {
	Subject string `json:"subject" doc:"Its subject, such as the UUID of a task"`
	Action  string `json:"action"`
	Detail  string `json:"detail,omitempty"`
}

// States that a circuit breaker can be forced to.
const (
	BreakerForcedOpen   = "forced_open"
	BreakerForcedClosed = "forced_closed"
	BreakerAutomatic    = "automatic"
)

// Breaker is a circuit breaker: while it is open calls to its dependency are rejected.
// Counts are since the daemon started.
type Breaker struct {
	Name    string `json:"name"`
	State   string `json:"state" enum:"closed,half_open,open" doc:"open: calls are rejected; half_open: trials go through"`
	Control string `json:"control" enum:"automatic,forced_open,forced_closed" doc:"What decides the state: the outcomes of calls, or an operator"`
	Since   *Time  `json:"since" format:"date-time" doc:"When the state changed last; null when it never did"`
	// RetryAfterSeconds is how long calls are rejected from now on.
	RetryAfterSeconds float64 `json:"retry_after_seconds"`
	FailuresInARow    int64   `json:"failures_in_a_row"`
	Calls             uint64  `json:"calls" doc:"Let through and ended"`
	Failures          uint64  `json:"failures"`
	Rejected          uint64  `json:"rejected"`
	Opened            uint64  `json:"opened" doc:"How often it has opened"`
	LastFailureAt     *Time   `json:"last_failure_at" format:"date-time"`
}
