package config

import (
	"time"
)

// Sweeps is [orchestration.sweeps]: what any orchestrator looks after from time
// to time. The fleet makes each sweep once per interval.
type Sweeps struct {
	Liveness     LivenessSweep   `toml:"liveness"`
	Deadlines    DeadlineSweep   `toml:"deadlines"`
	Dependencies DependencySweep `toml:"dependencies"`
	Signals      SignalSweep     `toml:"signals"`
}

// LivenessSweep judges workers by the age of their heartbeats.
type LivenessSweep struct {
	Interval   time.Duration `toml:"interval_seconds"`
	StaleAfter time.Duration `toml:"stale_after_seconds"`
	DeadAfter  time.Duration `toml:"dead_after_seconds"`
	BatchSize  int           `toml:"batch_size"`
}

// DeadlineSweep cancels tasks that still wait when their deadline has passed.
type DeadlineSweep struct {
	Enabled   bool          `toml:"enabled"`
	Interval  time.Duration `toml:"interval_seconds"`
	BatchSize int           `toml:"batch_size"`
}

// DependencySweep looks again at tasks that wait for others and would never be told.
type DependencySweep struct {
	Interval  time.Duration `toml:"interval_seconds"`
	BatchSize int           `toml:"batch_size"`
}

// SignalSweep signals again what has waited suspiciously long.
type SignalSweep struct {
	Interval time.Duration `toml:"interval_seconds"`
	Overdue  time.Duration `toml:"overdue_seconds"`
}

// Retention is [orchestration.retention]: how long what has ended is kept.
type Retention struct {
	TTL           time.Duration `toml:"ttl_seconds"`
	DeadLetterTTL time.Duration `toml:"dead_letter_ttl_seconds"`
	EventTTL      time.Duration `toml:"event_ttl_seconds"`
	Interval      time.Duration `toml:"interval_seconds"`
	BatchSize     int           `toml:"batch_size"`
	DryRun        bool          `toml:"dry_run"`
}

// Backpressure is [orchestration.backpressure]: what is refused when queues grow.
type Backpressure struct {
	RefuseTasks bool `toml:"refuse_tasks"`
}
