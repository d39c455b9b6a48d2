package sweep

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/store"
)

// DeadlinesConfig configures the sweep of tasks that passed their deadline.
type DeadlinesConfig struct {
	Off      bool
	Interval time.Duration
	Batch    int // tasks per transaction
}

// deadlinesLease bounds a run.
const deadlinesLease = time.Minute

type deadlines struct {
	store  Store
	tasks  Tasks
	batch  int
	bounds bounds
}

var cancelTask = action{"cancelled", "would_cancel"}

func deadlinesJob(cfg Config) Job {
	d := &deadlines{store: cfg.Store, tasks: cfg.Tasks, batch: cfg.Deadlines.Batch, bounds: boundsOf(deadlinesLease)}
	return Job{Name: "deadlines", Interval: cfg.Deadlines.Interval, Lease: deadlinesLease, Run: d.run}
}

func (d *deadlines) run(ctx context.Context, dry bool) (res Result, err error) {
	if dry {
		return d.preview(ctx)
	}
	var errs failures
	tried := map[uuid.UUID]bool{}
	stuck := 0 // tried and possibly unchanged: they must not hide the others
	res.More, err = d.bounds.repeat(ctx, func() (more bool, err error) {
		limit := d.batch + stuck
		overdue, err := d.store.PastDeadline(ctx, limit)
		if err != nil {
			return false, err
		}
		fresh := make([]uuid.UUID, 0, d.batch)
		for _, id := range overdue {
			if !tried[id] && len(fresh) < d.batch {
				tried[id] = true
				fresh = append(fresh, id)
			}
		}
		if len(fresh) == 0 {
			return false, nil
		}
		changed, err := d.tasks.CancelOverdue(ctx, fresh)
		stuck += len(fresh) - changed
		d.note(&res, fresh, changed, err, false)
		return len(overdue) >= limit, errs.add(ctx, err)
	})
	return res, errs.join(err)
}

// maxPreview bounds what a dry run counts.
const maxPreview = 10_000

// preview finds without changing.
func (d *deadlines) preview(ctx context.Context) (res Result, err error) {
	overdue, err := d.store.PastDeadline(ctx, maxPreview)
	if err != nil {
		return res, err
	}
	d.note(&res, overdue, len(overdue), nil, true)
	res.More = len(overdue) >= maxPreview
	return res, nil
}

func (d *deadlines) note(res *Result, found []uuid.UUID, changed int, err error, dry bool) {
	name := cancelTask.name(dry)
	res.tally(name, len(found), changed, err)
	for _, id := range found {
		res.show(Finding{Subject: id.String(), Action: name, Detail: "past its deadline"})
	}
}

// failures are the errors of batches in one run: a failed batch must not keep the next
// ones from being tried.
type failures []error

// add keeps an error and returns the error that ends the run: without the database or
// time nothing else can be tried.
func (f *failures) add(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
		return err
	}
	if len(*f) < maxFailures {
		*f = append(*f, err)
	}
	return nil
}

// maxFailures bounds the errors kept of one run.
const maxFailures = 3

// join returns all errors with last, which ended the run.
func (f failures) join(last error) error { return errors.Join(append(f, last)...) }
