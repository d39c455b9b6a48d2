package client

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
)

// TaskListOptions select tasks; zero values select everything.
type TaskListOptions struct {
	Page    int // from 1
	PerPage int // 1 to 100; default 25
	// Cursor goes on after an answer, instead of Page: NewestTasks, or its NextCursor. Tasks
	// are not counted then, and pages may be short, or empty, though more follow.
	Cursor        string
	Namespace     string
	Name          string // of the template
	NameContains  string // a part of it, regardless of case
	Version       string
	Status        string   // of the twelve task states, also several with commas
	Tags          []string // all of them
	CorrelationID string
	CreatedAfter  *Time // or at
	CreatedBefore *Time
	Initiator     string
	SourceSystem  string
	// Context includes the contexts of the tasks, which may be long.
	Context bool
}

// NewestTasks is the cursor of the newest tasks.
const NewestTasks = "newest"

func (o TaskListOptions) query() parameters {
	q := parameters{
		"page": o.Page, "per_page": o.PerPage, "cursor": o.Cursor,
		"namespace": o.Namespace, "name": o.Name, "name_contains": o.NameContains, "version": o.Version,
		"status": o.Status, "tag": o.Tags, "correlation_id": o.CorrelationID,
		"created_after": o.CreatedAfter, "created_before": o.CreatedBefore,
		"initiator": o.Initiator, "source_system": o.SourceSystem,
	}
	if o.Context {
		q["include"] = IncludeContext
	}
	return q
}

// CreateTask creates a task. With an idempotency key the call is retried like any other,
// and a retry that finds the task created returns it; without one it is retried only if
// nothing was sent.
func (c *Client) CreateTask(ctx context.Context, r TaskRequest) (*Task, error) {
	var earlier arrival
	task, err := answer[Task](ctx, c, call{
		method: http.MethodPost, path: []string{"v1", "tasks"}, body: r,
		retry: retryIf(r.IdempotencyKey != ""), repeated: earlier.note,
	})
	if id := earlier.created(err); id != "" {
		return c.Task(ctx, id, 0)
	}
	return task, err
}

// CreateTasks creates up to MaxBatchTasks tasks, each separately: an error means that
// none was created or that it is not known which; the answer has the errors of single
// tasks. If every task has an idempotency key the call is retried like any other, and
// tasks that a retry finds created count as created; otherwise it is retried only if
// nothing was sent.
func (c *Client) CreateTasks(ctx context.Context, tasks []TaskRequest) (*TaskBatch, error) {
	unkeyed := slices.ContainsFunc(tasks, func(r TaskRequest) bool { return r.IdempotencyKey == "" })
	return createTasks(ctx, c, tasks, retryIf(!unkeyed), new(arrival))
}

// createTasks sends a batch of tasks, or of their JSON. earlier notes its attempts.
func createTasks[T any](ctx context.Context, c *Client, tasks []T, rule retryRule, earlier *arrival) (*TaskBatch, error) {
	call := call{method: http.MethodPost, path: []string{"v1", "tasks", "batch"}, body: map[string][]T{"tasks": tasks}}
	call.retry, call.repeated = rule, earlier.note
	batch, err := answer[TaskBatch](ctx, c, call)
	if err == nil && bool(*earlier) && rule != retryUnsent {
		batch.takeExisting()
	}
	return batch, err
}

// takeExisting counts tasks that exist already as created.
func (b *TaskBatch) takeExisting() {
	for i := range b.Results {
		r := &b.Results[i]
		if r.Error != nil && r.Error.Code == codeConflict && r.Error.TaskUUID != "" {
			r.TaskUUID, r.Error = r.Error.TaskUUID, nil
			b.Created++
			b.Failed--
		}
	}
}

// Task returns a task with its steps. With wait > 0 the server answers when the task has
// ended, or with its state after that time (the server may cap it). include adds parts:
// IncludeResults or IncludeAllResults.
func (c *Client) Task(ctx context.Context, id string, wait time.Duration, include ...string) (*Task, error) {
	q := showQuery(wait, include)
	return answer[Task](ctx, c, call{method: http.MethodGet, path: []string{"v1", "tasks", id}, query: q, extra: max(wait, 0)})
}

// showQuery encodes how to show a task.
func showQuery(wait time.Duration, include []string) parameters {
	return parameters{"wait": max(wait, 0), "include": strings.Join(include, ",")}
}

// TaskByKey returns the task of a template, in any version, with an idempotency key,
// while the key counts. wait and include are as for [Client.Task].
func (c *Client) TaskByKey(ctx context.Context, namespace, name, idempotencyKey string, wait time.Duration, include ...string) (*Task, error) {
	q := showQuery(wait, include)
	q["namespace"], q["name"], q["idempotency_key"] = &namespace, &name, &idempotencyKey // sent though empty
	return answer[Task](ctx, c, call{method: http.MethodGet, path: []string{"v1", "tasks", "by-key"}, query: q, extra: max(wait, 0)})
}

// Tasks lists tasks, newest first.
func (c *Client) Tasks(ctx context.Context, o TaskListOptions) (*TaskList, error) {
	return get[TaskList](ctx, c, o.query(), "v1", "tasks")
}

// CancelTask ends a task that has not ended. why may be empty.
func (c *Client) CancelTask(ctx context.Context, id string, why Why) (*Task, error) {
	repeated := false
	task, err := answer[Task](ctx, c, call{
		method: http.MethodDelete, path: []string{"v1", "tasks", id}, query: why.query(),
		repeated: func(error) { repeated = true },
	})
	if repeated && hasStatus(err, http.StatusBadRequest) {
		// An earlier attempt may have cancelled it and its answer was lost.
		if now, readErr := c.Task(ctx, id, 0); readErr == nil && now.Status == "cancelled" {
			return now, nil
		}
	}
	return task, err
}

// Steps lists the steps of a task in the order of its plan.
func (c *Client) Steps(ctx context.Context, task string) ([]Step, error) {
	return list[Step](ctx, c, nil, "v1", "tasks", task, "workflow_steps")
}

// Step returns one step of a task.
func (c *Client) Step(ctx context.Context, task, step string) (*Step, error) {
	return get[Step](ctx, c, nil, "v1", "tasks", task, "workflow_steps", step)
}

// StepAudit lists the reported executions of a step, newest first.
func (c *Client) StepAudit(ctx context.Context, task, step string) ([]StepAudit, error) {
	return list[StepAudit](ctx, c, nil, "v1", "tasks", task, "workflow_steps", step, "audit")
}

// Timeline returns the history of a task.
func (c *Client) Timeline(ctx context.Context, task string) (*Timeline, error) {
	return get[Timeline](ctx, c, nil, "v1", "tasks", task, "timeline")
}

// VerifyTask checks the records of a task for contradictions.
func (c *Client) VerifyTask(ctx context.Context, task string) (*Verification, error) {
	return get[Verification](ctx, c, nil, "v1", "tasks", task, "verify")
}

// Templates lists the current templates; an empty namespace means all.
func (c *Client) Templates(ctx context.Context, namespace string) (*TemplateList, error) {
	return get[TemplateList](ctx, c, parameters{"namespace": namespace}, "v1", "templates")
}

// Template returns one template version.
func (c *Client) Template(ctx context.Context, namespace, name, version string) (*TemplateDetail, error) {
	return get[TemplateDetail](ctx, c, nil, "v1", "templates", namespace, name, version)
}

// RegisterTemplate makes the text of a template file the current content of its version. It
// is repeated safely; a version that tasks have used with other content is a conflict.
func (c *Client) RegisterTemplate(ctx context.Context, source TemplateSource) (*TemplateDetail, error) {
	return send[TemplateDetail](ctx, c, http.MethodPost, retryAlways, source, "v1", "templates")
}

// DeprecateTemplate excludes a template version from the choice for requests without a
// version.
func (c *Client) DeprecateTemplate(ctx context.Context, namespace, name, version string, why Why) (*TemplateDetail, error) {
	return send[TemplateDetail](ctx, c, http.MethodPut, retryAlways, why, "v1", "templates", namespace, name, version, "deprecation")
}

// UndeprecateTemplate includes a template version again.
func (c *Client) UndeprecateTemplate(ctx context.Context, namespace, name, version string, why Why) (*TemplateDetail, error) {
	return remove[TemplateDetail](ctx, c, retryAlways, why.query(), "v1", "templates", namespace, name, version, "deprecation")
}

// Fleet lists the daemons that gave a sign of life recently.
func (c *Client) Fleet(ctx context.Context) (*Fleet, error) {
	return get[Fleet](ctx, c, nil, "v1", "admin", "fleet")
}

// modeBody is the body of /v1/admin/deployment-mode.
type modeBody struct {
	Mode string `json:"mode"`
}

// Mode returns the deployment mode of the daemon.
func (c *Client) Mode(ctx context.Context) (string, error) {
	m, err := get[modeBody](ctx, c, nil, "v1", "admin", "deployment-mode")
	if err != nil {
		return "", err
	}
	return m.Mode, nil
}

// SetMode changes the deployment mode of the daemon and returns the one now
// in force.
func (c *Client) SetMode(ctx context.Context, mode string) (string, error) {
	var m modeBody
	err := c.do(ctx, call{
		method: http.MethodPut, path: []string{"v1", "admin", "deployment-mode"}, body: modeBody{Mode: mode},
	}, &m)
	return m.Mode, err
}

// levelsBody is the body of /v1/log-levels.
type levelsBody struct {
	Levels map[string]string `json:"levels"`
}

// LogLevels returns the levels of logging of the daemon, after changing those in change (nil:
// none): debug, info, warn or error by room, and that of the other rooms as "all". An empty
// level returns a room to that of all.
func (c *Client) LogLevels(ctx context.Context, change map[string]string) (map[string]string, error) {
	how := call{method: http.MethodGet, path: []string{"v1", "log-levels"}}
	if change != nil {
		how.method, how.body = http.MethodPut, levelsBody{change}
	}
	var now levelsBody
	err := c.do(ctx, how, &now)
	return now.Levels, err
}

// Health checks whether the daemon answers. Like the other health calls it is not
// retried.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	return health[Health](ctx, c, "health")
}

// Live checks whether the process and its loops run.
func (c *Client) Live(ctx context.Context) (*Health, error) {
	return health[Health](ctx, c, "health", "live")
}

// Ready checks whether the daemon can serve; otherwise an *Error with status 503 has the
// reason.
func (c *Client) Ready(ctx context.Context) (*DetailedHealth, error) {
	return health[DetailedHealth](ctx, c, "health", "ready")
}

// DetailedHealth returns all checks of the daemon.
func (c *Client) DetailedHealth(ctx context.Context) (*DetailedHealth, error) {
	return health[DetailedHealth](ctx, c, "health", "detailed")
}

// Metrics returns the metrics in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	return c.raw(ctx, call{method: http.MethodGet, path: []string{"metrics"}})
}

func get[T any](ctx context.Context, c *Client, query parameters, path ...string) (*T, error) {
	return answer[T](ctx, c, call{method: http.MethodGet, path: path, query: query})
}

func health[T any](ctx context.Context, c *Client, path ...string) (*T, error) {
	return answer[T](ctx, c, call{method: http.MethodGet, path: path, retry: retryNever})
}

// answer makes a call; a half-read answer is dropped.
func answer[T any](ctx context.Context, c *Client, r call) (*T, error) {
	var v T
	if err := c.do(ctx, r, &v); err != nil {
		return nil, err
	}
	return &v, nil
}
