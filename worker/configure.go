package worker

import (
	"math"
	"time"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/worker/events"
)

// Configure translates the settings of a worker, except its connections and parts.
func Configure(c *config.Loaded) Config {
	w, dispatch := c.Worker, c.Worker.MPSCChannels.HandlerDispatch
	return Config{
		MaxConnections: int32(c.Common.Database.Pool.MaxConnections), EventSourceName: c.Common.Signals.EventSource, // #nosec G115 -- ranges are checked
		Namespaces: w.Namespaces, Tags: w.Tags, Immutable: store.Immutability(c.Common.TaskTemplates.Immutable),
		Mode: w.EventSystems.Worker.DeploymentMode, Events: coordinator.Configure(w.EventSystems.Worker.EventSystem),
		MaxConcurrent: dispatch.MaxConcurrentHandlers, Prefetch: w.Prefetch, HandlerTimeout: dispatch.HandlerTimeout,
		Report: ReportConfig{Only: !w.Report.Settle, MaxBatch: w.Report.BatchSize, MaxPending: w.Report.MaxPending,
			ClaimBelow: claimBelow(dispatch.LoadShedding), WarnFrom: warnFrom(dispatch.LoadShedding),
			SlowAfter: w.CircuitBreakers.FFICompletionSend.SlowSendThreshold},
		Checkpoint: CheckpointConfig{MaxCursorBytes: w.Checkpoint.MaxCursorBytes, MaxAccumulatedBytes: w.Checkpoint.MaxAccumulatedBytes,
			MaxHistory: orNone(w.Checkpoint.MaxHistory), SaveTimeout: w.Checkpoint.SaveTimeout},
		Isolation:    IsolationConfig{MaxItems: w.IsolatedItems.MaxItems, MaxItemBytes: w.IsolatedItems.MaxItemBytes, MaxBytes: w.IsolatedItems.MaxTotalBytes},
		DomainEvents: configureEvents(w),
		Transactions: TransactionConfig{MaxConnections: int32(w.Transactions.MaxConnections)}, // #nosec G115 -- ranges are checked
		Lease:        w.Lease, LeaseGrace: orNone(w.LeaseGrace), HeartbeatInterval: w.HeartbeatInterval, WorkerID: w.WorkerID, Exclusive: w.Exclusive,
	}
}

func configureEvents(w config.Worker) DomainEventConfig {
	made, bus := w.MPSCChannels.DomainEvents, w.MPSCChannels.InProcessEvents
	return DomainEventConfig{MaxPayloadBytes: w.DomainEvents.MaxPayloadBytes, PublisherTimeout: w.DomainEvents.PublisherTimeout,
		UnknownPublisher: UnknownPublisher(w.DomainEvents.UnknownPublisher),
		Buffer:           made.CommandBufferSize, QuietDrops: !made.LogDroppedEvents, DrainTimeout: made.ShutdownDrainTimeout,
		RememberedIDs: orNone(w.EventSystems.Worker.Metadata.InProcessEvents.DeduplicationCacheSize),
		Bus:           events.Config{Buffer: bus.BroadcastBufferSize, Timeout: bus.DispatchTimeout, QuietErrors: !bus.LogSubscriberErrors}}
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
