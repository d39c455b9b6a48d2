package orchestration_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/orchestration"
)

// Defaults come from package config: missing values are rejected.
func TestNothingIsInvented(t *testing.T) {
	t.Parallel()
	_, err := orchestration.New(orchestration.Config{})
	for _, field := range []string{"LookTimeout", "Rules.MaxCrashes", "CommandBuffer", "ApplyBatch", "CreateBatch", "CreatePending", "SweepBatch", "MaxLosses",
		"HeartbeatInterval", "MaxTaskDepth", "EventTTL", `InputSchema ""`, `Immutable ""`} {
		require.ErrorContains(t, err, "invalid "+field)
	}
	defaults, err := config.Defaults()
	require.NoError(t, err)
	require.NoError(t, orchestration.Configure(defaults).Check())
}
