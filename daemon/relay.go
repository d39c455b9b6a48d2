package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/signal/relay"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// newRelay makes the orchestrator's relay; nil unless the event source needs one. It runs
// in every deployment mode: other daemons may listen.
func (s *signals) newRelay(log *zap.Logger, m *telemetry.Metrics) (*relay.Relay, error) {
	if !s.config.Signals.Uses(sourceRelay) {
		return nil, nil //nolint:nilnil // no relay is the usual case
	}
	cfg := relay.Config{WAL: s.walConfig(), Logger: log, Metrics: m, Namespaces: func(ctx context.Context) ([]string, error) {
		queues, err := s.store.Queues(ctx, nil)
		return slices.Collect(maps.Keys(queues)), err
	}}
	cfg.WAL.ApplicationName = s.name + "-relay"
	r, err := relay.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("prepare the relay of signals: %w", err)
	}
	return r, nil
}

// relayCheck judges this replica's relay. The log has the reason of a lost connection:
// errors name hosts and users, and health is public.
func relayCheck(h relay.Health) telemetry.Check {
	switch {
	case h.Leader:
		return telemetry.Check{Status: deploymode.Healthy,
			Message: fmt.Sprintf("this replica relays the signals of the fleet: %d forwarded, %d bytes of WAL behind", h.Forwarded, h.LagBytes)}
	case h.Loop.Dead():
		return telemetry.Check{Status: deploymode.Unhealthy, Message: "the relay is not running"}
	case !h.Connected:
		return telemetry.Check{Status: deploymode.Degraded, Message: "this replica cannot relay signals; its log has the reason"}
	}
	return telemetry.Check{Status: deploymode.Healthy, Message: "another replica relays the signals of the fleet"}
}
