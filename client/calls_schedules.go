package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// CreateSchedule keeps a new schedule. A name that is taken is a conflict (see
// [IsConflict]).
func (c *Client) CreateSchedule(ctx context.Context, r ScheduleRequest) (*Schedule, error) {
	return send[Schedule](ctx, c, http.MethodPost, unlessDry(&r.DryRun, false), r, "v1", "schedules")
}

// Schedules lists schedules by namespace and name.
func (c *Client) Schedules(ctx context.Context, o ScheduleListOptions) (*ScheduleList, error) {
	q := url.Values{}
	for name, value := range map[string]string{"namespace": o.Namespace, "name": o.Name, "template": o.Template} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if o.Paused != nil {
		q.Set("paused", strconv.FormatBool(*o.Paused))
	}
	setNumber(q, "page", o.Page)
	setNumber(q, "per_page", o.PerPage)
	return get[ScheduleList](ctx, c, q, "v1", "schedules")
}

// Schedule returns a schedule with its next runs.
func (c *Client) Schedule(ctx context.Context, id string) (*Schedule, error) {
	return get[Schedule](ctx, c, nil, "v1", "schedules", id)
}

// UpdateSchedule changes what a schedule says.
func (c *Client) UpdateSchedule(ctx context.Context, id string, u ScheduleUpdate) (*Schedule, error) {
	return send[Schedule](ctx, c, http.MethodPatch, retryAlways, u, "v1", "schedules", id)
}

// PauseSchedule keeps a schedule from running. Pausing what is paused changes
// who did it and why.
func (c *Client) PauseSchedule(ctx context.Context, id string, why Why) (*Schedule, error) {
	return send[Schedule](ctx, c, http.MethodPost, retryAlways, why, "v1", "schedules", id, "pause")
}

// ResumeSchedule lets a schedule run again. Whether the runs that it has missed
// are made up for is up to its policy.
func (c *Client) ResumeSchedule(ctx context.Context, id string, why Why) (*Schedule, error) {
	return send[Schedule](ctx, c, http.MethodPost, retryAlways, why, "v1", "schedules", id, "resume")
}

// DeleteSchedule forgets a schedule and returns what it was; its tasks stay.
func (c *Client) DeleteSchedule(ctx context.Context, id string, why Why) (*Schedule, error) {
	var s Schedule
	err := c.do(ctx, call{method: http.MethodDelete, path: []string{"v1", "schedules", id}, query: why.query(), retry: retryUnsent}, &s)
	return result(&s, err)
}

// RunSchedule makes a run of a schedule now. One that does not run beside the
// task of its last run is a conflict (see [IsConflict]) while that is alive.
func (c *Client) RunSchedule(ctx context.Context, id string, why Why) (*ScheduleRun, error) {
	return send[ScheduleRun](ctx, c, http.MethodPost, retryUnsent, why, "v1", "schedules", id, "run")
}

// NextRuns tells when a schedule runs next, up to MaxNextRuns times; 0 means
// DefaultNextRuns.
func (c *Client) NextRuns(ctx context.Context, id string, count int) (*NextRuns, error) {
	q := url.Values{}
	setNumber(q, "count", count)
	return get[NextRuns](ctx, c, q, "v1", "schedules", id, "next")
}
