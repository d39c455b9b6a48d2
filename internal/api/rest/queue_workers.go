package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/plainqueue"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/taskmaster"
)

// queueClaim requests tasks.
type queueClaim struct {
	WorkerID string `json:"workerId"`
	Queue    string `json:"queue,omitempty" doc:"That of the worker when absent"`
	Limit    int    `json:"limit,omitempty" doc:"1 to 100; default 1"`

	Held *[]queueClaimRef `json:"held,omitempty" maxItems:"1000" doc:"All claims that the worker knows of, after an answer was lost: what it holds besides is told again, first"`
}

// queueClaimed are claimed tasks.
type queueClaimed struct {
	Tasks []queueHeld `json:"tasks"`
}

// queueHeld is a task that its worker holds.
type queueHeld struct {
	ID          string          `json:"id" format:"uuid"`
	Token       string          `json:"token" doc:"The fence of this claim: later ends of it are refused once another worker has the task"`
	Queue       string          `json:"queue"`
	Payload     json.RawMessage `json:"payload"`
	Tags        []string        `json:"tags,omitempty"`
	Priority    int             `json:"priority"`
	Attempt     int             `json:"attempt" doc:"1 for the first execution"`
	MaxAttempts int             `json:"maxAttempts"`
	CreatedAt   client.Time     `json:"createdAt"`
	ClaimedAt   client.Time     `json:"claimedAt"`
	Correlation string          `json:"correlationId" format:"uuid"`
}

func (r *queueRoutes) claim(ctx context.Context, in *struct {
	Wait string `query:"wait" doc:"Longest wait for a task, such as 20s"`
}, body *request[queueClaim]) (*queueClaimed, error) {
	b := &body.body
	body.required("workerId", b.WorkerID, maxQueueWorkerName)
	body.text("queue", b.Queue, orchestration.MaxNameLength)
	limit := body.within("limit", b.Limit, 1, maxQueueClaim, 1)
	var held []store.HeldClaim
	if b.Held != nil {
		held = body.claims("held", *b.Held)
	}
	if err := body.err(); err != nil {
		return nil, err
	}
	wait, err := r.parseWait(in.Wait)
	if err != nil {
		return nil, err
	}
	claimed, err := r.queues.Claim(ctx, taskmaster.ClaimRequest{Worker: exchangeOf(ctx).workerID(b.WorkerID), Queue: b.Queue, Limit: limit, Wait: wait, Held: held,
		Namespaces: exchangeOf(ctx).namespaces(), Permitted: func(queue string) error { return within(ctx, queue) },
		Principal: exchangeOf(ctx).holder()})
	if err != nil {
		return nil, err
	}
	answer := &queueClaimed{Tasks: make([]queueHeld, len(claimed))}
	for i := range claimed {
		c := &claimed[i]
		t := &answer.Tasks[i]
		*t = queueHeld{ID: c.TaskUUID.String(), Token: strconv.FormatInt(c.Token, 10), Queue: c.Queue, Priority: c.Priority, Attempt: c.Attempt,
			MaxAttempts: cmp.Or(c.MaxAttempts, taskmaster.MaxAttempts), CreatedAt: client.Time{Time: c.RequestedAt}, ClaimedAt: client.Time{Time: c.ClaimedAt}, Correlation: c.CorrelationID.String()}
		t.Payload, t.Tags = taskmaster.Queued(c.Context)
	}
	return answer, nil
}

// queueEnd is the end of an execution.
type queueEnd struct {
	ID       string          `json:"id,omitempty" format:"uuid" doc:"Of a task of many; otherwise the path names it"`
	WorkerID string          `json:"workerId,omitempty" doc:"The worker that holds the task; may be left out with a token"`
	Token    string          `json:"token,omitempty" doc:"That of the claim. Without it the end is accepted while the worker holds the task, under whatever claim"`
	Result   json.RawMessage `json:"result,omitempty" doc:"Any JSON"`
}

// queueFailure is the failure of an execution.
type queueFailure struct {
	WorkerID          string   `json:"workerId,omitempty"`
	Token             string   `json:"token,omitempty"`
	Error             string   `json:"error,omitempty"`
	Retryable         *bool    `json:"retryable,omitempty" doc:"false: the task becomes DEAD; default true"`
	RetryAfterSeconds *float64 `json:"retryAfterSeconds,omitempty" doc:"In place of the backoff"`
}

// queueEnded answers the end of an execution.
type queueEnded struct {
	ID     string            `json:"id"`
	Status taskmaster.Status `json:"status,omitempty"`
	Error  string            `json:"error,omitempty" doc:"Of one of many"`
}

// ending checks who ends which claim.
func (c *checked) ending(id uuid.UUID, worker, token string) (f taskmaster.Finish) {
	f = taskmaster.Finish{Task: id, Worker: c.text("workerId", worker, maxQueueWorkerName), RetryAfter: -1}
	if token != "" {
		var err error
		if f.Token, err = strconv.ParseInt(token, 10, 64); err != nil || f.Token < 1 {
			c.add("token must be that of a claim")
		}
	} else if worker == "" {
		c.missing = append(c.missing, "workerId")
	}
	return f
}

func (r *queueRoutes) complete(ctx context.Context, in *queueTaskInput, body *request[queueEnd]) (*queueEnded, error) {
	b := &body.body
	f := body.ending(in.ID, b.WorkerID, b.Token)
	f.Success, f.Result = true, body.result("result", b.Result)
	return r.finish(ctx, f, body.err())
}

func (r *queueRoutes) fail(ctx context.Context, in *queueTaskInput, body *request[queueFailure]) (*queueEnded, error) {
	b := &body.body
	f := body.ending(in.ID, b.WorkerID, b.Token)
	f.Retryable = b.Retryable == nil || *b.Retryable
	if b.RetryAfterSeconds != nil {
		if s := *b.RetryAfterSeconds; s < 0 || s > limits.MaxRetryDelay.Seconds() {
			body.add("retryAfterSeconds must be between 0 and %d", int(limits.MaxRetryDelay.Seconds()))
		} else {
			f.RetryAfter = time.Duration(s * float64(time.Second))
		}
	}
	body.text("error", b.Error, maxFailureText)
	message, err := json.Marshal(map[string]any{"message": b.Error, "error_type": "TaskFailed", "retryable": f.Retryable})
	if f.Error = message; err != nil {
		return nil, unprocessable("error must be text")
	}
	return r.finish(ctx, f, body.err())
}

func (r *queueRoutes) finish(ctx context.Context, f taskmaster.Finish, err error) (*queueEnded, error) {
	if err != nil {
		return nil, err
	}
	f.Worker = exchangeOf(ctx).workerID(f.Worker)
	done, err := r.queues.Finish(ctx, []taskmaster.Finish{f}, func(queue string) error { return within(ctx, queue) })
	if err != nil {
		return nil, err
	}
	if err := done[0].Err; err != nil {
		if errors.Is(err, taskmaster.ErrNotHeld) {
			return nil, conflict(fmt.Sprintf("The worker does not hold the task; it is %s", done[0].Status))
		}
		return nil, err
	}
	return &queueEnded{ID: f.Task.String(), Status: done[0].Status}, nil
}

// queueEnds are the ends of many executions.
type queueEnds struct {
	Tasks []queueEnd `json:"tasks" maxItems:"1000"`
}

// queueEndsAnswer has one entry per end, in order.
type queueEndsAnswer struct {
	Tasks []queueEnded `json:"tasks"`
}

func (r *queueRoutes) completeMany(ctx context.Context, _ *struct{}, body *request[queueEnds]) (*queueEndsAnswer, error) {
	n := len(body.body.Tasks)
	if n == 0 || n > maxQueueBulk {
		return nil, badRequest(fmt.Sprintf("tasks must have 1 to %d entries", maxQueueBulk))
	}
	answer := &queueEndsAnswer{Tasks: make([]queueEnded, n)}
	var list []taskmaster.Finish
	var places []int
	for i := range body.body.Tasks {
		b := &body.body.Tasks[i]
		var c checked
		answer.Tasks[i].ID = clip(strings.ToValidUTF8(b.ID, "?"), 64)
		id, err := parseTask(b.ID)
		f := c.ending(id, b.WorkerID, b.Token)
		f.Success, f.Result = true, c.result("result", b.Result)
		if err = errors.Join(err, c.err()); err != nil {
			answer.Tasks[i].Error = tell(ctx, err)
			continue
		}
		f.Worker = exchangeOf(ctx).workerID(f.Worker)
		list, places = append(list, f), append(places, i)
	}
	if len(list) == 0 {
		return answer, nil
	}
	done, err := r.queues.Finish(ctx, list, func(queue string) error { return within(ctx, queue) })
	if err != nil {
		return nil, err
	}
	var all outcomes
	for i := range done {
		entry := &answer.Tasks[places[i]]
		entry.Status, entry.Error = done[i].Status, all.add(ctx, done[i].Err)
	}
	return answer, r.whole(ctx, &all)
}

// queueRegistration registers a worker.
type queueRegistration struct {
	WorkerID string   `json:"workerId"`
	Queue    string   `json:"queue,omitempty" doc:"default when absent"`
	Tags     []string `json:"tags,omitempty" doc:"What it can handle; at most 16"`
	Instance string   `json:"instance,omitempty" maxLength:"128" doc:"Of the process, another one at each start: what the former process held is tried again"`
}

// queueWorker is a worker of a queue.
type queueWorker struct {
	WorkerID      string      `json:"workerId"`
	Queue         string      `json:"queue"`
	Tags          []string    `json:"tags"`
	Status        string      `json:"status" enum:"ACTIVE,STALE,DEAD"`
	RegisteredAt  client.Time `json:"registeredAt"`
	LastHeartbeat client.Time `json:"lastHeartbeat"`
}

func queueWorkerOf(w *store.QueueWorker) queueWorker {
	return queueWorker{plainqueue.ShownWorker(w.ID), w.Queue, w.Tags, strings.ToUpper(w.Status.String()), client.Time{Time: w.RegisteredAt}, client.Time{Time: w.HeartbeatAt}}
}

func (r *queueRoutes) register(ctx context.Context, _ *struct{}, body *request[queueRegistration]) (*queueWorker, error) {
	b := &body.body
	body.required("workerId", b.WorkerID, maxQueueWorkerName)
	b.Queue = cmp.Or(b.Queue, defaultQueue)
	body.text("queue", b.Queue, orchestration.MaxNameLength)
	body.text("instance", b.Instance, maxQueueWorkerName)
	if err := body.err(); err != nil {
		return nil, err
	}
	if err := submission.CheckQueueTags(b.Tags); err != nil {
		return nil, err
	}
	if err := within(ctx, b.Queue); err != nil {
		return nil, err
	}
	w, err := r.queues.Register(ctx, store.QueueRegistration{ID: exchangeOf(ctx).workerID(b.WorkerID), Queue: b.Queue, Tags: b.Tags, Instance: b.Instance,
		Namespaces: exchangeOf(ctx).namespaces()})
	return new(queueWorkerOf(&w)), err
}

// queueWorkerInput selects a worker.
type queueWorkerInput struct {
	ID string `path:"id"`
}

// queueHeartbeat may name the claims that the worker thinks it holds.
type queueHeartbeat struct {
	Claims []queueClaimRef `json:"claims,omitempty" maxItems:"1000"`
}

type queueClaimRef struct {
	ID    string `json:"id" format:"uuid"`
	Token string `json:"token"`
}

// claims checks a list of claims, and is never nil.
func (c *checked) claims(name string, list []queueClaimRef) []store.HeldClaim {
	if len(list) > maxQueueBulk {
		c.add("%s must have at most %d entries", name, maxQueueBulk)
		list = nil
	}
	held := make([]store.HeldClaim, len(list))
	for i, ref := range list {
		id, err := parseTask(ref.ID)
		token, wrong := strconv.ParseInt(ref.Token, 10, 64)
		if err != nil || wrong != nil {
			c.add("%s[%d] must be the id and the token of a claim", name, i)
		}
		held[i] = store.HeldClaim{TaskUUID: id, Token: token}
	}
	return held
}

// queueBeat answers a heartbeat.
type queueBeat struct {
	queueWorker
	Lost []queueClaimRef `json:"lost" doc:"Those of claims that the worker does not hold any more: stop working on them"`
}

func (r *queueRoutes) heartbeat(x *exchange, in *queueWorkerInput) error {
	var held []store.HeldClaim
	if x.request.ContentLength != 0 {
		body, err := readBody[queueHeartbeat](x, "beat-queue-worker")
		if err != nil {
			return err
		}
		held = body.claims("claims", body.body.Claims)
		if err := body.err(); err != nil {
			return err
		}
	}
	if strings.ContainsAny(in.ID, "\x00\x1f") {
		return taskmaster.ErrUnknownWorker
	}
	if err := filterText("id", in.ID); err != nil {
		return err
	}
	answer, err := through(x.request.Context(), r.guard, func(ctx context.Context) (*queueBeat, error) { return r.beat(ctx, in.ID, held) })
	if err != nil {
		return err
	}
	return x.answer(answer)
}

// workerID is the id of a worker as it is kept: each principal has workers of its own.
func (x *exchange) workerID(id string) string { return plainqueue.WorkerOf(x.holder(), id) }

// withinWorker refuses a worker whose queue the principal may not act in, as one that does not exist.
func (r *queueRoutes) withinWorker(ctx context.Context, id string) error {
	if x := exchangeOf(ctx); x == nil || x.who == nil || x.who.Everywhere() {
		return nil
	}
	w, err := r.queues.Worker(ctx, id)
	if err != nil {
		return err
	}
	if within(ctx, w.Queue) != nil {
		return taskmaster.ErrUnknownWorker
	}
	return nil
}

func (r *queueRoutes) beat(ctx context.Context, id string, held []store.HeldClaim) (*queueBeat, error) {
	id = exchangeOf(ctx).workerID(id)
	if err := r.withinWorker(ctx, id); err != nil {
		return nil, err
	}
	w, lost, err := r.queues.Heartbeat(ctx, id, held)
	if err != nil {
		return nil, err
	}
	return &queueBeat{queueWorkerOf(&w), each(lost, func(c *store.HeldClaim) queueClaimRef {
		return queueClaimRef{c.TaskUUID.String(), strconv.FormatInt(c.Token, 10)}
	})}, nil
}

// queueWorkerList lists workers.
type queueWorkerList struct {
	Workers []queueWorker `json:"workers"`
}

func (r *queueRoutes) workers(ctx context.Context, in *struct {
	Queue string `query:"queue"`
	Limit number `query:"limit" within:"1,1000,1000" doc:"1 to 1000; default 1000"`
}) (*queueWorkerList, error) {
	if err := filterText("queue", in.Queue); err != nil {
		return nil, err
	}
	if err := within(ctx, in.Queue); err != nil {
		return nil, err
	}
	list, err := r.queues.Workers(ctx, in.Queue, int(in.Limit))
	return &queueWorkerList{Workers: each(list, queueWorkerOf)}, err
}

// queueList counts queues.
type queueList struct {
	Queues []queueCounts `json:"queues"`
}

// queueCounts are the tasks of a queue by status. Ended tasks count while they are kept.
type queueCounts struct {
	Queue         string `json:"queue"`
	Pending       int    `json:"pending"`
	Running       int    `json:"running"`
	Done          int    `json:"done"`
	Dead          int    `json:"dead"`
	Capped        bool   `json:"capped,omitempty" doc:"There are more tasks than are counted; the counts are about the least that there is"`
	ActiveWorkers int    `json:"activeWorkers"`
	Paused        bool   `json:"paused"`
}

func (r *queueRoutes) listQueues(ctx context.Context, in *struct {
	Queue string `query:"queue" doc:"Only this one"`
}) (*queueList, error) {
	if err := filterText("queue", in.Queue); err != nil {
		return nil, err
	}
	if err := within(ctx, in.Queue); err != nil {
		return nil, err
	}
	return r.counted(ctx, in.Queue, false)
}

// counted counts a queue, or all; afresh without what is remembered.
func (r *queueRoutes) counted(ctx context.Context, queue string, afresh bool) (*queueList, error) {
	count := func() ([]store.QueueCounts, error) { return r.queues.Queues(ctx, queue) }
	get := func() ([]store.QueueCounts, error) { return r.counts.get(ctx, queue, count) }
	if afresh {
		get = count
	}
	list, err := get()
	return &queueList{Queues: each(list, func(q *store.QueueCounts) queueCounts {
		return queueCounts{q.Queue, q.Waiting, q.Claimed, q.Complete, q.Failed, q.Capped, q.ActiveWorkers, q.PausedAt != nil}
	})}, err
}

// queueInput selects a queue.
type queueInput struct {
	Name string `path:"name"`
}

func (r *queueRoutes) pause(ctx context.Context, in *queueInput, body *request[client.Why]) (*queueCounts, error) {
	return r.steer(ctx, in.Name, body, r.engine.Pause)
}

func (r *queueRoutes) resume(ctx context.Context, in *queueInput, body *request[client.Why]) (*queueCounts, error) {
	return r.steer(ctx, in.Name, body, r.engine.Resume)
}

// steer pauses or resumes a queue and shows it.
func (r *queueRoutes) steer(ctx context.Context, name string, body *request[client.Why], act func(context.Context, store.Pause) error) (*queueCounts, error) {
	p, err := pauseOf(name, "")
	if err != nil {
		return nil, err
	}
	p.Reason, p.Actor = body.why(body.body.Reason, body.body.Actor)
	if err := body.err(); err != nil {
		return nil, err
	}
	if err := act(ctx, p); err != nil {
		return nil, missing(err, "Queue not found: %q", clip(name, 64))
	}
	list, err := r.counted(ctx, name, true)
	if err != nil {
		return nil, err
	}
	if len(list.Queues) != 1 {
		return nil, notFound(fmt.Sprintf("Queue not found: %q", clip(name, 64)))
	}
	return &list.Queues[0], nil
}
