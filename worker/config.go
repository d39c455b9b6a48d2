package worker

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/attemptlog"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/internal/signal/redis"
	"github.com/tasker-go/tasker/internal/signal/relay"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/tracing"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker/internal/engine"
)

// everywhere as a namespace means all namespaces.
const everywhere = "*"

// Config configures a Worker. Store or DatabaseURL is required. A zero field that names a
// key has the default of that key ([config.Defaults]).
type Config struct {
	// Store is used and not closed; without it the worker opens and closes its own with
	// DatabaseURL (libpq URL or key-value string).
	Store       *store.Store
	DatabaseURL string
	// MaxConnections of the worker's own store (common.database.pool.max_connections).
	MaxConnections int32

	// EventSource receives signals, unless Events.Listener does. Without both,
	// EventSourceName ("notify", "wal", "relay", "amqp", "redis" or "none"; common.signals.event_source)
	// makes one that connects to ListenerURL, which must reach the server directly and not
	// through a pooler; default DatabaseURL. With neither URL the worker polls. "amqp" and
	// "redis" connect to the broker of Configure's settings (common.queues.rabbitmq,
	// common.signals.redis), or of their defaults.
	EventSource     signal.Source
	EventSourceName string
	ListenerURL     string
	movingFrom      string // common.signals.moving_from
	broker          amqp.Config
	redis           redis.Config
	// Publisher sends the worker's signals; default one over the store's connections.
	Publisher signal.Publisher

	// Namespaces to serve; empty means those of the registered templates. Every, or the
	// namespace "*", means all, including later ones.
	Namespaces []string
	Every      bool
	// Tags the worker carries; a step's tags must be among them.
	Tags []string
	// Environment selects the overrides of the templates; default "".
	Environment string
	// Immutable is the policy for a template whose version tasks have used with other
	// content (common.task_templates.immutable). A worker runs without a rejected
	// template.
	Immutable store.Immutability

	// Mode in which work is found (worker.event_systems.worker.deployment_mode).
	Mode deploymode.Mode
	// Events configures the event system (worker.event_systems.worker). Its Mode, Topics,
	// Logger and Metrics are taken from here, and its Listener where it has none: set it
	// to share one with other systems of the process.
	Events coordinator.Config

	// MaxConcurrent bounds the handlers that run at once
	// (worker.mpsc_channels.handler_dispatch.max_concurrent_handlers).
	MaxConcurrent int
	// Prefetch is the number of steps that may be claimed ahead (worker.prefetch). They
	// are handed back when the worker stops.
	Prefetch int
	// HandlerTimeout limits handlers whose template sets no limit
	// (worker.mpsc_channels.handler_dispatch.handler_timeout_ms).
	HandlerTimeout time.Duration
	// Inputs bounds the inputs of steps that are too large to come with their claims.
	Inputs InputConfig
	// MaxResultBytes bounds the JSON of a handler's result (common.documents.max_bytes).
	MaxResultBytes int
	// ResultSchema is the policy for a result that does not fit the result_schema of its step
	// (worker.step_results.schema): "enforce" fails the step for good, "warn" logs and counts
	// it, "off" does not look.
	ResultSchema string
	// SchemaChecks bounds the checks of results, payloads of events and contexts of tasks against
	// the schemas of templates (common.schema_checks).
	SchemaChecks SchemaCheckConfig
	checker      *schema.Checker
	// Report bounds the transactions that report outcomes.
	Report ReportConfig
	// Checkpoint bounds the checkpoints of handlers.
	Checkpoint CheckpointConfig
	// Logs says what of the logs of handlers is kept with their attempts.
	Logs LogConfig
	// Isolation bounds the items that handlers of batches isolate.
	Isolation IsolationConfig
	// DomainEvents bounds the events that steps publish.
	DomainEvents DomainEventConfig
	// Transactions configures handlers that work in a transaction.
	Transactions TransactionConfig

	// Lease is how long a claim lasts without a heartbeat (worker.lease_seconds).
	Lease time.Duration
	// LeaseGrace is how long handlers continue after the end of their lease while
	// heartbeats fail (worker.lease_grace_seconds); negative: not at all.
	LeaseGrace time.Duration
	// HeartbeatInterval is the interval at which leases are extended, at most a third of
	// Lease (worker.heartbeat_interval_ms).
	HeartbeatInterval time.Duration
	// ShutdownTimeout bounds Stop if its context has no deadline, and the stop of Run;
	// default 30 s.
	ShutdownTimeout time.Duration

	// WorkerID names the worker for operators; default the host's name and the process
	// id. Version is that of the program; default "dev".
	WorkerID string
	Version  string
	// Exclusive says that no other worker runs under the WorkerID. Start fails with
	// ErrWorkerIDInUse while another one is alive, and takes over the steps of a dead one
	// at once; a worker that finds its WorkerID taken over ends.
	Exclusive bool
	// ReclaimGrace is how long the steps of such a dead worker whose handlers ran in other
	// processes may still be adopted, see Adopt (worker.sessions.reclaim_grace_ms). Those
	// that this worker has handlers for run again at once; without it, all do.
	ReclaimGrace time.Duration

	Logger  *zap.Logger // default: no logging
	Metrics *Metrics    // default: no metrics
	// Tracer is the daemon's; default: no spans, and traces of tasks are handed on.
	Tracer *tracing.Tracer
}

// SchemaCheckConfig bounds checks against schemas (common.schema_checks). Of a check with more than
// 20,000 steps at most MaxConcurrent are under way in a worker, and MaxWaiting wait.
type SchemaCheckConfig struct {
	MaxSteps      int           // of one check (max_steps)
	MaxTime       time.Duration // of one check (max_time_ms)
	MaxConcurrent int           // large checks (max_concurrent)
	MaxWaiting    int           // large checks (max_waiting)
}

// Metrics is the catalogue of the product's metrics, see NewMetrics.
type Metrics = telemetry.Metrics

// NewMetrics registers the catalogue on reg and returns it. A second call with the same
// registry returns the existing collectors, so several workers of a program may share it.
// It panics if reg holds a metric of the same name and another shape.
func NewMetrics(reg prometheus.Registerer) *Metrics { return telemetry.NewMetrics(reg) }

// InputConfig bounds the contexts, results of parents and checkpoints of steps that have more than 64 KiB of
// them, in bytes of JSON (worker.inputs). They are read when the handler is about to begin.
type InputConfig struct {
	MaxBytes   int64 // of one step; a step with more fails for good
	TotalBytes int64 // of all such steps whose handlers run; others wait
}

// ReportConfig bounds the reporting of outcomes.
type ReportConfig struct {
	// MaxBatch bounds the outcomes per transaction (worker.report.batch_size).
	MaxBatch int
	// MaxPending bounds the outcomes that wait to be reported
	// (worker.report.max_pending).
	MaxPending int
	// ClaimBelow is the share of MaxPending, above 0 to 1, at which claiming stops
	// (worker.mpsc_channels.handler_dispatch.load_shedding).
	ClaimBelow float64
	// WarnFrom is the share of MaxPending from which a warning is logged (load_shedding
	// as well); negative: never.
	WarnFrom float64
	// SlowAfter is the duration from which a report is logged as slow
	// (worker.circuit_breakers.ffi_completion_send.slow_send_threshold_ms).
	SlowAfter time.Duration
	// Only makes the worker report successes like failures, so that an orchestrator
	// decides what follows (worker.report.settle is false).
	Only bool
	// Breaker guards reports; while it is open the worker claims nothing either. nil: no
	// breaker. Outcomes wait and are never dropped.
	Breaker *breaker.Breaker
}

// CheckpointConfig bounds the checkpoints of handlers (worker.checkpoint).
type CheckpointConfig struct {
	// MaxCursorBytes bounds the JSON of a cursor.
	MaxCursorBytes int
	// MaxAccumulatedBytes bounds the JSON of accumulated results. Each checkpoint writes
	// all of it.
	MaxAccumulatedBytes int
	// MaxHistory is the number of newest earlier cursors of a step kept for operators;
	// negative for none.
	MaxHistory int
	// SaveTimeout bounds the wait of StepContext.Checkpoint for the database. Yields are
	// retried until they are answered.
	SaveTimeout time.Duration
}

// LogConfig says what of the logs of handlers is kept with their attempts (worker.logs).
type LogConfig struct {
	// Off keeps nothing (enabled is false).
	Off bool
	// Level is the least level that is kept: debug, info, warn or error.
	Level string
	// MaxKeptBytes bounds the first lines of an attempt that are kept, and the last, in bytes before compression.
	MaxKeptBytes int
	// MaxLineBytes bounds the text of a line, and its fields.
	MaxLineBytes int
	// MaxPendingBytes bounds the lines of all handlers that are not written yet.
	MaxPendingBytes int
	// FlushAfter is how long a line waits for others before it is written.
	FlushAfter time.Duration
	// Redact are names of fields whose values are hidden, in whatever case. To hide none, use a name that no field has.
	Redact []string
}

// engine is the configuration for the engine.
func (c *LogConfig) engine() (l engine.Logs, err error) {
	if c.Off {
		return l, nil
	}
	from, err := attemptlog.ParseLevel(c.Level)
	return engine.Logs{From: from, Hidden: attemptlog.NewRedaction(c.Redact), Bounds: attemptlog.Bounds{Kept: c.MaxKeptBytes, Line: c.MaxLineBytes,
		Pending: c.MaxPendingBytes, After: c.FlushAfter}}, err
}

// TransactionConfig configures handlers that work in a transaction (HandleTx).
type TransactionConfig struct {
	// MaxConnections bounds their connections (worker.transactions.max_connections).
	// Further handlers wait, within their time limits. The connections are separate from
	// the store's and opened on first use.
	MaxConnections int32
	// Pool is a *pgxpool.Pool of the program, to the engine's database and with a role
	// that has the engine's rights there. It is not closed. Handlers must not wait for
	// other uses of it: a handler holds a connection while it runs. Default: a pool of
	// the worker's own.
	Pool *store.Pool
}

// withDefaults sets defaults and rejects invalid settings.
func (c Config) withDefaults() (Config, error) {
	defaults, err := config.Defaults()
	if err != nil {
		return c, err
	}
	d := Configure(defaults)
	d.WorkerID, d.Version = fmt.Sprintf("worker-%s-%d", hostname(), os.Getpid()), "dev"
	d.ListenerURL, d.Logger = c.DatabaseURL, zap.NewNop()
	d.ShutdownTimeout = 30 * time.Second
	d.HeartbeatInterval = min(d.HeartbeatInterval, cmp.Or(c.Lease, d.Lease)/3)
	c = settings.Or(c, d)
	c.redis = cmp.Or(c.redis, d.redis)
	if c.broker.URL == "" { // not from Configure
		c.broker = d.broker
	}
	c.Checkpoint.MaxHistory, c.LeaseGrace = max(c.Checkpoint.MaxHistory, 0), max(c.LeaseGrace, 0)
	c.Metrics = c.Metrics.OrDiscard()
	if slices.Contains(c.Namespaces, everywhere) {
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
	wrong = append(wrong, settings.Positive("MaxConcurrent", c.MaxConcurrent), settings.Positive("HandlerTimeout", c.HandlerTimeout),
		settings.Positive("Report.MaxBatch", c.Report.MaxBatch), settings.Positive("Report.MaxPending", c.Report.MaxPending),
		settings.Positive("HeartbeatInterval", c.HeartbeatInterval), settings.Positive("DomainEvents.Buffer", c.DomainEvents.Buffer))
	refuse(c.Report.ClaimBelow < 0 || c.Report.ClaimBelow > 1, "invalid Report.ClaimBelow %v: want more than 0, at most 1", c.Report.ClaimBelow)
	refuse(c.Store == nil && c.DatabaseURL == "", "want Store or DatabaseURL")
	_, known := deploymode.Parse(string(c.Mode))
	refuse(!known, "invalid Mode %q", c.Mode)
	sources := []string{notify.Name, wal.Name, relay.Name, amqp.Name, redis.Name, "none"}
	refuse(c.EventSource == nil && !slices.Contains(sources, c.EventSourceName), "invalid EventSourceName %q: want one of %v", c.EventSourceName, sources)
	refuse(!slices.Contains([]string{publishPlain, publishNothing, publishError}, c.DomainEvents.UnknownPublisher),
		"invalid DomainEvents.UnknownPublisher %q: want default, nothing or error", c.DomainEvents.UnknownPublisher)
	refuse(!slices.Contains([]store.Immutability{store.VersionsRefuse, store.VersionsWarn, store.VersionsOff}, c.Immutable),
		"invalid Immutable %q: want refuse, warn or off", c.Immutable)
	refuse(!slices.Contains([]string{schemaEnforce, schemaWarn, schemaOff}, c.ResultSchema),
		"invalid ResultSchema %q: want enforce, warn or off", c.ResultSchema)
	refuse(c.Prefetch < 0, "invalid Prefetch %d: want at least 0", c.Prefetch)
	refuse(c.Lease < 100*time.Millisecond, "invalid Lease %v: want at least 100 ms", c.Lease)
	refuse(c.HeartbeatInterval > c.Lease/3, "invalid HeartbeatInterval %v: want at most a third of Lease %v", c.HeartbeatInterval, c.Lease)
	_, err := c.Logs.engine()
	refuse(err != nil, "Logs: %w", err)
	for _, name := range c.Namespaces {
		if name != everywhere {
			err := signal.WorkerTopic(name).Validate()
			refuse(name == "" || err != nil, "invalid namespace %q: %w", name, err)
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

// Configure translates the settings of a worker, except its connections and parts.
func Configure(c *config.Loaded) Config {
	w, dispatch, r := c.Worker, c.Worker.MPSCChannels.HandlerDispatch, c.Common.Signals.Redis
	return Config{
		MaxConnections: int32(c.Common.Database.Pool.MaxConnections), EventSourceName: c.Common.Signals.EventSource, // #nosec G115 -- ranges are checked
		movingFrom: c.Common.Signals.MovingFrom, broker: amqp.Configure(c.Common), redis: redis.Config{URL: r.URL.Reveal(), Prefix: r.Prefix, Timeout: r.Timeout, ClientName: "tasker-worker",
			BufferLimit: w.MPSCChannels.EventListeners.PGMQEventBufferSize},
		Namespaces: w.Namespaces, Tags: w.Tags, Immutable: store.Immutability(c.Common.TaskTemplates.Immutable),
		Mode: w.EventSystems.Worker.DeploymentMode, Events: coordinator.Configure(w.EventSystems.Worker.EventSystem),
		MaxConcurrent: dispatch.MaxConcurrentHandlers, MaxResultBytes: c.Common.Documents.MaxBytes, Prefetch: w.Prefetch, HandlerTimeout: dispatch.HandlerTimeout, ResultSchema: w.StepResults.Schema, SchemaChecks: SchemaCheckConfig(submission.LimitsOf(c.Common.SchemaChecks)),
		Inputs: InputConfig{MaxBytes: int64(w.Inputs.MaxBytes), TotalBytes: int64(w.Inputs.TotalBytes)},
		Report: ReportConfig{Only: !w.Report.Settle, MaxBatch: w.Report.BatchSize, MaxPending: w.Report.MaxPending,
			ClaimBelow: claimBelow(dispatch.LoadShedding), WarnFrom: warnFrom(dispatch.LoadShedding),
			SlowAfter: w.CircuitBreakers.FFICompletionSend.SlowSendThreshold},
		Checkpoint: CheckpointConfig{MaxCursorBytes: w.Checkpoint.MaxCursorBytes, MaxAccumulatedBytes: w.Checkpoint.MaxAccumulatedBytes,
			MaxHistory: orNone(w.Checkpoint.MaxHistory), SaveTimeout: w.Checkpoint.SaveTimeout},
		Logs: LogConfig{Off: !w.Logs.Enabled, Level: w.Logs.Level, MaxKeptBytes: w.Logs.Kept, MaxLineBytes: w.Logs.MaxLine, MaxPendingBytes: w.Logs.MaxPending,
			FlushAfter: w.Logs.FlushAfter, Redact: w.Logs.Redact},
		Isolation:    IsolationConfig{MaxItems: w.IsolatedItems.MaxItems, MaxItemBytes: w.IsolatedItems.MaxItemBytes, MaxBytes: w.IsolatedItems.MaxTotalBytes},
		DomainEvents: configureEvents(w),
		Transactions: TransactionConfig{MaxConnections: int32(w.Transactions.MaxConnections)}, // #nosec G115 -- ranges are checked
		Lease:        w.Lease, LeaseGrace: orNone(w.LeaseGrace), HeartbeatInterval: w.HeartbeatInterval, WorkerID: w.WorkerID, Exclusive: w.Exclusive,
	}
}

func configureEvents(w config.Worker) DomainEventConfig {
	made, bus := w.MPSCChannels.DomainEvents, w.MPSCChannels.InProcessEvents
	return DomainEventConfig{MaxPayloadBytes: w.DomainEvents.MaxPayloadBytes, MaxOwn: orNone(w.DomainEvents.MaxOwn), PublisherTimeout: w.DomainEvents.PublisherTimeout,
		UnknownPublisher: w.DomainEvents.UnknownPublisher,
		Buffer:           made.CommandBufferSize, QuietDrops: !made.LogDroppedEvents, DrainTimeout: made.ShutdownDrainTimeout,
		RememberedIDs:    orNone(w.EventSystems.Worker.Metadata.InProcessEvents.DeduplicationCacheSize),
		SubscriberBuffer: bus.BroadcastBufferSize, SubscriberTimeout: bus.DispatchTimeout, QuietSubscribers: !bus.LogSubscriberErrors}
}

// orNone translates 0 ("none" in the settings) to a negative value, since 0 in a Config
// means unset.
func orNone[N int | time.Duration](n N) N {
	if n == 0 {
		return -1
	}
	return n
}

// claimBelow is the share of pending reports at which the worker stops claiming.
func claimBelow(l config.LoadShedding) float64 {
	if !l.Enabled {
		return 1
	}
	return max(l.CapacityThresholdPercent/100, math.SmallestNonzeroFloat64)
}

// warnFrom is the share of pending reports from which a warning is logged.
func warnFrom(l config.LoadShedding) float64 {
	if !l.Enabled || l.WarningThresholdPercent == 0 {
		return -1
	}
	return l.WarningThresholdPercent / 100
}
