package grpc

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/transcode"
)

// visit is one rpc. It is used by one goroutine.
type visit struct {
	rpc   string
	route route
	id    string // of the first operation called, which the log has too; empty: none yet
	begin time.Time
}

type visitKey struct{}

// visitOf returns the rpc that ctx belongs to; an empty one outside of rpcs.
func visitOf(ctx context.Context) *visit {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		return v
	}
	return &visit{}
}

// answered notes the id of the first operation called.
func (v *visit) answered(ctx context.Context, h http.Header) {
	if v.id == "" {
		v.identify(ctx, h.Get(headerRequestID))
	}
}

// identify sends the id of the request.
func (v *visit) identify(ctx context.Context, id string) {
	v.id = id
	_ = grpc.SetHeader(ctx, metadata.Pairs(headerRequestID, id)) // nothing is sent before
}

// unary prepares and ends every rpc without a stream.
func (s *Server) unary(ctx context.Context,
	request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	arrived(ctx)
	v := &visit{rpc: info.FullMethod, route: routes[info.FullMethod], begin: time.Now()}
	ctx = context.WithValue(ctx, visitKey{}, v)
	s.calls.Enter()
	defer s.calls.Leave()
	err = lifecycle.Guard(func() (err error) {
		reply, err = handle(ctx, request)
		return err
	})
	return reply, s.end(ctx, v, err)
}

// streaming prepares and ends every stream, those of reflection and health too.
func (s *Server) streaming(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	v := &visit{rpc: info.FullMethod, route: routes[info.FullMethod], begin: time.Now()}
	ctx, cancel := context.WithCancel(context.WithValue(stream.Context(), visitKey{}, v))
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	if v.route.operation == transcode.Reflection { // whose handler asks no operation
		if _, err := s.ask(ctx, call{}); err != nil {
			return s.end(ctx, v, err)
		}
	}
	err := lifecycle.Guard(func() error { return handle(srv, &visited{stream, ctx}) })
	return s.end(ctx, v, err)
}

// visited is a stream with the context of its visit.
type visited struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // the interface of grpc asks for it
}

// Context implements grpc.ServerStream.
func (v *visited) Context() context.Context { return v.ctx }

// end logs and counts an rpc, and returns its error as a status.
func (s *Server) end(ctx context.Context, v *visit, err error) error {
	if v.id == "" {
		v.identify(ctx, uuid.NewString())
	}
	cause := err
	result, ok := status.FromError(err)
	if !ok {
		result = status.New(codes.Internal, internalError)
		if ctx.Err() != nil {
			result = status.FromContextError(ctx.Err())
		}
		err = result.Err()
	}
	sendRetryAfter(ctx, result)
	if result.Code() == codes.Internal {
		s.log.Error("an rpc failed", zap.String("request_id", v.id), zap.String("rpc", v.rpc), zap.Error(cause), lifecycle.StackField(cause))
	} else if line := s.log.Check(zap.DebugLevel, "rpc"); line != nil {
		line.Write(zap.String("request_id", v.id), zap.String("rpc", v.rpc), zap.Stringer("code", result.Code()),
			zap.Int64("duration_ms", time.Since(v.begin).Milliseconds()))
	}
	s.cfg.Telemetry.GRPCRequests.WithLabelValues(v.rpc, result.Code().String()).Inc()
	return err
}

// sendRetryAfter adds the metadata retry-after to a refusal that says when to come back.
func sendRetryAfter(ctx context.Context, s *status.Status) {
	for _, detail := range s.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			md := metadata.Pairs(headerRetryAfter, strconv.FormatInt(retry.GetRetryDelay().GetSeconds(), 10))
			_ = grpc.SetHeader(ctx, md) // a stream may have sent its header
			_ = grpc.SetTrailer(ctx, md)
		}
	}
}
