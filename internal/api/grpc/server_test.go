package grpc

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/transcode"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

const id = "019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10"

// served starts an orchestrator's server over a fake.
func served(t *testing.T, f *fake, change ...func(*Config)) (*Server, *grpc.ClientConn) {
	t.Helper()
	cfg := f.config()
	for _, c := range change {
		c(&cfg)
	}
	s, err := NewOrchestrator(cfg, f)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	require.NoError(t, s.Start(t.Context()), "a second time")
	over, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, over.Close())
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, s.Stop(ctx))
		require.ErrorIs(t, s.Start(ctx), lifecycle.ErrStopped)
	})
	return s, over
}

// TestFailures has every status of REST.
func TestFailures(t *testing.T) {
	t.Parallel()
	get := func(ctx context.Context, over *grpc.ClientConn) error {
		_, err := taskerv1.NewTaskServiceClient(over).GetTask(ctx, &taskerv1.GetTaskRequest{TaskUuid: id})
		return err
	}
	create := func(ctx context.Context, over *grpc.ClientConn) error {
		_, err := taskerv1.NewTaskServiceClient(over).CreateTask(ctx, &taskerv1.CreateTaskRequest{})
		return err
	}
	for name, tt := range map[string]struct {
		call    func(context.Context, *grpc.ClientConn) error
		status  int
		code    string // of REST
		want    codes.Code
		message string
	}{
		"validation":         {get, 400, "BAD_REQUEST", codes.InvalidArgument, "text"},
		"not the right type": {create, 422, "UNPROCESSABLE_ENTITY", codes.InvalidArgument, "text"},
		"no credentials":     {get, 401, "UNAUTHORIZED", codes.Unauthenticated, "text"},
		"no permission":      {get, 403, "FORBIDDEN", codes.PermissionDenied, "text"},
		"no such task":       {get, 404, "NOT_FOUND", codes.NotFound, "text"},
		"no such template":   {create, 404, "NOT_FOUND", codes.InvalidArgument, "text"},
		"duplicate":          {create, 409, "CONFLICT", codes.AlreadyExists, "text"},
		"too long":           {get, 504, "TIMEOUT", codes.DeadlineExceeded, "text"},
		"too large":          {create, 413, "PAYLOAD_TOO_LARGE", codes.ResourceExhausted, "text"},
		"quota":              {create, 429, "QUOTA_EXCEEDED", codes.ResourceExhausted, "text"},
		"throttle":           {create, 429, "THROTTLED", codes.ResourceExhausted, "text"},
		"backpressure":       {create, 503, "BACKPRESSURE", codes.Unavailable, "Backpressure active: text"},
		"breaker":            {get, 503, "CIRCUIT_BREAKER_OPEN", codes.Unavailable, "Backpressure active: text"},
		"unavailable":        {get, 503, "SERVICE_UNAVAILABLE", codes.Unavailable, "text"},
		"database":           {get, 500, "DATABASE_ERROR", codes.Internal, "Internal server error"},
		"unheard of":         {get, 418, "TEAPOT", codes.Internal, "Internal server error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(envelopeOf(tt.code, "text"))
			f.status = tt.status
			f.header.Set("Retry-After", "7")
			_, over := served(t, f)
			err := tt.call(t.Context(), over)
			require.Equal(t, tt.want, status.Code(err))
			require.Equal(t, tt.message, status.Convert(err).Message())
			details := status.Convert(err).Details()
			require.Len(t, details, 2)
			info, _ := details[0].(*errdetails.ErrorInfo)
			require.Equal(t, []string{tt.code, "tasker", "r-1", "t-1"},
				[]string{info.GetReason(), info.GetDomain(), info.GetMetadata()["request_id"], info.GetMetadata()["task_uuid"]})
			retry, _ := details[1].(*errdetails.RetryInfo)
			require.Equal(t, 7*time.Second, retry.GetRetryDelay().AsDuration())
		})
	}
}

// Failures of a worker are flat, and what is neither has the text of its status.
func TestShapesOfFailures(t *testing.T) {
	t.Parallel()
	require.Equal(t, detail{Code: "SERVICE_UNAVAILABLE", Message: "m"}, detailOf([]byte(`{"error":"service_unavailable","message":"m"}`)))
	require.Equal(t, detail{}, detailOf([]byte(`nothing`)))
	a := &answer{status: http.StatusRequestEntityTooLarge}
	require.Equal(t, "Request Entity Too Large", messageFor(codes.ResourceExhausted, a, detail{}))
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	f := newFake(`{"task_uuid":"` + id + `"}`)
	_, over := served(t, f)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "bearer x", "x-api-key", "k", "x-other",
		"no", "x-request-id", "mine")
	var header metadata.MD
	_, err := taskerv1.NewTaskServiceClient(over).GetTask(ctx, &taskerv1.GetTaskRequest{TaskUuid: id}, grpc.Header(&header))
	require.NoError(t, err)
	require.Equal(t, []string{"r-1"}, header.Get("x-request-id"), "that of REST, which the log has")
	sent := f.last()
	require.Equal(t, []string{"bearer x", "k", ""}, []string{sent.Header.Get("Authorization"),
		sent.Header.Get("X-Api-Key"), sent.Header.Get("X-Other")})
	require.Equal(t, "/v1/tasks/"+id, sent.URL.Path)
	_, ok := sent.Context().Deadline()
	require.True(t, ok)
}

// A panic, and an answer that is not understood, are failures of one rpc only.
func TestPanicsAndNonsense(t *testing.T) {
	t.Parallel()
	f := newFake()
	count := telemetry.NewMetrics(prometheus.NewRegistry())
	_, over := served(t, f, func(c *Config) { c.Telemetry = count })
	tasks := taskerv1.NewTaskServiceClient(over)
	f.handler = func(http.ResponseWriter, *http.Request) { panic("out of order") }
	_, err := tasks.GetTask(t.Context(), &taskerv1.GetTaskRequest{TaskUuid: id})
	require.Equal(t, codes.Internal, status.Code(err))
	require.Equal(t, "Internal server error", status.Convert(err).Message())
	for _, nonsense := range []string{`[]`, `{"total_steps":"many"}`, `{"created_at":"yesterday"}`, `{"tags":{}}`} {
		f.handler = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, nonsense) }
		_, err = tasks.GetTask(t.Context(), &taskerv1.GetTaskRequest{TaskUuid: id})
		require.Equal(t, codes.Internal, status.Code(err), nonsense)
	}
	require.InEpsilon(t, 5, testutil.ToFloat64(count.GRPCRequests.WithLabelValues(taskerv1.TaskService_GetTask_FullMethodName, "Internal")), 0)
	_, err = tasks.CreateTask(t.Context(), &taskerv1.CreateTaskRequest{Reason: new(string), Context: &structpb.Struct{
		Fields: map[string]*structpb.Value{"big": structpb.NewStringValue(string(make([]byte, 1<<20)))}}})
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}

func TestOperationsThatAreNotServed(t *testing.T) {
	t.Parallel()
	f := newFake(`{}`)
	f.absent = []string{transcode.Operations[taskerv1.TaskService_GetTaskSummary_FullMethodName], opTaskContext}
	_, over := served(t, f)
	tasks := taskerv1.NewTaskServiceClient(over)
	_, err := tasks.GetTaskSummary(t.Context(), &taskerv1.GetTaskSummaryRequest{TaskUuid: id})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	_, err = tasks.GetTask(t.Context(), &taskerv1.GetTaskRequest{TaskUuid: id, IncludeContext: true})
	require.Equal(t, codes.Unimplemented, status.Code(err))
	_, err = tasks.GetTask(t.Context(), &taskerv1.GetTaskRequest{TaskUuid: id})
	require.NoError(t, err)
}

// A stream is bounded in number and in life, and ends when the daemon drains.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFake(`{"status":"pending","steps":[]}`, `{"status":"steps_in_process","steps":[]}`)
	count := telemetry.NewMetrics(prometheus.NewRegistry())
	s, over := served(t, f, func(c *Config) { c.MaxTaskStreams, c.Telemetry = 1, count })
	tasks := taskerv1.NewTaskServiceClient(over)
	first, err := tasks.StreamTaskStatus(t.Context(), &taskerv1.StreamTaskStatusRequest{TaskUuid: id})
	require.NoError(t, err)
	for _, want := range []taskerv1.TaskState{taskerv1.TaskState_TASK_STATE_PENDING, taskerv1.TaskState_TASK_STATE_STEPS_IN_PROCESS} {
		update, err := first.Recv()
		require.NoError(t, err)
		require.Equal(t, want, update.GetTaskState())
	}
	require.InEpsilon(t, 1, testutil.ToFloat64(count.GRPCStreams), 0)
	second, err := tasks.StreamTaskStatus(t.Context(), &taskerv1.StreamTaskStatusRequest{TaskUuid: id})
	require.NoError(t, err)
	_, err = second.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Equal(t, []string{"5"}, second.Trailer().Get("retry-after"))
	require.InEpsilon(t, 1, testutil.ToFloat64(count.GRPCStreamsRefused), 0)
	s.Drain()
	_, err = first.Recv()
	require.Equal(t, "The daemon is shutting down", status.Convert(err).Message())

	_, over = served(t, newFake(`{"status":"pending","steps":[]}`), func(c *Config) { c.StreamLife = 30 * time.Millisecond })
	old, err := taskerv1.NewTaskServiceClient(over).StreamTaskStatus(t.Context(), &taskerv1.StreamTaskStatusRequest{TaskUuid: id})
	require.NoError(t, err)
	for err == nil {
		_, err = old.Recv()
	}
	require.Contains(t, status.Convert(err).Message(), "has reached its age")
}

// One principal does not get every stream.
func TestAPrincipalHasItsShareOfTheStreams(t *testing.T) {
	t.Parallel()
	count := telemetry.NewMetrics(prometheus.NewRegistry())
	_, over := served(t, newFake(`{"status":"pending","steps":[]}`), func(c *Config) { c.MaxTaskStreams, c.Share, c.Telemetry = 2, 50, count })
	follow := func(key string) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", key)
		stream, err := taskerv1.NewTaskServiceClient(over).StreamTaskStatus(ctx, &taskerv1.StreamTaskStatusRequest{TaskUuid: id})
		require.NoError(t, err)
		_, err = stream.Recv()
		return err
	}
	require.NoError(t, follow("ana"))
	refused := follow("ana")
	require.Equal(t, codes.ResourceExhausted, status.Code(refused))
	require.Contains(t, refused.Error(), `"api_key ana" uses its share of the task streams: 1 of 2`)
	require.InEpsilon(t, 1, testutil.ToFloat64(count.SharesRefused.WithLabelValues("task_streams")), 0)
	require.NoError(t, follow("ben"))
}

// TestEndsOfStreams: the last message says how the task has ended.
func TestEndsOfStreams(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{"complete": "", "resolved_manually": "", "cancelled": "The task was cancelled",
		"error": "Step b has failed: out of stock"} {
		f := newFake(`{"status":"` + state + `","steps":[{"name":"a","workflow_step_uuid":"1","current_state":"complete","attempts":1},
			{"name":"b","workflow_step_uuid":"2","current_state":"error","attempts":3}],"errors":{"b":{"message":"out of stock"}}}`)
		_, over := served(t, f)
		stream, err := taskerv1.NewTaskServiceClient(over).StreamTaskStatus(t.Context(),
			&taskerv1.StreamTaskStatusRequest{TaskUuid: id, IncludeSteps: true})
		require.NoError(t, err)
		var updates []*taskerv1.TaskStatusUpdate
		for err == nil {
			var update *taskerv1.TaskStatusUpdate
			if update, err = stream.Recv(); err == nil {
				updates = append(updates, update)
			}
		}
		require.ErrorIs(t, err, io.EOF)
		require.Len(t, updates, 4, "%s: the state, two steps and the end", state)
		require.EqualValues(t, 3, updates[2].GetStepUpdate().GetAttempt())
		require.Equal(t, want, updates[3].GetErrorMessage())
		kind := taskerv1.TaskStatusUpdate_UPDATE_TYPE_TASK_ERROR
		if want == "" {
			kind = taskerv1.TaskStatusUpdate_UPDATE_TYPE_TASK_COMPLETE
		}
		require.Equal(t, kind, updates[3].GetUpdateType())
	}
}

// TestHealthIsReadiness: what a supervisor asks over gRPC never contradicts /health/ready.
func TestHealthIsReadiness(t *testing.T) {
	t.Parallel()
	f := newFake("{}")
	s, over := served(t, f)
	check := func(service string) (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
		answer, err := grpc_health_v1.NewHealthClient(over).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		return answer.GetStatus(), err
	}
	for _, want := range []struct {
		status int
		health grpc_health_v1.HealthCheckResponse_ServingStatus
	}{
		{http.StatusOK, grpc_health_v1.HealthCheckResponse_SERVING},
		{http.StatusServiceUnavailable, grpc_health_v1.HealthCheckResponse_NOT_SERVING},
		{http.StatusOK, grpc_health_v1.HealthCheckResponse_SERVING},
	} {
		f.mu.Lock()
		f.status = want.status
		f.mu.Unlock()
		for _, service := range []string{"", "tasker.v1.TaskService"} {
			found, err := check(service)
			require.NoError(t, err)
			require.Equal(t, want.health, found)
		}
	}
	require.Equal(t, "/health/ready", f.seen[0].URL.Path)
	_, err := check("tasker.v1.Other")
	require.Equal(t, codes.NotFound, status.Code(err))
	s.Drain()
	found, err := check("")
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, found)
}

// Stop waits for rpcs as long as its context allows, and not for those who watch.
func TestStop(t *testing.T) {
	t.Parallel()
	f := newFake()
	entered := make(chan struct{})
	f.handler = func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health/ready" {
			return
		}
		close(entered)
		<-r.Context().Done()
	}
	s, over := served(t, f)
	watch, err := grpc_health_v1.NewHealthClient(over).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := taskerv1.NewTaskServiceClient(over).GetTask(t.Context(), &taskerv1.GetTaskRequest{TaskUuid: id})
		ended <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, s.Stop(ctx), "1 rpcs were still under way")
	require.Error(t, <-ended)
	for err == nil {
		_, err = watch.Recv()
	}
	require.NotErrorIs(t, err, io.EOF)
}

func TestAnAddressInUse(t *testing.T) {
	t.Parallel()
	s, _ := served(t, newFake())
	f := newFake()
	cfg := f.config()
	cfg.Address = s.Addr().String()
	other, err := NewWorker(cfg, f)
	require.NoError(t, err)
	require.ErrorContains(t, other.Start(t.Context()), "another process uses this address")
	require.NoError(t, other.Stop(t.Context()))
	_, err = NewWorker(Config{}, f)
	require.ErrorContains(t, err, "configure gRPC: invalid RequestTimeout")
	_, err = NewWorker(cfg, nil)
	require.Error(t, err)
}

// Serving that ends by itself ends the daemon.
func TestServingEnds(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	f := newFake()
	cfg := f.config()
	cfg.OnFatal = func(err error) { failed <- err }
	s, err := NewWorker(cfg, f)
	require.NoError(t, err)
	s.group.Go(func() { s.serve(broken{}) })
	require.ErrorIs(t, <-failed, errBroken)
	require.NoError(t, s.Stop(t.Context()))
}

var errBroken = errors.New("broken")

// broken is a listener that accepts nothing.
type broken struct{ net.Listener }

func (broken) Accept() (net.Conn, error) { return nil, errBroken }
func (broken) Close() error              { return nil }
func (broken) Addr() net.Addr            { return &net.TCPAddr{} }

// TestWatchersHearOfReadiness: not of drains alone.
func TestWatchersHearOfReadiness(t *testing.T) {
	t.Parallel()
	f := newFake("{}")
	s, over := served(t, f, func(c *Config) { c.StreamInterval = 5 * time.Millisecond })
	watch := func(service string) func() grpc_health_v1.HealthCheckResponse_ServingStatus {
		stream, err := grpc_health_v1.NewHealthClient(over).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		return func() grpc_health_v1.HealthCheckResponse_ServingStatus {
			answer, err := stream.Recv()
			require.NoError(t, err)
			return answer.GetStatus()
		}
	}
	next := watch("tasker.v1.TaskService")
	turn := func(status int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.status = status
	}
	turn(http.StatusOK)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, next())
	turn(http.StatusServiceUnavailable)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, next())
	turn(http.StatusOK)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, next())
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN, watch("tasker.v1.Other")())
	s.Drain()
	require.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, next())
}

// TestADrainSendsConnectionsAway: those that are there, and those that come later, without an rpc
// that fails.
func TestADrainSendsConnectionsAway(t *testing.T) {
	t.Parallel()
	f := newFake(`{"task_uuid":"` + id + `"}`)
	var connections atomic.Int64
	s, _ := served(t, f)
	over, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			connections.Add(1)
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}))
	require.NoError(t, err)
	defer func() { require.NoError(t, over.Close()) }()
	ask := func() {
		_, err := taskerv1.NewTaskServiceClient(over).GetTask(t.Context(), &taskerv1.GetTaskRequest{TaskUuid: id})
		require.NoError(t, err)
	}
	for range 100 {
		ask()
	}
	require.EqualValues(t, 1, connections.Load())
	s.Drain()
	for begin := time.Now(); connections.Load() < 4; ask() { // one for each age
		require.Less(t, time.Since(begin), 30*time.Second, "the client keeps its connection")
	}
}
