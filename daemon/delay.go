package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/loopback"
)

// publicDelay is the default time for load balancers to notice that a daemon stops.
const publicDelay = 3 * time.Second

// shutdownDelay is how long a daemon is unready and serves everything before it stops.
// The default is publicDelay if one of its servers is reachable from other hosts.
func shutdownDelay(c config.Shutdown, web config.Web, grpc config.GRPC) time.Duration {
	public := web.Enabled && !loopback.Only(web.BindAddress) || grpc.Enabled && !loopback.Only(grpc.BindAddress)
	switch {
	case !web.Enabled && !grpc.Enabled:
		return 0
	case c.Delay >= 0:
		return c.Delay
	case public:
		return publicDelay
	}
	return 0
}

// linger serves on until the delay is over, or the time for stopping is.
func (s *shared) linger(ctx context.Context) {
	if s.delay <= 0 {
		return
	}
	s.log.Info("stopping: unready, still serving until load balancers have noticed", zap.Duration("for", s.delay))
	_ = lifecycle.Pause(ctx, s.delay) // what follows is bounded by ctx
	s.server.CloseIdle()
}
