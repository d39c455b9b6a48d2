package grpc

import (
	"context"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	sessionv1 "github.com/tasker-go/tasker/proto/tasker/session/v1"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// NewOrchestrator returns the server of an orchestrator.
func NewOrchestrator(cfg Config, operations Operations) (*Server, error) {
	s, err := newServer("orchestrator-grpc", cfg, operations)
	if err != nil {
		return nil, err
	}
	taskerv1.RegisterTaskServiceServer(s.grpc, taskService{Server: s})
	taskerv1.RegisterStepServiceServer(s.grpc, stepService{Server: s})
	taskerv1.RegisterTemplateServiceServer(s.grpc, templateService{Server: s})
	taskerv1.RegisterHealthServiceServer(s.grpc, healthService{Server: s})
	taskerv1.RegisterConfigServiceServer(s.grpc, configService{Server: s})
	taskerv1.RegisterAnalyticsServiceServer(s.grpc, analyticsService{Server: s})
	taskerv1.RegisterDlqServiceServer(s.grpc, dlqService{Server: s})
	if cfg.Sessions {
		sessionv1.RegisterSessionServiceServer(s.grpc, sessionService{Server: s})
	}
	s.finish()
	return s, nil
}

// NewWorker returns the server of a worker.
func NewWorker(cfg Config, operations Operations) (*Server, error) {
	s, err := newServer("worker-grpc", cfg, operations)
	if err != nil {
		return nil, err
	}
	taskerv1.RegisterWorkerConfigServiceServer(s.grpc, workerConfigService{Server: s})
	taskerv1.RegisterWorkerHealthServiceServer(s.grpc, workerHealthService{Server: s})
	taskerv1.RegisterWorkerTemplateServiceServer(s.grpc, workerTemplateService{Server: s})
	sessionv1.RegisterSessionServiceServer(s.grpc, sessionService{Server: s})
	s.finish()
	return s, nil
}

// ask calls an operation whose answer has the keys of the message.
func ask[M proto.Message](ctx context.Context, s *Server, c call, into M) (M, error) {
	body, err := s.ask(ctx, c)
	if err == nil {
		err = convert(ctx, c, body, into, "")
	}
	if err != nil {
		var none M
		return none, err
	}
	return into, nil
}

// askField is ask for an operation whose answer is the content of one field.
func askField[M proto.Message](ctx context.Context, s *Server, c call, into M, field protoreflect.Name) (M, error) {
	body, err := s.ask(ctx, c)
	if err == nil {
		err = convert(ctx, c, body, into, field)
	}
	if err != nil {
		var none M
		return none, err
	}
	return into, nil
}
