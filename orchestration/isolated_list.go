package orchestration

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/store"
)

// IsolatedQuery selects isolated items of a task's batches; zero values select all.
type IsolatedQuery struct {
	Worker              string // the name of the batch_worker step
	Batch               string // the name of a batch
	Retryable, Replayed *bool
	// AfterStep and AfterNo identify the last item of the previous page.
	AfterStep, AfterNo int
	Limit              int
}

// Isolated lists isolated items and their task, which has no results. The error wraps
// store.ErrNotFound, or is an *InvalidError.
func (o *Orchestrator) Isolated(ctx context.Context, task uuid.UUID, q IsolatedQuery) (*store.Task, []store.Isolated, error) {
	t, err := o.store.Task(ctx, task)
	if err != nil {
		return nil, nil, fmt.Errorf("list isolated items: %w", err)
	}
	f := store.IsolatedFilter{Batch: q.Batch, Retryable: q.Retryable, Replayed: q.Replayed}
	if q.Worker != "" {
		no, ok := t.Plan.StepNumber(q.Worker)
		if !ok {
			return nil, nil, invalid("the task has no step %q", q.Worker)
		}
		f.Worker = &no
	}
	items, err := o.store.Isolated(ctx, task, f, q.AfterStep, q.AfterNo, q.Limit)
	return t, items, err
}
