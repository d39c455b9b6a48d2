package report

// The modes with a source of signals of which the worst counts where a goal names
// no single one.
var (
	notified    = []string{"hybrid.notify", "eventdrivenonly.notify"}
	eventDriven = append([]string{"hybrid.wal", "eventdrivenonly.wal"}, notified...)
)

// across names one figure of a load in several settings.
func across(settings []string, load, workflow, percentile string) []string {
	names := make([]string, len(settings))
	for i, setting := range settings {
		names[i] = "latency." + setting + "." + load + "." + workflow + "." + percentile
	}
	return names
}

// slowest names the slowest of the tasks that ran one after the other.
func slowest() (names []string) {
	for _, setting := range eventDriven {
		names = append(names, "waiting."+setting+".tree.max_ms", "waiting."+setting+".diamond.max_ms")
	}
	return names
}

// The peers by the names their package gives them.
const (
	riverTuned    = "river-tuned"
	riverDefaults = "river"
	dbos          = "dbos"
)

// Goals are the goals of the project, row by row.
func Goals() []Goal {
	var goals []Goal
	for _, list := range [][]Goal{throughputGoals(), latencyGoals(), creationGoals(), costGoals(), growthGoals(), callableGoals(), neutralGoals(), disturbanceGoals(), secureGoals(), telemetryGoals(), orderGoals(), limitGoals(), sourceGoals(), restGoals()} {
		goals = append(goals, list...)
	}
	return goals
}

func throughputGoals() []Goal {
	const area, unit = "plain tasks", "tasks/s"
	drain := []string{"drain.rate"}
	return []Goal{
		{Area: area, What: "drain through both daemons, against River tuned by hand", Figures: drain, Unit: unit, Limit: 1.6,
			LimitTimes: "peer." + riverTuned + ".drain.rate", Peer: "peer." + riverTuned + ".drain.rate", PeerName: "River tuned"},
		{Area: area, What: "drain, against River's defaults", Figures: drain, Unit: unit, Limit: 20,
			LimitTimes: "peer." + riverDefaults + ".drain.rate", Peer: "peer." + riverDefaults + ".drain.rate", PeerName: "River's defaults"},
		{Area: area, What: "drain, absolute", Figures: drain, Unit: unit, Limit: 30_000},
		{Area: "orchestration", What: "steps through both daemons (diamonds and linear-4 at once)", Figures: []string{"orchestrated.steps_rate"},
			Unit: "steps/s", Limit: 10_000, Peer: "peer." + dbos + ".drain.rate", PeerName: "DBOS (one-step workflows)"},
	}
}

func latencyGoals() []Goal {
	ms := func(area, what string, figures []string, limit float64) Goal {
		return Goal{Area: area, What: what, Figures: figures, Unit: "ms", Limit: limit, AtMost: true}
	}
	const worst = "idle, p50; worst of Hybrid, EventDrivenOnly with notify"
	idle := func(workflow string) []string { return across(notified, "idle", workflow, "p50_ms") }
	start50 := ms("submit → handler", worst, idle("start"), 1)
	start50.LimitTimes, start50.Peer, start50.PeerName = "peer."+riverTuned+".latency.p50_ms", "peer."+riverTuned+".latency.p50_ms", "River tuned"
	start99 := ms("submit → handler", "idle, p99; with notify or wal", across(eventDriven, "idle", "start", "p99_ms"), 8)
	start99.Peer, start99.PeerName = "peer."+riverTuned+".latency.p99_ms", "River tuned"
	stalls := ms("stalls", "1,000 trees and 1,000 diamonds one after the other, the slowest; worst of the same", slowest(), 200)
	waited := ms("stalls", "500 tasks created with ?wait beside 8 clients that do the same, the slowest", []string{"waiting.with.max_ms"}, 200)
	beside := ms("stalls", "the same, p99, against clients that do not wait", []string{"waiting.with.p99_ms"}, 3)
	beside.LimitTimes, beside.Peer, beside.PeerName = "waiting.without.p99_ms", "waiting.without.p99_ms", "not waiting"
	return []Goal{
		start50, start99,
		ms("linear, 4 steps", worst, idle("linear"), 5),
		ms("linear, 4 steps", "idle, p99; with notify or wal", across(eventDriven, "idle", "linear", "p99_ms"), 25),
		ms("linear, 4 steps", "beside half of the sustained rate, p50; with notify", across(notified, "half", "linear", "p50_ms"), 12),
		ms("linear, 4 steps", "one process, idle, p50", []string{"latency.embedded.idle.linear.p50_ms"}, 3),
		ms("graph, 7 steps", worst, idle("graph"), 8),
		ms("tree, 8 steps", worst, idle("tree"), 8),
		ms("conditional", worst, idle("conditional"), 7),
		{Area: "signals", What: "idle, p50 with wal by that with notify; worst of the five above", Figures: []string{"latency.wal_ratio"}, Unit: "×", Limit: 1.3, AtMost: true},
		ms("batch of 1,000 rows", "idle, p50; with notify or wal", across(eventDriven, "idle", "batch", "p50_ms"), 40),
		stalls, waited, beside,
	}
}

func creationGoals() []Goal {
	const area = "creation"
	return []Goal{
		{Area: area, What: "in bulk", Figures: []string{"create.bulk.rate"}, Unit: "tasks/s", Limit: 0.9,
			LimitTimes: "peer." + riverTuned + ".submit.rate", Peer: "peer." + riverTuned + ".submit.rate", PeerName: "River tuned"},
		{Area: area, What: "single requests over REST, keep-alive clients", Figures: []string{"create.single.rate"}, Unit: "tasks/s", Limit: 15_000},
		{Area: area, What: "single request of one client, p50", Figures: []string{"create.one.p50_ms"}, Unit: "ms", Limit: 1, AtMost: true},
	}
}

func costGoals() []Goal {
	const area, river = "cost", "River tuned"
	peer := "peer." + riverTuned + ".cost."
	return []Goal{
		{Area: area, What: "WAL per plain task, creation included", Figures: []string{"cost.plain.wal_kb"}, Unit: "kB", Limit: 1.6, AtMost: true,
			Peer: peer + "wal_kb", PeerName: river},
		{Area: area, What: "row writes per plain task", Figures: []string{"cost.plain.row_writes"}, Unit: "rows", Limit: 6, AtMost: true,
			Peer: peer + "row_writes", PeerName: river},
		{Area: area, What: "row versions left to the vacuum per plain task", Figures: []string{"cost.plain.dead_rows"}, Unit: "rows", Limit: 0.5, AtMost: true,
			Peer: peer + "dead_rows", PeerName: river},
		{Area: area, What: "statements per step under load (diamonds and linear-4)", Figures: []string{"cost.orchestrated.statements_per_step"},
			Unit: "statements", Limit: 0.1, AtMost: true, Peer: peer + "statements", PeerName: river + ", per job"},
	}
}

func growthGoals() []Goal {
	const area = "growth"
	return []Goal{
		{Area: area, What: "rate with the most waiting tasks, as part of the rate with 1,000", Figures: []string{"growth.waiting.rate_ratio"}, Unit: "of the rate", Limit: 0.9},
		{Area: area, What: "claim time per step with the most waiting, by that with 1,000", Figures: []string{"growth.waiting.claim_ratio"}, Unit: "×", Limit: 1.15, AtMost: true},
		{Area: area, What: "apply time per step with the most waiting, by that with 1,000", Figures: []string{"growth.waiting.apply_ratio"}, Unit: "×", Limit: 1.15, AtMost: true},
		{Area: area, What: "rate with many finished tasks, as part of the rate without", Figures: []string{"growth.finished.rate_ratio"}, Unit: "of the rate", Limit: 0.9},
		{Area: area, What: "memory of a daemon, largest of all sizes", Figures: []string{"growth.memory_mb"}, Unit: "MB", Limit: 150, AtMost: true},
	}
}

func callableGoals() []Goal {
	const area = "callables"
	return []Goal{
		{Area: area, What: "claim time per step with 1,000 offered and one busy, by that with 1", Figures: []string{"callables.claim_ratio"}, Unit: "×", Limit: 1.15, AtMost: true},
		{Area: area, What: "drain with 1,000 offered and one busy, as part of that with 1", Figures: []string{"callables.rate_ratio"}, Unit: "of the rate", Limit: 0.9},
	}
}

// neutralGoals may be met by the rate or by the cost of a task, since the machine bounds
// the rate.
func neutralGoals() (goals []Goal) {
	for _, n := range []struct {
		permits string
		rate    float64
	}{{"4", 3300}, {"16", 11_000}, {"64", 20_000}, {"128", 20_000}} {
		goals = append(goals, Goal{Area: "neutral load", What: "handlers of 1 ms, " + n.permits + " permits", Figures: []string{"neutral." + n.permits + ".rate"},
			Unit: "tasks/s", Limit: n.rate, Peer: "peer." + riverTuned + ".neutral." + n.permits + ".rate", PeerName: "River tuned",
			Or: &Goal{Figures: []string{"neutral." + n.permits + ".cpu_us"}, Unit: "µs of CPU", Limit: 90, AtMost: true,
				Peer: "peer." + riverTuned + ".neutral." + n.permits + ".cpu_us", PeerName: "River tuned"}})
	}
	return goals
}

func disturbanceGoals() []Goal {
	var goals []Goal
	for _, d := range []struct{ key, name string }{
		{"snapshot", "held snapshot"}, {"burst", "2 × overload burst"}, {"readers", "idle-in-transaction readers"}, {"autovacuum", "autovacuum off"}} {
		rate := Goal{Area: d.name, What: "rate, as part of the undisturbed one", Figures: []string{"disturb." + d.key + ".ratio"}, Unit: "of the rate", Limit: 0.85}
		if d.key == "snapshot" {
			rate.Limit = 0.95
			rate.Peer, rate.PeerName = "peer."+riverTuned+".snapshot.ratio", "River tuned"
		}
		goals = append(goals, rate,
			Goal{Area: d.name, What: "back to the undisturbed rate (95 %) after", Figures: []string{"disturb." + d.key + ".recovery_s"}, Unit: "s", Limit: 10, AtMost: true})
	}
	return goals
}

func secureGoals() []Goal {
	var figures []string
	for _, way := range []string{"single", "bulk", "get", "fleet"} {
		figures = append(figures, "secure.token."+way+".lost_percent", "secure.key."+way+".lost_percent")
	}
	return []Goal{{Area: "credentials", What: "throughput lost to tokens or API keys; worst of requests and fleet", Figures: figures, Unit: "%", Limit: 3, AtMost: true}}
}

func telemetryGoals() []Goal {
	return []Goal{{Area: "telemetry", What: "throughput lost to traces of 1 % and the scraping of metrics; worse of tasks created one by one and in bulk",
		Figures: []string{"telemetry.production.single.lost_percent", "telemetry.production.fleet.lost_percent"}, Unit: "%", Limit: 3, AtMost: true}}
}

func orderGoals() (goals []Goal) {
	for _, g := range []struct {
		what, key string
		limit     float64
	}{
		{"mean time, burst", "burst.mean", 0.5}, {"p99, burst", "burst.p99", 1.1}, {"mean time, steady load", "steady.mean", 0.75}, {"p99, steady load", "steady.p99", 1.35},
	} {
		goals = append(goals, Goal{Area: "order", What: g.what + ": shortest_expected, worse of two mixes, median of three rounds", Figures: []string{"order.three." + g.key, "order.tailed." + g.key},
			Unit: "of fifo's", Limit: g.limit, AtMost: true})
	}
	for _, g := range []struct {
		key   string
		limit float64
	}{{"mean", 10}, {"p95", 10}, {"p99", 25}} {
		var figures []string
		for _, of := range []string{"three.burst.fifo", "three.burst.shortest_expected", "three.steady.fifo", "three.steady.shortest_expected",
			"tailed.burst.fifo", "tailed.burst.shortest_expected", "tailed.steady.fifo", "tailed.steady.shortest_expected"} {
			figures = append(figures, "order.forecast."+of+"."+g.key)
		}
		goals = append(goals, Goal{Area: "order", What: "forecast of the " + g.key + ": off by, worst of two policies, mixes and ways of arriving", Figures: figures, Unit: "%", Limit: g.limit, AtMost: true})
	}
	return append(goals, Goal{Area: "order", What: "longest wait behind a flood of urgent tasks, ageing with a bound of 60 s swept every 6 s", Figures: []string{"ageing.longest_seconds"},
		Unit: "s", Limit: 67, AtMost: true})
}

func limitGoals() []Goal {
	return []Goal{
		{Area: "limits", What: "share of a tenant of a hundred, off by its weight, worst of two times of 30 s", Figures: []string{"limits.share_off"}, Unit: "%", Limit: 5, AtMost: true},
		{Area: "limits", What: "p50 of 99 tenants at half their share while one floods", Figures: []string{"limits.flood.p50"}, Unit: "of that without", Limit: 1.5, AtMost: true},
		{Area: "limits", What: "p99 of them, over that without, in times of service (20 ms)", Figures: []string{"limits.flood.p99_services"}, Unit: "times", Limit: 2, AtMost: true},
		{Area: "limits", What: "claims of the busiest time under 50/s with a burst of 10, by what is allowed; worst of four lengths", Figures: []string{"limits.rate.most"}, Unit: "of it", Limit: 1, AtMost: true},
		{Area: "limits", What: "the rate of 50/s that is used", Figures: []string{"limits.rate.used"}, Unit: "of it", Limit: 0.95},
		{Area: "limits", What: "throughput lost to limits without keys that hold nothing up; worst of max_running and per_second",
			Figures: []string{"limit-cost.running.fleet.lost_percent", "limit-cost.rate.fleet.lost_percent"}, Unit: "%", Limit: 10, AtMost: true},
		{Area: "limits", What: "throughput lost to a limit of each of 100 keys that holds nothing up",
			Figures: []string{"limit-cost.key.fleet.lost_percent"}, Unit: "%", Limit: 10, AtMost: true},
		{Area: "limits", What: "the rate in the last quarter of a held snapshot, by that before, while a limit of 100 keys is used", Figures: []string{"limit-cost.snapshot.ratio"}, Unit: "of it", Limit: 0.95},
		{Area: "limits", What: "10,000 ordered keys, claims before the end of the step before", Figures: []string{"limits.disorder"}, Unit: "claims", Limit: 0, AtMost: true},
	}
}

func sourceGoals() []Goal {
	var found []string
	for _, source := range []string{"notify", "wal", "relay", "amqp", "redis"} {
		found = append(found, "sources."+source+".found_percent")
	}
	return []Goal{
		{Area: "sources", What: "work found by signals, not by polls; worst of five event sources in Hybrid", Figures: found, Unit: "%", Limit: 99},
		{Area: "sources", What: "different signals through RabbitMQ, from one sender to one receiver", Figures: []string{"sources.amqp.signals_rate"}, Unit: "signals/s", Limit: 10_000},
	}
}

func restGoals() []Goal {
	return []Goal{
		{Area: "idle", What: "EventDrivenOnly, statements other than heartbeats and probes", Figures: []string{"idle.eventdrivenonly.other_statements"}, Unit: "statements", Limit: 0, AtMost: true},
		{Area: "idle", What: "Hybrid, statements per second of the busier daemon", Figures: []string{"idle.hybrid.orchestrator.statements_rate", "idle.hybrid.worker.statements_rate"},
			Unit: "statements/s", Limit: 1, AtMost: true},
		{Area: "idle", What: "CPU of the busier daemon, both modes", Unit: "%", Limit: 0.2, AtMost: true, Figures: []string{
			"idle.eventdrivenonly.orchestrator.cpu_percent", "idle.eventdrivenonly.worker.cpu_percent",
			"idle.hybrid.orchestrator.cpu_percent", "idle.hybrid.worker.cpu_percent"}},
		{Area: "replicas", What: "rate of 4 + 8, as part of 1 + 1; worse of drain and mixed load", Figures: []string{"replicas.drain_ratio", "replicas.mixed_ratio"},
			Unit: "of the rate", Limit: 0.85},
	}
}
