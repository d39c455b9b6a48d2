package daemon

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/poller"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// eventSystem translates the settings of one event system.
func eventSystem(c config.EventSystem, source signal.Source, onFatal func(error)) coordinator.Config {
	l, p := c.Listener, c.Poller
	return coordinator.Config{
		SystemID: c.SystemID, Mode: c.DeploymentMode, Source: source,
		OnListenerFailure: deploymode.OnListenerFailure(l.OnListenerFailure), OnFatal: onFatal,
		Listener: listener.Config{
			HealthCheckInterval: l.HealthCheckInterval(), FallbackActivationThreshold: l.FallbackActivationThreshold(),
			RecoveryThreshold: l.RecoveryThreshold, ConnectTimeout: l.ConnectionTimeout(),
			Reconnect: listener.Reconnect{Initial: l.ReconnectInitial(), Max: l.ReconnectMax(), Jitter: jitter(l.JitterPercent),
				MaxAttempts: l.MaxReconnectAttempts},
		},
		Poller: poller.Config{
			Interval: p.Interval(), RelaxedInterval: p.RelaxedInterval(), Jitter: jitter(p.JitterPercent),
			Backoff: deploymode.Backoff{Base: p.ErrorBackoffBase(), Max: p.ErrorBackoffMax(), Multiplier: p.ErrorBackoffMultiplier, Jitter: 0.1},
			Timeout: c.Timing.ProcessingTimeout(),
		},
		LookTimeout: c.Timing.ProcessingTimeout(),
		Retry: deploymode.Backoff{Base: c.Processing.Backoff.InitialDelay(), Max: c.Processing.Backoff.MaxDelay(),
			Multiplier: c.Processing.Backoff.Multiplier, Jitter: c.Processing.Backoff.JitterPercent},
		MaxConsecutiveErrors: c.Health.MaxConsecutiveErrors,
	}
}

// systemSettings are those of an event system that can change while it runs.
func systemSettings(c config.EventSystem) coordinator.Settings {
	return coordinator.Settings{Mode: c.DeploymentMode, PollInterval: c.Poller.Interval(), RelaxedPollInterval: c.Poller.RelaxedInterval()}
}

// jitter translates a configured 0, which means none, for parts in which 0
// means the default.
func jitter(share float64) float64 {
	if share == 0 {
		return -1
	}
	return share
}

func rules(c config.Common, o config.Orchestration) workflow.Rules {
	b, d := c.Backoff, o.DecisionPoints
	r := workflow.Rules{MaxCrashes: o.Leases.MaxCrashes, Backoff: workflow.BackoffDefaults{
		Delays: b.DefaultBackoff(), Multiplier: b.BackoffMultiplier, Max: b.MaxBackoff()},
		RefuseDecisions: !d.Enabled, MaxDecisionSteps: d.MaxStepsPerDecision, MaxDecisionDepth: d.MaxDecisionDepth,
		RefuseBatches: !o.BatchProcessing.Enabled, MaxBatches: o.BatchProcessing.MaxBatchesPerStep,
		MaxParallelBatches: o.BatchProcessing.MaxParallelBatches}
	if b.JitterEnabled {
		r.Backoff.Jitter = b.JitterMaxPercentage
	}
	return r
}

// decisions says what is logged of them.
func decisions(c config.DecisionPoints) orchestration.Decisions {
	return orchestration.Decisions{WarnSteps: c.WarnThresholdSteps, WarnDepth: c.WarnThresholdDepth, Log: c.EnableDetailedLogging}
}

// introduce describes this process to the fleet.
func introduce(id, mode string) (store.Daemon, error) {
	instance, err := uuid.NewV7()
	if err != nil {
		return store.Daemon{}, fmt.Errorf("make an instance id: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return store.Daemon{}, fmt.Errorf("read the host name: %w", err)
	}
	if id == "" {
		id = host + "-" + instance.String()[24:]
	}
	return store.Daemon{UUID: instance, ID: id, Hostname: host, Version: Version(), Mode: mode}, nil
}

// Version is the version of the program: of its module, or else the commit it
// was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

func unavailable(err error) bool { return errors.Is(err, store.ErrUnavailable) }
