package orchestration

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/schedule"
	"github.com/tasker-go/tasker/internal/settle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
)

// scheduleBatch bounds the schedules that share a transaction. Their tasks are
// bounded by Config.CreateBatch.
const scheduleBatch = 100

// refusedFor is after what time a schedule whose run a quota rejects tries again.
const refusedFor = 2 * time.Second

// Outcomes of runs: the values of a metric's label.
const (
	runCreated   = "created"
	runDuplicate = "duplicate" // it had been made before
	runByHand    = "by_hand"
	runOverlap   = "overlap" // skipped, because the previous task was alive
	runMissed    = "missed"  // skipped by the policy
	runFailed    = "failed"
	runRefused   = "refused" // it waits, for the quota of the namespace
)

// dueSchedules runs due schedules; it belongs to dueWork.
type dueSchedules struct {
	o        *Orchestrator
	flow     *isolated
	failures int       // in a row
	hold     time.Time // not before this, after a failure
}

func newDueSchedules(o *Orchestrator) *dueSchedules {
	d := &dueSchedules{o: o}
	d.flow = &isolated{what: "due schedules", set: aside.New[uuid.UUID]("schedules", o.log, o.metrics), log: o.log,
		waits: o.content.held, keys: o.store.DueSchedules, run: d.batch, alone: d.giveUpContent, blame: d.giveUp}
	return d
}

// wait is the remaining delay after a failure.
func (d *dueSchedules) wait(now time.Time) time.Duration { return max(d.hold.Sub(now), 0) }

// look runs due schedules. It fails only where the database is away: other faults of
// schedules must not delay retries and leases.
func (d *dueSchedules) look(ctx context.Context) (found int, more bool, err error) {
	if d.wait(time.Now()) > 0 {
		return 0, false, nil
	}
	found, err = d.flow.look(ctx, scheduleBatch)
	more = found >= scheduleBatch
	switch {
	case err == nil:
		d.failures = 0
		return found, more, nil
	case errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil:
		return found, more, err
	}
	backoff := deploymode.Backoff{Base: time.Second, Max: deploymode.LongestHold, Multiplier: 2}
	d.hold = time.Now().Add(backoff.Delay(d.failures, 0))
	d.failures++
	d.o.metrics.ScheduleRuns.WithLabelValues(runFailed).Inc()
	d.o.log.Error("running due schedules failed and will be retried", zap.Int("failures", d.failures), zap.Error(err), lifecycle.StackField(err))
	return found, false, nil
}

// giveUpContent is giveUp for a schedule whose run is rejected for its content: a repetition
// would be rejected too.
func (d *dueSchedules) giveUpContent(ctx context.Context, id uuid.UUID, why error) (handled bool, err error) {
	if !store.OfContent(why) {
		return false, nil
	}
	_, err = d.fire(ctx, store.Rows{Limit: 1, Only: []uuid.UUID{id}}, true)
	return err == nil, err
}

// giveUp advances a schedule without the run that the database rejects.
func (d *dueSchedules) giveUp(ctx context.Context, id uuid.UUID, why error) {
	d.o.log.Error("the database rejects the run of a schedule, which is left out", zap.Stringer("schedule_id", id), zap.Error(why))
	if _, err := d.fire(ctx, store.Rows{Limit: 1, Only: []uuid.UUID{id}}, true); err != nil {
		d.o.log.Error("the database rejects a schedule without its run too; it is unchanged", zap.Stringer("schedule_id", id), zap.Error(err))
	}
}

// batch runs due schedules.
func (d *dueSchedules) batch(ctx context.Context, rows store.Rows) (int, error) {
	return d.fire(ctx, rows, false)
}

// fire runs due schedules, or moves them on without a task.
func (d *dueSchedules) fire(ctx context.Context, rows store.Rows, givenUp bool) (int, error) {
	var t tally
	fired, err := d.o.store.RunDueSchedules(ctx, rows, func(now time.Time, due []store.DueSchedule) []store.Firing {
		t = tally{ctx: ctx, content: d.o.content, log: d.o.log, schema: d.o.schema, bounds: d.o.cfg.Documents, now: now}
		firings, room := make([]store.Firing, len(due)), d.o.cfg.CreateBatch
		for i := range due {
			firings[i] = t.decide(&due[i], room, givenUp)
			room -= len(firings[i].Tasks)
		}
		return firings
	})
	if err != nil {
		return 0, err
	}
	d.o.publish(fired.Signals)
	if len(fired.Accepted) > 0 {
		d.o.scheduleLook()
	}
	t.record(d.o, fired)
	d.flow.left.add(t.left, leftFor)
	if len(fired.Refused) > 0 {
		d.flow.left.add(fired.Refused, refusedFor)
		d.o.readiness.WakeIn(refusedFor)
	}
	return fired.Schedules - len(t.left) - t.notYet - len(fired.Refused), nil
}

// tally decides about the schedules of one transaction and counts the outcomes.
type tally struct {
	ctx                     context.Context // of the transaction
	content                 *content
	log                     *zap.Logger
	schema                  *submission.SchemaPolicy
	bounds                  submission.Bounds
	now                     time.Time // by the database's clock
	tasks                   []store.NewTask
	missed, overlap, failed int
	lags                    []time.Duration
	logLines                []func() // to write after the commit
	left                    []uuid.UUID
	notYet                  int // schedules that wait for the check of their context
}

// decide decides about a due schedule. A schedule that cannot be decided is paused: it
// must not be due for ever.
func (t *tally) decide(due *store.DueSchedule, room int, givenUp bool) (f store.Firing) {
	before := *t
	err := lifecycle.Guard(func() (err error) {
		f, err = t.firing(due, room, givenUp)
		return err
	})
	if err != nil {
		*t = before
		t.failed++
		f = store.Firing{Error: cut(err.Error(), MaxReasonLength), Pause: cut("cannot continue: "+err.Error(), MaxReasonLength)}
		t.logLater(due, "a schedule cannot continue and is paused", zap.Error(err), lifecycle.StackField(err))
	}
	return f
}

func (t *tally) firing(due *store.DueSchedule, room int, givenUp bool) (store.Firing, error) {
	if due.Broken != nil { // a newer program has written the plan, and makes the run
		f := store.Firing{Error: cut(unreadable(due).Error(), MaxReasonLength)}
		if due.LastError == nil || *due.LastError != f.Error {
			t.logLater(due, "a schedule is left to newer orchestrators", zap.Error(due.Broken))
		}
		t.left = append(t.left, due.UUID)
		return f, nil
	}
	spec, err := schedule.Parse(due.Cron, due.TimeZone)
	if err != nil {
		return store.Firing{}, err
	}
	todo := spec.Due(due.NextRunAt, t.now, due.Policy(), room)
	f := store.Firing{NextRun: todo.Next}
	if todo.Next.IsZero() {
		f.Pause = "the schedule has no further run"
	}
	t.missed += todo.Missed
	switch {
	case len(todo.Runs) == 0 && todo.Missed > 0 && todo.Next.After(t.now):
		f.Error = "a run was missed: no orchestrator ran in time"
	case len(todo.Runs) > 0 && givenUp:
		t.failed++
		f.Error = "the database refused the run; the log of the orchestrators has the details"
	case len(todo.Runs) > 0 && due.Alive:
		t.overlap++
		f.Error = (&ScheduleBusyError{Task: *due.LastTask}).Error()
	default:
		t.make(due, spec, todo.Runs, &f)
	}
	return f, nil
}

// make adds the tasks of runs to a firing.
func (t *tally) make(due *store.DueSchedule, spec *schedule.Spec, runs []time.Time, f *store.Firing) {
	for i, at := range runs {
		r := dueRun(&due.Schedule, spec, at)
		r.Schema, r.Checks, r.Bounds = t.schema, t.content.of(due.UUID), t.bounds
		task, err := taskOf(t.ctx, due, &r)
		if errors.Is(err, store.ErrNotYet) { // and so are the other runs: they have the same context
			t.notYet++
			*f = store.Firing{}
			if due.LastError != nil {
				f.Error = *due.LastError
			}
			return
		}
		if err != nil {
			t.failed += len(runs) - i
			f.Error = cut(err.Error(), MaxReasonLength)
			if due.LastError == nil || *due.LastError != f.Error { // else it only repeats
				t.logLater(due, "a run of a schedule was rejected; it continues with the next", zap.Time("run", at), zap.Error(err))
			}
			return
		}
		task.Quota = store.QuotaSchedules
		f.Tasks, f.Runs = append(f.Tasks, task), append(f.Runs, at)
		t.tasks = append(t.tasks, task)
	}
	if n := len(runs); n > 0 {
		t.lags = append(t.lags, t.now.Sub(runs[n-1]))
	}
}

// logLater keeps a log line until the commit.
func (t *tally) logLater(due *store.DueSchedule, what string, fields ...zap.Field) {
	log := t.log.With(zap.String("schedule", due.Namespace+"/"+due.Name), zap.Stringer("schedule_id", due.UUID))
	t.logLines = append(t.logLines, func() { log.Warn(what, fields...) })
}

// record counts what was committed.
func (t *tally) record(o *Orchestrator, fired store.Fired) {
	runs := o.metrics.ScheduleRuns
	for i := range t.tasks {
		switch accepted, known := fired.Accepted[t.tasks[i].UUID]; {
		case accepted.RefusedFor > 0:
			runs.WithLabelValues(runRefused).Inc()
			o.metrics.BackpressureRefusals.WithLabelValues("quota").Inc()
			continue
		case !known:
			runs.WithLabelValues(runDuplicate).Inc()
			continue
		}
		runs.WithLabelValues(runCreated).Inc()
		settle.CountCreated(o.metrics, t.tasks[i].Plan, 1)
	}
	for outcome, n := range map[string]int{runMissed: t.missed, runOverlap: t.overlap, runFailed: t.failed} {
		if n > 0 {
			runs.WithLabelValues(outcome).Add(float64(n))
		}
	}
	for _, lag := range t.lags {
		o.metrics.ScheduleLag.Observe(lag.Seconds())
	}
	for _, line := range t.logLines {
		line()
	}
	if len(t.tasks) > 0 {
		o.log.Debug("schedules have run", zap.Int("schedules", fired.Schedules), zap.Int("tasks", len(fired.Accepted)))
	}
}
