package config

import (
	"time"
)

// DLQ is [orchestration.dlq]: the dead letter queue.
type DLQ struct {
	Enabled            bool               `toml:"enabled"`
	StalenessDetection StalenessDetection `toml:"staleness_detection"`
}

// StalenessDetection looks for tasks that no longer move.
type StalenessDetection struct {
	Enabled           bool                `toml:"enabled"`
	DetectionInterval time.Duration       `toml:"detection_interval_seconds"`
	BatchSize         int                 `toml:"batch_size"`
	DryRun            bool                `toml:"dry_run"`
	Thresholds        StalenessThresholds `toml:"thresholds"`
	Actions           StalenessActions    `toml:"actions"`
}

// StalenessThresholds are the ages at which a task counts as stale.
type StalenessThresholds struct {
	WaitingForDependencies time.Duration `toml:"waiting_for_dependencies_minutes"`
	WaitingForRetry        time.Duration `toml:"waiting_for_retry_minutes"`
	StepsInProcess         time.Duration `toml:"steps_in_process_minutes"`
	TaskMaxLifetime        time.Duration `toml:"task_max_lifetime_hours"`
}

// StalenessActions say what is done with a stale task.
type StalenessActions struct {
	AutoTransitionToError bool `toml:"auto_transition_to_error"`
	AutoMoveToDLQ         bool `toml:"auto_move_to_dlq"`
}
