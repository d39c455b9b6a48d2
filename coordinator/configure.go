package coordinator

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/poller"
)

// Configure translates the settings of one event system.
func Configure(c config.EventSystem) Config {
	l, p := c.Listener, c.Poller
	return Config{
		SystemID: c.SystemID, Mode: c.DeploymentMode, OnListenerFailure: deploymode.OnListenerFailure(l.OnListenerFailure),
		Listener: listener.Config{
			HealthCheckInterval: l.HealthCheckInterval(), FallbackActivationThreshold: l.FallbackActivationThreshold(),
			RecoveryThreshold: l.RecoveryThreshold, ConnectTimeout: l.ConnectionTimeout(),
			Reconnect: listener.Reconnect{Initial: l.ReconnectInitial(), Max: l.ReconnectMax(), Jitter: l.JitterPercent,
				MaxAttempts: l.MaxReconnectAttempts},
		},
		Poller: poller.Config{
			Interval: p.Interval(), RelaxedInterval: p.RelaxedInterval(), Jitter: p.JitterPercent,
			Backoff: deploymode.Backoff{Base: p.ErrorBackoffBase(), Max: p.ErrorBackoffMax(), Multiplier: p.ErrorBackoffMultiplier, Jitter: 0.1},
			Timeout: c.Timing.ProcessingTimeout(),
		},
		LookTimeout: c.Timing.ProcessingTimeout(),
		Retry: deploymode.Backoff{Base: max(c.Processing.Backoff.InitialDelay(), time.Millisecond), Max: c.Processing.Backoff.MaxDelay(),
			Multiplier: c.Processing.Backoff.Multiplier, Jitter: c.Processing.Backoff.JitterPercent},
		MaxConsecutiveErrors: c.Health.MaxConsecutiveErrors, MaxErrorsPerMinute: c.Health.ErrorRateThresholdPerMinute,
		IgnoreErrors: !c.Health.Enabled, Untimed: !c.Health.PerformanceMonitoringEnabled,
	}
}

// Or returns c with the fields that it leaves out taken from defaults, those
// of the listener, the poller and the delays one by one.
func (c Config) Or(defaults Config) Config {
	fill(reflect.ValueOf(&c).Elem(), reflect.ValueOf(defaults))
	return c
}

func fill(v, defaults reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Kind() == reflect.Struct:
			fill(f, defaults.Field(i))
		case f.IsZero() && f.CanSet():
			f.Set(defaults.Field(i))
		}
	}
}

// Check refuses a configuration that leaves out what has no default here.
func (c Config) Check() error {
	var wrong []error
	refuse := func(when bool, format string, args ...any) {
		if when {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	refuse(c.LookTimeout <= 0, "LookTimeout is %v: want more than 0", c.LookTimeout)
	refuse(c.Retry.Base <= 0, "Retry.Base is %v: want more than 0", c.Retry.Base)
	refuse(c.MaxConsecutiveErrors <= 0, "MaxConsecutiveErrors is %d: want more than 0", c.MaxConsecutiveErrors)
	wrong = append(wrong, c.pollerConfig().Check())
	if c.Source != nil {
		wrong = append(wrong, c.Listener.Check())
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("configure the event system %s: %w", c.SystemID, err)
	}
	return nil
}
