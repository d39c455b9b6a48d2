package rest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// listQuery selects tasks.
type listQuery struct {
	Page          number    `query:"page" within:"1,2147483647,1" doc:"From 1; default 1"`
	PerPage       number    `query:"per_page" within:"1,100,25" doc:"1 to 100; default 25"`
	Cursor        string    `query:"cursor" doc:"Instead of page: newest, or next_cursor of an answer. Such lists are not counted, and have no gaps or repetitions while tasks are created. Any page may be short, or empty, though next_cursor leads to more"`
	Namespace     string    `query:"namespace"`
	Name          string    `query:"name" doc:"Name of the template"`
	NameContains  string    `query:"name_contains" doc:"A part of the name of the template, regardless of case"`
	Version       string    `query:"version"`
	Status        []string  `query:"status" doc:"Of the twelve task states, also several, by commas or repeated; completed means complete"`
	Tag           []string  `query:"tag" doc:"Repeated: tasks with all of them"`
	CorrelationID string    `query:"correlation_id" format:"uuid"`
	CreatedAfter  time.Time `query:"created_after" format:"date-time" doc:"Created at this instant or later"`
	CreatedBefore time.Time `query:"created_before" format:"date-time" doc:"Created earlier than this instant"`
	Initiator     string    `query:"initiator"`
	SourceSystem  string    `query:"source_system"`
	Include       string    `query:"include" enum:"context" doc:"context: with the contexts of the tasks, which are null otherwise"`
}

// filter checks the query. Pages beyond the counted tasks are rejected: they would read
// the whole ledger.
func (q *listQuery) filter() (f store.TaskFilter, err error) {
	page, perPage := int(q.Page), int(q.PerPage)
	if page > lastPage(perPage) {
		return f, badRequest(fmt.Sprintf("page is beyond the newest %d tasks; narrow the filter, or go on by cursor", store.CountLimit))
	}
	f = store.TaskFilter{Namespace: q.Namespace, Name: q.Name, Text: q.NameContains, Version: q.Version, Tags: q.Tag, Initiator: q.Initiator,
		SourceSystem: q.SourceSystem, CreatedAfter: q.CreatedAfter, CreatedBefore: q.CreatedBefore, Limit: perPage, Offset: (page - 1) * perPage}
	texts := []struct{ name, value string }{
		{"namespace", q.Namespace}, {"name", q.Name}, {"name_contains", q.NameContains}, {"version", q.Version},
		{"initiator", q.Initiator}, {"source_system", q.SourceSystem},
	}
	for _, tag := range q.Tag {
		texts = append(texts, struct{ name, value string }{"tag", tag})
	}
	for _, text := range texts {
		if err := filterText(text.name, text.value); err != nil {
			return f, err
		}
	}
	if len(q.Tag) > maxListTags {
		return f, badRequest(fmt.Sprintf("there may be %d tags", maxListTags))
	}
	if q.CorrelationID != "" {
		if f.CorrelationID, err = parseTask(q.CorrelationID); err != nil {
			return f, err
		}
	}
	if q.Cursor != "" {
		if page > 1 {
			return f, badRequest("give page or cursor, not both")
		}
		if f.Continued = true; q.Cursor != client.NewestTasks {
			if f.Before, err = uuid.Parse(q.Cursor); err != nil {
				return f, badRequest("cursor must be newest, or next_cursor of an answer")
			}
		}
	}
	f.States, err = statesFilter(q.Status)
	return f, err
}

// maxListTags is how many tags a task may have.
const maxListTags = 64

// lastPage is the last one that is read.
func lastPage(perPage int) int { return store.CountLimit/perPage + 1 }

func statesFilter(list []string) (states []workflow.TaskState, err error) {
	for word := range strings.SplitSeq(strings.Join(list, ","), ",") {
		state, err := stateFilter(word)
		if err != nil {
			return nil, err
		}
		if state != 0 && !slices.Contains(states, state) {
			states = append(states, state)
		}
	}
	return states, nil
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
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	with, err := parseInclude(in.Include, client.IncludeContext)
	if err != nil {
		return nil, err
	}
	if x := exchangeOf(ctx); with.context && !x.showsInputs() {
		return nil, x.server.judged(x, x.who.Authorize(auth.TasksContextRead))
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
		list.Tasks[i] = *taskFor(ctx, task, false)
	}
	for _, id := range found.Unreadable {
		list.Unreadable = append(list.Unreadable, id.String())
	}
	if found.Next != uuid.Nil {
		list.NextCursor = found.Next.String()
	}
	if f.Continued {
		return list, nil
	}
	page, pages := int(in.Page), (found.Total+f.Limit-1)/f.Limit
	list.Pagination = client.Pagination{Page: page, PerPage: f.Limit, TotalCount: found.Total, TotalEstimated: found.Estimated, TotalPages: pages,
		HasNext: page < min(pages, lastPage(f.Limit)), HasPrevious: page > 1}
	return list, nil
}
