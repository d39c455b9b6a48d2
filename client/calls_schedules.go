package client

import (
	"context"
	"net/http"
)

// CreateSchedule creates a schedule. A duplicate name is a conflict (see [IsConflict]).
func (c *Client) CreateSchedule(ctx context.Context, r ScheduleRequest) (*Schedule, error) {
	return send[Schedule](ctx, c, http.MethodPost, retryIf(r.DryRun), r, "v1", "schedules")
}

// Schedules lists schedules by namespace and name.
func (c *Client) Schedules(ctx context.Context, o ScheduleListOptions) (*ScheduleList, error) {
	q := parameters{
		"page": o.Page, "per_page": o.PerPage,
		"namespace": o.Namespace, "name": o.Name, "template": o.Template, "paused": o.Paused,
	}
	return get[ScheduleList](ctx, c, q, "v1", "schedules")
}

// Schedule returns a schedule with its next runs.
func (c *Client) Schedule(ctx context.Context, id string) (*Schedule, error) {
	return get[Schedule](ctx, c, nil, "v1", "schedules", id)
}

// UpdateSchedule changes the definition of a schedule.
func (c *Client) UpdateSchedule(ctx context.Context, id string, u ScheduleUpdate) (*Schedule, error) {
	return send[Schedule](ctx, c, http.MethodPatch, retryAlways, u, "v1", "schedules", id)
}

// PauseSchedule pauses a schedule. Pausing again changes actor and reason.
func (c *Client) PauseSchedule(ctx context.Context, id string, why Why) (*Schedule, error) {
	return send[Schedule](ctx, c, http.MethodPost, retryAlways, why, "v1", "schedules", id, "pause")
}

// ResumeSchedule resumes a schedule. Its policy decides about missed runs.
func (c *Client) ResumeSchedule(ctx context.Context, id string, why Why) (*Schedule, error) {
	return send[Schedule](ctx, c, http.MethodPost, retryAlways, why, "v1", "schedules", id, "resume")
}

// DeleteSchedule deletes a schedule and returns it; its tasks stay.
func (c *Client) DeleteSchedule(ctx context.Context, id string, why Why) (*Schedule, error) {
	return remove[Schedule](ctx, c, retryUnsent, why.query(), "v1", "schedules", id)
}

// RunSchedule runs a schedule now. With the overlap policy skip it is a conflict (see
// [IsConflict]) while the task of its last run is alive.
func (c *Client) RunSchedule(ctx context.Context, id string, why Why) (*ScheduleRun, error) {
	return send[ScheduleRun](ctx, c, http.MethodPost, retryUnsent, why, "v1", "schedules", id, "run")
}

// NextRuns returns the next runs of a schedule, up to 100; 0 means
// 10.
func (c *Client) NextRuns(ctx context.Context, id string, count int) (*NextRuns, error) {
	return get[NextRuns](ctx, c, parameters{"count": count}, "v1", "schedules", id, "next")
}
