package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// IsolatedItems is a page of items isolated by batches of a task.
type IsolatedItems struct {
	TaskUUID string         `json:"task_uuid"`
	Items    []IsolatedItem `json:"items"`
	Next     *string        `json:"next" doc:"Pass it as after for the next page; null: the last page"`
}

// IsolatedItem is an item that its batch could not process.
type IsolatedItem struct {
	Worker     string          `json:"worker_step"`
	Batch      string          `json:"batch" doc:"The name of the batch's step"`
	StepUUID   string          `json:"step_uuid"`
	Item       json.RawMessage `json:"item" doc:"As the handler named it"`
	Error      IsolatedError   `json:"error"`
	ReplayedAs *string         `json:"replayed_as" doc:"The latest task created to process it again"`
}

// IsolatedError is why an item was isolated.
type IsolatedError struct {
	Message   string `json:"message"`
	Type      string `json:"error_type"`
	Code      string `json:"error_code,omitempty"`
	Retryable bool   `json:"retryable"`
}

// IsolatedOptions select items; zero values select all.
type IsolatedOptions struct {
	Worker    string // the batch_worker step
	Batch     string // the name of a batch
	Retryable *bool
	Replayed  *bool
	After     string // Next of the previous page
	Limit     int    // 1 to 1000; 0 means 100
}

// IsolatedReplay is the body of POST /v1/tasks/{uuid}/batches/isolated/replay.
type IsolatedReplay struct {
	Reason    string `json:"reason" doc:"Not needed with dry_run" maxLength:"500"`
	Actor     string `json:"actor" maxLength:"255"`
	Worker    string `json:"worker_step,omitempty" maxLength:"128" doc:"Whose batches; needed where the task has those of several"`
	Batch     string `json:"batch,omitempty" maxLength:"255" doc:"The name of a batch; all when absent"`
	Retryable *bool  `json:"retryable,omitempty" doc:"Only those that the handler marked so"`
	Again     bool   `json:"again,omitempty" doc:"Those as well that a replay has had already"`
	// Limit is 1 to 10,000; 0 means that.
	Limit  int  `json:"limit,omitempty" doc:"How many items at most, 1 to 10000"`
	DryRun bool `json:"dry_run,omitempty" doc:"Only count the items and batches"`
}

// IsolatedReplayed is the result of a replay.
type IsolatedReplayed struct {
	TaskUUID *string `json:"task_uuid" doc:"The new task; null if none was created"`
	Items    int     `json:"items" doc:"Items of the new task, or of a dry run"`
	Batches  int     `json:"batches"`
	More     bool    `json:"more" doc:"More items than one replay takes"`
	DryRun   bool    `json:"dry_run"`
}

// IsolatedItems lists the items isolated by batches of a task, page by page.
func (c *Client) IsolatedItems(ctx context.Context, task string, o IsolatedOptions) (*IsolatedItems, error) {
	q := parameters{
		"worker_step": o.Worker, "batch": o.Batch, "retryable": o.Retryable, "replayed": o.Replayed,
		"after": o.After, "limit": o.Limit,
	}
	return get[IsolatedItems](ctx, c, q, "v1", "tasks", task, "batches", "isolated")
}

// ReplayIsolated creates a task that processes isolated items again, or counts them. Only
// a dry run is retried after it was sent.
func (c *Client) ReplayIsolated(ctx context.Context, task string, r IsolatedReplay) (*IsolatedReplayed, error) {
	return send[IsolatedReplayed](ctx, c, http.MethodPost, retryIf(r.DryRun), r, "v1", "tasks", task, "batches", "isolated", "replay")
}
