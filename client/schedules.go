package client

import "encoding/json"

// A schedule's policies for missed runs.
const (
	CatchUpSkip = "skip" // they are skipped
	CatchUpOne  = "one"  // only the last one is made
	CatchUpAll  = "all"  // all are made, up to MaxCatchUp
)

// A schedule's policies while the task of its last run is alive.
const (
	OverlapAllow = "allow" // run concurrently
	OverlapSkip  = "skip"  // skip the run
)

// ScheduleRequest is the body of POST /v1/schedules.
type ScheduleRequest struct {
	Name      string `json:"name" doc:"Unique in its namespace: letters, digits, dots, hyphens and underscores" maxLength:"64"`
	Namespace string `json:"namespace" doc:"Of the template, too" maxLength:"64"`
	Template  string `json:"template" doc:"Name of the template" maxLength:"64"`
	// Version of the template; empty: each run has the highest that is not deprecated then.
	Version string `json:"version,omitempty" doc:"Version of the template; absent: the highest that is not deprecated when the run is made" maxLength:"50"`
	Cron    string `json:"cron" doc:"Five fields, @daily and the like, or @every 5m" maxLength:"255"`
	// TimeZone is that of the fields; empty means UTC.
	TimeZone string `json:"time_zone,omitempty" doc:"IANA name of the time zone; UTC when absent" maxLength:"64"`
	// Context is that of every task; a JSON object, empty when absent.
	Context       json.RawMessage `json:"context,omitempty" doc:"Of every task; a JSON object of at most 65536 bytes, empty when absent"`
	Priority      int             `json:"priority,omitempty" doc:"-100 to 100; 0 is the template's"`
	Tags          []string        `json:"tags,omitempty" doc:"Of every task" maxItems:"63"`
	CatchUp       string          `json:"catch_up,omitempty" doc:"Policy for missed runs; skip when absent" enum:"skip,one,all"`
	MaxCatchUp    int             `json:"max_catch_up,omitempty" doc:"Bound of missed runs made with all, 1 to 1000; 10 when absent"`
	Overlap       string          `json:"overlap,omitempty" doc:"Policy for a run while the previous task is alive; allow when absent" enum:"allow,skip"`
	JitterSeconds int             `json:"jitter_seconds,omitempty" doc:"Tasks begin up to so much later, 0 to 3600"`
	MaxAttempts   int             `json:"max_attempts,omitempty" doc:"Of every task, in place of the template's"`
	RetryDelays   []string        `json:"retry_delays,omitempty" doc:"Of every task, such as 10s or 5m, instead of the template's" maxItems:"32"`
	// Actor and Reason are recorded in the history of operators' actions.
	Actor  string `json:"actor,omitempty" doc:"Who acts" maxLength:"255"`
	Reason string `json:"reason,omitempty" doc:"Kept in the history" maxLength:"500"`
	// DryRun only validates it and returns its next runs.
	DryRun bool `json:"dry_run,omitempty" doc:"Only preview"`
}

// ScheduleUpdate is the body of PATCH /v1/schedules/{id}; nil fields stay.
type ScheduleUpdate struct {
	Template      *string         `json:"template,omitempty" maxLength:"64"`
	Version       *string         `json:"version,omitempty" doc:"Empty: each run has the highest that is not deprecated" maxLength:"50"`
	Cron          *string         `json:"cron,omitempty" doc:"A change computes the next run from now" maxLength:"255"`
	TimeZone      *string         `json:"time_zone,omitempty" doc:"A change computes the next run from now" maxLength:"64"`
	Context       json.RawMessage `json:"context,omitempty" doc:"Replaces the old one"`
	Priority      *int            `json:"priority,omitempty"`
	Tags          *[]string       `json:"tags,omitempty" doc:"Replace the old ones" maxItems:"63"`
	CatchUp       *string         `json:"catch_up,omitempty" enum:"skip,one,all"`
	MaxCatchUp    *int            `json:"max_catch_up,omitempty"`
	Overlap       *string         `json:"overlap,omitempty" enum:"allow,skip"`
	JitterSeconds *int            `json:"jitter_seconds,omitempty"`
	MaxAttempts   *int            `json:"max_attempts,omitempty" doc:"0: the template's"`
	RetryDelays   *[]string       `json:"retry_delays,omitempty" doc:"Replace the old ones; empty: the template's" maxItems:"32"`
	Actor         string          `json:"actor,omitempty" doc:"Who acts" maxLength:"255"`
	Reason        string          `json:"reason,omitempty" doc:"Kept in the history" maxLength:"500"`
	DryRun        bool            `json:"dry_run,omitempty" doc:"Only preview"`
}

// Schedule creates tasks again and again.
type Schedule struct {
	ScheduleID    string          `json:"schedule_id" doc:"All zeros where it was only a dry run"`
	Namespace     string          `json:"namespace"`
	Name          string          `json:"name"`
	Template      string          `json:"template"`
	Version       string          `json:"version" doc:"Empty: each run has the highest that is not deprecated"`
	Cron          string          `json:"cron"`
	TimeZone      string          `json:"time_zone"`
	Context       json.RawMessage `json:"context"`
	Priority      int             `json:"priority"`
	Tags          []string        `json:"tags"`
	CatchUp       string          `json:"catch_up" enum:"skip,one,all"`
	MaxCatchUp    int             `json:"max_catch_up"`
	Overlap       string          `json:"overlap" enum:"allow,skip"`
	JitterSeconds int             `json:"jitter_seconds"`
	MaxAttempts   int             `json:"max_attempts,omitempty"`
	RetryDelays   []string        `json:"retry_delays,omitempty"`
	Paused        bool            `json:"paused"`
	PausedAt      *Time           `json:"paused_at" format:"date-time"`
	PausedBy      *string         `json:"paused_by"`
	PauseReason   *string         `json:"pause_reason"`
	NextRunAt     Time            `json:"next_run_at" format:"date-time" doc:"Meaningless while the schedule is paused"`
	LastRunAt     *Time           `json:"last_run_at" format:"date-time" doc:"The time that the last run was for"`
	LastTaskUUID  *string         `json:"last_task_uuid"`
	LastError     *string         `json:"last_error" doc:"Why the last run that was due created no task"`
	CreatedAt     Time            `json:"created_at" format:"date-time"`
	UpdatedAt     Time            `json:"updated_at" format:"date-time"`
	// NextRuns are the next five runs, where one schedule is shown.
	NextRuns []NextRun `json:"next_runs,omitempty" doc:"The next five, for a single schedule"`
}

// NextRun is a future run.
type NextRun struct {
	At Time `json:"at" format:"date-time"`
	// Local is the same moment as local time of the time zone.
	Local string `json:"local" doc:"As clocks in the time zone show it"`
}

// NextRuns is the runs that a schedule will make.
type NextRuns struct {
	ScheduleID string    `json:"schedule_id"`
	TimeZone   string    `json:"time_zone"`
	Paused     bool      `json:"paused" doc:"Then none of them happens before it is resumed"`
	Runs       []NextRun `json:"runs"`
}

// ScheduleRun is a run requested by hand.
type ScheduleRun struct {
	ScheduleID string `json:"schedule_id"`
	TaskUUID   string `json:"task_uuid"`
}

// ScheduleList is one page of schedules by namespace and name.
type ScheduleList struct {
	Schedules  []Schedule `json:"schedules"`
	Pagination Pagination `json:"pagination"`
}

// ScheduleListOptions select schedules; zero values select everything.
type ScheduleListOptions struct {
	Page      int // from 1
	PerPage   int // 1 to 100; 0 means 25
	Namespace string
	Name      string
	Template  string
	Paused    *bool
}
