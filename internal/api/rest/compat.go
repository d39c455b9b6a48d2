package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/priorities"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/taskmaster"
)

// Compat switches on faces of other queues. Their tasks are tasks of task types.
type Compat struct {
	DistributedTaskQueue bool // POST /enqueue, GET /tasks/{id} and GET /healthz
	TaskQueueEngine      bool // POST /api/v1/jobs and GET /api/v1/jobs/{id}
}

// compatRoutes answer in the words of other queues.
type compatRoutes struct {
	*typeRoutes
	health *healthRoutes
}

const (
	compatEnqueuePath = "/enqueue"
	compatTasksPath   = "/tasks/{id}"
	compatHealthPath  = "/healthz"
	compatJobsPath    = "/api/v1/jobs"
)

func (r *compatRoutes) add(c Compat) {
	op := operation{tag: "other queues", failure: shapeProblem}
	if c.DistributedTaskQueue {
		enqueue := op.at(http.MethodPost, compatEnqueuePath, "compat-enqueue", "Create a task of a type, or find the one with the idempotency key")
		enqueue.status = http.StatusCreated
		addOwn[struct{}, compatTaskRequest, client.Enqueued](r.api, enqueue, r.counted(r.enqueue))
		add(r.api, op.at(http.MethodGet, compatTasksPath, "compat-get-task", "Show a task in the words of distributed-task-queue"), r.task)
		health := op.at(http.MethodGet, compatHealthPath, "compat-health", "Readiness, as /health/ready")
		health.unguarded = true
		add(r.api, health, r.health.ready)
	}
	if c.TaskQueueEngine {
		submit := op.at(http.MethodPost, compatJobsPath, "compat-submit-job", "Submit a job; a second one with its idempotency key is rejected")
		submit.status = http.StatusCreated
		addOwn[struct{}, compatJobRequest, compatJob](r.api, submit, r.counted(r.submit))
		add(r.api, op.at(http.MethodGet, compatJobsPath+"/{id}", "compat-get-job", "Show a job in the words of Distributed-Task-Queue-Engine"), r.job)
	}
}

// compatTaskRequest creates a task of distributed-task-queue.
type compatTaskRequest struct {
	Type           string          `json:"type" maxLength:"64"`
	Payload        json.RawMessage `json:"payload" doc:"A JSON object"`
	Queue          string          `json:"queue,omitempty" doc:"Namespace of the type; required if several have one of this name"`
	MaxAttempts    *int            `json:"max_attempts,omitempty" minimum:"1" maximum:"32767" doc:"The type's when absent"`
	IdempotencyKey string          `json:"idempotency_key,omitempty" maxLength:"255" doc:"Makes repeated requests one task"`
}

// enqueue answers 201 for a task that exists, too.
func (r *compatRoutes) enqueue(x *exchange, _ *struct{}) error {
	body, err := readBody[compatTaskRequest](x, "compat-enqueue")
	if err != nil {
		return err
	}
	b := &body.body
	answer, err := r.create(x, body.checked, &enqueueRequest{Type: b.Type, Payload: b.Payload, Queue: b.Queue,
		TaskRequest: client.TaskRequest{MaxAttempts: b.MaxAttempts, IdempotencyKey: b.IdempotencyKey}})
	if err != nil {
		return err
	}
	status := taskmaster.Pending
	if answer.Existing {
		task, err := through(x.request.Context(), r.guard, func(ctx context.Context) (*store.Task, error) { return r.store.Task(ctx, uuid.MustParse(answer.ID)) })
		if err != nil {
			return err
		}
		status = taskmaster.StatusOf(task)
	}
	return x.answerWith(http.StatusCreated, &client.Enqueued{ID: answer.ID, Status: queueWords[status], Queue: answer.Queue})
}

// create checks what both faces require and creates a task of a type.
func (r *compatRoutes) create(x *exchange, c checked, b *enqueueRequest) (*client.Enqueued, error) {
	if err := r.admitRequest(); err != nil {
		return nil, err
	}
	b.Type = c.filled("type", b.Type, orchestration.MaxNameLength)
	c.text("queue", b.Queue, orchestration.MaxNameLength)
	if absent(b.Payload) {
		c.add("payload must be a JSON object")
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	return through(x.request.Context(), r.guard, func(ctx context.Context) (*client.Enqueued, error) { return r.enqueued(ctx, x, b) })
}

// The states of a task in the words of the two queues.
var (
	queueWords  = map[taskmaster.Status]string{taskmaster.Pending: "ENQUEUED", taskmaster.Running: "RUNNING", taskmaster.Done: "SUCCEEDED", taskmaster.Dead: "FAILED"}
	engineWords = map[taskmaster.Status]string{taskmaster.Pending: "QUEUED", taskmaster.Running: "PROCESSING", taskmaster.Done: "COMPLETED", taskmaster.Dead: "DEAD"}
)

// compatTask is a task of distributed-task-queue.
type compatTask struct {
	ID          string          `json:"id" format:"uuid"`
	Type        string          `json:"type"`
	Queue       string          `json:"queue"`
	Status      string          `json:"status" enum:"ENQUEUED,RUNNING,SUCCEEDED,FAILED"`
	Attempts    int             `json:"attempts"`
	MaxAttempts int             `json:"max_attempts"`
	Payload     json.RawMessage `json:"payload"`
	Result      json.RawMessage `json:"result" doc:"null until the task has one"`
	LastError   json.RawMessage `json:"last_error,omitempty"`
	CreatedAt   client.Time     `json:"created_at"`
}

func (r *compatRoutes) task(ctx context.Context, in *queueTaskInput) (*compatTask, error) {
	task, err := r.single(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	t := enqueuedOf(ctx, task)
	return &compatTask{t.ID, t.Type, t.Queue, queueWords[taskmaster.StatusOf(task)], t.Attempts, t.MaxAttempts, t.Payload, rawOr(t.Result, "null"), t.Error, t.CreatedAt}, nil
}

// single reads a task of one step.
func (r *compatRoutes) single(ctx context.Context, id uuid.UUID) (*store.Task, error) {
	task, err := r.store.Task(ctx, id)
	if err == nil && len(task.Steps) != 1 {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, ofTask(id, err)
	}
	return task, nil
}

// compatJobRequest submits a job of Distributed-Task-Queue-Engine.
type compatJobRequest struct {
	Type           string          `json:"type" maxLength:"64" doc:"Name of the task type"`
	Payload        json.RawMessage `json:"payload" doc:"A JSON object, or its text"`
	Priority       string          `json:"priority,omitempty" enum:"HIGH,NORMAL,LOW" doc:"The lane; NORMAL when absent"`
	IdempotencyKey string          `json:"idempotencyKey,omitempty" maxLength:"255" doc:"A second job with it is rejected"`
}

// compatJob is a job of Distributed-Task-Queue-Engine.
type compatJob struct {
	JobID     string          `json:"jobId" format:"uuid"`
	Type      string          `json:"type"`
	Status    string          `json:"status" enum:"QUEUED,PROCESSING,COMPLETED,DEAD"`
	Priority  string          `json:"priority" enum:"HIGH,NORMAL,LOW"`
	Attempts  int             `json:"attempts"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     json.RawMessage `json:"error,omitempty" doc:"Of the last failure"`
	CreatedAt *client.Time    `json:"createdAt,omitempty"`
}

// lanes are the three priorities; each has as much room beside it as a task can have.
var lanes = map[string]int{"HIGH": priorities.Max / 2, "NORMAL": 0, "LOW": priorities.Min / 2}

// laneOf is the lane that a priority stands for.
func laneOf(priority int) string {
	switch {
	case priority > 0:
		return "HIGH"
	case priority < 0:
		return "LOW"
	}
	return "NORMAL"
}

func (r *compatRoutes) submit(x *exchange, _ *struct{}) error {
	body, err := readBody[compatJobRequest](x, "compat-submit-job")
	if err != nil {
		return err
	}
	b := &body.body
	lane := cmp.Or(strings.ToUpper(b.Priority), "NORMAL")
	priority, known := lanes[lane]
	if !known {
		body.add("priority must be HIGH, NORMAL or LOW")
	}
	var text string
	if json.Unmarshal(b.Payload, &text) == nil && json.Valid([]byte(text)) {
		b.Payload = json.RawMessage(text)
	}
	created, err := r.create(x, body.checked, &enqueueRequest{Type: b.Type, Payload: b.Payload,
		TaskRequest: client.TaskRequest{Priority: &priority, IdempotencyKey: b.IdempotencyKey, ConflictPolicy: client.ConflictFail}})
	if err != nil {
		return err
	}
	return x.answerWith(http.StatusCreated, &compatJob{JobID: created.ID, Type: b.Type, Status: engineWords[taskmaster.Pending], Priority: lane})
}

func (r *compatRoutes) job(ctx context.Context, in *queueTaskInput) (*compatJob, error) {
	task, err := r.single(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	t := enqueuedOf(ctx, task)
	return &compatJob{t.ID, t.Type, engineWords[taskmaster.StatusOf(task)], laneOf(task.Priority), t.Attempts, t.Result, t.Error, &t.CreatedAt}, nil
}
