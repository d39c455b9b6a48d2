package grpc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/transcode"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// stepService shows steps and acts on them.
type stepService struct {
	taskerv1.UnimplementedStepServiceServer
	*Server
}

// GetStep implements taskerv1.StepServiceServer.
func (s stepService) GetStep(ctx context.Context, r *taskerv1.GetStepRequest) (*taskerv1.GetStepResponse, error) {
	return askField(ctx, s.Server, call{path: []string{r.GetTaskUuid(), r.GetStepUuid()}}, &taskerv1.GetStepResponse{}, "step")
}

// ListSteps implements taskerv1.StepServiceServer.
func (s stepService) ListSteps(ctx context.Context, r *taskerv1.ListStepsRequest) (*taskerv1.ListStepsResponse, error) {
	steps, err := s.steps(ctx, r.GetTaskUuid())
	if err != nil {
		return nil, err
	}
	count := len(steps)
	return &taskerv1.ListStepsResponse{Steps: steps,
		Pagination: &taskerv1.PaginationResponse{Total: int64(count), Count: int32(count)}}, nil
}

// ResolveStep implements taskerv1.StepServiceServer.
func (s stepService) ResolveStep(ctx context.Context,
	r *taskerv1.ResolveStepRequest) (*taskerv1.ResolveStepResponse, error) {
	action, err := stepAction(r)
	if err != nil {
		return nil, err
	}
	c := call{path: []string{r.GetTaskUuid(), r.GetStepUuid()}, body: action}
	return askField(ctx, s.Server, c, &taskerv1.ResolveStepResponse{}, "step")
}

func stepAction(r *taskerv1.ResolveStepRequest) (a client.StepAction, err error) {
	a = client.StepAction{ActionType: transcode.EnumName(r.GetActionType()), Reason: r.GetReason()}
	switch r.GetActionType() {
	case taskerv1.StepManualActionType_STEP_MANUAL_ACTION_TYPE_RESET_FOR_RETRY:
		a.ResetBy = r.GetPerformedBy()
	case taskerv1.StepManualActionType_STEP_MANUAL_ACTION_TYPE_RESOLVE_MANUALLY:
		a.ResolvedBy = r.GetPerformedBy()
	case taskerv1.StepManualActionType_STEP_MANUAL_ACTION_TYPE_COMPLETE_MANUALLY:
		a.CompletedBy = r.GetPerformedBy()
		a.CompletionData, err = completion(r)
	default:
		err = status.Error(codes.InvalidArgument, "Action type must be specified")
	}
	return a, err
}

func completion(r *taskerv1.ResolveStepRequest) (*client.CompletionData, error) {
	if r.GetResult() == nil {
		return nil, status.Error(codes.InvalidArgument, "Result is required to complete a step manually")
	}
	result, err := document("result", r.GetResult())
	if err != nil {
		return nil, err
	}
	data := &client.CompletionData{Result: result}
	if r.GetMetadata() != nil {
		if data.Metadata, err = document("metadata", r.GetMetadata()); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// GetStepAudit implements taskerv1.StepServiceServer.
func (s stepService) GetStepAudit(ctx context.Context,
	r *taskerv1.GetStepAuditRequest) (*taskerv1.GetStepAuditResponse, error) {
	c := call{path: []string{r.GetTaskUuid(), r.GetStepUuid()}}
	return askField(ctx, s.Server, c, &taskerv1.GetStepAuditResponse{}, "audit_records")
}
