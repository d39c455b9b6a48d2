package orchestration

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/store"
)

// One task whose reports cannot be applied must not block the other tasks of its
// batch, which would be taken together again and again. A batch that the database
// rejects is applied in halves until the rejected task stands alone. That task is
// set aside: it is unchanged, and is retried with a growing delay. If it is rejected
// for the third time although other tasks were applied since the first, the task is
// at fault: it ends as failed, with its reports in the ledger and a dead-letter
// entry. Where nothing can be applied, the database or its schema is at fault, and
// no task ends because of that.
const (
	// asideBase and asideMost bound the time for which a task is set aside; it
	// doubles with each refusal.
	asideBase = time.Second
	asideMost = time.Minute
	// asideTries is the number of rejections from which a task may go into quarantine.
	asideTries = 3
	// maxAside bounds the tasks that are remembered, and their reports in a batch; a task
	// beyond it is tried with each batch.
	maxAside = 10_000
)

// refusedTask is the record of a task set aside.
type refusedTask struct {
	since, until time.Time
	tries        int
	reports      int // when it was taken last
}

// aside remembers tasks that could not be applied. The zero value is empty; it is
// not safe for concurrent use.
type aside struct {
	tasks  map[uuid.UUID]refusedTask
	latest time.Time // when reports were applied last
}

func (a *aside) empty() bool { return len(a.tasks) == 0 }

// holds reports whether a task is left out of a batch.
func (a *aside) holds(t *store.TakenTask, now time.Time) bool {
	r, known := a.tasks[t.UUID]
	if known {
		r.reports = len(t.Reported)
		a.tasks[t.UUID] = r
	}
	return now.Before(r.until)
}

// reports returns how many reports of the tasks a batch finds, at most maxAside: beside so many
// it takes others, which they would hide.
func (a *aside) reports() (n int) {
	for _, r := range a.tasks {
		n += r.reports
	}
	return min(n, maxAside)
}

func (a *aside) forget(task uuid.UUID) { delete(a.tasks, task) }

// add records a rejection, and reports whether the task itself is at fault.
func (a *aside) add(t *store.TakenTask, now time.Time) (r refusedTask, blamed bool) {
	task := t.UUID
	r = a.tasks[task]
	if r.tries++; r.tries == 1 {
		r.since = now
	}
	r.reports = len(t.Reported)
	r.until = now.Add(min(asideBase<<min(r.tries-1, 10), asideMost))
	if a.tasks == nil {
		a.tasks = map[uuid.UUID]refusedTask{}
	}
	if _, known := a.tasks[task]; known || len(a.tasks) < maxAside {
		a.tasks[task] = r
	}
	return r, r.tries >= asideTries && a.latest.After(r.since)
}

// next makes an outcome ask for a look when the first task may be tried again, and
// forgets tasks that were not found when due: another orchestrator handled them.
func (a *aside) next(out *coordinator.Outcome, now time.Time) {
	for task, r := range a.tasks {
		if now.Sub(r.until) > asideMost {
			delete(a.tasks, task)
			continue
		}
		out.SoonerRetry(max(r.until.Sub(now), asideBase), "")
	}
}

// ofOneTask reports whether a commit error may be due to one task of many: the
// database rejects what is written (a data exception, a constraint, a limit, an
// exception raised by a trigger, an unreadable row), or the store does so first.
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

// apart applies changes that were rejected together, in halves.
func (w *applyWork) apart(ctx context.Context, changes []store.Change, why error) (found int, err error) {
	if len(changes) == 1 {
		return w.alone(ctx, changes[0].Task, why)
	}
	w.o.log.Warn("a batch of reports was rejected and is applied in halves", zap.Int("tasks", len(changes)), zap.Error(why))
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

// alone handles a task that is rejected on its own. The rejected transaction has released
// the task: if another orchestrator has applied its reports since, or a newer program has
// written it, the task is no longer at fault.
func (w *applyWork) alone(ctx context.Context, rejected *store.TakenTask, why error) (found int, err error) {
	task := rejected.UUID
	if !w.setAside(rejected, why) {
		return 0, nil
	}
	taken, err := w.o.store.TakeTasks(ctx, []uuid.UUID{task}, store.Taking{})
	if err != nil {
		return 0, err
	}
	defer taken.Release()
	if len(taken.Tasks) == 0 || taken.Tasks[0].Unreadable != nil || !reportsAgain(&taken.Tasks[0], rejected) {
		w.aside.forget(task)
		return 0, nil
	}
	changes := []store.Change{w.o.quarantine(&taken.Tasks[0], "cannot_be_applied", "what was reported cannot be applied; the log of the orchestrators has the details")}
	done, err := taken.Commit(ctx, w.o.cfg.Daemon.UUID, changes)
	switch {
	case err == nil:
		w.o.log.Error("the reports of a task cannot be applied; it ends as failed with a dead-letter entry", zap.Stringer("task_uuid", task), zap.Error(why))
		return w.committed(changes, done), nil
	case ofOneTask(ctx, err):
		w.o.log.Error("the reports of a task cannot be applied, and the task cannot be ended; it is unchanged", zap.Stringer("task_uuid", task), zap.Error(err))
		return 0, nil
	}
	return 0, err
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

// setAside leaves a task unchanged for a while, and reports whether it must be ended
// instead.
func (w *applyWork) setAside(t *store.TakenTask, why error) (blamed bool) {
	r, blamed := w.aside.add(t, time.Now())
	w.o.log.Error("the reports of a task cannot be applied; it is set aside", zap.Stringer("task_uuid", t.UUID),
		zap.Int("refusals", r.tries), zap.Time("until", r.until), zap.Error(why))
	return blamed
}

// tryAgain makes an outcome ask for the look that tries the next of them.
func (w *applyWork) tryAgain(out *coordinator.Outcome) {
	w.aside.next(out, time.Now())
	w.o.metrics.TasksAside.Set(float64(len(w.aside.tasks)))
}
