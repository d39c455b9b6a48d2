package grpc

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc/pool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/transcode"
	sessionv1 "github.com/tasker-go/tasker/proto/tasker/session/v1"
)

// The operations of a session, which Run calls.
const (
	opOpenSession  = "POST /v1/sessions"
	opSession      = " /v1/sessions/{session}"
	opPoll         = http.MethodPost + opSession + "/poll"
	opReport       = http.MethodPost + opSession + "/reports"
	opProgress     = http.MethodPost + opSession + "/progress"
	opLines        = http.MethodPost + opSession + "/logs"
	opCheckpoint   = http.MethodPost + opSession + "/checkpoint"
	opResult       = http.MethodGet + opSession + "/results"
	opBatchResults = http.MethodGet + opSession + "/batch-results"
	opCloseSession = http.MethodDelete + opSession
)

// sessionRoute is the route of Run. A step that is not held any more is no duplicate of anything.
var sessionRoute = route{operation: opOpenSession, also: []string{opPoll, opReport, opProgress, opLines, opCheckpoint, opResult, opBatchResults, opCloseSession},
	codes: map[int]codes.Code{http.StatusConflict: codes.Aborted}}

// sessionService runs the worker protocol over a stream.
type sessionService struct {
	sessionv1.UnimplementedSessionServiceServer
	*Server
}

const (
	// sessionRequests bounds the requests of one session that are under way; further ones wait.
	sessionRequests = 16
	// drainingPause is between two looks at a session whose daemon drains.
	drainingPause = 50 * time.Millisecond
)

// Run implements sessionv1.SessionServiceServer.
func (s sessionService) Run(stream grpc.BidiStreamingServer[sessionv1.RunRequest, sessionv1.RunResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetOpen() == nil {
		return status.Error(codes.InvalidArgument, "The first request of a session is open")
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	r := &sessionRun{Server: s.Server, ctx: ctx, stream: stream, alive: make(chan struct{}, 1)}
	opened, err := r.open(first)
	if err != nil {
		return err
	}
	s.cfg.Telemetry.GRPCStreams.Inc()
	defer s.cfg.Telemetry.GRPCStreams.Dec()
	work := pool.New().WithContext(ctx).WithCancelOnError().WithFirstError()
	work.Go(func(ctx context.Context) error { return r.tell(ctx, opened.GetMaxWaitMs()) })
	work.Go(r.answerAll)
	s.group.Go(r.receive) // it ends when this function has returned, or before
	err = work.Wait()
	if errors.Is(err, io.EOF) { // the client has ended the session
		_, err = r.ask(stream.Context(), call{operation: opCloseSession, path: r.path})
	}
	return err
}

// sessionRun is one open session.
type sessionRun struct {
	*Server
	ctx      context.Context //nolint:containedctx // of the stream
	path     []string        // the session's id
	stream   grpc.BidiStreamingServer[sessionv1.RunRequest, sessionv1.RunResponse]
	sending  sync.Mutex
	requests chan *sessionv1.RunRequest
	ended    error         // set before requests is closed
	alive    chan struct{} // filled by each request
	told     atomic.Int64  // the last answer that was sent
	stops    atomic.Bool
}

func (r *sessionRun) open(first *sessionv1.RunRequest) (*sessionv1.Opened, error) {
	opened := &sessionv1.Opened{}
	if err := r.callWith(r.ctx, opOpenSession, nil, first.GetOpen(), opened); err != nil {
		return nil, err
	}
	r.path, r.requests = []string{opened.GetSessionId()}, make(chan *sessionv1.RunRequest)
	return opened, r.send(&sessionv1.RunResponse{Id: first.GetId(), Response: &sessionv1.RunResponse_Opened{Opened: opened}})
}

func (r *sessionRun) send(m *sessionv1.RunResponse) error {
	r.sending.Lock()
	defer r.sending.Unlock()
	return r.stream.Send(m)
}

// callWith calls an operation with a message as its body; nil: without.
func (r *sessionRun) callWith(ctx context.Context, operation string, query url.Values, body, into proto.Message) error {
	c := call{operation: operation, path: r.path, query: query}
	if body != nil {
		doc, err := transcode.Encode(body)
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "The request has no form in JSON: %v", err)
		}
		c.body = doc
	}
	_, err := ask(ctx, r.Server, c, into)
	return err
}

// receive hands requests to answerAll until the client sends no more.
func (r *sessionRun) receive() {
	defer close(r.requests)
	for {
		request, err := r.stream.Recv()
		if err != nil {
			r.ended = err
			return
		}
		lifecycle.Nudge(r.alive)
		select {
		case r.requests <- request:
		case <-r.ctx.Done():
			return
		}
	}
}

// answerAll answers requests as they come, some of them at once. It returns why there are no
// more.
func (r *sessionRun) answerAll(ctx context.Context) error {
	work := pool.New().WithMaxGoroutines(sessionRequests).WithErrors().WithFirstError()
	for {
		select {
		case request, more := <-r.requests:
			if !more {
				return cmp.Or(work.Wait(), r.ended)
			}
			work.Go(func() error { return r.answer(ctx, request) })
		case <-ctx.Done():
			return cmp.Or(work.Wait(), context.Cause(ctx))
		}
	}
}

// answer answers one request; the error ends the session's stream.
func (r *sessionRun) answer(ctx context.Context, request *sessionv1.RunRequest) error {
	m := &sessionv1.RunResponse{Id: request.GetId()}
	var err error
	switch of := request.GetRequest().(type) {
	case *sessionv1.RunRequest_Reports:
		out := &sessionv1.Reported{}
		m.Response = &sessionv1.RunResponse_Reported{Reported: out}
		err = r.callWith(ctx, opReport, nil, of.Reports, out)
	case *sessionv1.RunRequest_Checkpoint:
		out := &sessionv1.Saved{}
		m.Response = &sessionv1.RunResponse_Saved{Saved: out}
		err = r.callWith(ctx, opCheckpoint, nil, of.Checkpoint, out)
	case *sessionv1.RunRequest_Progress:
		out := &sessionv1.Noted{}
		m.Response = &sessionv1.RunResponse_Noted{Noted: out}
		err = r.callWith(ctx, opProgress, nil, of.Progress, out)
	case *sessionv1.RunRequest_Lines:
		out := &sessionv1.Noted{}
		m.Response = &sessionv1.RunResponse_Noted{Noted: out}
		err = r.callWith(ctx, opLines, nil, of.Lines, out)
	case *sessionv1.RunRequest_Result:
		out := &sessionv1.Result{}
		m.Response = &sessionv1.RunResponse_Result{Result: out}
		err = r.callWith(ctx, opResult, queryOf(of.Result), nil, out)
	case *sessionv1.RunRequest_BatchResults:
		out := &sessionv1.BatchResults{}
		m.Response = &sessionv1.RunResponse_BatchResults{BatchResults: out}
		err = r.callWith(ctx, opBatchResults, queryOf(of.BatchResults), nil, out)
	case *sessionv1.RunRequest_Stop:
		r.stops.Store(true)
		// It ends the poll under way, whose answer is sent again.
		return r.callWith(ctx, opPoll, r.pollQuery(0), nil, &sessionv1.Told{})
	case nil:
		return nil
	default:
		err = status.Error(codes.InvalidArgument, "The session is open")
	}
	if err != nil {
		failed := status.Convert(err)
		m.Response = &sessionv1.RunResponse_Failure{Failure: &sessionv1.Failure{Code: int32(failed.Code()), Message: failed.Message()}}
	}
	return r.send(m)
}

func queryOf(q *sessionv1.Query) url.Values {
	return url.Values{"fence": {q.GetFence()}, "step": {q.GetStep()}}
}

func (r *sessionRun) pollQuery(waitMS int64) url.Values {
	query := url.Values{"after": {strconv.FormatInt(r.told.Load(), 10)}, "wait": {strconv.FormatInt(waitMS, 10) + "ms"}}
	if r.stops.Load() {
		query.Set("stops", "true")
	}
	return query
}

// tell sends steps and notices. Polls here must not keep a session present whose process is
// frozen: after one without news the next one wants a sign of life.
func (r *sessionRun) tell(ctx context.Context, waitMS int64) error {
	for {
		select {
		case <-r.alive: // it is of the past
		default:
		}
		told := &sessionv1.Told{}
		if err := r.callWith(ctx, opPoll, r.pollQuery(waitMS), nil, told); err != nil {
			return err
		}
		silent := len(told.GetSteps())+len(told.GetCancelled()) == 0
		if !silent || told.GetDraining() {
			if err := r.send(&sessionv1.RunResponse{Response: &sessionv1.RunResponse_Told{Told: told}}); err != nil {
				return err
			}
		}
		r.told.Store(told.GetAnswer())
		switch {
		case told.GetDraining(): // polls are answered at once
			if err := lifecycle.Pause(ctx, drainingPause); err != nil {
				return err
			}
		case silent:
			select {
			case <-r.alive:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}
