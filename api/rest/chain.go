package rest

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/store"
)

// Chains reads the tasks before and behind a task; *store.Store is one.
type Chains interface {
	// Chain follows the chain of a task, up to limit links in each direction; the error
	// wraps store.ErrNotFound if the task does not exist.
	Chain(ctx context.Context, task uuid.UUID, limit int) (store.Chain, error)
}

// chainInput selects a task and the length.
type chainInput struct {
	UUID  string `path:"uuid" format:"uuid"`
	Limit number `query:"limit" doc:"How many links in each direction, 1 to 500; 50 when absent"`
}

func (t *taskRoutes) chain(ctx context.Context, in *chainInput) (*client.Chain, error) {
	id, err := parseTask(in.UUID)
	if err != nil {
		return nil, err
	}
	limit, err := in.Limit.within(1, client.MaxChainLimit, client.DefaultChainLimit, fmt.Sprintf("limit must be between 1 and %d", client.MaxChainLimit))
	if err != nil {
		return nil, err
	}
	chain, err := t.store.Chain(ctx, id, limit)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(fmt.Sprintf("Task not found: %s", id))
	}
	if err != nil {
		return nil, err
	}
	w := &client.Chain{TaskUUID: id.String(), Tasks: make([]client.Task, len(chain.Tasks)), MoreBefore: chain.MoreBefore, MoreAfter: chain.MoreAfter}
	for i, task := range chain.Tasks {
		w.Tasks[i] = *taskOf(task, false)
	}
	return w, nil
}
