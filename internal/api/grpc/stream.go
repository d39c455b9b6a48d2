package grpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/places"
	"github.com/tasker-go/tasker/internal/transcode"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// streamRetry is when the client of a refused or ended stream may come back.
const streamRetry = 5 * time.Second

// StreamTaskStatus implements taskerv1.TaskServiceServer: it sends what is new of a task
// until that has ended.
func (s taskService) StreamTaskStatus(r *taskerv1.StreamTaskStatusRequest, to grpc.ServerStreamingServer[taskerv1.TaskStatusUpdate]) error {
	place, err := s.places.TryTake(holderOf(to.Context()), 1)
	if err != nil {
		s.cfg.Telemetry.GRPCStreamsRefused.Inc()
		return s.withoutPlace(err)
	}
	defer place.Leave()
	s.calls.Enter()
	defer s.calls.Leave()
	s.cfg.Telemetry.GRPCStreams.Inc()
	defer s.cfg.Telemetry.GRPCStreams.Dec()
	ctx, cancel := context.WithTimeout(to.Context(), s.cfg.StreamLife)
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	f := &follower{Server: s.Server, task: r.GetTaskUuid(), withSteps: r.GetIncludeSteps(), send: to.Send, steps: map[string]stepSeen{}}
	err = f.follow(ctx)
	switch {
	case err == nil:
		return nil
	case s.draining.Err() != nil:
		return comeBack("The daemon is shutting down")
	case to.Context().Err() != nil:
		return err // the client has ended it
	case ctx.Err() != nil:
		return comeBack("The stream has reached its age; open another one")
	}
	return err
}

// withoutPlace refuses a stream for which there is no place, or none of its principal's share.
func (s *Server) withoutPlace(err error) error {
	own := (*places.ShareError)(nil)
	if !errors.As(err, &own) {
		return comeBack("There are as many streams as there may be")
	}
	s.cfg.Telemetry.SharesRefused.WithLabelValues(own.Label()).Inc()
	return retryable(codes.ResourceExhausted, "SHARE_EXCEEDED", own.Error())
}

// comeBack refuses a stream that another request may get.
func comeBack(message string) error {
	return retryable(codes.Unavailable, "SERVICE_UNAVAILABLE", message)
}

func retryable(code codes.Code, reason, message string) error {
	refusal := status.New(code, message)
	full, err := refusal.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: domain},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(streamRetry)})
	if err != nil { // never: the details can be encoded
		return refusal.Err()
	}
	return full.Err()
}

// follower sends the changes of a task.
type follower struct {
	*Server
	task      string
	withSteps bool
	send      func(*taskerv1.TaskStatusUpdate) error

	state string // that was sent
	steps map[string]stepSeen
}

// stepSeen is what was sent of a step.
type stepSeen struct {
	state   string
	attempt int
}

// follow looks at the task in intervals, and at its end at once, because an operation that
// waits for the end returns then.
func (f *follower) follow(ctx context.Context) error {
	tick := time.NewTicker(f.cfg.StreamInterval)
	defer tick.Stop()
	var wait url.Values
	for {
		task, err := f.look(ctx, wait)
		if err != nil {
			return err
		}
		if err := f.sendChanges(task); err != nil {
			return err
		}
		if task.Terminal() {
			return f.conclude(ctx, task)
		}
		if wait != nil {
			// Where requests may not wait they are answered at once: the interval is kept.
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		wait = url.Values{"wait": {f.cfg.StreamInterval.String()}}
	}
}

func (f *follower) look(ctx context.Context, query url.Values) (*client.Task, error) {
	body, err := f.ask(ctx, call{path: []string{f.task}, query: query})
	if err != nil {
		return nil, err
	}
	task := &client.Task{}
	if err := json.Unmarshal(body, task); err != nil {
		return nil, fmt.Errorf("read a task: %w", err)
	}
	return task, nil
}

// sendChanges sends what is new.
func (f *follower) sendChanges(task *client.Task) error {
	if task.Status != f.state {
		f.state = task.Status
		if err := f.update(taskerv1.TaskStatusUpdate_UPDATE_TYPE_TASK_STATE_CHANGE, nil, nil); err != nil {
			return err
		}
	}
	if !f.withSteps {
		return nil
	}
	for i := range task.Steps {
		step := &task.Steps[i]
		seen := stepSeen{step.CurrentState, step.Attempts}
		if f.steps[step.WorkflowStepUUID] == seen {
			continue
		}
		f.steps[step.WorkflowStepUUID] = seen
		state := transcode.EnumNumber(taskerv1.StepState(0).Descriptor(), step.CurrentState)
		change := &taskerv1.StepUpdate{StepUuid: step.WorkflowStepUUID, Name: step.Name, State: taskerv1.StepState(state),
			Attempt: int32(step.Attempts)}
		if err := f.update(taskerv1.TaskStatusUpdate_UPDATE_TYPE_STEP_STATE_CHANGE, change, nil); err != nil {
			return err
		}
	}
	return nil
}

// conclude sends how the task has ended.
func (f *follower) conclude(ctx context.Context, task *client.Task) error {
	switch task.Status {
	case "complete", "resolved_manually":
		return f.update(taskerv1.TaskStatusUpdate_UPDATE_TYPE_TASK_COMPLETE, nil, nil)
	case "cancelled":
		message := "The task was cancelled"
		return f.update(taskerv1.TaskStatusUpdate_UPDATE_TYPE_TASK_ERROR, nil, &message)
	}
	task, err := f.look(ctx, url.Values{"include": {client.IncludeResults}})
	if err != nil {
		return err
	}
	message := "The task has failed"
	for i := range task.Steps {
		if failure, failed := task.Errors[task.Steps[i].Name]; failed {
			message = fmt.Sprintf("Step %s has failed: %s", task.Steps[i].Name, failure.Message)
			break
		}
	}
	return f.update(taskerv1.TaskStatusUpdate_UPDATE_TYPE_TASK_ERROR, nil, &message)
}

func (f *follower) update(kind taskerv1.TaskStatusUpdate_UpdateType, step *taskerv1.StepUpdate, message *string) error {
	state := taskerv1.TaskState(transcode.EnumNumber(taskerv1.TaskState(0).Descriptor(), f.state))
	return f.send(&taskerv1.TaskStatusUpdate{UpdateType: kind, Timestamp: timestamppb.Now(), TaskState: &state,
		StepUpdate: step, ErrorMessage: message})
}
