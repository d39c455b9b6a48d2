package client

import (
	"context"
	"net/http"
	"reflect"
)

// DLQEntries lists the dead-letter queue, newest first.
func (c *Client) DLQEntries(ctx context.Context, o DLQListOptions) ([]DLQEntry, error) {
	q := parameters{
		"resolution_status": o.ResolutionStatus, "dlq_reason": o.DLQReason,
		"namespace": o.Namespace, "task_name": o.TaskName, "limit": o.Limit, "offset": o.Offset,
	}
	return list[DLQEntry](ctx, c, q, "v1", "dlq")
}

// DLQEntryOfTask returns the newest entry of a task.
func (c *Client) DLQEntryOfTask(ctx context.Context, task string) (*DLQEntry, error) {
	return get[DLQEntry](ctx, c, nil, "v1", "dlq", "task", task)
}

// UpdateDLQEntry changes an investigation.
func (c *Client) UpdateDLQEntry(ctx context.Context, entry string, u DLQUpdate) (*DLQUpdated, error) {
	return send[DLQUpdated](ctx, c, http.MethodPatch, retryAlways, u, "v1", "dlq", "entry", entry)
}

// DLQStats counts the entries by reason.
func (c *Client) DLQStats(ctx context.Context) ([]DLQStats, error) {
	return list[DLQStats](ctx, c, nil, "v1", "dlq", "stats")
}

// InvestigationQueue lists pending entries, the most urgent first; limit 0
// means 100.
func (c *Client) InvestigationQueue(ctx context.Context, limit int) ([]DLQQueueEntry, error) {
	return list[DLQQueueEntry](ctx, c, parameters{"limit": limit}, "v1", "dlq", "investigation-queue")
}

// Staleness lists living tasks by their nearest threshold, stale ones first; limit 0
// means 100.
func (c *Client) Staleness(ctx context.Context, limit int) ([]StalenessEntry, error) {
	return list[StalenessEntry](ctx, c, parameters{"limit": limit}, "v1", "dlq", "staleness")
}

// AddDLQEntry opens a dead letter by hand and returns the task's pending entry, which may
// be an older one.
func (c *Client) AddDLQEntry(ctx context.Context, a DLQAdd) (*DLQEntry, error) {
	return send[DLQEntry](ctx, c, http.MethodPost, retryAlways, a, "v1", "dlq", "entries")
}

// ReplayDLQ replays entries as new tasks, or previews that. Only a dry run is retried
// after it was sent.
func (c *Client) ReplayDLQ(ctx context.Context, r DLQReplay) (*BulkResult, error) {
	return send[BulkResult](ctx, c, http.MethodPost, retryIf(isDry(r.DryRun, r.Filter != nil)), r, "v1", "dlq", "replay")
}

// PurgeDLQ deletes closed entries, or counts them.
func (c *Client) PurgeDLQ(ctx context.Context, p DLQPurge) (*DLQPurged, error) {
	return send[DLQPurged](ctx, c, http.MethodPost, retryIf(isDry(p.DryRun, true)), p, "v1", "dlq", "purge")
}

// list reads an answer that is a bare list.
func list[T any](ctx context.Context, c *Client, query parameters, path ...string) ([]T, error) {
	rows, err := get[[]T](ctx, c, query, path...)
	if err != nil {
		return nil, err
	}
	return *rows, nil
}

// listed reads the list in an answer that is an object with one under a key.
func listed[T any](ctx context.Context, c *Client, query parameters, key string, path ...string) ([]T, error) {
	field := reflect.StructField{Name: "List", Type: reflect.TypeFor[[]T](), Tag: reflect.StructTag(`json:"` + key + `"`)}
	body := reflect.New(reflect.StructOf([]reflect.StructField{field}))
	if err := c.do(ctx, call{method: http.MethodGet, path: path, query: query}, body.Interface()); err != nil {
		return nil, err
	}
	rows, _ := reflect.TypeAssert[[]T](body.Elem().Field(0))
	return rows, nil
}
