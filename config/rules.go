package config

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/loopback"
)

// values is a configuration on its way through a load. To rules, keys outside
// the loaded context and keys whose own check failed are absent, so that a
// rule judges only what can be judged.
type values struct {
	roots    []string // the tables of the context
	lookup   lookupFunc
	entries  map[string]*entry
	findings findings
}

// get returns the entry of a key, nil when it is absent or bad.
func (v *values) get(path string) *entry {
	e, ok := v.entries[path]
	if !ok || e.bad {
		return nil
	}
	return e
}

// compute replaces a value by one that follows from another key.
func (v *values) compute(e *entry, value any, from *entry) {
	next := &entry{key: e.key, value: value, layer: layerComputed, pos: e.pos}
	if from != nil {
		next.derivedFrom, next.pos = from.key.Path, from.pos
	}
	v.entries[e.key.Path] = next
}

// number is a number; a duration is in nanoseconds, whatever the unit of its key.
func (v *values) number(path string) (float64, bool) {
	e := v.get(path)
	if e == nil {
		return 0, false
	}
	unit := float64(max(e.key.unit, 1))
	switch n := e.value.(type) {
	case int64:
		return float64(n) * unit, true
	case float64:
		return n * unit, true
	case []int64: // the largest of them; a list of none is bad
		return float64(slices.Max(n)) * unit, true
	}
	return 0, false
}

func (v *values) str(path string) string {
	if e := v.get(path); e != nil {
		s, _ := e.value.(string)
		return s
	}
	return ""
}

// is reports whether a key has this value.
func (v *values) is(path string, value any) bool {
	e := v.get(path)
	return e != nil && e.value == value
}

// said renders "key (value, place)" for a message about several keys.
func (v *values) said(path string) string {
	e := v.get(path)
	if e == nil {
		return path
	}
	return fmt.Sprintf("%s (%s, %s)", path, shown(e.key, e.value), e.pos)
}

// fail reports a rule that the named keys break together, at the place of the
// one that was set last: most likely the one to change.
func (v *values) fail(message string, paths ...string) {
	if e := v.latest(paths); e != nil {
		v.findings.fail(crossProblem(e, message))
	}
}

// warn is like fail for what is legal and probably not meant. Defaults of the
// engine give no warnings.
func (v *values) warn(message string, paths ...string) {
	if e := v.latest(paths); e != nil && e.layer >= layerFile {
		v.findings.warn(crossProblem(e, message))
	}
}

func crossProblem(e *entry, message string) Problem {
	p := e.problem(message)
	p.Rule = "consistent with other keys"
	return p
}

func (v *values) latest(paths []string) *entry {
	var latest *entry
	for _, path := range paths {
		if e := v.get(path); e != nil && (latest == nil || e.layer > latest.layer) {
			latest = e
		}
	}
	return latest
}

// atMost is the commonest rule: low must not exceed high.
func (v *values) atMost(low, high string) {
	l, okLow := v.number(low)
	h, okHigh := v.number(high)
	if okLow && okHigh && l > h {
		v.fail(fmt.Sprintf("%s must not exceed %s", v.said(low), v.said(high)), low, high)
	}
}

// checkRules applies every rule that spans several keys.
func checkRules(v *values) {
	orderRules(v)
	for _, system := range eventSystems() {
		eventSystemRules(v, system)
	}
	sourceRules(v)
	leaseRules(v)
	hostRules(v)
	addressRule(v)
	encryptionRule(v)
	workerIDRule(v)
}

// orderRules hold for pairs of which the first must not exceed the second.
func orderRules(v *values) {
	const (
		depth    = "common.queues.pgmq.queue_depth_thresholds."
		decision = "orchestration.decision_points."
		shedding = "worker.mpsc_channels.handler_dispatch.load_shedding."
		sweeps   = "orchestration.sweeps."
	)
	for _, pair := range [][2]string{
		{"common.database.pool.min_connections", "common.database.pool.max_connections"},
		{depth + "critical_threshold", depth + "overflow_threshold"},
		{decision + "warn_threshold_steps", decision + "max_steps_per_decision"},
		{decision + "warn_threshold_depth", decision + "max_decision_depth"},
		{shedding + "warning_threshold_percent", shedding + "capacity_threshold_percent"},
		{"orchestration.apply.batch_size", "orchestration.create.max_pending"},
		{"orchestration.create.batch_size", "orchestration.create.max_pending"},
		{"worker.report.batch_size", "worker.report.max_pending"},
		{sweeps + "liveness.stale_after_seconds", sweeps + "liveness.dead_after_seconds"},
		{"orchestration.taskmaster.heartbeat.stale_threshold_seconds", "orchestration.taskmaster.heartbeat.dead_threshold_seconds"},
	} {
		v.atMost(pair[0], pair[1])
	}
	const delays, longest = "common.backoff.default_backoff_seconds", "common.backoff.max_backoff_seconds"
	delay, okDelay := v.number(delays)
	if most, ok := v.number(longest); ok && okDelay && delay > most {
		v.warn(fmt.Sprintf("%s has delays above %s, which caps them", v.said(delays), v.said(longest)), delays, longest)
	}
}

func eventSystemRules(v *values, system string) {
	for _, pair := range [][2]string{
		{".processing.backoff.initial_delay_ms", ".processing.backoff.max_delay_ms"},
		{".listener.reconnect_initial_ms", ".listener.reconnect_max_ms"},
		{".listener.health_check_interval_ms", ".listener.fallback_activation_threshold_ms"},
		{".poller.interval_ms", relaxedIntervalName},
		{".poller.error_backoff_base_ms", ".poller.error_backoff_max_ms"},
	} {
		v.atMost(system+pair[0], system+pair[1])
	}
	fallback, relaxed := system+fallbackPollingName, system+relaxedIntervalName
	f, r := v.get(fallback), v.get(relaxed)
	if f != nil && r != nil && f.layer >= layerFile && r.layer >= layerFile && r.derivedFrom == "" &&
		f.inUnitOf(r.key) != r.value {
		v.warn(fmt.Sprintf("%s is overruled by %s", v.said(fallback), v.said(relaxed)), fallback, relaxed)
	}
}

// leaseRules keep a claim alive where one heartbeat is lost.
func leaseRules(v *values) {
	const heartbeat = "worker.heartbeat_interval_ms"
	lease, okLease := v.number(keyLease)
	beat, okBeat := v.number(heartbeat)
	if okLease && okBeat && lease < 3*beat {
		v.fail(fmt.Sprintf("%s must be at least three times %s", v.said(keyLease), v.said(heartbeat)), keyLease, heartbeat)
	}
	const stale = "orchestration.sweeps.liveness.stale_after_seconds"
	if after, ok := v.number(stale); ok && okBeat && after < 2*beat {
		v.warn(fmt.Sprintf("%s is shorter than two heartbeats (%s): workers look stale that are not",
			v.said(stale), v.said(heartbeat)), stale, heartbeat)
	}
}

// workerIDRule warns of the identity that configuration files often copy.
func workerIDRule(v *values) {
	if v.str(keyWorkerID) == sharedWorkerID {
		v.warn(fmt.Sprintf("%s is the same in every replica that uses this file; leave it empty or set TASKER_WORKER_ID", v.said(keyWorkerID)), keyWorkerID)
	}
}

// sourceRules fit the modes of the event systems to the source of signals.
func sourceRules(v *values) {
	const source, from, listenerURL, prepared = "common.signals.event_source", "common.signals.moving_from", "common.database.listener_url", "common.database.prepared_statements"
	uses := func(sources ...string) bool {
		return slices.Contains(sources, v.str(source)) || slices.Contains(sources, v.str(from))
	}
	var modes, listening []string
	disabled := 0
	for _, system := range eventSystems() {
		path := system + ".deployment_mode"
		if v.get(path) == nil { // its mode is not known
			continue
		}
		modes = append(modes, path)
		mode := deploymode.Mode(v.str(path))
		switch {
		case mode == deploymode.Disabled:
			disabled++
		case mode.Listens():
			listening = append(listening, path)
		}
		if uses("notify", "wal", "relay") { // connections of the others are the broker's
			pooledListener(v, path, mode, listenerURL, prepared)
		}
	}
	if len(modes) == 0 {
		return
	}
	if disabled == len(modes) {
		v.warn(fmt.Sprintf("every event system is Disabled (%s): this daemon will do no work", strings.Join(modes, " and ")), modes...)
	} else if len(listening) == 0 && v.str(source) == "wal" && v.str(from) == "" {
		v.warn(fmt.Sprintf("%s has no use: no event system listens (%s)", v.said(source), strings.Join(modes, " and ")), append(modes, source)...)
	}
	if v.is("common.signals.wal.failover", true) && v.str("common.signals.wal.slot") == "" {
		v.fail(v.said("common.signals.wal.failover")+" needs common.signals.wal.slot: a temporary slot ends with its connection", "common.signals.wal.failover", "common.signals.wal.slot")
	}
	if v.get(source) != nil && !uses("wal", "relay") && v.str("common.signals.wal.slot") != "" {
		v.warn(fmt.Sprintf("%s has no use with %s", v.said("common.signals.wal.slot"), v.said(source)), "common.signals.wal.slot", source)
	}
}

// pooledListener finds a listener that would go through a transaction pooler,
// where LISTEN and replication do not work.
func pooledListener(v *values, modePath string, mode deploymode.Mode, listenerURL, prepared string) {
	if !mode.Listens() || !v.is(prepared, false) || v.get(listenerURL) == nil || v.str(listenerURL) != "" {
		return
	}
	message := fmt.Sprintf("%s needs a direct connection, and %s speaks of a transaction pooler: set %s",
		v.said(modePath), v.said(prepared), listenerURL)
	if mode == deploymode.EventDrivenOnly {
		v.fail(message, modePath, prepared)
		return
	}
	v.warn(message, modePath, prepared)
}

// hostRules warn of connections that may end at a standby.
func hostRules(v *values) {
	for _, path := range []string{"common.database.url", "common.database.listener_url"} {
		dsn := v.str(path)
		hosts := len(hostsOf(dsn))
		switch settingOf(dsn, "target_session_attrs") {
		case "read-write", "primary":
		default:
			if hosts > 1 {
				v.warn(fmt.Sprintf("%s names %d hosts without target_session_attrs=read-write: a daemon may settle on a standby, where nothing can be written",
					v.said(path), hosts), path)
			}
		}
	}
}

// addressRule warns of two servers on the same address. Those of two daemons may well run
// on different hosts.
func addressRule(v *values) {
	servers := []string{"orchestration.web.", "orchestration.grpc.", "worker.web.", "worker.grpc."}
	for i, a := range servers {
		for _, b := range servers[i+1:] {
			if v.is(a+"enabled", true) && v.is(b+"enabled", true) && sameAddress(v.str(a+"bind_address"), v.str(b+"bind_address")) {
				v.warn(fmt.Sprintf("%s and %s are the same address", v.said(a+"bind_address"), v.said(b+"bind_address")), a+"bind_address", b+"bind_address")
			}
		}
	}
}

func sameAddress(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || anyHost(hostA) || anyHost(hostB)
}

// encryptionRule warns of servers to which credentials travel in plain text. They are those of
// the key that would change it, see Loaded.Unencrypted.
func encryptionRule(v *values) {
	for _, daemon := range []string{"orchestration.", "worker."} {
		if !v.is(daemon+"web.auth.enabled", true) || v.is(daemon+"web.auth.enforcement", "off") {
			continue
		}
		for _, server := range []string{daemon + "web.", daemon + "grpc."} {
			address, encrypted := server+"bind_address", v.get(server+keyEncrypted)
			if encrypted == nil || encrypted.value == true || !v.is(server+"enabled", true) || v.get(address) == nil || loopback.Only(v.str(address)) {
				continue
			}
			v.findings.warn(crossProblem(encrypted, fmt.Sprintf("%s is reached from other machines, and credentials travel to it in plain text: "+
				"want %s%s = true, or a proxy on this machine that encrypts", v.said(address), server, keyEncrypted)))
		}
	}
}

// Unencrypted are the warnings of the servers of one root to which credentials travel in plain text.
func (l *Loaded) Unencrypted(root string) (warnings []string) {
	for i := range l.Warnings {
		if key := l.Warnings[i].Key; strings.HasPrefix(key, root+".") && strings.HasSuffix(key, "."+keyEncrypted) {
			warnings = append(warnings, l.Warnings[i].Message)
		}
	}
	return warnings
}

func anyHost(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }
