package client

import "context"

// Chain is a task with its predecessors and successors. The tasks have no steps;
// ContinuedBy has only links within the chain.
type Chain struct {
	TaskUUID string `json:"task_uuid" doc:"The requested task"`
	Tasks    []Task `json:"tasks" doc:"The oldest first; tasks that retention has deleted are missing"`
	// MoreBefore and MoreAfter say that the limit has cut the chain.
	MoreBefore bool `json:"more_before"`
	MoreAfter  bool `json:"more_after"`
}

// Chain returns the chain of a task, up to limit links in each direction:
// 1 to 500; 0 means 50.
func (c *Client) Chain(ctx context.Context, task string, limit int) (*Chain, error) {
	return get[Chain](ctx, c, parameters{"limit": limit}, "v1", "tasks", task, "chain")
}
