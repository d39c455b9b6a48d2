package orchestration

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/store"
)

// One task whose reports cannot be applied must not hold up the others of its
// batch, which would be taken together again and again. A batch that the database
// refuses is applied in halves, until what it refuses stands alone. That task is
// set aside: it stays as it is, and is tried again later and later. One that is
// refused for the third time, while others have gone through since the first, is
// to blame itself: it ends as failed, with what was reported in the ledger and an
// entry in the dead letter queue. Where nothing goes through, the database is to
// blame, or its schema, and no task ends because of that.
const (
	// asideBase and asideMost bound the time for which a task is set aside; it
	// doubles with each refusal.
	asideBase = time.Second
	asideMost = time.Minute
	// asideTries is at which refusal a task may go into quarantine.
	asideTries = 3
	// maxAside bounds the tasks that are remembered; one that is not is tried with
	// each batch.
	maxAside = 10_000
)

// refusedTask is what is remembered of a task set aside.
type refusedTask struct {
	since, until time.Time
	tries        int
}

// aside remembers tasks that could not be applied. The zero value is empty; it is
// for one goroutine.
type aside struct {
	tasks  map[uuid.UUID]refusedTask
	latest time.Time // when reports were applied last
}

func (a *aside) empty() bool { return len(a.tasks) == 0 }

// holds reports whether a task is to be left out of a batch.
func (a *aside) holds(task uuid.UUID, now time.Time) bool { return now.Before(a.tasks[task].until) }

func (a *aside) forget(task uuid.UUID) { delete(a.tasks, task) }

// add notes a refusal, and reports whether the task is to blame by itself.
func (a *aside) add(task uuid.UUID, now time.Time) (r refusedTask, blamed bool) {
	r = a.tasks[task]
	if r.tries++; r.tries == 1 {
		r.since = now
	}
	r.until = now.Add(min(asideBase<<min(r.tries-1, 10), asideMost))
	if a.tasks == nil {
		a.tasks = map[uuid.UUID]refusedTask{}
	}
	if _, known := a.tasks[task]; known || len(a.tasks) < maxAside {
		a.tasks[task] = r
	}
	return r, r.tries >= asideTries && a.latest.After(r.since)
}

// next makes an outcome ask for a look when the first of them may be tried again,
// and forgets those that others have dealt with: they were not found when their
// time came.
func (a *aside) next(out *coordinator.Outcome, now time.Time) {
	for task, r := range a.tasks {
		if now.Sub(r.until) > asideMost {
			delete(a.tasks, task)
			continue
		}
		out.SoonerRetry(max(r.until.Sub(now), asideBase), "")
	}
}

// ofOneTask reports whether an error of a commit may be due to one task of many:
// the database answers and refuses what is written (a data exception, a constraint,
// a limit, an exception raised by a trigger, a row that cannot be read), or the
// store does before it asks.
func ofOneTask(ctx context.Context, err error) bool {
	if !refused(ctx, err) {
		return false
	}
	var sql interface{ SQLState() string }
	if !errors.As(err, &sql) || len(sql.SQLState()) != 5 {
		return true
	}
	switch sql.SQLState()[:2] {
	case "P0", "XX":
		return true
	}
	return ofContent(err)
}

// apart applies changes that were refused together, in halves.
func (w *applyWork) apart(ctx context.Context, changes []store.Change, why error) (found int, err error) {
	if len(changes) == 1 {
		return w.alone(ctx, changes[0].Task.UUID, why)
	}
	w.o.log.Warn("the reports of several tasks cannot be applied together; they are applied in halves", zap.Int("tasks", len(changes)), zap.Error(why))
	tasks := make([]uuid.UUID, len(changes))
	for i := range changes {
		tasks[i] = changes[i].Task.UUID
	}
	for _, half := range [][]uuid.UUID{tasks[:len(tasks)/2], tasks[len(tasks)/2:]} {
		n, err := w.only(ctx, half)
		if found += n; err != nil {
			return found, err
		}
	}
	return found, nil
}

// only applies the reports of some tasks.
func (w *applyWork) only(ctx context.Context, tasks []uuid.UUID) (found int, err error) {
	taken, err := w.o.store.TakeTasks(ctx, tasks, store.Taking{})
	if err != nil {
		return 0, err
	}
	defer taken.Release()
	changes, _ := w.decide(taken.Tasks)
	if len(changes) == 0 {
		return 0, nil
	}
	done, err := taken.Commit(ctx, w.o.cfg.Daemon.UUID, changes)
	switch {
	case err == nil:
		return w.committed(changes, done), nil
	case ofOneTask(ctx, err):
		return w.apart(ctx, changes, err)
	}
	return 0, err
}

// alone deals with a task that is refused by itself.
func (w *applyWork) alone(ctx context.Context, task uuid.UUID, why error) (found int, err error) {
	if !w.setAside(task, why) {
		return 0, nil
	}
	taken, err := w.o.store.TakeTasks(ctx, []uuid.UUID{task}, store.Taking{})
	if err != nil {
		return 0, err
	}
	defer taken.Release()
	if len(taken.Tasks) == 0 {
		return 0, nil
	}
	changes := []store.Change{w.o.quarantine(&taken.Tasks[0], "cannot_be_applied", "what was reported cannot be applied; the log of the orchestrators has the details")}
	done, err := taken.Commit(ctx, w.o.cfg.Daemon.UUID, changes)
	switch {
	case err == nil:
		w.o.log.Error("a task whose reports cannot be applied ends as failed and waits for somebody to look at it", zap.Stringer("task_uuid", task), zap.Error(why))
		return w.committed(changes, done), nil
	case ofOneTask(ctx, err):
		w.o.log.Error("a task whose reports cannot be applied cannot be ended either; it stays as it is", zap.Stringer("task_uuid", task), zap.Error(err))
		return 0, nil
	}
	return 0, err
}

// setAside leaves a task as it is for a while, and reports whether it is to be
// ended instead.
func (w *applyWork) setAside(task uuid.UUID, why error) (blamed bool) {
	r, blamed := w.aside.add(task, time.Now())
	w.o.log.Error("the reports of a task cannot be applied; it is set aside", zap.Stringer("task_uuid", task),
		zap.Int("refusals", r.tries), zap.Time("until", r.until), zap.Error(why))
	return blamed
}

// tryAgain makes an outcome ask for the look at which the next of them is tried.
func (w *applyWork) tryAgain(out *coordinator.Outcome) {
	w.aside.next(out, time.Now())
	w.o.metrics.TasksAside.Set(float64(len(w.aside.tasks)))
}
