package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/plainqueue"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/taskmaster"
	"github.com/tasker-go/tasker/workflow"
)

// Queues are the plain task queues; *taskmaster.Service is one.
type Queues interface {
	Submit(ctx context.Context, list []taskmaster.Submission) ([]orchestration.CreateResult, error)
	Claim(ctx context.Context, r taskmaster.ClaimRequest) ([]taskmaster.Claimed, error)
	Finish(ctx context.Context, list []taskmaster.Finish, permitted func(queue string) error) ([]taskmaster.Finished, error)
	Register(ctx context.Context, r store.QueueRegistration) (store.QueueWorker, error)
	Heartbeat(ctx context.Context, id string, held []store.HeldClaim) (store.QueueWorker, []store.HeldClaim, error)
	Worker(ctx context.Context, id string) (store.QueueWorker, error)
	Workers(ctx context.Context, queue string, limit int) ([]store.QueueWorker, error)
	Queues(ctx context.Context, queue string) ([]store.QueueCounts, error)
}

// queueRoutes are the API of plain task queues. Its fields are camelCase.
type queueRoutes struct {
	*taskRoutes
	queues Queues
	counts *answerCache[string, []store.QueueCounts]
}

func newQueueRoutes(tasks *taskRoutes, queues Queues, age time.Duration) *queueRoutes {
	return &queueRoutes{tasks, queues, newAnswerCache[string, []store.QueueCounts]("queues", min(age, time.Second), make(chan struct{}, 1), tasks.cfg.Telemetry)}
}

const (
	queueTasksPath   = "/tasks/v1"
	queueWorkersPath = "/workers/v1"
	queuesPath       = "/queues/v1"

	defaultQueue       = "default"
	maxQueueClaim      = 100
	maxQueueBulk       = 1000
	maxQueueWorkerName = 128
	maxFailureText     = 16 << 10
)

// isQueue reports whether a request belongs to the plain task queues, ours and those of others.
func isQueue(r *http.Request) bool {
	return slices.ContainsFunc([]string{queueTasksPath, queueWorkersPath, queuesPath, compatEnqueuePath, "/tasks", compatHealthPath, compatJobsPath}, func(path string) bool {
		return r.URL.Path == path || strings.HasPrefix(r.URL.Path, path+"/")
	})
}

func (r *queueRoutes) add() {
	op := operation{tag: "task queues", failure: shapeProblem}
	submit := op.at(http.MethodPost, queueTasksPath, "submit-queue-task", "Submit a task to a queue")
	submit.status, submit.also = http.StatusCreated, "The existing task with the idempotency key"
	addOwn[struct{}, queueSubmission, queueTask](r.api, submit, r.submit)
	addBody(r.api, op.at(http.MethodPost, queueTasksPath+"/bulk", "submit-queue-tasks", "Submit many tasks; each has its own answer"), r.submitMany)
	add(r.api, op.at(http.MethodGet, queueTasksPath, "list-queue-tasks", "List tasks, the newest first, without payloads"), r.list)
	add(r.api, op.at(http.MethodGet, queueTasksPath+"/{id}", "get-queue-task", "Show a task, or wait for its end"), r.get)
	addBody(r.api, op.at(http.MethodPost, queueTasksPath+"/claim", "claim-queue-tasks", "Claim tasks, or wait for one"), r.claim)
	addBody(r.api, op.at(http.MethodPost, queueTasksPath+"/complete", "complete-queue-tasks", "Complete many tasks; each has its own answer"), r.completeMany)
	addBody(r.api, op.at(http.MethodPost, queueTasksPath+"/{id}/complete", "complete-queue-task", "Complete a task"), r.complete)
	addBody(r.api, op.at(http.MethodPost, queueTasksPath+"/{id}/fail", "fail-queue-task", "Report a failure: the task is tried again, or DEAD"), r.fail)
	addBody(r.api, op.at(http.MethodPost, queueWorkersPath+"/register", "register-queue-worker", "Register a worker, or change its queue and tags"), r.register)
	addOwn[queueWorkerInput, queueHeartbeat, queueBeat](r.api, op.at(http.MethodPost, queueWorkersPath+"/{id}/heartbeat", "beat-queue-worker",
		"Record that a worker lives, with all of its claims; the body may be left out"), r.heartbeat)
	add(r.api, op.at(http.MethodGet, queueWorkersPath, "list-queue-workers", "List workers by their ids"), r.workers)
	add(r.api, op.at(http.MethodGet, queuesPath, "list-queues", "Count the tasks and the active workers of queues"), r.listQueues)
	addBody(r.api, op.at(http.MethodPost, queuesPath+"/{name}/pause", "pause-queue", "Pause the claims of a queue"), r.pause)
	addBody(r.api, op.at(http.MethodPost, queuesPath+"/{name}/resume", "resume-queue", "Resume the claims of a queue"), r.resume)
}

// queueSubmission is a task to submit.
type queueSubmission struct {
	Queue          string          `json:"queue,omitempty" doc:"default when absent"`
	Payload        json.RawMessage `json:"payload" doc:"Any JSON"`
	Tags           []string        `json:"tags,omitempty" doc:"Of which a worker must have all; at most 16"`
	Labels         []string        `json:"labels,omitempty" doc:"For searches; tag filters of /v1/tasks find them"`
	Priority       int             `json:"priority,omitempty" doc:"-100 to 100; higher is claimed first"`
	MaxAttempts    *int            `json:"maxAttempts,omitempty" doc:"Executions, the first one included; default 3"`
	Deadline       *client.Time    `json:"deadline,omitempty" doc:"A task that is PENDING then becomes DEAD"`
	DelaySeconds   *float64        `json:"delaySeconds,omitempty" doc:"Until the first claim"`
	IdempotencyKey string          `json:"idempotencyKey,omitempty" doc:"A task with it that exists is the answer"`
}

// queueTask is a task of a queue.
type queueTask struct {
	ID          string            `json:"id" format:"uuid"`
	Queue       string            `json:"queue"`
	Status      taskmaster.Status `json:"status" enum:"PENDING,RUNNING,DONE,DEAD"`
	Payload     json.RawMessage   `json:"payload,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	Labels      []string          `json:"labels,omitempty"`
	Priority    int               `json:"priority"`
	Attempts    int               `json:"attempts"`
	MaxAttempts int               `json:"maxAttempts"`
	CreatedAt   client.Time       `json:"createdAt"`
	RetryAt     *client.Time      `json:"retryAt,omitempty" doc:"When a task is claimable that waits after a failure"`
	ClaimedAt   *client.Time      `json:"claimedAt,omitempty"`
	FinishedAt  *client.Time      `json:"finishedAt,omitempty"`
	Result      json.RawMessage   `json:"result,omitempty"`
	Error       json.RawMessage   `json:"error,omitempty" doc:"Of the last failure"`
	Reason      *string           `json:"reason,omitempty" doc:"Why a task is DEAD"`
	Correlation string            `json:"correlationId" format:"uuid"`
}

func (r *queueRoutes) submit(x *exchange, _ *struct{}) error {
	if err := r.admitRequest(); err != nil {
		return err
	}
	body, err := readBody[queueSubmission](x, "submit-queue-task")
	if err != nil {
		return err
	}
	in, err := r.submission(x, body)
	if err != nil {
		return err
	}
	if err := r.admitTask(in.Queue); err != nil {
		return err
	}
	result, err := through(x.request.Context(), r.guard, func(ctx context.Context) (orchestration.CreateResult, error) {
		results, err := r.queues.Submit(ctx, []taskmaster.Submission{in})
		if err != nil {
			return orchestration.CreateResult{}, err
		}
		return results[0], ofSubmission(results[0].Err)
	})
	if err != nil {
		return err
	}
	x.Header().Set("Location", queueTasksPath+"/"+result.UUID.String())
	if result.Existing {
		x.Header().Set(replayedHeader, "true")
		task, err := through(x.request.Context(), r.guard, func(ctx context.Context) (*queueTask, error) { return r.show(ctx, result.UUID) })
		if err != nil {
			return err
		}
		return x.answer(task)
	}
	made := newQueueTask(&in, &result)
	made.Payload = shownInput(x.request.Context(), made.Payload)
	return x.answerWith(http.StatusCreated, made)
}

// submission checks a task to submit.
func (r *queueRoutes) submission(x *exchange, body *request[queueSubmission]) (in taskmaster.Submission, err error) {
	b := &body.body
	b.Queue = cmp.Or(b.Queue, defaultQueue)
	body.text("queue", b.Queue, orchestration.MaxNameLength)
	if absent(b.Payload) && !body.has("payload") && len(b.Payload) == 0 {
		body.missing = append(body.missing, "payload")
	}
	attempts := 0
	if b.MaxAttempts != nil {
		if attempts = *b.MaxAttempts; attempts < 1 {
			body.add("maxAttempts must be at least 1")
		}
	}
	if err := body.err(); err != nil {
		return in, err
	}
	if err := submission.CheckQueueTags(b.Tags); err != nil {
		return in, err
	}
	if err := within(x.request.Context(), b.Queue); err != nil {
		return in, err
	}
	in = taskmaster.Submission{Queue: b.Queue, Payload: b.Payload, Tags: b.Tags, Labels: b.Labels, Priority: b.Priority, MaxAttempts: attempts,
		IdempotencyKey: b.IdempotencyKey, Initiator: body.signed("")}
	if b.DelaySeconds != nil {
		var start submission.Request
		if err := start.Start(nil, b.DelaySeconds, time.Now()); err != nil {
			return in, ofSubmission(err)
		}
		in.StartIn = start.StartIn
	}
	if in.DeadlineIn, err = submission.DeadlineIn(timeOf(b.Deadline), time.Now()); err != nil {
		return in, err
	}
	if id, err := uuid.Parse(x.request.Header.Get(correlationHeader)); err == nil {
		in.CorrelationID = &id
	}
	return in, nil
}

// ofSubmission gives problems of the request that a submission became the names of its fields; its
// own tags have been checked before.
func ofSubmission(err error) error {
	return renamed(err, "context.payload", "payload", "context", "payload", "tags", "labels", "idempotency_key", "idempotencyKey",
		"max_attempts", "maxAttempts", "delay_seconds", "delaySeconds")
}

// newQueueTask is a task that was just created.
func newQueueTask(in *taskmaster.Submission, created *orchestration.CreateResult) *queueTask {
	return &queueTask{ID: created.UUID.String(), Queue: in.Queue, Status: taskmaster.Pending, Payload: in.Payload, Tags: in.Tags, Labels: in.Labels,
		Priority: in.Priority, MaxAttempts: cmp.Or(in.MaxAttempts, taskmaster.MaxAttempts), CreatedAt: client.Time{Time: created.RequestedAt}, Correlation: created.CorrelationID.String()}
}

// queueBulk are many tasks to submit.
type queueBulk struct {
	Tasks []queueSubmission `json:"tasks" maxItems:"1000"`
}

// queueBulkAnswer has one entry per task, in order.
type queueBulkAnswer struct {
	Tasks []queueBulkEntry `json:"tasks"`
}

type queueBulkEntry struct {
	ID     string            `json:"id,omitempty"`
	Status taskmaster.Status `json:"status,omitempty"`
	Error  string            `json:"error,omitempty"`
}

func (r *queueRoutes) submitMany(ctx context.Context, _ *struct{}, body *request[queueBulk]) (*queueBulkAnswer, error) {
	if err := r.admitRequest(); err != nil {
		return nil, err
	}
	n := len(body.body.Tasks)
	if n == 0 || n > maxQueueBulk {
		return nil, badRequest(fmt.Sprintf("tasks must have 1 to %d entries", maxQueueBulk))
	}
	x, answer := exchangeOf(ctx), &queueBulkAnswer{Tasks: make([]queueBulkEntry, n)}
	var list []taskmaster.Submission
	var places []int
	var turnedAway error
	for i := range body.body.Tasks {
		one := &request[queueSubmission]{body: body.body.Tasks[i]}
		one.who = body.who
		in, err := r.submission(x, one)
		if err == nil {
			if err := r.admitTask(in.Queue); err != nil {
				turnedAway, answer.Tasks[i].Error = err, classify(ctx, err).message
				continue
			}
		}
		if err != nil {
			if answer.Tasks[i].Error = tell(ctx, err); answer.Tasks[i].Error == "" {
				return nil, err
			}
			continue
		}
		list, places = append(list, in), append(places, i)
	}
	if len(list) == 0 {
		if turnedAway != nil { // for a reason outside of the tasks: all may be sent again
			return nil, turnedAway
		}
		return answer, nil
	}
	results, err := r.queues.Submit(ctx, list)
	if err != nil {
		return nil, err
	}
	var all outcomes
	for i := range results {
		entry := &answer.Tasks[places[i]]
		if entry.Error = all.add(ctx, ofSubmission(results[i].Err)); results[i].Err == nil {
			entry.ID, entry.Status = results[i].UUID.String(), taskmaster.StatusOfCreated(&results[i].Created)
		}
	}
	return answer, r.whole(ctx, &all)
}

// outcomes are those of the tasks of one request, each with an answer of its own.
type outcomes struct {
	done   bool  // one of them
	server error // the first that its sender cannot fix
}

// add returns what the sender is told about the error of one task; "" without one.
func (o *outcomes) add(ctx context.Context, err error) string {
	if err == nil {
		o.done = true
		return ""
	}
	f := classify(ctx, err)
	if f.status >= http.StatusInternalServerError && o.server == nil {
		o.server = err
	}
	return f.message
}

// whole is the error of a request of which nothing was done for a reason outside of its tasks.
// Otherwise all may not be sent again, and the reason is in the log alone.
func (r *queueRoutes) whole(ctx context.Context, o *outcomes) error {
	if !o.done || o.server == nil {
		return o.server
	}
	_ = r.taskRoutes.fail(ctx, o.server) // logs it
	return nil
}

// tell is the text of an error that the sender can fix; "" for another one.
func tell(ctx context.Context, err error) string {
	if f := classify(ctx, err); f.status < http.StatusInternalServerError {
		return f.message
	}
	return ""
}

// queueTaskInput selects a task.
type queueTaskInput struct {
	ID uuid.UUID `path:"id" format:"uuid"`
}

func (r *queueRoutes) get(ctx context.Context, in *struct {
	ID   uuid.UUID `path:"id" format:"uuid"`
	Wait string    `query:"wait" doc:"Longest wait for the end of the task, such as 10s"`
}) (*queueTask, error) {
	wait, err := r.parseWait(in.Wait)
	if err != nil {
		return nil, err
	}
	if err := r.await(ctx, in.ID, wait); err != nil {
		return nil, err
	}
	return r.show(ctx, in.ID)
}

func (r *queueRoutes) show(ctx context.Context, id uuid.UUID) (*queueTask, error) {
	task, err := r.store.Task(ctx, id)
	if err == nil && !plainqueue.Has(task.Plan.Template) {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, ofTask(id, err)
	}
	t := queueTaskOf(task)
	t.Payload, t.Tags = taskmaster.Queued(task.Context)
	t.Payload = shownInput(ctx, t.Payload)
	return t, nil
}

func queueTaskOf(task *store.Task) *queueTask {
	t := &queueTask{ID: task.UUID.String(), Queue: task.Plan.Template.Namespace, Status: taskmaster.StatusOf(task), Labels: task.Tags, Priority: task.Priority,
		MaxAttempts: taskmaster.MaxAttempts, CreatedAt: client.Time{Time: task.RequestedAt}, FinishedAt: instant(task.CompletedAt),
		Reason: task.FinalReason, Correlation: task.CorrelationID.String()}
	if task.Progress != nil && task.Progress.Retry != nil && task.Progress.Retry.MaxAttempts > 0 {
		t.MaxAttempts = task.Progress.Retry.MaxAttempts
	}
	if len(task.Steps) == 1 {
		s := &task.Steps[0]
		t.Attempts, t.Result, t.Error, t.ClaimedAt = s.Attempts, s.Result, s.Error, instant(s.LastAttemptAt)
		if t.Status == taskmaster.Pending {
			t.RetryAt = instant(s.NextRetryAt)
		}
	}
	return t
}

// queueListInput selects tasks.
type queueListInput struct {
	Queue  string `query:"queue"`
	Status string `query:"status" enum:"PENDING,RUNNING,DONE,DEAD"`
	Limit  number `query:"limit" within:"1,500,100" doc:"1 to 500; default 100"`
	Cursor string `query:"cursor" format:"uuid" doc:"nextCursor of an answer: what follows it"`
}

// queueTaskList is a page of tasks.
type queueTaskList struct {
	Tasks      []queueTask `json:"tasks"`
	NextCursor string      `json:"nextCursor,omitempty" doc:"Absent: nothing follows. A page may be short of its limit, or empty, though more follow"`
}

// maxQueuePages bounds the pages that are read for one answer.
const maxQueuePages = 10

// list reads pages of tasks that may fit, as whether a live task is PENDING or RUNNING is not
// stored.
func (r *queueRoutes) list(ctx context.Context, in *queueListInput) (*queueTaskList, error) {
	if err := filterText("queue", in.Queue); err != nil {
		return nil, err
	}
	if err := within(ctx, in.Queue); err != nil {
		return nil, err
	}
	f := store.TaskFilter{Namespace: in.Queue, Name: plainqueue.Template, Limit: int(in.Limit), Continued: true}
	status := taskmaster.Status(in.Status)
	switch status {
	case "":
	case taskmaster.Done:
		f.States = []workflow.TaskState{workflow.TaskComplete, workflow.TaskResolvedManually}
	case taskmaster.Dead:
		f.States = []workflow.TaskState{workflow.TaskError, workflow.TaskCancelled}
	case taskmaster.Pending, taskmaster.Running:
		f.States = slices.DeleteFunc(workflow.TaskStates(), workflow.TaskState.Terminal)
	default:
		return nil, badRequest("status must be PENDING, RUNNING, DONE or DEAD")
	}
	if in.Cursor != "" {
		var err error
		if f.Before, err = uuid.Parse(in.Cursor); err != nil {
			return nil, badRequest("cursor must be nextCursor of an answer")
		}
	}
	answer := &queueTaskList{Tasks: []queueTask{}}
	for range maxQueuePages {
		page, err := r.store.Tasks(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, task := range page.Tasks {
			t := queueTaskOf(task)
			if status != "" && t.Status != status || !plainqueue.Has(task.Plan.Template) {
				continue
			}
			if answer.Tasks = append(answer.Tasks, *t); len(answer.Tasks) == int(in.Limit) {
				answer.NextCursor = t.ID
				return answer, nil
			}
		}
		if page.Next == uuid.Nil {
			return answer, nil
		}
		f.Before, answer.NextCursor = page.Next, page.Next.String()
	}
	return answer, nil
}
