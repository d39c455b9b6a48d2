package grpcclient_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/grpcclient"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const id = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10"

// daemon is a server of tasks that answers as it is told.
type daemon struct {
	taskerv1.UnimplementedTaskServiceServer
	mu      sync.Mutex
	errs    []error // one after the other, then success
	seen    []metadata.MD
	streams [][]*taskerv1.TaskStatusUpdate // of the streams, one after the other
}

func (d *daemon) next(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	md, _ := metadata.FromIncomingContext(ctx)
	d.seen = append(d.seen, md)
	if len(d.errs) == 0 {
		return nil
	}
	err := d.errs[0]
	d.errs = d.errs[1:]
	return err
}

// GetTask implements taskerv1.TaskServiceServer.
func (d *daemon) GetTask(ctx context.Context, r *taskerv1.GetTaskRequest) (*taskerv1.GetTaskResponse, error) {
	return &taskerv1.GetTaskResponse{Task: &taskerv1.Task{TaskUuid: r.GetTaskUuid(), State: taskerv1.TaskState_TASK_STATE_COMPLETE}}, d.next(ctx)
}

// CreateTask implements taskerv1.TaskServiceServer.
func (d *daemon) CreateTask(ctx context.Context, _ *taskerv1.CreateTaskRequest) (*taskerv1.CreateTaskResponse, error) {
	return &taskerv1.CreateTaskResponse{Task: &taskerv1.Task{TaskUuid: id}}, d.next(ctx)
}

// StreamTaskStatus implements taskerv1.TaskServiceServer.
func (d *daemon) StreamTaskStatus(_ *taskerv1.StreamTaskStatusRequest, to grpc.ServerStreamingServer[taskerv1.TaskStatusUpdate]) error {
	d.mu.Lock()
	updates := d.streams[0]
	d.streams = d.streams[1:]
	d.mu.Unlock()
	for _, update := range updates {
		if err := to.Send(update); err != nil {
			return err
		}
	}
	return d.next(to.Context())
}

// served starts a daemon and returns its address.
func served(t *testing.T, d *daemon) string {
	t.Helper()
	at, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	taskerv1.RegisterTaskServiceServer(s, d)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(at) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-ended)
	})
	return at.Addr().String()
}

func connected(t *testing.T, cfg client.Config) *grpcclient.Transport {
	t.Helper()
	over, err := grpcclient.New(cfg, grpcclient.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, over.Close()) })
	return over
}

func failed(code codes.Code, details ...protoadapt.MessageV1) error {
	s, err := status.New(code, "text").WithDetails(details...)
	if err != nil {
		return err
	}
	return s.Err()
}

func TestCredentialsAndRetries(t *testing.T) {
	t.Parallel()
	d := &daemon{errs: []error{failed(codes.Unavailable, &errdetails.ErrorInfo{Reason: "SERVICE_UNAVAILABLE"}), failed(codes.Internal)}}
	cfg := client.Config{BaseURL: "http://" + served(t, d), Token: "t", APIKey: "k", APIKeyHeader: "X-Key"}
	cfg.Transport = connected(t, cfg)
	c := client.New(cfg)
	task, err := c.Task(t.Context(), id, 0)
	require.NoError(t, err, "the third attempt")
	require.Equal(t, id, task.TaskUUID)
	require.Len(t, d.seen, 3)
	require.Equal(t, []string{"Bearer t"}, d.seen[0].Get("authorization"))
	require.Equal(t, []string{"k"}, d.seen[0].Get("x-key"))

	d.errs = []error{failed(codes.Internal)}
	_, err = c.CreateTask(t.Context(), client.TaskRequest{Name: "n", Version: "1"})
	require.Error(t, err, "it may have created one")
	require.Len(t, d.seen, 4)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	info := func(reason, httpStatus string) *errdetails.ErrorInfo {
		return &errdetails.ErrorInfo{Reason: reason, Metadata: map[string]string{"http_status": httpStatus, "task_uuid": id, "request_id": "r"}}
	}
	for name, tt := range map[string]struct {
		err  error
		want client.Error
	}{
		"told": {failed(codes.InvalidArgument, info("UNPROCESSABLE_ENTITY", "422"), &errdetails.RetryInfo{RetryDelay: durationpb.New(2 * time.Second)}),
			client.Error{Status: 422, Code: "UNPROCESSABLE_ENTITY", Message: "text", TaskUUID: id, RequestID: "r", RetryAfter: 2 * time.Second}},
		"not told": {failed(codes.NotFound), client.Error{Status: 404, Code: "NOT_FOUND", Message: "text"}},
		"unknown":  {failed(codes.DataLoss), client.Error{Status: 500, Code: "INTERNAL_ERROR", Message: "text"}},
		"too busy": {failed(codes.Unavailable, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)}),
			client.Error{Status: 503, Code: "SERVICE_UNAVAILABLE", Message: "text", RetryAfter: time.Second}},
	} {
		d := &daemon{errs: []error{tt.err}}
		over := connected(t, client.Config{BaseURL: "http://" + served(t, d)})
		_, err := over.Call(t.Context(), "GET", []string{"v1", "tasks", id}, nil, nil)
		var refused *client.Error
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, tt.want, *refused, name)
	}
}

// Whether anything was sent decides what is tried again.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	gone, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	over := connected(t, client.Config{BaseURL: "http://" + gone.Addr().String()})
	_, err = over.Call(t.Context(), "POST", []string{"v1", "tasks"}, nil, []byte(`{}`))
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "dial", op.Op)

	d := &daemon{errs: []error{failed(codes.Unavailable)}}
	over = connected(t, client.Config{BaseURL: "http://" + served(t, d)})
	_, err = over.Call(t.Context(), "POST", []string{"v1", "tasks"}, nil, []byte(`{}`))
	require.ErrorAs(t, err, &op)
	require.Equal(t, "read", op.Op, "a daemon may have done it")

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = over.Call(ended, "POST", []string{"v1", "tasks"}, nil, []byte(`{}`))
	require.ErrorIs(t, err, context.Canceled)
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"", "localhost:9190", "http://host:1/path", "ftp://host", "http://u:secret@host:x"} {
		_, err := grpcclient.New(client.Config{BaseURL: at}, grpcclient.Options{})
		require.ErrorContains(t, err, "invalid base URL", at)
		require.NotContains(t, err.Error(), "secret")
	}
	over, err := grpcclient.New(client.Config{BaseURL: "https://host:1"}, grpcclient.Options{})
	require.NoError(t, err)
	require.NoError(t, over.Close())
}

func state(s taskerv1.TaskState) *taskerv1.TaskStatusUpdate {
	return &taskerv1.TaskStatusUpdate{UpdateType: taskerv1.TaskStatusUpdate_UPDATE_TYPE_TASK_STATE_CHANGE, TaskState: &s}
}

func step(name string, s taskerv1.StepState) *taskerv1.TaskStatusUpdate {
	return &taskerv1.TaskStatusUpdate{UpdateType: taskerv1.TaskStatusUpdate_UPDATE_TYPE_STEP_STATE_CHANGE,
		StepUpdate: &taskerv1.StepUpdate{StepUuid: name, State: s, Attempt: 1}}
}

// A stream that the server ends is opened again, when the server says, and brings nothing
// twice.
func TestATaskIsFollowedOverSeveralStreams(t *testing.T) {
	t.Parallel()
	running, ended := state(taskerv1.TaskState_TASK_STATE_STEPS_IN_PROCESS), state(taskerv1.TaskState_TASK_STATE_COMPLETE)
	end := &taskerv1.TaskStatusUpdate{UpdateType: taskerv1.TaskStatusUpdate_UPDATE_TYPE_TASK_COMPLETE, TaskState: ended.TaskState}
	begun, done := step("a", taskerv1.StepState_STEP_STATE_IN_PROGRESS), step("a", taskerv1.StepState_STEP_STATE_COMPLETE)
	soon := failed(codes.Unavailable, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
	d := &daemon{streams: [][]*taskerv1.TaskStatusUpdate{{running, begun}, {running, begun}, {running, done, ended, end}},
		errs: []error{soon, failed(codes.Unavailable)}}
	over := connected(t, client.Config{BaseURL: "http://" + served(t, d)})
	var kinds []string
	for update, err := range over.StreamTaskStatus(t.Context(), id, true) {
		require.NoError(t, err)
		kinds = append(kinds, update.GetUpdateType().String()[len("UPDATE_TYPE_"):])
	}
	require.Equal(t, []string{"TASK_STATE_CHANGE", "STEP_STATE_CHANGE", "STEP_STATE_CHANGE", "TASK_STATE_CHANGE", "TASK_COMPLETE"}, kinds)

	d.streams, d.errs = [][]*taskerv1.TaskStatusUpdate{nil}, []error{failed(codes.NotFound)}
	for _, err := range over.StreamTaskStatus(t.Context(), id, false) {
		require.True(t, client.IsNotFound(err))
	}
	d.streams, d.errs = [][]*taskerv1.TaskStatusUpdate{{running}}, []error{failed(codes.Unavailable, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Hour)})}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	enough := errors.New("enough")
	for _, err := range over.StreamTaskStatus(ctx, id, false) {
		if err != nil {
			require.ErrorIs(t, err, enough)
		}
		cancel(enough)
	}
	d.streams = [][]*taskerv1.TaskStatusUpdate{{running, ended}}
	for _, err := range over.StreamTaskStatus(t.Context(), id, false) {
		require.NoError(t, err)
		break
	}
}
