package coordinator

import (
	"errors"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/poller"
)

// Configure translates the settings of one event system.
func Configure(c config.EventSystem) Config {
	l, p := c.Listener, c.Poller
	return Config{
		SystemID: c.SystemID, Mode: c.DeploymentMode,
		Subscription: listener.SubscriptionConfig{ConnectTimeout: l.ConnectionTimeout, Config: deploymode.Config{
			HealthCheckInterval: l.HealthCheckInterval, FallbackActivationThreshold: l.FallbackActivationThreshold,
			RecoveryThreshold: l.RecoveryThreshold, MaxReconnectAttempts: l.MaxReconnectAttempts,
			OnListenerFailure: deploymode.OnListenerFailure(l.OnListenerFailure),
			Reconnect:         deploymode.Backoff{Base: l.ReconnectInitial, Max: l.ReconnectMax, Multiplier: 2, Jitter: l.JitterPercent},
		}},
		Poller: poller.Config{
			Interval: p.Interval, RelaxedInterval: p.RelaxedInterval, Jitter: p.JitterPercent,
			Backoff: deploymode.Backoff{Base: p.ErrorBackoffBase, Max: p.ErrorBackoffMax, Multiplier: p.ErrorBackoffMultiplier, Jitter: 0.1},
			Timeout: c.Timing.ProcessingTimeout,
		},
		LookTimeout: c.Timing.ProcessingTimeout,
		Retry: deploymode.Backoff{Base: max(c.Processing.Backoff.InitialDelay, time.Millisecond), Max: c.Processing.Backoff.MaxDelay,
			Multiplier: c.Processing.Backoff.Multiplier, Jitter: c.Processing.Backoff.JitterPercent},
		MaxConsecutiveErrors: c.Health.MaxConsecutiveErrors, MaxErrorsPerMinute: c.Health.ErrorRateThresholdPerMinute,
		IgnoreErrors: !c.Health.Enabled, Untimed: !c.Health.PerformanceMonitoringEnabled,
	}
}

// Check rejects a configuration that lacks a value without a default here.
func (c Config) Check() error {
	wrong := []error{settings.Positive("LookTimeout", c.LookTimeout), settings.Positive("Retry.Base", c.Retry.Base),
		settings.Positive("MaxConsecutiveErrors", c.MaxConsecutiveErrors), c.pollerConfig().Check()}
	if canonical, ok := deploymode.Parse(string(c.Mode)); !ok || canonical != c.Mode {
		wrong = append(wrong, fmt.Errorf("invalid Mode %q: want PollingOnly, EventDrivenOnly, Hybrid or Disabled", c.Mode))
	}
	if c.Listener != nil {
		wrong = append(wrong, c.subscription(c.Mode).Check())
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("configure the event system %s: %w", c.SystemID, err)
	}
	return nil
}
