package config

import (
	"fmt"
	"net"

	"github.com/tasker-go/tasker/deploymode"
)

// sourceRules fit the modes of the event systems to the source of signals.
func sourceRules(v *values) {
	const source, listenerURL, prepared = "common.signals.event_source", "common.database.listener_url", "common.database.prepared_statements"
	var modes, listening []string
	disabled := 0
	systems := v.systemsInContext()
	for _, system := range systems {
		path := system + ".deployment_mode"
		modes = append(modes, path)
		mode := deploymode.Mode(v.str(path))
		switch {
		case mode == deploymode.Disabled:
			disabled++
		case mode.Listens():
			listening = append(listening, path)
		}
		pooledListener(v, path, mode, listenerURL, prepared)
	}
	if len(systems) == 0 {
		return
	}
	if disabled == len(systems) {
		v.warn(fmt.Sprintf("every event system is Disabled (%s): this daemon will do no work", joinAnd(modes)), modes...)
	} else if len(listening) == 0 && v.str(source) == "wal" {
		v.warn(fmt.Sprintf("%s has no use: no event system listens (%s)", v.said(source), joinAnd(modes)), append(modes, source)...)
	}
	if v.str(source) == "notify" && v.str("common.signals.wal.slot") != "" {
		v.warn(fmt.Sprintf("%s has no use with %s", v.said("common.signals.wal.slot"), v.said(source)), "common.signals.wal.slot", source)
	}
}

// pooledListener finds a listener that would go through a transaction pooler,
// where LISTEN and replication do not work.
func pooledListener(v *values, modePath string, mode deploymode.Mode, listenerURL, prepared string) {
	if !mode.Listens() || !v.off(prepared) || v.get(listenerURL) == nil || v.str(listenerURL) != "" {
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

// addressRule warns of two daemons, which may well run on different hosts, that
// listen on the same address.
func addressRule(v *values) {
	const o, w = "orchestration.web.", "worker.web."
	if v.on(o+"enabled") && v.on(w+"enabled") && sameAddress(v.str(o+"bind_address"), v.str(w+"bind_address")) {
		v.warn(fmt.Sprintf("%s and %s are the same address", v.said(o+"bind_address"), v.said(w+"bind_address")), o+"bind_address", w+"bind_address")
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

func anyHost(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }
