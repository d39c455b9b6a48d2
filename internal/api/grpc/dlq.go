package grpc

import (
	"context"
	"net/url"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/transcode"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// dlqService shows the dead-letter queue and changes investigations.
type dlqService struct {
	taskerv1.UnimplementedDlqServiceServer
	*Server
}

// ListEntries implements taskerv1.DlqServiceServer.
func (s dlqService) ListEntries(ctx context.Context,
	r *taskerv1.ListDlqEntriesRequest) (*taskerv1.ListDlqEntriesResponse, error) {
	query := url.Values{}
	resolution, err := resolutionOf(r.ResolutionStatus)
	if err != nil {
		return nil, err
	}
	if resolution != nil {
		query.Set("resolution_status", *resolution)
	}
	addNumber(query, "limit", r.Limit)
	addNumber(query, "offset", r.Offset)
	return askField(ctx, s.Server, call{query: query, leaves: true}, &taskerv1.ListDlqEntriesResponse{}, "entries")
}

// resolutionOf is the name of a resolution; nil: none is given.
func resolutionOf(given *taskerv1.DlqResolutionStatus) (*string, error) {
	if given == nil || *given == taskerv1.DlqResolutionStatus_DLQ_RESOLUTION_STATUS_UNSPECIFIED {
		return nil, nil
	}
	name := transcode.EnumName(*given)
	if name == "" {
		return nil, status.Errorf(codes.InvalidArgument, "invalid resolution_status %d: want one of its values", *given)
	}
	return &name, nil
}

// GetEntryByTask implements taskerv1.DlqServiceServer.
func (s dlqService) GetEntryByTask(ctx context.Context,
	r *taskerv1.GetDlqEntryByTaskRequest) (*taskerv1.GetDlqEntryByTaskResponse, error) {
	return askField(ctx, s.Server, call{path: []string{r.GetTaskUuid()}}, &taskerv1.GetDlqEntryByTaskResponse{}, "entry")
}

// UpdateInvestigation implements taskerv1.DlqServiceServer.
func (s dlqService) UpdateInvestigation(ctx context.Context,
	r *taskerv1.UpdateDlqInvestigationRequest) (*taskerv1.UpdateDlqInvestigationResponse, error) {
	update := client.DLQUpdate{ResolutionNotes: r.ResolutionNotes, ResolvedBy: r.ResolvedBy}
	var err error
	if update.ResolutionStatus, err = resolutionOf(r.ResolutionStatus); err != nil {
		return nil, err
	}
	if r.GetMetadata() != nil {
		if update.Metadata, err = document("metadata", r.GetMetadata()); err != nil {
			return nil, err
		}
	}
	c := call{path: []string{r.GetDlqEntryUuid()}, body: update}
	return ask(ctx, s.Server, c, &taskerv1.UpdateDlqInvestigationResponse{})
}

// GetStats implements taskerv1.DlqServiceServer.
func (s dlqService) GetStats(ctx context.Context,
	_ *taskerv1.GetDlqStatsRequest) (*taskerv1.GetDlqStatsResponse, error) {
	return askField(ctx, s.Server, call{}, &taskerv1.GetDlqStatsResponse{}, "stats")
}

// GetInvestigationQueue implements taskerv1.DlqServiceServer.
func (s dlqService) GetInvestigationQueue(ctx context.Context,
	r *taskerv1.GetDlqInvestigationQueueRequest) (*taskerv1.GetDlqInvestigationQueueResponse, error) {
	query := url.Values{}
	addNumber(query, "limit", r.Limit)
	return askField(ctx, s.Server, call{query: query}, &taskerv1.GetDlqInvestigationQueueResponse{}, "entries")
}

// GetStalenessMonitoring implements taskerv1.DlqServiceServer.
func (s dlqService) GetStalenessMonitoring(ctx context.Context,
	r *taskerv1.GetStalenessMonitoringRequest) (*taskerv1.GetStalenessMonitoringResponse, error) {
	query := url.Values{}
	addNumber(query, "limit", r.Limit)
	return askField(ctx, s.Server, call{query: query}, &taskerv1.GetStalenessMonitoringResponse{}, "entries")
}
