package client

import "encoding/json"

// NamespaceList is all namespaces by name.
type NamespaceList struct {
	Namespaces []Namespace `json:"namespaces"`
}

// Namespace is a queue. While it is paused workers claim nothing of it; tasks
// are still created, and what runs is finished.
type Namespace struct {
	Name        string  `json:"name"`
	Paused      bool    `json:"paused"`
	PausedAt    *Time   `json:"paused_at" format:"date-time"`
	PausedBy    *string `json:"paused_by"`
	PauseReason *string `json:"pause_reason"`
	// PausedCallables are those that are paused by themselves.
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

// Bounds of [WorkerListOptions].
const (
	DefaultWorkerLimit = 100
	MaxWorkerLimit     = 1000
)

// WorkerList is workers, those that gave a sign of life last first.
type WorkerList struct {
	Workers []WorkerState `json:"workers"`
}

// WorkerState is one worker as the registry knows it.
type WorkerState struct {
	WorkerUUID  string   `json:"worker_uuid" doc:"New for every start of the process"`
	WorkerID    string   `json:"worker_id"`
	Hostname    string   `json:"hostname"`
	Address     string   `json:"address" doc:"host:port of its API, with the host's name where it listens on all addresses; empty without an API"`
	Version     string   `json:"version"`
	Mode        string   `json:"mode" doc:"Deployment mode; Draining while it stops"`
	Draining    bool     `json:"draining,omitempty" doc:"It is stopping: it claims nothing and ends what it runs"`
	Namespaces  []string `json:"namespaces"`
	Tags        []string `json:"tags"`
	Status      string   `json:"status" doc:"active, stale or dead" enum:"active,stale,dead"`
	StatusSince Time     `json:"status_since" format:"date-time"`
	StartedAt   Time     `json:"started_at" format:"date-time"`
	// HeartbeatAgeSeconds is by the database's clock.
	HeartbeatAgeSeconds float64 `json:"heartbeat_age_seconds"`
	StoppedAt           *Time   `json:"stopped_at" format:"date-time" doc:"When it signed off"`
	// RefusedTemplates are those of its templates whose versions have other content,
	// the first 100.
	RefusedTemplates []RefusedTemplate `json:"refused_templates,omitempty"`
}

// SweepList is the sweeps that some orchestrator has run, by name.
type SweepList struct {
	Sweeps []Sweep `json:"sweeps"`
}

// Sweep is a job that the orchestrators do by turns.
type Sweep struct {
	Name    string `json:"name"`
	Running bool   `json:"running"`
	// Holder is the orchestrator that runs it, or did last.
	Holder     string          `json:"holder" doc:"UUID of the orchestrator that runs it or did last"`
	NextAt     Time            `json:"next_at" format:"date-time" doc:"When it is due again"`
	StartedAt  Time            `json:"started_at" format:"date-time"`
	FinishedAt *Time           `json:"finished_at" format:"date-time" doc:"Null while it runs, and when its last run was cut off"`
	Runs       int64           `json:"runs"`
	Result     json.RawMessage `json:"result" doc:"What the last run did that came to its end"`
}

// SweepRequest is the body of POST /v1/sweeps/{name}/run; it may be left out.
type SweepRequest struct {
	// DryRun is false unless it is given: a sweep does only what it would do by
	// itself.
	DryRun bool `json:"dry_run,omitempty" doc:"Only tell what would be done"`
}

// SweepRun is what one run of a sweep did; of a dry run, would have done.
type SweepRun struct {
	Sweep   string `json:"sweep"`
	Outcome string `json:"outcome"`
	DryRun  bool   `json:"dry_run"`
	TookMS  int64  `json:"took_ms"`
	// Error is why it did not come to its end.
	Error string `json:"error,omitempty"`
	// Items counts what was done by action, such as "cancelled".
	Items map[string]int `json:"items"`
	// Findings are the first things found; all are counted.
	Findings []SweepFinding `json:"findings"`
	More     bool           `json:"more" doc:"It ended at its bounds; the next run goes on"`
}

// SweepFinding is one thing that a sweep found.
type SweepFinding struct {
	Subject string `json:"subject" doc:"What it is about, such as the UUID of a task"`
	Action  string `json:"action"`
	Detail  string `json:"detail,omitempty"`
}

// What a circuit breaker can be told.
const (
	BreakerForcedOpen   = "forced_open"
	BreakerForcedClosed = "forced_closed"
	BreakerAutomatic    = "automatic"
)

// BreakerList is the circuit breakers of one daemon, by name.
type BreakerList struct {
	Breakers []Breaker `json:"breakers"`
}

// Breaker is a circuit breaker: while it is open nothing is asked of what is
// behind it. Counts are since the daemon started.
type Breaker struct {
	Name    string `json:"name"`
	State   string `json:"state" enum:"closed,half_open,open" doc:"Open: calls are refused; half_open: trials go through"`
	Control string `json:"control" enum:"automatic,forced_open,forced_closed" doc:"Who decides about the state: the outcomes of calls, or an operator"`
	Since   *Time  `json:"since" format:"date-time" doc:"When the state changed last; null when it never did"`
	// RetryAfterSeconds is how long calls are refused from now on.
	RetryAfterSeconds float64 `json:"retry_after_seconds"`
	FailuresInARow    int64   `json:"failures_in_a_row"`
	Calls             uint64  `json:"calls" doc:"Let through and ended"`
	Failures          uint64  `json:"failures"`
	Rejected          uint64  `json:"rejected"`
	Opened            uint64  `json:"opened" doc:"How often it has opened"`
	LastFailureAt     *Time   `json:"last_failure_at" format:"date-time"`
}

// BreakerForce is the body of PUT /v1/admin/breakers/{name}.
type BreakerForce struct {
	State string `json:"state" doc:"Hold it open or closed, or let it decide again" enum:"forced_open,forced_closed,automatic"`
}
