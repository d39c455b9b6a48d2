package daemon

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// topologyAge is how long a look at the broker's topology is good: each look connects.
const topologyAge = 30 * time.Second

// brokerTopology looks at what the broker has of the exchanges and queues that the
// configuration wants. What is wrong with them is shown and makes no daemon unready: rows are
// found without signals.
type brokerTopology struct {
	cfg amqp.Config
	sampled[telemetry.Check]
}

func newBrokerTopology(cfg amqp.Config) *brokerTopology {
	return &brokerTopology{cfg: cfg, sampled: sampled[telemetry.Check]{now: time.Now, age: topologyAge}}
}

// addTo adds the check to others; there is none for a daemon without a broker.
func (b *brokerTopology) addTo(ctx context.Context, checks map[string]telemetry.Check) map[string]telemetry.Check {
	if b != nil {
		checks["broker_topology"] = b.get(ctx, b.look)
	}
	return checks
}

// look leaves out the errors of connections: they name hosts, and health is public.
func (b *brokerTopology) look(ctx context.Context) telemetry.Check {
	begin := b.now()
	list, err := amqp.Inspect(ctx, b.cfg)
	c := telemetry.Check{Status: deploymode.Degraded, Duration: b.now().Sub(begin)}
	if err != nil {
		c.Message = "the broker does not answer; the log has the reason"
		return c
	}
	var wrong []string
	for _, o := range list {
		switch {
		case o.Found == nil:
			wrong = append(wrong, o.Kind+" "+o.Name+" is missing")
		case o.Differs != "":
			wrong = append(wrong, fmt.Sprintf("%s %s is not what the configuration wants: %s", o.Kind, o.Name, o.Differs))
		}
	}
	if c.Message = strings.Join(wrong, "; "); c.Message == "" {
		c.Status, c.Message = deploymode.Healthy, fmt.Sprintf("the broker has the %d exchanges and queues", len(list))
	}
	return c
}
