package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// dlqRoutes show and change the dead-letter queue.
type dlqRoutes struct {
	*orchestratorAPI
	thresholds store.StaleThresholds
}

func (r *dlqRoutes) add() {
	const path = "/v1/dlq"
	op := operation{tag: "dlq"}
	add(r.api, op.at(http.MethodGet, path, "list-dlq-entries", "List the dead-letter queue, newest first"), r.list)
	add(r.api, op.at(http.MethodGet, path+"/task/{task_uuid}", "get-dlq-entry-of-task", "Show the newest entry of a task"), r.ofTask)
	add(r.api, op.at(http.MethodGet, path+"/stats", "get-dlq-stats", "Count the entries by reason"), r.stats)
	add(r.api, op.at(http.MethodGet, path+"/investigation-queue", "get-dlq-investigation-queue", "List pending entries, the most urgent first"), r.queue)
	add(r.api, op.at(http.MethodGet, path+"/staleness", "get-dlq-staleness", "List living tasks by their nearest threshold, stale ones first"), r.staleness)
	addBody(r.api, op.at(http.MethodPatch, path+"/entry/{dlq_entry_uuid}", "update-dlq-entry", "Change an investigation"), r.update)
	addBody(r.api, op.at(http.MethodPost, path+"/entries", "add-dlq-entry", "Put a task into the dead-letter queue by hand"), r.open)
	addBody(r.api, op.at(http.MethodPost, path+"/purge", "purge-dlq", "Delete closed entries, or count them"), r.purge)
	addBody(r.api, op.at(http.MethodPost, path+"/replay", "replay-dlq", "Replay entries as new tasks, or list them"), r.replay)
}

// dlqQuery selects entries.
type dlqQuery struct {
	ResolutionStatus string `query:"resolution_status" enum:"Pending,ManuallyResolved,PermanentlyFailed,Cancelled"`
	DLQReason        string `query:"dlq_reason" enum:"StalenessTimeout,MaxRetriesExceeded,DependencyCycleDetected,WorkerUnavailable,ManualDlq"`
	Namespace        string `query:"namespace"`
	TaskName         string `query:"task_name"`
	Limit            number `query:"limit" within:"1,1000,50" doc:"1 to 1000; default 50"`
	Offset           number `query:"offset" within:"0,100000,0" doc:"0 to 100000; default 0"`
}

func (q *dlqQuery) filter() (f store.DeadLetterFilter, err error) {
	if f.Resolution, err = valueOf(resolutions, q.ResolutionStatus); err != nil {
		return f, badRequest("resolution_status: " + err.Error())
	}
	if f.Reason, err = valueOf(letterReasons, q.DLQReason); err != nil {
		return f, badRequest("dlq_reason: " + err.Error())
	}
	var c checked
	f.Namespace, f.Name = c.text("namespace", q.Namespace, 64), c.text("task_name", q.TaskName, 64)
	f.Limit, f.Offset = int(q.Limit), int(q.Offset)
	return f, c.err()
}

// unreadableHeader names the entries of a list that the database cannot read, and which are left out.
const unreadableHeader = "X-Unreadable"

func (r *dlqRoutes) list(ctx context.Context, in *dlqQuery) ([]client.DLQEntry, error) {
	f, err := in.filter()
	if err != nil {
		return nil, err
	}
	letters, unreadable, err := r.store.DeadLetters(ctx, f)
	if len(unreadable) > 0 { // the answer is a list alone
		exchangeOf(ctx).Header().Set(unreadableHeader, strings.Join(each(unreadable, (*uuid.UUID).String), ", "))
	}
	return each(letters, dlqEntryOf), err
}

func (r *dlqRoutes) ofTask(ctx context.Context, in *struct {
	TaskUUID uuid.UUID `path:"task_uuid" format:"uuid"`
}) (*client.DLQEntry, error) {
	l, err := r.store.DeadLetterOfTask(ctx, in.TaskUUID)
	if err != nil {
		return nil, missing(err, "DLQ entry not found for task: %s", in.TaskUUID)
	}
	return new(dlqEntryOf(&l)), nil
}

func (r *dlqRoutes) update(ctx context.Context, in *struct {
	UUID uuid.UUID `path:"dlq_entry_uuid" format:"uuid"`
}, body *request[client.DLQUpdate]) (*client.DLQUpdated, error) {
	u, err := investigation(body)
	if err != nil {
		return nil, err
	}
	_, err = r.store.UpdateDeadLetter(ctx, in.UUID, u)
	switch {
	case errors.Is(err, store.ErrDeadLetterOpen):
		return nil, conflict("The task has another entry that is Pending")
	case err != nil:
		return nil, ofEntry(in.UUID, err)
	}
	return &client.DLQUpdated{Success: true, Message: "Investigation status updated successfully", DLQEntryUUID: in.UUID.String()}, nil
}

// ofEntry adds the entry to a not-found error.
func ofEntry(id uuid.UUID, err error) error { return missing(err, "DLQ entry not found: %s", id) }

func (r *dlqRoutes) stats(ctx context.Context, _ *struct{}) ([]client.DLQStats, error) {
	rows, err := r.store.DeadLetterStats(ctx)
	return each(rows, dlqStatsOf), err
}

// limitQuery bounds a list.
type limitQuery struct {
	Limit number `query:"limit" within:"1,1000,100" doc:"1 to 1000; default 100"`
}

func (r *dlqRoutes) queue(ctx context.Context, in *limitQuery) ([]client.DLQQueueEntry, error) {
	rows, err := r.store.InvestigationQueue(ctx, int(in.Limit))
	return each(rows, queueEntryOf), err
}

func (r *dlqRoutes) staleness(ctx context.Context, in *limitQuery) ([]client.StalenessEntry, error) {
	rows, err := r.store.StalenessMonitor(ctx, r.thresholds, int(in.Limit))
	return each(rows, stalenessOf), err
}

// open opens an entry for a task. A pending one stays unchanged except for the added
// detail.
func (r *dlqRoutes) open(ctx context.Context, _ *struct{}, body *request[client.DLQAdd]) (*client.DLQEntry, error) {
	b := &body.body
	task := body.id("task_uuid", b.TaskUUID)
	reason, actor := body.why(b.Reason, b.Actor)
	metadata := body.object("metadata", b.Metadata)
	if err := body.err(); err != nil {
		return nil, err
	}
	if err := r.withinTask(ctx, task.String()); err != nil {
		return nil, err
	}
	l, _, err := r.store.OpenDeadLetter(ctx, task, workflow.DeadLetterManual, reason, actor, metadata)
	if err != nil {
		return nil, ofTask(task, err)
	}
	return new(dlqEntryOf(&l)), nil
}

// maxPurgeSeconds keeps an age inside of time.Duration.
const maxPurgeSeconds = int64(10 * 366 * 24 * time.Hour / time.Second)

func (r *dlqRoutes) purge(ctx context.Context, _ *struct{}, body *request[client.DLQPurge]) (*client.DLQPurged, error) {
	var age int64
	b := &body.body
	if body.need("older_than_seconds"); b.OlderThanSeconds != nil {
		if age = *b.OlderThanSeconds; age < 0 || age > maxPurgeSeconds {
			body.add("older_than_seconds must be between 0 and %d", maxPurgeSeconds)
		}
	}
	limit := body.within("limit", b.Limit, 1, limits.MaxPurgeLimit, limits.DefaultPurgeLimit)
	by := store.OperatorAction{Action: "purge_dlq", DryRun: b.DryRun == nil || *b.DryRun,
		Target: json.RawMessage(fmt.Sprintf(`{"older_than_seconds":%d,"limit":%d}`, age, limit))}
	by.Reason, by.Actor = body.whyUnless(by.DryRun, b.Reason, b.Actor)
	if err := body.err(); err != nil {
		return nil, err
	}
	n, err := r.store.PurgeDeadLetters(ctx, time.Duration(age)*time.Second, limit, by)
	if err != nil {
		return nil, err
	}
	return &client.DLQPurged{Purged: n, DryRun: by.DryRun}, nil
}

// replayRoom is the part of a request's time that a replay may plan with.
const replayRoom = 0.8

func (r *dlqRoutes) replay(ctx context.Context, _ *struct{}, body *request[client.DLQReplay]) (*client.BulkResult, error) {
	if body.has("dlq_entry_uuid") {
		return r.replayOne(ctx, body)
	}
	many, err := replayOfMany(body, time.Duration(replayRoom*float64(r.cfg.RequestTimeout)))
	if err != nil {
		return nil, err
	}
	if err := within(ctx, many.Filter.Namespace); err != nil {
		return nil, err
	}
	done, err := r.engine.ReplayDeadLetters(ctx, many)
	if err != nil {
		return nil, partly(ctx, done, err)
	}
	return bulkResultOf(done), nil
}

func (r *dlqRoutes) replayOne(ctx context.Context, body *request[client.DLQReplay]) (*client.BulkResult, error) {
	id, again, dry, err := replayOfOne(body)
	if err != nil {
		return nil, err
	}
	l, err := r.store.DeadLetter(ctx, id)
	if err != nil {
		return nil, ofEntry(id, err)
	}
	if err := withinThing(ctx, scopeEntry, id.String(), l.Namespace); err != nil {
		return nil, err
	}
	if l.ReplayedAs != nil {
		return nil, &failure{status: http.StatusConflict, code: codeConflict, taskUUID: l.ReplayedAs.String(),
			message: fmt.Sprintf("The entry was replayed already, as task %s", l.ReplayedAs)}
	}
	result := &client.BulkResult{Matched: 1, Changed: 1, DryRun: dry, Tasks: []string{l.TaskUUID.String()}}
	if dry {
		return result, nil
	}
	created, err := r.engine.Replay(ctx, l.TaskUUID, again)
	if err != nil {
		return nil, ofTask(l.TaskUUID, err)
	}
	result.ReplayedAs = created.UUID.String()
	return result, nil
}
