package taskmaster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/plainqueue"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/workflow"
)

// Finish is the end of an execution, as its worker reports it.
type Finish struct {
	Task uuid.UUID
	// Worker holds the task. With a Token it may be empty: the token is the fence.
	Worker string
	Token  int64 // 0: the worker holds the current claim

	Success    bool
	Result     json.RawMessage // of a success; nil: none
	Error      json.RawMessage // of a failure
	Retryable  bool            // of a failure
	RetryAfter time.Duration   // of a failure; negative: by the backoff
}

// Finished answers a Finish.
type Finished struct {
	Queue string
	// Status is that of the task now; after a failure PENDING or DEAD.
	Status Status
	// Err wraps ErrUnknownTask, ErrUnknownWorker or ErrNotHeld.
	Err error
}

// Status is the state of a task of a queue.
type Status string

// The states.
const (
	Pending Status = "PENDING"
	Running Status = "RUNNING"
	Done    Status = "DONE"
	Dead    Status = "DEAD"
)

// StatusOf is the state of a task.
func StatusOf(t *store.Task) Status {
	if s := statusOf(t.State); s != Pending || len(t.Steps) != 1 {
		return s
	}
	switch t.Steps[0].State {
	case workflow.StepInProgress, workflow.StepEnqueuedForOrchestration, workflow.StepEnqueuedAsErrorForOrchestration:
		return Running
	}
	return Pending
}

// StatusOfCreated returns the status of a task that was just created, or existed.
func StatusOfCreated(c *submission.Created) Status {
	if status := statusOf(c.State); status != Pending || !c.Running {
		return status
	}
	return Running
}

// statusOf is Done or Dead for the state of a task that has ended.
func statusOf(state workflow.TaskState) Status {
	switch state {
	case workflow.TaskComplete, workflow.TaskResolvedManually:
		return Done
	case workflow.TaskError, workflow.TaskCancelled:
		return Dead
	}
	return Pending
}

// Finish ends executions, in a number of statements that does not depend on theirs, but for
// those that are not held. The answer has one entry for each, in order. permitted refuses
// queues, whose tasks do not exist for the caller; nil: none.
//
// A success that is reported again by the worker that has completed the task is a success.
func (s *Service) Finish(ctx context.Context, list []Finish, permitted func(queue string) error) ([]Finished, error) {
	answers := make([]Finished, len(list))
	steps, workers, err := s.lookUp(ctx, list)
	if err != nil {
		return nil, err
	}
	var reports []store.Report
	var places []int
	for i := range list {
		f := &list[i]
		step, alive := steps[f.Task]
		if alive && permitted != nil && permitted(step.Queue) != nil {
			step, alive = store.QueueStep{}, false // as one that does not exist
		}
		if alive {
			answers[i].Queue = step.Queue
		}
		if answers[i].Err = f.check(step, workers); answers[i].Err != nil {
			continue
		}
		reports, places = append(reports, f.report(step)), append(places, i)
	}
	if len(reports) > 0 {
		endings, err := s.cfg.Engine.End(ctx, reports)
		if err != nil {
			return nil, err
		}
		for i, ending := range endings {
			at := places[i]
			if !ending.Accepted {
				answers[at].Err = ErrNotHeld
				continue
			}
			answers[at].Status = s.ended(&list[at], steps[list[at].Task], ending.State)
		}
	}
	for i := range answers {
		if errors.Is(answers[i].Err, ErrNotHeld) {
			answers[i] = s.explain(ctx, &list[i], workers, permitted)
		}
	}
	return answers, nil
}

// lookUp reads the tasks and the workers that are named.
func (s *Service) lookUp(ctx context.Context, list []Finish) (steps map[uuid.UUID]store.QueueStep, workers map[string]store.QueueWorker, err error) {
	tasks := make([]uuid.UUID, len(list))
	var names []string
	seen := map[string]bool{"": true}
	for i := range list {
		tasks[i] = list[i].Task
		if name := list[i].Worker; !seen[name] {
			seen[name], names = true, append(names, name)
		}
	}
	if steps, err = s.cfg.Store.QueueSteps(ctx, tasks); err != nil || names == nil {
		return steps, nil, err
	}
	workers, err = s.cfg.Store.QueueWorkersNamed(ctx, names, s.cfg.Liveness)
	return steps, workers, err
}

// check compares the claim that is on the board with the one that ends. The report decides:
// this finds the token, and words for what is wrong.
func (f *Finish) check(step store.QueueStep, workers map[string]store.QueueWorker) error {
	w, known := workers[f.Worker]
	switch {
	case f.Worker != "" && !known:
		return ErrUnknownWorker
	case !step.Held, f.Token != 0 && f.Token != step.Token, f.Worker != "" && w.Claims != step.Worker:
		return ErrNotHeld
	}
	return nil
}

func (f *Finish) report(step store.QueueStep) store.Report {
	r := store.Report{ClaimKey: step.Key(), Success: f.Success, RetryAfter: -1}
	if f.Success {
		if r.Result = f.Result; r.Result == nil {
			r.Result = json.RawMessage(`null`)
		}
		return r
	}
	r.Error, r.Retryable, r.RetryAfter = f.Error, f.Retryable, f.RetryAfter
	return r
}

// ended counts the end of an execution and returns the state of the task.
func (s *Service) ended(f *Finish, step store.QueueStep, state workflow.TaskState) Status {
	label := s.metrics.Named("queue", step.Queue)
	s.metrics.QueueExecution.WithLabelValues(label).Observe(step.Running.Seconds())
	status := statusOf(state)
	switch {
	case f.Success:
		s.metrics.QueueCompleted.WithLabelValues(label).Inc()
		status = Done // an orchestrator that decides in a moment decides so
	default:
		s.metrics.QueueFailed.WithLabelValues(label).Inc()
	}
	if status == Done || status == Dead {
		s.metrics.QueueEndToEnd.WithLabelValues(label).Observe(step.Age.Seconds())
	}
	return status
}

// explain says why a task is not held.
func (s *Service) explain(ctx context.Context, f *Finish, workers map[string]store.QueueWorker, permitted func(queue string) error) Finished {
	task, err := s.cfg.Store.Task(ctx, f.Task)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && !plainqueue.Has(task.Plan.Template):
		return Finished{Err: ErrUnknownTask}
	case err != nil:
		return Finished{Err: err}
	}
	a := Finished{Queue: task.Plan.Template.Namespace, Status: StatusOf(task)}
	if permitted != nil && permitted(a.Queue) != nil {
		return Finished{Err: ErrUnknownTask}
	}
	w, known := workers[f.Worker]
	if f.Success && a.Status == Done && known && len(task.Steps) == 1 && task.Steps[0].WorkerUUID != nil && *task.Steps[0].WorkerUUID == w.Claims {
		return a // the answer to the first report was lost
	}
	a.Err = fmt.Errorf("%w: it is %s", ErrNotHeld, a.Status)
	return a
}
