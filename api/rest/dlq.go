package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// DeadLetters is the dead-letter queue for the API; *store.Store implements it.
type DeadLetters interface {
	DeadLetters(ctx context.Context, f store.DeadLetterFilter) ([]store.DeadLetter, error)
	// DeadLetter, DeadLetterOfTask (the newest) and UpdateDeadLetter return
	// store.ErrNotFound if there is none.
	DeadLetter(ctx context.Context, id uuid.UUID) (store.DeadLetter, error)
	DeadLetterOfTask(ctx context.Context, task uuid.UUID) (store.DeadLetter, error)
	UpdateDeadLetter(ctx context.Context, id uuid.UUID, u store.DeadLetterUpdate) (store.DeadLetter, error)
	DeadLetterStats(ctx context.Context) ([]store.DeadLetterStats, error)
	InvestigationQueue(ctx context.Context, limit int) ([]store.QueueEntry, error)
	StalenessMonitor(ctx context.Context, th store.StaleThresholds, limit int) ([]store.StalenessEntry, error)
	// OpenDeadLetter opens an entry; created is false if the task has a pending one, to
	// which the detail is added.
	OpenDeadLetter(ctx context.Context, task uuid.UUID, reason workflow.DeadLetterReason, detail, actor string,
		metadata json.RawMessage) (l store.DeadLetter, created bool, err error)
	// PurgeDeadLetters deletes closed entries and returns their number, or with dry only
	// the number.
	PurgeDeadLetters(ctx context.Context, olderThan time.Duration, limit int, dry bool) (int, error)
	// RecordAction records an operator's action.
	RecordAction(ctx context.Context, a store.OperatorAction) error
}

const dlqTag = "dlq"

// dlqRoutes show and change the dead-letter queue.
type dlqRoutes struct {
	*api
	letters    DeadLetters
	actions    Actions // nil: nothing is replayed
	thresholds store.StaleThresholds
}

func (r *dlqRoutes) add() {
	get := func(path, id, summary string) operation {
		return operation{method: http.MethodGet, path: path, id: id, tag: dlqTag, summary: summary}
	}
	add(r.api, get("/v1/dlq", "list-dlq-entries", "List the dead-letter queue, newest first"), r.list)
	add(r.api, get("/v1/dlq/task/{task_uuid}", "get-dlq-entry-of-task", "Show the newest entry of a task"), r.ofTask)
	add(r.api, get("/v1/dlq/stats", "get-dlq-stats", "Count the entries by reason"), r.stats)
	add(r.api, get("/v1/dlq/investigation-queue", "get-dlq-investigation-queue", "List pending entries, the most urgent first"), r.queue)
	add(r.api, get("/v1/dlq/staleness", "get-dlq-staleness", "List living tasks by their nearest threshold, stale ones first"), r.staleness)
	add(r.api, operation{method: http.MethodPatch, path: "/v1/dlq/entry/{dlq_entry_uuid}", id: "update-dlq-entry", tag: dlqTag,
		summary: "Change an investigation", body: client.DLQUpdate{}}, r.update)
	add(r.api, operation{method: http.MethodPost, path: "/v1/dlq/entries", id: "add-dlq-entry", tag: dlqTag,
		summary: "Put a task into the dead-letter queue by hand", body: client.DLQAdd{}}, r.open)
	add(r.api, operation{method: http.MethodPost, path: "/v1/dlq/purge", id: "purge-dlq", tag: dlqTag,
		summary: "Delete closed entries, or count them", body: client.DLQPurge{}}, r.purge)
	if r.actions != nil {
		add(r.api, operation{method: http.MethodPost, path: "/v1/dlq/replay", id: "replay-dlq", tag: dlqTag,
			summary: "Replay entries as new tasks, or list them", body: client.DLQReplay{}}, r.replay)
	}
}

// dlqQuery selects entries.
type dlqQuery struct {
	ResolutionStatus string `query:"resolution_status" enum:"Pending,ManuallyResolved,PermanentlyFailed,Cancelled"`
	DLQReason        string `query:"dlq_reason" enum:"StalenessTimeout,MaxRetriesExceeded,DependencyCycleDetected,WorkerUnavailable,ManualDlq"`
	Namespace        string `query:"namespace"`
	TaskName         string `query:"task_name"`
	Limit            number `query:"limit" doc:"1 to 1000; default 50"`
	Offset           number `query:"offset" doc:"0 to 100000; default 0"`
}

func (q *dlqQuery) filter() (f store.DeadLetterFilter, err error) {
	if f.Resolution, err = resolutionNamed(q.ResolutionStatus); err != nil {
		return f, badRequest("resolution_status: " + err.Error())
	}
	if f.Reason, err = reasonNamed(q.DLQReason); err != nil {
		return f, badRequest("dlq_reason: " + err.Error())
	}
	var c checked
	f.Namespace, f.Name = c.text("namespace", q.Namespace, 64), c.text("task_name", q.TaskName, 64)
	if err = c.err(); err != nil {
		return f, err
	}
	if f.Limit, err = limitOf(q.Limit, client.DefaultDLQLimit); err != nil {
		return f, err
	}
	f.Offset, err = q.Offset.within(0, client.MaxDLQOffset, 0, fmt.Sprintf("offset must be between 0 and %d", client.MaxDLQOffset))
	return f, err
}

func limitOf(n number, fallback int) (int, error) {
	return n.within(1, client.MaxDLQLimit, fallback, fmt.Sprintf("limit must be between 1 and %d", client.MaxDLQLimit))
}

func (r *dlqRoutes) list(ctx context.Context, in *dlqQuery) ([]client.DLQEntry, error) {
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	letters, err := r.letters.DeadLetters(ctx, f)
	if err != nil {
		return nil, err
	}
	entries := make([]client.DLQEntry, len(letters))
	for i := range letters {
		entries[i] = *dlqEntryOf(&letters[i])
	}
	return entries, nil
}

func (r *dlqRoutes) ofTask(ctx context.Context, in *struct {
	TaskUUID string `path:"task_uuid" format:"uuid"`
}) (*client.DLQEntry, error) {
	id, err := parseTask(in.TaskUUID)
	if err != nil {
		return nil, err
	}
	l, err := r.letters.DeadLetterOfTask(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(fmt.Sprintf("DLQ entry not found for task: %s", id))
	}
	if err != nil {
		return nil, err
	}
	return dlqEntryOf(&l), nil
}

func (r *dlqRoutes) update(ctx context.Context, in *struct {
	UUID string `path:"dlq_entry_uuid" format:"uuid"`
}) (*client.DLQUpdated, error) {
	id, err := parseTask(in.UUID)
	if err != nil {
		return nil, err
	}
	var body dlqUpdateBody
	if err := readBody(ctx, &body); err != nil {
		return nil, err
	}
	u, err := body.update()
	if err != nil {
		return nil, err
	}
	_, err = r.letters.UpdateDeadLetter(ctx, id, u)
	if errors.Is(err, store.ErrDeadLetterOpen) {
		return nil, &failure{status: http.StatusConflict, code: codeConflict, message: "The task has another entry that is Pending"}
	}
	if err != nil {
		return nil, ofEntry(id, err)
	}
	return &client.DLQUpdated{Success: true, Message: "Investigation status updated successfully", DLQEntryUUID: id.String()}, nil
}

// ofEntry adds the entry to a not-found error.
func ofEntry(id uuid.UUID, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return notFound(fmt.Sprintf("DLQ entry not found: %s", id))
	}
	return err
}

func (r *dlqRoutes) stats(ctx context.Context, _ *struct{}) ([]client.DLQStats, error) {
	rows, err := r.letters.DeadLetterStats(ctx)
	if err != nil {
		return nil, err
	}
	stats := make([]client.DLQStats, len(rows))
	for i := range rows {
		stats[i] = dlqStatsOf(&rows[i])
	}
	return stats, nil
}

// limitQuery bounds a list.
type limitQuery struct {
	Limit number `query:"limit" doc:"1 to 1000; default 100"`
}

func (r *dlqRoutes) queue(ctx context.Context, in *limitQuery) ([]client.DLQQueueEntry, error) {
	limit, err := limitOf(in.Limit, client.DefaultQueueLimit)
	if err != nil {
		return nil, err
	}
	rows, err := r.letters.InvestigationQueue(ctx, limit)
	if err != nil {
		return nil, err
	}
	entries := make([]client.DLQQueueEntry, len(rows))
	for i := range rows {
		entries[i] = queueEntryOf(&rows[i])
	}
	return entries, nil
}

func (r *dlqRoutes) staleness(ctx context.Context, in *limitQuery) ([]client.StalenessEntry, error) {
	limit, err := limitOf(in.Limit, client.DefaultQueueLimit)
	if err != nil {
		return nil, err
	}
	rows, err := r.letters.StalenessMonitor(ctx, r.thresholds, limit)
	if err != nil {
		return nil, err
	}
	entries := make([]client.StalenessEntry, len(rows))
	for i := range rows {
		entries[i] = stalenessOf(&rows[i])
	}
	return entries, nil
}

func (r *dlqRoutes) open(ctx context.Context, _ *struct{}) (*client.DLQEntry, error) {
	var body dlqAddBody
	if err := readBody(ctx, &body); err != nil {
		return nil, err
	}
	var c checked
	task := c.id("task_uuid", body.TaskUUID)
	reason, actor := c.why(body.Reason, body.Actor)
	metadata := c.object("metadata", body.Metadata)
	if err := c.err(); err != nil {
		return nil, err
	}
	l, err := openLetter(ctx, r.letters, task, reason, actor, metadata)
	if err != nil {
		return nil, ofTask(task, err)
	}
	return dlqEntryOf(l), nil
}

// openLetter opens an entry for a task. A pending one stays unchanged except for the
// added detail.
func openLetter(ctx context.Context, letters DeadLetters, task uuid.UUID, reason, actor string, metadata json.RawMessage) (*store.DeadLetter, error) {
	if letters == nil {
		return nil, badRequest("This daemon has no dead-letter queue")
	}
	l, _, err := letters.OpenDeadLetter(ctx, task, workflow.DeadLetterManual, reason, actor, metadata)
	return &l, err
}

func (r *dlqRoutes) purge(ctx context.Context, _ *struct{}) (*client.DLQPurged, error) {
	var body dlqPurgeBody
	if err := readBody(ctx, &body); err != nil {
		return nil, err
	}
	p, err := body.purge()
	if err != nil {
		return nil, err
	}
	n, err := r.letters.PurgeDeadLetters(ctx, p.olderThan, p.limit, p.dry)
	if err != nil {
		return nil, err
	}
	done := store.OperatorAction{Actor: p.actor, Action: "purge_dlq", Reason: p.reason, DryRun: p.dry, Matched: n,
		Target: json.RawMessage(fmt.Sprintf(`{"older_than_seconds":%d,"limit":%d}`, p.olderThan/time.Second, p.limit))}
	if !p.dry {
		done.Changed = n
	}
	if err := r.letters.RecordAction(ctx, done); err != nil {
		return nil, err
	}
	return &client.DLQPurged{Purged: n, DryRun: p.dry}, nil
}

// replayRoom is the part of a request's time that a replay may plan with.
const replayRoom = 0.8

func (r *dlqRoutes) replay(ctx context.Context, _ *struct{}) (*client.BulkResult, error) {
	var body dlqReplayBody
	if err := readBody(ctx, &body); err != nil {
		return nil, err
	}
	if body.EntryUUID != nil {
		return r.replayOne(ctx, &body)
	}
	many, err := body.many(time.Duration(replayRoom * float64(r.cfg.RequestTimeout)))
	if err != nil {
		return nil, err
	}
	done, err := r.actions.ReplayDeadLetters(ctx, many)
	if err != nil {
		return nil, partly(ctx, done, err)
	}
	return bulkResultOf(done), nil
}

func (r *dlqRoutes) replayOne(ctx context.Context, body *dlqReplayBody) (*client.BulkResult, error) {
	id, again, dry, err := body.one()
	if err != nil {
		return nil, err
	}
	l, err := r.letters.DeadLetter(ctx, id)
	if err != nil {
		return nil, ofEntry(id, err)
	}
	if l.ReplayedAs != nil {
		return nil, &failure{status: http.StatusConflict, code: codeConflict, taskUUID: l.ReplayedAs.String(),
			message: fmt.Sprintf("The entry was replayed already, as task %s", l.ReplayedAs)}
	}
	result := &client.BulkResult{Matched: 1, Changed: 1, DryRun: dry, Tasks: []string{l.TaskUUID.String()}}
	if dry {
		return result, nil
	}
	created, err := r.actions.Replay(ctx, l.TaskUUID, again)
	if err != nil {
		return nil, ofTask(l.TaskUUID, err)
	}
	result.ReplayedAs = created.UUID.String()
	return result, nil
}
