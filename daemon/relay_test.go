package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/signal/relay"
	"github.com/tasker-go/tasker/internal/telemetry"
)

func TestRelayCheck(t *testing.T) {
	t.Parallel()
	const secret = "failed to connect to user=tasker host=10.0.0.7"
	tests := map[string]struct {
		health relay.Health
		status deploymode.Level
		says   string
	}{
		"leader":       {relay.Health{Leader: true, Connected: true, Forwarded: 7, LagBytes: 96}, deploymode.Healthy, "7 forwarded, 96 bytes"},
		"follower":     {relay.Health{Connected: true}, deploymode.Healthy, "another replica relays"},
		"disconnected": {relay.Health{LastError: secret}, deploymode.Degraded, "log has the reason"},
		"dead": {relay.Health{LastError: secret, Loop: lifecycle.LoopHealth{State: lifecycle.LoopRestarting}},
			deploymode.Unhealthy, "not running"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := relayCheck(tt.health)
			require.Equal(t, tt.status, c.Status)
			require.Contains(t, c.Message, tt.says)
			require.NotContains(t, c.Message, "10.0.0.7")
		})
	}
}

// TestOnlyTheRelaySourceHasARelay: no replica of another fleet reads the WAL or announces
// signals for others.
func TestOnlyTheRelaySourceHasARelay(t *testing.T) {
	t.Parallel()
	for source, wants := range map[string]bool{sourceNotify: false, sourceWAL: false, sourceRelay: true, sourceRedis: false} {
		var c config.Common
		c.Signals.EventSource = source
		c.Database.URL = "postgresql://localhost/tasker"
		r, err := (&signals{config: c, name: "test"}).newRelay(zap.NewNop(), telemetry.Discard())
		require.NoError(t, err)
		require.Equal(t, wants, r != nil, source)
		require.Equal(t, source == sourceWAL || source == sourceRelay, c.Signals.Uses(sourceWAL, sourceRelay))
	}
}
