package grpcclient

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/tracing"
)

// statuses are those of HTTP for servers that do not tell theirs, and the codes of REST.
var statuses = map[codes.Code]struct {
	status int
	code   string
}{
	codes.InvalidArgument:   {http.StatusBadRequest, "BAD_REQUEST"},
	codes.Unauthenticated:   {http.StatusUnauthorized, "UNAUTHORIZED"},
	codes.PermissionDenied:  {http.StatusForbidden, "FORBIDDEN"},
	codes.NotFound:          {http.StatusNotFound, "NOT_FOUND"},
	codes.Unimplemented:     {http.StatusNotFound, "NOT_FOUND"},
	codes.AlreadyExists:     {http.StatusConflict, "CONFLICT"},
	codes.DeadlineExceeded:  {http.StatusGatewayTimeout, "TIMEOUT"},
	codes.ResourceExhausted: {http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE"},
	codes.Unavailable:       {http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE"},
}

// failureOf converts the failure of an rpc: to a refusal, or to what says that no answer
// came, and whether anything was sent.
func failureOf(ctx context.Context, err error, md metadata.MD, sent bool) error {
	s, ok := status.FromError(err)
	refusal := refusalOf(s, md)
	switch told := refusal.Code != ""; {
	case ctx.Err() != nil && !told:
		return ctx.Err()
	case !ok, s.Code() == codes.Canceled && !told:
		return &net.OpError{Op: "read", Net: "grpc", Err: err}
	case s.Code() == codes.Unavailable && !told && refusal.RetryAfter == 0:
		op := "read"
		if !sent {
			op = "dial"
		}
		return &net.OpError{Op: op, Net: "grpc", Err: errors.New(s.Message())}
	}
	known, ok := statuses[s.Code()]
	if !ok {
		known.status, known.code = http.StatusInternalServerError, "INTERNAL_ERROR"
	}
	refusal.Status, refusal.Code = cmp.Or(refusal.Status, known.status), cmp.Or(refusal.Code, known.code)
	return refusal
}

// refusalOf reads the details of a failure.
func refusalOf(s *status.Status, md metadata.MD) *client.Error {
	e := &client.Error{Message: s.Message()}
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			e.Code, e.TaskUUID, e.RequestID = d.GetReason(), d.GetMetadata()["task_uuid"], d.GetMetadata()["request_id"]
			e.Status, _ = strconv.Atoi(d.GetMetadata()["http_status"])
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	if id := md.Get("x-request-id"); e.RequestID == "" && len(id) > 0 {
		e.RequestID = id[0]
	}
	if after := md.Get("retry-after"); e.RetryAfter == 0 && len(after) > 0 {
		seconds, _ := strconv.ParseUint(after[0], 10, 31) // a text that is no number is none
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	if e.Code == "BACKPRESSURE" || e.Code == "CIRCUIT_BREAKER_OPEN" {
		e.Message = strings.TrimPrefix(e.Message, "Backpressure active: ")
	}
	return e
}

// sending notes when the headers of an rpc are sent, which is how a call that cannot have
// arrived is known.
type sending struct{}

type sentKey struct{}

// prepared adds the credentials to an rpc; sent says afterwards whether it may have
// arrived.
func (t *Transport) prepared(ctx context.Context) (_ context.Context, sent *atomic.Bool) {
	sent = &atomic.Bool{}
	ctx = metadata.AppendToOutgoingContext(ctx, t.metadata...)
	if traceparent, tracestate := tracing.Traceparent(ctx); traceparent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", traceparent, "tracestate", tracestate) // an empty one is as good as none
	}
	return context.WithValue(ctx, sentKey{}, sent), sent
}

// TagRPC implements stats.Handler.
func (sending) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (sending) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, is := s.(*stats.OutHeader); !is {
		return
	}
	if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
		sent.Store(true)
	}
}

// TagConn implements stats.Handler.
func (sending) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (sending) HandleConn(context.Context, stats.ConnStats) {}
