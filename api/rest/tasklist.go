package rest

import (
	"context"
	"fmt"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// listQuery selects tasks.
type listQuery struct {
	Page         number `query:"page" within:"1,2147483647,1" doc:"From 1; default 1"`
	PerPage      number `query:"per_page" within:"1,100,25" doc:"1 to 100; default 25"`
	Namespace    string `query:"namespace"`
	Status       string `query:"status" doc:"One of the twelve task states; completed means complete"`
	Initiator    string `query:"initiator"`
	SourceSystem string `query:"source_system"`
	Include      string `query:"include" enum:"context" doc:"context: with the contexts of the tasks, which are null otherwise"`
}

// filter checks the query. Pages beyond the counted tasks are rejected: they would read
// the whole ledger.
func (q *listQuery) filter() (f store.TaskFilter, _ int, err error) {
	page, perPage := int(q.Page), int(q.PerPage)
	if page > store.CountLimit/perPage+1 {
		return f, 0, badRequest(fmt.Sprintf("page is beyond the newest %d tasks; narrow the filter", store.CountLimit))
	}
	f = store.TaskFilter{Namespace: q.Namespace, Initiator: q.Initiator, SourceSystem: q.SourceSystem,
		Limit: perPage, Offset: (page - 1) * perPage}
	for _, text := range []struct{ name, value string }{
		{"namespace", q.Namespace}, {"initiator", q.Initiator}, {"source_system", q.SourceSystem},
	} {
		if err := filterText(text.name, text.value); err != nil {
			return f, 0, err
		}
	}
	f.State, err = stateFilter(q.Status)
	return f, page, err
}

// stateFilter accepts the twelve states, and "completed" for older clients.
func stateFilter(status string) (workflow.TaskState, error) {
	switch status {
	case "":
		return 0, nil
	case "completed":
		return workflow.TaskComplete, nil
	}
	state, ok := workflow.ParseTaskState(status)
	if !ok {
		return 0, badRequest(fmt.Sprintf("%q is not a task state", clip(status, 64)))
	}
	return state, nil
}

func (t *taskRoutes) list(ctx context.Context, in *listQuery) (*client.TaskList, error) {
	f, page, err := in.filter()
	if err != nil {
		return nil, err
	}
	with, err := parseInclude(in.Include, client.IncludeContext)
	if err != nil {
		return nil, err
	}
	found, err := t.store.Tasks(ctx, f)
	if err != nil {
		return nil, err
	}
	if with.context {
		if err := t.withContexts(ctx, found.Tasks); err != nil {
			return nil, err
		}
	}
	list := &client.TaskList{Tasks: make([]client.Task, len(found.Tasks))}
	for i, task := range found.Tasks {
		list.Tasks[i] = *taskOf(task, false)
	}
	pages := (found.Total + f.Limit - 1) / f.Limit
	list.Pagination = client.Pagination{Page: page, PerPage: f.Limit, TotalCount: found.Total, TotalPages: pages,
		HasNext: page < pages, HasPrevious: page > 1}
	return list, nil
}
