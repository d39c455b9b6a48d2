package client

import (
	"context"
	"net/http"
)

func (w Why) query() parameters { return parameters{"reason": w.Reason, "actor": w.Actor} }

// ActOnStep acts on a step by hand and returns the changed step. It is retried only if
// nothing was sent: the first attempt may have succeeded.
func (c *Client) ActOnStep(ctx context.Context, task, step string, a StepAction) (*Step, error) {
	return send[Step](ctx, c, http.MethodPatch, retryUnsent, a, "v1", "tasks", task, "workflow_steps", step)
}

// ActOnTask acts on a task by hand and returns the changed task; for a replay, the new
// task. It is retried only if nothing was sent.
func (c *Client) ActOnTask(ctx context.Context, task string, a TaskAction) (*Task, error) {
	return send[Task](ctx, c, http.MethodPost, retryUnsent, a, "v1", "tasks", task, "actions")
}

// PreviewAction previews an action on a task.
func (c *Client) PreviewAction(ctx context.Context, task string, a TaskAction) (*ActionPreview, error) {
	return send[ActionPreview](ctx, c, http.MethodPost, retryAlways, a, "v1", "tasks", task, "actions", "preview")
}

// ActOnTasks acts on many tasks, or previews that. Only a dry run is retried after it was
// sent.
func (c *Client) ActOnTasks(ctx context.Context, a BulkAction) (*BulkResult, error) {
	return send[BulkResult](ctx, c, http.MethodPost, retryIf(isDry(a.DryRun, true)), a, "v1", "tasks", "actions")
}

// retryIf allows retries of a call that does no harm when it is repeated.
func retryIf(harmless bool) retryRule {
	if harmless {
		return retryAlways
	}
	return retryUnsent
}

// isDry is what dry says, or its default.
func isDry(dry *bool, fallback bool) bool {
	if dry != nil {
		return *dry
	}
	return fallback
}

// send makes a call with a body.
func send[T any](ctx context.Context, c *Client, method string, retry retryRule, body any, path ...string) (*T, error) {
	return answer[T](ctx, c, call{method: method, path: path, body: body, retry: retry})
}

// remove makes a DELETE call.
func remove[T any](ctx context.Context, c *Client, retry retryRule, query parameters, path ...string) (*T, error) {
	return answer[T](ctx, c, call{method: http.MethodDelete, path: path, query: query, retry: retry})
}
