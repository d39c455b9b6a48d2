package config

import (
	"time"

	"github.com/tasker-go/tasker/deploymode"
)

// olderSpellings are found in older descriptions of the configuration. Where a current key
// means the same in the same unit, the value is used.
type olderSpellings struct {
	_ struct {
		_ deploymode.Mode `toml:"deployment_mode" sets:"<o>.deployment_mode <r>.deployment_mode" effect:"Used for both event systems."`
		_ bool            `toml:"hybrid.enable_event_listeners"`
		_ time.Duration   `toml:"hybrid.listener_reconnect_interval_ms" min:"0" max:"86400000" sets:"<o>.listener.reconnect_max_ms <r>.listener.reconnect_max_ms"`
		_ time.Duration   `toml:"hybrid.listener_health_check_interval_ms" min:"0" max:"86400000"`
		_ bool            `toml:"hybrid.enable_polling_fallback"`
		_ time.Duration   `toml:"hybrid.polling_interval_ms" min:"0" max:"86400000" sets:"<o>.poller.interval_ms <r>.poller.interval_ms"`
		_ time.Duration   `toml:"hybrid.fallback_activation_threshold_ms" min:"0" max:"86400000" sets:"<o>.listener.fallback_activation_threshold_ms <r>.listener.fallback_activation_threshold_ms"`
		_ bool            `toml:"worker_events.enable_worker_listeners"`
		_ time.Duration   `toml:"worker_events.worker_listener_reconnect_ms" min:"0" max:"86400000"`
		_ time.Duration   `toml:"event_driven.listener_reconnect_interval_ms" min:"0" max:"86400000" sets:"<o>.listener.reconnect_max_ms <r>.listener.reconnect_max_ms"`
		_ time.Duration   `toml:"event_driven.listener_health_check_interval_ms" min:"0" max:"86400000"`
		_ int             `toml:"event_driven.max_reconnect_attempts" min:"0" max:"86400000" sets:"<o>.listener.max_reconnect_attempts <r>.listener.max_reconnect_attempts"`
		_ []string        `toml:"event_driven.channels"`
		_ int             `toml:"event_driven.listener_pool_size" min:"0" max:"86400000"`
		_ time.Duration   `toml:"event_driven.connection_timeout_ms" min:"0" max:"86400000" sets:"<o>.listener.connection_timeout_ms <r>.listener.connection_timeout_ms"`
		_ time.Duration   `toml:"polling.task_request_poll_interval_ms" min:"0" max:"86400000"`
		_ time.Duration   `toml:"polling.step_result_poll_interval_ms" min:"0" max:"86400000" sets:"<o>.poller.interval_ms"`
		_ time.Duration   `toml:"polling.finalization_poll_interval_ms" min:"0" max:"86400000"`
		_ int             `toml:"polling.batch_size" min:"0" max:"86400000"`
		_ int             `toml:"polling.max_messages_per_poll" min:"0" max:"86400000"`
		_ time.Duration   `toml:"polling.error_backoff_base_ms" min:"0" max:"86400000" sets:"<o>.poller.error_backoff_base_ms <r>.poller.error_backoff_base_ms"`
		_ time.Duration   `toml:"polling.error_backoff_max_ms" min:"0" max:"86400000" sets:"<o>.poller.error_backoff_max_ms <r>.poller.error_backoff_max_ms"`
		_ float64         `toml:"polling.error_backoff_multiplier" min:"1" max:"10" sets:"<o>.poller.error_backoff_multiplier <r>.poller.error_backoff_multiplier"`
	} `toml:"orchestration" o:"orchestration.event_systems.orchestration" r:"orchestration.event_systems.task_readiness"`
}
