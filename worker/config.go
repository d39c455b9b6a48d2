package worker

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/notify"
	"github.com/tasker-go/tasker/signal/relay"
	"github.com/tasker-go/tasker/signal/wal"
	"github.com/tasker-go/tasker/store"
)

// Everywhere as a namespace means all of them.
const Everywhere = "*"

// Config describes a Worker. Store or DatabaseURL is required. A field that is
// zero and names a key has the default of that key ([config.Defaults]).
type Config struct {
	// Store is used and not closed; without it the worker opens its own with
	// DatabaseURL (libpq URL or key-value string) and closes it.
	Store       *store.Store
	DatabaseURL string
	// MaxConnections of a store of its own (common.database.pool.max_connections).
	MaxConnections int32

	// EventSource is where signals come from. Without it EventSourceName ("notify",
	// "wal", "relay" or "none"; common.signals.event_source) makes one that
	// connects to ListenerURL, which must reach the server directly and not
	// through a pooler; default DatabaseURL. With neither URL the worker polls.
	EventSource     signal.Source
	EventSourceName string
	ListenerURL     string
	// Publisher tells others of what the worker has done; default one over the
	// store's connections.
	Publisher signal.Publisher

	// Namespaces to serve; empty means those of the registered templates.
	// Every, or the namespace "*", means all there are and will be.
	Namespaces []string
	Every      bool
	// Tags the worker carries; a step's tags must be among them.
	Tags []string
	// Environment selects the overrides of the templates; default "".
	Environment string
	// Immutable is what becomes of a template whose version tasks have used with
	// other content (common.task_templates.immutable). A worker runs without one
	// that is refused.
	Immutable store.Immutability

	// Mode in which work is found (worker.event_systems.worker.deployment_mode).
	Mode deploymode.Mode
	// Events tunes how work is found. Its Mode, Source, Topics, Logger and
	// Metrics are taken from here (worker.event_systems.worker).
	Events coordinator.Config

	// MaxConcurrent is how many handlers run at once
	// (worker.mpsc_channels.handler_dispatch.max_concurrent_handlers).
	MaxConcurrent int
	// Prefetch is how many more steps may be claimed ahead (worker.prefetch).
	// They are handed back when the worker stops.
	Prefetch int
	// HandlerTimeout limits a handler whose template sets no limit
	// (worker.mpsc_channels.handler_dispatch.handler_timeout_ms).
	HandlerTimeout time.Duration
	// MaxResultBytes bounds the JSON of a handler's result; default 1 MiB.
	MaxResultBytes int
	// Report bounds the transactions that report outcomes.
	Report ReportConfig
	// Checkpoint bounds what handlers save of their progress.
	Checkpoint CheckpointConfig
	// Isolation bounds what handlers of batches could not process.
	Isolation IsolationConfig
	// DomainEvents bounds what is made of the events that steps declare.
	DomainEvents DomainEventConfig
	// Transactions are those of handlers that work in one.
	Transactions TransactionConfig

	// Lease is how long a claim lasts without a heartbeat (worker.lease_seconds).
	Lease time.Duration
	// LeaseGrace is how long handlers run on after their lease has ended while no
	// heartbeat gets through (worker.lease_grace_seconds); negative: not at all.
	LeaseGrace time.Duration
	// HeartbeatInterval is how often leases are extended, at most a third of
	// Lease (worker.heartbeat_interval_ms).
	HeartbeatInterval time.Duration
	// ShutdownTimeout bounds Stop where its context has no deadline, and Run's
	// stopping; default 30 s.
	ShutdownTimeout time.Duration

	// WorkerID names the worker for people; default the host's name and the
	// process id. Version is that of the program around it; default "dev".
	WorkerID string
	Version  string
	// Exclusive says that no other worker runs under the WorkerID. Start fails with
	// ErrWorkerIDInUse while one lives, and takes at once from one that has died what
	// it held; a worker that learns that another one has taken its place ends.
	Exclusive bool

	Logger  *zap.Logger // default none
	Metrics *Metrics    // default none
}

// Metrics is the catalogue of the product's metrics, see NewMetrics.
type Metrics = telemetry.Metrics

// NewMetrics registers the catalogue on reg and returns it. A second call with the
// same registry returns the collectors that exist, so several workers of a program
// may share it. It panics where reg holds a metric of the same name and another shape.
func NewMetrics(reg prometheus.Registerer) *Metrics { return telemetry.NewMetrics(reg) }

// ReportConfig bounds the reporting of outcomes.
type ReportConfig struct {
	// MaxBatch is how many outcomes one transaction reports
	// (worker.report.batch_size).
	MaxBatch int
	// MaxPending is how many outcomes may wait to be reported
	// (worker.report.max_pending).
	MaxPending int
	// ClaimBelow is the share of MaxPending, above 0 to 1, at which claiming stops
	// (worker.mpsc_channels.handler_dispatch.load_shedding).
	ClaimBelow float64
	// WarnFrom is the share of MaxPending from which on a warning is logged
	// (load_shedding as well); negative: never.
	WarnFrom float64
	// SlowAfter is the duration of a report that is logged as slow
	// (worker.circuit_breakers.ffi_completion_send.slow_send_threshold_ms).
	SlowAfter time.Duration
	// Only has successes reported like failures, so that an orchestrator decides what
	// follows (worker.report.settle is false).
	Only bool
	// Breaker is asked before each report; while it is open nothing is claimed
	// either. nil lets all through. Outcomes wait, they are never dropped.
	Breaker *breaker.Breaker
}

// CheckpointConfig bounds the checkpoints of handlers (worker.checkpoint).
type CheckpointConfig struct {
	// MaxCursorBytes bounds the JSON of a cursor.
	MaxCursorBytes int
	// MaxAccumulatedBytes bounds the JSON of accumulated results. Each checkpoint
	// writes all of it.
	MaxAccumulatedBytes int
	// MaxHistory is how many earlier cursors of a step are kept for people, the
	// newest; negative for none.
	MaxHistory int
	// SaveTimeout is how long StepContext.Checkpoint waits for the database.
	// Yields are kept until they are answered.
	SaveTimeout time.Duration
}

// withDefaults fills in what is missing and refuses what cannot work.
func (c Config) withDefaults() (Config, error) {
	defaults, err := config.Defaults()
	if err != nil {
		return c, err
	}
	d := Configure(defaults)
	d.WorkerID, d.Version = fmt.Sprintf("worker-%s-%d", hostname(), os.Getpid()), "dev"
	d.ListenerURL, d.Logger = c.DatabaseURL, zap.NewNop()
	d.MaxResultBytes, d.ShutdownTimeout = 1<<20, 30*time.Second
	d.HeartbeatInterval = min(d.HeartbeatInterval, cmp.Or(c.Lease, d.Lease)/3)
	c = config.Or(c, d)
	c.Checkpoint.MaxHistory, c.LeaseGrace = max(c.Checkpoint.MaxHistory, 0), max(c.LeaseGrace, 0)
	c.Metrics = c.Metrics.OrDiscard()
	if slices.Contains(c.Namespaces, Everywhere) {
		c.Every = true
	}
	c.Namespaces = slices.Compact(slices.Sorted(slices.Values(c.Namespaces)))
	return c, c.check()
}

func (c Config) check() error {
	var wrong []error
	refuse := func(when bool, format string, args ...any) {
		if when {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	wrong = append(wrong, config.Positive("MaxConcurrent", c.MaxConcurrent), config.Positive("HandlerTimeout", c.HandlerTimeout),
		config.Positive("Report.MaxBatch", c.Report.MaxBatch), config.Positive("Report.MaxPending", c.Report.MaxPending),
		config.Positive("HeartbeatInterval", c.HeartbeatInterval), config.Positive("DomainEvents.Buffer", c.DomainEvents.Buffer))
	refuse(c.Report.ClaimBelow < 0 || c.Report.ClaimBelow > 1, "invalid Report.ClaimBelow %v: want more than 0, at most 1", c.Report.ClaimBelow)
	refuse(c.Store == nil && c.DatabaseURL == "", "neither Store nor DatabaseURL is set")
	_, known := deploymode.Parse(string(c.Mode))
	refuse(!known, "%q is no deployment mode", c.Mode)
	sources := []string{notify.Name, wal.Name, relay.Name, "none"}
	refuse(c.EventSource == nil && !slices.Contains(sources, c.EventSourceName), "EventSourceName %q is none of %v", c.EventSourceName, sources)
	refuse(!slices.Contains([]UnknownPublisher{PublishPlain, PublishNothing, PublishError}, c.DomainEvents.UnknownPublisher),
		"DomainEvents.UnknownPublisher %q is none of default, nothing and error", c.DomainEvents.UnknownPublisher)
	refuse(!slices.Contains([]store.Immutability{store.VersionsRefuse, store.VersionsWarn, store.VersionsOff}, c.Immutable),
		"Immutable %q is none of refuse, warn and off", c.Immutable)
	refuse(c.Prefetch < 0, "Prefetch %d is negative", c.Prefetch)
	refuse(c.Lease < 100*time.Millisecond, "Lease %v is shorter than 100 ms", c.Lease)
	refuse(c.HeartbeatInterval > c.Lease/3, "HeartbeatInterval %v is more than a third of Lease %v", c.HeartbeatInterval, c.Lease)
	for _, name := range c.Namespaces {
		if name != Everywhere {
			err := signal.WorkerTopic(name).Validate()
			refuse(name == "" || err != nil, "namespace %q cannot be listened to: %w", name, err)
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("configure the worker: %w", err)
	}
	return nil
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
