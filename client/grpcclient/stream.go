package grpcclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/lifecycle"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// The wait before a lost stream is opened again, where the server does not say how long; it
// doubles up to a bound, and restarts with an update.
const (
	firstDelay = 100 * time.Millisecond
	lastDelay  = 5 * time.Second
)

// StreamTaskStatus follows a task to its end: its states and, if that is asked for, those of
// its steps. A stream that breaks, or that the server ends (UNAVAILABLE), is opened again
// after the server's retry-after; what was received already is not delivered again. The sequence
// ends after the end of the task, or with an error: of ctx, or a [client.Error].
func (t *Transport) StreamTaskStatus(ctx context.Context, task string, steps bool) iter.Seq2[*taskerv1.TaskStatusUpdate, error] {
	return func(yield func(*taskerv1.TaskStatusUpdate, error) bool) {
		f := &following{t: t, in: &taskerv1.StreamTaskStatusRequest{TaskUuid: task, IncludeSteps: steps}, yield: yield, steps: map[string]string{}}
		for {
			err := f.follow(ctx)
			if err == nil {
				return
			}
			if wait, again := f.retry(err); again {
				err = lifecycle.Pause(ctx, wait)
			}
			if err != nil {
				yield(nil, cmp.Or(context.Cause(ctx), err))
				return
			}
		}
	}
}

// following is a task that is followed over any number of streams.
type following struct {
	t     *Transport
	in    *taskerv1.StreamTaskStatusRequest
	yield func(*taskerv1.TaskStatusUpdate, error) bool
	state *taskerv1.TaskState // the latest
	steps map[string]string   // by step: the latest
	tries int                 // since the last update
}

// follow reads one stream; nil: the task has ended, or the caller has stopped.
func (f *following) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx, sent := f.t.prepared(ctx)
	stream, err := taskerv1.NewTaskServiceClient(f.t.conn).StreamTaskStatus(ctx, f.in)
	if err != nil {
		return failureOf(ctx, err, nil, sent.Load())
	}
	for {
		update, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return failureOf(ctx, err, trailer(stream), sent.Load())
		}
		f.tries = 0
		if !f.isNew(update) {
			continue
		}
		if !f.yield(update, nil) {
			return nil
		}
	}
}

func trailer(stream grpc.ClientStream) metadata.MD {
	header, err := stream.Header()
	if err != nil {
		header = nil
	}
	return metadata.Join(header, stream.Trailer())
}

// isNew notes an update, unless another stream has brought it.
func (f *following) isNew(u *taskerv1.TaskStatusUpdate) bool {
	switch u.GetUpdateType() {
	case taskerv1.TaskStatusUpdate_UPDATE_TYPE_TASK_STATE_CHANGE:
		known := f.state != nil && *f.state == u.GetTaskState()
		f.state = u.TaskState
		return !known
	case taskerv1.TaskStatusUpdate_UPDATE_TYPE_STEP_STATE_CHANGE:
		step := u.GetStepUpdate()
		now := fmt.Sprint(step.GetState(), step.GetAttempt())
		known := f.steps[step.GetStepUuid()] == now
		f.steps[step.GetStepUuid()] = now
		return !known
	}
	return true
}

// retry is how long to wait before another stream; false: none would be better.
func (f *following) retry(err error) (wait time.Duration, again bool) {
	f.tries++
	var refusal *client.Error
	if errors.As(err, &refusal) && refusal.Status != http.StatusServiceUnavailable {
		return 0, false
	}
	if refusal != nil && refusal.RetryAfter > 0 {
		return refusal.RetryAfter, true
	}
	d := min(firstDelay<<min(f.tries-1, 10), lastDelay)
	return d/2 + rand.N(d/2+1), true // #nosec G404 -- jitter
}
