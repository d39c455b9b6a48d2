package daemon

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

const (
	// outageLook is how often the daemon looks whether its database is away.
	outageLook = time.Second
	// outageBlip is for how long the database may be silent before the log says so: a failover within it is an
	// ordinary event, which the flows that met it have logged where it mattered.
	outageBlip = 5 * time.Second
	// outageRepeat is how often the log repeats it, for as long as it lasts.
	outageRepeat = time.Minute
	// outagePatience bounds the question whether the database is still away.
	outagePatience = 5 * time.Second
)

// outages says in the log that the database is away, each minute for as long as that lasts, and that it answers
// again. Looks log their first failures only: a daemon that has been waiting since last night would not say for what.
// It is used by one goroutine.
type outages struct {
	// outage has the latest answer and failure of the daemon's own flows, as of store.Server.Outage.
	outage func() (since time.Time, failed error)
	ping   func(context.Context) error
	log    *zap.Logger

	since time.Time // the latest answer before the outage that was told; zero: none was
	told  time.Time // when the log said so last
}

// loop looks for outages until it is stopped.
func (o *outages) loop(onRestart func(string)) *lifecycle.Loop {
	return lifecycle.NewLoop(lifecycle.LoopConfig{Name: "outages", Logger: o.log, OnRestart: onRestart, Run: o.run})
}

func (o *outages) run(ctx context.Context) error {
	ticker := time.NewTicker(outageLook)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			o.look(ctx, time.Now())
		}
	}
}

// look asks the database only where flows have failed and none has succeeded since: one that has nothing to do has
// not met its return yet.
func (o *outages) look(ctx context.Context, now time.Time) {
	since, failed := o.outage()
	if !since.IsZero() && now.Sub(since) >= outageBlip {
		bounded, cancel := context.WithTimeout(ctx, outagePatience)
		err := o.ping(bounded)
		cancel()
		if ctx.Err() != nil {
			return // the daemon stops
		}
		if err != nil {
			o.away(since, now, failed)
			return
		}
	}
	if !o.since.IsZero() {
		o.log.Info("the database answers again", zap.Duration("away", now.Sub(o.since)))
		o.since = time.Time{}
	}
}

// away logs that the database is away, unless that was said within the minute.
func (o *outages) away(since, now time.Time, failed error) {
	if !o.told.IsZero() && now.Sub(o.told) < outageRepeat {
		return
	}
	if o.since.IsZero() {
		o.since = since
	}
	o.told = now
	o.log.Warn("the database is away; work goes on when it answers", zap.Duration("away", now.Sub(o.since)),
		zap.NamedError("last_error", failed))
}
