package config

import "slices"

// operationsKeys are what keeps a fleet in order without anybody looking.
func operationsKeys() []Key {
	const decade = 315360000
	return slices.Concat(
		under("orchestration.sweeps",
			integer("liveness.interval_seconds", 15, 1, 3600, "How often the heartbeats of workers are judged.",
				"How soon a silent worker is noticed."),
			integer("liveness.stale_after_seconds", 30, 1, 86400, "Age of a heartbeat at which a worker is stale.",
				"At least two heartbeats, or a single lost one shows."),
			integer("liveness.dead_after_seconds", 120, 1, 86400, "Age of a heartbeat at which a worker is dead.",
				"Its steps go to others at once, also those with a longer lease. It comes back as another worker."),
			integer("liveness.batch_size", 100, 1, 10000, "Workers judged by one transaction.", "Length of one sweep."),
			boolean("deadlines.enabled", true, "Cancel tasks that have not begun when their deadline passes.",
				"Off, a deadline is only shown."),
			integer("deadlines.interval_seconds", 30, 1, 3600, "How often to look for passed deadlines.", "How soon such a task ends."),
			integer("deadlines.batch_size", 100, 1, 10000, "Tasks cancelled by one transaction.", "Length of one sweep."),
			integer("dependencies.interval_seconds", 60, 1, 3600, "How often to look for tasks that wait for others and would never be told.",
				"How soon such a task goes on. No flow of the engine leaves one behind."),
			integer("dependencies.batch_size", 10000, 1, 100000, "Dependencies looked at by one transaction.", "Length of one look."),
			integer("signals.interval_seconds", 30, 1, 3600, "How often to look for work that nobody was told of.",
				"How soon a lost signal is made up for where nobody polls."),
			integer("signals.overdue_seconds", 30, 1, 3600, "Time in line after which work is signalled again.",
				"Shorter signals busy queues for nothing."),
		),
		under("orchestration.retention",
			integer("ttl_seconds", 604800, 0, decade, "Time from the end of a task until it is deleted; 0 keeps it for ever.",
				"Size of the ledger. A task under investigation is kept."),
			integer("dead_letter_ttl_seconds", 2592000, 0, decade, "Time from the end of an investigation until its entry is deleted; 0 keeps it for ever.",
				"How long the dead letter queue remembers."),
			integer("event_ttl_seconds", 604800, 0, decade, "Time from the publishing of a domain event until it is deleted, a day at least; 0 keeps it for ever.",
				"How far back consumers can read. One that falls behind further loses events."),
			integer("interval_seconds", 600, 10, 86400, "How often to look for what may be deleted.", "Whole days are dropped at once."),
			integer("batch_size", 500, 1, 10000, "Tasks deleted by one transaction where a day cannot be dropped.", "Length of one transaction."),
			boolean("dry_run", false, "Only log what would be deleted.", "For trying a time to live."),
		),
		under("orchestration.backpressure",
			boolean("refuse_tasks", false, "Refuse new tasks (503) when a queue nears overflow_threshold.",
				"Off, the tiers are only shown: a backlog of millions drains as fast as a short one. On, senders feel it when workers do not keep up."),
		),
	)
}
