package orchestration

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/workflow"
)

// Configure translates the settings of an orchestrator, without its parts, Daemon
// and the sources of signals.
func Configure(c *config.Loaded) Config {
	o, d := c.Orchestration, c.Orchestration.DecisionPoints
	return Config{
		Rules:         rules(c.Common, o),
		Decisions:     settle.Decisions{WarnSteps: d.WarnThresholdSteps, WarnDepth: d.WarnThresholdDepth, Log: d.EnableDetailedLogging, Uncounted: !d.EnableMetrics},
		DeadLetters:   o.DLQ.Enabled,
		Orchestration: coordinator.Configure(o.EventSystems.Orchestration), Readiness: coordinator.Configure(o.EventSystems.TaskReadiness),
		CommandBuffer: o.MPSCChannels.CommandProcessor.CommandBufferSize,
		ApplyBatch:    o.Apply.BatchSize, ApplyBytes: o.Apply.MaxBatchBytes, CreateBatch: o.Create.BatchSize, CreatePending: o.Create.MaxPending,
		SweepBatch: o.Leases.SweepBatchSize, LeaseGrace: o.Leases.Grace, MaxLosses: o.Leases.MaxLosses, HeartbeatInterval: o.HeartbeatInterval, MaxTaskDepth: o.Waits.MaxTaskDepth,
		InputSchema: o.Create.InputSchema, Documents: boundsOf(&c.Common.Documents), Reach: ReachOf(o.Web.Auth, c.Common.Namespaces.Grants), SchemaChecks: submission.LimitsOf(c.Common.SchemaChecks),
		Immutable: store.Immutability(c.Common.TaskTemplates.Immutable), EventTTL: o.Waits.EventTTL,
	}
}

func rules(c config.Common, o config.Orchestration) workflow.Rules {
	b, d := c.Backoff, o.DecisionPoints
	r := workflow.Rules{MaxCrashes: o.Leases.MaxCrashes, Backoff: workflow.BackoffDefaults{
		Delays: b.DefaultBackoff, Multiplier: b.BackoffMultiplier, Max: b.MaxBackoff},
		Creation: workflow.Creation{RefuseDecisions: !d.Enabled, MaxDecisionSteps: d.MaxStepsPerDecision, MaxDecisionDepth: d.MaxDecisionDepth,
			RefuseBatches: !o.BatchProcessing.Enabled, MaxBatches: o.BatchProcessing.MaxBatchesPerStep,
			MaxParallelBatches: o.BatchProcessing.MaxParallelBatches}}
	if b.JitterEnabled {
		r.Backoff.Jitter = b.JitterMaxPercentage
	}
	return r
}

// ReachOf says what content may use in other namespaces: where the API wants credentials, no more
// than the grants have.
func ReachOf(a config.Auth, grants []config.NamespaceGrant) *auth.Reach {
	r := &auth.Reach{Walled: a.Enabled && a.Enforcement == "enforce", Grants: map[string][]string{}}
	for _, g := range grants {
		r.Grants[g.From] = append(r.Grants[g.From], g.To...)
	}
	return r
}

// boundsOf translates common.documents.
func boundsOf(d *config.Documents) submission.Bounds {
	return submission.Bounds{Bytes: d.MaxBytes, Depth: d.MaxDepth, Items: d.MaxItems, Text: d.MaxCharacters}
}

// Check rejects a configuration that lacks a value without a default here.
func (c Config) Check() error {
	wrong := []error{c.Orchestration.Check(), c.Readiness.Check(), settings.Positive("Rules.MaxCrashes", c.Rules.MaxCrashes),
		settings.Positive("CommandBuffer", c.CommandBuffer), settings.Positive("ApplyBatch", c.ApplyBatch),
		settings.Positive("CreateBatch", c.CreateBatch), settings.Positive("CreatePending", c.CreatePending),
		settings.Positive("SweepBatch", c.SweepBatch), settings.Positive("MaxLosses", c.MaxLosses), settings.Positive("HeartbeatInterval", c.HeartbeatInterval),
		settings.Positive("MaxTaskDepth", c.MaxTaskDepth), settings.Positive("EventTTL", c.EventTTL)}
	if known := []string{schemaEnforce, schemaWarn, schemaOff}; !slices.Contains(known, c.InputSchema) {
		wrong = append(wrong, fmt.Errorf("invalid InputSchema %q: want one of %v", c.InputSchema, known))
	}
	if known := []store.Immutability{store.VersionsRefuse, store.VersionsWarn, store.VersionsOff}; !slices.Contains(known, c.Immutable) {
		wrong = append(wrong, fmt.Errorf("invalid Immutable %q: want one of %v", c.Immutable, known))
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("configure the orchestrator: %w", err)
	}
	return nil
}
