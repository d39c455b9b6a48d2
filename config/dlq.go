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
	Enabled                  bool                `toml:"enabled"`
	DetectionIntervalSeconds int64               `toml:"detection_interval_seconds"`
	BatchSize                int                 `toml:"batch_size"`
	DryRun                   bool                `toml:"dry_run"`
	Thresholds               StalenessThresholds `toml:"thresholds"`
	Actions                  StalenessActions    `toml:"actions"`
}

// DetectionInterval returns detection_interval_seconds: how often to look.
func (s StalenessDetection) DetectionInterval() time.Duration {
	return time.Duration(s.DetectionIntervalSeconds) * time.Second
}

// StalenessThresholds are the ages at which a task counts as stale.
type StalenessThresholds struct {
	WaitingForDependenciesMinutes int64 `toml:"waiting_for_dependencies_minutes"`
	WaitingForRetryMinutes        int64 `toml:"waiting_for_retry_minutes"`
	StepsInProcessMinutes         int64 `toml:"steps_in_process_minutes"`
	TaskMaxLifetimeHours          int64 `toml:"task_max_lifetime_hours"`
}

// WaitingForDependencies returns waiting_for_dependencies_minutes: longest wait for parents.
func (s StalenessThresholds) WaitingForDependencies() time.Duration {
	return time.Duration(s.WaitingForDependenciesMinutes) * time.Minute
}

// WaitingForRetry returns waiting_for_retry_minutes: longest wait for a retry.
func (s StalenessThresholds) WaitingForRetry() time.Duration {
	return time.Duration(s.WaitingForRetryMinutes) * time.Minute
}

// StepsInProcess returns steps_in_process_minutes: longest time with steps being processed.
func (s StalenessThresholds) StepsInProcess() time.Duration {
	return time.Duration(s.StepsInProcessMinutes) * time.Minute
}

// TaskMaxLifetime returns task_max_lifetime_hours: greatest age of a task in any state.
func (s StalenessThresholds) TaskMaxLifetime() time.Duration {
	return time.Duration(s.TaskMaxLifetimeHours) * time.Hour
}

// StalenessActions say what is done with a stale task.
type StalenessActions struct {
	AutoTransitionToError bool `toml:"auto_transition_to_error"`
	AutoMoveToDLQ         bool `toml:"auto_move_to_dlq"`
}
