package config

import "slices"

// systemDefaults are the defaults in which the three event systems differ.
type systemDefaults struct {
	prefix, id      string
	batchKey        string // bounds what the system takes at once
	batch, parallel int64
	fallbackSeconds int64
	intervalMS      int64
	relaxedMS       int64
}

// eventSystemKeys are the keys of one event system.
func eventSystemKeys(d systemDefaults) []Key {
	mode := key("deployment_mode", TypeMode, "Hybrid", "How the system learns of work: events, polling or both.",
		"Hybrid listens and polls at a relaxed pace; EventDrivenOnly never polls; PollingOnly keeps no connection open; Disabled leaves the work to other replicas.")
	return under(d.prefix, slices.Concat(
		[]Key{
			mode.env("TASKER_DEPLOYMENT_MODE", "DEPLOYMENT_MODE").reload(),
			text("system_id", d.id, "Name of the system in logs and metrics.", "Dashboards and alerts refer to it.").must(notEmpty()),
		},
		systemTimingKeys(d),
		systemProcessingKeys(d),
		systemHealthKeys(),
		systemListenerKeys(),
		systemPollerKeys(d),
	)...)
}

func systemTimingKeys(d systemDefaults) []Key {
	return under("timing",
		integer("fallback_polling_interval_seconds", d.fallbackSeconds, 1, 300, "Poll interval of a healthy Hybrid system.",
			"Sets poller.relaxed_interval_ms unless a file sets that key as well.").reload().sets(d.prefix+relaxedIntervalName),
		integer("visibility_timeout_seconds", 30, 1, 3600, "Time a received message stays hidden from others.",
			"").ignored(theLease),
		integer("processing_timeout_seconds", 60, 1, 3600, "Limit for processing one event.",
			"Beyond it the event counts as failed."),
		integer("claim_timeout_seconds", 300, 1, 3600, "Age at which an abandoned claim expires.",
			"").ignored(theLease),
		integer("health_check_interval_seconds", 30, 1, 3600, "How often the system judges its own health.",
			"").ignored("health is judged whenever it is asked for"),
	)
}

func systemProcessingKeys(d systemDefaults) []Key {
	const oneLook = "a system looks once at a time, for all there is room for; "
	return under("processing",
		integer("batch_size", d.batch, 1, 1000, "Items read at once.",
			"").ignored(oneLook+d.batchKey+" bounds it"),
		integer("max_concurrent_operations", d.parallel, 1, 10000, "Items processed at the same time.",
			"").ignored(oneLook+d.batchKey+" bounds it"),
		integer("max_retries", 3, 0, 100, "Retries of a failed item.",
			"").ignored("a look that fails is repeated until it succeeds, after the delays of processing.backoff"),
		integer("backoff.initial_delay_ms", 100, 0, 3600000, "Delay before the first retry.", "How hard a failing dependency is hit."),
		integer("backoff.max_delay_ms", 10000, 0, 3600000, "Longest delay between retries.", "Caps the growth."),
		float("backoff.multiplier", 2, 1, 10, "Growth of the delay per failure.", "How fast the system backs away."),
		float("backoff.jitter_percent", 0.1, 0, 1, "Deviation of the delay, as a fraction.", "Spreads retries of many replicas."),
	)
}

func systemHealthKeys() []Key {
	return under("health",
		boolean("enabled", true, "Judge health by the errors of looks.", "Off, errors turn the system neither unhealthy nor unready."),
		boolean("performance_monitoring_enabled", true, "Time the way from a signal to the end of its look.", "Off, tasker_event_processing_duration_seconds stays empty."),
		integer("max_consecutive_errors", 10, 1, 1000, "Errors in a row that make the system unhealthy.", "One success resets the count."),
		integer("error_rate_threshold_per_minute", 20, 1, 10000, "Errors per minute above which the system is unhealthy.",
			"Catches failures mixed with successes."),
	)
}

func systemListenerKeys() []Key {
	return under("listener",
		integer("connection_timeout_ms", 5000, 100, 300000, "Limit for opening the listening connection.",
			"Beyond it the attempt counts as failed."),
		integer("reconnect_initial_ms", 100, 1, 3600000, "Delay before the first attempt to reconnect.",
			"Shorter recovers sooner from a blip."),
		integer("reconnect_max_ms", 5000, 1, 3600000, "Longest delay between attempts.",
			"Bounds the time without events after the database is back."),
		float("jitter_percent", 0.2, 0, 1, "Deviation of these delays, as a fraction.",
			"Keeps a fleet from reconnecting at the same moment."),
		integer("max_reconnect_attempts", 10, 1, 1000000, "Failed attempts after which on_listener_failure applies.",
			"Attempts go on for ever all the same."),
		text("on_listener_failure", "unready", "What an EventDrivenOnly system does then: turn unready, poll meanwhile, or exit.",
			"unready takes the replica out of service, poll keeps working at the poller's interval, exit leaves it to the supervisor.").
			oneOf("unready", "poll", "exit"),
		integer("health_check_interval_ms", 5000, 50, 3600000, "How often the listener sends itself a probe and times it.",
			"Resolution of the measured lag; each probe is one tiny message."),
		integer("fallback_activation_threshold_ms", 10000, 50, 3600000, "Silence after which the listener counts as deaf.",
			"From then on Hybrid polls at the tight interval."),
		integer("recovery_threshold", 2, 1, 1000, "Good probes in a row before the poller relaxes again.",
			"Higher avoids flapping between the two paces."),
	)
}

func systemPollerKeys(d systemDefaults) []Key {
	return under("poller",
		integer("interval_ms", d.intervalMS, 1, 3600000, "Poll interval of PollingOnly, and of Hybrid while the listener is deaf.",
			"The latency bound without events, paid with one cheap query each time.").reload(),
		integer("relaxed_interval_ms", d.relaxedMS, 1, 3600000, "Poll interval of Hybrid while the listener is healthy.",
			"Bounds the delay of a lost signal; follows timing.fallback_polling_interval_seconds when only that is set.").reload(),
		float("jitter_percent", 0.1, 0, 1, "Deviation of the interval, as a fraction.",
			"Keeps replicas from polling at the same moment."),
		integer("error_backoff_base_ms", 1000, 1, 3600000, "Delay after the first failed poll.",
			"How hard a failing database is hit."),
		integer("error_backoff_max_ms", 30000, 1, 3600000, "Longest delay after failed polls.",
			"Bounds the time to notice that the database is back."),
		float("error_backoff_multiplier", 2, 1, 10, "Growth of that delay per failure.",
			"How fast polling backs away."),
	)
}
