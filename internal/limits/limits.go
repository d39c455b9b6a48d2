package limits

import (
	"math"
	"time"
)

// Actions on many tasks.
const (
	DefaultBulkLimit = 1000
	MaxBulkLimit     = 10_000
	MaxBulkTasks     = 100 // named in an answer; all are counted
)

// Tasks of a chain.
const (
	DefaultChainLimit = 50
	MaxChainLimit     = 500
)

// The dead-letter queue: its lists, replays and purges.
const (
	DefaultDLQLimit    = 50
	DefaultQueueLimit  = 100 // of the investigation queue and of staleness
	MaxDLQLimit        = 1000
	MaxDLQOffset       = 100_000
	DefaultReplayLimit = 100
	MaxReplayLimit     = 1000
	DefaultReplayRate  = 10.0 // tasks per second
	MaxReplayRate      = 1000.0
	DefaultPurgeLimit  = 1000
	MaxPurgeLimit      = 10_000
)

// Isolated items, and those of one replay.
const (
	DefaultIsolatedItems = 100
	MaxIsolatedItems     = 1000
	MaxIsolatedReplay    = 10_000
)

// Schedules.
const (
	DefaultMaxCatchUp   = 10 // missed runs that are made
	MaxJitterSeconds    = 3600
	DefaultNextRuns     = 10
	MaxNextRuns         = 100
	MaxSchedulesPerPage = 100
)

// Lists of workers and of domain events.
const (
	DefaultWorkerLimit = 100
	MaxWorkerLimit     = 1000
	MaxEventsPerPage   = 1000
)

// What a task type is named when the request does not say it.
const (
	DefaultTypeNamespace = "default"
	DefaultTypeVersion   = "1.0.0"
)

// The retries of one task.
const (
	MaxRetryDelays = 32
	MaxRetryDelay  = 30 * 24 * time.Hour
	MaxAttempts    = math.MaxInt16
)
