package submission

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

// Entry is one of many requests, with its outcome.
type Entry struct {
	Request *Request
	Created
	// Err says why there is no task: *InvalidError, *UnknownTemplateError or
	// *DuplicateError. An entry with a previous error is skipped.
	Err error
}

// Into is IntoEach for one request; it also returns the request's own error.
func Into(ctx context.Context, tx store.Tx, plans Plans, how store.Announce, r *Request) (Created, []signal.Signal, error) {
	entries := []Entry{{Request: r}}
	signals, err := IntoEach(ctx, tx, plans, how, entries)
	if err == nil {
		err = entries[0].Err
	}
	return entries[0].Created, signals, err
}

// IntoEach creates the tasks of requests within a transaction that its caller ends, see
// store.CreateTasksIn, and completes their entries. A fault of one request does not affect
// the others, and the transaction continues. Of requests with the same identity the first
// creates the task.
//
// The number of statements grows with the number of templates and, by two per hundred, with
// the unknown tasks to depend on, but not with the requests. The signals are for callers
// that know when the transaction commits, in place of an announcement in it.
//
// The returned error concerns no single request: the transaction can only be rolled back.
func IntoEach(ctx context.Context, tx store.Tx, plans Plans, how store.Announce, entries []Entry) ([]signal.Signal, error) {
	plans = Once(plans)
	b := newTasks{entries: entries}
	for i := range entries {
		e := &entries[i]
		if e.Err != nil {
			continue
		}
		task, err := Prepare(ctx, plans, e.Request)
		switch {
		case err == nil:
			b.tasks, b.indexes = append(b.tasks, task), append(b.indexes, i)
		case !blamesSender(err):
			return nil, err
		}
		e.Err = err
	}
	for len(b.tasks) > 0 {
		rows, err := store.CreateTasksIn(ctx, tx, how, b.tasks...)
		if err == nil {
			return b.answer(rows), nil
		}
		// Where dependencies are unknown nothing was written, and no statement has failed.
		var unknown *store.UnknownTasksError
		if !errors.As(err, &unknown) || !b.drop(unknown.Tasks) {
			return nil, err
		}
	}
	return nil, nil
}

func blamesSender(err error) bool {
	var invalid *InvalidError
	var unknown *UnknownTemplateError
	return errors.As(err, &invalid) || errors.As(err, &unknown)
}

// newTasks are the tasks of the valid entries.
type newTasks struct {
	entries []Entry
	tasks   []store.NewTask
	indexes []int // of their entries
}

// drop removes the tasks with unknown dependencies, and reports whether there were any.
func (b *newTasks) drop(unknown []uuid.UUID) bool {
	had, tasks, indexes := len(b.tasks), b.tasks[:0], b.indexes[:0]
	for i, index := range b.indexes {
		var missing []uuid.UUID
		for _, id := range b.tasks[i].DependsOn {
			if slices.Contains(unknown, id) {
				missing = append(missing, id)
			}
		}
		if missing == nil {
			tasks, indexes = append(tasks, b.tasks[i]), append(indexes, index)
		} else {
			b.entries[index].Err = Refusal(&store.UnknownTasksError{Tasks: missing})
		}
	}
	b.tasks, b.indexes = tasks, indexes
	return len(tasks) < had
}

// answer completes the entries and returns the signals of the new tasks.
func (b *newTasks) answer(rows []store.CreatedTask) []signal.Signal {
	created := make([]store.NewTask, 0, len(b.tasks))
	for i, index := range b.indexes {
		e := &b.entries[index]
		if e.Created, e.Err = Answer(&b.tasks[i], rows[i], e.Request.Conflict); e.Err == nil && !e.Existing {
			created = append(created, b.tasks[i])
		}
	}
	return store.CreateSignals(created)
}

// Once returns plans that look each template up once, and mark it as used once; for one
// goroutine.
func Once(plans Plans) Plans {
	return &askedOnce{plans, map[[3]string]planAnswer{}, map[*store.Plan]planAnswer{}}
}

type planAnswer struct {
	plan *store.Plan
	err  error
}

type askedOnce struct {
	plans Plans
	named map[[3]string]planAnswer // by namespace, name and version
	used  map[*store.Plan]planAnswer
}

// PlanNamed implements Plans.
func (p *askedOnce) PlanNamed(ctx context.Context, namespace, name, version string) (*store.Plan, error) {
	key := [3]string{namespace, name, version}
	known, ok := p.named[key]
	if !ok {
		known.plan, known.err = p.plans.PlanNamed(ctx, namespace, name, version)
		p.named[key] = known
	}
	return known.plan, known.err
}

// UsePlan implements Plans.
func (p *askedOnce) UsePlan(ctx context.Context, plan *store.Plan) (*store.Plan, error) {
	known, ok := p.used[plan]
	if !ok {
		known.plan, known.err = p.plans.UsePlan(ctx, plan)
		p.used[plan] = known
	}
	return known.plan, known.err
}
