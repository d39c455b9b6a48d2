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
	IntervalSeconds   int64 `toml:"interval_seconds"`
	StaleAfterSeconds int64 `toml:"stale_after_seconds"`
	DeadAfterSeconds  int64 `toml:"dead_after_seconds"`
	BatchSize         int   `toml:"batch_size"`
}

// Interval returns interval_seconds: how often to look.
func (l LivenessSweep) Interval() time.Duration {
	return time.Duration(l.IntervalSeconds) * time.Second
}

// StaleAfter returns stale_after_seconds: age of a heartbeat at which a worker is stale.
func (l LivenessSweep) StaleAfter() time.Duration {
	return time.Duration(l.StaleAfterSeconds) * time.Second
}

// DeadAfter returns dead_after_seconds: age of a heartbeat at which a worker is dead.
func (l LivenessSweep) DeadAfter() time.Duration {
	return time.Duration(l.DeadAfterSeconds) * time.Second
}

// DeadlineSweep cancels tasks that still wait when their deadline has passed.
type DeadlineSweep struct {
	Enabled         bool  `toml:"enabled"`
	IntervalSeconds int64 `toml:"interval_seconds"`
	BatchSize       int   `toml:"batch_size"`
}

// Interval returns interval_seconds: how often to look.
func (d DeadlineSweep) Interval() time.Duration {
	return time.Duration(d.IntervalSeconds) * time.Second
}

// DependencySweep looks again at tasks that wait for others and would never be told.
type DependencySweep struct {
	IntervalSeconds int64 `toml:"interval_seconds"`
	BatchSize       int   `toml:"batch_size"`
}

// Interval returns interval_seconds: how often to look.
func (d DependencySweep) Interval() time.Duration {
	return time.Duration(d.IntervalSeconds) * time.Second
}

// SignalSweep signals again what has waited suspiciously long.
type SignalSweep struct {
	IntervalSeconds int64 `toml:"interval_seconds"`
	OverdueSeconds  int64 `toml:"overdue_seconds"`
}

// Interval returns interval_seconds: how often to look.
func (s SignalSweep) Interval() time.Duration {
	return time.Duration(s.IntervalSeconds) * time.Second
}

// Overdue returns overdue_seconds: time in line after which something is signalled again.
func (s SignalSweep) Overdue() time.Duration {
	return time.Duration(s.OverdueSeconds) * time.Second
}

// Retention is [orchestration.retention]: how long what has ended is kept.
type Retention struct {
	TTLSeconds           int64 `toml:"ttl_seconds"`
	DeadLetterTTLSeconds int64 `toml:"dead_letter_ttl_seconds"`
	EventTTLSeconds      int64 `toml:"event_ttl_seconds"`
	IntervalSeconds      int64 `toml:"interval_seconds"`
	BatchSize            int   `toml:"batch_size"`
	DryRun               bool  `toml:"dry_run"`
}

// TTL returns ttl_seconds: time from the end of a task until it is deleted; 0 keeps it for ever.
func (r Retention) TTL() time.Duration {
	return time.Duration(r.TTLSeconds) * time.Second
}

// DeadLetterTTL returns dead_letter_ttl_seconds: time from the end of an investigation until it is deleted; 0 keeps it for ever.
func (r Retention) DeadLetterTTL() time.Duration {
	return time.Duration(r.DeadLetterTTLSeconds) * time.Second
}

// EventTTL returns event_ttl_seconds: time from the publishing of a domain event until it is deleted; 0 keeps it for ever.
func (r Retention) EventTTL() time.Duration {
	return time.Duration(r.EventTTLSeconds) * time.Second
}

// Interval returns interval_seconds: how often to look.
func (r Retention) Interval() time.Duration {
	return time.Duration(r.IntervalSeconds) * time.Second
}

// Backpressure is [orchestration.backpressure]: what is refused when queues grow.
type Backpressure struct {
	RefuseTasks bool `toml:"refuse_tasks"`
}
