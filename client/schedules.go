package client

import "encoding/json"

// What a schedule does about runs that were missed.
const (
	CatchUpSkip = "skip" // they are left out
	CatchUpOne  = "one"  // the last of them is made, for all
	CatchUpAll  = "all"  // all of them are made, up to a number
)

// What a schedule does while the task of its last run is alive.
const (
	OverlapAllow = "allow" // it runs beside it
	OverlapSkip  = "skip"  // it leaves the run out
)

// Bounds of schedules.
const (
	MaxCatchUp          = 1000
	DefaultMaxCatchUp   = 10
	MaxJitterSeconds    = 3600
	DefaultNextRuns     = 10
	MaxNextRuns         = 100
	MaxSchedulesPerPage = 100
)

// ScheduleRequest is the body of POST /v1/schedules.
type ScheduleRequest struct {
	Name      string `json:"name" doc:"Unique in its namespace: letters, digits, dots, hyphens and underscores" maxLength:"64"`
	Namespace string `json:"namespace" doc:"Of the template, too" maxLength:"64"`
	Template  string `json:"template" doc:"Name of the template" maxLength:"64"`
	Version   string `json:"version" doc:"Version of the template" maxLength:"50"`
	Cron      string `json:"cron" doc:"Five fields, @daily and the like, or @every 5m" maxLength:"255"`
	// TimeZone is that of the fields; empty means UTC.
	TimeZone string `json:"time_zone,omitempty" doc:"IANA name of the time zone; UTC when absent" maxLength:"64"`
	// Context is that of every task; a JSON object, empty when absent.
	Context       json.RawMessage `json:"context,omitempty" doc:"Of every task; a JSON object of at most 65536 bytes, empty when absent"`
	Priority      int             `json:"priority,omitempty" doc:"-100 to 100; 0 is the template's"`
	Tags          []string        `json:"tags,omitempty" doc:"Of every task" maxItems:"63"`
	CatchUp       string          `json:"catch_up,omitempty" doc:"What becomes of missed runs; skip when absent" enum:"skip,one,all"`
	MaxCatchUp    int             `json:"max_catch_up,omitempty" doc:"How many missed runs are made up for with all, 1 to 1000; 10 when absent"`
	Overlap       string          `json:"overlap,omitempty" doc:"What becomes of a run while the task before is alive; allow when absent" enum:"allow,skip"`
	JitterSeconds int             `json:"jitter_seconds,omitempty" doc:"Tasks begin up to so much later, 0 to 3600"`
	MaxAttempts   int             `json:"max_attempts,omitempty" doc:"Of every task, in place of the template's"`
	RetryDelays   []string        `json:"retry_delays,omitempty" doc:"Of every task, such as 10s or 5m, in place of the template's" maxItems:"32"`
	// Actor and Reason are kept in the history of operators' actions.
	Actor  string `json:"actor,omitempty" doc:"Who acts" maxLength:"255"`
	Reason string `json:"reason,omitempty" doc:"Kept in the history" maxLength:"500"`
	// DryRun only checks it and tells when it would run.
	DryRun bool `json:"dry_run,omitempty" doc:"Only tell what it would come to"`
}

// ScheduleUpdate is the body of PATCH /v1/schedules/{id}; what is nil stays.
type ScheduleUpdate struct {
	Template      *string         `json:"template,omitempty" maxLength:"64"`
	Version       *string         `json:"version,omitempty" maxLength:"50"`
	Cron          *string         `json:"cron,omitempty" doc:"With another one the next run is counted from now" maxLength:"255"`
	TimeZone      *string         `json:"time_zone,omitempty" doc:"With another one the next run is counted from now" maxLength:"64"`
	Context       json.RawMessage `json:"context,omitempty" doc:"Takes the place of the old one"`
	Priority      *int            `json:"priority,omitempty"`
	Tags          *[]string       `json:"tags,omitempty" doc:"Take the place of the old ones" maxItems:"63"`
	CatchUp       *string         `json:"catch_up,omitempty" enum:"skip,one,all"`
	MaxCatchUp    *int            `json:"max_catch_up,omitempty"`
	Overlap       *string         `json:"overlap,omitempty" enum:"allow,skip"`
	JitterSeconds *int            `json:"jitter_seconds,omitempty"`
	MaxAttempts   *int            `json:"max_attempts,omitempty" doc:"0: the template's"`
	RetryDelays   *[]string       `json:"retry_delays,omitempty" doc:"Take the place of the old ones; empty: the template's" maxItems:"32"`
	Actor         string          `json:"actor,omitempty" doc:"Who acts" maxLength:"255"`
	Reason        string          `json:"reason,omitempty" doc:"Kept in the history" maxLength:"500"`
	DryRun        bool            `json:"dry_run,omitempty" doc:"Only tell what it would come to"`
}

// Schedule creates tasks again and again.
type Schedule struct {
	ScheduleID    string          `json:"schedule_id" doc:"All zeros where it was only a dry run"`
	Namespace     string          `json:"namespace"`
	Name          string          `json:"name"`
	Template      string          `json:"template"`
	Version       string          `json:"version"`
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
	NextRunAt     Time            `json:"next_run_at" format:"date-time" doc:"It means nothing while the schedule is paused"`
	LastRunAt     *Time           `json:"last_run_at" format:"date-time" doc:"The time that the last run was for"`
	LastTaskUUID  *string         `json:"last_task_uuid"`
	LastError     *string         `json:"last_error" doc:"Why the last run that was due created no task"`
	CreatedAt     Time            `json:"created_at" format:"date-time"`
	UpdatedAt     Time            `json:"updated_at" format:"date-time"`
	// NextRuns are the next five runs, where one schedule is shown.
	NextRuns []NextRun `json:"next_runs,omitempty" doc:"The next five, where one schedule is shown"`
}

// NextRun is a run to come.
type NextRun struct {
	At Time `json:"at" format:"date-time"`
	// Local is the same moment as clocks in the time zone show it.
	Local string `json:"local" doc:"As clocks in the time zone show it"`
}

// NextRuns is the runs that a schedule will make.
type NextRuns struct {
	ScheduleID string    `json:"schedule_id"`
	TimeZone   string    `json:"time_zone"`
	Paused     bool      `json:"paused" doc:"Then none of them is made before it is resumed"`
	Runs       []NextRun `json:"runs"`
}

// ScheduleRun is a run that was made by hand.
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
	PerPage   int // 1 to MaxSchedulesPerPage; 0 means 25
	Namespace string
	Name      string
	Template  string
	Paused    *bool
}
