package client

import (
	"context"
	"net/http"
)

// Namespaces lists the namespaces and which are paused.
func (c *Client) Namespaces(ctx context.Context) ([]Namespace, error) {
	return listed[Namespace](ctx, c, nil, "namespaces", "v1", "namespaces")
}

// PauseNamespace stops claims of a namespace. Pausing again changes actor and reason.
func (c *Client) PauseNamespace(ctx context.Context, name string, why Why) (*Namespace, error) {
	return c.PauseCallable(ctx, name, "", why)
}

// ResumeNamespace resumes claims, except of callables paused separately.
func (c *Client) ResumeNamespace(ctx context.Context, name string, why Why) (*Namespace, error) {
	return c.ResumeCallable(ctx, name, "", why)
}

// PauseCallable is PauseNamespace for the steps of a namespace with a callable; an empty
// callable means the whole namespace.
func (c *Client) PauseCallable(ctx context.Context, namespace, callable string, why Why) (*Namespace, error) {
	return answer[Namespace](ctx, c, call{
		method: http.MethodPut, path: []string{"v1", "namespaces", namespace, "pause"},
		query: parameters{"callable": callable}, body: why,
	})
}

// ResumeCallable resumes claims of such steps.
func (c *Client) ResumeCallable(ctx context.Context, namespace, callable string, why Why) (*Namespace, error) {
	q := why.query()
	q["callable"] = callable
	return remove[Namespace](ctx, c, retryAlways, q, "v1", "namespaces", namespace, "pause")
}

// Workers lists the registered workers.
func (c *Client) Workers(ctx context.Context, o WorkerListOptions) ([]WorkerState, error) {
	q := parameters{"status": o.Status, "namespace": o.Namespace, "limit": o.Limit}
	return listed[WorkerState](ctx, c, q, "workers", "v1", "workers")
}

// Sweeps lists the sweeps and their last runs.
func (c *Client) Sweeps(ctx context.Context) ([]Sweep, error) {
	return listed[Sweep](ctx, c, nil, "sweeps", "v1", "sweeps")
}

// RunSweep runs a sweep now. It is a conflict (see [IsConflict]) if the sweep is running.
func (c *Client) RunSweep(ctx context.Context, name string, r SweepRequest) (*SweepRun, error) {
	return send[SweepRun](ctx, c, http.MethodPost, retryIf(r.DryRun), r, "v1", "sweeps", name, "run")
}

// Breakers lists the circuit breakers of the daemon.
func (c *Client) Breakers(ctx context.Context) ([]Breaker, error) {
	return listed[Breaker](ctx, c, nil, "breakers", "v1", "admin", "breakers")
}

// ForceBreaker holds a circuit breaker of the daemon open or closed, or makes it
// automatic, and returns its new state. It lasts until the daemon restarts.
func (c *Client) ForceBreaker(ctx context.Context, name, state string) (*Breaker, error) {
	return send[Breaker](ctx, c, http.MethodPut, retryAlways, map[string]string{"state": state}, "v1", "admin", "breakers", name)
}
