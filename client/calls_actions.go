package client

import (
	"context"
	"net/http"
	"net/url"
)

func (w Why) query() url.Values {
	q := url.Values{}
	if w.Reason != "" {
		q.Set("reason", w.Reason)
	}
	if w.Actor != "" {
		q.Set("actor", w.Actor)
	}
	return q
}

// ActOnStep does something to a step by hand and returns the step after it. It
// is repeated only when nothing was sent: the first attempt may have done it.
func (c *Client) ActOnStep(ctx context.Context, task, step string, a StepAction) (*Step, error) {
	return send[Step](ctx, c, http.MethodPatch, retryUnsent, a, "v1", "tasks", task, "workflow_steps", step)
}

// ActOnTask does something to a task by hand and returns the task after it; of
// a replay, the new task. It is repeated only when nothing was sent.
func (c *Client) ActOnTask(ctx context.Context, task string, a TaskAction) (*Task, error) {
	return send[Task](ctx, c, http.MethodPost, retryUnsent, a, "v1", "tasks", task, "actions")
}

// PreviewAction says what an action on a task would do, and changes nothing.
func (c *Client) PreviewAction(ctx context.Context, task string, a TaskAction) (*ActionPreview, error) {
	return send[ActionPreview](ctx, c, http.MethodPost, retryAlways, a, "v1", "tasks", task, "actions", "preview")
}

// ActOnTasks does the same to many tasks, or says what it would do. Only a dry
// run is repeated when something was sent.
func (c *Client) ActOnTasks(ctx context.Context, a BulkAction) (*BulkResult, error) {
	return send[BulkResult](ctx, c, http.MethodPost, unlessDry(a.DryRun, true), a, "v1", "tasks", "actions")
}

// unlessDry says that what changes something must not be done twice; fallback
// is what a missing value means.
func unlessDry(dry *bool, fallback bool) retryRule {
	if dry != nil {
		fallback = *dry
	}
	if fallback {
		return retryAlways
	}
	return retryUnsent
}

// send makes a call with a body.
func send[T any](ctx context.Context, c *Client, method string, retry retryRule, body any, path ...string) (*T, error) {
	var v T
	return result(&v, c.do(ctx, call{method: method, path: path, body: body, retry: retry}, &v))
}
