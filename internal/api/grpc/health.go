package grpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// readiness is the health of gRPC, which serves where /health/ready says that the daemon can.
type readiness struct {
	*health.Server
	server *Server
}

// Check implements grpc_health_v1.HealthServer.
func (r *readiness) Check(ctx context.Context, in *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	answer, err := r.Server.Check(ctx, in)
	if err != nil || answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return answer, err
	}
	if _, err := r.server.ask(ctx, call{operation: "GET /health/ready"}); err != nil {
		answer = &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}
	}
	return answer, nil
}

// Watch implements grpc_health_v1.HealthServer: it looks in intervals, and at a drain at once. It
// ends when the server stops.
func (r *readiness) Watch(in *grpc_health_v1.HealthCheckRequest, to grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	tick := time.NewTicker(r.server.cfg.StreamInterval)
	defer tick.Stop()
	draining := r.server.draining.Done()
	told := grpc_health_v1.HealthCheckResponse_UNKNOWN // none is told that
	for {
		answer, err := r.Check(to.Context(), in)
		if status.Code(err) == codes.NotFound {
			answer, err = &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN}, nil
		}
		if err == nil && answer.GetStatus() != told {
			told = answer.GetStatus()
			err = to.Send(answer)
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-draining:
			draining = nil
		case <-to.Context().Done():
			return comeBack("The stream has ended")
		}
	}
}
