package rest

import (
	"context"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
)

// chainInput selects a task and the length.
type chainInput struct {
	UUID  uuid.UUID `path:"uuid" format:"uuid"`
	Limit number    `query:"limit" within:"1,500,50" doc:"How many links in each direction, 1 to 500; 50 when absent"`
}

func (t *taskRoutes) chain(ctx context.Context, in *chainInput) (*client.Chain, error) {
	chain, err := t.store.Chain(ctx, in.UUID, int(in.Limit))
	if err != nil {
		return nil, ofTask(in.UUID, err)
	}
	w := &client.Chain{TaskUUID: in.UUID.String(), Tasks: make([]client.Task, 0, len(chain.Tasks)), MoreBefore: chain.MoreBefore, MoreAfter: chain.MoreAfter}
	x := exchangeOf(ctx)
	for _, task := range chain.Tasks {
		// A handler may name a task of another namespace as the next one.
		if !x.hides(task.Plan.Template.Namespace) {
			w.Tasks = append(w.Tasks, *taskFor(ctx, task, false))
		}
	}
	return w, nil
}
