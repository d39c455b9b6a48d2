package orchestration

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/store"
)

// Rows that the database rejects, see package aside. A task that is blamed goes into
// quarantine: it ends as failed, with a dead-letter entry.

// refused reports whether the database answered and rejected what one row of many can be the
// cause of.
func refused(ctx context.Context, err error) bool { return ctx.Err() == nil && store.Rejected(err) }

// isolated is a flow over rows that the store picks, which leaves out those that are set aside.
type isolated struct {
	what string // the rows, for people
	set  *aside.Set[uuid.UUID]
	left leftOut
	log  *zap.Logger
	// keys returns the keys of rows that run would take; nil: run isolates its rows itself.
	keys func(ctx context.Context, rows store.Rows) ([]uuid.UUID, error)
	run  func(ctx context.Context, rows store.Rows) (found int, err error)
	// alone is called for each row that is rejected on its own, before it is set aside. It
	// reports whether it has handled the row; nil: it never has.
	alone func(ctx context.Context, key uuid.UUID, why error) (handled bool, err error)
	// waits are rows that are left out for another reason; nil: none.
	waits func() []uuid.UUID
	// blame is called for each row that is to blame; nil: it stays set aside.
	blame func(ctx context.Context, key uuid.UUID, why error)
}

// except are the rows that are left out now.
func (f *isolated) except() []uuid.UUID {
	rows := append(f.set.Held(), f.left.now()...)
	if f.waits != nil {
		rows = append(rows, f.waits()...)
	}
	return rows
}

// look runs the flow over up to limit rows. The error is never about a single row.
func (f *isolated) look(ctx context.Context, limit int) (found int, err error) {
	rows := store.Rows{Limit: limit, Except: f.except()}
	found, err = f.run(ctx, rows)
	if err == nil && found > 0 {
		f.set.Pass()
	}
	if !refused(ctx, err) || f.keys == nil {
		return found, err
	}
	keys, failure := f.keys(ctx, rows)
	if failure != nil {
		return 0, errors.Join(err, failure)
	}
	f.log.Warn("the database rejected rows together; they are tried in halves", zap.String("what", f.what), zap.Int("count", len(keys)), zap.Error(err))
	var others error
	err = aside.Halves(keys, err, func(err error) bool { return refused(ctx, err) }, func(part []uuid.UUID) error {
		n, err := f.run(ctx, store.Rows{Limit: limit, Only: part})
		if found += n; err == nil {
			f.set.Pass(part...)
		}
		return err
	}, func(key uuid.UUID, why error) {
		n, err := f.culprit(ctx, key, why)
		found, others = found+n, errors.Join(others, err)
	})
	return found, errors.Join(err, others)
}

// culprit handles a row that is rejected on its own; found is 1 if that went well.
func (f *isolated) culprit(ctx context.Context, key uuid.UUID, why error) (found int, err error) {
	if f.alone != nil {
		handled, err := f.alone(ctx, key, why)
		if err != nil && !refused(ctx, err) {
			return 0, err
		}
		if handled && err == nil {
			f.set.Fail(why, zap.Stringer("key", key))
			f.set.Pass(key)
			return 1, nil
		}
	}
	if f.set.Reject(key, why, zap.Stringer("key", key)) && f.blame != nil {
		f.blame(ctx, key, why)
	}
	return 0, nil
}

// leftFor is for how long a row is left to newer programs, whose plan may change.
const leftFor = time.Minute

// leftOut are rows that a flow leaves out until a time: those whose plans this program cannot read,
// while a newer one may, and those that a quota rejects.
type leftOut map[uuid.UUID]time.Time

// add leaves rows out for a while, and reports whether one was not left before.
func (l *leftOut) add(rows []uuid.UUID, d time.Duration) (fresh bool) {
	for _, row := range rows {
		if *l == nil {
			*l = leftOut{}
		}
		_, before := (*l)[row]
		fresh = fresh || !before
		(*l)[row] = time.Now().Add(d)
	}
	return fresh
}

// now are the rows that are left out now. It forgets those that were not left again for as long.
func (l leftOut) now() (rows []uuid.UUID) {
	now := time.Now()
	maps.DeleteFunc(l, func(_ uuid.UUID, until time.Time) bool { return now.Sub(until) > leftFor })
	for row, until := range l {
		if now.Before(until) {
			rows = append(rows, row)
		}
	}
	return rows
}

// setAside remembers tasks whose reports could not be applied, and how many reports those had:
// a batch finds them, and takes as many others beside them.
type setAside struct {
	*aside.Set[uuid.UUID]
	reports map[uuid.UUID]int
}

// maxAside bounds the reports that a batch takes beside those of tasks set aside.
const maxAside = 10_000

// holds reports whether a task is left out of a batch.
func (a *setAside) holds(t *store.TakenTask) bool {
	if !a.Holds(t.UUID) {
		return false
	}
	a.reports[t.UUID] = len(t.Reported)
	return true
}

// hidden is how many reports of tasks set aside a batch finds, at most maxAside.
func (a *setAside) hidden() (n int) {
	maps.DeleteFunc(a.reports, func(task uuid.UUID, _ int) bool { return !a.Holds(task) })
	for _, reports := range a.reports {
		n += reports
	}
	return min(n, maxAside)
}

// reject sets a task aside, and reports whether it is to blame.
func (w *applyWork) reject(t *store.TakenTask, why error) (blamed bool) {
	w.aside.reports[t.UUID] = len(t.Reported)
	return w.aside.Reject(t.UUID, why, zap.Stringer("task_uuid", t.UUID))
}

// tryAgain makes an outcome ask for the look that tries the next of them.
func (w *applyWork) tryAgain(out *coordinator.Outcome) {
	if next := w.aside.Next(); next > 0 {
		out.SoonerRetry(next, "")
	}
}

// apart applies changes that were rejected together, in halves.
func (w *applyWork) apart(ctx context.Context, changes []store.Change, why error) (found int, err error) {
	tasks := make([]*store.TakenTask, len(changes))
	for i := range changes {
		tasks[i] = changes[i].Task
	}
	if len(tasks) > 1 {
		w.o.log.Warn("a batch of reports was rejected and is applied in halves", zap.Int("tasks", len(tasks)), zap.Error(why))
	}
	var others error
	err = aside.Halves(tasks, why, func(err error) bool { return refused(ctx, err) }, func(part []*store.TakenTask) error {
		n, err := w.only(ctx, part)
		found += n
		return err
	}, func(t *store.TakenTask, why error) {
		n, err := w.alone(ctx, t, why)
		found, others = found+n, errors.Join(others, err)
	})
	if refused(ctx, err) { // of all tasks: they are set aside, and tried again
		err = nil
	}
	return found, errors.Join(err, others)
}

// only applies the reports of some tasks.
func (w *applyWork) only(ctx context.Context, tasks []*store.TakenTask) (found int, err error) {
	ids := make([]uuid.UUID, len(tasks))
	for i, t := range tasks {
		ids[i] = t.UUID
	}
	taken, err := w.o.store.TakeTasks(ctx, ids, store.Taking{})
	if err != nil {
		return 0, err
	}
	defer taken.Release()
	changes, _ := w.decide(taken.Tasks)
	if len(changes) == 0 {
		return 0, nil
	}
	done, err := taken.Commit(ctx, w.o.cfg.Daemon.UUID, changes)
	if err != nil {
		return 0, err
	}
	return w.committed(changes, done), nil
}

// alone handles a task that is rejected on its own: it is set aside, or ended if it is to
// blame.
func (w *applyWork) alone(ctx context.Context, rejected *store.TakenTask, why error) (found int, err error) {
	if !w.reject(rejected, why) {
		return 0, nil
	}
	return w.o.endRejected(ctx, rejected.UUID, "what was reported cannot be applied; the log of the orchestrators has the details", why,
		func(t *store.TakenTask) bool {
			// The rejected transaction has released the task: if another orchestrator has applied its
			// reports since, the task is no longer at fault.
			return reportsAgain(t, rejected)
		}, w.committed)
}

// endRejected ends a task that the database rejects, with a dead-letter entry, if still holds for
// it. A task whose end it rejects too stays unchanged.
func (o *Orchestrator) endRejected(ctx context.Context, task uuid.UUID, reason string, why error, still func(*store.TakenTask) bool,
	committed func([]store.Change, store.Committed) int) (found int, err error) {
	taken, err := o.store.TakeTasks(ctx, []uuid.UUID{task}, store.Taking{})
	if err != nil {
		return 0, err
	}
	defer taken.Release()
	if len(taken.Tasks) == 0 || taken.Tasks[0].Unreadable != nil || !still(&taken.Tasks[0]) {
		return 0, nil
	}
	changes := []store.Change{o.quarantine(&taken.Tasks[0], "cannot_be_applied", reason)}
	done, err := taken.Commit(ctx, o.cfg.Daemon.UUID, changes)
	switch {
	case err == nil:
		o.log.Error("the database rejects a task; it ends as failed with a dead-letter entry", zap.Stringer("task_uuid", task), zap.NamedError("why", why))
		return committed(changes, done), nil
	case refused(ctx, err):
		o.log.Error("the database rejects a task, and its end too; it is unchanged", zap.Stringer("task_uuid", task), zap.Error(err))
		return 0, nil
	}
	return 0, err
}

// blameTask ends a task that is to blame for the rejection of one of its rows.
func (o *Orchestrator) blameTask(ctx context.Context, task uuid.UUID, why error) {
	_, err := o.endRejected(ctx, task, "the database rejects a row of the task; the log of the orchestrators has the details", why,
		func(*store.TakenTask) bool { return true }, func(changes []store.Change, done store.Committed) int {
			o.publish(done.Signals)
			o.applied(changes, done)
			return 1
		})
	if err != nil {
		o.log.Warn("a task that the database rejects was not ended; it is tried again", zap.Stringer("task_uuid", task), zap.Error(err))
	}
}

// reportsAgain reports whether all reports of a task that were taken before are still to
// be applied.
func reportsAgain(now, before *store.TakenTask) bool {
	for _, was := range before.Reported {
		if !slices.ContainsFunc(now.Reported, func(s store.TakenStep) bool { return s.Step == was.Step && s.Attempt == was.Attempt }) {
			return false
		}
	}
	return true
}
