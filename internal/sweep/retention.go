package sweep

import (
	"context"
	"time"

	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/store"
)

// RetentionConfig configures the sweep of expired rows.
type RetentionConfig struct {
	Off      bool
	DryRun   bool
	Interval time.Duration
	Batch    int // rows per transaction
	// TTL is how long ended tasks are kept, counted from their end, and daemons that
	// have gone; 0 is for ever.
	TTL time.Duration
	// DeadLetterTTL is how long closed entries of the dead letter queue are kept; 0 is
	// for ever. Operators' actions are kept for the longer of both.
	DeadLetterTTL time.Duration
	// EventTTL is how long domain events are kept, read or not; 0 is for ever.
	EventTTL time.Duration
}

// retentionLease bounds a run, which deletes for at most half of it.
const retentionLease = 5 * time.Minute

type retention struct {
	store   Store
	metrics *telemetry.Metrics
	limits  store.RetentionLimits
	bounds  bounds
}

// The actions on expired rows.
var (
	dropDay          = action{"dropped_days", "would_drop_days"}
	dropEventDay     = action{"dropped_event_days", "would_drop_event_days"}
	deleteEvent      = action{"deleted_events", "would_delete_events"}
	deleteTask       = action{"deleted_tasks", "would_delete_tasks"}
	deleteDaemon     = action{"deleted_daemons", "would_delete_daemons"}
	deleteIdentity   = action{"deleted_identities", "would_delete_identities"}
	deleteReceived   = action{"deleted_received_events", "would_delete_received_events"}
	deleteDeadLetter = action{"deleted_dead_letters", "would_delete_dead_letters"}
	deleteRecord     = action{"deleted_operator_actions", "would_delete_operator_actions"}
)

// busyDays counts days that could not be dropped because they were in use.
const busyDays = "busy_days"

func retentionJob(cfg Config) Job {
	c := cfg.Retention
	r := &retention{store: cfg.Store, metrics: cfg.Metrics, bounds: boundsOf(retentionLease),
		limits: store.RetentionLimits{TTL: max(c.TTL, 0), DeadLetterTTL: max(c.DeadLetterTTL, 0), EventTTL: max(c.EventTTL, 0), Batch: c.Batch}}
	return Job{Name: "retention", Interval: c.Interval, Lease: retentionLease, DryRun: c.DryRun, Run: r.run}
}

func (r *retention) run(ctx context.Context, dry bool) (res Result, err error) {
	if dry { // it changes nothing, so a second batch would repeat the first
		res.More, err = r.batch(ctx, &res, true)
		return res, err
	}
	res.More, err = r.bounds.repeat(ctx, func() (more bool, err error) { return r.batch(ctx, &res, false) })
	return res, err
}

func (r *retention) batch(ctx context.Context, res *Result, dry bool) (more bool, err error) {
	gone, err := r.store.Retain(ctx, r.limits, dry)
	for _, day := range gone.Days {
		res.show(Finding{Subject: day, Action: dropDay.name(dry)})
	}
	for _, day := range gone.EventDays {
		res.show(Finding{Subject: day, Action: dropEventDay.name(dry)})
	}
	res.count(dropDay.name(dry), len(gone.Days))
	res.count(dropEventDay.name(dry), len(gone.EventDays))
	res.count(deleteEvent.name(dry), gone.Events)
	res.count(deleteTask.name(dry), gone.Tasks)
	res.count(deleteDaemon.name(dry), gone.Workers)
	res.count(deleteIdentity.name(dry), gone.Identities)
	res.count(deleteReceived.name(dry), gone.Received)
	res.count(deleteDeadLetter.name(dry), gone.DeadLetters)
	res.count(deleteRecord.name(dry), gone.Actions)
	res.count(busyDays, gone.Busy)
	if !dry {
		r.metrics.TasksCleaned.Add(float64(gone.Tasks))
		r.metrics.WorkersCleaned.Add(float64(gone.Workers))
	}
	return gone.More, err
}
