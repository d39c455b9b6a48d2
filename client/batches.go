package client

import (
	"context"
	"encoding/json"
)

// Batches shows how far the batches of a task are. Times are the database's.
type Batches struct {
	TaskUUID string       `json:"task_uuid"`
	Groups   []BatchGroup `json:"groups"`
}

// BatchGroup are the batches created by one batchable step.
type BatchGroup struct {
	Batchable string `json:"batchable_step" doc:"The step that created them"`
	Worker    string `json:"worker_step" doc:"The step of the template that they are instances of"`
	Strategy  string `json:"failure_strategy"`
	NoOp      bool   `json:"no_op" doc:"A placeholder without work"`
	Settled   bool   `json:"settled" doc:"All have ended, and the following steps may continue"`

	Total           int `json:"total"`
	Pending         int `json:"pending" doc:"Not begun; those in line included"`
	InProgress      int `json:"in_progress"`
	WaitingForRetry int `json:"waiting_for_retry"`
	Complete        int `json:"complete"`
	Failed          int `json:"failed"`
	Cancelled       int `json:"cancelled"`

	TotalItems     int64    `json:"total_items" doc:"As the batchable step counted them"`
	CompletedItems int64    `json:"completed_items" doc:"Of complete batches"`
	StartedAt      *Time    `json:"started_at" format:"date-time" doc:"When the first batch was claimed"`
	LastEndedAt    *Time    `json:"last_ended_at" format:"date-time" doc:"When the latest of the complete batches was"`
	PerSecond      *float64 `json:"items_per_second" doc:"From the first claim to the latest complete batch; null before one is"`
	IsolatedItems  int      `json:"isolated_items" doc:"Items that batches could not process, and were complete without"`
	SecondsLeft    *float64 `json:"seconds_left" doc:"From the latest complete batch on, at that speed; null if unknown"`

	Batches []Batch `json:"batches"`
}

// Batch is one of them.
type Batch struct {
	StepUUID string          `json:"step_uuid"`
	Name     string          `json:"name"`
	BatchID  string          `json:"batch_id"`
	Start    json.RawMessage `json:"start_cursor"`
	End      json.RawMessage `json:"end_cursor" doc:"Not included"`
	Items    int64           `json:"batch_size"`
	State    string          `json:"current_state"`
	Attempts int             `json:"attempts"`
	Isolated int             `json:"isolated_items" doc:"Items that it could not process"`
}

// Batches returns how far the batches of a task are.
func (c *Client) Batches(ctx context.Context, task string) (*Batches, error) {
	return get[Batches](ctx, c, nil, "v1", "tasks", task, "batches")
}
