package client

import "context"

// TaskGraph is a task in one answer: its steps, what they depend on, what they have done, and the tasks
// that they are; without contexts and results.
type TaskGraph struct {
	TaskUUID    string       `json:"task_uuid"`
	Namespace   string       `json:"namespace"`
	Name        string       `json:"name"`
	Version     string       `json:"version"`
	Status      string       `json:"status"`
	Reason      string       `json:"reason,omitempty" doc:"Why it has ended so"`
	RequestedAt Time         `json:"requested_at" format:"date-time"`
	CompletedAt *Time        `json:"completed_at,omitempty" format:"date-time"`
	At          Time         `json:"at" format:"date-time" doc:"When this was read, by the clock of the database"`
	Parent      *GraphParent `json:"parent,omitempty" doc:"The step that the task is"`
	Steps       []GraphStep  `json:"steps" doc:"In the order of their numbers"`
	Children    []GraphChild `json:"children" doc:"Tasks that steps are, the oldest first; at most 1000"`
	More        bool         `json:"more_children,omitempty"`
}

// GraphParent is the step that a task is.
type GraphParent struct {
	TaskUUID string `json:"task_uuid"`
	StepNo   int    `json:"step_no"`
}

// GraphStep is a step of a TaskGraph. Steps that a decision, a batch or a convergence has not created
// have the state not_created.
type GraphStep struct {
	No        int    `json:"no"`
	StepUUID  string `json:"step_uuid"`
	Name      string `json:"name"`
	Type      string `json:"type"`
	Callable  string `json:"callable,omitempty"`
	State     string `json:"state" doc:"One of the ten step states, or not_created"`
	DependsOn []int  `json:"depends_on" doc:"Numbers of steps of the template; of a batch those of its worker step"`
	// BatchOf is the number of the worker step that a batch is an instance of. What depends on the worker
	// step depends on its batches.
	BatchOf     *int          `json:"batch_of,omitempty"`
	Attempts    int           `json:"attempts"`
	MaxAttempts int           `json:"max_attempts"`
	CreatedAt   *Time         `json:"created_at,omitempty" format:"date-time" doc:"When it was first put in line"`
	StartedAt   *Time         `json:"started_at,omitempty" format:"date-time" doc:"When its latest attempt was claimed"`
	EndedAt     *Time         `json:"ended_at,omitempty" format:"date-time" doc:"When its latest attempt that has ended was reported, or the step completed"`
	NextRetryAt *Time         `json:"next_retry_at,omitempty" format:"date-time"`
	WorkerUUID  string        `json:"worker_uuid,omitempty"`
	ErrorType   string        `json:"error_type,omitempty" doc:"Of the latest failure"`
	Error       string        `json:"error,omitempty" doc:"At most 500 characters of its message"`
	Waiting     *Waiting      `json:"waiting,omitempty"`
	Progress    *StepProgress `json:"progress,omitempty"`
}

// GraphChild is the task that a step is.
type GraphChild struct {
	TaskUUID    string `json:"task_uuid"`
	StepNo      int    `json:"step_no"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	Status      string `json:"status"`
	CompletedAt *Time  `json:"completed_at,omitempty" format:"date-time"`
}

// TaskGraph returns a task with its steps, their dependencies and its children.
func (c *Client) TaskGraph(ctx context.Context, task string) (*TaskGraph, error) {
	return get[TaskGraph](ctx, c, nil, "v1", "tasks", task, "graph")
}
