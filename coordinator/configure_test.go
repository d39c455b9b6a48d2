package coordinator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	keys "github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/listener/listenertest"
)

// Defaults come from package config: missing values are rejected by the system and by
// its parts.
func TestNothingIsInvented(t *testing.T) {
	t.Parallel()
	defaults, err := keys.Defaults()
	require.NoError(t, err)
	complete := coordinator.Configure(defaults.Orchestration.EventSystems.Orchestration)
	complete.Listener = listening(&listenertest.Source{})
	require.NoError(t, complete.Check())
	for field, leaveOut := range map[string]func(*coordinator.Config){
		"Mode":                        func(c *coordinator.Config) { c.Mode = "" },
		"OnListenerFailure":           func(c *coordinator.Config) { c.Subscription.OnListenerFailure = "" },
		"LookTimeout":                 func(c *coordinator.Config) { c.LookTimeout = 0 },
		"Retry.Base":                  func(c *coordinator.Config) { c.Retry.Base = 0 },
		"MaxConsecutiveErrors":        func(c *coordinator.Config) { c.MaxConsecutiveErrors = 0 },
		"Interval":                    func(c *coordinator.Config) { c.Poller.Interval = 0 },
		"RelaxedInterval":             func(c *coordinator.Config) { c.Poller.RelaxedInterval = 0 },
		"Backoff.Base":                func(c *coordinator.Config) { c.Poller.Backoff.Base = 0 },
		"HealthCheckInterval":         func(c *coordinator.Config) { c.Subscription.HealthCheckInterval = 0 },
		"FallbackActivationThreshold": func(c *coordinator.Config) { c.Subscription.FallbackActivationThreshold = 0 },
		"RecoveryThreshold":           func(c *coordinator.Config) { c.Subscription.RecoveryThreshold = 0 },
		"ConnectTimeout":              func(c *coordinator.Config) { c.Subscription.ConnectTimeout = 0 },
		"Reconnect.Base":              func(c *coordinator.Config) { c.Subscription.Reconnect.Base = 0 },
		"Reconnect.Max":               func(c *coordinator.Config) { c.Subscription.Reconnect.Max = 0 },
	} {
		c := complete
		leaveOut(&c)
		require.ErrorContains(t, c.Check(), field)
		require.ErrorContains(t, coordinator.New(c, &board{}).Start(t.Context()), field)
		require.NoError(t, settings.Or(c, complete).Check())
	}
	c := coordinator.Config{}
	c.Poller.Interval = time.Minute
	require.Equal(t, time.Minute, settings.Or(c, complete).Poller.Interval, "what is set stays")
	require.InDelta(t, complete.Poller.Jitter, settings.Or(c, complete).Poller.Jitter, 0)
}
