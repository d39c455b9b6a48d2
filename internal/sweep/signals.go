package sweep

import (
	"context"
	"time"

	"github.com/tasker-go/tasker/signal"
)

// SignalsConfig configures the sweep of work that waits although nothing blocks it: the
// process that enqueued it may have died before it sent its signal.
type SignalsConfig struct {
	Off      bool
	Interval time.Duration
	Overdue  time.Duration // waiting for longer: signalled again
}

// signalsLease bounds a run.
const signalsLease = 30 * time.Second

type signals struct {
	store     Store
	publisher signal.Publisher
	overdue   time.Duration
}

var signalAgain = action{"signalled", "would_signal"}

func signalsJob(cfg Config) Job {
	s := &signals{store: cfg.Store, publisher: cfg.Publisher, overdue: cfg.Signals.Overdue}
	return Job{Name: "signals", Interval: cfg.Signals.Interval, Lease: signalsLease, Run: s.run}
}

// run is one statement, with at most one signal per topic.
func (s *signals) run(ctx context.Context, dry bool) (res Result, err error) {
	overdue, err := s.store.OverdueSignals(ctx, s.overdue)
	if err != nil {
		return res, err
	}
	name := signalAgain.name(dry)
	res.count(name, len(overdue))
	for _, o := range overdue {
		res.show(Finding{Subject: string(o.Topic), Action: name})
	}
	if !dry && len(overdue) > 0 {
		s.publisher.Publish(overdue...)
	}
	return res, nil
}
