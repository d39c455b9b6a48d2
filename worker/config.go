package worker

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/breaker"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/notify"
	"github.com/tasker-go/tasker/signal/relay"
	"github.com/tasker-go/tasker/signal/wal"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/telemetry"
)

// Everywhere as a namespace means all of them.
const Everywhere = "*"

// Config describes a Worker. Store or DatabaseURL is required; other zero
// values take the defaults of the configuration ([config.Defaults]), which the
// fields name.
type Config struct {
	// Store is used and not closed; without it the worker opens its own with
	// DatabaseURL (libpq URL or key-value string) and closes it.
	Store       *store.Store
	DatabaseURL string
	// MaxConnections of a store of its own; default 10.
	MaxConnections int32

	// EventSource is where signals come from. Without it EventSourceName
	// ("notify", the default, "wal", "relay" or "none") makes one that connects to
	// ListenerURL, which must reach the server directly and not through a
	// pooler; default DatabaseURL. With neither URL the worker polls.
	EventSource     signal.Source
	EventSourceName string
	ListenerURL     string
	// Publisher tells others of what the worker has done; default one over the
	// store's connections.
	Publisher signal.Publisher

	// Settler is an orchestrator in the same process, which then applies
	// successes at once where it can. It needs a *store.Store; default none.
	Settler Settler

	// Namespaces to serve; empty means those of the registered templates.
	// Every, or the namespace "*", means all there are and will be.
	Namespaces []string
	Every      bool
	// Tags the worker carries; a step's tags must be among them.
	Tags []string
	// Environment selects the overrides of the templates; default "".
	Environment string
	// Immutable is what becomes of a template whose version tasks have used with
	// other content; default store.VersionsRefuse: the worker runs without it.
	Immutable store.Immutability

	// Mode in which work is found; default Hybrid.
	Mode deploymode.Mode
	// Events tunes how work is found. Its Mode, Source, Topics, Logger and
	// Metrics are taken from here; what it leaves out is that of the
	// configuration.
	Events coordinator.Config

	// MaxConcurrent is how many handlers run at once; default 10.
	MaxConcurrent int
	// Prefetch is how many more steps may be claimed ahead; default 0. They
	// are handed back when the worker stops.
	Prefetch int
	// HandlerTimeout limits a handler whose template sets no limit; default 30 s.
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

	// Lease is how long a claim lasts without a heartbeat; default 60 s.
	Lease time.Duration
	// HeartbeatInterval is how often leases are extended; default 10 s, at
	// most a third of Lease.
	HeartbeatInterval time.Duration
	// ShutdownTimeout bounds Stop where its context has no deadline, and Run's
	// stopping; default 30 s.
	ShutdownTimeout time.Duration

	// WorkerID names the worker for people; default the host's name and the
	// process id. Version is that of the program around it; default "dev".
	WorkerID string
	Version  string

	Logger  *zap.Logger        // default none
	Metrics *telemetry.Metrics // default none
}

// ReportConfig bounds the reporting of outcomes.
type ReportConfig struct {
	// MaxBatch is how many outcomes one transaction reports; default 500.
	MaxBatch int
	// MaxPending is how many outcomes may wait to be reported; default 10,000.
	MaxPending int
	// ClaimBelow is the share of MaxPending, above 0 to 1, at which claiming
	// stops; default 1.
	ClaimBelow float64
	// WarnFrom is the share of MaxPending from which on a warning is logged; 0:
	// never.
	WarnFrom float64
	// SlowAfter is the duration of a report that is logged as slow; 0: none is.
	SlowAfter time.Duration
	// Breaker is asked before each report; while it is open nothing is claimed
	// either. nil lets all through. Outcomes wait, they are never dropped.
	Breaker *breaker.Breaker
}

// CheckpointConfig bounds the checkpoints of handlers.
type CheckpointConfig struct {
	// MaxCursorBytes bounds the JSON of a cursor; default 4,096.
	MaxCursorBytes int
	// MaxAccumulatedBytes bounds the JSON of accumulated results; default
	// 65,536. Each checkpoint writes all of it.
	MaxAccumulatedBytes int
	// MaxHistory is how many earlier cursors of a step are kept for people, the
	// newest; default 20, negative for none.
	MaxHistory int
	// SaveTimeout is how long StepContext.Checkpoint waits for the database;
	// default 10 s. Yields are kept until they are answered.
	SaveTimeout time.Duration
}

func (c *CheckpointConfig) withDefaults(d config.Checkpoint) {
	defaultInt(&c.MaxCursorBytes, d.MaxCursorBytes)
	defaultInt(&c.MaxAccumulatedBytes, d.MaxAccumulatedBytes)
	if c.MaxHistory == 0 {
		c.MaxHistory = d.MaxHistory
	}
	c.MaxHistory = max(c.MaxHistory, 0)
	defaultTime(&c.SaveTimeout, d.SaveTimeout())
}

// withDefaults fills in what is missing and refuses what cannot work.
func (c Config) withDefaults() (Config, error) {
	if c.Mode == "" {
		c.Mode = deploymode.Hybrid
	}
	if c.EventSourceName == "" {
		c.EventSourceName = notify.Name
	}
	if c.ListenerURL == "" {
		c.ListenerURL = c.DatabaseURL
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.WorkerID == "" {
		c.WorkerID = fmt.Sprintf("worker-%s-%d", hostname(), os.Getpid())
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	c.Metrics = c.Metrics.OrDiscard()
	defaults, err := config.Defaults()
	if err != nil {
		return c, err
	}
	d := defaults.Worker
	c.Events = c.Events.Or(coordinator.Configure(d.EventSystems.Worker.EventSystem))
	defaultInt(&c.MaxConcurrent, d.MPSCChannels.HandlerDispatch.MaxConcurrentHandlers)
	defaultInt(&c.MaxResultBytes, 1<<20)
	defaultInt(&c.Report.MaxBatch, d.Report.BatchSize)
	defaultInt(&c.Report.MaxPending, d.Report.MaxPending)
	c.Checkpoint.withDefaults(d.Checkpoint)
	c.Isolation.withDefaults()
	c.DomainEvents.withDefaults()
	if c.Transactions.MaxConnections <= 0 {
		c.Transactions.MaxConnections = int32(d.Transactions.MaxConnections) // #nosec G115 -- ranges are checked
	}
	if c.Report.ClaimBelow <= 0 || c.Report.ClaimBelow > 1 {
		c.Report.ClaimBelow = 1
	}
	defaultTime(&c.HandlerTimeout, d.MPSCChannels.HandlerDispatch.HandlerTimeout())
	defaultTime(&c.Lease, d.Lease())
	defaultTime(&c.HeartbeatInterval, min(d.HeartbeatInterval(), c.Lease/3))
	defaultTime(&c.ShutdownTimeout, 30*time.Second)
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
	refuse(c.Store == nil && c.DatabaseURL == "", "neither Store nor DatabaseURL is set")
	_, known := deploymode.Parse(string(c.Mode))
	refuse(!known, "%q is no deployment mode", c.Mode)
	sources := []string{notify.Name, wal.Name, relay.Name, "none"}
	refuse(c.EventSource == nil && !slices.Contains(sources, c.EventSourceName), "EventSourceName %q is none of %v", c.EventSourceName, sources)
	refuse(!slices.Contains([]UnknownPublisher{PublishPlain, PublishNothing, PublishError}, c.DomainEvents.UnknownPublisher),
		"DomainEvents.UnknownPublisher %q is none of default, nothing and error", c.DomainEvents.UnknownPublisher)
	refuse(!slices.Contains([]store.Immutability{"", store.VersionsRefuse, store.VersionsWarn, store.VersionsOff}, c.Immutable),
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
	if len(wrong) > 0 {
		return fmt.Errorf("configure the worker: %w", errors.Join(wrong...))
	}
	return nil
}

func defaultInt(v *int, def int) {
	if *v <= 0 {
		*v = def
	}
}

func defaultTime(v *time.Duration, def time.Duration) {
	if *v <= 0 {
		*v = def
	}
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
