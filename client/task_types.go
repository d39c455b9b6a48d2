package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// TaskTypeRequest is the body of PUT /v1/task-types/{name}: the content of a template of
// one step.
type TaskTypeRequest struct {
	Namespace     string          `json:"namespace,omitempty" maxLength:"49" doc:"The queue of its tasks; default when absent"`
	Version       string          `json:"version,omitempty" maxLength:"16" doc:"1.0.0 when absent. The latest registered one is enqueued"`
	Description   string          `json:"description,omitempty"`
	Handler       string          `json:"handler,omitempty" maxLength:"500" doc:"Name of the handler; the type's when absent"`
	PayloadSchema json.RawMessage `json:"payload_schema,omitempty" doc:"JSON Schema of the payload"`
	Priority      *int            `json:"priority,omitempty" doc:"-100 to 100, the highest first"`
	PriorityLevel *int            `json:"priority_level,omitempty" doc:"Instead of priority: 1, the first, to 10"`
	Retry         *TypeRetry      `json:"retry,omitempty"`
	// MaxAttempts is a shortcut for Retry.MaxAttempts.
	MaxAttempts    *int          `json:"max_attempts,omitempty" doc:"Executions of a task, the first included; 3 when absent"`
	TimeoutSeconds int           `json:"timeout_seconds,omitempty" doc:"Limit of one execution"`
	Tags           []string      `json:"tags,omitempty" doc:"A worker must carry all of them"`
	Identity       *TypeIdentity `json:"identity,omitempty"`
	// Limit bounds what runs of the handler, as in PUT /v1/namespaces/{namespace}/limits/{callable}.
	Limit  json.RawMessage `json:"limit,omitempty" doc:"What bounds the handler, as in the body of a limit: key_path, key_tag, max_running, per_second, burst, ordered, overtake, weights, beyond"`
	Actor  string          `json:"actor,omitempty" maxLength:"255" doc:"Who registers it"`
	Reason string          `json:"reason,omitempty" maxLength:"500" doc:"Kept in the history"`
}

// TypeRetry is how the tasks of a type are tried again, as in a template.
type TypeRetry struct {
	Retryable       *bool   `json:"retryable,omitempty"`
	MaxAttempts     *int    `json:"max_attempts,omitempty"`
	Backoff         string  `json:"backoff,omitempty" doc:"exponential, linear, fixed, fibonacci, list or none"`
	BackoffBaseMS   *int64  `json:"backoff_base_ms,omitempty"`
	MaxBackoffMS    *int64  `json:"max_backoff_ms,omitempty"`
	BackoffDelaysMS []int64 `json:"backoff_delays_ms,omitempty"`
}

// TypeIdentity is what makes two requests the same task, as in a template. The default of
// a type is always_unique.
type TypeIdentity struct {
	Strategy    string `json:"strategy,omitempty" doc:"strict, caller_provided or always_unique (the default of a type)"`
	Window      string `json:"window,omitempty"`
	Calendar    string `json:"calendar,omitempty"`
	TimeZone    string `json:"time_zone,omitempty"`
	Until       string `json:"until,omitempty" doc:"Duplicates are refused until the task has ended, has succeeded or was claimed" enum:"ended,succeeded,claimed"`
	KeyLifetime string `json:"key_lifetime,omitempty" doc:"Lifetime of idempotency keys, such as 7d; unbounded when absent"`
}

// TaskType is a task type of the API.
type TaskType struct {
	Name           string          `json:"name"`
	Namespace      string          `json:"namespace"`
	Version        string          `json:"version"`
	Description    string          `json:"description,omitempty"`
	Handler        string          `json:"handler"`
	PayloadSchema  json.RawMessage `json:"payload_schema,omitempty"`
	Priority       int             `json:"priority"`
	PriorityLevel  int             `json:"priority_level"`
	Retry          TypeRetry       `json:"retry"`
	TimeoutSeconds int             `json:"timeout_seconds,omitempty"`
	Tags           []string        `json:"tags,omitempty"`
	Identity       TypeIdentity    `json:"identity"`
	Limit          json.RawMessage `json:"limit,omitempty" doc:"As declared; GET /v1/limits says which one is in force"`
	CreatedAt      Time            `json:"created_at" format:"date-time"`
	CreatedBy      string          `json:"created_by"`
	UpdatedAt      Time            `json:"updated_at" format:"date-time"`
	UpdatedBy      string          `json:"updated_by"`
}

// TaskTypeListOptions select task types; zero values select the first 1,000.
type TaskTypeListOptions struct {
	Namespace string
	Limit     int // 1 to 1,000
	Offset    int
}

// EnqueueRequest is the body of POST /v1/enqueue.
type EnqueueRequest struct {
	Type           string          `json:"type" maxLength:"64" doc:"Name of the task type"`
	Payload        json.RawMessage `json:"payload" doc:"Input of the task; a JSON object"`
	Queue          string          `json:"queue,omitempty" doc:"Namespace of the type; required if several have one of this name"`
	IdempotencyKey string          `json:"idempotency_key,omitempty" maxLength:"255" doc:"Makes repeated requests one task"`
	ConflictPolicy string          `json:"conflict_policy,omitempty" enum:"fail,use_existing" doc:"use_existing when absent"`
	MaxAttempts    *int            `json:"max_attempts,omitempty" minimum:"1" maximum:"32767" doc:"The type's when absent"`
	RetryDelays    []string        `json:"retry_delays,omitempty" maxItems:"32" doc:"Exact delays before each execution after the first, such as 10s or 5m"`
	Priority       *int            `json:"priority,omitempty"`
	PriorityLevel  *int            `json:"priority_level,omitempty" minimum:"1" maximum:"10"`
	StartAt        *Time           `json:"start_at,omitempty" format:"date-time"`
	DelaySeconds   *float64        `json:"delay_seconds,omitempty"`
	Deadline       *Time           `json:"deadline,omitempty" format:"date-time"`
	Tags           []string        `json:"tags,omitempty" maxItems:"64"`
	Initiator      string          `json:"initiator,omitempty" maxLength:"255"`
	SourceSystem   string          `json:"source_system,omitempty" maxLength:"255"`
	Reason         string          `json:"reason,omitempty" maxLength:"500"`
	CorrelationID  *string         `json:"correlation_id,omitempty" doc:"UUID"`

	ParentCorrelationID *string  `json:"parent_correlation_id,omitempty" doc:"UUID"`
	DependsOn           []string `json:"depends_on,omitempty" maxItems:"100" doc:"UUIDs of tasks that must end before this one begins"`
	OnDependencyFailure string   `json:"on_dependency_failure,omitempty" enum:"fail,continue" doc:"What to do when one of them fails: cancel the task (fail, the default), or continue"`
}

// Enqueued is the task that was enqueued, or that existed for its key.
type Enqueued struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Queue  string `json:"queue"`
	// Existing says that it existed already.
	Existing bool `json:"existing,omitempty"`
}

// EnqueuedTask is the state of a task of one step.
type EnqueuedTask struct {
	ID          string          `json:"id"`
	Type        string          `json:"type"`
	Queue       string          `json:"queue"`
	Status      string          `json:"status"`
	Attempts    int             `json:"attempts"`
	MaxAttempts int             `json:"max_attempts"`
	Payload     json.RawMessage `json:"payload"`
	Result      json.RawMessage `json:"result,omitempty" doc:"Of the last execution, where it succeeded"`
	Error       json.RawMessage `json:"error,omitempty" doc:"Of the last execution, where it failed"`
	CreatedAt   Time            `json:"created_at" format:"date-time"`
	NextRetryAt *Time           `json:"next_retry_at,omitempty" format:"date-time"`
	CompletedAt *Time           `json:"completed_at,omitempty" format:"date-time"`
}

// PutTaskType registers or changes a task type. Existing tasks keep their plan.
func (c *Client) PutTaskType(ctx context.Context, name string, r TaskTypeRequest) (*TaskType, error) {
	return send[TaskType](ctx, c, http.MethodPut, retryAlways, r, "v1", "task-types", name)
}

// TaskTypes lists task types by namespace and name.
func (c *Client) TaskTypes(ctx context.Context, o TaskTypeListOptions) ([]TaskType, error) {
	q := parameters{"namespace": o.Namespace, "limit": o.Limit, "offset": o.Offset}
	return listed[TaskType](ctx, c, q, "task_types", "v1", "task-types")
}

// TaskType returns one task type; an empty namespace is "default".
func (c *Client) TaskType(ctx context.Context, namespace, name string) (*TaskType, error) {
	return get[TaskType](ctx, c, parameters{"namespace": namespace}, "v1", "task-types", name)
}

// DeleteTaskType deletes a task type and returns it. Existing tasks continue.
func (c *Client) DeleteTaskType(ctx context.Context, namespace, name string, why Why) (*TaskType, error) {
	q := why.query()
	q["namespace"] = namespace
	return remove[TaskType](ctx, c, retryUnsent, q, "v1", "task-types", name)
}

// Enqueue creates a task of a type. With an idempotency key the call is retried like any
// other, and a retry that is refused because the task was created returns it; without one
// it is retried only if nothing was sent.
func (c *Client) Enqueue(ctx context.Context, r EnqueueRequest) (*Enqueued, error) {
	var earlier arrival
	enqueued, err := answer[Enqueued](ctx, c, call{
		method: http.MethodPost, path: []string{"v1", "enqueue"}, body: r,
		retry: retryIf(r.IdempotencyKey != ""), repeated: earlier.note,
	})
	if id := earlier.created(err); id != "" {
		task, err := c.EnqueuedTask(ctx, id, 0)
		if err != nil {
			return nil, err
		}
		return &Enqueued{ID: task.ID, Status: task.Status, Queue: task.Queue}, nil
	}
	return enqueued, err
}

// EnqueuedTask returns the state of a task of one step. wait is as for [Client.Task].
func (c *Client) EnqueuedTask(ctx context.Context, id string, wait time.Duration) (*EnqueuedTask, error) {
	q := showQuery(wait, nil)
	return answer[EnqueuedTask](ctx, c, call{method: http.MethodGet, path: []string{"v1", "enqueue", id}, query: q, extra: max(wait, 0)})
}
