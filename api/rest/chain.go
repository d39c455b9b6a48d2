package rest

import (
	"context"
	"fmt"

	"github.com/tasker-go/tasker/client"
)

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
	if err != nil {
		return nil, ofTask(id, err)
	}
	w := &client.Chain{TaskUUID: id.String(), Tasks: make([]client.Task, len(chain.Tasks)), MoreBefore: chain.MoreBefore, MoreAfter: chain.MoreAfter}
	for i, task := range chain.Tasks {
		w.Tasks[i] = *taskOf(task, false)
	}
	return w, nil
}
