package config

import (
	"time"

	"github.com/tasker-go/tasker/deploymode"
)

// EventSystem is one event system: how a daemon learns of work and goes about it.
type EventSystem struct {
	DeploymentMode deploymode.Mode `toml:"deployment_mode" default:"Hybrid" env:"TASKER_DEPLOYMENT_MODE,DEPLOYMENT_MODE" reload:"yes" doc:"How the system learns of work: events, polling or both." effect:"Hybrid listens and polls at a relaxed pace; EventDrivenOnly never polls; PollingOnly keeps no connection open; Disabled leaves the work to other replicas."`
	SystemID       string          `toml:"system_id" default:"<id>" rule:"nonempty" doc:"Name of the system in logs and metrics." effect:"Dashboards and alerts refer to it."`
	Timing         struct {
		_                 time.Duration `toml:"fallback_polling_interval_seconds" default:"<fallback>" min:"1" max:"300" reload:"yes" sets:".poller.relaxed_interval_ms" doc:"Poll interval of a healthy Hybrid system." effect:"Sets poller.relaxed_interval_ms unless a file sets that key as well."`
		_                 time.Duration `toml:"visibility_timeout_seconds" default:"30" min:"1" max:"3600" ignored:"worker.lease_seconds decides how long a claim lasts" doc:"Time a received message stays hidden from others."`
		ProcessingTimeout time.Duration `toml:"processing_timeout_seconds" default:"60" min:"1" max:"3600" doc:"Limit for processing one event." effect:"Beyond it the event counts as failed."`
		_                 time.Duration `toml:"claim_timeout_seconds" default:"300" min:"1" max:"3600" ignored:"worker.lease_seconds decides how long a claim lasts" doc:"Age at which an abandoned claim expires."`
		_                 time.Duration `toml:"health_check_interval_seconds" default:"30" min:"1" max:"3600" ignored:"health is judged whenever it is asked for" doc:"How often the system judges its own health."`
	} `toml:"timing"`
	Processing struct {
		_       int `toml:"batch_size" default:"<batch>" min:"1" max:"1000" ignored:"a system looks once at a time, for all there is room for; <bound> bounds it" doc:"Items read at once."`
		_       int `toml:"max_concurrent_operations" default:"<parallel>" min:"1" max:"10000" ignored:"a system looks once at a time, for all there is room for; <bound> bounds it" doc:"Items processed at the same time."`
		_       int `toml:"max_retries" default:"3" min:"0" max:"100" ignored:"a look that fails is repeated until it succeeds, after the delays of processing.backoff" doc:"Retries of a failed item."`
		Backoff struct {
			InitialDelay  time.Duration `toml:"initial_delay_ms" default:"100" min:"0" max:"3600000" doc:"Delay before the first retry." effect:"How hard a failing dependency is hit."`
			MaxDelay      time.Duration `toml:"max_delay_ms" default:"2000" min:"0" max:"3600000" doc:"Longest delay between retries." effect:"Caps the growth. No look waits longer than 2 s, and a poll does not wait."`
			Multiplier    float64       `toml:"multiplier" default:"2" min:"1" max:"10" doc:"Growth of the delay per failure." effect:"How fast the system backs away."`
			JitterPercent float64       `toml:"jitter_percent" default:"0.1" min:"0" max:"1" doc:"Deviation of the delay, as a fraction." effect:"Spreads retries of many replicas."`
		} `toml:"backoff"`
	} `toml:"processing"`
	Health struct {
		Enabled                      bool `toml:"enabled" default:"true" doc:"Judge health by the errors of looks." effect:"Off, errors turn the system neither unhealthy nor unready."`
		PerformanceMonitoringEnabled bool `toml:"performance_monitoring_enabled" default:"true" doc:"Time the way from a signal to the end of its look." effect:"Off, tasker_event_processing_duration_seconds stays empty."`
		MaxConsecutiveErrors         int  `toml:"max_consecutive_errors" default:"10" min:"1" max:"1000" doc:"Errors in a row that make the system unhealthy." effect:"One success resets the count."`
		ErrorRateThresholdPerMinute  int  `toml:"error_rate_threshold_per_minute" default:"20" min:"1" max:"10000" doc:"Errors per minute above which the system is unhealthy." effect:"Catches failures mixed with successes."`
	} `toml:"health"`
	Listener struct {
		ConnectionTimeout           time.Duration `toml:"connection_timeout_ms" default:"5000" min:"100" max:"300000" doc:"Limit for opening the listening connection." effect:"Beyond it the attempt counts as failed."`
		ReconnectInitial            time.Duration `toml:"reconnect_initial_ms" default:"100" min:"1" max:"3600000" doc:"Delay before the first attempt to reconnect." effect:"Shorter recovers sooner from a blip."`
		ReconnectMax                time.Duration `toml:"reconnect_max_ms" default:"2000" min:"1" max:"3600000" doc:"Longest delay between attempts." effect:"Bounds the time without events after the database is back."`
		JitterPercent               float64       `toml:"jitter_percent" default:"0.2" min:"0" max:"1" doc:"Deviation of these delays, as a fraction." effect:"Keeps a fleet from reconnecting at the same moment."`
		MaxReconnectAttempts        int           `toml:"max_reconnect_attempts" default:"10" min:"1" max:"1000000" doc:"Failed attempts after which on_listener_failure applies." effect:"Attempts go on for ever all the same."`
		OnListenerFailure           string        `toml:"on_listener_failure" default:"unready" oneof:"unready,poll,exit" doc:"What an EventDrivenOnly system does then: turn unready, poll meanwhile, or exit." effect:"unready takes the replica out of service, poll keeps working at the poller's interval, exit leaves it to the supervisor."`
		HealthCheckInterval         time.Duration `toml:"health_check_interval_ms" default:"5000" min:"50" max:"3600000" doc:"How often the listener sends itself a probe and times it." effect:"Resolution of the measured lag; each probe is one tiny message."`
		FallbackActivationThreshold time.Duration `toml:"fallback_activation_threshold_ms" default:"10000" min:"50" max:"3600000" doc:"Silence after which the listener counts as deaf." effect:"From then on Hybrid polls at the tight interval."`
		RecoveryThreshold           int           `toml:"recovery_threshold" default:"2" min:"1" max:"1000" doc:"Good probes in a row before the poller relaxes again." effect:"Higher avoids flapping between the two paces."`
	} `toml:"listener"`
	Poller struct {
		Interval               time.Duration `toml:"interval_ms" default:"<interval>" min:"1" max:"3600000" reload:"yes" doc:"Poll interval of PollingOnly, and of Hybrid while the listener is deaf." effect:"The latency bound without events, paid with one cheap query each time."`
		RelaxedInterval        time.Duration `toml:"relaxed_interval_ms" default:"<relaxed>" min:"1" max:"3600000" reload:"yes" doc:"Poll interval of Hybrid while the listener is healthy." effect:"Bounds the delay of a lost signal; follows timing.fallback_polling_interval_seconds when only that is set."`
		JitterPercent          float64       `toml:"jitter_percent" default:"0.1" min:"0" max:"1" doc:"Deviation of the interval, as a fraction." effect:"Keeps replicas from polling at the same moment."`
		ErrorBackoffBase       time.Duration `toml:"error_backoff_base_ms" default:"1000" min:"1" max:"3600000" doc:"Delay after the first failed poll." effect:"How hard a failing database is hit."`
		ErrorBackoffMax        time.Duration `toml:"error_backoff_max_ms" default:"2000" min:"1" max:"3600000" doc:"Longest delay after failed polls." effect:"How hard a failing database is hit. No poll waits longer than 2 s after a failed one."`
		ErrorBackoffMultiplier float64       `toml:"error_backoff_multiplier" default:"2" min:"1" max:"10" doc:"Growth of that delay per failure." effect:"How fast polling backs away."`
	} `toml:"poller"`
}
