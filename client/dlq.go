package client

import "encoding/json"

// The states of an investigation of the dead-letter queue.
const (
	ResolutionPending           = "Pending"
	ResolutionManuallyResolved  = "ManuallyResolved"
	ResolutionPermanentlyFailed = "PermanentlyFailed"
	ResolutionCancelled         = "Cancelled"
)

// The reasons for being in the dead-letter queue.
const (
	ReasonStalenessTimeout        = "StalenessTimeout"
	ReasonMaxRetriesExceeded      = "MaxRetriesExceeded"
	ReasonDependencyCycleDetected = "DependencyCycleDetected"
	ReasonWorkerUnavailable       = "WorkerUnavailable"
	ReasonManualDLQ               = "ManualDlq"
)

// DLQEntry is one investigation: a task that people should look at. Of the
// entries of a task one at most is Pending.
type DLQEntry struct {
	DLQEntryUUID        string          `json:"dlq_entry_uuid"`
	TaskUUID            string          `json:"task_uuid"`
	OriginalState       string          `json:"original_state" doc:"State of the task when the entry was opened"`
	DLQReason           string          `json:"dlq_reason" enum:"StalenessTimeout,MaxRetriesExceeded,DependencyCycleDetected,WorkerUnavailable,ManualDlq"`
	DLQTimestamp        NaiveTime       `json:"dlq_timestamp"`
	ResolutionStatus    string          `json:"resolution_status" enum:"Pending,ManuallyResolved,PermanentlyFailed,Cancelled"`
	ResolutionTimestamp *NaiveTime      `json:"resolution_timestamp"`
	ResolutionNotes     *string         `json:"resolution_notes"`
	ResolvedBy          *string         `json:"resolved_by"`
	TaskSnapshot        json.RawMessage `json:"task_snapshot" doc:"The task as it was then"`
	Metadata            json.RawMessage `json:"metadata"`
	CreatedAt           NaiveTime       `json:"created_at"`
	UpdatedAt           NaiveTime       `json:"updated_at"`
	// Detail is the exact cause, such as poison or deadline.
	Detail string `json:"detail,omitempty" doc:"The exact cause: permanent, max_retries_exceeded, worker_lost, poison, deadline, …"`
	// StepName and Error are those of the failed step; absent if the entry has none.
	StepName string     `json:"step_name,omitempty" doc:"The step that failed"`
	Error    *StepError `json:"error,omitempty" doc:"Error of its newest failed attempt"`
	// ReplayedAs is the task that does the work of this one again.
	ReplayedAs *string `json:"replayed_as,omitempty" doc:"The task that does the same again"`
}

// DLQListOptions select entries, newest first; zero values select everything.
type DLQListOptions struct {
	ResolutionStatus string // one of the Resolution constants
	DLQReason        string // one of the Reason constants
	Namespace        string
	TaskName         string
	Limit            int // 1 to 1000; 0 means 50
	Offset           int // 0 to 100,000
}

// DLQUpdate is the body of PATCH /v1/dlq/entry/{uuid}; nil fields stay. It changes the
// investigation, never the task.
type DLQUpdate struct {
	ResolutionStatus *string         `json:"resolution_status,omitempty" enum:"Pending,ManuallyResolved,PermanentlyFailed,Cancelled"`
	ResolutionNotes  *string         `json:"resolution_notes,omitempty" maxLength:"2000"`
	ResolvedBy       *string         `json:"resolved_by,omitempty" maxLength:"255"`
	Metadata         json.RawMessage `json:"metadata,omitempty" doc:"A JSON object; its keys are added to those there"`
}

// DLQUpdated answers a [DLQUpdate].
type DLQUpdated struct {
	Success      bool   `json:"success"`
	Message      string `json:"message"`
	DLQEntryUUID string `json:"dlq_entry_uuid"`
}

// DLQStats counts the entries of one reason.
type DLQStats struct {
	DLQReason         string     `json:"dlq_reason"`
	TotalEntries      int64      `json:"total_entries"`
	Pending           int64      `json:"pending"`
	ManuallyResolved  int64      `json:"manually_resolved"`
	PermanentFailures int64      `json:"permanent_failures"`
	Cancelled         int64      `json:"cancelled"`
	OldestEntry       *NaiveTime `json:"oldest_entry"`
	NewestEntry       *NaiveTime `json:"newest_entry"`
	// AvgResolutionTimeMinutes is null while no entry is resolved.
	AvgResolutionTimeMinutes *float64 `json:"avg_resolution_time_minutes"`
}

// DLQQueueEntry is a pending entry in the order of investigation.
type DLQQueueEntry struct {
	DLQEntryUUID       string    `json:"dlq_entry_uuid"`
	TaskUUID           string    `json:"task_uuid"`
	OriginalState      string    `json:"original_state"`
	DLQReason          string    `json:"dlq_reason"`
	DLQTimestamp       NaiveTime `json:"dlq_timestamp"`
	MinutesInDLQ       float64   `json:"minutes_in_dlq"`
	NamespaceName      *string   `json:"namespace_name"`
	TaskName           *string   `json:"task_name"`
	CurrentState       *string   `json:"current_state"`
	TimeInStateMinutes *int32    `json:"time_in_state_minutes"`
	// PriorityScore is the minutes in the queue plus a base for the reason:
	// DependencyCycleDetected 1000, MaxRetriesExceeded 500, StalenessTimeout 100,
	// WorkerUnavailable 50, ManualDlq 10.
	PriorityScore float64 `json:"priority_score"`
}

// StalenessEntry is a living task with its nearest threshold.
type StalenessEntry struct {
	TaskUUID                  string  `json:"task_uuid"`
	NamespaceName             *string `json:"namespace_name"`
	TaskName                  *string `json:"task_name"`
	CurrentState              string  `json:"current_state"`
	TimeInStateMinutes        int32   `json:"time_in_state_minutes"`
	TaskAgeMinutes            int32   `json:"task_age_minutes"`
	StalenessThresholdMinutes int32   `json:"staleness_threshold_minutes"`
	HealthStatus              string  `json:"health_status" doc:"healthy, warning from 80 % of the threshold on, stale from all of it on"`
	Priority                  int32   `json:"priority"`
	// Detail names the threshold.
	Detail string `json:"detail" doc:"A state, max_lifetime, or checkpoint: its minutes count from the latest"`
}

// DLQAdd is the body of POST /v1/dlq/entries: an entry opened by hand. Its reason is
// ManualDlq; the task does not change. A pending entry of the task stays, with the detail
// added.
type DLQAdd struct {
	TaskUUID string          `json:"task_uuid" format:"uuid"`
	Reason   string          `json:"reason" doc:"Why to investigate" maxLength:"500"`
	Actor    string          `json:"actor" doc:"Actor" maxLength:"255"`
	Metadata json.RawMessage `json:"metadata,omitempty" doc:"A JSON object"`
}

// DLQReplay is the body of POST /v1/dlq/replay: new tasks that replay entries. Set
// DLQEntryUUID for one, Filter for many.
type DLQReplay struct {
	DLQEntryUUID string     `json:"dlq_entry_uuid,omitempty" format:"uuid"`
	Filter       *DLQFilter `json:"filter,omitempty" doc:"Which entries; at least one condition"`
	Reason       string     `json:"reason" doc:"Not needed with dry_run" maxLength:"500"`
	Actor        string     `json:"actor" maxLength:"255"`
	// Context replaces that of the task; with DLQEntryUUID only.
	Context json.RawMessage `json:"context,omitempty" doc:"Input of the new task; a JSON object; for one entry"`
	// PerSecond is the rate of new tasks, above 0 to 1000; 0 means
	// 10. Limit at that rate must fit into the server's request timeout.
	PerSecond float64 `json:"per_second,omitempty" doc:"At most so many tasks per second, up to 1000; 10 when absent"`
	// Limit is 1 to 1000; 0 means 100.
	Limit int `json:"limit,omitempty" doc:"How many at most, 1 to 1000; 100 when absent"`
	// DryRun is by default true with a filter, and false for one entry.
	DryRun *bool `json:"dry_run,omitempty" doc:"Only preview; with a filter true when absent"`
}

// DLQFilter selects entries; an entry must match everything that is set.
type DLQFilter struct {
	// ResolutionStatus can only be Pending, the default; alone it selects all pending
	// entries.
	ResolutionStatus string `json:"resolution_status,omitempty" enum:"Pending" doc:"Pending is the default; alone it selects all pending entries"`
	DLQReason        string `json:"dlq_reason,omitempty" enum:"StalenessTimeout,MaxRetriesExceeded,DependencyCycleDetected,WorkerUnavailable,ManualDlq"`
	Namespace        string `json:"namespace,omitempty" maxLength:"64"`
	TaskName         string `json:"task_name,omitempty" maxLength:"64"`
	Since            *Time  `json:"since,omitempty" format:"date-time" doc:"In the queue since then or later"`
	Until            *Time  `json:"until,omitempty" format:"date-time" doc:"In the queue before then"`
}

// DLQPurge is the body of POST /v1/dlq/purge: it deletes closed entries, oldest first.
// Pending ones stay.
type DLQPurge struct {
	// OlderThanSeconds is how long ago they must have been closed at least, 0
	// to 10 years.
	OlderThanSeconds *int64 `json:"older_than_seconds" doc:"Closed at least so long ago; 0: all closed ones"`
	// Limit is 1 to 10,000; 0 means 1000.
	Limit  int    `json:"limit,omitempty" doc:"How many at most, 1 to 10000; 1000 when absent"`
	Reason string `json:"reason" doc:"Not needed with dry_run" maxLength:"500"`
	Actor  string `json:"actor" maxLength:"255"`
	// DryRun is true by default.
	DryRun *bool `json:"dry_run,omitempty" doc:"Only count; true when absent"`
}

// DLQPurged is how many entries were forgotten; in a dry run, would be.
type DLQPurged struct {
	Purged int  `json:"purged"`
	DryRun bool `json:"dry_run"`
}
