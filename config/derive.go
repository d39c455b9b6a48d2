package config

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/tasker-go/tasker/internal/loopback"
)

const (
	keyLease            = "worker.lease_seconds"
	keyWorkerID         = "worker.worker_id"
	keyNamespaces       = "worker.namespaces"
	keyEncrypted        = "tls_enabled" // of a server
	sharedWorkerID      = "worker-default-001"
	fallbackPollingName = ".timing.fallback_polling_interval_seconds"
	relaxedIntervalName = ".poller.relaxed_interval_ms"
)

// eventSystems are the tables that have a mode.
func eventSystems() (tables []string) {
	for _, k := range theSchema().keys {
		if k.Type == typeMode && !k.Older {
			tables = append(tables, k.table())
		}
	}
	return tables
}

// replaceLegacy hands the values of older spellings to the keys that stand
// for them now, unless those are set as well.
func replaceLegacy(v *values) {
	for _, old := range theSchema().keys {
		e, set := v.entries[old.Path]
		if !old.Older || !set {
			continue
		}
		delete(v.entries, old.Path)
		if len(old.Sets) == 0 {
			v.findings.idle = append(v.findings.idle, e.withoutEffect())
			continue
		}
		v.findings.warn(e.problem(old.Path + " is an older spelling; use " + strings.Join(old.Sets, " and ")))
		for _, path := range old.Sets {
			current, ok := v.entries[path]
			if !ok || current.layer >= layerFile {
				continue
			}
			replaced := *e
			replaced.key, replaced.derivedFrom = current.key, old.Path
			v.entries[path] = &replaced
		}
	}
}

// derive computes the values that follow others and are not set.
func derive(v *values, workerID string) {
	for _, e := range v.entries {
		if e.bad || e.layer < layerFile || literal(e.value) == "[]" {
			continue
		}
		for _, path := range e.key.Sets {
			if follower := v.get(path); follower != nil && follower.layer < layerFile {
				v.compute(follower, e.inUnitOf(follower.key), e)
			}
		}
	}
	for _, daemon := range []string{"orchestration.", "worker."} {
		unguardedAddress(v, daemon+"web.", daemon+"web.auth.")
		if !besideREST(v, daemon) {
			unguardedAddress(v, daemon+"grpc.", daemon+"web.auth.")
		}
	}
	if id := v.get(keyWorkerID); id != nil && id.value == "" {
		if workerID == "" {
			workerID = newWorkerID()
		}
		v.compute(id, workerID, nil)
	}
}

// inUnitOf is the value of an entry in the unit, or in the word, of another key.
func (e *entry) inUnitOf(other *Key) any {
	if word, ok := e.value.(string); ok {
		return cmp.Or(other.Aliases[word], word)
	}
	if n, ok := e.value.(int64); ok && other.unit != 0 {
		return n * int64(e.key.unit/other.unit)
	}
	return e.value
}

// newWorkerID makes an identity that tells the host and differs per process.
func newWorkerID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "worker"
	}
	suffix := make([]byte, 4)
	_, _ = rand.Read(suffix) // documented never to fail
	return host[:min(len(host), 100)] + "-" + hex.EncodeToString(suffix)
}

// besideREST makes a gRPC server that the user has not configured follow the daemon's REST
// server: off without it, and on any free port where that is on one. It reports whether the
// address follows.
func besideREST(v *values, daemon string) bool {
	enabled, address := v.get(daemon+"grpc.enabled"), v.get(daemon+"grpc.bind_address")
	web := v.get(daemon + "web.enabled")
	if enabled != nil && v.is(daemon+"web.enabled", false) && !enabled.chosen() {
		v.compute(enabled, false, web)
	}
	web = v.get(daemon + "web.bind_address")
	if address == nil || web == nil || address.chosen() {
		return false
	}
	host, port, err := net.SplitHostPort(v.str(daemon + "web.bind_address"))
	if err != nil || port != "0" {
		return false
	}
	v.compute(address, net.JoinHostPort(host, port), web)
	return true
}

// chosen reports whether the user has set a value; the fallback of a placeholder is not a
// choice.
func (e *entry) chosen() bool { return len(e.env) > 0 || e.layer >= layerFile && !e.verbatim }

// unguardedAddress keeps a server that asks for no credentials to this machine, unless the
// user has allowed otherwise: an address that no user chose becomes one of the loopback, any
// other that others reach keeps the daemon from starting.
func unguardedAddress(v *values, server, auth string) {
	e := v.get(server + "bind_address")
	guarded := v.is(auth+"enabled", true) && v.is(auth+"enforcement", "enforce")
	if e == nil || guarded || v.is(auth+"allow_anonymous", true) || !v.is(server+"enabled", true) {
		return
	}
	address, _ := e.value.(string)
	_, port, err := net.SplitHostPort(address)
	if err != nil || loopback.Only(address) {
		return
	}
	if e.chosen() {
		v.refuse(e, fmt.Sprintf("%s is reached from other machines, and clients need no credentials: set %senabled = true, or %sallow_anonymous = true where something else protects it",
			v.said(e.key.Path), auth, auth))
		return
	}
	v.compute(e, net.JoinHostPort("127.0.0.1", port), v.get(auth+"enabled"))
}
