package rest

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/store"
)

// metered is a store whose answers take their share of the budget: the usual one before
// the read, the actual one after it. The request keeps it until it has been answered.
type metered struct{ Store }

// answering acquires the share of a request, once.
func answering(ctx context.Context) error {
	if x := exchangeOf(ctx); x != nil && x.answers.held == nil {
		return x.answers.take(ctx, usualAnswer)
	}
	return nil
}

// answers sets the share of a request to the bytes read.
func answers(ctx context.Context, bytes int64) error {
	if x := exchangeOf(ctx); x != nil {
		return x.answers.become(max(bytes, 1))
	}
	return nil
}

// meter reads a T of a known length.
func meter[T any](ctx context.Context, read func() (T, error), length func(T) int64) (none T, _ error) {
	if err := answering(ctx); err != nil {
		return none, err
	}
	v, err := read()
	if err != nil {
		return none, err
	}
	if err := answers(ctx, length(v)); err != nil {
		return none, err
	}
	return v, nil
}

// Task implements Store.
func (m metered) Task(ctx context.Context, id uuid.UUID) (*store.Task, error) {
	return meter(ctx, func() (*store.Task, error) { return m.Store.Task(ctx, id) }, lengthOfTask)
}

// TaskWithoutResults implements Store.
func (m metered) TaskWithoutResults(ctx context.Context, id uuid.UUID) (*store.Task, error) {
	return meter(ctx, func() (*store.Task, error) { return m.Store.TaskWithoutResults(ctx, id) }, lengthOfTask)
}

// Tasks implements Store.
func (m metered) Tasks(ctx context.Context, f store.TaskFilter) (store.TaskPage, error) {
	return meter(ctx, func() (store.TaskPage, error) { return m.Store.Tasks(ctx, f) }, func(p store.TaskPage) int64 { return lengthOfTasks(p.Tasks) })
}

// Chain implements Store.
func (m metered) Chain(ctx context.Context, task uuid.UUID, limit int) (store.Chain, error) {
	return meter(ctx, func() (store.Chain, error) { return m.Store.Chain(ctx, task, limit) }, func(c store.Chain) int64 { return lengthOfTasks(c.Tasks) })
}

// Timeline implements Store.
func (m metered) Timeline(ctx context.Context, task uuid.UUID) (store.Timeline, error) {
	return meter(ctx, func() (store.Timeline, error) { return m.Store.Timeline(ctx, task) }, func(t store.Timeline) (n int64) {
		for i := range t.Events {
			n += usualRow + int64(len(t.Events[i].ContextBefore)+len(t.Events[i].ContextAfter))
		}
		return n + lengthOfAttempts(t.Attempts)
	})
}

// Graph implements Store.
func (m metered) Graph(ctx context.Context, task uuid.UUID) (store.Graph, error) {
	return meter(ctx, func() (store.Graph, error) { return m.Store.Graph(ctx, task) }, func(g store.Graph) int64 {
		return lengthOfTask(g.Task) + usualRow*int64(len(g.Children))
	})
}

// Attempts implements Store.
func (m metered) Attempts(ctx context.Context, task uuid.UUID, step int) ([]store.StepAttempt, error) {
	return meter(ctx, func() ([]store.StepAttempt, error) { return m.Store.Attempts(ctx, task, step) }, lengthOfAttempts)
}

// usualRow is the size of a row besides its JSON.
const usualRow = 500

func lengthOfTask(t *store.Task) int64 {
	n := usualRow + len(t.Context)
	for i := range t.Steps {
		s := &t.Steps[i]
		n += usualRow + len(s.Result) + len(s.Error) + len(s.Checkpoint)
	}
	return int64(n)
}

func lengthOfTasks(list []*store.Task) (n int64) {
	for _, t := range list {
		n += lengthOfTask(t)
	}
	return n
}

func lengthOfAttempts(list []store.StepAttempt) (n int64) {
	for i := range list {
		n += usualRow + int64(len(list[i].Result)+len(list[i].Error))
	}
	return n
}

// withContexts reads the contexts of tasks that were read without them. They are
// measured before they are read.
func (t *taskRoutes) withContexts(ctx context.Context, tasks []*store.Task) error {
	ids := make([]uuid.UUID, len(tasks))
	for i, task := range tasks {
		ids[i] = task.UUID
	}
	n, err := t.store.ContextBytes(ctx, ids)
	if err != nil {
		return err
	}
	x := exchangeOf(ctx)
	if n > x.answers.most() {
		return badRequest("The contexts of these tasks exceed the budget for answers; request fewer per page")
	}
	x.answers.giveBack() // no memory is held during the wait
	if err := x.answers.take(ctx, n+lengthOfTasks(tasks)); err != nil {
		return err
	}
	contexts, err := t.store.Contexts(ctx, ids)
	if err != nil {
		return err
	}
	for _, task := range tasks {
		task.Context = contexts[task.UUID]
		if task.Context == nil { // retention has deleted the task
			task.Context = json.RawMessage("null")
		}
	}
	return nil
}
