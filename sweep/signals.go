package sweep

import (
	"context"
	"time"

	"github.com/tasker-go/tasker/signal"
)

// SignalsConfig is about work that lies in line although nothing keeps anybody
// from it: whoever put it there may have died before its signal.
type SignalsConfig struct {
	Off      bool
	Interval time.Duration // default 30 s
	Lease    time.Duration // default 30 s
	Overdue  time.Duration // in line since: signalled again; default 30 s
}

type signals struct {
	store     Store
	publisher signal.Publisher
	overdue   time.Duration
}

var signalAgain = action{"signalled", "would_signal"}

func signalsJob(cfg Config) Job {
	c := cfg.Signals
	s := &signals{store: cfg.Store, publisher: cfg.Publisher, overdue: orDefault(c.Overdue, 30*time.Second)}
	return Job{Name: "signals", Interval: orDefault(c.Interval, 30*time.Second), Lease: orDefault(c.Lease, 30*time.Second), Run: s.run}
}

// run is one statement, with one signal per topic at most.
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
