package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
)

// isolatedRoutes show isolated items and have them processed again.
type isolatedRoutes struct{ *orchestratorAPI }

func (r *isolatedRoutes) add() {
	const path = "/v1/tasks/{uuid}/batches/isolated"
	op := operation{tag: tasksTag}
	add(r.api, op.at(http.MethodGet, path, "list-isolated-items", "List the items that batches of a task have isolated"), r.list)
	addBody(r.api, op.at(http.MethodPost, path+"/replay", "replay-isolated-items", "Create a task that processes isolated items again, or count them"), r.replay)
}

// isolatedQuery selects items of a task.
type isolatedQuery struct {
	UUID      uuid.UUID `path:"uuid" format:"uuid"`
	Worker    string    `query:"worker_step" doc:"Of the batches of this step"`
	Batch     string    `query:"batch" doc:"Of the batch of this name"`
	Retryable string    `query:"retryable" enum:"true,false" doc:"As the handler has marked the failure"`
	Replayed  string    `query:"replayed" enum:"true,false" doc:"Whether a task was created to process them again"`
	After     string    `query:"after" doc:"next of the page before"`
	Limit     number    `query:"limit" within:"1,1000,100" doc:"1 to 1000; default 100"`
}

func (q *isolatedQuery) read() (w orchestration.IsolatedQuery, err error) {
	var c checked
	w.Worker = c.text("worker_step", q.Worker, orchestration.MaxTextLength)
	w.Batch = c.text("batch", q.Batch, orchestration.MaxTextLength)
	w.Retryable, w.Replayed = yesOrNo(&c, "retryable", q.Retryable), yesOrNo(&c, "replayed", q.Replayed)
	if q.After != "" {
		if w.AfterStep, w.AfterNo, err = parsePlace(q.After); err != nil {
			c.add("after must be next of the previous page")
		}
	}
	w.Limit = int(q.Limit)
	return w, c.err()
}

// yesOrNo reads a flag of a query; nil: absent.
func yesOrNo(c *checked, name, value string) *bool {
	switch value {
	case "":
		return nil
	case "true", "false":
		return new(value == "true")
	}
	c.add("%s must be true or false", name)
	return nil
}

// parsePlace reads the place of an item, as placeOf writes it.
func parsePlace(text string) (step, no int, err error) {
	first, second, _ := strings.Cut(text, ".")
	a, err := strconv.ParseUint(first, 10, 15)
	if err != nil {
		return 0, 0, err
	}
	b, err := strconv.ParseUint(second, 10, 31)
	return int(a), int(b), err // #nosec G115 -- within 31 bits
}

func placeOf(i *store.Isolated) string { return fmt.Sprintf("%d.%d", i.Step, i.No) }

func (r *isolatedRoutes) list(ctx context.Context, in *isolatedQuery) (*client.IsolatedItems, error) {
	q, err := in.read()
	if err != nil {
		return nil, err
	}
	limit := q.Limit
	q.Limit++ // whether there is more
	task, items, err := r.engine.Isolated(ctx, in.UUID, q)
	if err != nil {
		return nil, ofTask(in.UUID, err)
	}
	w := &client.IsolatedItems{TaskUUID: in.UUID.String(), Items: make([]client.IsolatedItem, 0, min(limit, len(items)))}
	for i := range items[:min(limit, len(items))] {
		item, err := isolatedOf(task, &items[i])
		if err != nil {
			return nil, err
		}
		item.Item = shownInput(ctx, item.Item)
		w.Items = append(w.Items, item)
	}
	if len(items) > limit {
		w.Next = new(placeOf(&items[limit-1]))
	}
	return w, nil
}

func isolatedOf(t *store.Task, i *store.Isolated) (client.IsolatedItem, error) {
	w := client.IsolatedItem{Worker: t.StepName(i.Template), Batch: i.Batch, StepUUID: store.BatchUUID(t.UUID, i.Step, i.Run).String(), Item: i.Item,
		ReplayedAs: textOf(i.ReplayedAs)}
	if err := json.Unmarshal(i.Error, &w.Error); err != nil {
		return w, fmt.Errorf("read why item %d of %s was isolated: %w", i.No, i.Batch, err)
	}
	return w, nil
}

func (r *isolatedRoutes) replay(ctx context.Context, in *taskInput, body *request[client.IsolatedReplay]) (*client.IsolatedReplayed, error) {
	b := &body.body
	replay := orchestration.ReplayIsolated{Retryable: b.Retryable, Again: b.Again, DryRun: b.DryRun,
		Worker: body.text("worker_step", b.Worker, orchestration.MaxTextLength), Batch: body.text("batch", b.Batch, orchestration.MaxTextLength)}
	replay.Reason, replay.Actor = body.whyUnless(b.DryRun, b.Reason, b.Actor)
	replay.Limit = body.within("limit", b.Limit, 1, limits.MaxIsolatedReplay, limits.MaxIsolatedReplay)
	if err := body.err(); err != nil {
		return nil, err
	}
	done, err := r.engine.ReplayIsolated(ctx, in.UUID, replay)
	if err != nil {
		return nil, ofTask(in.UUID, err)
	}
	w := &client.IsolatedReplayed{Items: done.Items, Batches: done.Batches, More: done.More, DryRun: done.DryRun}
	if done.Task != uuid.Nil {
		w.TaskUUID = new(done.Task.String())
	}
	return w, nil
}
