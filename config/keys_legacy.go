package config

// legacyKeys are spellings found in older descriptions of the configuration.
// Where a current key means the same in the same unit, the value is used.
func legacyKeys() []Key {
	const (
		o, r = "orchestration.event_systems.orchestration.", "orchestration.event_systems.task_readiness."
		old  = "Older spelling."
		none = "None."
	)
	both := func(name string) []string { return []string{o + name, r + name} }
	ms := func(name string, standsFor ...string) Key {
		impact := none
		if len(standsFor) > 0 {
			impact = "Used for the keys that replace it."
		}
		return integer(name, 0, 0, 86400000, old, impact).older(standsFor...)
	}
	return under("orchestration",
		key("deployment_mode", TypeMode, nil, old, "Used for both event systems.").older(both("deployment_mode")...),

		boolean("hybrid.enable_event_listeners", true, old, none).older(),
		ms("hybrid.listener_reconnect_interval_ms", both("listener.reconnect_max_ms")...),
		ms("hybrid.listener_health_check_interval_ms"),
		boolean("hybrid.enable_polling_fallback", true, old, none).older(),
		ms("hybrid.polling_interval_ms", both("poller.interval_ms")...),
		ms("hybrid.fallback_activation_threshold_ms", both("listener.fallback_activation_threshold_ms")...),

		boolean("worker_events.enable_worker_listeners", true, old, none).older(),
		ms("worker_events.worker_listener_reconnect_ms"),

		ms("event_driven.listener_reconnect_interval_ms", both("listener.reconnect_max_ms")...),
		ms("event_driven.listener_health_check_interval_ms"),
		ms("event_driven.max_reconnect_attempts", both("listener.max_reconnect_attempts")...),
		texts("event_driven.channels", nil, old, none).older(),
		ms("event_driven.listener_pool_size"),
		ms("event_driven.connection_timeout_ms", both("listener.connection_timeout_ms")...),

		ms("polling.task_request_poll_interval_ms"),
		ms("polling.step_result_poll_interval_ms", o+"poller.interval_ms"),
		ms("polling.finalization_poll_interval_ms"),
		ms("polling.batch_size"),
		ms("polling.max_messages_per_poll"),
		ms("polling.error_backoff_base_ms", both("poller.error_backoff_base_ms")...),
		ms("polling.error_backoff_max_ms", both("poller.error_backoff_max_ms")...),
		float("polling.error_backoff_multiplier", 0, 1, 10, old, "Used for the keys that replace it.").
			older(both("poller.error_backoff_multiplier")...),
	)
}
